//! The suggestion for a misspelt metric name.

/// Maximum size of a text that gets a suggestion. Longer texts get none: they are not misspelt names, and edit
/// distance takes quadratic time.
const MAX_NAME_BYTES: usize = 64;

/// Finds the known name with the smallest Levenshtein distance. None if more than a third of the letters would have
/// to change.
pub(super) fn find_nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let lower = name.to_lowercase();
    let allowed = (lower.chars().count() / 3).max(1);
    let distances = known.into_iter().map(|other| (strsim::levenshtein(&lower, other), other));
    distances.filter(|(edits, _)| *edits <= allowed).min_by_key(|(edits, _)| *edits).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["thought_to_tool", "failure_rate", "error_rate"];
        assert_eq!(find_nearest_name("though_to_tool", known), Some("thought_to_tool"));
        assert_eq!(find_nearest_name("Failure-rate", known), Some("failure_rate"));
        assert_eq!(find_nearest_name("eror_rate", known), Some("error_rate"));
        assert_eq!(find_nearest_name("temperature", known), None);
        assert_eq!(find_nearest_name("", known), None);
        assert_eq!(find_nearest_name(&"x".repeat(100_000), known), None);
    }
}
