//! The name that was probably meant, for a name that nobody knows.

/// Longer names are not typing errors of ours, and comparing them costs.
const MAX_NAME_BYTES: usize = 64;

/// The known name with the fewest edits, if that is few enough to be a typing error.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = name.chars().take(MAX_NAME_BYTES + 1).flat_map(char::to_lowercase).collect();
    if letters.len() > MAX_NAME_BYTES {
        return None;
    }
    let allowed = (letters.len() / 3).max(1);
    let distances = known.into_iter().map(|other| (edits(&letters, other), other));
    distances.filter(|(edits, _)| *edits <= allowed).min_by_key(|(edits, _)| *edits).map(|(_, other)| other)
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
        let known = ["thought_to_tool", "failure_rate", "error_rate"];
        assert_eq!(nearest("though_to_tool", known), Some("thought_to_tool"));
        assert_eq!(nearest("Failure-rate", known), Some("failure_rate"));
        assert_eq!(nearest("eror_rate", known), Some("error_rate"));
        assert_eq!(nearest("temperature", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
