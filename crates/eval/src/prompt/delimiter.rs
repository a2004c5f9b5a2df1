//! The lines around a block of recorded data. Every line of the data itself is quoted (`recording.rs`), so data cannot
//! write such a line; the mark in it tells a model so as well.
//!
//! A mark is a cryptographic digest of what it encloses: to write its own mark into a recording, one would have to find
//! a text that holds its own digest. And it is no random number, so the same case gives the same prompt, which caches
//! and repeatable runs need.

use std::fmt::Write;

/// What the lines around a value add to it, at most.
pub(super) const LENGTH: usize = 2 * (32 + "<<data >>\n\n".len());

pub(super) fn derive_delimiter<'v>(values: impl IntoIterator<Item = &'v str>) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("gradus 2026 fence around recorded data");
    for value in values {
        // With their lengths, so that moving text from one value to the next changes the mark.
        hasher.update(&(value.len() as u64).to_le_bytes());
        hasher.update(value.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

pub(super) fn push_delimited(text: &mut String, mark: &str, value: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    // Writing into a string cannot fail.
    let _ = write!(text, "<<data {mark}>>\n{value}\n<<end {mark}>>");
}

/// Text behind a block begins on a line of its own: a mark is believed only where it is a whole line.
pub(super) fn push_text(text: &mut String, more: &str) {
    if text.ends_with(">>") && !more.starts_with(['\n', '\r']) {
        text.push('\n');
    }
    text.push_str(more);
}
