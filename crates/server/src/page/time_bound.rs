//! Times in the filters of lists, as people and programs write them.

use super::display_text::format_timestamp;
use crate::http_error::ApiError;
use crate::time_text::parse_rfc3339 as read_time;

/// Parses RFC 3339, a local date and time (read as UTC), or a day. `of_a_day_ns` is added to a day, so that an upper
/// bound includes it.
pub(super) fn parse_time_bound(name: &str, text: Option<&str>, of_a_day_ns: i64) -> Result<Option<i64>, ApiError> {
    let Some(given) = text else { return Ok(None) };
    let ns = |time: jiff::civil::DateTime| {
        let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        i64::try_from(zoned.timestamp().as_nanosecond()).ok()
    };
    // An offset follows the date, whose own hyphens do not count.
    let is_bare = !given.ends_with(['Z', 'z']) && !given.get(10..).is_some_and(|rest| rest.contains(['+', '-']));
    if let Some(day) = given.parse::<jiff::civil::Date>().ok().filter(|_| given.len() == 10) {
        return Ok(ns(day.at(0, 0, 0, 0)).map(|ns| ns.saturating_add(of_a_day_ns)));
    }
    match given.parse::<jiff::civil::DateTime>() {
        Ok(time) if is_bare => Ok(ns(time)),
        _ => read_time(name, text),
    }
}

/// Formats a time for `datetime-local` inputs; empty if it cannot be parsed.
pub(super) fn format_datetime_input(bound: Option<&str>) -> String {
    let ns = parse_time_bound("", bound, 0).ok().flatten();
    ns.map(|ns| format_timestamp(ns).replace(' ', "T")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::DAY_NS;

    #[test]
    fn times_are_read_as_fields_and_programs_write_them() {
        let read = |text: &str, of_a_day| parse_time_bound("from", Some(text), of_a_day).ok().flatten();
        let eight = 1_794_729_600_000_000_000;
        for text in ["2026-11-15T08:00:00Z", "2026-11-15T08:00", "2026-11-15T08:00:00", "2026-11-15T10:00:00+02:00"] {
            assert_eq!(read(text, 0), Some(eight), "{text}");
        }
        let day = eight - 8 * 3_600_000_000_000;
        assert_eq!((read("2026-11-15", 0), read("2026-11-15", DAY_NS)), (Some(day), Some(day + DAY_NS)));
        assert!(parse_time_bound("from", Some("soon"), 0).is_err());
        assert_eq!(format_datetime_input(Some("2026-11-15T08:00:00Z")), "2026-11-15T08:00:00");
    }
}
