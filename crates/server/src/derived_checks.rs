//! Checks that follow for certain from a failure, for the dataset of its group. Most failures give none: a wrong call
//! does not tell which call is right.

use serde_json::{Value as Json, json};

/// Checks of a dataset item, with a description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DerivedChecks {
    /// The name of a field of a dataset item, and its value.
    pub(crate) field: &'static str,
    pub(crate) value: Json,
    pub(crate) about: &'static str,
}

/// Derives the checks from the rule that decided; `None` if no check follows. `tool` is the tool that the wrong steps
/// call.
pub(crate) fn derive_checks(rule: &str, tool: &str) -> Option<DerivedChecks> {
    match rule {
        "call.unknown_tool" | "thought.unknown_tool" | "request.unknown_tool"
            if !tool.is_empty() && !tool.ends_with('…') =>
        {
            Some(DerivedChecks {
                field: "must_not_call",
                value: json!([tool]),
                about: "Each item of the dataset checks that the tool, which does not exist, is not called.",
            })
        }
        "outcome.no_answer" | "outcome.crashed" | "outcome.limit_reached" => Some(DerivedChecks {
            field: "answer_matches",
            value: json!([r"\S"]),
            about: "Each item of the dataset checks that there is an answer; what it should say is for you to add.",
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use gradus_eval::offline::OFFLINE_RULES;

    use super::*;

    #[test]
    fn only_certain_checks_are_derived() {
        let checks = |rule: &str| derive_checks(rule, "teleport").map(|checks| (checks.field, checks.value));
        assert_eq!(checks("call.unknown_tool"), Some(("must_not_call", json!(["teleport"]))));
        assert_eq!(checks("outcome.crashed"), Some(("answer_matches", json!([r"\S"]))));
        assert_eq!(derive_checks("call.unknown_tool", ""), None);
        // A model's opinion, and rules that know only that something was wrong.
        assert_eq!([checks(""), checks("call.schema"), checks("thought.other_tool")], [None, None, None]);
    }

    #[test]
    fn the_rules_exist() {
        for rule in ["call.unknown_tool", "thought.unknown_tool", "request.unknown_tool", "outcome.no_answer"] {
            assert!(OFFLINE_RULES.iter().any(|known| known.id == rule), "{rule}");
        }
        for rule in ["outcome.crashed", "outcome.limit_reached"] {
            assert!(OFFLINE_RULES.iter().any(|known| known.id == rule), "{rule}");
        }
    }
}
