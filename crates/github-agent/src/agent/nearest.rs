//! Suggestions for a tool name that does not exist.

/// Maximum length of a compared name: longer ones are no typing mistakes, and the edit distance is quadratic.
const MAX_NAME_BYTES: usize = 64;
const MAX_SUGGESTIONS: usize = 3;

/// Returns up to three known names, best first: by Levenshtein distance, reduced for words in common.
pub fn find_nearest_names<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let lower = name.to_lowercase();
    let length = lower.chars().count();
    let words = split_name_words(&lower);
    let mut ranked: Vec<(usize, &str)> = Vec::new();
    for other in known {
        let distance = strsim::levenshtein(&lower, other);
        let shared = words.iter().filter(|word| self::split_name_words(other).contains(word)).count();
        if distance <= length / 3 || shared > 0 {
            // A common word makes up for a distance of a few letters.
            ranked.push((distance.saturating_sub(3 * shared), other));
        }
    }
    ranked.sort();
    ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, other)| other).collect()
}

/// Returns words of at least three letters. `createIssue` shares no word with `create_issue`, but is a few edits
/// away.
fn split_name_words(name: &str) -> Vec<&str> {
    name.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["open_issue", "list_issues", "close_issue", "read_file", "create_repo"];
        assert_eq!(find_nearest_names("openIssue", known).first(), Some(&"open_issue"));
        assert_eq!(find_nearest_names("create_issue", known), ["close_issue", "create_repo", "open_issue"]);
        assert_eq!(find_nearest_names("get_file", known), ["read_file"]);
        assert_eq!(find_nearest_names("weather", known), [""; 0]);
        assert_eq!(find_nearest_names("", known), [""; 0]);
        assert_eq!(find_nearest_names(&"x".repeat(100_000), known), [""; 0]);
    }
}
