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
    pub(super) fn of(result: &GateResult) -> Gate {
        let (verdict, kind) = match result.verdict {
            GateVerdict::Pass => ("PASS", "pass"),
            GateVerdict::Fail => ("FAIL", "fail"),
            GateVerdict::Inconclusive => ("INCONCLUSIVE", "unsure"),
        };
        let is_cost = demand(result).is_some_and(|(name, _)| name == "cost");
        let interval = number::finite_interval(result.interval);
        let is_share = |number: f64| (0.0..=1.0).contains(&number);
        let are_shares = interval.is_none_or(|interval| is_share(interval.low) && is_share(interval.high));
        let (value, interval) = match number::finite(result.value) {
            None => ("—".to_owned(), None),
            Some(value) if is_cost => (number::usd(value), None),
            Some(value) if are_shares && is_share(value) => {
                (number::percent(value), interval.map(number::percents))
            }
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

/// The metric that a gate is about, and its bar.
pub(super) fn demand(result: &GateResult) -> Option<(&str, f64)> {
    let mut words = result.gate.split_whitespace();
    let (name, _, bar) = (words.next()?, words.next()?, words.next()?);
    Some((name, bar.parse().ok()?))
}
