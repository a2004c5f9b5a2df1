//! The lines around a block of recorded data. Every line of the data itself is quoted (`recording.rs`), so data cannot
//! contain such a line. The mark in it is a second defence, which a model can check.
//!
//! A mark is a cryptographic digest of the data that it encloses. To put its own mark into a recording, an attacker
//! would have to find a text that contains its own digest. It is not a random number, so the same case gives the same
//! prompt, which the verdict cache and repeatable runs need.

use std::fmt::Write;

/// Maximum number of bytes that the delimiters add to a value.
pub(super) const LENGTH: usize = 2 * (32 + "<<data >>\n\n".len());

/// The mark of a prompt: 128 bits as 32 hexadecimal digits, over all of its values.
pub(super) fn derive_delimiter<'v>(values: impl IntoIterator<Item = &'v str>) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("gradus 2026 fence around recorded data");
    for value in values {
        // Lengths are hashed, too, so that moving text from one value to the next changes the mark.
        hasher.update(&(value.len() as u64).to_le_bytes());
        hasher.update(value.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Appends a block. Its first line begins at the beginning of a line.
pub(super) fn push_delimited(text: &mut String, mark: &str, value: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    // Writing into a string cannot fail.
    let _ = write!(text, "<<data {mark}>>\n{value}\n<<end {mark}>>");
}

/// Appends text after a block, on a new line: the judge is told to accept a mark only as a whole line.
pub(super) fn push_text(text: &mut String, more: &str) {
    if text.ends_with(">>") && !more.starts_with(['\n', '\r']) {
        text.push('\n');
    }
    text.push_str(more);
}
