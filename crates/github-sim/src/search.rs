//! The query language of GitHub's search:
//!
//! | term | meaning |
//! |---|---|
//! | `word` | the word occurs, in any case |
//! | `"two words"` | both words occur; their order is not checked |
//! | `-word` | the word does not occur |
//! | `name:value`, `name:"two words"` | a qualifier |
//! | `-name:value` | a negated qualifier |
//! | `name:>=5`, `name:2..7`, `name:*..7` | a range of numbers or dates |
//!
//! All terms must hold. `AND`, `OR` and `NOT` are accepted and ignored. Words are compared as a whole, without
//! stemming: GitHub's relevance ranking cannot be reproduced, so the simulator has none.

/// A parsed search query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SearchTerms {
    /// Words that must all occur, in lower case. A phrase counts as its words.
    pub(super) words: Vec<String>,
    pub(super) not_words: Vec<String>,
    pub(super) qualifiers: Vec<SearchQualifier>,
}

/// One `name:value` term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SearchQualifier {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) negated: bool,
}

impl SearchTerms {
    /// Parses a query. Never fails: what is not a qualifier is a word. Boolean operators are ignored, since all terms
    /// are combined with AND.
    pub(super) fn parse(text: &str) -> SearchTerms {
        let mut search = SearchTerms::default();
        for part in split_outside_quotes(text) {
            let (negated, part) = match part.strip_prefix('-') {
                Some(rest) if !rest.is_empty() => (true, rest),
                _ => (false, part.as_str()),
            };
            let qualifier = part.split_once(':').filter(|(name, value)| {
                !value.is_empty() && !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
            });
            match qualifier {
                Some((name, value)) => search.qualifiers.push(SearchQualifier {
                    name: name.to_lowercase(),
                    value: value.replace('"', ""),
                    negated,
                }),
                None if matches!(part, "AND" | "OR" | "NOT") => {}
                None => {
                    let found = tokenize_text(&part.replace('"', " "));
                    if negated { search.not_words.extend(found) } else { search.words.extend(found) }
                }
            }
        }
        search
    }

    pub(super) fn qualifiers_named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s SearchQualifier> {
        self.qualifiers.iter().filter(move |one| one.name == name)
    }

    /// Whether the texts together contain all words and none of the negated ones.
    pub(super) fn matches_words<'t>(&self, texts: impl Iterator<Item = &'t str>) -> bool {
        if self.words.is_empty() && self.not_words.is_empty() {
            return true;
        }
        let found: std::collections::BTreeSet<String> = texts.flat_map(tokenize_text).collect();
        self.words.iter().all(|word| found.contains(word)) && !self.not_words.iter().any(|word| found.contains(word))
    }
}

/// Splits at white space outside of quotes; quotes are kept.
fn split_outside_quotes(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut part = String::new();
    let mut quoted = false;
    for c in text.chars() {
        if c == '"' {
            quoted = !quoted;
        }
        if c.is_whitespace() && !quoted {
            if !part.is_empty() {
                found.push(std::mem::take(&mut part));
            }
        } else {
            part.push(c);
        }
    }
    if !part.is_empty() {
        found.push(part);
    }
    found
}

/// Splits into whole words in lower case. `_` belongs to a word, so identifiers stay whole.
pub(super) fn tokenize_text(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Whether a value is in a range: `>2026-01-01`, `<=5`, `2..7`, `*..7`, or exactly `3`. `read` parses the bounds; an
/// invalid bound matches nothing.
pub(super) fn is_in_range<T: PartialOrd>(range: &str, value: &T, read: impl Fn(&str) -> Option<T>) -> bool {
    if let Some((low, high)) = range.split_once("..") {
        let above = low == "*" || read(low).is_some_and(|low| *value >= low);
        let below = high == "*" || read(high).is_some_and(|high| *value <= high);
        return above && below;
    }
    let with = |prefix: &str| range.strip_prefix(prefix).and_then(&read);
    if let Some(limit) = with(">=") {
        *value >= limit
    } else if let Some(limit) = with("<=") {
        *value <= limit
    } else if let Some(limit) = with(">") {
        *value > limit
    } else if let Some(limit) = with("<") {
        *value < limit
    } else {
        read(range).is_some_and(|wanted| *value == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_taken_apart() {
        let search =
            SearchTerms::parse("crash \"empty input\" repo:octo/demo -label:\"good first issue\" is:open -old");
        assert_eq!(search.words, ["crash", "empty", "input"]);
        assert_eq!(search.not_words, ["old"]);
        let shown: Vec<_> =
            search.qualifiers.iter().map(|one| (one.name.as_str(), one.value.as_str(), one.negated)).collect();
        assert_eq!(shown, [("repo", "octo/demo", false), ("label", "good first issue", true), ("is", "open", false)]);
    }

    #[test]
    fn words_are_whole() {
        let fits = |words: &str, text: &str| SearchTerms::parse(words).matches_words([text].into_iter());
        assert!(fits("page 3", "page 3"));
        assert!(!fits("pag", "page 3"));
        assert!(fits("legacy_auth(", "x = legacy_auth(user)"));
        assert!(!fits("legacy", "legacy_auth"));
    }

    #[test]
    fn ranges() {
        let fits = |range: &str, value: i32| is_in_range(range, &value, |text| text.parse().ok());
        assert!(
            fits(">2", 3) && !fits(">3", 3) && fits(">=3", 3) && fits("1..3", 3) && fits("*..3", 1) && fits("3", 3)
        );
        assert!(!fits("x", 3) && !fits("..", 3));
    }
}
