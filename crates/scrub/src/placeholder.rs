//! Placeholders, which replace values in a scrubbed text. Equal values have equal placeholders.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::finding::ScrubCategory;

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"<(?:SECRET:[a-z0-9-]{1,80}|EMAIL|PHONE|CARD|IBAN|IP|USER):[0-9]{1,12}>";
    Regex::new(pattern).unwrap_or_else(|error| panic!("placeholder pattern: {error}"))
});

/// Finds the placeholders in a text, of this export or of an earlier one.
pub(crate) fn find_placeholders(text: &str) -> Vec<Range<usize>> {
    PLACEHOLDER.find_iter(text).map(|found| found.range()).collect()
}

/// Returns the parts of a span that are outside of placeholders and have a letter or digit. `placeholders` are
/// sorted.
pub(crate) fn subtract_placeholders(
    text: &str,
    span: Range<usize>,
    placeholders: &[Range<usize>],
) -> Vec<Range<usize>> {
    let first = placeholders.partition_point(|placeholder| placeholder.end <= span.start);
    let mut pieces = Vec::new();
    let mut start = span.start;
    for placeholder in placeholders[first..].iter().take_while(|placeholder| placeholder.start < span.end) {
        if start < placeholder.start {
            pieces.push(start..placeholder.start);
        }
        start = start.max(placeholder.end);
    }
    if start < span.end {
        pieces.push(start..span.end);
    }
    pieces.retain(|piece| text[piece.clone()].chars().any(char::is_alphanumeric));
    pieces
}

/// Gives each value its placeholder. Numbers count per label, in the order of first sight.
#[derive(Debug, Default)]
pub(crate) struct PlaceholderTable {
    placeholders: HashMap<(ScrubCategory, String), String>,
    counts: HashMap<String, u64>,
}

impl PlaceholderTable {
    /// Returns the placeholder of a value. It is named by the rule that found the value first, whatever rule finds it
    /// later.
    pub(crate) fn placeholder_for(&mut self, category: ScrubCategory, rule: &str, value: &str) -> &str {
        let counts = &mut self.counts;
        self.placeholders.entry((category, normalize_value(category, value))).or_insert_with(|| {
            let label = match category {
                ScrubCategory::Secret => format!("{}:{rule}", category.label()),
                _ => category.label().to_owned(),
            };
            let count = counts.entry(label.clone()).or_insert(0);
            *count += 1;
            format!("<{label}:{count}>")
        })
    }

    /// Returns how many different values have a placeholder.
    pub(crate) fn len(&self) -> usize {
        self.placeholders.len()
    }
}

/// Forms of writing that mean the same value.
fn normalize_value(category: ScrubCategory, value: &str) -> String {
    match category {
        ScrubCategory::Secret | ScrubCategory::UserName => value.to_owned(),
        ScrubCategory::Email | ScrubCategory::IpAddress => value.to_lowercase(),
        ScrubCategory::Phone | ScrubCategory::Card => {
            value.chars().filter(|character| character.is_ascii_digit() || *character == '+').collect()
        }
        ScrubCategory::Iban => value.chars().filter(char::is_ascii_alphanumeric).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_has_the_same_placeholder() {
        let mut table = PlaceholderTable::default();
        assert_eq!(table.placeholder_for(ScrubCategory::Secret, "github-pat", "a"), "<SECRET:github-pat:1>");
        assert_eq!(table.placeholder_for(ScrubCategory::Secret, "generic-api-key", "a"), "<SECRET:github-pat:1>");
        assert_eq!(table.placeholder_for(ScrubCategory::Secret, "github-pat", "b"), "<SECRET:github-pat:2>");
        assert_eq!(table.placeholder_for(ScrubCategory::Phone, "phone", "+49 30 1"), "<PHONE:1>");
        assert_eq!(table.placeholder_for(ScrubCategory::Phone, "phone", "+49-301"), "<PHONE:1>");
    }

    #[test]
    fn spans_are_cut_at_placeholders() {
        let text = "ab<EMAIL:1> - <IP:22>cd";
        let placeholders = find_placeholders(text);
        assert_eq!(subtract_placeholders(text, 0..text.len(), &placeholders), [0..2, 21..23]);
        assert_eq!(subtract_placeholders(text, 3..8, &placeholders), Vec::<Range<usize>>::new());
    }
}
