//! Compares the settings of servers on one database. Those that change verdicts should be the same on all of them.
//!
//! Different settings are reported and not refused: while servers are upgraded one after the other, both versions
//! run. Every verdict names its rubric and judge.

use std::fmt::Write as _;

use gradus_core::stable_digest;
use gradus_store::NodeRow;

use crate::grading_rule::GradingRule;

type DescribeRule = fn(&GradingRule) -> String;

/// Returns the parts of the settings that are compared, each as `NAME:DIGEST`, separated by spaces.
pub(crate) fn describe_settings(rules: &[GradingRule]) -> String {
    let parts: [(&str, DescribeRule); 5] = [
        ("rules", |rule| format!("{} {} {}", rule.project_pattern(), rule.sample, rule.all_errors)),
        ("evaluators", |rule| list_evaluators(rule, |evaluator| evaluator.name.to_string())),
        ("rubrics", |rule| list_evaluators(rule, |evaluator| evaluator.hash.to_string())),
        ("judges", |rule| rule.judge.as_ref().map_or_else(String::new, |judge| format!("{:?}", judge.to_record()))),
        ("budgets", |rule| format!("{:?}", rule.daily_budget_usd)),
    ];
    let mut text = String::new();
    for (name, describe) in parts {
        let described: Vec<String> = rules.iter().map(|rule| format!("{:?} {}", rule.name, describe(rule))).collect();
        // Eight digits are enough to notice a difference.
        let digest = stable_digest(described.join("\n").as_bytes()) >> 96;
        let separator = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{separator}{name}:{digest:08x}");
    }
    text
}

fn list_evaluators(rule: &GradingRule, describe: fn(&gradus_eval::evaluator::Evaluator) -> String) -> String {
    rule.evaluators.iter().map(describe).collect::<Vec<_>>().join(" ")
}

/// Returns the parts in which two servers differ, in the order of `own`. Empty for a server that did not report its
/// settings.
fn differing_parts<'s>(own: &'s str, other: &str) -> Vec<&'s str> {
    let other: Vec<&str> = other.split_whitespace().collect();
    let is_other = |part: &&str| {
        let name = part.split(':').next().unwrap_or_default();
        other.iter().any(|known| known.split(':').next() == Some(name) && known != part)
    };
    own.split_whitespace().filter(is_other).filter_map(|part| part.split(':').next()).collect()
}

/// Describes the servers with other settings in one line; `None` without any.
pub(crate) fn describe_differing_nodes(own: &str, nodes: &[NodeRow]) -> Option<String> {
    let mut different = Vec::new();
    for node in nodes {
        let parts = differing_parts(own, &node.settings);
        if !parts.is_empty() {
            let NodeRow { name, address, version, .. } = node;
            different.push(format!("node {name} at {address} (gradus {version}) has other {}", parts.join(", ")));
        }
    }
    (!different.is_empty()).then(|| {
        format!(
            "{}; which settings judge a trace is left to chance: give all servers the same gradus.toml and rubrics, then \
             restart or reload them",
            different.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, settings: &str) -> NodeRow {
        let (address, version) = ("10.0.0.7".to_owned(), "1.2.3".to_owned());
        NodeRow { name: name.to_owned(), address, version, settings: settings.to_owned() }
    }

    #[test]
    fn only_what_differs_is_named() {
        let own = "rules:1 rubrics:2 judges:3";
        assert_eq!(describe_differing_nodes(own, &[node("a", own), node("b", "")]), None);
        // Parts that only one version knows are no difference.
        assert_eq!(describe_differing_nodes(own, &[node("a", "rules:1 scales:9")]), None);
        let told = describe_differing_nodes(own, &[node("a", own), node("b", "rules:1 rubrics:9 judges:9")]).unwrap();
        assert!(told.starts_with("node b at 10.0.0.7 (gradus 1.2.3) has other rubrics, judges; "), "{told}");
        assert!(!told.contains("node a") && told.contains("same gradus.toml") && !told.contains('\n'), "{told}");
    }
}
