//! The lines around a block of recorded data. Every line of the data itself is quoted (`recording.rs`), so data cannot
//! contain such a line. The mark in it is a second defence, which a model can check.
//!
//! A mark is derived from a cryptographic digest of the data that it encloses. To put its own mark into a recording, an attacker
//! would have to find a text that contains its own digest. It is not a random number, so the same case gives the same
//! prompt, which the verdict cache and repeatable runs need.
//!
//! Each block has a mark of its own. A mark over several blocks would change the first of them whenever the last one
//! changes, and providers cache only what is equal from the beginning.

use std::fmt::Write;

/// Maximum number of bytes that the delimiters add to a value.
pub(super) const MAX_DELIMITER_BYTES: usize = 2 * (MARK_LETTERS + "<<data >>\n\n".len());

/// Number of letters of a mark. 16 of 26 letters are 75 bits: too many to find a text that contains its own mark.
/// Hexadecimal digits would take two to three times as many tokens, in every block of every question.
const MARK_LETTERS: usize = 16;

/// Derives the mark of a block from a digest of its text.
fn derive_delimiter(value: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("gradus 2026 fence around recorded data");
    hasher.update(value.as_bytes());
    let digest = hasher.finalize();
    let (bytes, _) = digest.as_bytes().split_at(size_of::<u128>());
    let mut number = bytes.iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let mut next_letter = || {
        let letter = b'a' + (number % 26) as u8;
        number /= 26;
        char::from(letter)
    };
    (0..MARK_LETTERS).map(|_| next_letter()).collect()
}

/// Appends a block. Its first line begins at the beginning of a line.
pub(super) fn push_delimited(text: &mut String, value: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let mark = derive_delimiter(value);
    // Writing into a string cannot fail.
    let _ = write!(text, "<<data {mark}>>\n{value}\n<<end {mark}>>");
}

/// Appends text after a block, on a new line: the judge is instructed to accept a mark only as a whole line.
pub(super) fn push_text_after_block(text: &mut String, more: &str) {
    if text.ends_with(">>") && !more.starts_with(['\n', '\r']) {
        text.push('\n');
    }
    text.push_str(more);
}
