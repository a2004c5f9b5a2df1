//! The ending "y" in stems.

/// Normalizes the ending, so that "query" and "queries" have the same stem.
pub(super) fn normalize_y_ending(stem: String) -> String {
    if ends_in_consonant_y(stem.as_bytes()) { replace_final_y(&stem) } else { stem }
}

/// Whether a stem ends in a consonant and "y".
pub(super) fn ends_in_consonant_y(stem: &[u8]) -> bool {
    matches!(stem, [.., before, b'y'] if stem.len() > 3 && !b"aeiou".contains(before))
}

/// Replaces a final "y" by "i".
pub(super) fn replace_final_y(stem: &str) -> String {
    let mut softened = String::with_capacity(stem.len());
    softened.push_str(stem.strip_suffix('y').unwrap_or(stem));
    softened.push('i');
    softened
}
