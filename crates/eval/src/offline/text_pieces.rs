//! Splits texts at separators, byte by byte for ASCII, because every tool result is split and results are long.

/// The letters that separate pieces: the kind of each ASCII letter, and a rule for all others.
pub(super) struct PieceSeparators {
    ascii: [LetterKind; 128],
    others: fn(char) -> bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LetterKind {
    Separator,
    /// `a` to `z`.
    Lowercase,
    Other,
}

impl PieceSeparators {
    /// White space and the given ASCII letters; `others` decides about letters that are not ASCII.
    pub(super) const fn new(letters: &str, others: fn(char) -> bool) -> PieceSeparators {
        let mut ascii = [LetterKind::Other; 128];
        let mut at = 0;
        while at < 128 {
            // Tab, line feed, vertical tab, form feed, carriage return, and space.
            if matches!(at, 9..=13 | 32) {
                ascii[at] = LetterKind::Separator;
            } else if (at as u8).is_ascii_lowercase() {
                ascii[at] = LetterKind::Lowercase;
            }
            at += 1;
        }
        let letters = letters.as_bytes();
        at = 0;
        while at < letters.len() {
            ascii[letters[at] as usize] = LetterKind::Separator;
            at += 1;
        }
        PieceSeparators { ascii, others }
    }

    /// Calls `take` with each piece that is not empty, and with whether all its letters are `a` to `z`, as in most
    /// pieces.
    pub(super) fn split<'t>(&self, text: &'t str, mut take: impl FnMut(&'t str, bool)) {
        let bytes = text.as_bytes();
        let (mut start, mut at, mut is_plain) = (0, 0, true);
        while at < bytes.len() {
            let (kind, length) = match self.ascii.get(usize::from(bytes[at])) {
                Some(kind) => (*kind, 1),
                None => match text[at..].chars().next() {
                    Some(letter) if (self.others)(letter) => (LetterKind::Separator, letter.len_utf8()),
                    letter => (LetterKind::Other, letter.map_or(1, char::len_utf8)),
                },
            };
            match kind {
                LetterKind::Lowercase => {}
                LetterKind::Other => is_plain = false,
                LetterKind::Separator => {
                    if at > start {
                        take(&text[start..at], is_plain);
                    }
                    (start, is_plain) = (at + length, true);
                }
            }
            at += length;
        }
        if start < bytes.len() {
            take(&text[start..], is_plain);
        }
    }

    /// The part of a text before the first separator.
    pub(super) fn first_piece<'t>(&self, text: &'t str) -> &'t str {
        let is_separator = |letter: char| match self.ascii.get(letter as usize) {
            Some(kind) => *kind == LetterKind::Separator,
            None => (self.others)(letter),
        };
        &text[..text.find(is_separator).unwrap_or(text.len())]
    }
}

/// Removes everything but letters and digits at both ends.
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
            SEPARATORS.split(text, |piece, is_plain| {
                assert_eq!(is_plain, piece.bytes().all(|byte| byte.is_ascii_lowercase()), "{piece:?}");
                pieces.push(piece);
            });
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
