//! Lengths of time as they are written in rules and options: `90s`, `15m`, `1h`, `7d`.

use std::time::Duration;

// The largest unit first: formatting takes the first that divides.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
/// One year. Nobody looks back further, and sums stay far from any overflow.
const MAX_DURATION: Duration = Duration::from_secs(366 * 86_400);

/// Parses a whole number with its unit; `None` for anything else, for zero and for more than a year.
pub fn parse_duration(text: &str) -> Option<Duration> {
    parse_duration_up_to(text, MAX_DURATION)
}

/// As [`parse_duration`], with another upper bound.
pub fn parse_duration_up_to(text: &str, max: Duration) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, unit_s) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    let seconds = number.parse::<u64>().ok()?.checked_mul(*unit_s)?;
    Some(Duration::from_secs(seconds)).filter(|length| !length.is_zero() && *length <= max)
}

/// The shortest text that [`parse_duration`] reads as the same duration. Fractions of a second are dropped.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let unit = UNITS.iter().find(|(_, unit_s)| seconds > 0 && seconds.is_multiple_of(*unit_s));
    let (name, unit_s) = unit.unwrap_or(&("s", 1));
    format!("{}{name}", seconds / unit_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_shows() {
        for (text, seconds, shown) in
            [("90s", 90, "90s"), ("15m", 900, "15m"), ("60m", 3_600, "1h"), ("7 d", 604_800, "7d")]
        {
            let duration = parse_duration(text).expect("a duration");
            assert_eq!((duration.as_secs(), format_duration(duration).as_str()), (seconds, shown));
            assert_eq!(parse_duration(shown), Some(duration));
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in ["", "1", "h", "0s", "1.5h", "-1h", "1h30m", "367d", "99999999999999999999d", "1 hour"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
