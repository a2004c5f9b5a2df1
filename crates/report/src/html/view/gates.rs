//! The gates with their verdicts and values.

use gradus_eval::report::{GateResult, GateVerdict};

use super::text::{self, DisplayText};
use crate::html::number;

/// A gate, formatted.
#[derive(Debug)]
pub struct GateView {
    pub gate: String,
    pub verdict: &'static str,
    /// The CSS class, which is also the name of the icon: a verdict is never shown by colour alone.
    pub kind: &'static str,
    pub value: String,
    pub interval: Option<String>,
    pub explanation: DisplayText,
}

impl GateView {
    /// A gate without a value (nothing was judged) shows a dash.
    pub fn from_result(result: &GateResult) -> GateView {
        let (verdict, kind) = match result.verdict {
            GateVerdict::Pass => ("PASS", "pass"),
            GateVerdict::Fail => ("FAIL", "fail"),
            GateVerdict::Incomplete => ("INCOMPLETE", "unsure"),
        };
        let interval = number::finite_interval(result.interval);
        let (value, interval) = match number::filter_finite(result.value) {
            None => ("—".to_owned(), None),
            Some(value) if matches!(result.metric.as_str(), "cost" | "agent_cost") => (number::format_usd(value), None),
            Some(value) if result.is_share => {
                (number::format_percent(value), interval.map(number::format_percent_interval))
            }
            Some(value) => (number::format_score(value), interval.map(number::format_score_interval)),
        };
        GateView {
            gate: text::format_display_line(&result.gate),
            verdict,
            kind,
            value,
            interval,
            explanation: text::format_display_block(&result.explanation),
        }
    }
}
