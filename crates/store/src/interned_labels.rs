//! Texts for the full-text index.

use std::collections::HashSet;

use foldhash::fast::RandomState;

/// Each word of a text once. The index stores no positions, so repetitions only cost time. Words are cut only at ASCII
/// punctuation, where the index cuts as well; its other separators stay inside.
pub(crate) fn collect_distinct_words(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut seen: HashSet<&str, RandomState> =
        HashSet::with_capacity_and_hasher(text.len() / 12, RandomState::default());
    let mut words = String::with_capacity(text.len() / 2);
    for word in lower.split(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric()) {
        if !word.is_empty() && seen.insert(word) {
            words.push_str(word);
            words.push(' ');
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_there_once() {
        assert_eq!(collect_distinct_words("Read it: read \"IT\", über-all. 日本 語"), "read it über all 日本 語 ");
        assert_eq!(collect_distinct_words(" ...\n"), "");
    }
}
