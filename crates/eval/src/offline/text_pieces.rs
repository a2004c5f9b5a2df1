//! Splits texts at separators, byte by byte where a text is ASCII: results of tools are long, and every one is split.

/// The letters that separate pieces: one flag for each ASCII letter, and a rule for all others.
pub(super) struct PieceSeparators {
    ascii: [bool; 128],
    others: fn(char) -> bool,
}

impl PieceSeparators {
    /// White space and the given ASCII letters; `others` decides about letters that are not ASCII.
    pub(super) const fn new(letters: &str, others: fn(char) -> bool) -> PieceSeparators {
        let mut ascii = [false; 128];
        let mut at = 0;
        while at < 128 {
            // Tab, line feed, vertical tab, form feed, carriage return, and space.
            ascii[at] = matches!(at, 9..=13 | 32);
            at += 1;
        }
        let letters = letters.as_bytes();
        at = 0;
        while at < letters.len() {
            ascii[letters[at] as usize] = true;
            at += 1;
        }
        PieceSeparators { ascii, others }
    }

    /// Calls `take` with each piece that is not empty.
    pub(super) fn split<'t>(&self, text: &'t str, mut take: impl FnMut(&'t str)) {
        let bytes = text.as_bytes();
        let (mut start, mut at) = (0, 0);
        while at < bytes.len() {
            let (is_separator, length) = match self.ascii.get(usize::from(bytes[at])) {
                Some(is_separator) => (*is_separator, 1),
                None => {
                    text[at..].chars().next().map_or((false, 1), |letter| ((self.others)(letter), letter.len_utf8()))
                }
            };
            if is_separator {
                if at > start {
                    take(&text[start..at]);
                }
                start = at + length;
            }
            at += length;
        }
        if start < bytes.len() {
            take(&text[start..]);
        }
    }

    /// The part of a text before the first separator.
    pub(super) fn first_piece<'t>(&self, text: &'t str) -> &'t str {
        let is_separator = |letter: char| match self.ascii.get(letter as usize) {
            Some(is_separator) => *is_separator,
            None => (self.others)(letter),
        };
        &text[..text.find(is_separator).unwrap_or(text.len())]
    }
}

/// Without what is neither letter nor digit at both ends.
pub(super) fn trim_piece(piece: &str) -> &str {
    match piece.as_bytes() {
        [first, .., last] if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() => piece,
        _ => piece.trim_matches(|letter: char| !letter.is_alphanumeric()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_those_of_a_split_by_letters() {
        const SEPARATORS: PieceSeparators =
            PieceSeparators::new("\"(\\", |letter| letter.is_whitespace() || letter == '“');
        for text in ["", "a", " a  b(c", "“é”\u{a0}ü\\n x\"", "日本 語\u{2003}(z", "a\u{b}b\u{c}c\u{1c}d"] {
            let mut pieces = Vec::new();
            SEPARATORS.split(text, |piece| pieces.push(piece));
            let is_separator = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '(' | '\\' | '“');
            let expected: Vec<&str> = text.split(is_separator).filter(|piece| !piece.is_empty()).collect();
            assert_eq!(pieces, expected, "{text:?}");
            assert_eq!(SEPARATORS.first_piece(text), text.split(is_separator).next().unwrap_or_default());
        }
    }

    #[test]
    fn punctuation_is_trimmed() {
        for (piece, expected) in [("a", "a"), ("-a-", "a"), ("«é»", "é"), ("--", ""), ("", ""), ("12-B", "12-B")] {
            assert_eq!(trim_piece(piece), expected);
        }
    }
}
