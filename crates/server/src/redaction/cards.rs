//! Finds payment card numbers among other numbers, by issuer prefix (IIN), length and check digit (Luhn).

use std::ops::Range;

/// Maximum number of digits of a card, as in ISO/IEC 7812.
const MAX_CARD_DIGITS: usize = 19;

/// Passes the cards in a run of digits, spaces and dashes to `sink`. A card begins and ends at the border of a group of
/// digits, because other numbers, such as an expiry date, may follow in the same run.
pub(super) fn find_card_numbers(text: &str, run: Range<usize>, sink: &mut dyn FnMut(Range<usize>)) {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut start = run.start;
    while start < run.end {
        let is_start = is_digit(start)
            && (start > run.start && !is_digit(start - 1) || start == run.start && may_begin_number(bytes, start));
        match is_start.then(|| find_card_end(bytes, start, run.end)).flatten() {
            Some(end) => {
                sink(start..end);
                start = end;
            }
            None => start += 1,
        }
    }
}

/// Whether a number may begin here: not inside of a name or a fraction, but after an escape such as `\n`.
fn may_begin_number(bytes: &[u8], start: usize) -> bool {
    match &bytes[..start] {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., last] => !(last.is_ascii_alphanumeric() || matches!(last, b'.' | b'_')),
        [] => true,
    }
}

/// Finds the end of the longest card that begins here.
fn find_card_end(bytes: &[u8], start: usize, end: usize) -> Option<usize> {
    let mut digits = [0u8; MAX_CARD_DIGITS];
    let (mut count, mut found) = (0, None);
    for at in start..end {
        if !bytes[at].is_ascii_digit() {
            continue;
        }
        if count == MAX_CARD_DIGITS {
            break;
        }
        digits[count] = bytes[at] - b'0';
        count += 1;
        let is_end = bytes.get(at + 1).is_none_or(|next| !(next.is_ascii_alphanumeric() || *next == b'_'));
        if is_end && is_card(&digits[..count]) {
            found = Some(at + 1);
        }
    }
    found
}

/// Whether digits are a card number, by prefix and length of the large issuers: Visa, Mastercard, American Express,
/// Diners Club, Discover, JCB and UnionPay.
fn is_card(digits: &[u8]) -> bool {
    let Some(first) = digits.first_chunk::<4>() else { return false };
    let first = first.iter().fold(0u32, |number, digit| 10 * number + u32::from(*digit));
    let is_issued = match digits.len() {
        13 => first / 1000 == 4,
        14 => matches!(first / 10, 300..=305) || matches!(first / 100, 36 | 38),
        15 => matches!(first / 100, 34 | 37),
        16 => {
            matches!(first, 4000..=4999 | 5100..=5599 | 2221..=2720 | 6011 | 6440..=6599 | 3528..=3589 | 6200..=6299)
        }
        19 => matches!(first, 4000..=4999 | 6011 | 6440..=6599 | 6200..=6299),
        _ => false,
    };
    is_issued && has_check_digit(digits)
}

/// Checks the Luhn algorithm: from the right, every second digit is doubled, and the sum of all digits must be a
/// multiple of 10.
fn has_check_digit(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, digit)| {
            let value = u32::from(*digit) << (index % 2);
            value / 10 + value % 10
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        find_card_numbers(text, 0..text.len(), &mut |range| found.push(&text[range]));
        found
    }

    #[test]
    fn finds_cards_among_numbers() {
        // Numbers that card issuers publish for tests.
        for card in ["4111111111111111", "5555 5555 5555 4444", "3782-822463-10005", "6011 1111 1111 1117"] {
            assert_eq!(cards(card), [card]);
        }
        assert_eq!(cards("1 4111 1111 1111 1111 12"), ["4111 1111 1111 1111"]);
        assert_eq!(cards("4111111111111111 5555555555554444"), ["4111111111111111", "5555555555554444"]);
    }

    #[test]
    fn leaves_other_numbers() {
        for text in ["4111111111111112", "1700000000000000000", "41111111111111110000", "0000000000000000"] {
            assert!(cards(text).is_empty(), "{text}");
        }
        assert!(
            !may_begin_number(b"0.4", 2)
                && !may_begin_number(b"id4", 2)
                && may_begin_number(b"\\n4", 2)
                && may_begin_number(b" 4", 1)
        );
    }
}
