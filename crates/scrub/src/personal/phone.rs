//! Telephone numbers: international form, North American form, and national forms after a word about telephones.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::char_classes::{byte_at, byte_before, text_before};

/// Limits on international numbers: E.164 allows 15 digits; shorter numbers are seldom written with a country code.
const MIN_INTERNATIONAL_DIGITS: usize = 9;
const MAX_INTERNATIONAL_DIGITS: usize = 15;
const MIN_NATIONAL_DIGITS: usize = 7;
const CONTEXT_BYTES: usize = 24;

static INTERNATIONAL: LazyLock<Regex> = LazyLock::new(|| {
    compile(r"(?-u:(?:\+|\b00)[1-9][0-9]{0,2}(?:[ .-]?\([0-9]{1,4}\))?(?:[ .-]?[0-9]{2,14}|[ .-][0-9]){1,6})")
});
static NORTH_AMERICAN: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?-u:(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[.-])[0-9]{3}[.-][0-9]{4})"));
static NATIONAL: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?-u:\(?[0-9]{2,5}\)?(?:[ ./-]{1,2}?[0-9]{2,8}){1,5}|[0-9]{7,12})"));
static CONTEXT: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r#"(?i:(?-u:\b)phone|telephone|(?-u:\b)tel(?-u:\b)|mobile|(?-u:\b)cell|(?-u:\b)fax|telefon|(?-u:\b)handy|mobil(?-u:\b)|t[ée]l[ée]phone|whatsapp|msisdn|phone_?number)[A-Za-z _.:=#'"\\-]{0,16}$"#,
    )
});

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| panic!("pattern of phone numbers: {error}"))
}

pub(crate) fn find_phone_numbers(text: &str, field_name: Option<&str>, add: &mut impl FnMut(Range<usize>)) {
    for found in INTERNATIONAL.find_iter(text) {
        let length = found.as_str().trim_end_matches([' ', '.', '-']).len();
        let span = found.start()..found.start() + length;
        if is_bounded(text, span.clone()) && is_international(&text[span.clone()]) {
            add(span);
        }
    }
    for found in NORTH_AMERICAN.find_iter(text) {
        if is_bounded(text, found.range()) && byte_before(text, found.start()) != Some(b'+') {
            add(found.range());
        }
    }
    let is_phone_field = field_name.is_some_and(|name| CONTEXT.is_match(name));
    // Every number of a text is a candidate here; the word before it decides.
    for found in NATIONAL.find_iter(text) {
        let digit_count = count_digits(found.as_str());
        let is_long_enough = (MIN_NATIONAL_DIGITS..=MAX_INTERNATIONAL_DIGITS).contains(&digit_count);
        if !is_long_enough || !is_bounded(text, found.range()) {
            continue;
        }
        let is_whole_field = is_phone_field && found.start() <= 1;
        if is_whole_field || CONTEXT.is_match(text_before(text, found.start(), CONTEXT_BYTES)) {
            add(found.range());
        }
    }
}

fn count_digits(text: &str) -> usize {
    text.bytes().filter(u8::is_ascii_digit).count()
}

/// Whether a number has the international form. Country codes are one to three digits; a number of North America
/// (`+1`) has a fixed form. `00` needs groups, since it begins many numbers.
fn is_international(number: &str) -> bool {
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    let is_double_zero = number.starts_with("00");
    let digits = if is_double_zero { &digits[2..] } else { digits.as_str() };
    let has_groups = number.contains([' ', '-', '(', '.']);
    if !(MIN_INTERNATIONAL_DIGITS..=MAX_INTERNATIONAL_DIGITS).contains(&digits.len())
        || is_double_zero && !number.contains(' ')
    {
        return false;
    }
    if digits.starts_with('1') {
        return digits.len() == 11 && matches!(digits.as_bytes()[1], b'2'..=b'9');
    }
    // A sum of numbers (`+20.5 +30 12`) has dots as decimal points: one dot is not a group.
    let dots = number.matches('.').count();
    (has_groups || digits.len() >= 10) && dots != 1
}

fn is_bounded(text: &str, span: Range<usize>) -> bool {
    let is_escape = text_before(text, span.start, 2).starts_with('\\')
        && matches!(byte_before(text, span.start), Some(b'n' | b't' | b'r'));
    let is_start = is_escape
        || byte_before(text, span.start).is_none_or(|byte| {
            !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'+' | b'/' | b'$' | b'#'))
        });
    let is_end = match byte_at(text, span.end) {
        Some(b'.' | b'-' | b'/' | b',') => byte_at(text, span.end + 1).is_none_or(|byte| !byte.is_ascii_alphanumeric()),
        Some(byte) => !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'%')),
        None => true,
    };
    is_start && is_end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in_field<'a>(text: &'a str, field_name: Option<&str>) -> Vec<&'a str> {
        let mut found = Vec::new();
        find_phone_numbers(text, field_name, &mut |span| found.push(&text[span]));
        found
    }

    #[test]
    fn numbers_with_structure_are_found() {
        assert_eq!(
            find_in_field("Call +49 151 2345 6789 or +14155550132.", None),
            ["+49 151 2345 6789", "+14155550132"]
        );
        assert_eq!(
            find_in_field("(415) 555-0132, 415-555-0132, 1-800-555-0199", None),
            ["(415) 555-0132", "415-555-0132", "1-800-555-0199"]
        );
        assert_eq!(find_in_field("+44 (0)20 7946 0958", None), ["+44 (0)20 7946 0958"]);
        assert_eq!(find_in_field("Tel.: 030 1234567", None), ["030 1234567"]);
        assert_eq!(find_in_field("0171 2345678", Some("phone_number")), ["0171 2345678"]);
    }

    #[test]
    fn numbers_of_code_and_dates_stay() {
        for text in [
            "0171 2345678",
            "2024-01-02T03:04:05+0100",
            "1700000000",
            "+1000000000",
            "x = a+123456789",
            "192.168.100.200",
            "2024-11-17",
            "3.14159265",
            "@@ -120,7 +120,9 @@",
            "00 11 22 33 44 55 66",
            "550e8400-e29b-41d4-a716-446655440000",
            "100-200-3000x",
            "line 415",
            "+12.5 +30.25",
        ] {
            assert!(find_in_field(text, None).is_empty(), "{text} {:?}", find_in_field(text, None));
        }
    }
}
