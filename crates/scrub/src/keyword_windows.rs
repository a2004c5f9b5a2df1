//! The parts of a text that a rule has to look at: lines around its keywords.

use std::ops::Range;

/// Maximum length of what a pattern matches before its keyword within a line; the window then goes back to the line's
/// start.
const BYTES_BEFORE_KEYWORD: usize = 300;
/// Window after a keyword. Bounded patterns match at most 1,100 bytes after it; unbounded ones stop at the end of a
/// line.
const BYTES_AFTER_KEYWORD: usize = 2048;

pub(crate) const GENERIC_RULE: &str = "generic-api-key";
/// Rules with keywords of two letters, which are in every second word; the token that begins there is long.
const LONG_TOKEN_RULES: [&str; 3] = ["jwt", "twilio-api-key", "vault-service-token"];
const MIN_LONG_TOKEN_BYTES: usize = 20;
const MIN_GENERIC_SECRET_BYTES: usize = 10;
/// Maximum distance from a keyword to the operator: 20 bytes of a name and 3 quotes or spaces, by the pattern.
const MAX_NAME_REST_BYTES: usize = 23;
/// Maximum length of operator, quotes and spaces.
const MAX_OPERATOR_BYTES: usize = 9;

/// What must follow a keyword, for rules whose keywords are in all texts. It is a necessary condition, read from the
/// pattern: it saves the pattern's work and finds the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeywordFollower {
    Anything,
    /// An operator of assignment and a value.
    Assignment,
    /// The rest of a long token.
    LongToken,
}

impl KeywordFollower {
    pub(crate) fn for_rule(rule: &str) -> Self {
        match rule {
            GENERIC_RULE => Self::Assignment,
            _ if LONG_TOKEN_RULES.contains(&rule) => Self::LongToken,
            _ => Self::Anything,
        }
    }

    /// Whether the pattern can match at this keyword.
    pub(crate) fn can_match(self, text: &[u8], keyword: Range<usize>) -> bool {
        match self {
            Self::Anything => true,
            Self::LongToken => {
                count_leading(&text[keyword.start..], MIN_LONG_TOKEN_BYTES, is_secret_byte) == MIN_LONG_TOKEN_BYTES
            }
            Self::Assignment => {
                let rest = &text[keyword.end..];
                let name_bytes = count_leading(rest, MAX_NAME_REST_BYTES + 1, |byte| {
                    byte.is_ascii_alphanumeric()
                        || byte.is_ascii_whitespace()
                        || matches!(byte, b'_' | b'.' | b'-' | b'"' | b'\'' | 0x0b)
                });
                let rest = &rest[name_bytes..];
                if name_bytes > MAX_NAME_REST_BYTES
                    || !matches!(rest.first(), Some(b'=' | b'>' | b':' | b'|' | b'?' | b','))
                {
                    return false;
                }
                let operator_bytes = count_leading(rest, MAX_OPERATOR_BYTES, |byte| {
                    byte.is_ascii_whitespace()
                        || matches!(byte, b'=' | b'>' | b':' | b'|' | b'?' | b',' | b'`' | b'"' | b'\'' | 0x0b)
                });
                count_leading(&rest[operator_bytes..], MIN_GENERIC_SECRET_BYTES, is_secret_byte) + operator_bytes
                    > MIN_GENERIC_SECRET_BYTES
            }
        }
    }
}

fn is_secret_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'=' | b'-' | b'+' | b'/')
}

fn count_leading(bytes: &[u8], limit: usize, is_counted: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take(limit).take_while(|byte| is_counted(**byte)).count()
}

/// Disjoint windows of one rule, in the order of the text. Keywords come in the order of the text, so that adding all
/// of them costs no more than one pass over it, however long its lines are.
#[derive(Debug, Default)]
pub(crate) struct KeywordWindows {
    pub(crate) windows: Vec<Range<usize>>,
}

impl KeywordWindows {
    pub(crate) fn add_keyword(&mut self, text: &[u8], keyword: Range<usize>, is_multiline: bool) {
        let wanted_start = keyword.start.saturating_sub(BYTES_BEFORE_KEYWORD);
        let wanted_end =
            if is_multiline { text.len() } else { keyword.end.saturating_add(BYTES_AFTER_KEYWORD).min(text.len()) };
        if let Some(last) = self.windows.last_mut().filter(|last| wanted_start <= last.end) {
            if wanted_end > last.end {
                last.end = find_line_end(text, wanted_end);
            }
            return;
        }
        let floor = self.windows.last().map_or(0, |last| last.end);
        let start =
            text[floor..wanted_start].iter().rposition(|byte| *byte == b'\n').map_or(floor, |at| floor + at + 1);
        self.windows.push(start..find_line_end(text, wanted_end));
    }
}

/// Finds the end of the line at `from`, including its newline: `$` in a pattern then means what it means at the end
/// of the text, since all patterns take a newline and the end alike.
fn find_line_end(text: &[u8], from: usize) -> usize {
    text[from..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| from + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole_lines_and_merge() {
        let text = format!("{}\nkey here\n{}\nkey\n", "a".repeat(400), "b\n".repeat(4000));
        let mut windows = KeywordWindows::default();
        windows.add_keyword(text.as_bytes(), 401..404, false);
        windows.add_keyword(text.as_bytes(), 402..404, false);
        let late = text.len() - 4;
        windows.add_keyword(text.as_bytes(), late..late + 3, false);
        assert_eq!(windows.windows.len(), 2);
        assert_eq!(windows.windows[0].start, 0);
        assert_eq!(windows.windows[1].end, text.len());
    }
}
