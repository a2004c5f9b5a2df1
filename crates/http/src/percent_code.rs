//! Percent codes of URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// What a part of a path or a query must not hold as it is.
const URL_PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A part of a URL's path or query as it must be written.
pub fn percent_encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, URL_PART).to_string()
}

/// Undoes [`percent_encode`]; what is no code stays as it is.
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
