//! Texts and times of records.

use std::borrow::Cow;

use crate::timestamps::normalize_timestamp_text;

/// Returns the text of a record. Bytes that are not UTF-8 are replaced: tools cut their output in the middle of
/// characters.
pub(crate) fn record_text(record: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(record)
}

/// Returns a time in the format of the output lines. Borrowed if it already has that form, as most do.
pub(crate) fn normalize_recorded_time(text: Option<&str>) -> Option<Cow<'_, str>> {
    let text = text?;
    if is_normal_timestamp(text) { Some(Cow::Borrowed(text)) } else { normalize_timestamp_text(text).map(Cow::Owned) }
}

/// Whether a time is in the form `2026-11-17T12:00:00.123Z`.
fn is_normal_timestamp(text: &str) -> bool {
    const FORM: &[u8; 24] = b"0000-10-30T20:50:50.000Z";
    let bytes = text.as_bytes();
    let matches_form = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        // The first digit of a month, day, hour, minute or second.
        b'1'..=b'5' => byte.is_ascii_digit() && byte <= form,
        _ => byte == form,
    };
    // Times that are not on a calendar are left to the parser, except for days like the 31st of June.
    bytes.len() == FORM.len() && bytes.iter().zip(FORM).all(matches_form) && !text.contains("-00") && {
        let number = |from: usize| text[from..from + 2].parse::<u8>().unwrap_or(99);
        number(5) <= 12 && number(8) <= 28 && number(11) < 24
    }
}

/// Returns the beginning of a text, for messages.
pub(crate) fn shorten_for_message(text: &str) -> &str {
    const MAX_BYTES: usize = 80;
    &text[..text.floor_char_boundary(MAX_BYTES.min(text.len()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_the_usual_form_are_not_copied() {
        assert!(matches!(normalize_recorded_time(Some("2026-11-17T12:00:00.123Z")), Some(Cow::Borrowed(_))));
        assert_eq!(normalize_recorded_time(Some("2026-11-31T12:00:00.123Z")), None);
        assert_eq!(normalize_recorded_time(Some("2026-11-17T14:00:00+02:00")).as_deref(), Some("2026-11-17T12:00:00Z"));
        assert_eq!(normalize_recorded_time(Some("2026-13-17T12:00:00.123Z")), None);
        assert_eq!(normalize_recorded_time(Some("")), None);
    }
}
