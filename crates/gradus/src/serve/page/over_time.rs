//! Scores over time: which time is looked at, in which periods, and what gives alarm in them.

use std::collections::BTreeMap;

use gradus_store::{MetricCell, MetricFilter, Moments};

use super::overview::metric;
use super::words::title;
use crate::alert::Subject;
use crate::output::html::charts::{Band, Chart, Moment, timeline};
use crate::output::html::number::{self, count};
use crate::project_pattern;
use crate::serve::settings::Reloadable;

/// Periods that are drawn, at most: the latest.
const MOST_PERIODS: usize = 40;
const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;

/// The time that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    Day,
    Week,
    Month,
    All,
}

impl Range {
    pub(super) const ALL: [Range; 4] = [Range::Day, Range::Week, Range::Month, Range::All];

    pub(super) fn named(name: &str) -> Option<Range> {
        Range::ALL.into_iter().find(|range| range.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Range::Day => "24h",
            Range::Week => "7d",
            Range::Month => "30d",
            Range::All => "all",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Range::Day => "24 hours",
            Range::Week => "7 days",
            Range::Month => "30 days",
            Range::All => "all time",
        }
    }

    fn length_ns(self) -> Option<i64> {
        match self {
            Range::Day => Some(DAY_NS),
            Range::Week => Some(7 * DAY_NS),
            Range::Month => Some(30 * DAY_NS),
            Range::All => None,
        }
    }

    pub(super) fn period_ns(self) -> i64 {
        match self {
            Range::Day => HOUR_NS,
            Range::Week => 6 * HOUR_NS,
            Range::Month | Range::All => DAY_NS,
        }
    }

    /// When it begins: with a whole period.
    pub(super) fn start_ns(self, now_ns: i64) -> Option<i64> {
        let period = self.period_ns();
        self.length_ns().map(|length| now_ns.saturating_sub(length).div_euclid(period) * period)
    }

    /// When the time before it begins, which is as long.
    pub(super) fn before(self, now_ns: i64) -> Option<i64> {
        Some(self.start_ns(now_ns)?.saturating_sub(self.length_ns()?))
    }
}

/// One evaluator over time.
pub(super) struct Series {
    pub(super) title: String,
    pub(super) chart: Chart,
    pub(super) rows: Vec<Row>,
    pub(super) has_alarm: bool,
}

pub(super) struct Row {
    pub(super) period: String,
    pub(super) value: String,
    pub(super) interval: Option<String>,
    pub(super) judged: String,
    pub(super) unjudged: String,
}

/// From sums of all trajectories that are looked at, in order of time.
pub(super) fn series<'c>(
    settings: &Reloadable,
    filter: &MetricFilter,
    cells: impl Iterator<Item = &'c MetricCell>,
    range: Range,
    now_ns: i64,
) -> Vec<Series> {
    let mut by_evaluator: BTreeMap<&str, BTreeMap<i64, Moments>> = BTreeMap::new();
    for cell in cells {
        *by_evaluator.entry(&cell.evaluator).or_default().entry(cell.start_ns).or_default() += cell.moments;
    }
    let made = by_evaluator.into_iter().map(|(name, periods)| {
        let bands = bands(settings, name, filter.project.as_deref());
        let periods: Vec<(i64, Moments)> = periods.into_iter().collect();
        one(settings, name, &periods, &bands, range, now_ns)
    });
    made.collect()
}

/// What alert rules watch of an evaluator, for the project that is looked at.
fn bands(settings: &Reloadable, evaluator: &str, project: Option<&str>) -> Vec<Band> {
    let rules = settings.alerts.iter().filter(|rule| match (&rule.project, project) {
        (None, _) => true,
        (Some(pattern), Some(project)) => project_pattern::fits(pattern, project),
        (Some(_), None) => false,
    });
    let mut bands = Vec::new();
    for rule in rules {
        if let (Subject::Evaluator(name), Some(bar)) = (&rule.condition.subject, rule.condition.bar)
            && name == evaluator
        {
            bands.push(Band { threshold: bar.threshold, is_below: bar.comparison.is_below() });
        }
    }
    bands
}

fn one(
    settings: &Reloadable,
    evaluator: &str,
    rows: &[(i64, Moments)],
    bands: &[Band],
    range: Range,
    now_ns: i64,
) -> Series {
    let period = range.period_ns();
    let rows = &rows[rows.len().saturating_sub(MOST_PERIODS)..];
    let first = rows.first().map_or(now_ns, |(at, _)| *at);
    let from = range.start_ns(now_ns).map_or(first, |from| from.max(first - period));
    let length = (now_ns - from).max(1) as f64;
    let mut points: Vec<Moment> = Vec::new();
    let (mut table, mut last) = (Vec::new(), None);
    for (at, moments) in rows {
        let at = *at;
        let known = metric(settings, evaluator, moments);
        let named = words(at, period);
        let value = known.value.map_or_else(|| "–".to_owned(), number::percent);
        let judged = count(known.denominator);
        if let Some(share) = known.value {
            let middle = at.saturating_add(period / 2).min(now_ns);
            points.push(Moment {
                at: ((middle - from) as f64 / length).clamp(0.0, 1.0),
                value: share,
                interval: known.interval,
                title: format!("{named}: {value} of {judged} judged"),
                follows: last == Some(at - period),
            });
            last = Some(at);
        }
        table.push(Row {
            period: named,
            value,
            interval: known.interval.map(number::percents),
            judged,
            unjudged: count(known.failed),
        });
    }
    table.reverse();
    let title = title(settings, evaluator);
    let ticks = ticks(from, now_ns);
    let label = format!("{title} over time. The table has the same numbers.");
    Series {
        chart: timeline(&points, bands, &ticks, &label),
        rows: table,
        has_alarm: !bands.is_empty(),
        title,
    }
}

fn words(ns: i64, period: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(ns)) else { return String::new() };
    time.strftime(if period < DAY_NS { "%m-%d %H:%M" } else { "%Y-%m-%d" }).to_string()
}

fn ticks(from: i64, to: i64) -> Vec<(f64, String)> {
    let is_short = to - from <= 2 * DAY_NS;
    [0.0, 0.25, 0.5, 0.75, 1.0]
        .map(|share: f64| {
            let at = from + ((to - from) as f64 * share) as i64;
            let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(at)) else {
                return (share, String::new());
            };
            (share, time.strftime(if is_short { "%H:%M" } else { "%b %d" }).to_string())
        })
        .into()
}
