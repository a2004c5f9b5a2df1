//! Gates: what was demanded, what came of it.

use gradus_eval::report::{GateResult, GateVerdict};

use super::text::{self, Block};
use crate::output::html::number;

pub(crate) struct Gate {
    pub(crate) gate: String,
    pub(crate) verdict: &'static str,
    /// The class, and the icon's name.
    pub(crate) kind: &'static str,
    pub(crate) value: String,
    pub(crate) interval: Option<String>,
    pub(crate) explanation: Block,
}

impl Gate {
    pub(crate) fn of(result: &GateResult) -> Gate {
        let (verdict, kind) = match result.verdict {
            GateVerdict::Pass => ("PASS", "pass"),
            GateVerdict::Fail => ("FAIL", "fail"),
            GateVerdict::Inconclusive => ("INCONCLUSIVE", "unsure"),
        };
        let interval = number::finite_interval(result.interval);
        let (value, interval) = match number::finite(result.value) {
            None => ("—".to_owned(), None),
            Some(value) if result.metric == "cost" => (number::usd(value), None),
            Some(value) if result.is_share => (number::percent(value), interval.map(number::percents)),
            Some(value) => (number::score(value), interval.map(number::scores)),
        };
        Gate {
            gate: text::line(&result.gate),
            verdict,
            kind,
            value,
            interval,
            explanation: text::block(&result.explanation),
        }
    }
}
