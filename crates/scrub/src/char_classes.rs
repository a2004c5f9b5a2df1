//! Classes of characters that several rules share.

use std::ops::Range;

/// Whether a byte can be part of a word, a path or an encoded value, and so of a credential or an identifier.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~')
}

/// Finds the runs of token bytes in a text.
pub(crate) fn find_token_runs(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_token_byte(bytes[at]) {
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_token_byte(bytes[at]) {
            at += 1;
        }
        (start < at).then_some(start..at)
    })
}

/// Returns the byte before a position.
pub(crate) fn byte_before(text: &str, at: usize) -> Option<u8> {
    at.checked_sub(1).map(|before| text.as_bytes()[before])
}

/// Returns the byte at a position.
pub(crate) fn byte_at(text: &str, at: usize) -> Option<u8> {
    text.as_bytes().get(at).copied()
}

/// Returns a position moved down to the start of its character.
pub(crate) fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns a position moved up to the end of its character.
pub(crate) fn ceil_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Returns the last `length` bytes before a position, cut at characters.
pub(crate) fn text_before(text: &str, at: usize, length: usize) -> &str {
    &text[ceil_boundary(text, at.saturating_sub(length))..at]
}
