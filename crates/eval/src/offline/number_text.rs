//! Parses numbers in texts: in digits, with units, and as words.

/// Parses a number as people and tools write it: `$1,234.50`, `7%`. `12k` is not a number.
pub(super) fn parse_number(chunk: &str) -> Option<f64> {
    let bare = chunk.trim_matches(|letter: char| matches!(letter, '$' | '€' | '£' | '%' | '#' | '+' | '-'));
    if !bare.starts_with(|letter: char| letter.is_ascii_digit())
        || !bare.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
    {
        // "20th", "2nd", "30min": only the leading digits are the number.
        let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
        let unit = &bare[digits..];
        let is_unit = (1..=7).contains(&unit.len()) && unit.bytes().all(|byte| byte.is_ascii_alphabetic());
        return (digits > 0 && digits < 10 && is_unit).then(|| bare[..digits].parse().ok()).flatten();
    }
    if !bare.contains(',') {
        return bare.trim_end_matches('.').parse().ok();
    }
    let plain: String = bare.chars().filter(|letter| *letter != ',').collect();
    plain.trim_end_matches('.').parse().ok()
}

/// Parses a number in digits or as a word.
pub(super) fn parse_count(chunk: &str) -> Option<f64> {
    parse_number(chunk).or_else(|| parse_number_word(chunk)).filter(|_| !chunk.eq_ignore_ascii_case("a"))
}

/// Maximum bytes of a word that stands for a number.
const MAX_NUMBER_WORD: usize = 8;

/// Parses a number word; a unit of time stands for its size.
pub(super) fn parse_number_word(chunk: &str) -> Option<f64> {
    let mut lower = [0; MAX_NUMBER_WORD];
    let lower = lower.get_mut(..chunk.len())?;
    lower.copy_from_slice(chunk.as_bytes());
    lower.make_ascii_lowercase();
    Some(match &*lower {
        b"zero" => 0.0,
        b"one" | b"a" | b"an" | b"once" | b"single" | b"first" => 1.0,
        b"two" | b"both" | b"twice" | b"couple" | b"pair" | b"second" => 2.0,
        b"half" | b"thirty" => 30.0,
        b"three" | b"third" => 3.0,
        b"four" | b"fourth" => 4.0,
        b"five" => 5.0,
        b"six" => 6.0,
        b"seven" | b"week" => 7.0,
        b"eight" => 8.0,
        b"nine" => 9.0,
        b"ten" => 10.0,
        b"eleven" => 11.0,
        b"twelve" | b"dozen" => 12.0,
        b"fifteen" => 15.0,
        b"twenty" => 20.0,
        b"forty" => 40.0,
        b"fifty" => 50.0,
        b"sixty" | b"hour" => 60.0,
        b"ninety" => 90.0,
        b"hundred" => 100.0,
        b"thousand" => 1000.0,
        _ => return None,
    })
}
