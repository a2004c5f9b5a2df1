//! Base64 as records have it: with or without padding, of either alphabet.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes a text in Base64; `None` if it is not Base64.
pub(crate) fn decode_base64_text(text: &str) -> Option<Vec<u8>> {
    let standard = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    });
    LENIENT.decode(standard.collect::<Vec<u8>>()).ok()
}

/// Decodes an id of exactly `N` bytes, as Protobuf's JSON form writes it; `None` for anything else. 24 and 12
/// characters with padding can never be hexadecimal ids of the same size.
pub(crate) fn decode_base64_id<const N: usize>(text: &str) -> Option<[u8; N]> {
    if !text.ends_with('=') || text.len() != N.div_ceil(3) * 4 {
        return None;
    }
    decode_base64_text(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_with_and_without_padding() {
        for text in ["+/8=", "-_8=", "+/8", "-_\n8"] {
            assert_eq!(decode_base64_text(text), Some(vec![0xfb, 0xff]), "{text}");
        }
        assert_eq!(decode_base64_text("a b"), None);
        assert_eq!(decode_base64_id::<8>("AAAAAAAAAAE="), Some([0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(decode_base64_id::<8>("00000000000a"), None);
    }
}
