//! Failure groups for people. Explanations of a model hardly ever repeat, so reasons that occur once are shown together.

use gradus_eval::report::{EvaluationSummary, FailureExample, FailureGroup};

use crate::number_text::{format_count, format_counted_noun};

/// Minimum number of groups with one verdict each, and the same evaluator, tool and label, that are folded into one
/// row.
const MIN_FOLDED_GROUPS: usize = 3;
/// Maximum number of examples of one row.
const MAX_EXAMPLES: usize = 3;

/// The placeholders for values in the reason of a failure group.
const VALUE_KINDS: [&str; 7] = ["<number>", "<text>", "<date>", "<id>", "<url>", "<email>", "<path>"];

/// Formats the reason of a failure group for people: `…` replaces the placeholders of values.
pub(crate) fn elide_values(reason: &str) -> String {
    merge_ellipses(&VALUE_KINDS.iter().fold(reason.to_owned(), |line, kind| line.replace(kind, "…")))
}

/// Merges ellipses between which there is nothing but punctuation: `{…: …, …: …}` says no more than `{…}`.
fn merge_ellipses(line: &str) -> String {
    let mut parts = line.split('…');
    let mut merged = parts.next().unwrap_or_default().to_owned();
    let parts: Vec<&str> = parts.collect();
    for (at, part) in parts.iter().enumerate() {
        // The first ellipsis is written whatever is before it, and the last part whatever is in it.
        let follows = at > 0 && parts[at - 1].chars().all(is_between_values);
        if !follows {
            merged.push('…');
        }
        let is_merged = at + 1 < parts.len() && part.chars().all(is_between_values);
        if !is_merged {
            merged.push_str(part);
        }
    }
    merged
}

fn is_between_values(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ':' | ';' | '=' | '{' | '}' | '[' | ']' | '"' | '\'' | '…')
}

/// Returns the text of an explanation that the first placeholder of the reason stands for, as an example for people.
/// Step numbers are skipped. `None` if the explanation does not match the reason.
pub fn find_example_value(reason: &str, explanation: &str) -> Option<String> {
    const MAX_VALUE_CHARS: usize = 60;
    let next_value = |text: &str| VALUE_KINDS.iter().filter_map(|kind| Some((text.find(kind)?, kind.len()))).min();
    let words: Vec<&str> = explanation.split_whitespace().take(400).collect();
    let (text, mut pattern) = (words.join(" "), reason);
    let mut text = text.as_str();
    while let Some((at, length)) = next_value(pattern) {
        let literal = &pattern[..at];
        text = text.strip_prefix(literal)?;
        pattern = &pattern[at + length..];
        let after = &pattern[..next_value(pattern).map_or(pattern.len(), |(at, _)| at)];
        // The last value of a reason may be followed by more of the explanation.
        let end = match after {
            "" => find_value_end(text),
            _ => text.find(after)?,
        };
        let value = &text[..end];
        text = &text[end..];
        if !value.is_empty() && !literal.to_lowercase().trim_end().ends_with("step") {
            let is_long = value.chars().count() > MAX_VALUE_CHARS;
            let shown: String = value.chars().take(MAX_VALUE_CHARS).collect();
            return Some(if is_long { format!("{shown}…") } else { shown });
        }
    }
    None
}

/// Returns where the value at the beginning of a text ends: a quotation after its closing mark, a word before its
/// punctuation.
fn find_value_end(text: &str) -> usize {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
    match quote.and_then(|quote| text[1..].find(quote)) {
        Some(end) => end + 2,
        None => {
            let word = &text[..text.find(' ').unwrap_or(text.len())];
            word.trim_end_matches(['.', ',', ';', ':', ')']).len()
        }
    }
}

/// A row of a list of failure groups. Its texts are those of the trace, unescaped: each format escapes for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureRow {
    pub evaluator: String,
    pub tool: Option<String>,
    pub rule: Option<String>,
    pub label: String,
    pub reason: String,
    pub count: u64,
    pub trajectories: u64,
    /// Of all trajectories of the run.
    pub share: f64,
    pub examples: Vec<FailureExample>,
}

impl FailureRow {
    fn from_group(group: &FailureGroup) -> FailureRow {
        FailureRow {
            evaluator: group.evaluator.clone(),
            tool: group.tool.clone(),
            rule: group.rule.clone(),
            label: group.label.clone(),
            reason: elide_values(&group.reason),
            count: group.count,
            trajectories: group.trajectories,
            share: group.share,
            examples: group.examples.clone(),
        }
    }

    /// `12 verdicts in 30.0 % of the runs`.
    pub fn format_count(&self) -> String {
        let verdicts = format_counted_noun(self.count, "verdict", "verdicts");
        format!("{verdicts} in {:.1} % of the runs", self.share * 100.0)
    }
}

/// The groups of a run as rows: the largest first, and among equal ones in the order of the summary. Groups of one verdict by a
/// model are folded where at least three have the same evaluator, tool and label.
pub fn list_failure_rows(summary: &EvaluationSummary) -> Vec<FailureRow> {
    let is_rare = |group: &FailureGroup| group.count == 1 && group.rule.is_none();
    let is_alike = |one: &FailureGroup, other: &FailureGroup| {
        one.evaluator == other.evaluator && one.tool == other.tool && one.label == other.label
    };
    let mut rows = Vec::new();
    let mut folded = vec![false; summary.failure_groups.len()];
    for (at, group) in summary.failure_groups.iter().enumerate() {
        if folded[at] {
            continue;
        }
        let alike: Vec<usize> = (at..summary.failure_groups.len())
            .filter(|other| {
                let other = &summary.failure_groups[*other];
                is_rare(group) && is_rare(other) && is_alike(group, other)
            })
            .collect();
        if alike.len() < MIN_FOLDED_GROUPS {
            rows.push(FailureRow::from_group(group));
            continue;
        }
        let members = || alike.iter().map(|at| &summary.failure_groups[*at]);
        let mut ids: Vec<&str> = members().flat_map(|group| &group.examples).map(|one| &*one.trajectory_id).collect();
        ids.sort_unstable();
        ids.dedup();
        let examples = members().flat_map(|group| &group.examples).take(MAX_EXAMPLES).cloned().collect();
        rows.push(FailureRow {
            reason: format!("{} reasons that occur once", format_count(alike.len() as u64)),
            count: alike.len() as u64,
            trajectories: ids.len() as u64,
            share: ids.len() as f64 / summary.trajectories.max(1) as f64,
            examples,
            ..FailureRow::from_group(group)
        });
        alike.iter().for_each(|at| folded[*at] = true);
    }
    // The sort is stable.
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::example;

    #[test]
    fn an_example_value_stands_where_the_reason_has_its_kind() {
        let find = find_example_value;
        let value = Some("\"7\"".to_owned());
        assert_eq!(
            find("`n` is <text>, which is not in the request", "`n` is \"7\", which is not in the request. More."),
            value
        );
        assert_eq!(find("The agent booked <text>", "The agent booked \"7\". Then it stopped."), value);
        assert_eq!(find("Step <number> calls <text> again", "Step 3 calls \"7\" again"), value, "not the step");
        assert_eq!(
            find("It fetches <url>", "It fetches https://a.example/x, twice."),
            Some("https://a.example/x".to_owned())
        );
        assert_eq!(find("It fetches <url>", "It asks."), None);
        assert_eq!(find("No value", "No value"), None);
        assert!(find("<text> is long", &format!("{} is long", "é".repeat(500))).unwrap().ends_with('…'));
    }

    #[test]
    fn reasons_that_occur_once_are_one_row_and_rules_keep_theirs() {
        let mut summary = example::empty();
        summary.trajectories = 10;
        let group = |reason: &str, rule: Option<&str>, count| FailureGroup {
            key: reason.to_owned(),
            evaluator: "fit".to_owned(),
            tool: Some("search".to_owned()),
            rule: rule.map(str::to_owned),
            label: "incorrect".to_owned(),
            reason: reason.to_owned(),
            count,
            trajectories: count,
            share: count as f64 / 10.0,
            examples: vec![FailureExample {
                trajectory_id: reason.to_owned(),
                trace_id: None,
                step_index: Some(1),
                request: None,
            }],
        };
        summary.failure_groups =
            vec![group("often", None, 2), group("a", None, 1), group("by rule", Some("r"), 1), group("b", None, 1)];
        assert_eq!(list_failure_rows(&summary).len(), 4, "two are listed");
        summary.failure_groups.push(group("c", None, 1));
        let rows = list_failure_rows(&summary);
        let found: Vec<_> = rows.iter().map(|row| (row.count, row.reason.as_str())).collect();
        assert_eq!(found, [(3, "3 reasons that occur once"), (2, "often"), (1, "by rule")]);
        assert_eq!(rows[0].format_count(), "3 verdicts in 30.0 % of the runs");
    }
}
