//! Scores over time: the selected range, its periods, and the thresholds of alert rules in the charts.

use std::collections::BTreeMap;

use gradus_store::{MetricPeriod, ScoreMoments};

use crate::evaluators::{find_evaluator_scale, find_evaluator_title};
use crate::grading_rule::{find_evaluators_for_projects, is_flagging_evaluator};
use crate::page::alert_bands::{ChartAlert, ChartAlerts};
use crate::page::metric_value::{FlagShare, build_metric_result};
use crate::settings::ReloadableSettings;
use gradus_report::html::charts::{ResponsiveChart, ThresholdBand, TimelinePoint, TimelineScale, draw_timeline};
use gradus_report::html::number::{self, format_count};

/// Maximum number of periods in a chart. Long ranges are merged into longer periods.
const MAX_PERIODS: i64 = 40;
/// Units of time in nanoseconds.
const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;

/// A range that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeRangePreset {
    Day,
    Week,
    Month,
    All,
}

impl TimeRangePreset {
    pub(super) const ALL: [TimeRangePreset; 4] =
        [TimeRangePreset::Day, TimeRangePreset::Week, TimeRangePreset::Month, TimeRangePreset::All];

    /// None for unknown names.
    pub(super) fn from_name(name: &str) -> Option<TimeRangePreset> {
        TimeRangePreset::ALL.into_iter().find(|range| range.name() == name)
    }

    /// The value of the parameter `range`.
    pub(super) fn name(self) -> &'static str {
        match self {
            TimeRangePreset::Day => "24h",
            TimeRangePreset::Week => "7d",
            TimeRangePreset::Month => "30d",
            TimeRangePreset::All => "all",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            TimeRangePreset::Day => "24 hours",
            TimeRangePreset::Week => "7 days",
            TimeRangePreset::Month => "30 days",
            TimeRangePreset::All => "all time",
        }
    }

    /// None for all time.
    fn length_ns(self) -> Option<i64> {
        match self {
            TimeRangePreset::Day => Some(DAY_NS),
            TimeRangePreset::Week => Some(7 * DAY_NS),
            TimeRangePreset::Month => Some(30 * DAY_NS),
            TimeRangePreset::All => None,
        }
    }
}

/// Why the days of an address are not a range of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DayRangeError {
    /// Not a calendar day as `2026-11-15`, or one outside the years that 64-bit nanoseconds can express (1677 to 2262).
    #[error("{name}={}: expected a date such as 2026-11-15", .text.escape_debug())]
    Day { name: &'static str, text: String },
    #[error("from: must not be after to")]
    Reversed,
}

/// The range of time of the overview. All times are nanoseconds since the epoch in UTC; starts are aligned to whole
/// periods, because rollups are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverviewTimeRange {
    /// None for all time.
    pub(super) from_ns: Option<i64>,
    /// The end of a range of days. None for a range up to now.
    pub(super) to_ns: Option<i64>,
    /// Exclusive end of the range. For a range up to now it is the end of the current hour, since rollups are of
    /// whole hours.
    pub(super) until_ns: i64,
    /// Trajectories that start at this time or later come from a sender with a wrong clock. They are counted
    /// separately.
    pub(super) ahead_ns: i64,
    /// Length of a period, before merging.
    pub(super) period_ns: i64,
    /// Start of the preceding range of the same length, which trends compare with. None for all time.
    pub(super) before_ns: Option<i64>,
}

impl OverviewTimeRange {
    /// A range up to now. Its start is rounded down to a whole period.
    pub(super) fn from_preset(range: TimeRangePreset, now_ns: i64) -> OverviewTimeRange {
        let period_ns = choose_period_ns(range.length_ns());
        let from_ns = range
            .length_ns()
            .map(|length| now_ns.saturating_sub(length).div_euclid(period_ns).saturating_mul(period_ns));
        let before_ns = from_ns.zip(range.length_ns()).map(|(from, length)| from.saturating_sub(length));
        let ahead_ns = current_hour_end(now_ns);
        OverviewTimeRange { from_ns, to_ns: None, until_ns: ahead_ns, ahead_ns, period_ns, before_ns }
    }

    /// A range from the beginning of one day to the end of another, both in UTC; either may be missing.
    pub(super) fn from_days(
        from: Option<&str>,
        to: Option<&str>,
        now_ns: i64,
    ) -> Result<OverviewTimeRange, DayRangeError> {
        let (from_ns, last_ns) = (parse_day("from", from)?, parse_day("to", to)?);
        let to_ns = last_ns.map(|last| last.saturating_add(DAY_NS));
        if from_ns.zip(to_ns).is_some_and(|(from, to)| from >= to) {
            return Err(DayRangeError::Reversed);
        }
        let length = from_ns.map(|from| to_ns.unwrap_or(now_ns).saturating_sub(from).max(DAY_NS));
        let before_ns = from_ns.zip(length).map(|(from, length)| from.saturating_sub(length));
        let period_ns = choose_period_ns(length);
        let ahead_ns = current_hour_end(now_ns);
        // A range that lies in the future was asked for on purpose, so it is not cut at the current hour.
        let time = OverviewTimeRange { from_ns, to_ns, until_ns: ahead_ns, ahead_ns, period_ns, before_ns };
        let until_ns = match to_ns {
            Some(to) if time.is_ahead() => to,
            None if time.is_ahead() => i64::MAX,
            to => to.unwrap_or(ahead_ns).min(ahead_ns),
        };
        Ok(OverviewTimeRange { until_ns, ..time })
    }

    /// Whether the whole range lies in the future.
    pub(super) fn is_ahead(&self) -> bool {
        self.from_ns.is_some_and(|from| from >= self.ahead_ns)
    }

    /// Returns the end of the axis, which unlike `until_ns` is not rounded up.
    fn end_ns(&self, now_ns: i64) -> i64 {
        self.to_ns.unwrap_or(now_ns)
    }
}

/// Returns the end of the current hour. Five minutes of tolerance allow for clocks of senders that are slightly
/// ahead.
fn current_hour_end(now_ns: i64) -> i64 {
    const TOLERANCE_NS: i64 = 300 * 1_000_000_000;
    let hour = now_ns.saturating_add(TOLERANCE_NS).div_euclid(HOUR_NS);
    hour.saturating_add(1).saturating_mul(HOUR_NS)
}

/// Chooses the period: hours up to a day, six hours up to ten days, otherwise days: at most 40 periods for every
/// preset.
fn choose_period_ns(length_ns: Option<i64>) -> i64 {
    match length_ns {
        Some(length) if length <= DAY_NS => HOUR_NS,
        Some(length) if length <= 10 * DAY_NS => 6 * HOUR_NS,
        _ => DAY_NS,
    }
}

/// Parses the beginning of a day in UTC. None without a text.
fn parse_day(name: &'static str, text: Option<&str>) -> Result<Option<i64>, DayRangeError> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || DayRangeError::Day { name, text: text.to_owned() };
    let date: jiff::civil::Date = text.parse().map_err(|_| wrong())?;
    let zoned = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wrong())?;
    i64::try_from(zoned.timestamp().as_nanosecond()).map(Some).map_err(|_| wrong())
}

/// Scores of one evaluator over time, as a chart and as a table.
pub(super) struct EvaluatorSeries {
    pub(super) title: String,
    pub(super) chart: ResponsiveChart,
    /// What the values of the table are.
    pub(super) value_title: &'static str,
    pub(super) rows: Vec<ScorePeriodRow>,
    /// Whether an alert rule watches this evaluator; its threshold is drawn.
    pub(super) has_alarm: bool,
}

/// One period of the table, latest first.
pub(super) struct ScorePeriodRow {
    pub(super) period: String,
    pub(super) value: String,
    pub(super) interval: Option<String>,
    pub(super) judged: String,
    pub(super) undecided: String,
    pub(super) unjudged: String,
}

/// Builds one series for each evaluator in `rows`, in alphabetical order.
pub(super) fn build_all_series<'r>(
    settings: &ReloadableSettings,
    alerts: &ChartAlerts,
    project: Option<&str>,
    rows: impl Iterator<Item = &'r MetricPeriod>,
    time: &OverviewTimeRange,
    now_ns: i64,
) -> Vec<EvaluatorSeries> {
    let mut by_evaluator: BTreeMap<&str, BTreeMap<i64, ScoreMoments>> = BTreeMap::new();
    for row in rows {
        by_evaluator.entry(&row.evaluator).or_default().insert(row.start_ns, row.moments);
    }
    let made = by_evaluator.into_iter().map(|(name, periods)| {
        let alerts: Vec<&ChartAlert> = alerts.find(name, project).collect();
        let periods: Vec<(i64, ScoreMoments)> = periods.into_iter().collect();
        build_evaluator_series(settings, name, project, &periods, &alerts, time, now_ns)
    });
    made.collect()
}

/// Merges rows into periods of a multiple length, so that there are at most `MAX_PERIODS` (one more at an unaligned
/// start). `rows` are sorted by time. Returns the new length and the sums.
pub(super) fn merge_periods<T: Copy + Default + std::ops::AddAssign>(
    rows: &[(i64, T)],
    period_ns: i64,
) -> (i64, Vec<(i64, T)>) {
    let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else {
        return (period_ns, Vec::new());
    };
    let count = (last - first) / period_ns + 1;
    let longer = period_ns * count.div_euclid(MAX_PERIODS + 1).saturating_add(1);
    let mut sums: BTreeMap<i64, T> = BTreeMap::new();
    for (at, sum) in rows {
        *sums.entry(at.div_euclid(longer) * longer).or_default() += *sum;
    }
    (longer, sums.into_iter().collect())
}

/// Builds one series. Periods without scores are rows of the table but not points of the chart.
fn build_evaluator_series(
    settings: &ReloadableSettings,
    evaluator: &str,
    project: Option<&str>,
    rows: &[(i64, ScoreMoments)],
    alerts: &[&ChartAlert],
    time: &OverviewTimeRange,
    now_ns: i64,
) -> EvaluatorSeries {
    // Points and rows of the table have the same periods.
    let (period, rows) = merge_periods(rows, time.period_ns);
    let axis = PeriodAxis::for_rows(&rows, period, time, now_ns);
    // A metric without scores still tells whether the scores are shares.
    let best = build_metric_result(settings, evaluator, &ScoreMoments::default());
    // A mean of rules that only notice mistakes would describe the few cases that they decided. Alerts compare the
    // share without a flag, too.
    let graded = find_evaluators_for_projects(&settings.rules, evaluator, project);
    let shows_flags = best.is_share && !graded.is_empty() && graded.into_iter().all(is_flagging_evaluator);
    let mut points: Vec<TimelinePoint> = Vec::new();
    let (mut table, mut last) = (Vec::new(), None);
    for (at, moments) in &rows {
        let mut known = build_metric_result(settings, evaluator, moments);
        let mut base = format!("{} judged", format_count(known.denominator));
        if let Some(share) = FlagShare::from_moments(moments).filter(|_| shows_flags) {
            (known.value, known.interval) = (Some(share.unflagged), share.interval);
            base = format_count(known.denominator + known.abstained);
        }
        let named = format_period(*at, period);
        let value = known.value.map_or_else(|| "–".to_owned(), |mean| number::format_mean(mean, known.is_share));
        let judged = format_count(known.denominator);
        if let Some(mean) = known.value {
            points.push(TimelinePoint {
                at: axis.position(*at),
                value: mean,
                interval: known.interval,
                title: format!("{named}: {value} of {base}"),
                // The line is interrupted where a period has no score.
                follows: last == Some(at - period),
            });
            last = Some(*at);
        }
        table.push(ScorePeriodRow {
            period: named,
            value,
            interval: known.interval.map(|interval| number::format_mean_interval(interval, known.is_share)),
            judged,
            undecided: format_count(known.abstained),
            unjudged: format_count(known.failed),
        });
    }
    table.reverse();
    let title = match shows_flags {
        true => format!("{}, not flagged", find_evaluator_title(settings, evaluator)),
        false => find_evaluator_title(settings, evaluator),
    };
    let label = format!("{title} over time. The table has the same numbers.");
    let drawn = if best.is_share { TimelineScale::SHARE } else { build_label_scale(settings, evaluator, &points) };
    let bands: Vec<ThresholdBand> = alerts.iter().map(|alert| axis.locate_alert(alert)).collect();
    EvaluatorSeries {
        chart: draw_timeline(&points, &bands, &axis.ticks(), drawn, &label),
        value_title: if shows_flags { "Not flagged" } else { "Score" },
        rows: table,
        has_alarm: !bands.is_empty(),
        title,
    }
}

/// Builds the axis of an evaluator whose scores are not shares: the range of its labels, or of the drawn values if
/// the rubric is unknown.
fn build_label_scale(settings: &ReloadableSettings, evaluator: &str, points: &[TimelinePoint]) -> TimelineScale {
    let known = find_evaluator_scale(settings, evaluator).map(|known| (known.worst, known.best));
    let (low, high) = known.unwrap_or_else(|| {
        let values = || points.iter().map(|point| point.value);
        (values().fold(0.0, f64::min).floor(), values().fold(1.0, f64::max).ceil())
    });
    // One grid line for each whole score, if there are few.
    let whole = high - low;
    let steps = if whole.fract() == 0.0 && (2.0..=8.0).contains(&whole) { whole as u32 } else { 4 };
    TimelineScale { low, high, steps, format: number::format_score }
}

/// The time axis of a chart: the selected range, without the empty part before the first data.
pub(super) struct PeriodAxis {
    from_ns: i64,
    to_ns: i64,
    period_ns: i64,
}

impl PeriodAxis {
    /// One empty period is kept before the first row, so that its point does not lie on the edge.
    pub(super) fn for_rows<T>(rows: &[(i64, T)], period_ns: i64, time: &OverviewTimeRange, now_ns: i64) -> PeriodAxis {
        let last = rows.last().map_or(now_ns, |(at, _)| at.saturating_add(period_ns));
        let to_ns = time.end_ns(now_ns).min(if time.is_ahead() { last } else { now_ns });
        let first = rows.first().map_or(to_ns, |(at, _)| *at);
        let from_ns = time.from_ns.map_or(first, |from| from.max(first - period_ns));
        PeriodAxis { from_ns: from_ns.min(to_ns), to_ns, period_ns }
    }

    /// Returns the middle of a period as a fraction of the axis. The last period ends now.
    pub(super) fn position(&self, at_ns: i64) -> f64 {
        let middle = at_ns.saturating_add(self.period_ns / 2).min(self.to_ns);
        let length = (self.to_ns - self.from_ns).max(1) as f64;
        ((middle - self.from_ns) as f64 / length).clamp(0.0, 1.0)
    }

    /// Returns the threshold of an alert, with the times in which it fired as fractions of the axis. Times outside
    /// are left out.
    fn locate_alert(&self, alert: &ChartAlert) -> ThresholdBand {
        let length = (self.to_ns - self.from_ns).max(1) as f64;
        let share = |at: i64| (at.saturating_sub(self.from_ns) as f64 / length).clamp(0.0, 1.0);
        let is_seen = |(from, to): &&(i64, i64)| *to > self.from_ns && *from < self.to_ns;
        let fired = alert.fired_ns.iter().filter(is_seen).map(|(from, to)| (share(*from), share(*to)));
        ThresholdBand { threshold: alert.threshold, is_below: alert.is_below, fired: fired.collect() }
    }

    /// Positions as fractions of the axis, with labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        compute_time_ticks(self.from_ns, self.to_ns)
    }
}

/// Start of a period, with the time of day if periods are shorter than a day.
pub(super) fn format_period(ns: i64, period: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(ns)) else { return String::new() };
    time.strftime(if period < DAY_NS { "%m-%d %H:%M" } else { "%Y-%m-%d" }).to_string()
}

/// At most six ticks at round times: full hours, midnights, or first days of months.
fn compute_time_ticks(from: i64, to: i64) -> Vec<(f64, String)> {
    const MAX_TICKS: i64 = 5;
    const MINUTE_NS: i64 = HOUR_NS / 60;
    const STEPS: [i64; 12] = [
        5 * MINUTE_NS,
        15 * MINUTE_NS,
        30 * MINUTE_NS,
        HOUR_NS,
        2 * HOUR_NS,
        3 * HOUR_NS,
        6 * HOUR_NS,
        12 * HOUR_NS,
        DAY_NS,
        2 * DAY_NS,
        7 * DAY_NS,
        14 * DAY_NS,
    ];
    let length = (to - from).max(1);
    let tick = |at: i64, form: &str| {
        let time = jiff::Timestamp::from_nanosecond(i128::from(at)).ok()?;
        Some(((at - from) as f64 / length as f64, time.strftime(form).to_string()))
    };
    let Some(step) = STEPS.into_iter().find(|step| length / step < MAX_TICKS) else {
        return list_month_starts(from, to).into_iter().filter_map(|at| tick(at, "%b %Y")).collect();
    };
    let first = from.div_euclid(step).saturating_add(i64::from(from.rem_euclid(step) > 0));
    let places = (first..).map(|at| at.saturating_mul(step)).take_while(|at| *at <= to);
    // A midnight among hours is labelled with its date.
    let form = |at: i64| if at.rem_euclid(DAY_NS) == 0 { "%b %-d" } else { "%H:%M" };
    let found: Vec<(f64, String)> = places.take(1 + MAX_TICKS as usize).filter_map(|at| tick(at, form(at))).collect();
    if found.is_empty() { tick(from, "%H:%M").into_iter().collect() } else { found }
}

/// First days of months or years. The step is chosen so that there are at most six.
fn list_month_starts(from: i64, to: i64) -> Vec<i64> {
    let date = |ns: i64| {
        let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).ok()?;
        Some(time.to_zoned(jiff::tz::TimeZone::UTC).date())
    };
    let (Some(first), Some(last)) = (date(from), date(to)) else { return Vec::new() };
    let month = |date: jiff::civil::Date| i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
    let (first, last) = (month(first), month(last));
    let years = (0..4).flat_map(|tens| [1, 2, 5].map(|one| 12 * one * 10_i64.pow(tens)));
    let step = [1, 2, 3, 6].into_iter().chain(years).find(|step| (last - first) / step < 5).unwrap_or(120_000);
    let at = |month: i64| {
        let (year, month) = (i16::try_from(month.div_euclid(12)).ok()?, month.rem_euclid(12) as i8 + 1);
        let day = jiff::civil::Date::new(year, month, 1).ok()?;
        let zoned = day.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        i64::try_from(zoned.timestamp().as_nanosecond()).ok().filter(|at| (from..=to).contains(at))
    };
    (first.div_euclid(step)..=last.div_euclid(step)).filter_map(|place| at(place * step)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 20_000 * DAY_NS + 5 * HOUR_NS + 7;

    #[test]
    fn times_are_made_of_whole_periods() {
        let week = OverviewTimeRange::from_preset(TimeRangePreset::Week, NOW);
        assert_eq!((week.from_ns, week.period_ns), (Some(19_993 * DAY_NS), 6 * HOUR_NS));
        assert_eq!(week.before_ns, Some(19_986 * DAY_NS));
        let all = OverviewTimeRange::from_preset(TimeRangePreset::All, NOW);
        assert_eq!((all.from_ns, all.to_ns, all.period_ns, all.before_ns), (None, None, DAY_NS, None));
        // What begins behind the hour of now is from the future, unless it is about to end; whatever is looked at.
        let hour_ends = 20_000 * DAY_NS + 6 * HOUR_NS;
        assert_eq!((week.until_ns, all.until_ns), (hour_ends, hour_ends));
        let late = 20_000 * DAY_NS + 6 * HOUR_NS - 60_000_000_000;
        assert_eq!(OverviewTimeRange::from_preset(TimeRangePreset::Week, late).until_ns, 20_000 * DAY_NS + 7 * HOUR_NS);
        // Both days count.
        let two = OverviewTimeRange::from_days(Some("2024-10-01"), Some("2024-10-02"), NOW).unwrap();
        let from = 19_997 * DAY_NS;
        assert_eq!((two.from_ns, two.to_ns), (Some(from), Some(from + 2 * DAY_NS)));
        assert_eq!((two.period_ns, two.before_ns), (6 * HOUR_NS, Some(from - 2 * DAY_NS)));
        assert_eq!((two.until_ns, two.ahead_ns), (from + 2 * DAY_NS, 20_000 * DAY_NS + 6 * HOUR_NS));
        let wide = OverviewTimeRange::from_days(Some("2024-10-01"), Some("2096-01-01"), NOW).unwrap();
        assert_eq!(wide.until_ns, 20_000 * DAY_NS + 6 * HOUR_NS);
        let future = OverviewTimeRange::from_days(Some("2090-01-01"), Some("2096-01-01"), NOW).unwrap();
        assert_eq!(Some(future.until_ns), future.to_ns);
        for (from, to) in [(Some("yesterday"), None), (Some("2024-10-02"), Some("2024-10-01")), (None, Some("9"))] {
            assert!(OverviewTimeRange::from_days(from, to, NOW).is_err(), "{from:?} {to:?}");
        }
    }

    #[test]
    fn a_long_time_is_drawn_whole_in_longer_periods() {
        #[derive(Clone, Copy, Default, PartialEq, Debug)]
        struct One(i64);
        impl std::ops::AddAssign for One {
            fn add_assign(&mut self, other: One) {
                self.0 += other.0;
            }
        }
        for days in [1, 39, 40, 41, 82, 400] {
            let rows: Vec<(i64, One)> = (0..days).map(|day| (day * DAY_NS, One(1))).collect();
            let (period, sums) = merge_periods(&rows, DAY_NS);
            assert!(sums.len() <= 41 && period % DAY_NS == 0, "{days}: {}", sums.len());
            assert_eq!(sums.iter().map(|(_, one)| one.0).sum::<i64>(), days);
            assert_eq!(period == DAY_NS, days <= 40, "{days}");
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        let words = |from: i64, length: i64| -> Vec<String> {
            compute_time_ticks(from, from + length).into_iter().map(|(_, text)| text).collect()
        };
        let day = 20_000 * DAY_NS;
        assert_eq!(words(day + HOUR_NS / 2, 4 * HOUR_NS), ["01:00", "02:00", "03:00", "04:00"]);
        assert_eq!(words(day + 5 * HOUR_NS, DAY_NS), ["06:00", "12:00", "18:00", "Oct 5"]);
        assert_eq!(words(day, 7 * DAY_NS), ["Oct 4", "Oct 6", "Oct 8", "Oct 10"]);
        assert_eq!(words(day, 120 * DAY_NS), ["Nov 2024", "Dec 2024", "Jan 2025", "Feb 2025"]);
        assert_eq!(words(0, 20_000 * DAY_NS), ["Jan 1980", "Jan 2000", "Jan 2020"]);
        assert_eq!(words(day + 7, 0).len(), 1);
        for length in [1, HOUR_NS / 7, HOUR_NS, 3 * DAY_NS, 30 * DAY_NS, 70 * DAY_NS, 400 * DAY_NS, i64::MAX / 2] {
            let found = compute_time_ticks(day, day.saturating_add(length));
            assert!((1..=6).contains(&found.len()), "{length}: {found:?}");
            assert!(found.iter().all(|(at, _)| (0.0..=1.0).contains(at)), "{length}: {found:?}");
        }
    }
}
