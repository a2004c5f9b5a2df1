//! Numbers in English sentences.

/// Formats a count with its noun: `1 step`, `2 steps`.
pub fn format_count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_not_many() {
        assert_eq!(super::format_count(1, "step", "steps"), "1 step");
        assert_eq!(super::format_count(0, "step", "steps"), "0 steps");
    }
}
