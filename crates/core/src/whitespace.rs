//! White space of texts that are compared, or shown on one line.

/// Replaces each run of white space by one space, and removes it at both ends.
pub fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_white_space_become_one_space() {
        assert_eq!(collapse_whitespace("\n one\t two\u{a0}\r\nthree "), "one two three");
        assert_eq!(collapse_whitespace(" \n"), "");
    }
}
