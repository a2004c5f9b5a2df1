//! How runs ended, by the labels of the evaluator `outcome`, with links to the runs that ended badly.

use gradus_eval::evaluator::{Evaluator, OUTCOME};
use gradus_eval::report::{EvaluationSummary, FindingVerdict, MetricResult};

use super::failure_groups::shorten_request;
use super::text;
use crate::html::number;
use crate::metric_text::find_outcome;
use crate::number_text::{format_count, format_counted_noun};

/// Units of the width of the bar.
const BAR_WIDTH: f64 = 1_000.0;
/// Maximum number of endings that are listed; the rest is summed up.
const MAX_ENDINGS: usize = 8;
/// Maximum number of linked runs of one ending.
const MAX_LINKED_RUNS: usize = 3;

/// The endings as a bar and as a list, good ones first.
#[derive(Debug)]
pub struct OutcomeView {
    pub endings: Vec<EndingView>,
    /// The base of the shares, and the score of the evaluator.
    pub about: String,
}

/// Runs that ended in the same way.
#[derive(Debug)]
pub struct EndingView {
    pub label: String,
    pub count: String,
    pub share: String,
    /// `right`, `wrong` or `plain`: a label without a score is neither good nor bad.
    pub class: &'static str,
    /// Position and width in the bar.
    pub x: String,
    pub width: String,
    /// The first runs among the findings.
    pub runs: Vec<EndedRunView>,
    /// How many runs are not linked, in words.
    pub omitted: Option<String>,
}

/// A run that ended badly.
#[derive(Debug)]
pub struct EndedRunView {
    pub request: String,
    /// Its place in `EvaluationSummary::findings`.
    pub finding: usize,
    /// The finding further down in the report, or the page of the run on the server.
    pub href: String,
}

impl OutcomeView {
    /// `None` if no run was judged for it.
    pub(super) fn from_summary(summary: &EvaluationSummary) -> Option<OutcomeView> {
        let outcome = find_outcome(summary)?;
        let asked = outcome.asked_count();
        let mut counted = list_endings(summary, outcome);
        counted.sort_by_key(|one| one.class == "wrong");
        let mut begins = 0.0;
        let endings = counted.into_iter().map(|one| {
            let width = BAR_WIDTH * one.count as f64 / asked as f64;
            let x = begins;
            begins += width;
            let linked = one.runs.len() as u64;
            EndingView {
                label: one.label,
                count: format_count(one.count),
                share: number::format_percent(one.count as f64 / asked as f64),
                class: one.class,
                x: format!("{x:.1}"),
                width: format!("{width:.1}"),
                omitted: (one.count > linked).then(|| format_count(one.count - linked)),
                runs: one.runs,
            }
        });
        Some(OutcomeView { endings: endings.collect(), about: describe_base(outcome) })
    }
}

struct CountedEnding {
    label: String,
    count: u64,
    class: &'static str,
    runs: Vec<EndedRunView>,
}

/// Labels with their counts, most frequent first, then what is left.
fn list_endings(summary: &EvaluationSummary, outcome: &MetricResult) -> Vec<CountedEnding> {
    let known = Evaluator::outcome().labels;
    let best = known.scale().best;
    let mut labels: Vec<(&str, u64)> = outcome.labels.iter().map(|(label, count)| (label.as_str(), *count)).collect();
    labels.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let labelled: u64 = labels.iter().map(|(_, count)| count).sum();
    let other: u64 = labels.iter().skip(MAX_ENDINGS).map(|(_, count)| count).sum();
    labels.truncate(MAX_ENDINGS);
    let ending = |(label, count): (&str, u64)| {
        let runs = list_runs(summary, label);
        CountedEnding {
            // A finding is bad by the scale of the run, which may be that of a rubric.
            class: match known.score(label) {
                _ if !runs.is_empty() => "wrong",
                Some(score) if score < best => "wrong",
                Some(_) => "right",
                None => "plain",
            },
            label: text::format_display_line(&label.replace('_', " ")),
            count,
            runs,
        }
    };
    let mut all: Vec<CountedEnding> = labels.into_iter().map(ending).collect();
    for (count, label) in [(other, "with other labels"), (outcome.asked_count().saturating_sub(labelled), "not known")]
    {
        if count > 0 {
            all.push(CountedEnding { label: label.to_owned(), count, class: "plain", runs: Vec::new() });
        }
    }
    all
}

/// The first runs among the findings with this label.
fn list_runs(summary: &EvaluationSummary, label: &str) -> Vec<EndedRunView> {
    let found = summary.findings.iter().enumerate().filter(|(_, found)| {
        let is_ending = |verdict: &FindingVerdict| verdict.evaluator == OUTCOME && verdict.label == label;
        found.step_index.is_none() && found.verdicts.iter().any(is_ending)
    });
    found
        .take(MAX_LINKED_RUNS)
        .map(|(finding, found)| EndedRunView {
            request: match found.query.as_deref() {
                Some(query) if !query.trim().is_empty() => shorten_request(query),
                _ => text::format_display_line(&found.trajectory_id),
            },
            finding,
            href: format!("#finding-{}", finding + 1),
        })
        .collect()
}

/// `Of 40 runs. 34 of 37 with a score ended well: 91.9 %, 95 % interval 78.7 – 97.2 %.`
fn describe_base(outcome: &MetricResult) -> String {
    let base = format!("Of {}", format_counted_noun(outcome.asked_count(), "run", "runs"));
    let Some(value) = number::filter_finite(outcome.value).filter(|_| outcome.is_share && outcome.denominator > 0)
    else {
        return format!("{base}.");
    };
    let interval = number::finite_interval(outcome.interval)
        .map_or_else(String::new, |interval| format!(", 95 % interval {}", number::format_percent_interval(interval)));
    let (right, scored) = (number::format_score_sum(outcome.numerator), format_count(outcome.denominator));
    format!("{base}. {right} of {scored} with a score ended well: {}{interval}.", number::format_percent(value))
}
