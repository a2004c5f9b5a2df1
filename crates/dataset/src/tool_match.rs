//! Compares expected tool calls with those of an agent.

use std::collections::BTreeMap;

use crate::item::{ExpectedTools, ToolMatchMode};

/// Maximum number of names in a reason.
const MAX_LISTED: usize = 12;

/// Describes the first difference from the expected calls; `None` if there is none.
pub(crate) fn find_call_difference(expected: &ExpectedTools, calls: &[String]) -> Option<String> {
    let tools = expected.tools();
    let difference = match expected.mode() {
        ToolMatchMode::Exact => find_exact_difference(tools, calls),
        ToolMatchMode::InOrder => find_out_of_order(tools, calls),
        ToolMatchMode::AnyOrder => find_missing(tools, calls).or_else(|| find_unexpected(tools, calls)),
        ToolMatchMode::Subset => find_unexpected(tools, calls),
        ToolMatchMode::Superset => find_missing(tools, calls),
    }?;
    Some(format!(
        "{difference}; expected {} {}, called {}",
        expected.mode().name(),
        list_names(tools),
        list_names(calls)
    ))
}

/// Joins names as `a, b, c`; `nothing` if there are none.
pub(crate) fn list_names(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let mut text = names.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > MAX_LISTED {
        text.push_str(&format!(" and {} more", names.len() - MAX_LISTED));
    }
    text
}

fn find_exact_difference(tools: &[String], calls: &[String]) -> Option<String> {
    let at = (0..tools.len().max(calls.len())).find(|at| tools.get(*at) != calls.get(*at))?;
    Some(match (tools.get(at), calls.get(at)) {
        (Some(tool), Some(call)) => format!("call {} is {call} instead of {tool}", at + 1),
        (Some(tool), None) => format!("{tool} was not called"),
        (None, Some(call)) => format!("call {} ({call}) is one too many", at + 1),
        (None, None) => return None,
    })
}

/// Finds the first call that is missing or out of order. Greedy: the earliest call that fits each expectation leaves
/// most room for the next.
fn find_out_of_order(tools: &[String], calls: &[String]) -> Option<String> {
    let mut rest = calls;
    for (at, tool) in tools.iter().enumerate() {
        match rest.iter().position(|call| call == tool) {
            Some(found) => rest = &rest[found + 1..],
            None if at > 0 && calls.contains(tool) => {
                return Some(format!("{tool} was not called after {}", tools[at - 1]));
            }
            None => return Some(format!("{tool} was not called")),
        }
    }
    None
}

fn find_missing(tools: &[String], calls: &[String]) -> Option<String> {
    let found = count_names(calls);
    let missing = count_names(tools).into_iter().find(|(name, count)| found.get(name).unwrap_or(&0) < count)?;
    Some(describe_count(missing, &found, "was not called"))
}

fn find_unexpected(tools: &[String], calls: &[String]) -> Option<String> {
    let expected = count_names(tools);
    let found = count_names(calls);
    let (name, count) = found.into_iter().find(|(name, count)| expected.get(name).unwrap_or(&0) < count)?;
    Some(match expected.get(name) {
        None => format!("{name} was not expected"),
        Some(expected) => format!("{name} was called {count} times instead of {expected}"),
    })
}

fn describe_count((name, count): (&str, usize), found: &BTreeMap<&str, usize>, none: &str) -> String {
    match found.get(name) {
        None => format!("{name} {none}"),
        Some(found) => format!("{name} was called {found} times instead of {count}"),
    }
}

fn count_names(names: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ToolExpectation;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn expect(mode: ToolMatchMode, tools: &str) -> ExpectedTools {
        ExpectedTools::WithMode(ToolExpectation { mode, tools: names(tools) })
    }

    #[test]
    fn each_mode_has_its_rule() {
        use ToolMatchMode::{AnyOrder, Exact, InOrder, Subset, Superset};
        // Expected, called, the modes that accept it.
        let table: [(&str, &str, &[ToolMatchMode]); 9] = [
            ("a b", "a b", &[Exact, InOrder, AnyOrder, Subset, Superset]),
            ("a b", "b a", &[AnyOrder, Subset, Superset]),
            ("a b", "a c b", &[InOrder, Superset]),
            ("a b", "c b a", &[Superset]),
            ("a b", "a", &[Subset]),
            ("a b", "", &[Subset]),
            ("a b", "a b b", &[InOrder, Superset]),
            ("", "", &[Exact, InOrder, AnyOrder, Subset, Superset]),
            ("", "a", &[InOrder, Superset]),
        ];
        for (tools, calls, accepting) in table {
            for mode in [Exact, InOrder, AnyOrder, Subset, Superset] {
                let found = find_call_difference(&expect(mode, tools), &names(calls));
                assert_eq!(found.is_none(), accepting.contains(&mode), "{mode:?} {tools:?} {calls:?}: {found:?}");
            }
        }
    }

    #[test]
    fn the_reason_names_the_call() {
        let reason = |mode, tools: &str, calls: &str| {
            find_call_difference(&expect(mode, tools), &names(calls)).expect("a difference")
        };
        let exact = ToolMatchMode::Exact;
        assert_eq!(
            reason(exact, "find read", "find write"),
            "call 2 is write instead of read; expected exact find, read, called find, write"
        );
        assert!(reason(exact, "", "find").starts_with("call 1 (find) is one too many; expected exact nothing"));
        assert!(
            reason(ToolMatchMode::InOrder, "find read", "read find").starts_with("read was not called after find;")
        );
        assert!(reason(ToolMatchMode::Superset, "a a", "a").starts_with("a was called 1 times instead of 2;"));
        assert!(reason(ToolMatchMode::Subset, "a", "a b").starts_with("b was not expected;"));
    }

    proptest! {
        /// The stricter of two modes never accepts what the other refuses.
        #[test]
        fn modes_are_nested(tools in "[abc ]{0,8}", calls in "[abcd ]{0,10}") {
            let accepts = |mode| find_call_difference(&expect(mode, &tools), &names(&calls)).is_none();
            let (exact, in_order, any_order) =
                (accepts(ToolMatchMode::Exact), accepts(ToolMatchMode::InOrder), accepts(ToolMatchMode::AnyOrder));
            let (subset, superset) = (accepts(ToolMatchMode::Subset), accepts(ToolMatchMode::Superset));
            prop_assert!(!exact || (in_order && any_order));
            prop_assert_eq!(any_order, subset && superset);
            prop_assert!(!in_order || superset);
            prop_assert_eq!(exact, names(&tools) == names(&calls));
        }
    }
}
