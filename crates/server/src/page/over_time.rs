//! Scores over time: which time is looked at, in which periods, and what gives alarm in them.

use std::collections::BTreeMap;

use gradus_store::{MetricPeriod, ScoreMoments};

use crate::alert::AlertMetric;
use crate::evaluators::{find_evaluator_scale, find_evaluator_title};
use crate::page::metric_value::build_metric_result;
use crate::project_pattern;
use crate::settings::ReloadableSettings;
use gradus_report::html::charts::{ResponsiveChart, ThresholdBand, TimelinePoint, TimelineScale, draw_timeline};
use gradus_report::html::number::{self, format_count};

/// Periods that are drawn, at most: where there are more, they are longer.
const MAX_PERIODS: i64 = 40;
const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;

/// The time that is looked at.
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

    pub(super) fn from_name(name: &str) -> Option<TimeRangePreset> {
        TimeRangePreset::ALL.into_iter().find(|range| range.name() == name)
    }

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
    #[error("{name}={}: write it as 2026-11-15", .text.escape_debug())]
    Day { name: &'static str, text: String },
    #[error("from: it is behind to")]
    Reversed,
}

/// From when to when, and in which periods: of whole hours, and days where it is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverviewTimeRange {
    pub(super) from_ns: Option<i64>,
    /// Where it ends; not given where that is now.
    pub(super) to_ns: Option<i64>,
    /// What begins here or later does not count: where it ends, or, up to now, with the hour that now is in.
    pub(super) until_ns: i64,
    /// What begins here or later is from the future.
    pub(super) ahead_ns: i64,
    pub(super) period_ns: i64,
    /// When the time before it begins, which is as long.
    pub(super) before_ns: Option<i64>,
}

impl OverviewTimeRange {
    /// Up to now. It begins with a whole period.
    pub(super) fn from_preset(range: TimeRangePreset, now_ns: i64) -> OverviewTimeRange {
        let period_ns = choose_period_ns(range.length_ns());
        let from_ns = range
            .length_ns()
            .map(|length| now_ns.saturating_sub(length).div_euclid(period_ns).saturating_mul(period_ns));
        let before_ns = from_ns.zip(range.length_ns()).map(|(from, length)| from.saturating_sub(length));
        let ahead_ns = current_hour_end(now_ns);
        OverviewTimeRange { from_ns, to_ns: None, until_ns: ahead_ns, ahead_ns, period_ns, before_ns }
    }

    /// From one day to another, with both of them.
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
        // Whoever asks for the future itself gets it.
        let time = OverviewTimeRange { from_ns, to_ns, until_ns: ahead_ns, ahead_ns, period_ns, before_ns };
        let until_ns = match to_ns {
            Some(to) if time.is_ahead() => to,
            None if time.is_ahead() => i64::MAX,
            to => to.unwrap_or(ahead_ns).min(ahead_ns),
        };
        Ok(OverviewTimeRange { until_ns, ..time })
    }

    /// Whether it is about the future.
    pub(super) fn is_ahead(&self) -> bool {
        self.from_ns.is_some_and(|from| from >= self.ahead_ns)
    }

    fn end_ns(&self, now_ns: i64) -> i64 {
        self.to_ns.unwrap_or(now_ns)
    }
}

/// The end of the hour that now is in, and a little more: clocks differ, and sums are of whole hours.
fn current_hour_end(now_ns: i64) -> i64 {
    const TOLERANCE_NS: i64 = 300 * 1_000_000_000;
    let hour = now_ns.saturating_add(TOLERANCE_NS).div_euclid(HOUR_NS);
    hour.saturating_add(1).saturating_mul(HOUR_NS)
}

/// Few enough to be drawn beside each other.
fn choose_period_ns(length_ns: Option<i64>) -> i64 {
    match length_ns {
        Some(length) if length <= DAY_NS => HOUR_NS,
        Some(length) if length <= 10 * DAY_NS => 6 * HOUR_NS,
        _ => DAY_NS,
    }
}

/// A day as `2026-11-15`, at its beginning.
fn parse_day(name: &'static str, text: Option<&str>) -> Result<Option<i64>, DayRangeError> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || DayRangeError::Day { name, text: text.to_owned() };
    let date: jiff::civil::Date = text.parse().map_err(|_| wrong())?;
    let zoned = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wrong())?;
    i64::try_from(zoned.timestamp().as_nanosecond()).map(Some).map_err(|_| wrong())
}

/// One evaluator over time.
pub(super) struct EvaluatorSeries {
    pub(super) title: String,
    pub(super) chart: ResponsiveChart,
    pub(super) rows: Vec<ScorePeriodRow>,
    pub(super) has_alarm: bool,
}

pub(super) struct ScorePeriodRow {
    pub(super) period: String,
    pub(super) value: String,
    pub(super) interval: Option<String>,
    pub(super) judged: String,
    pub(super) unjudged: String,
}

/// From sums of what is looked at, in order of time.
pub(super) fn build_all_series<'r>(
    settings: &ReloadableSettings,
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
        let bands = find_threshold_bands(settings, name, project);
        let periods: Vec<(i64, ScoreMoments)> = periods.into_iter().collect();
        build_evaluator_series(settings, name, &periods, &bands, time, now_ns)
    });
    made.collect()
}

/// Periods so long that there are few enough of them, and the sums of each.
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

/// What alert rules watch of an evaluator, for the project that is looked at.
fn find_threshold_bands(settings: &ReloadableSettings, evaluator: &str, project: Option<&str>) -> Vec<ThresholdBand> {
    let rules = settings.alerts.iter().filter(|rule| match (rule.project.as_deref(), project) {
        (pattern, _) if project_pattern::is_all(pattern) => true,
        (Some(pattern), Some(project)) => project_pattern::is_project_match(pattern, project),
        _ => false,
    });
    let mut bands = Vec::new();
    for rule in rules {
        if let (AlertMetric::Evaluator { name, .. }, Some(bar)) = (&rule.condition.subject, rule.condition.bar)
            && name == evaluator
        {
            bands.push(ThresholdBand { threshold: bar.threshold, is_below: bar.comparison.is_below() });
        }
    }
    bands
}

fn build_evaluator_series(
    settings: &ReloadableSettings,
    evaluator: &str,
    rows: &[(i64, ScoreMoments)],
    bands: &[ThresholdBand],
    time: &OverviewTimeRange,
    now_ns: i64,
) -> EvaluatorSeries {
    let (period, rows) = merge_periods(rows, time.period_ns);
    let axis = PeriodAxis::for_rows(&rows, period, time, now_ns);
    let best = build_metric_result(settings, evaluator, &ScoreMoments::default());
    let mut points: Vec<TimelinePoint> = Vec::new();
    let (mut table, mut last) = (Vec::new(), None);
    for (at, moments) in &rows {
        let known = build_metric_result(settings, evaluator, moments);
        let named = format_period(*at, period);
        let value = known.value.map_or_else(|| "–".to_owned(), |mean| number::format_mean(mean, known.is_share));
        let judged = format_count(known.denominator);
        if let Some(mean) = known.value {
            points.push(TimelinePoint {
                at: axis.position(*at),
                value: mean,
                interval: known.interval,
                title: format!("{named}: {value} of {judged} judged"),
                follows: last == Some(at - period),
            });
            last = Some(*at);
        }
        table.push(ScorePeriodRow {
            period: named,
            value,
            interval: known.interval.map(|interval| number::format_mean_interval(interval, known.is_share)),
            judged,
            unjudged: format_count(known.failed),
        });
    }
    table.reverse();
    let title = find_evaluator_title(settings, evaluator);
    let label = format!("{title} over time. The table has the same numbers.");
    let drawn = if best.is_share { TimelineScale::SHARE } else { own_scale(settings, evaluator, &points) };
    EvaluatorSeries {
        chart: draw_timeline(&points, bands, &axis.ticks(), drawn, &label),
        rows: table,
        has_alarm: !bands.is_empty(),
        title,
    }
}

/// From the worst to the best that an evaluator gives, or, where that is not known, that is drawn.
fn own_scale(settings: &ReloadableSettings, evaluator: &str, points: &[TimelinePoint]) -> TimelineScale {
    let known = find_evaluator_scale(settings, evaluator).map(|known| (known.worst, known.best));
    let (low, high) = known.unwrap_or_else(|| {
        let values = || points.iter().map(|point| point.value);
        (values().fold(0.0, f64::min).floor(), values().fold(1.0, f64::max).ceil())
    });
    // A step for each whole score, where there are few of them.
    let whole = high - low;
    let steps = if whole.fract() == 0.0 && (2.0..=8.0).contains(&whole) { whole as u32 } else { 4 };
    TimelineScale { low, high, steps, format: number::format_score }
}

/// The time that is drawn: what is looked at, from where there is something on.
pub(super) struct PeriodAxis {
    from_ns: i64,
    to_ns: i64,
    period_ns: i64,
}

impl PeriodAxis {
    pub(super) fn for_rows<T>(rows: &[(i64, T)], period_ns: i64, time: &OverviewTimeRange, now_ns: i64) -> PeriodAxis {
        let last = rows.last().map_or(now_ns, |(at, _)| at.saturating_add(period_ns));
        let to_ns = time.end_ns(now_ns).min(if time.is_ahead() { last } else { now_ns });
        let first = rows.first().map_or(to_ns, |(at, _)| *at);
        let from_ns = time.from_ns.map_or(first, |from| from.max(first - period_ns));
        PeriodAxis { from_ns: from_ns.min(to_ns), to_ns, period_ns }
    }

    /// The middle of a period.
    pub(super) fn position(&self, at_ns: i64) -> f64 {
        let middle = at_ns.saturating_add(self.period_ns / 2).min(self.to_ns);
        let length = (self.to_ns - self.from_ns).max(1) as f64;
        ((middle - self.from_ns) as f64 / length).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        compute_time_ticks(self.from_ns, self.to_ns)
    }
}

pub(super) fn format_period(ns: i64, period: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(ns)) else { return String::new() };
    time.strftime(if period < DAY_NS { "%m-%d %H:%M" } else { "%Y-%m-%d" }).to_string()
}

/// Places on the axis, of round times: full hours, midnights, or first days of months.
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
    // A midnight among hours says which day it is.
    let form = |at: i64| if at.rem_euclid(DAY_NS) == 0 { "%b %-d" } else { "%H:%M" };
    let found: Vec<(f64, String)> = places.take(1 + MAX_TICKS as usize).filter_map(|at| tick(at, form(at))).collect();
    if found.is_empty() { tick(from, "%H:%M").into_iter().collect() } else { found }
}

/// First days of months or years, few enough.
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
