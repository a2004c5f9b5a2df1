//! Gates: what was demanded, what came of it.

use gradus_eval::report::{GateResult, GateVerdict};

use super::text::{self, DisplayText};
use crate::html::number;

#[derive(Debug)]
pub struct GateView {
    pub gate: String,
    pub verdict: &'static str,
    /// The class, and the icon's name.
    pub kind: &'static str,
    pub value: String,
    pub interval: Option<String>,
    pub explanation: DisplayText,
}

impl GateView {
    pub fn from_result(result: &GateResult) -> GateView {
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
        GateView {
            gate: text::line(&result.gate),
            verdict,
            kind,
            value,
            interval,
            explanation: text::block(&result.explanation),
        }
    }
}
