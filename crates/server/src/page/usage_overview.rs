//! Usage: numbers of trajectories, durations and costs, in total, over time and by version.

use gradus_store::{LatestOverview, OverviewTotals, SpendTotal, TrajectoryUsage};

use super::display_text::{format_duration, format_spend as spent_words};
use super::metric_timeline::{OverviewTimeRange, PeriodAxis, format_period, merge_periods};
use gradus_report::html::charts::{ResponsiveChart, TimelinePoint, TimelineScale, draw_timeline, round_step};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;

/// Maximum number of rows in the table of versions.
const MAX_VERSIONS: usize = 8;

/// The usage section of the overview, formatted.
pub(super) struct UsageOverview {
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) versions: Vec<VersionUsageRow>,
    /// None if no trajectory is in the range.
    pub(super) over_time: Option<UsageTimeline>,
    /// Percentiles and versions come from the latest trajectories only, because not all could be read.
    pub(super) is_cut: bool,
}

/// Usage of one version of an agent.
pub(super) struct VersionUsageRow {
    pub(super) name: String,
    pub(super) trajectories: String,
    pub(super) errors: String,
    /// Median and 95th percentile of the duration.
    pub(super) median: String,
    pub(super) slow: String,
    /// Mean cost of a trajectory; none if no cost is known.
    pub(super) cost: Option<String>,
}

/// Charts over time, with the same numbers as a table.
pub(super) struct UsageTimeline {
    pub(super) took: ResponsiveChart,
    /// None if no cost is known in any period.
    pub(super) cost: Option<ResponsiveChart>,
    pub(super) rows: Vec<UsagePeriodRow>,
}

/// One period. Duration and cost are means for a trajectory.
pub(super) struct UsagePeriodRow {
    pub(super) period: String,
    pub(super) trajectories: String,
    pub(super) errors: String,
    pub(super) took: String,
    pub(super) cost: Option<String>,
}

impl UsageOverview {
    /// Totals and timelines come from rollups (`usage`), which are complete. Percentiles need single durations, so
    /// they come from the latest trajectories (`latest`). `judging` is the cost of the judges, if it is known for the
    /// filter.
    pub(super) fn new(
        graded: u64,
        latest: &LatestOverview,
        usage: &[(i64, TrajectoryUsage)],
        judging: Option<SpendTotal>,
        time: &OverviewTimeRange,
        now_ns: i64,
    ) -> UsageOverview {
        UsageOverview {
            facts: summarize_usage(graded, &latest.totals, usage, judging),
            // A table of versions is useless if no trajectory has one.
            versions: latest
                .versions
                .iter()
                .filter(|_| latest.versions.iter().any(|row| !row.version.is_empty()))
                .take(MAX_VERSIONS)
                .map(|row| VersionUsageRow {
                    name: match row.version.as_str() {
                        "" => "no version".to_owned(),
                        version => text::format_display_line(version),
                    },
                    trajectories: format_count(row.totals.trajectories),
                    errors: format_count(row.totals.errors),
                    median: format_duration_percentile(&row.totals, 0.5).unwrap_or_default(),
                    slow: format_duration_percentile(&row.totals, 0.95).unwrap_or_default(),
                    cost: format_mean_cost(row.totals.cost_usd, row.totals.costed),
                })
                .collect(),
            over_time: (!usage.is_empty()).then(|| UsageTimeline::from_usage(usage, time, now_ns)),
            is_cut: latest.is_cut,
        }
    }
}

/// Formats the nearest-rank percentile. `durations_ns` is sorted.
fn format_duration_percentile(totals: &OverviewTotals, share: f64) -> Option<String> {
    let last = totals.durations_ns.len().checked_sub(1)?;
    totals.durations_ns.get((share * last as f64).round() as usize).map(|ns| format_duration(*ns))
}

/// Formats the mean cost. `costed` is the number of trajectories with a known cost: others must not lower the mean.
fn format_mean_cost(cost_usd: f64, costed: u64) -> Option<String> {
    (costed > 0).then(|| number::format_usd(cost_usd / costed as f64))
}

/// Lists the totals. `graded` is the number of trajectories that the most frequent evaluator judged. Rollups do not
/// tell how many were judged by any of them.
fn summarize_usage(
    graded: u64,
    latest: &OverviewTotals,
    usage: &[(i64, TrajectoryUsage)],
    judging: Option<SpendTotal>,
) -> Vec<(&'static str, String)> {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let mut sum = TrajectoryUsage::default();
    usage.iter().for_each(|(_, usage)| sum += *usage);
    let mut facts = vec![
        ("Trajectories", format_count(positive(sum.trajectories))),
        ("Most judged by one evaluator", format_count(graded)),
        (
            "Ended in an error",
            format!("{} of {}", format_count(positive(sum.errors)), format_count(positive(sum.trajectories))),
        ),
        ("Steps", format_count(positive(sum.steps))),
    ];
    facts.extend(format_duration_percentile(latest, 0.5).map(|time| ("Duration, median", time)));
    facts.extend(format_duration_percentile(latest, 0.95).map(|time| ("Duration, p95", time)));
    facts.push(("Agent tokens", format_count(positive(sum.tokens))));
    let cost = if sum.costed > 0 { number::format_usd(sum.cost_usd) } else { "not known".to_owned() };
    facts.push(("Agent cost", cost));
    facts.extend(judging.map(|spent| ("Judging cost", spent_words(spent))));
    facts
}

impl UsageTimeline {
    /// Builds the timeline. `rows` are sorted by time. Periods are merged as in the charts of scores, so that both
    /// have the same axis.
    fn from_usage(rows: &[(i64, TrajectoryUsage)], time: &OverviewTimeRange, now_ns: i64) -> UsageTimeline {
        let (period, rows) = merge_periods(rows, time.period_ns);
        let axis = PeriodAxis::for_rows(&rows, period, time, now_ns);
        // One timeline. Periods without a value are gaps: `follows` connects only points of adjacent periods.
        let line =
            |value: fn(&TrajectoryUsage) -> Option<f64>, shown: fn(f64) -> String, step: fn(f64) -> f64, what: &str| {
                let mut last = None;
                let mut points: Vec<TimelinePoint> = Vec::new();
                for (at, usage) in &rows {
                    let Some(value) = value(usage) else { continue };
                    points.push(TimelinePoint {
                        at: axis.position(*at),
                        value,
                        interval: None,
                        title: format!("{}: {}", format_period(*at, period), shown(value)),
                        follows: last == Some(at - period),
                    });
                    last = Some(*at);
                }
                let most = points.iter().map(|point| point.value).fold(0.0, f64::max);
                let scale = TimelineScale::up_to(most, step, shown);
                let label = format!("{what} over time. The table has the same numbers.");
                (!points.is_empty()).then(|| draw_timeline(&points, &[], &axis.ticks(), scale, &label))
            };
        let shown_time = |ns: f64| if ns == 0.0 { "0".to_owned() } else { format_duration(ns as i64) };
        let took = line(took_ns, shown_time, time_step, "Mean duration of a trajectory");
        let shown = |(at, usage): &(i64, TrajectoryUsage)| UsagePeriodRow {
            period: format_period(*at, period),
            trajectories: format_count(u64::try_from(usage.trajectories).unwrap_or(0)),
            errors: format_count(u64::try_from(usage.errors).unwrap_or(0)),
            took: took_ns(usage).map(|ns| format_duration(ns as i64)).unwrap_or_default(),
            cost: cost_usd(usage).map(number::format_usd),
        };
        UsageTimeline {
            took: took.unwrap_or_else(|| draw_timeline(&[], &[], &axis.ticks(), TimelineScale::SHARE, "")),
            cost: line(cost_usd, number::format_usd, round_step, "Mean cost of a trajectory"),
            rows: rows.iter().rev().map(shown).collect(),
        }
    }
}

/// Returns a round step of the axis, in nanoseconds: round decimals below half a minute, then whole minutes and
/// hours, as the labels show them.
fn time_step(ns: f64) -> f64 {
    const MINUTE_NS: f64 = 60e9;
    match ns / MINUTE_NS {
        minutes if minutes <= 0.5 => round_step(ns),
        minutes if minutes <= 30.0 => {
            let steps = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
            MINUTE_NS * steps.into_iter().find(|step| *step >= minutes).unwrap_or(30.0)
        }
        minutes => 60.0 * MINUTE_NS * round_step(minutes / 60.0),
    }
}

/// Returns the mean duration of a trajectory; None for a period without trajectories.
fn took_ns(usage: &TrajectoryUsage) -> Option<f64> {
    (usage.trajectories > 0).then(|| usage.took_ns / usage.trajectories as f64)
}

/// Returns the mean cost over trajectories with a known cost; None if there are none.
fn cost_usd(usage: &TrajectoryUsage) -> Option<f64> {
    (usage.costed > 0).then(|| usage.cost_usd / usage.costed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_on_an_axis_are_round_in_the_unit_that_they_are_shown_in() {
        let seconds = [0.3, 3.1, 31.0, 100.0, 1_000.0, 3_000.0, 9_000.0].map(|s| time_step(s * 1e9) / 1e9);
        assert_eq!(seconds, [0.5, 5.0, 60.0, 120.0, 1_800.0, 3_600.0, 9_000.0]);
    }
}
