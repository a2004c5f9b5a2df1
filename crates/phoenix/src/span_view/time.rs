//! Times as Phoenix stores them: microseconds, converted through a double.

use jiff::Timestamp;
use jiff::tz::Offset;

/// Nanoseconds to microseconds since 1970, with the rounding of Phoenix: it divides in floating point, so that the last
/// digit can be off by one, and its clients compare times for equality.
pub fn nanos_to_micros(ns: u64) -> i64 {
    let seconds = ns as f64 / 1e9;
    let whole = seconds.trunc();
    whole as i64 * 1_000_000 + ((seconds - whole) * 1e6).round_ties_even() as i64
}

/// ISO 8601 as Python's `isoformat` prints it: microseconds only if they are not zero. Empty for times out of range.
pub fn format_iso_time(us: i64) -> String {
    let Ok(timestamp) = Timestamp::from_microsecond(us) else { return String::new() };
    let time = Offset::UTC.to_datetime(timestamp);
    let (date, hour, minute, second) = (time.date(), time.hour(), time.minute(), time.second());
    let fraction = us.rem_euclid(1_000_000);
    if fraction == 0 {
        format!("{date}T{hour:02}:{minute:02}:{second:02}+00:00")
    } else {
        format!("{date}T{hour:02}:{minute:02}:{second:02}.{fraction:06}+00:00")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_in_floating_point() {
        assert_eq!(nanos_to_micros(0), 0);
        assert_eq!(nanos_to_micros(1_767_268_800_500_000_000), 1_767_268_800_500_000);
        // Exactly it would be 457: the nearest double lies below the half.
        assert_eq!(nanos_to_micros(1_767_268_800_123_456_600), 1_767_268_800_123_456);
        assert_eq!(nanos_to_micros(1_767_268_800_123_456_789), 1_767_268_800_123_457);
        assert_eq!(nanos_to_micros(1_767_268_800_999_999_700), 1_767_268_801_000_000);
    }

    #[test]
    fn microseconds_are_shown_where_there_are_any() {
        assert_eq!(format_iso_time(1_767_268_800_000_000), "2026-01-01T12:00:00+00:00");
        assert_eq!(format_iso_time(1_767_268_800_500_000), "2026-01-01T12:00:00.500000+00:00");
        assert_eq!(format_iso_time(i64::MAX), "");
    }
}
