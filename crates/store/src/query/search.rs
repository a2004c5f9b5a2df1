//! From what people type to what the index of words is asked.

use rusqlite::Connection;

use crate::error::StoreError;

/// What a search looks for, in the words of the index; `None` when it has no words. The index does not know which words
/// are neighbours, so each must be a word to it, too; where it would split one, words are split further.
pub(super) fn search_of(sql: &Connection, text: &str) -> Result<Option<String>, StoreError> {
    let splits: [fn(char) -> bool; 2] =
        [|c| c.is_whitespace() || (c.is_ascii() && !is_kept(c)), |c| !c.is_alphanumeric() && c != '*'];
    let mut is_known = sql.prepare_cached("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1")?;
    for split in splits {
        let words = search_words(text.split(split));
        // Asked for as whole words, which costs next to nothing.
        if words.is_empty() || is_known.exists([search_terms(&words, |_| "")]).is_ok() {
            return Ok(Some(search_terms(&words, ending)).filter(|terms| !terms.is_empty()));
        }
    }
    let letters = text.split(|c: char| !c.is_alphanumeric()).flat_map(|word| word.split("").map(str::trim));
    Ok(Some(search_terms(&search_words(letters), ending)))
}

fn is_kept(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '*'
}

fn search_words<'t>(words: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    const MOST: usize = 20;
    words.filter(|word| word.contains(char::is_alphanumeric)).take(MOST).collect()
}

fn search_terms(words: &[&str], ending: fn(&str) -> &'static str) -> String {
    let term = |word: &&str| format!("\"{}\"{}", word.trim_end_matches('*'), ending(word));
    words.iter().map(term).collect::<Vec<_>>().join(" AND ")
}

/// A word is a whole word, which is found at once however many there are of it. With a star, as people write it, it is
/// the beginning of one; so it always is in scripts that put no spaces between words, where the index has whole phrases.
fn ending(word: &str) -> &'static str {
    if word.ends_with('*') || !word.is_ascii() { "*" } else { "" }
}
