//! The deterministic checks of an item: expected tools, forbidden tools, and texts of the answer. Each result has a
//! reason that a person can act on.

use gradus_core::trajectory::Trajectory;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::item::DatasetItem;
use crate::tool_match::{find_call_difference, list_names};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ItemCheck {
    /// The field of the item: `expected_tools`, `must_not_call`, `answer_contains` or `answer_matches`.
    pub name: String,
    pub outcome: CheckOutcome,
    /// What was found. For a failed check: what differs from the expectation.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    Passed,
    Failed,
    /// The evidence is missing: a check of tools needs spans.
    NotChecked,
}

/// What one attempt at an item is checked by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrialEvidence {
    /// Tools in the order of their calls; `None` if the agent sent no spans, so that its calls are unknown.
    pub calls: Option<Vec<String>>,
    /// Tools that agents called by this agent have called. Only `must_not_call` looks at them.
    pub nested_calls: Vec<String>,
    pub answer: Option<String>,
}

impl TrialEvidence {
    pub fn from_trajectory(trajectory: &Trajectory) -> TrialEvidence {
        TrialEvidence {
            calls: Some(trajectory.steps.iter().map(|step| step.tool.clone()).collect()),
            nested_calls: Vec::new(),
            answer: trajectory.final_answer.clone(),
        }
    }
}

/// Maximum number of characters of an answer in a reason.
const MAX_QUOTED_ANSWER_CHARS: usize = 120;

impl DatasetItem {
    /// Checks the expectations of this item against one trajectory.
    pub fn check_trajectory(&self, trajectory: &Trajectory) -> Vec<ItemCheck> {
        self.check_evidence(&TrialEvidence::from_trajectory(trajectory))
    }

    /// Returns one result for each expectation of the item, in the order of its fields.
    pub fn check_evidence(&self, evidence: &TrialEvidence) -> Vec<ItemCheck> {
        let mut checks = Vec::new();
        let mut add = |name: &str, outcome: CheckOutcome, reason: String| {
            checks.push(ItemCheck { name: name.to_owned(), outcome, reason });
        };
        if let Some(expected) = &self.expected_tools {
            let (outcome, reason) = match &evidence.calls {
                None => unknown_calls(),
                Some(calls) => {
                    conclude_check(find_call_difference(expected, calls), || format!("called {}", list_names(calls)))
                }
            };
            add("expected_tools", outcome, reason);
        }
        if !self.must_not_call.is_empty() {
            let (outcome, reason) = match &evidence.calls {
                None => unknown_calls(),
                Some(calls) => {
                    conclude_check(find_forbidden(&self.must_not_call, calls, &evidence.nested_calls), || {
                        "none of them was called".to_owned()
                    })
                }
            };
            add("must_not_call", outcome, reason);
        }
        let answer = evidence.answer.as_deref().unwrap_or_default();
        if !self.answer_contains.is_empty() {
            let folded = fold_text(answer);
            let missing = self.answer_contains.iter().find(|text| !folded.contains(&fold_text(text)));
            let found = missing.map(|text| format!("{text:?} is not in the answer {}", quote(answer)));
            let (outcome, reason) = conclude_check(found, || "the answer contains every text".to_owned());
            add("answer_contains", outcome, reason);
        }
        if !self.answer_matches.is_empty() {
            let missing = self.answer_matches.iter().find(|pattern| !is_match(pattern, answer));
            let found = missing.map(|pattern| format!("/{pattern}/ does not match the answer {}", quote(answer)));
            let (outcome, reason) = conclude_check(found, || "every expression matches the answer".to_owned());
            add("answer_matches", outcome, reason);
        }
        checks
    }
}

fn conclude_check(problem: Option<String>, good: impl FnOnce() -> String) -> (CheckOutcome, String) {
    match problem {
        None => (CheckOutcome::Passed, good()),
        Some(reason) => (CheckOutcome::Failed, reason),
    }
}

fn unknown_calls() -> (CheckOutcome, String) {
    (CheckOutcome::NotChecked, "the agent sent no spans, so its tool calls are unknown".to_owned())
}

fn find_forbidden(forbidden: &[String], calls: &[String], nested: &[String]) -> Option<String> {
    if let Some(at) = calls.iter().position(|call| forbidden.contains(call)) {
        return Some(format!("{} was called, in step {}", calls[at], at + 1));
    }
    let call = nested.iter().find(|call| forbidden.contains(call))?;
    Some(format!("{call} was called by an agent that this agent called"))
}

/// Returns the text in lower case with single spaces.
pub(crate) fn fold_text(text: &str) -> String {
    text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Compiles an expression within bounds of memory. The reader refuses items whose expressions do not compile.
pub(crate) fn compile_pattern(pattern: &str) -> Result<Regex, regex::Error> {
    const MAX_COMPILED_BYTES: usize = 1 << 20;
    regex::RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES).build()
}

fn is_match(pattern: &str, answer: &str) -> bool {
    compile_pattern(pattern).is_ok_and(|compiled| compiled.is_match(answer))
}

fn quote(answer: &str) -> String {
    if answer.trim().is_empty() {
        return "(there is none)".to_owned();
    }
    let mut quoted: String = answer.trim().chars().take(MAX_QUOTED_ANSWER_CHARS).collect();
    if quoted.len() < answer.trim().len() {
        quoted.push('…');
    }
    format!("{quoted:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradus_core::trajectory::TrajectoryStep;

    fn item(text: &str) -> DatasetItem {
        serde_json::from_str(text).expect("an item")
    }

    fn outcomes(checks: &[ItemCheck]) -> Vec<(&str, CheckOutcome)> {
        checks.iter().map(|check| (check.name.as_str(), check.outcome)).collect()
    }

    #[test]
    fn a_trajectory_is_checked_field_by_field() {
        let item = item(
            r#"{"id": "a", "request": "Refund order 7", "expected_tools": ["find_order", "refund"],
                "must_not_call": ["delete_order"], "answer_contains": ["refunded  ORDER 7"], "answer_matches": "€ ?[0-9]+"}"#,
        );
        let step = |tool: &str| TrajectoryStep { tool: tool.to_owned(), ..TrajectoryStep::default() };
        let good = Trajectory {
            steps: vec![step("find_order"), step("log"), step("refund")],
            final_answer: Some("I refunded order 7: € 12.".to_owned()),
            ..Trajectory::default()
        };
        assert!(item.check_trajectory(&good).iter().all(|check| check.outcome == CheckOutcome::Passed));
        let bad = Trajectory {
            steps: vec![step("refund"), step("delete_order")],
            final_answer: Some("Done.".to_owned()),
            ..Trajectory::default()
        };
        let found = item.check_trajectory(&bad);
        assert!(found.iter().all(|check| check.outcome == CheckOutcome::Failed), "{found:?}");
        let reasons: Vec<&str> = found.iter().map(|check| check.reason.as_str()).collect();
        assert_eq!(reasons[1], "delete_order was called, in step 2");
        assert_eq!(reasons[2], r#""refunded  ORDER 7" is not in the answer "Done.""#);
        assert_eq!(reasons[3], r#"/€ ?[0-9]+/ does not match the answer "Done.""#);
    }

    #[test]
    fn without_spans_only_the_answer_is_checked() {
        let item = item(
            r#"{"id": "a", "request": "r", "expected_tools": ["t"], "must_not_call": ["u"], "answer_contains": "yes"}"#,
        );
        let evidence = TrialEvidence { answer: Some("Yes!".to_owned()), ..TrialEvidence::default() };
        use CheckOutcome::{NotChecked, Passed};
        let expected = [("expected_tools", NotChecked), ("must_not_call", NotChecked), ("answer_contains", Passed)];
        assert_eq!(outcomes(&item.check_evidence(&evidence)), expected);
        let nothing = item.check_evidence(&TrialEvidence::default());
        assert_eq!(nothing[2].reason, r#""yes" is not in the answer (there is none)"#);
    }

    #[test]
    fn forbidden_calls_of_nested_agents_are_found() {
        let item = item(r#"{"id": "a", "request": "r", "must_not_call": ["rm"]}"#);
        let evidence =
            TrialEvidence { calls: Some(vec!["ask".to_owned()]), nested_calls: vec!["rm".to_owned()], answer: None };
        let checks = item.check_evidence(&evidence);
        assert_eq!(outcomes(&checks), [("must_not_call", CheckOutcome::Failed)]);
    }
}
