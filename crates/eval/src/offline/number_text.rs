//! Numbers as texts write them: in digits, with units, and as words.

/// A number as people and tools write it: `$1,234.50`, `7%`, `12k` is none.
pub(super) fn parse_number(chunk: &str) -> Option<f64> {
    let bare = chunk.trim_matches(|letter: char| matches!(letter, '$' | '€' | '£' | '%' | '#' | '+' | '-'));
    if !bare.starts_with(|letter: char| letter.is_ascii_digit())
        || !bare.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
    {
        // "20th", "2nd", "30min": the number is what it begins with.
        let digits = bare.bytes().take_while(u8::is_ascii_digit).count();
        let unit = &bare[digits..];
        let is_unit = (1..=7).contains(&unit.len()) && unit.bytes().all(|byte| byte.is_ascii_alphabetic());
        return (digits > 0 && digits < 10 && is_unit).then(|| bare[..digits].parse().ok()).flatten();
    }
    let plain: String = bare.chars().filter(|letter| *letter != ',').collect();
    plain.trim_end_matches('.').parse().ok()
}

/// A number in digits or as a word.
pub(super) fn parse_count(chunk: &str) -> Option<f64> {
    parse_number(chunk).or_else(|| parse_number_word(chunk)).filter(|_| !chunk.eq_ignore_ascii_case("a"))
}

/// The number that a word stands for; a unit of time stands for its size.
pub(super) fn parse_number_word(chunk: &str) -> Option<f64> {
    const WORDS: &[(&str, f64)] = &[
        ("zero", 0.0),
        ("one", 1.0),
        ("a", 1.0),
        ("an", 1.0),
        ("once", 1.0),
        ("single", 1.0),
        ("first", 1.0),
        ("two", 2.0),
        ("both", 2.0),
        ("twice", 2.0),
        ("couple", 2.0),
        ("pair", 2.0),
        ("second", 2.0),
        ("half", 30.0),
        ("three", 3.0),
        ("third", 3.0),
        ("four", 4.0),
        ("fourth", 4.0),
        ("five", 5.0),
        ("six", 6.0),
        ("seven", 7.0),
        ("week", 7.0),
        ("eight", 8.0),
        ("nine", 9.0),
        ("ten", 10.0),
        ("eleven", 11.0),
        ("twelve", 12.0),
        ("dozen", 12.0),
        ("fifteen", 15.0),
        ("twenty", 20.0),
        ("thirty", 30.0),
        ("forty", 40.0),
        ("fifty", 50.0),
        ("sixty", 60.0),
        ("hour", 60.0),
        ("ninety", 90.0),
        ("hundred", 100.0),
        ("thousand", 1000.0),
    ];
    if chunk.len() > 8 {
        return None;
    }
    WORDS.iter().find(|(word, _)| chunk.eq_ignore_ascii_case(word)).map(|(_, number)| *number)
}
