//! Payment cards (ISO/IEC 7812, Luhn) and bank accounts (ISO 13616, mod 97).

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::char_classes::{byte_at, byte_before, text_before};

static CARD: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?-u:[2-6][0-9]{3}[ -]?[0-9]{4,6}[ -]?[0-9]{4,5}(?:[ -]?[0-9]{1,7})?)"));
static IBAN: LazyLock<Regex> = LazyLock::new(|| compile(r"(?-u:[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30})"));

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| panic!("pattern of payment data: {error}"))
}

pub(crate) fn find_card_numbers(text: &str, add: &mut impl FnMut(Range<usize>)) {
    for found in CARD.find_iter(text) {
        let digits: Vec<u8> = found.as_str().bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0').collect();
        if is_standalone(text, found.range())
            && is_card_length(&digits)
            && has_card_groups(found.as_str())
            && passes_luhn(&digits)
        {
            add(found.range());
        }
    }
}

/// Whether the number of digits fits the issuer prefix. This excludes identifiers of other systems (snowflakes,
/// timestamps), of which one in ten passes Luhn.
fn is_card_length(digits: &[u8]) -> bool {
    let prefix =
        |length: usize| digits.iter().take(length).fold(0_u32, |number, digit| number * 10 + u32::from(*digit));
    match digits.len() {
        14 => matches!(prefix(3), 300..=305) || matches!(prefix(2), 36 | 38 | 39),
        15 => matches!(prefix(2), 34 | 37),
        16 => {
            matches!(prefix(1), 4)
                || matches!(prefix(2), 51..=55 | 62 | 65)
                || matches!(prefix(4), 2221..=2720 | 3528..=3589 | 6011 | 6440..=6499)
        }
        _ => false,
    }
}

/// Whether digits are grouped as on cards: 4-4-4-4, 4-6-5 or 4-6-4, with one separator throughout, or none.
fn has_card_groups(text: &str) -> bool {
    let separators: Vec<char> = text.chars().filter(|character| !character.is_ascii_digit()).collect();
    let Some(first) = separators.first() else { return true };
    let groups: Vec<usize> = text.split(*first).map(str::len).collect();
    separators.iter().all(|separator| separator == first)
        && matches!(groups.as_slice(), [4, 4, 4, 4] | [4, 6, 5] | [4, 6, 4])
}

fn passes_luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(position, digit)| match u32::from(*digit) * (1 + position as u32 % 2) {
            doubled if doubled > 9 => doubled - 9,
            plain => plain,
        })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != digits[0])
}

pub(crate) fn find_ibans(text: &str, add: &mut impl FnMut(Range<usize>)) {
    for found in IBAN.find_iter(text) {
        let Some(expected) = iban_length(&found.as_str()[..2]) else { continue };
        // The pattern may include words after the account number: the country defines its length.
        let mut seen = 0;
        let Some(length) = found.as_str().bytes().position(|byte| {
            seen += usize::from(byte != b' ');
            seen == expected
        }) else {
            continue;
        };
        let span = found.start()..found.start() + length + 1;
        if is_standalone(text, span.clone()) && passes_mod_97(&text[span.clone()]) {
            add(span);
        }
    }
}

/// Lengths of the IBAN registry (SWIFT, release 97).
fn iban_length(country: &str) -> Option<usize> {
    const LENGTHS: [(usize, &str); 18] = [
        (15, "NO"),
        (16, "BE"),
        (18, "DK FO FI GL NL SD FK"),
        (19, "MK SI"),
        (20, "AT BA EE KZ LT LU XK MN"),
        (21, "CH HR LI LV"),
        (22, "BG BH CR DE GB GE IE ME RS VA"),
        (23, "AE GI IL IQ TL OM SO"),
        (24, "AD CZ ES MD PK RO SA SE SK TN VG"),
        (25, "LY PT ST"),
        (26, "IS TR"),
        (27, "BI DJ FR GR IT MC MR SM"),
        (28, "AL AZ BY CY DO GT HU LB NI PL SV"),
        (29, "BR EG PS QA UA"),
        (30, "JO KW MU YE"),
        (31, "MT SC"),
        (32, "LC"),
        (33, "RU"),
    ];
    LENGTHS.iter().find(|(_, countries)| countries.split(' ').any(|known| known == country)).map(|(length, _)| *length)
}

fn passes_mod_97(iban: &str) -> bool {
    let symbols: Vec<u8> = iban.bytes().filter(|byte| *byte != b' ').collect();
    let remainder = symbols[4..].iter().chain(&symbols[..4]).fold(0_u32, |remainder, symbol| match symbol {
        b'0'..=b'9' => (remainder * 10 + u32::from(symbol - b'0')) % 97,
        _ => (remainder * 100 + u32::from(symbol - b'A') + 10) % 97,
    });
    remainder == 1
}

/// Whether a span is not a part of a longer word, number or identifier. An escape before it (`\n`) does not count.
fn is_standalone(text: &str, span: Range<usize>) -> bool {
    let is_escape = text_before(text, span.start, 2).starts_with('\\')
        && matches!(byte_before(text, span.start), Some(b'n' | b't' | b'r'));
    let joins = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/' | b'.');
    let is_sentence_end = byte_at(text, span.end) == Some(b'.')
        && byte_at(text, span.end + 1).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (is_escape || byte_before(text, span.start).is_none_or(|byte| !joins(byte)))
        && (is_sentence_end || byte_at(text, span.end).is_none_or(|byte| !joins(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_cards(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        find_card_numbers(text, &mut |span| found.push(&text[span]));
        found
    }

    fn find_accounts(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        find_ibans(text, &mut |span| found.push(&text[span]));
        found
    }

    #[test]
    fn cards_need_issuer_length_groups_and_check_digit() {
        assert_eq!(
            find_cards("4111 1111 1111 1111, 5555-5555-5555-4444. 378282246310005"),
            ["4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005"]
        );
        for text in [
            "4111 1111 1111 1112",
            "1700000000000000",
            "id-4111111111111111",
            "41 11 1111 1111 1111 11",
            "4111-1111 1111-1111",
            "4000000000000000000",
        ] {
            assert!(find_cards(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn accounts_need_length_and_check_digits() {
        assert_eq!(find_accounts("IBAN DE89 3704 0044 0532 0130 00 BIC COBADEFF"), ["DE89 3704 0044 0532 0130 00"]);
        assert_eq!(find_accounts("GB29NWBK60161331926819."), ["GB29NWBK60161331926819"]);
        assert!(find_accounts("DE89370400440532013001 XX12ABCDEFGHIJKLMNOP").is_empty());
    }
}
