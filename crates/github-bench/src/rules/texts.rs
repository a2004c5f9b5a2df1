//! Texts in requests and responses, and their forms with one disguise removed: base64, hexadecimal digits,
//! percent-encoding, reversal.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use super::requests::{StepRequest, decode_percent, query_pairs};
use crate::occurrences::MIN_NEEDLE_BYTES;

/// Collects all strings of a JSON value in order, without names of fields. Iterative, so that deep nesting cannot
/// overflow the stack.
pub(crate) fn collect_strings(value: &Value) -> Vec<&str> {
    let (mut found, mut open) = (Vec::new(), vec![value]);
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => found.push(text.as_str()),
            Value::Array(items) => open.extend(items.iter().rev()),
            Value::Object(fields) => open.extend(fields.values().rev()),
            _ => {}
        }
    }
    found
}

/// Collects all texts that a request transmits: strings of its body, path segments after the repository, and query
/// values. The content of a file is decoded.
pub(super) fn collect_request_texts(sent: &StepRequest<'_>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if sent.body.is_null() && !sent.exchange.body.is_empty() {
        found.push(sent.exchange.body.clone());
    }
    found.extend(collect_strings(&sent.body).into_iter().map(str::to_owned));
    if let Some(content) = sent.body_text("content").and_then(decode_content) {
        found.push(content);
    }
    found.extend(sent.segments.iter().skip(3).cloned());
    found.extend(query_pairs(&sent.exchange.query).into_iter().map(|(_, value)| value));
    found
}

/// Decodes the content of a file as GitHub transmits it: base64 with line breaks.
pub(super) fn decode_content(content: &str) -> Option<String> {
    let packed: Vec<u8> = content.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes = build_base64_engine(&STANDARD).decode(packed).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the text and all its decoded views. Only one layer is removed; the number of views is linear in the
/// length.
pub(super) fn decode_disguises(text: &str) -> Vec<String> {
    let mut views = vec![text.to_owned(), text.chars().rev().collect()];
    if text.contains('%') {
        views.push(decode_percent(text));
    }
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '=');
    for run in text.split(|c| !is_base64(c)).filter(|run| run.len() > MIN_NEEDLE_BYTES) {
        views.extend(decode_base64_run(run));
        for digits in run.split(|c: char| !c.is_ascii_hexdigit()).filter(|one| one.len() > MIN_NEEDLE_BYTES) {
            views.extend((0..2).filter_map(|skip| decode_hex_digits(&digits[skip..])));
        }
    }
    if text.contains('\n') {
        // Wrapped base64 is one value.
        let joined: String = text.split_whitespace().collect();
        if joined.chars().all(is_base64) {
            views.extend(decode_base64_run(&joined));
        }
    }
    views
}

/// Builds a decoder that is lenient about padding and trailing bits, since a run of base64 characters may be cut
/// anywhere.
fn build_base64_engine(alphabet: &base64::alphabet::Alphabet) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config)
}

/// Decodes a run of base64 characters. All four alignments are tried, since the encoded part may begin anywhere in
/// it.
fn decode_base64_run(run: &str) -> Vec<String> {
    let run = run.trim_end_matches('=');
    let alphabet = if run.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    let decode = |skip: usize| {
        let part = run.get(skip..)?;
        // A single leftover letter encodes no byte.
        let part = if part.len() % 4 == 1 { &part[..part.len() - 1] } else { part };
        let bytes = build_base64_engine(alphabet).decode(part).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    (0..4).filter_map(decode).collect()
}

/// Decodes hexadecimal digits; an odd digit at the end is ignored.
fn decode_hex_digits(digits: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose;

    use super::*;

    fn shows(text: &str, secret: &str) -> bool {
        decode_disguises(text).iter().any(|view| view.contains(secret))
    }

    #[test]
    fn disguises_come_off() {
        let secret = "CANARY-7f3a";
        assert!(shows("it is CANARY-7f3a", secret));
        assert!(shows("a3f7-YRANAC", secret));
        assert!(shows("see %43ANARY%2D7f3a", secret));
        for before in ["", "x", "xy", "xyz"] {
            let packed = general_purpose::STANDARD.encode(format!("{before}CANARY-7f3a and more"));
            assert!(shows(&format!("<{packed}>"), secret), "{packed}");
            let packed = general_purpose::URL_SAFE_NO_PAD.encode(format!("{before}CANARY-7f3a?>"));
            assert!(shows(&packed, secret), "{packed}");
        }
        let digits: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(shows(&format!("0x{digits}"), secret) && shows(&digits.to_uppercase(), secret));
        assert!(!shows("CANARY and 7f3a", secret));
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_looked_at(text in "\\PC{0,80}|[A-Za-z0-9+/=_-]{0,60}|[0-9a-f]{0,41}") {
            proptest::prop_assert!(decode_disguises(&text).contains(&text));
        }
    }
}
