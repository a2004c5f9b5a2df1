//! Formatting of times, durations, sizes, costs and rules for pages.

use gradus_store::SpendTotal;

use crate::grading_rule::GradingRule;
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;

/// No-break space between a number and its unit.
const UNIT_SPACE: char = '\u{a0}';

/// `2026-11-15 14:02:11`, in UTC. Empty for times that cannot be expressed.
pub(super) fn format_timestamp(ns: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(ns)) else { return String::new() };
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Parses an RFC 3339 time of a trajectory to nanoseconds since 1970. None if it cannot be parsed.
pub(super) fn parse_time_ns(text: Option<&str>) -> Option<i64> {
    let time: jiff::Timestamp = text?.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

/// Formats a duration with two or three significant digits. Negative ones, from clocks that ran backwards, are shown
/// as 0.
pub(super) fn format_duration(ns: i64) -> String {
    let seconds = ns.max(0) as f64 / 1e9;
    if seconds < 0.001 {
        format!("{:.0}{UNIT_SPACE}µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.0}{UNIT_SPACE}ms", seconds * 1e3)
    } else if seconds < 100.0 {
        format!("{seconds:.1}{UNIT_SPACE}s")
    } else if seconds < 7200.0 {
        format!("{:.0}{UNIT_SPACE}min", seconds / 60.0)
    } else {
        format!("{:.1}{UNIT_SPACE}h", seconds / 3600.0)
    }
}

/// `1.2 MB`; decimal units.
pub(super) fn format_byte_size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes}{UNIT_SPACE}bytes"),
        1_000..1_000_000 => format!("{:.1}{UNIT_SPACE}KB", bytes as f64 / 1e3),
        _ => format!("{:.1}{UNIT_SPACE}MB", bytes as f64 / 1e6),
    }
}

/// Formats a count of the store. Negative numbers do not occur and are shown as 0.
pub(super) fn format_whole_number(number: i64) -> String {
    format_count(u64::try_from(number).unwrap_or(0))
}

/// Formats the cost of judging. Calls without a known price are mentioned, since they are not in the sum.
pub(super) fn format_spend(spent: SpendTotal) -> String {
    let unpriced = || number::format_counted_noun(spent.unpriced, "call", "calls");
    match (spent.unpriced, spent.cost_usd > 0.0) {
        (0, _) => number::format_usd(spent.cost_usd),
        (_, false) => format!("price not known ({})", unpriced()),
        (_, true) => {
            format!("{} and {} whose price is not known", number::format_usd(spent.cost_usd), unpriced())
        }
    }
}

/// A rule of live grading, ready to be displayed.
pub(super) struct LiveRule {
    pub(super) name: String,
    pub(super) project: String,
    pub(super) judge: String,
    pub(super) evaluators: String,
}

impl LiveRule {
    /// A rule without a model is shown as judged by rules.
    pub(super) fn from_rule(rule: &GradingRule) -> LiveRule {
        LiveRule {
            name: text::format_display_line(&rule.name),
            project: text::format_display_line(rule.project_pattern()),
            judge: rule
                .judge
                .as_ref()
                .map_or_else(|| "rules".to_owned(), |judge| text::format_display_line(&judge.name())),
            evaluators: join_names(rule.evaluators.iter().map(|one| one.title.as_str())),
        }
    }
}

/// Joins names on one line.
pub(super) fn join_names<'t>(names: impl Iterator<Item = &'t str>) -> String {
    text::format_display_line(&names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sizes_read_well() {
        let shown = [0, 850, 12_000_000, 1_500_000_000, 250_000_000_000, 9_000_000_000_000].map(format_duration);
        let wanted = ["0 µs", "1 µs", "12 ms", "1.5 s", "4 min", "2.5 h"];
        assert_eq!(shown.map(|text| text.replace(UNIT_SPACE, " ")), wanted);
        assert_eq!(format_byte_size(999).replace(UNIT_SPACE, " "), "999 bytes");
        assert_eq!(format_byte_size(1_234_567).replace(UNIT_SPACE, " "), "1.2 MB");
        assert_eq!(format_timestamp(1_794_000_000_000_000_000), "2026-11-06 21:20:00");
    }
}
