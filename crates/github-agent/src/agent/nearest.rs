//! The tools that were probably meant by a name that no tool has.

/// Longer names are no slips, and comparing them costs.
const MAX_NAME_BYTES: usize = 64;
const MAX_SUGGESTIONS: usize = 3;

/// Up to three names, the nearest first: few edits, or a word in common.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let letters: Vec<char> = name.chars().take(MAX_NAME_BYTES + 1).flat_map(char::to_lowercase).collect();
    if letters.is_empty() || letters.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let lower: String = letters.iter().collect();
    let words = words(&lower);
    let mut ranked: Vec<(usize, &str)> = Vec::new();
    for other in known {
        let distance = edits(&letters, other);
        let shared = words.iter().filter(|word| self::words(other).contains(word)).count();
        if distance <= letters.len() / 3 || shared > 0 {
            // A word in common counts for as much as a few letters.
            ranked.push((distance.saturating_sub(3 * shared), other));
        }
    }
    ranked.sort();
    ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, other)| other).collect()
}

/// `createIssue` is no word in common with `create_issue`, but a few edits away.
fn words(name: &str) -> Vec<&str> {
    name.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2).collect()
}

/// Insertions, deletions and replacements from one to the other (Levenshtein), row by row.
fn edits(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (index, letter) in to.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for at in 0..from.len() {
            let replaced = diagonal + usize::from(from[at] != letter);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["open_issue", "list_issues", "close_issue", "read_file", "create_repo"];
        assert_eq!(nearest("openIssue", known).first(), Some(&"open_issue"));
        assert_eq!(nearest("create_issue", known), ["close_issue", "create_repo", "open_issue"]);
        assert_eq!(nearest("get_file", known), ["read_file"]);
        assert_eq!(nearest("weather", known), [""; 0]);
        assert_eq!(nearest("", known), [""; 0]);
        assert_eq!(nearest(&"x".repeat(100_000), known), [""; 0]);
    }
}
