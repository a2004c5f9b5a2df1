//! Detects the format of an input from its first bytes. Names and extensions are ignored: they are often wrong or
//! missing.

use gradus_otlp::{MessageFraming, looks_like_export};

/// The formats at the level of bytes. What a JSON document contains is decided later, in `shapes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceFormat {
    Protobuf(MessageFraming),
    Json,
    Transcript,
}

/// Detects the format; `None` if it is not known. `whole` says that `head` is the entire input.
pub(crate) fn detect_format(head: &[u8], whole: bool) -> Option<SourceFormat> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    // A field mark of DSPy, `[[ ## name ## ]]`, begins like a JSON list.
    if matches!(text.first(), Some(b'{' | b'[')) && !text.starts_with(b"[[ ##") {
        return Some(SourceFormat::Json);
    }
    // A file that was cut off looks like the beginning of a longer one. Its reader reports where it ends.
    if let Some(framing) = looks_like_export(head, whole).or_else(|| looks_like_export(head, false)) {
        return Some(SourceFormat::Protobuf(framing));
    }
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The head may end in the middle of a character.
        Err(error) if error.error_len().is_none() && !whole => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    gradus_core::react::read_react_transcript(text).is_react.then_some(SourceFormat::Transcript)
}
