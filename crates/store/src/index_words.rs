//! Words of a text for the full-text index.

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

/// The words of such a text in the form in which PostgreSQL stores and finds them: without capitals and accents, which
/// SQLite's index removes itself, and cut to a length that an index takes.
pub(crate) fn fold_words(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for word in split_folded(text) {
        if !folded.is_empty() {
            folded.push(' ');
        }
        folded.push_str(&word);
    }
    folded
}

/// Each word of a text in that form.
pub(crate) fn split_folded(text: &str) -> Vec<String> {
    #[cfg(feature = "postgres")]
    let plain: String = {
        use unicode_normalization::UnicodeNormalization as _;
        text.nfkd()
            .filter(|c| !unicode_normalization::char::is_combining_mark(*c))
            .flat_map(char::to_lowercase)
            // The form of a sigma depends on where it stands.
            .map(|c| if c == 'ς' { 'σ' } else { c })
            .collect()
    };
    #[cfg(not(feature = "postgres"))]
    let plain = text.to_lowercase();
    plain
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| word[..word.floor_char_boundary(MAX_WORD_BYTES)].to_owned())
        .collect()
}

/// Maximum bytes of a word. PostgreSQL refuses words of 2 KB.
const MAX_WORD_BYTES: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_there_once() {
        assert_eq!(collect_distinct_words("Read it: read \"IT\", über-all. 日本 語"), "read it über all 日本 語 ");
        assert_eq!(collect_distinct_words(" ...\n"), "");
    }
}
