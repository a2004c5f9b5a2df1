//! The metrics as cards, a chart and a table. Questions without a verdict are shown beside every value, since they are
//! not part of it.

use gradus_eval::evaluator::SIMULATOR;
use gradus_eval::interval::ConfidenceInterval;
use gradus_eval::report::{EvaluationSummary, GateResult, MetricResult};

use super::text;
use crate::html::charts::{
    AxisRange, BarFill, BarSegment, IntervalBar, ResponsiveChart, draw_segment_strip, interval_bars,
};
use crate::html::count_text::format_count;
use crate::html::number;
use crate::html::svg::Svg;
use crate::measured_of;

/// Labels of one evaluator that are listed; the rest is summed up.
const MAX_LABELS: usize = 8;

/// The section on metrics; cards and chart have the same order.
#[derive(Debug)]
pub struct MetricsView {
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
    /// The judge, if it is not that of the run.
    pub judge: Option<String>,
    pub value: String,
    pub unit: &'static str,
    /// What the value is a share or a mean of.
    pub of: String,
    /// The same in short, for the table.
    pub count: String,
    pub interval: Option<String>,
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
            has_gates: rows.iter().any(|row| row.value.is_some() && !row.bars.is_empty()),
            chart: interval_bars(
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

/// How a metric is to be read: a share, a mean on another scale, or nothing. Values that are not finite are nothing.
enum MetricEstimate {
    Nothing,
    /// From 0 to 1.
    Share(f64, Option<ConfidenceInterval>),
    /// A mean of scores on a scale of their own.
    Mean(f64, Option<ConfidenceInterval>),
}

impl MetricEstimate {
    fn from_metric(metric: &MetricResult) -> MetricEstimate {
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
        MetricEstimate::Mean(value, _) if metric.judge == SIMULATOR => row.note = number::format_score(value),
        MetricEstimate::Mean(value, _) => row.note = format!("mean score {}", number::format_score(value)),
        MetricEstimate::Share(value, interval) => {
            row.value = Some(value);
            row.interval = interval;
            row.note = number::format_percent(value);
            row.bars = demands.map(|gate| gate.bar).collect();
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
                let of = if judged == 0 { "Nothing was judged." } else { "No score." };
                ("—".to_owned(), "", of.to_owned(), None)
            }
            MetricEstimate::Share(share, interval) => {
                let word = if number::is_whole(right) { "right" } else { "points" };
                let of = format!("{} of {} {word}", number::format_score_sum(right), format_count(judged));
                (format!("{:.1}", 100.0 * share), "%", of, interval.map(number::format_percent_interval))
            }
            MetricEstimate::Mean(mean, interval) => {
                let of =
                    measured_of(metric).unwrap_or_else(|| format!("mean score of {} judged", format_count(judged)));
                (number::format_score(mean), "", of, interval.map(number::format_score_interval))
            }
        };
        let is_counted =
            matches!(MetricEstimate::from_metric(metric), MetricEstimate::Share(..)) && number::is_whole(right);
        let mut pieces: Vec<(BarFill, &'static str, u64)> = if is_counted {
            let right = (right as u64).min(judged);
            vec![(BarFill::Right, "Right", right), (BarFill::Wrong, "Wrong", judged - right)]
        } else {
            vec![(BarFill::Plain, "Judged", judged)]
        };
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
            count: if unit == "%" { of.clone() } else { format!("{} judged", format_count(judged)) },
            of,
            interval,
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
