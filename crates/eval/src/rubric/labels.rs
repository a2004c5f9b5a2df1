//! Labels of a rubric with their scores, and the labels that a prompt asks for.

use std::collections::BTreeMap;

use crate::scale::ScoreScale;

/// Why the `[labels]` table of a rubric is refused.
#[derive(Debug, thiserror::Error)]
pub enum RubricLabelError {
    #[error("[labels] needs at least two labels with their scores")]
    TooFew,
    /// TOML allows `nan` and `inf`; means and intervals do not.
    #[error("the score of {0:?} is no number")]
    NotFinite(String),
    /// Labels are compared after `normalize_label`, which leaves nothing of this one.
    #[error("{0:?} is no label: it has neither letters nor digits")]
    Blank(String),
    /// Two labels are equal after normalization, so an answer could mean either.
    #[error("[labels] has {0:?} twice")]
    Duplicate(String),
}

/// The labels of a rubric with their scores, best first. There are at least two, with finite scores, and no two are
/// equal after normalization.
#[derive(Clone, Debug, PartialEq)]
pub struct RubricLabels(Vec<(String, f64)>);

impl RubricLabels {
    /// Checks the `[labels]` table and sorts it. Labels with equal scores keep their alphabetical order.
    pub(super) fn new(scores: BTreeMap<String, f64>) -> Result<RubricLabels, RubricLabelError> {
        if scores.len() < 2 {
            return Err(RubricLabelError::TooFew);
        }
        if let Some((label, _)) = scores.iter().find(|(_, score)| !score.is_finite()) {
            return Err(RubricLabelError::NotFinite(label.clone()));
        }
        if let Some((label, _)) = scores.iter().find(|(label, _)| normalize_label(label).is_empty()) {
            return Err(RubricLabelError::Blank(label.clone()));
        }
        let mut labels: Vec<(String, f64)> = scores.into_iter().collect();
        for (at, (label, _)) in labels.iter().enumerate() {
            if labels[..at].iter().any(|(other, _)| normalize_label(other) == normalize_label(label)) {
                return Err(RubricLabelError::Duplicate(label.clone()));
            }
        }
        labels.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(RubricLabels(labels))
    }

    /// The two labels of a yes-or-no question, scored 1 and 0.
    pub(crate) fn binary(good: &str, bad: &str) -> RubricLabels {
        RubricLabels(vec![(good.to_owned(), 1.0), (bad.to_owned(), 0.0)])
    }

    /// Labels of rules, which are given best first.
    pub(crate) fn from_table(table: &[(&str, f64)]) -> RubricLabels {
        RubricLabels(table.iter().map(|(label, score)| ((*label).to_owned(), *score)).collect())
    }

    /// Best first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(label, _)| label.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(label, score)| (label.as_str(), *score))
    }

    pub fn scale(&self) -> ScoreScale {
        ScoreScale::from_scores(self.iter().map(|(_, score)| score)).unwrap_or(ScoreScale::SHARE)
    }

    /// The label with the highest score, the first one of several.
    pub fn best(&self) -> &str {
        let (first, rest) = (&self.0[0], &self.0[1..]);
        &rest.iter().fold(first, |best, label| if label.1 > best.1 { label } else { best }).0
    }

    /// The label with the lowest score, the last one of several.
    pub fn worst(&self) -> &str {
        let (first, rest) = (&self.0[0], &self.0[1..]);
        &rest.iter().fold(first, |worst, label| if label.1 <= worst.1 { label } else { worst }).0
    }

    /// The same labels, offered to a judge in the opposite order: worst first.
    #[must_use]
    pub fn reversed(&self) -> RubricLabels {
        RubricLabels(self.0.iter().rev().cloned().collect())
    }

    /// The score of a label as declared; `None` for any other spelling. Use [`RubricLabels::find`] for free text.
    pub fn score(&self, label: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == label).map(|(_, score)| *score)
    }

    /// Finds the label that a text spells, ignoring case, quotes, spaces and markup. `None` if the text contains
    /// anything else.
    pub fn find(&self, text: &str) -> Option<&str> {
        let text = normalize_label(text);
        self.names().find(|label| normalize_label(label) == text)
    }
}

/// Letters and digits only, in lower case, so that `**Correct.**` and "correct" are equal.
pub(crate) fn normalize_label(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Returns the labels that a prompt asks for: what follows `LABEL:`, and what is quoted in a sentence about the
/// answer. This is a heuristic: a prompt with other words yields nothing and is accepted.
pub(super) fn find_asked_labels(prompt: &str) -> Vec<String> {
    let mut asked = Vec::new();
    for line in prompt.lines() {
        match text_after_label(line) {
            Some(rest) => asked.extend(parse_alternatives(rest)),
            None => line
                .split_inclusive(['.', '!', '?'])
                .filter(|sentence| is_about_the_answer(sentence))
                .for_each(|sentence| asked.extend(extract_quoted(sentence))),
        }
    }
    asked
}

/// The text after `LABEL:` at the beginning of a line, with any markup around it.
fn text_after_label(line: &str) -> Option<&str> {
    let start = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    let rest = start.get(..5).filter(|word| word.eq_ignore_ascii_case("label")).map(|_| &start[5..])?;
    let rest = rest.trim_start_matches(['*', '_', '`', ' ', '"']);
    rest.strip_prefix([':', '='])
}

/// Returns the quoted words if there are any, otherwise the words between `|`, `/`, commas and `or`. A placeholder
/// such as `[your label]` yields nothing.
fn parse_alternatives(text: &str) -> Vec<String> {
    let found = extract_quoted(text);
    if !found.is_empty() {
        return found;
    }
    let text = text.replace(" or ", "|").replace(" OR ", "|");
    let parts: Vec<&str> = text.split(['|', '/', ',']).map(|part| part.trim_matches(is_decoration)).collect();
    let is_word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    if parts.iter().all(is_word) { parts.into_iter().map(str::to_owned).collect() } else { Vec::new() }
}

fn is_decoration(c: char) -> bool {
    !c.is_alphanumeric()
}

/// Whether a sentence names the answer and prescribes its form. Quotes elsewhere in a prompt are not labels.
fn is_about_the_answer(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    says(&["response", "respond", "answer", "reply", "label", "verdict"])
        && says(&["must be", "respond with", "answer with", "reply with", "word", "one of", "either", "exactly"])
}

/// Texts of up to three words in quotes of any kind.
fn extract_quoted(text: &str) -> Vec<String> {
    const PAIRS: [(char, char); 5] =
        [('"', '"'), ('\'', '\''), ('`', '`'), ('\u{201c}', '\u{201d}'), ('\u{2018}', '\u{2019}')];
    let mut found = Vec::new();
    for (open, close) in PAIRS {
        let mut rest = text;
        while let Some(start) = rest.find(open) {
            // An apostrophe inside a word does not open a quotation.
            let is_apostrophe = open == '\'' && rest[..start].ends_with(char::is_alphanumeric);
            rest = &rest[start + open.len_utf8()..];
            if is_apostrophe {
                continue;
            }
            let Some(end) = rest.find(close) else { break };
            let inside = rest[..end].trim();
            rest = &rest[end + close.len_utf8()..];
            if !inside.is_empty() && inside.split_whitespace().count() <= 3 && !inside.contains(['{', '}', ':']) {
                found.push(inside.to_owned());
            }
        }
    }
    found
}
