//! Facts in texts and observations: values, issue numbers, counts, lines, and names that nobody writes by chance. Facts
//! are compared by equality, so that provenance is a lookup and not a search through the run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::suite::parse_number_word;

/// Facts without duplicates.
pub(super) type TracedFactSet = BTreeSet<TracedFact>;

/// Something that a text states and that can be recognised elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TracedFact {
    /// A whole JSON string.
    Value(String),
    /// The same in lower case. Only observations provide it; it is matched inside longer texts.
    Whole(String),
    /// A word that is not an ordinary one: a SHA, a path, an identifier with a digit in it.
    Name(String),
    /// A line of a text with several lines.
    Line(String),
    /// The number of an issue, a pull request or a milestone.
    Number(u64),
    /// A number in a text, of unknown meaning.
    Figure(u64),
    /// A number of items that can be counted in the observation.
    Count(u64),
    /// A figure with the name of its field, such as `stargazers_count`.
    Field(u64, String),
    /// That a call was refused.
    Refusal,
    /// The changed files of a pull request, as `owner/repo#5`.
    Changes(String),
    /// An ordinary word. Weak evidence, used only if a final message has no other fact.
    Word(String),
}

impl TracedFact {
    /// Describes the fact for a reason, cut to 24 characters.
    pub(super) fn describe(&self) -> String {
        let short = |text: &str| {
            let begin: String = text.chars().take(24).collect();
            if begin.len() < text.len() { format!("\"{begin}…\"") } else { format!("\"{begin}\"") }
        };
        match self {
            TracedFact::Value(text)
            | TracedFact::Whole(text)
            | TracedFact::Name(text)
            | TracedFact::Line(text)
            | TracedFact::Word(text) => short(text),
            TracedFact::Number(number) => format!("#{number}"),
            TracedFact::Figure(figure) | TracedFact::Count(figure) | TracedFact::Field(figure, _) => {
                format!("the figure {figure}")
            }
            TracedFact::Refusal => "that it was refused".to_owned(),
            TracedFact::Changes(pull) => format!("the changes of {pull}"),
        }
    }

    /// Returns how much the fact says about its origin. The strongest one is shown.
    pub(super) fn evidence_weight(&self) -> (u8, usize) {
        match self {
            TracedFact::Value(text) | TracedFact::Whole(text) | TracedFact::Line(text) | TracedFact::Name(text) => {
                (3, text.len())
            }
            TracedFact::Changes(_) | TracedFact::Refusal | TracedFact::Number(_) => (2, 0),
            TracedFact::Figure(_) | TracedFact::Count(_) | TracedFact::Field(..) => (1, 0),
            TracedFact::Word(text) => (0, text.len()),
        }
    }
}

/// Adds both forms of a whole value.
fn add_value(text: &str, facts: &mut TracedFactSet) {
    facts.insert(TracedFact::Value(text.to_owned()));
    facts.insert(TracedFact::Whole(text.to_lowercase()));
}

/// Values that an agent knows without reading them.
const COMMON_VALUES: [&str; 40] = [
    "main",
    "master",
    "open",
    "closed",
    "all",
    "public",
    "private",
    "true",
    "false",
    "completed",
    "not_planned",
    "reopened",
    "duplicate",
    "user",
    "organization",
    "squash",
    "merge",
    "rebase",
    "asc",
    "desc",
    "created",
    "updated",
    "file",
    "dir",
    "commit",
    "blob",
    "tree",
    "clean",
    "dirty",
    "unknown",
    "ahead",
    "behind",
    "identical",
    "diverged",
    "approved",
    "commented",
    "modified",
    "added",
    "removed",
    "readme.md",
];
/// Minimum length of a line or quotation that is evidence.
const MIN_LINE_CHARS: usize = 6;
const MIN_DISTINCTIVE_CHARS: usize = 4;
/// Maximum length of a string in characters that counts as a value. A longer one is only split into lines and words.
const MAX_FACT_VALUE_CHARS: usize = 300;
/// The same in bytes: a character has at most four, also after conversion to lower case.
pub(super) const MAX_FACT_VALUE_BYTES: usize = 4 * MAX_FACT_VALUE_CHARS;
/// Maximum number of characters of a text that are examined. Bounds the work on huge files.
const MAX_EXAMINED_CHARS: usize = 200_000;

fn is_common(text: &str) -> bool {
    let lower = text.to_lowercase();
    COMMON_VALUES.contains(&lower.as_str())
}

/// Whether a word is distinctive: it has a digit, a sign or an inner capital, and is not in [`COMMON_VALUES`].
fn is_distinctive_word(word: &str) -> bool {
    let has_sign = word.chars().any(|c| c.is_ascii_digit() || matches!(c, '_' | '/' | '.' | '-' | '@' | ':'));
    let inner_capital = word.chars().skip(1).any(char::is_uppercase) && word.chars().any(char::is_lowercase);
    word.chars().count() >= MIN_DISTINCTIVE_CHARS && (has_sign || inner_capital) && !is_common(word)
}

/// Trims punctuation except `_` and `#`, which belong to names and numbers.
fn trim_word_punctuation(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_' && c != '#')
}

fn truncate_chars(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_EXAMINED_CHARS).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Adds the facts of a text, whether it states or uses them.
pub(super) fn add_text_facts(text: &str, facts: &mut TracedFactSet) {
    let text = truncate_chars(text);
    // Text in quotation marks counts as a whole value.
    let quoted = text.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
    quoted
        .map(str::trim)
        .filter(|quoted| (MIN_LINE_CHARS..=MAX_FACT_VALUE_CHARS).contains(&quoted.len()))
        .for_each(|quoted| add_value(quoted, facts));
    if text.contains('\n') {
        let lines = text.lines().map(str::trim).filter(|line| line.chars().count() >= MIN_LINE_CHARS);
        facts.extend(lines.map(|line| TracedFact::Line(line.to_owned())));
    }
    let breaks = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | '|' | '<' | '>' | '=' | '*'
            )
    };
    for word in text.split(breaks).map(trim_word_punctuation).filter(|word| !word.is_empty()) {
        if let Some(number) = word.rsplit_once('#').and_then(|(_, digits)| digits.parse().ok()) {
            facts.insert(TracedFact::Number(number));
            continue;
        }
        if let Ok(figure) = word.parse() {
            facts.insert(TracedFact::Figure(figure));
            continue;
        }
        if is_distinctive_word(word) {
            facts.insert(TracedFact::Name(word.to_owned()));
            // `acme/billing` also names `billing`, and `issues/25` the number 25. The host of an address names nothing.
            let path =
                word.split_once("://").map_or(word, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
            for part in path.split(['/', ':', '@']).filter(|part| *part != word) {
                match part.parse() {
                    Ok(number) => drop(facts.insert(TracedFact::Number(number))),
                    Err(_) if is_distinctive_word(part) => drop(facts.insert(TracedFact::Name(part.to_owned()))),
                    Err(_) if part.len() >= MIN_DISTINCTIVE_CHARS && !is_common(part) => add_value(part, facts),
                    Err(_) => {}
                }
            }
        } else if word.chars().count() >= MIN_DISTINCTIVE_CHARS && !is_common(word) {
            facts.insert(TracedFact::Word(word.to_lowercase()));
        }
        facts.extend(parse_number_word(word).map(TracedFact::Figure));
    }
}

/// Collects the facts of an observation: of its values if it is JSON, of its words otherwise.
pub(super) fn collect_observation_facts(text: &str) -> TracedFactSet {
    let mut facts = TracedFactSet::new();
    match serde_json::from_str::<Value>(text) {
        Ok(value) => add_value_facts(&value, "", &mut facts),
        Err(_) => add_text_facts(text, &mut facts),
    }
    facts
}

/// Adds the facts of a JSON value. `key` is the name of the field, which decides what a number means.
pub(super) fn add_value_facts(value: &Value, key: &str, facts: &mut TracedFactSet) {
    match value {
        Value::String(text) => {
            if !text.is_empty() && text.chars().count() <= MAX_FACT_VALUE_CHARS && !is_common(text) {
                add_value(text, facts);
            }
            add_text_facts(text, facts);
        }
        Value::Number(number) => {
            let Some(number) = number.as_u64() else { return };
            facts.insert(match key {
                "next_page" => return,
                "total_count" => TracedFact::Count(number),
                "milestone" => TracedFact::Number(number),
                _ if key.ends_with("number") => TracedFact::Number(number),
                _ => TracedFact::Field(number, key.to_owned()),
            });
        }
        Value::Array(items) => {
            add_item_counts(items, facts);
            items.iter().for_each(|item| add_value_facts(item, key, facts));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, value)| match value {
            // Links of the API are not data: `starred_url` does not say what is starred.
            Value::String(text) if key.ends_with("_url") && key != "html_url" => add_address_facts(text, facts),
            _ => add_value_facts(value, key, facts),
        }),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Adds the facts of an address, which counts as a whole. A URI template (`{/owner}`) is not an address.
fn add_address_facts(text: &str, facts: &mut TracedFactSet) {
    if !text.is_empty() && !text.contains('{') && text.chars().count() <= MAX_FACT_VALUE_CHARS {
        add_value(text, facts);
    }
}

/// Adds the counts that a reader can derive from a list: all items, and items with the same value in a field.
pub(super) fn add_item_counts(items: &[Value], facts: &mut TracedFactSet) {
    let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (name, value) in items.iter().filter_map(Value::as_object).flatten() {
        let values: Vec<&Value> = value.as_array().map_or_else(|| vec![value], |values| values.iter().collect());
        for value in values {
            *kinds.entry((name.clone(), value.to_string())).or_default() += 1;
        }
    }
    facts.insert(TracedFact::Count(items.len() as u64));
    facts.extend(kinds.into_values().filter(|count| *count > 1).map(TracedFact::Count));
}

/// Collects the facts that arguments depend on. Page numbers depend on nothing: pages are handled in `pages`.
pub(super) fn collect_argument_facts(arguments: &Value) -> TracedFactSet {
    let mut facts = TracedFactSet::new();
    for (key, value) in arguments.as_object().into_iter().flatten() {
        if key != "page" && key != "per_page" {
            add_value_facts(value, key, &mut facts);
        }
    }
    // Figures in arguments are settings such as limits; counts are stated in texts.
    facts.retain(|fact| !matches!(fact, TracedFact::Figure(_) | TracedFact::Count(_) | TracedFact::Field(..)));
    facts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn observations_are_taken_apart() {
        let seen = json!({"items": [
            {"number": 5, "title": "Crash", "labels": ["bug"], "is_pull_request": false},
            {"number": 7, "title": "Slow start", "labels": ["bug", "p0"], "is_pull_request": false},
            {"number": 9, "title": "Docs", "labels": [], "is_pull_request": true},
        ]});
        let facts = collect_observation_facts(&seen.to_string());
        for fact in [
            TracedFact::Number(5),
            TracedFact::Value("Slow start".to_owned()),
            TracedFact::Count(3),
            TracedFact::Count(2),
        ] {
            assert!(facts.contains(&fact), "{fact:?}");
        }
        assert!(!facts.contains(&TracedFact::Number(2)));
    }

    #[test]
    fn texts_are_taken_apart() {
        let mut facts = TracedFactSet::new();
        add_text_facts("Fixes #25 in acme/billing at 3f2a9c1, see main. All three are merged.", &mut facts);
        for fact in [
            TracedFact::Number(25),
            TracedFact::Value("billing".to_owned()),
            TracedFact::Name("3f2a9c1".to_owned()),
            TracedFact::Figure(3),
        ] {
            assert!(facts.contains(&fact), "{fact:?} {facts:?}");
        }
        assert!(!facts.contains(&TracedFact::Word("main".to_owned())));
    }

    #[test]
    fn addresses_and_quotations() {
        let mut facts = TracedFactSet::new();
        add_text_facts("print(\"Hello, world!\") # see http://127.0.0.1:4100/octo/demo/issues/7", &mut facts);
        assert!(
            facts.contains(&TracedFact::Value("Hello, world!".to_owned())) && facts.contains(&TracedFact::Number(7))
        );
        assert!(!facts.contains(&TracedFact::Value("http".to_owned())), "{facts:?}");
    }

    #[test]
    fn addresses_of_the_api_are_no_data() {
        let facts = collect_observation_facts(
            &json!({
                "login": "octo",
                "starred_url": "http://127.0.0.1:4100/users/octo/starred{/owner}{/repo}",
                "events_url": "http://127.0.0.1:4100/users/octo/events",
                "html_url": "http://127.0.0.1:4100/octo/billing",
            })
            .to_string(),
        );
        for word in ["starred", "users", "events"] {
            let found = [
                TracedFact::Value(word.to_owned()),
                TracedFact::Word(word.to_owned()),
                TracedFact::Name(word.to_owned()),
            ];
            assert!(!found.iter().any(|fact| facts.contains(fact)), "{word}: {facts:?}");
        }
        for fact in ["octo", "billing", "http://127.0.0.1:4100/users/octo/events"] {
            assert!(facts.contains(&TracedFact::Value(fact.to_owned())), "{fact}: {facts:?}");
        }
    }

    #[test]
    fn settings_are_no_facts() {
        let facts = collect_argument_facts(&json!({"per_page": 100, "page": 2, "issue_number": 5}));
        assert_eq!(facts, TracedFactSet::from([TracedFact::Number(5)]));
    }
}
