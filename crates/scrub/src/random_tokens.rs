//! Distinguishes random tokens from names: not by their form, as the rules do, but by how their characters alternate.

use crate::entropy::shannon_entropy;

pub(crate) const MIN_TOKEN_BYTES: usize = 20;
/// Maximum length of a credential. Longer runs are encoded files (images, archives, signatures).
pub(crate) const MAX_TOKEN_BYTES: usize = 200;
const MIN_HASH_BYTES: usize = 16;
const MIN_ENTROPY: f64 = 3.6;
/// Minimum share of neighbours of different classes. In random base62 it is 62 %, in camel-case names less than 30 %.
const MIN_MIXED_TRANSITIONS: f64 = 0.42;
/// The same without capitals: 40 % in random lower case and digits, less than 20 % in names with numbers.
const MIN_LOWER_TRANSITIONS: f64 = 0.28;
/// Maximum run of letters in one case. Words have longer ones; random tokens with both cases rarely have a run of 9,
/// tokens without capitals rarely one of 12.
const MAX_MIXED_RUN: usize = 8;
const MAX_LOWER_RUN: usize = 11;

/// Maximum share of letters in words. Camel-case names are words (`Xxx`) nearly throughout; in random base62 it is
/// less than 40 %.
const MAX_WORD_SHARE: f64 = 0.7;
/// The same for tokens with one digit: names with abbreviations (`IsHTTP2NoCachedConnError`) are words for two
/// thirds.
const MAX_WORD_SHARE_OF_ONE_DIGIT: f64 = 0.5;
const MIN_WORD_BYTES: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Lower,
    Upper,
    Digit,
}

/// Whether a token has a random part between its separators, or looks random as a whole.
pub(crate) fn has_random_part(token: &str) -> bool {
    // A hash in a name (`report_2b007cf0ba9881d9.txt`) makes all of it look random: then only the other parts count.
    let has_hash = token.split(['_', '-']).any(|part| part.len() >= MIN_HASH_BYTES && is_hexadecimal(part.as_bytes()));
    let is_random = if has_hash { token.split(['_', '-']).any(is_random_token) } else { is_random_token(token) };
    is_random && !is_encoded_prose(token)
}

/// Whether a token is base64 of a text with spaces: content, not a credential.
fn is_encoded_prose(token: &str) -> bool {
    let mut decoded = Vec::with_capacity(token.len() * 3 / 4 + 3);
    let (mut bits, mut bit_count) = (0_u32, 0_u32);
    for byte in token.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return false,
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            decoded.push((bits >> bit_count & 0xff) as u8);
        }
    }
    decoded.contains(&b' ') && decoded.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'))
}

/// Whether a token looks drawn at random. Hexadecimal numbers, UUIDs and decimal numbers never do: commits, hashes and
/// identifiers are written like that.
fn is_random_token(token: &str) -> bool {
    let bytes = token.as_bytes();
    if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&bytes.len()) {
        return false;
    }
    let classes: Vec<ByteClass> = bytes.iter().filter_map(classify_byte).collect();
    let count = |class: ByteClass| classes.iter().filter(|found| **found == class).count();
    let (lower, upper, digit) = (count(ByteClass::Lower), count(ByteClass::Upper), count(ByteClass::Digit));
    // Separators cut names into words; a credential has few.
    if classes.len() < MIN_TOKEN_BYTES || classes.len() * 10 < bytes.len() * 9 || digit < 1 || is_hexadecimal(bytes) {
        return false;
    }
    let transitions = classes.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64 / (classes.len() - 1) as f64;
    let run = longest_case_run(&classes);
    let max_word_share = if digit == 1 { MAX_WORD_SHARE_OF_ONE_DIGIT } else { MAX_WORD_SHARE };
    let is_alternating = match (lower, upper) {
        (2.., 2..) => {
            transitions >= MIN_MIXED_TRANSITIONS && run <= MAX_MIXED_RUN && word_share(bytes) <= max_word_share
        }
        // One case only: more digits are needed, since words with numbers are common.
        _ => {
            transitions >= MIN_LOWER_TRANSITIONS
                && run <= MAX_LOWER_RUN
                && digit * 6 >= classes.len()
                && lower.max(upper) >= 6
        }
    };
    is_alternating && shannon_entropy(bytes) >= MIN_ENTROPY
}

/// Returns the share of letters that are in words: runs of lower case, with or without a capital before them.
fn word_share(bytes: &[u8]) -> f64 {
    let letter_count = bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let words = bytes.chunk_by(|left, right| left.is_ascii_alphabetic() && right.is_ascii_lowercase());
    let in_words: usize = words.map(<[u8]>::len).filter(|length| *length >= MIN_WORD_BYTES).sum();
    in_words as f64 / letter_count.max(1) as f64
}

fn classify_byte(byte: &u8) -> Option<ByteClass> {
    match byte {
        b'a'..=b'z' => Some(ByteClass::Lower),
        b'A'..=b'Z' => Some(ByteClass::Upper),
        b'0'..=b'9' => Some(ByteClass::Digit),
        _ => None,
    }
}

fn is_hexadecimal(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_' | b'x' | b':'))
}

fn longest_case_run(classes: &[ByteClass]) -> usize {
    classes.chunk_by(|left, right| left == right).map(<[ByteClass]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_are_told_from_names() {
        for token in
            ["x7Kq2mWv9RtYb3NcLz8PdFh5Jg1Sa4Ue", "wJalrXUtnFEMI7K7MDENG1bPxRfiCYz9Kq3mT2x", "k3j9x0q2m7z4v8b1n6t5w0y2"]
        {
            assert!(has_random_part(token), "{token}");
        }
        for token in [
            "3f786850e387550fdab836ed7e6dc881de23001b",
            "550e8400-e29b-41d4-a716-446655440000",
            "find_first_of_many_things_v2",
            "HttpServletRequestWrapperImpl2",
            "TestContentTypeOkayOn204",
            "IsHTTP2NoCachedConnError",
            "numOfTestIPv6MCAddrs",
            "7_wh1ter0se_2b007cf0ba9881d954e85eb475d0d5e4",
            "QSBzZW50ZW5jZSBpbiBiYXNlNjQsIDEyMyBieXRlcyBsb25nLg",
            "TestTransportResPattern_c0h1d0t0",
            "test_case_2024_01_02_run_17",
            "x86_64-unknown-linux-gnu-2024",
            "1234567890123456789012345",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1B2",
        ] {
            assert!(!has_random_part(token), "{token}");
        }
    }
}
