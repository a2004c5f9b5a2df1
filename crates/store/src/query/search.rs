//! Translates a search text of a user into a query of the full-text index (SQLite FTS5).

use crate::sql::SqlConnection;

use crate::error::StoreError;
use crate::index_words::split_folded;

/// The query for a search text; `None` if it has no words. The index stores no positions and refuses phrases, so each
/// term must be one word to it, too. If it would split a term, the text is split further.
pub(super) fn build_fts_query(sql: &SqlConnection, text: &str) -> Result<Option<String>, StoreError> {
    check_prefixes(text)?;
    if sql.sqlite().is_none() {
        return Ok(build_postgres_query(text));
    }
    let splits: [fn(char) -> bool; 2] =
        [|c| c.is_whitespace() || (c.is_ascii() && !is_word_char(c)), |c| !c.is_alphanumeric() && c != '*'];
    let mut is_known = sql.prepare_cached("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1")?;
    for split in splits {
        let words = search_words(text.split(split));
        // The check uses whole words, which costs almost nothing.
        if words.is_empty() || is_known.exists([join_search_terms(&words, |_| "")]).is_ok() {
            return Ok(Some(join_search_terms(&words, choose_word_wildcard)).filter(|terms| !terms.is_empty()));
        }
    }
    let letters = text.split(|c: char| !c.is_alphanumeric()).flat_map(|word| word.split("").map(str::trim));
    Ok(Some(join_search_terms(&search_words(letters), choose_word_wildcard)))
}

/// The same in PostgreSQL's query language. Terms are folded as the words of the index are.
fn build_postgres_query(text: &str) -> Option<String> {
    let mut terms = Vec::new();
    for word in search_words(text.split(|c: char| c.is_whitespace() || (c.is_ascii() && !is_word_char(c)))) {
        let ending = if choose_word_wildcard(word).is_empty() { "" } else { ":*" };
        let folded = split_folded(word);
        let last = folded.len().saturating_sub(1);
        for (index, part) in folded.iter().enumerate() {
            terms.push(format!("'{part}'{}", if index == last { ending } else { "" }));
        }
    }
    (!terms.is_empty()).then(|| terms.join(" & "))
}

/// Limits prefix searches. They expand to all words with the prefix, and short or many prefixes match most of the
/// index.
fn check_prefixes(text: &str) -> Result<(), StoreError> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '*').filter(|word| word.ends_with('*'));
    let mut prefixes: Vec<&str> = words.map(|word| word.trim_end_matches('*')).collect();
    prefixes.retain(|prefix| !prefix.is_empty() && !has_no_case(prefix));
    prefixes.sort_unstable();
    prefixes.dedup();
    if let Some(short) = prefixes.iter().find(|prefix| prefix.chars().count() < MIN_PREFIX_CHARS) {
        return Err(StoreError::BadSearch {
            reason: format!("{short}* is too short; write {MIN_PREFIX_CHARS} letters or more before a star"),
        });
    }
    if prefixes.len() > MAX_PREFIXES {
        return Err(StoreError::BadSearch {
            reason: format!("it has {} words with a star; write {MAX_PREFIXES} at most", prefixes.len()),
        });
    }
    Ok(())
}

/// Minimum number of letters in a prefix. In scripts without upper and lower case, a single character says as much as
/// a word.
const MIN_PREFIX_CHARS: usize = 3;
/// Maximum number of words with a star in one search.
const MAX_PREFIXES: usize = 5;

/// Scripts without upper and lower case, such as Chinese, Japanese and Thai.
fn has_no_case(word: &str) -> bool {
    !word.contains(|c: char| c.is_ascii_alphanumeric() || c.is_lowercase() || c.is_uppercase())
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '*'
}

/// Returns the distinct words, up to a limit.
fn search_words<'t>(words: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    const MAX_SEARCH_WORDS: usize = 20;
    let mut found: Vec<&str> = Vec::new();
    for word in words.filter(|word| word.contains(char::is_alphanumeric)) {
        if found.len() < MAX_SEARCH_WORDS && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}

/// Every word must occur. Quoted, so that nothing in it is an operator of the query language.
fn join_search_terms(words: &[&str], ending: fn(&str) -> &'static str) -> String {
    let term = |word: &&str| format!("\"{}\"{}", word.trim_end_matches('*'), ending(word));
    words.iter().map(term).collect::<Vec<_>>().join(" AND ")
}

/// A word matches whole words, which is fast however frequent it is. With a star it is a prefix. In scripts without
/// blanks between words it always is, because the index contains whole phrases there.
fn choose_word_wildcard(word: &str) -> &'static str {
    let is_long = || word.chars().count() >= MIN_PREFIX_CHARS || has_no_case(word);
    if word.ends_with('*') || (!word.is_ascii() && is_long()) { "*" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_words_are_long_and_few() {
        let refused = |text: &str| match check_prefixes(text) {
            Err(StoreError::BadSearch { reason }) => Some(reason),
            _ => None,
        };
        let bomb: Vec<String> = ('a'..='t').map(|letter| format!("{letter}*")).collect();
        assert!(refused(&bomb.join(" ")).unwrap().contains("a* is too short"));
        let long: Vec<String> = ('a'..='t').map(|letter| format!("abc{letter}*")).collect();
        assert!(refused(&long.join(" ")).unwrap().contains("20 words with a star"));
        for text in ["x-a*", "b** c", "é*", "па* сло", "1*", "(a*)"] {
            assert!(refused(text).is_some(), "{text}");
        }
        for text in ["refund*", "the cat", "*", "日*", "日本 語", "ref* und* abc* def* ghi*", &"abc* ".repeat(40)] {
            assert_eq!(refused(text), None, "{text}");
        }
        assert_eq!(
            [
                choose_word_wildcard("été"),
                choose_word_wildcard("é"),
                choose_word_wildcard("日"),
                choose_word_wildcard("cat")
            ],
            ["*", "", "*", ""]
        );
    }
}
