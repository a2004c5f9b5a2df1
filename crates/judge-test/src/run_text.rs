//! Checks whether a value occurs in the texts of a run. A planted value must not occur; a planted contradiction must
//! contradict something that the judge can read.

use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::{Trajectory, TrajectoryStep};

/// Whether a text contains the value as a whole word, ignoring case. Words end where letters and digits end.
pub(crate) fn mentions_value(text: &str, value: &str) -> bool {
    find_value(text, value).is_some()
}

/// Finds the value as a whole word.
fn find_value(text: &str, value: &str) -> Option<std::ops::Range<usize>> {
    if value.is_empty() {
        return None;
    }
    // ASCII only: lower-casing other letters may change the length of a text.
    let (text, value) = (text.to_ascii_lowercase(), value.to_ascii_lowercase());
    let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    text.match_indices(&value)
        .map(|(at, found)| at..at + found.len())
        .find(|range| !is_word(text[..range.start].chars().next_back()) && !is_word(text[range.end..].chars().next()))
}

/// Replaces each mention of `value` in the text.
pub(crate) fn replace_value(text: &str, value: &str, other: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(range) = find_value(rest, value) {
        replaced.push_str(&rest[..range.start]);
        // A word at the beginning of a sentence keeps its capital.
        let is_capital = rest[range.start..].starts_with(char::is_uppercase) && value.starts_with(char::is_lowercase);
        let mut letters = other.chars();
        match letters.next().filter(|_| is_capital) {
            Some(first) => replaced.extend(first.to_uppercase().chain(letters)),
            None => replaced.push_str(other),
        }
        rest = &rest[range.end..];
    }
    replaced + rest
}

/// Whether the value occurs anywhere in the run, tool definitions included.
pub(crate) fn occurs_anywhere(trajectory: &Trajectory, value: &str) -> bool {
    let texts = [&trajectory.query, &trajectory.final_thought, &trajectory.final_answer];
    let has = |text: Option<&str>| text.is_some_and(|text| mentions_value(text, value));
    texts.into_iter().any(|text| has(text.as_deref()))
        || has(trajectory.system_prompt.as_deref())
        || trajectory.steps.iter().any(|step| {
            has(step.thought.as_deref())
                || has(step.observation.as_deref())
                || has(step.arguments_text().as_deref())
                || mentions_value(&step.tool, value)
        })
        || trajectory.tools.iter().any(|tool| has(tool.schema.as_ref().map(RawJson::as_str)))
}

/// Whether the value was known before step `at` (an index): from the request, from the thought of that step, or from an
/// earlier result.
pub(crate) fn is_grounded(trajectory: &Trajectory, at: usize, value: &str) -> bool {
    let has = |text: &Option<String>| text.as_deref().is_some_and(|text| mentions_value(text, value));
    has(&trajectory.query)
        || trajectory.steps.get(at).is_some_and(|step| has(&step.thought))
        || trajectory.steps.iter().take(at).any(|step| has(&step.observation))
}

pub(crate) fn has_thought(step: &TrajectoryStep) -> bool {
    step.thought.as_deref().is_some_and(|thought| !thought.trim().is_empty())
}

pub(crate) fn thought_mentions(step: &TrajectoryStep, value: &str) -> bool {
    step.thought.as_deref().is_some_and(|thought| mentions_value(thought, value))
}

pub(crate) fn query_mentions(trajectory: &Trajectory, value: &str) -> bool {
    trajectory.query.as_deref().is_some_and(|query| mentions_value(query, value))
}

/// Whether a text contains one of these words in the singular or plural. Substrings count, which errs towards leaving
/// a flaw out.
pub(crate) fn mentions_any_word(text: &str, words: &[String]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_whole_words() {
        assert!(mentions_value("Close issue #7 of octo/demo.", "7"));
        assert!(mentions_value("see OCTO/demo", "octo"));
        assert!(!mentions_value("issue 17", "7") && !mentions_value("demos", "demo") && !mentions_value("x", ""));
        assert_eq!(replace_value("7, 17 and #7", "7", "43"), "43, 17 and #43");
        assert_eq!(replace_value("ß demo", "demo", "x"), "ß x");
        assert_eq!(replace_value("Two of them", "two", "seven"), "Seven of them");
    }
}
