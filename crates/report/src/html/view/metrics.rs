//! The metrics as cards, a chart and a table. Questions without a verdict are shown next to every value, since they
//! are not part of it.

use gradus_eval::evaluator::SIMULATOR_JUDGE;
use gradus_eval::evaluator::{GAVE_UP, OUTCOME};
use gradus_eval::report::{EvaluationSummary, GateResult, MetricResult};
use gradus_stats::interval::ConfidenceInterval;

use super::text;
use crate::html::charts::{
    AxisRange, BarFill, BarSegment, IntervalBar, ResponsiveChart, draw_interval_bars, draw_segment_strip,
};
use crate::html::number;
use crate::html::svg::Svg;
use crate::measured_population;
use crate::metric_text::{
    format_calibration, format_coverage, format_flagged_counts, format_rule_flags, format_unjudged_counts,
};
use crate::number_text::format_count;

/// Maximum number of listed labels of one evaluator; the rest is summed up.
const MAX_LABELS: usize = 8;

/// The section on metrics; cards and chart have the same order.
#[derive(Debug)]
pub struct MetricsView {
    /// How many trajectories and steps are flagged, in words.
    pub flagged: Option<String>,
    pub cards: Vec<MetricCard>,
    pub chart: ResponsiveChart,
    pub has_gates: bool,
}

/// One metric, formatted.
#[derive(Debug)]
pub struct MetricCard {
    pub title: String,
    /// Whether it is computed from other metrics, such as `combined`.
    pub is_together: bool,
    /// The judge, if it differs from that of the run.
    pub judge: Option<String>,
    pub value: String,
    pub unit: &'static str,
    /// The population of the value, in words.
    pub of: String,
    /// The population in short, for the table.
    pub count: String,
    /// The share of questions that were judged, in words. `None` for measurements.
    pub coverage: Option<String>,
    pub interval: Option<String>,
    /// The corrected number, or that there is none. `None` for numbers that no model judged.
    pub calibration: Option<String>,
    pub strip: Svg,
    /// The legend of `strip`, with counts.
    pub pieces: Vec<MetricLegendItem>,
    /// Labels with their counts, most frequent first.
    pub labels: Vec<(String, String)>,
}

/// One entry of a legend: CSS class of its pattern, name, count.
#[derive(Debug)]
pub struct MetricLegendItem {
    pub class: &'static str,
    pub name: &'static str,
    pub count: String,
}

impl MetricsView {
    /// The bars of gates are drawn only for shares, which the axis of the chart is made for.
    pub fn from_summary(summary: &EvaluationSummary, gates: &[GateResult]) -> MetricsView {
        let together = [&summary.combined, &summary.trajectories_right];
        let all: Vec<(&MetricResult, bool)> = (summary.metrics.iter().map(|metric| (metric, false)))
            .chain(together.into_iter().flatten().map(|metric| (metric, true)))
            .collect();
        let rows: Vec<IntervalBar> = all.iter().map(|(metric, _)| build_interval_bar(metric, gates)).collect();
        MetricsView {
            flagged: format_flagged_counts(summary),
            has_gates: rows.iter().any(|row| row.value.is_some() && !row.bars.is_empty()),
            chart: draw_interval_bars(
                &rows,
                AxisRange::PERCENT,
                "score (% of judged)",
                "Scores with their 95 % intervals. The table has the same numbers.",
            ),
            cards: all
                .iter()
                .map(|(metric, together)| MetricCard::from_metric(metric, *together, &summary.judge))
                .collect(),
        }
    }
}

/// How to present a metric: as a share, a mean on another scale, or nothing. Values that are not finite count as
/// nothing.
enum MetricEstimate {
    Nothing,
    /// From 0 to 1.
    Share(f64, Option<ConfidenceInterval>),
    /// A mean of scores on a scale of their own.
    Mean(f64, Option<ConfidenceInterval>),
    /// Flags of rules that cannot confirm anything, in words.
    Flags(String),
}

impl MetricEstimate {
    fn from_metric(metric: &MetricResult) -> MetricEstimate {
        if let Some(flags) = format_rule_flags(metric) {
            return MetricEstimate::Flags(flags);
        }
        let interval = number::finite_interval(metric.interval);
        let Some(value) = number::filter_finite(metric.value).filter(|_| metric.denominator > 0) else {
            return MetricEstimate::Nothing;
        };
        if metric.is_share { MetricEstimate::Share(value, interval) } else { MetricEstimate::Mean(value, interval) }
    }
}

fn build_interval_bar(metric: &MetricResult, gates: &[GateResult]) -> IntervalBar {
    let demands = gates.iter().filter(|gate| gate.metric == metric.name);
    let mut row = IntervalBar { label: text::format_display_line(&metric.title), ..IntervalBar::default() };
    match MetricEstimate::from_metric(metric) {
        MetricEstimate::Nothing => row.note = "nothing was judged".to_owned(),
        // The chart has room for a short text; the table below says that rules confirmed it.
        MetricEstimate::Flags(flags) => row.note = flags.replace(" confirmed right by rules", " confirmed right"),
        MetricEstimate::Mean(value, _) if metric.judge == SIMULATOR_JUDGE => row.note = number::format_score(value),
        MetricEstimate::Mean(value, _) => row.note = format!("mean score {}", number::format_score(value)),
        MetricEstimate::Share(value, interval) => {
            row.value = Some(value);
            row.interval = interval;
            row.note = number::format_percent(value);
            row.bars = demands.filter_map(|gate| gate.bar).collect();
        }
    }
    row
}

impl MetricCard {
    /// `run_judge` is the judge of the run. The strip splits judged questions into right and wrong only if scores are 0
    /// or 1, since a sum of fractions is no count.
    pub fn from_metric(metric: &MetricResult, is_together: bool, run_judge: &str) -> MetricCard {
        let judged = metric.denominator;
        let right = metric.numerator;
        let (value, unit, of, interval) = match MetricEstimate::from_metric(metric) {
            MetricEstimate::Nothing => {
                let of = if judged == 0 { "nothing was judged" } else { "no score" };
                ("—".to_owned(), "", of.to_owned(), None)
            }
            MetricEstimate::Flags(flags) => {
                let flagged = metric.wrong_count().unwrap_or_default();
                // Without flags there is no number: a 0 would look like a score.
                match flagged {
                    0 if metric.denominator > 0 => (format_count(metric.denominator), "confirmed", flags, None),
                    0 => ("—".to_owned(), "", flags, None),
                    _ => (format_count(flagged), "flagged", flags, None),
                }
            }
            MetricEstimate::Share(share, interval) => {
                let word = match number::is_whole(right) {
                    true if metric.name == OUTCOME => "with a score ended well",
                    true => "right",
                    false => "points",
                };
                // Giving up has no score and is not a success.
                let gave_up = metric.labels.get(GAVE_UP).filter(|count| **count > 0 && metric.name == OUTCOME);
                let gave_up = gave_up.map(|count| format!("; {} gave up and have no score", format_count(*count)));
                let (right, gave_up) = (number::format_score_sum(right), gave_up.unwrap_or_default());
                let of = format!("{right} of {} {word}{gave_up}", format_count(judged));
                (format!("{:.1}", 100.0 * share), "%", of, interval.map(number::format_percent_interval))
            }
            MetricEstimate::Mean(mean, interval) => {
                let of = measured_population(metric)
                    .unwrap_or_else(|| format!("mean score of {} judged", format_count(judged)));
                (number::format_score(mean), "", of, interval.map(number::format_score_interval))
            }
        };
        let estimate = MetricEstimate::from_metric(metric);
        let is_flags = matches!(estimate, MetricEstimate::Flags(_));
        let is_counted = (is_flags || matches!(estimate, MetricEstimate::Share(..))) && number::is_whole(right);
        let mut pieces: Vec<(BarFill, &'static str, u64)> = if is_counted {
            let right = (right as u64).min(judged);
            let good = (BarFill::Right, if is_flags { "Confirmed right" } else { "Right" }, right);
            vec![good, (BarFill::Wrong, if is_flags { "Flagged" } else { "Wrong" }, judged - right)]
        } else {
            vec![(BarFill::Plain, "Judged", judged)]
        };
        let unscored = metric.unscored_count();
        if unscored > 0 {
            pieces.push((BarFill::Plain, "Neither", unscored));
        }
        pieces.push((BarFill::Abstained, "Cannot judge", metric.abstained - unscored));
        pieces.push((BarFill::Unjudged, "Could not be judged", metric.failed));
        pieces.push((BarFill::NotApplicable, "Not applicable", metric.not_applicable));
        let parts: Vec<BarSegment> =
            pieces.iter().map(|(fill, _, count)| BarSegment { fill: *fill, value: *count as f64 }).collect();
        MetricCard {
            title: text::format_display_line(&metric.title),
            is_together,
            judge: (metric.judge != run_judge && !metric.judge.is_empty())
                .then(|| text::format_display_line(&metric.judge)),
            value,
            unit,
            coverage: if is_flags { format_unjudged_counts(metric) } else { format_coverage(metric) },
            count: if unit == "%" || is_flags { of.clone() } else { format!("{} judged", format_count(judged)) },
            of,
            interval,
            calibration: format_calibration(metric).map(|text| text::format_display_line(&text)),
            strip: draw_segment_strip(&parts, "Outcomes of the questions. The list has the same numbers."),
            pieces: pieces
                .into_iter()
                .map(|(fill, name, number)| MetricLegendItem {
                    class: fill.css_class(),
                    name,
                    count: format_count(number),
                })
                .collect(),
            labels: list_frequent_labels(metric),
        }
    }
}

/// The labels that were given, the most frequent first.
fn list_frequent_labels(metric: &MetricResult) -> Vec<(String, String)> {
    let mut labels: Vec<(&String, &u64)> = metric.labels.iter().collect();
    labels.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rest: u64 = labels.iter().skip(MAX_LABELS).map(|(_, count)| **count).sum();
    let mut shown: Vec<(String, String)> = labels
        .into_iter()
        .take(MAX_LABELS)
        .map(|(label, number)| (text::format_display_line(label), format_count(*number)))
        .collect();
    if rest > 0 {
        shown.push(("other labels".to_owned(), format_count(rest)));
    }
    shown
}
