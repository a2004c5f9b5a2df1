//! Formats numbers for people. NaN and infinities are never printed: callers filter them and show a dash or a
//! sentence.

pub use crate::number_text::{filter_finite, format_count, format_counted_noun, format_usd};

use gradus_stats::interval::ConfidenceInterval;

/// A no-break space between a number and its unit, so that no line breaks there.
const NO_BREAK_SPACE: char = '\u{a0}';

/// `87.3 %`
pub fn format_percent(share: f64) -> String {
    format!("{:.1}{NO_BREAK_SPACE}%", 100.0 * share)
}

/// `82.1 – 91.0 %`
pub fn format_percent_interval(interval: ConfidenceInterval) -> String {
    format!("{:.1}{NO_BREAK_SPACE}–{NO_BREAK_SPACE}{:.1}{NO_BREAK_SPACE}%", 100.0 * interval.low, 100.0 * interval.high)
}

/// `3.25`
pub fn format_score(score: f64) -> String {
    format!("{score:.2}")
}

/// `2.81 – 3.60`
pub fn format_score_interval(interval: ConfidenceInterval) -> String {
    format!("{:.2}{NO_BREAK_SPACE}–{NO_BREAK_SPACE}{:.2}", interval.low, interval.high)
}

/// A mean: `87.3 %` of shares, `3.25` on another scale.
pub fn format_mean(mean: f64, is_share: bool) -> String {
    if is_share { format_percent(mean) } else { format_score(mean) }
}

/// The interval of a mean, in the format of [`format_mean`].
pub fn format_mean_interval(interval: ConfidenceInterval, is_share: bool) -> String {
    if is_share { format_percent_interval(interval) } else { format_score_interval(interval) }
}

/// A sum of scores: `190` or `12.5`.
pub fn format_score_sum(sum: f64) -> String {
    if is_whole(sum) { format_count(sum as u64) } else { format!("{sum:.1}") }
}

/// Whether a number is a count: not negative, without fraction, and small enough for `f64` to hold it exactly.
pub fn is_whole(number: f64) -> bool {
    (0.0..1e15).contains(&number) && number.fract() == 0.0
}

/// `None` if one of the ends is not finite.
pub fn finite_interval(interval: Option<ConfidenceInterval>) -> Option<ConfidenceInterval> {
    interval.filter(|interval| interval.low.is_finite() && interval.high.is_finite())
}

/// An RFC 3339 time in UTC, to the minute: `2026-03-02 09:41 UTC`. Other texts are shown as they are, since manifests
/// of runs can have any text.
pub fn format_minute(time: &str) -> String {
    let is_utc = time.is_ascii() && time.len() >= 17 && time.ends_with('Z');
    let shape = |at: usize, byte: u8| match at {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    };
    if is_utc && time.bytes().take(17).enumerate().all(|(at, byte)| shape(at, byte)) {
        format!("{} {} UTC", &time[..10], &time[11..16])
    } else {
        super::text::format_display_line(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [format_count(0), format_count(999), format_count(1_000), format_count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(format_percent(0.8766), "87.7\u{a0}%");
        let all = [0.0, 0.000_01, 0.012_34, 1.5, 1234.5].map(format_usd);
        assert_eq!(all, ["$0", "less than $0.0001", "$0.0123", "$1.50", "$1234.50"]);
        assert_eq!([format_score_sum(190.0), format_score_sum(12.5), format_score_sum(0.0)], ["190", "12.5", "0"]);
        assert_eq!(format_counted_noun(1, "step", "steps"), "1 step");
    }

    #[test]
    fn times_are_short_where_they_are_known() {
        assert_eq!(format_minute("2026-03-02T09:41:07.123Z"), "2026-03-02 09:41 UTC");
        for other in ["2026-03-02T09:41:07+02:00", "soon", "", "2026-03-02T09:41éZ"] {
            assert_eq!(format_minute(other), other);
        }
    }
}
