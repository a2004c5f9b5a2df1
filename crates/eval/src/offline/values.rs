//! Compares argument values with a text, to find calls of the right tool on the wrong object.

use std::borrow::Cow;

use gradus_core::trajectory::TrajectoryStep;
use serde_json::Value as Json;

use super::identifiers::{IdentifierShape, TextIdentifier, classify_identifier};
use super::words::{AnalyzedText, split_words, stem_word};

/// Maximum number of compared scalar arguments of one call.
const MAX_VALUES: usize = 60;

/// An argument that contradicts the text.
#[derive(Debug, PartialEq)]
pub(super) struct ValueContradiction {
    pub parameter: String,
    pub value: String,
    /// What the text names instead.
    pub named_instead: String,
    /// The kind of what the text names.
    pub shape: Option<IdentifierShape>,
    /// Counts only if the value appears neither in the request nor in an earlier step.
    pub is_doubtful: bool,
}

/// A string or number in the arguments of a call, with the name of its parameter.
#[derive(Debug, PartialEq)]
pub(super) struct ScalarArgument<'a> {
    pub parameter: &'a str,
    pub value: Cow<'a, str>,
    /// The value in lower case.
    pub lower: Box<str>,
}

/// Collects scalar arguments in order, nested ones included. Long strings are skipped: they are content, not names.
pub(super) fn collect_scalars(step: &TrajectoryStep) -> Vec<ScalarArgument<'_>> {
    let mut found = Vec::new();
    if let Some(arguments) = &step.arguments {
        collect_nested_scalars("", arguments, &mut found, 0);
    }
    found
}

fn collect_nested_scalars<'a>(name: &'a str, json: &'a Json, found: &mut Vec<ScalarArgument<'a>>, depth: usize) {
    if found.len() >= MAX_VALUES || depth > 4 {
        return;
    }
    let scalar = |value: Cow<'a, str>| {
        let lower = value.to_lowercase().into();
        ScalarArgument { parameter: name, value, lower }
    };
    match json {
        Json::Object(fields) => {
            fields.iter().for_each(|(name, value)| collect_nested_scalars(name, value, found, depth + 1))
        }
        Json::Array(items) => {
            items.iter().take(20).for_each(|value| collect_nested_scalars(name, value, found, depth + 1))
        }
        Json::String(text) if !text.is_empty() && text.len() <= 300 => {
            found.push(scalar(Cow::Borrowed(text.trim())));
        }
        Json::Number(number) => found.push(scalar(Cow::Owned(number.to_string()))),
        _ => {}
    }
}

/// Finds the first argument that names another object than the text. `nouns` are the objects of the tool.
pub(super) fn find_value_contradiction(
    text: &AnalyzedText<'_>,
    values: &[ScalarArgument<'_>],
    nouns: &[Box<str>],
) -> Option<ValueContradiction> {
    if values.is_empty() {
        return None;
    }
    let source = &text.lower;
    let used = |said: &str| {
        let said = said.to_lowercase();
        // Either may contain the other: "#17" in a title, a path below the named one.
        values
            .iter()
            .any(|ScalarArgument { lower, .. }| lower.contains(&said) || (lower.len() > 3 && said.contains(&**lower)))
    };
    let unused = |shape: IdentifierShape| {
        text.identifiers.iter().filter(move |said| said.shape == shape).find(|said| !used(&said.text))
    };
    for (at, ScalarArgument { parameter, value, lower }) in values.iter().enumerate() {
        if source.contains(&**lower) {
            continue;
        }
        let contradiction = |said: &TextIdentifier| {
            Some(ValueContradiction {
                parameter: (*parameter).to_owned(),
                value: value.to_string(),
                named_instead: said.text.clone(),
                shape: Some(said.shape),
                is_doubtful: false,
            })
        };
        let doubtful =
            |said: &TextIdentifier| contradiction(said).map(|found| ValueContradiction { is_doubtful: true, ..found });
        // Commands and sentences contain names but are none.
        let shape = classify_identifier(value).filter(|_| !value.contains(char::is_whitespace));
        let found = match shape {
            Some(shape) if shape.is_exact() => {
                let none_used =
                    text.identifiers.iter().filter(|said| said.shape == shape).all(|said| !used(&said.text));
                unused(shape).filter(|_| none_used).and_then(contradiction)
            }
            Some(IdentifierShape::Number) => find_other_number(text, parameter, value, nouns)
                .filter(|said| !used(&said.text))
                .and_then(contradiction)
                .or_else(|| find_other_numbered(text, parameter).and_then(doubtful)),
            Some(IdentifierShape::File | IdentifierShape::Path) => find_other_file(text, value)
                .filter(|said| !used(&said.text))
                .and_then(contradiction)
                .or_else(|| find_longer_file(text, value).and_then(doubtful)),
            _ => find_other_half(text, values, at).and_then(contradiction),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Finds another number in the text: "issue 17" against `issue_number: 21`.
fn find_other_number<'t>(
    text: &'t AnalyzedText<'_>,
    parameter: &str,
    value: &str,
    nouns: &[Box<str>],
) -> Option<&'t TextIdentifier> {
    let mut of_parameter = Vec::new();
    split_words(parameter, |word| of_parameter.push(stem_word(&word.to_lowercase())));
    let bare = of_parameter.iter().all(|word| matches!(word.as_str(), "numb" | "id" | "no" | "num" | "index"));
    let same_noun = |noun: &str| {
        of_parameter.iter().any(|word| word == noun) || (bare && nouns.last().is_some_and(|last| **last == *noun))
    };
    let mut same = text
        .identifiers
        .iter()
        .filter(|said| said.shape == IdentifierShape::Number && said.noun.as_deref().is_some_and(same_noun));
    let first = same.next()?;
    let number = |text: &str| text.parse::<f64>().ok();
    let said_at_all = text
        .identifiers
        .iter()
        .any(|said| said.shape == IdentifierShape::Number && number(&said.text) == number(value));
    (!said_at_all).then_some(first)
}

/// Finds the only numbered object of the text if it differs: "#17" against `issue_number: 21`.
fn find_other_numbered<'t>(text: &'t AnalyzedText<'_>, parameter: &str) -> Option<&'t TextIdentifier> {
    let mut names = false;
    split_words(parameter, |word| names |= matches!(&*word.to_lowercase(), "number" | "id" | "no" | "num"));
    let mut numbered = text.identifiers.iter().filter(|said| said.is_numbered);
    let first = numbered.next().filter(|_| names)?;
    numbered.all(|other| other.text == first.text).then_some(first)
}

/// Finds the file of the text that the value extends: `notes-old.md` if the text names `notes.md` and does not
/// mention "old".
fn find_longer_file<'t>(text: &'t AnalyzedText<'_>, value: &str) -> Option<&'t TextIdentifier> {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_lowercase();
    let wanted = last(value);
    let (stem_of_wanted, extension) = wanted.split_once('.')?;
    let mut files =
        text.identifiers.iter().filter(|said| matches!(said.shape, IdentifierShape::File | IdentifierShape::Path));
    let first = files.next()?;
    let said = last(&first.text);
    let (stem_of_said, said_extension) = said.split_once('.')?;
    let more = stem_of_wanted.strip_prefix(stem_of_said).filter(|more| !more.is_empty())?;
    let mut is_spoken_of = false;
    split_words(more, |word| {
        let word = stem_word(&word.to_lowercase());
        is_spoken_of |= text.words.iter().any(|said| said.stem() == word);
    });
    let alone = files.all(|other| last(&other.text) == said);
    (alone && extension == said_extension && !is_spoken_of).then_some(first)
}

/// Finds another file that the text names. A value that shares a word with the text may be meant by it.
fn find_other_file<'t>(text: &'t AnalyzedText<'_>, value: &str) -> Option<&'t TextIdentifier> {
    let last = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_lowercase();
    let wanted = last(value);
    if !wanted.contains('.') {
        return None;
    }
    let mut related = false;
    split_words(&wanted, |word| {
        let word = stem_word(&word.to_lowercase());
        related |= word.len() > 2 && text.words.iter().any(|said| said.stem() == word);
    });
    if related {
        return None;
    }
    let mut named = text.identifiers.iter().filter(|said| {
        matches!(said.shape, IdentifierShape::File | IdentifierShape::Path) && last(&said.text).contains('.')
    });
    let first = named.next()?;
    let extension = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let stem_of = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    let same = |said: &TextIdentifier| {
        let said = last(&said.text);
        said == wanted || stem_of(&said).contains(&stem_of(&wanted)) || stem_of(&wanted).contains(&stem_of(&said))
    };
    (!same(first) && !named.any(same) && extension(&last(&first.text)) == extension(&wanted)).then_some(first)
}

/// Finds `owner/name` in the text if two arguments give the same owner and another name.
fn find_other_half<'t>(
    text: &'t AnalyzedText<'_>,
    values: &[ScalarArgument<'_>],
    at: usize,
) -> Option<&'t TextIdentifier> {
    let value = &*values[at].value;
    if value.contains(char::is_whitespace) || !value.contains(char::is_alphabetic) {
        return None;
    }
    let mut pairs = text.identifiers.iter().filter(|said| said.shape == IdentifierShape::Pair);
    let first = pairs.next()?;
    let (owner, name) = first.text.split_once('/')?;
    // Arguments come in any order: one is the owner, none is the name, and this parameter takes a name.
    let given = |half: &str| values.iter().any(|other| other.value.eq_ignore_ascii_case(half));
    let is_name = names_repository(values[at].parameter);
    if !given(owner) || given(name) || value.eq_ignore_ascii_case(owner) || !is_name {
        return None;
    }
    // With a second pair in the text it is unclear which one is meant.
    pairs.all(|other| other.text == first.text).then_some(first)
}

/// Whether a parameter takes the number of this noun: `issue_number`, `line`, or just `number`.
pub(super) fn names_number(parameter: &str, noun: Option<&str>) -> bool {
    let mut names = false;
    split_words(parameter, |word| {
        let word = word.to_lowercase();
        names |= matches!(&*word, "number" | "id" | "no" | "num" | "index") || noun == Some(stem_word(&word).as_str());
    });
    names
}

/// Whether a parameter takes the name of the container itself (`repo`, `project_name`), not of something inside it
/// like a path, a branch or a title.
pub(super) fn names_repository(parameter: &str) -> bool {
    let mut last = String::new();
    let mut first = String::new();
    split_words(parameter, |word| {
        last = word.to_lowercase();
        if first.is_empty() {
            first.clone_from(&last);
        }
    });
    let holds = |word: &str| {
        matches!(word, "repo" | "repository" | "project" | "space" | "dataset" | "package" | "image" | "model")
    };
    holds(&last) || holds(&first) && matches!(&*last, "name" | "id" | "slug")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(thought: &str, arguments: Json) -> Option<String> {
        let step = TrajectoryStep { arguments: Some(arguments), ..TrajectoryStep::default() };
        find_value_contradiction(&AnalyzedText::new(thought), &collect_scalars(&step), &["ticket".into()])
            .map(|found| found.parameter)
    }

    #[test]
    fn another_thing_of_the_same_kind_contradicts() {
        assert_eq!(found("I will close it in acme/shop.", json!({"repo": "acme/blog"})), Some("repo".into()));
        assert_eq!(found("Mail ann@example.org now.", json!({"to": "bob@example.org"})), Some("to".into()));
        assert_eq!(found("Close ticket 17.", json!({"number": 18})), Some("number".into()));
        assert_eq!(found("The log of run 9 is needed.", json!({"run_id": 8})), Some("run_id".into()));
        assert_eq!(found("Read README.md", json!({"path": "LICENSE.md"})), Some("path".into()));
        assert_eq!(found("Look at acme/shop", json!({"owner": "acme", "repo": "blog"})), Some("repo".into()));
        assert_eq!(found("Flights on 2031-05-20", json!({"date": "2031-05-21"})), Some("date".into()));
    }

    #[test]
    fn what_the_thought_says_or_leaves_open_does_not() {
        assert_eq!(found("Close ticket 17 in acme/shop.", json!({"repo": "acme/shop", "number": 17})), None);
        assert_eq!(found("Close it.", json!({"repo": "acme/blog", "number": 3})), None);
        assert_eq!(found("Take the first 5 of ticket 17", json!({"number": 17, "page": 1})), None);
        assert_eq!(found("It is not at conf/a.yaml.", json!({"path": "app/conf/a.yaml"})), None);
        assert_eq!(found("Both acme/shop and acme/blog", json!({"repo": "acme/blog"})), None);
        assert_eq!(found("Tests of main.py", json!({"path": "tests/test_main.py"})), None);
    }
}
