//! Percent-encoding of URLs (RFC 3986).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// Characters that are encoded: everything but the unreserved characters of RFC 3986.
const ENCODED_CHARS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes one segment of a path, or one name or value of a query.
pub fn percent_encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, ENCODED_CHARS).to_string()
}

/// Undoes [`percent_encode`]. Invalid codes stay as they are; invalid UTF-8 becomes replacement characters.
pub fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_the_rest_is_left() {
        assert_eq!(percent_encode("a b/ü~"), "a%20b%2F%C3%BC~");
        assert_eq!(percent_decode("a%20b%2"), "a b%2");
        assert_eq!(percent_decode("100%zz"), "100%zz");
    }
}
