//! Expectations of a check: how a selected value is compared with what the task file demands. Every comparison gives a
//! sentence for the report when it fails, never only a yes or no.

use serde_json::Value;

use super::source::CheckSelection;
use super::text::extract_counts;
use crate::rules::contains_question;

/// Maximum number of characters of a value that a failure shows. Values can be whole files, and the sentence goes
/// into terminal tables.
const MAX_SHOWN_CHARS: usize = 160;

/// One demand of a check. Each variant is one key of a task file (`equals`, `one_of`, ...), see
/// `docs/reference/task-files.md`. A check with several keys holds if all of them hold.
#[derive(Clone, Debug)]
pub(super) enum CheckExpectation {
    Equals(Value),
    OneOf(Vec<Value>),
    /// Equal to the value of another selection. Two selections that both find nothing are not equal: a comparison of
    /// two missing things would make a misspelt path pass.
    SameAs(Box<CheckSelection>),
    /// Whether the selection found anything but null.
    Exists(bool),
    /// Elements of a list. Null counts as 0 and any other single value as 1, here and in the next two.
    Count(usize),
    AtLeast(usize),
    AtMost(usize),
    /// The same elements in any order, each as often as in the file.
    Set(Vec<Value>),
    /// All of these: substrings of a text (case-sensitive), or elements of a list.
    Contains(Vec<Value>),
    /// None of these. Holds for null, since nothing contains nothing.
    Lacks(Vec<Value>),
    /// All of these substrings, ignoring case: final messages differ in capitals from agent to agent.
    Mentions(Vec<String>),
    MentionsAny(Vec<String>),
    MentionsNone(Vec<String>),
    /// A count that the text states as a number or a number word, see `extract_counts`.
    Tells(u64),
    /// None of these counts, to catch answers that give a plausible wrong number.
    TellsNone(Vec<u64>),
    /// Whether the text asks the user something: the right end of a task whose request is ambiguous.
    Question(bool),
    /// Texts of white space alone are empty.
    NotEmpty(bool),
}

/// A value that is not as expected. Both texts are for people, the second cut to [`MAX_SHOWN_CHARS`] characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected}, found {found}")]
pub(super) struct ExpectationMismatch {
    expected: String,
    found: String,
}

impl CheckExpectation {
    /// Compares a value with the expectation. `found` is null where the selection found nothing; `other` is the value
    /// that the selection of `SameAs` found, and is needed only for that variant.
    pub(super) fn check_value(&self, found: &Value, other: Option<&Value>) -> Result<(), ExpectationMismatch> {
        let is = |fits: bool, expected: String| {
            if fits { Ok(()) } else { Err(ExpectationMismatch { expected, found: format_found_value(found) }) }
        };
        let size = || match found {
            Value::Array(items) => items.len(),
            Value::Null => 0,
            _ => 1,
        };
        match self {
            CheckExpectation::Equals(wanted) => is(found == wanted, format!("wanted {}", format_found_value(wanted))),
            CheckExpectation::OneOf(wanted) => is(
                wanted.contains(found),
                format!("wanted one of {}", format_found_value(&Value::Array(wanted.clone()))),
            ),
            CheckExpectation::SameAs(_) => {
                let other = other.unwrap_or(&Value::Null);
                is(!other.is_null() && found == other, format!("wanted {}", format_found_value(other)))
            }
            CheckExpectation::Exists(wanted) => {
                is(found.is_null() != *wanted, format!("wanted {}", if *wanted { "something" } else { "nothing" }))
            }
            CheckExpectation::Count(wanted) => is(size() == *wanted, format!("wanted {wanted}, counted {}", size())),
            CheckExpectation::AtLeast(least) => {
                is(size() >= *least, format!("wanted at least {least}, counted {}", size()))
            }
            CheckExpectation::AtMost(most) => is(size() <= *most, format!("wanted at most {most}, counted {}", size())),
            CheckExpectation::Set(wanted) => {
                let text = format!("wanted these in any order: {}", format_found_value(&Value::Array(wanted.clone())));
                is(found.as_array().is_some_and(|found| sort_as_text(found) == sort_as_text(wanted)), text)
            }
            CheckExpectation::Contains(wanted) => match wanted.iter().find(|one| !contains_value(found, one)) {
                None => Ok(()),
                Some(missing) => is(false, format!("wanted {} in it", format_found_value(missing))),
            },
            CheckExpectation::Lacks(unwanted) => match unwanted.iter().find(|one| contains_value(found, one)) {
                None => Ok(()),
                Some(there) => is(false, format!("did not want {} in it", format_found_value(there))),
            },
            CheckExpectation::Mentions(wanted) => match wanted.iter().find(|one| !mentions_text(found, one)) {
                None => Ok(()),
                Some(missing) => is(false, format!("wanted {missing:?} in it")),
            },
            CheckExpectation::MentionsAny(wanted) => {
                is(wanted.iter().any(|one| mentions_text(found, one)), format!("wanted one of {wanted:?} in it"))
            }
            CheckExpectation::MentionsNone(unwanted) => match unwanted.iter().find(|one| mentions_text(found, one)) {
                None => Ok(()),
                Some(there) => is(false, format!("did not want {there:?} in it")),
            },
            CheckExpectation::Tells(wanted) => {
                is(extract_counts(str_or_empty(found)).contains(wanted), format!("wanted the count {wanted}"))
            }
            CheckExpectation::TellsNone(unwanted) => {
                let there = extract_counts(str_or_empty(found)).into_iter().find(|one| unwanted.contains(one));
                there.map_or(Ok(()), |there| is(false, format!("did not want the count {there}")))
            }
            CheckExpectation::Question(wanted) => is(
                contains_question(str_or_empty(found)) == *wanted,
                format!("wanted {} question", if *wanted { "a" } else { "no" }),
            ),
            CheckExpectation::NotEmpty(wanted) => {
                let empty = match found {
                    Value::String(text) => text.trim().is_empty(),
                    _ => size() == 0,
                };
                is(empty != *wanted, format!("wanted {}", if *wanted { "some text" } else { "no text" }))
            }
        }
    }
}

fn str_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Sorts values by their JSON texts, since JSON values have no order.
fn sort_as_text(values: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = values.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}

/// Whether a text has a substring or a list an element; other values contain nothing.
fn contains_value(found: &Value, wanted: &Value) -> bool {
    match found {
        Value::String(text) => wanted.as_str().is_some_and(|wanted| text.contains(wanted)),
        Value::Array(items) => items.contains(wanted),
        _ => false,
    }
}

fn mentions_text(found: &Value, wanted: &str) -> bool {
    str_or_empty(found).to_lowercase().contains(&wanted.to_lowercase())
}

/// Formats a value for a failure message, cut to [`MAX_SHOWN_CHARS`] characters. Null is written as "nothing".
pub(super) fn format_found_value(value: &Value) -> String {
    let text = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
    if text.chars().count() <= MAX_SHOWN_CHARS {
        return text;
    }
    format!("{}…", text.chars().take(MAX_SHOWN_CHARS).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(expectation: &CheckExpectation, found: &Value) -> bool {
        expectation.check_value(found, None).is_ok()
    }

    #[test]
    fn texts_and_lists() {
        assert!(holds(&CheckExpectation::Contains(vec![json!("b"), json!("c")]), &json!("abc")));
        assert!(!holds(&CheckExpectation::Contains(vec![json!("B")]), &json!("abc")));
        assert!(holds(&CheckExpectation::Contains(vec![json!(2)]), &json!([1, 2])));
        assert!(!holds(&CheckExpectation::Contains(vec![json!(2)]), &Value::Null));
        assert!(holds(&CheckExpectation::Lacks(vec![json!("x")]), &Value::Null), "nothing has nothing in it");
        assert!(holds(&CheckExpectation::Mentions(vec!["NOT".to_owned()]), &json!("It does not exist")));
        assert!(holds(&CheckExpectation::Set(vec![json!(1), json!(2)]), &json!([2, 1])));
        assert!(!holds(&CheckExpectation::Set(vec![json!(1)]), &json!([1, 1])));
    }

    #[test]
    fn counts_and_absence() {
        assert!(holds(&CheckExpectation::Count(0), &Value::Null));
        assert!(holds(&CheckExpectation::Exists(false), &Value::Null));
        assert!(holds(&CheckExpectation::AtMost(1), &json!([1])) && !holds(&CheckExpectation::AtLeast(2), &json!([1])));
        assert!(holds(&CheckExpectation::Tells(2), &json!("Two issues: #5, #12.")));
        assert!(!holds(&CheckExpectation::Tells(5), &json!("Two issues: #5, #12.")));
        assert!(!holds(&CheckExpectation::Question(true), &Value::Null));
        assert!(holds(&CheckExpectation::Question(true), &json!("Which one do you mean?")));
        assert!(holds(&CheckExpectation::Question(false), &json!("See http://h/issues?q=is:open for all.")));
    }

    #[test]
    fn a_comparison_with_nothing_fails() {
        let of = CheckSelection {
            source: super::super::source::CheckSource::Answer,
            before: false,
            filter: Vec::new(),
            at: None,
            read_as: None,
            column: None,
        };
        let same = CheckExpectation::SameAs(Box::new(of));
        assert!(same.check_value(&Value::Null, Some(&Value::Null)).is_err());
        assert!(same.check_value(&json!(1), Some(&json!(1))).is_ok());
    }
}
