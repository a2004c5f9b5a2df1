//! Gates: a condition on a number of a run that passes, fails or is inconclusive.

use serde::Serialize;

use super::EvaluationSummary;
use crate::evaluator::{QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use crate::interval::ConfidenceInterval;

/// A parsed gate, `thought_to_tool >= 0.85`.
#[derive(Clone, Debug, PartialEq)]
pub struct QualityGate {
    pub name: String,
    pub comparison: GateOperator,
    /// A share is stored as 0 to 1, even if it was written in percent.
    pub bar: f64,
}

/// `>=`, `>`, `<=` and `<`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOperator {
    AtLeast,
    More,
    AtMost,
    Less,
}

/// Why a gate cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("{0:?} is no gate: write a metric, >= > <= or <, and a number, as in 'thought_to_tool >= 0.85'")]
    Form(String),
    #[error("gate {gate:?}: {bar} is more than all; write a share, as 0.85 or 85%")]
    Bar { gate: String, bar: f64 },
    #[error("gate {gate:?}: there is no metric {name:?} in this run; there are {known}")]
    Name { gate: String, name: String, known: String },
}

/// The result of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    Pass,
    Fail,
    /// The interval contains the bar: more trajectories are needed.
    Inconclusive,
}

/// A checked gate, as in `--json` and in reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateResult {
    pub gate: String,
    /// The name of the metric.
    pub metric: String,
    pub bar: f64,
    /// Whether value and bar are shares and can be printed in percent.
    pub is_share: bool,
    pub verdict: GateVerdict,
    pub value: Option<f64>,
    pub interval: Option<ConfidenceInterval>,
    /// The verdict in words.
    pub explanation: String,
}

/// Numbers besides evaluators that a gate can be about.
const OTHERS: [&str; 4] = ["combined", "trajectories_right", "failed", "cost"];

impl QualityGate {
    /// Parses a gate on one of these evaluators or on another number of the run. It is done before the run, so that a
    /// misspelled gate costs nothing.
    pub fn parse(text: &str, evaluators: &[&str]) -> Result<QualityGate, GateError> {
        let form = || GateError::Form(text.to_owned());
        let at = text.find(['<', '>']).ok_or_else(form)?;
        let (name, rest) = text.split_at(at);
        let (comparison, rest) = match (rest.strip_prefix(">="), rest.strip_prefix("<=")) {
            (Some(rest), _) => (GateOperator::AtLeast, rest),
            (_, Some(rest)) => (GateOperator::AtMost, rest),
            _ if rest.starts_with('>') => (GateOperator::More, &rest[1..]),
            _ => (GateOperator::Less, &rest[1..]),
        };
        let number = rest.trim();
        let (number, scale) = match number.strip_suffix('%') {
            Some(number) => (number.trim(), 100.0),
            None => (number.trim_start_matches('$'), 1.0),
        };
        let bar = number.parse::<f64>().ok().filter(|bar| bar.is_finite()).ok_or_else(form)? / scale;
        let name = name.trim();
        // A share above 1 can never be met: the author probably meant percent.
        if matches!(
            name,
            "failed" | "combined" | "trajectories_right" | THOUGHT_TO_TOOL | QUERY_TO_THOUGHT | SEQUENCE_OPTIMALITY
        ) && bar > 1.0
        {
            return Err(GateError::Bar { gate: text.to_owned(), bar });
        }
        if !evaluators.contains(&name) && !OTHERS.contains(&name) {
            let known: Vec<&str> = evaluators.iter().copied().chain(OTHERS).collect();
            return Err(GateError::Name { gate: text.to_owned(), name: name.to_owned(), known: known.join(", ") });
        }
        Ok(QualityGate { name: name.to_owned(), comparison, bar })
    }

    /// Checks a run. With `strict`, an inconclusive gate fails. A gate on a number that does not exist fails, because a
    /// pipeline must not pass if nothing was judged.
    pub fn check(&self, summary: &EvaluationSummary, strict: bool) -> GateResult {
        let (value, interval, is_share) = match self.name.as_str() {
            "failed" => (summary.failed_share(), None, true),
            "cost" => (summary.cost.usd, None, false),
            name => match summary.find_metric(name) {
                Some(metric) => (metric.value, metric.interval, metric.is_share),
                None => (None, None, true),
            },
        };
        let Some(number) = value else {
            let what = if self.name == "cost" { "the model's price is not known" } else { "nothing was judged" };
            let explanation = format!("{what}, so the gate cannot pass");
            return self.build_result(GateVerdict::Fail, None, None, is_share, explanation);
        };
        let meets = |number: f64| match self.comparison {
            GateOperator::AtLeast => number >= self.bar,
            GateOperator::More => number > self.bar,
            GateOperator::AtMost => number <= self.bar,
            GateOperator::Less => number < self.bar,
        };
        // The gate is inconclusive if the two ends of the interval disagree.
        let sides = interval.map(|interval| (meets(interval.low), meets(interval.high)));
        let (verdict, explanation) = match sides {
            Some((low, high)) if low != high => {
                let how = if meets(number) { "it is met, but" } else { "it is missed, but" };
                let text = format!("{how} the interval holds the bar; more trajectories would tell");
                (if strict { GateVerdict::Fail } else { GateVerdict::Inconclusive }, text)
            }
            _ if meets(number) => (GateVerdict::Pass, "met".to_owned()),
            _ => (GateVerdict::Fail, "missed".to_owned()),
        };
        self.build_result(verdict, Some(number), interval, is_share, explanation)
    }

    fn build_result(
        &self,
        verdict: GateVerdict,
        value: Option<f64>,
        interval: Option<ConfidenceInterval>,
        is_share: bool,
        explanation: String,
    ) -> GateResult {
        GateResult {
            gate: self.to_string(),
            metric: self.name.clone(),
            bar: self.bar,
            is_share,
            verdict,
            value,
            interval,
            explanation,
        }
    }
}

impl std::fmt::Display for QualityGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.comparison {
            GateOperator::AtLeast => ">=",
            GateOperator::More => ">",
            GateOperator::AtMost => "<=",
            GateOperator::Less => "<",
        };
        write!(f, "{} {sign} {}", self.name, self.bar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::MetricResult;

    fn parse(text: &str) -> Result<QualityGate, GateError> {
        QualityGate::parse(text, &["thought_to_tool"])
    }

    fn summary(value: f64, low: f64, high: f64) -> EvaluationSummary {
        let metric = MetricResult {
            name: "thought_to_tool".to_owned(),
            value: Some(value),
            interval: Some(ConfidenceInterval { low, high }),
            denominator: 90,
            failed: 10,
            ..MetricResult::default()
        };
        let json = serde_json::json!({
            "run_id": "", "complete": true, "stopped_because": null, "judge": "", "started": "", "ended": null,
            "sources": [], "trajectories": 1, "steps": 1, "metrics": [metric], "combined": null,
            "trajectories_right": null, "tools": [], "reasons": [], "findings": [], "shortened": 0,
            "cost": {"calls": 0, "tokens": {"prompt": 0, "completion": 0, "cached_prompt": 0}, "usd": 2.5,
                "from_cache": 0, "by_evaluator": []},
        });
        serde_json::from_value(json).expect("a summary")
    }

    #[test]
    fn reads_gates_as_people_write_them() {
        for text in ["thought_to_tool >= 0.85", "thought_to_tool>=85%", " thought_to_tool  >=  0.850 "] {
            assert_eq!(parse(text).expect(text).to_string(), "thought_to_tool >= 0.85");
        }
        assert_eq!(parse("cost < $5").expect("a gate").bar, 5.0);
        for text in ["", "thought_to_tool", "thought_to_tool = 1", "thought_to_tool >= x", "failed <="] {
            assert!(matches!(parse(text), Err(GateError::Form(_))), "{text:?}");
        }
        assert!(matches!(parse("thought_to_tol > 1"), Err(GateError::Name { .. })));
        assert!(matches!(parse("thought_to_tool >= 85"), Err(GateError::Bar { .. })));
    }

    #[test]
    fn passes_fails_or_cannot_tell() {
        let check =
            |text: &str, summary: &EvaluationSummary, strict| parse(text).expect(text).check(summary, strict).verdict;
        let gate = "thought_to_tool >= 0.85";
        assert_eq!(check(gate, &summary(0.9, 0.87, 0.93), false), GateVerdict::Pass);
        assert_eq!(check(gate, &summary(0.7, 0.6, 0.8), false), GateVerdict::Fail);
        assert_eq!(check(gate, &summary(0.9, 0.8, 0.95), false), GateVerdict::Inconclusive);
        assert_eq!(check(gate, &summary(0.9, 0.8, 0.95), true), GateVerdict::Fail);
        let any = summary(0.9, 0.8, 0.95);
        assert_eq!(check("failed <= 0.1", &any, false), GateVerdict::Pass);
        assert_eq!(check("failed <= 0.02", &any, false), GateVerdict::Fail);
        assert_eq!(check("cost <= 5", &any, false), GateVerdict::Pass);
        assert_eq!(check("combined >= 0", &any, false), GateVerdict::Fail, "nothing judged never passes");
    }
}
