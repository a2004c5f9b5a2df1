//! The big numbers, and the chart of them. What could not be judged stands beside what was.

use gradus_eval::evaluator::SIMULATOR;
use gradus_eval::interval::Interval;
use gradus_eval::report::{GateResult, Metric, Summary};

use super::text;
use crate::output::html::charts::{Chart, Ends, Fill, IntervalBar, Part, interval_bars, strip};
use crate::output::html::number::{self, count};
use crate::output::html::svg::Svg;
use crate::output::measured_of;

/// More labels than this are summed up.
const MAX_LABELS: usize = 8;

pub(crate) struct Metrics {
    pub(crate) cards: Vec<Card>,
    pub(crate) chart: Chart,
    pub(crate) has_gates: bool,
}

pub(crate) struct Card {
    pub(crate) title: String,
    /// A metric that is made of others.
    pub(crate) is_together: bool,
    /// Who judged, where it is not the run's judge.
    pub(crate) judge: Option<String>,
    pub(crate) value: String,
    pub(crate) unit: &'static str,
    pub(crate) of: String,
    /// The same in short, for the table.
    pub(crate) count: String,
    pub(crate) interval: Option<String>,
    pub(crate) strip: Svg,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) labels: Vec<(String, String)>,
}

pub(crate) struct Piece {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) count: String,
}

impl Metrics {
    pub(crate) fn of(summary: &Summary, gates: &[GateResult]) -> Metrics {
        let together = [&summary.combined, &summary.trajectories_right];
        let all: Vec<(&Metric, bool)> = (summary.metrics.iter().map(|metric| (metric, false)))
            .chain(together.into_iter().flatten().map(|metric| (metric, true)))
            .collect();
        let rows: Vec<IntervalBar> = all.iter().map(|(metric, _)| row(metric, gates)).collect();
        Metrics {
            has_gates: rows.iter().any(|row| row.value.is_some() && !row.bars.is_empty()),
            chart: interval_bars(
                &rows,
                Ends::PERCENT,
                "score (% of what was judged)",
                "Scores with their 95 % intervals. The table has the same numbers.",
            ),
            cards: all.iter().map(|(metric, together)| Card::of(metric, *together, &summary.judge)).collect(),
        }
    }
}

/// A metric's numbers, and how they are to be read.
enum Reading {
    Nothing,
    /// From 0 to 1.
    Share(f64, Option<Interval>),
    /// A mean of scores on a scale of their own.
    Mean(f64, Option<Interval>),
}

impl Reading {
    fn of(metric: &Metric) -> Reading {
        let interval = number::finite_interval(metric.interval);
        let Some(value) = number::finite(metric.value).filter(|_| metric.denominator > 0) else {
            return Reading::Nothing;
        };
        if metric.is_share { Reading::Share(value, interval) } else { Reading::Mean(value, interval) }
    }
}

fn row(metric: &Metric, gates: &[GateResult]) -> IntervalBar {
    let demands = gates.iter().filter(|gate| gate.metric == metric.name);
    let mut row = IntervalBar { label: text::line(&metric.title), ..IntervalBar::default() };
    match Reading::of(metric) {
        Reading::Nothing => row.note = "nothing was judged".to_owned(),
        Reading::Mean(value, _) if metric.judge == SIMULATOR => row.note = number::score(value),
        Reading::Mean(value, _) => row.note = format!("mean score {}", number::score(value)),
        Reading::Share(value, interval) => {
            row.value = Some(value);
            row.interval = interval;
            row.note = number::percent(value);
            row.bars = demands.map(|gate| gate.bar).collect();
        }
    }
    row
}

impl Card {
    pub(crate) fn of(metric: &Metric, is_together: bool, run_judge: &str) -> Card {
        let judged = metric.denominator;
        let right = metric.numerator;
        let (value, unit, of, interval) = match Reading::of(metric) {
            Reading::Nothing => {
                let of = if judged == 0 { "Nothing was judged." } else { "No score." };
                ("—".to_owned(), "", of.to_owned(), None)
            }
            Reading::Share(share, interval) => {
                let word = if number::is_whole(right) { "right" } else { "points" };
                let of = format!("{} of {} {word}", number::sum(right), count(judged));
                (format!("{:.1}", 100.0 * share), "%", of, interval.map(number::percents))
            }
            Reading::Mean(mean, interval) => {
                let of =
                    measured_of(metric).unwrap_or_else(|| format!("mean score of {} judged", count(judged)));
                (number::score(mean), "", of, interval.map(number::scores))
            }
        };
        let is_counted = matches!(Reading::of(metric), Reading::Share(..)) && number::is_whole(right);
        let mut pieces: Vec<(Fill, &'static str, u64)> = if is_counted {
            let right = (right as u64).min(judged);
            vec![(Fill::Right, "Right", right), (Fill::Wrong, "Wrong", judged - right)]
        } else {
            vec![(Fill::Plain, "Judged", judged)]
        };
        pieces.push((Fill::Unjudged, "Could not be judged", metric.failed));
        pieces.push((Fill::NotApplicable, "Not applicable", metric.not_applicable));
        let parts: Vec<Part> =
            pieces.iter().map(|(fill, _, count)| Part { fill: *fill, value: *count as f64 }).collect();
        Card {
            title: text::line(&metric.title),
            is_together,
            judge: (metric.judge != run_judge && !metric.judge.is_empty()).then(|| text::line(&metric.judge)),
            value,
            unit,
            count: if unit == "%" { of.clone() } else { format!("{} judged", count(judged)) },
            of,
            interval,
            strip: strip(&parts, "How the questions ended; the list has the same numbers."),
            pieces: pieces
                .into_iter()
                .map(|(fill, name, number)| Piece { class: fill.class(), name, count: count(number) })
                .collect(),
            labels: labels(metric),
        }
    }
}

/// The labels that were given, the most frequent first.
fn labels(metric: &Metric) -> Vec<(String, String)> {
    let mut labels: Vec<(&String, &u64)> = metric.labels.iter().collect();
    labels.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rest: u64 = labels.iter().skip(MAX_LABELS).map(|(_, count)| **count).sum();
    let mut shown: Vec<(String, String)> = labels
        .into_iter()
        .take(MAX_LABELS)
        .map(|(label, number)| (text::line(label), count(*number)))
        .collect();
    if rest > 0 {
        shown.push(("other labels".to_owned(), count(rest)));
    }
    shown
}
