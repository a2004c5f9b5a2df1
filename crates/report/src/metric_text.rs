//! Metrics in words, the same in every format: how runs ended, what was flagged, and how much of it was judged.

use gradus_core::visible::printable_line;
use gradus_eval::evaluator::OUTCOME;
use gradus_eval::evaluator::SIMULATOR_JUDGE;
use gradus_eval::report::{CorrectedMetric, EvaluationSummary, GateResult, MetricCalibration, MetricResult};
use gradus_stats::calibration::ShareEstimator;

use crate::number_text::{format_amount, format_count, format_counted_noun};

/// Maximum number of listed labels of one metric; the rest is summed up.
const MAX_LABELS: usize = 8;

/// The metric of how runs ended, if the run has it.
pub fn find_outcome(summary: &EvaluationSummary) -> Option<&MetricResult> {
    summary.metrics.iter().find(|metric| metric.name == OUTCOME && metric.asked_count() > 0)
}

/// `96 answered, 3 gave up, 1 crashed`: the labels, most frequent first. Runs without one are `not known`.
pub fn format_outcome_counts(outcome: &MetricResult) -> String {
    let mut labels: Vec<(&String, u64)> = outcome.labels.iter().map(|(label, count)| (label, *count)).collect();
    labels.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let labelled: u64 = labels.iter().map(|(_, count)| count).sum();
    let other: u64 = labels.iter().skip(MAX_LABELS).map(|(_, count)| count).sum();
    let mut parts: Vec<String> = labels
        .into_iter()
        .take(MAX_LABELS)
        .map(|(label, count)| format!("{} {}", format_count(count), printable_line(&label.replace('_', " "))))
        .collect();
    for (count, word) in [(other, "with other labels"), (outcome.asked_count().saturating_sub(labelled), "not known")] {
        if count > 0 {
            parts.push(format!("{} {word}", format_count(count)));
        }
    }
    parts.join(", ")
}

/// `57.1 % of 24, interval 38.8 to 73.9 %`: the value of a gate with its population. Empty without a value.
pub fn format_gate_value(gate: &GateResult) -> String {
    let Some(value) = gate.value else { return String::new() };
    let metric = gate.metric.split('{').next().unwrap_or_default();
    let unit = if matches!(metric, "cost" | "agent_cost") { "$" } else { "" };
    let decimals = if unit.is_empty() { 2 } else { 4 };
    let amount = |number: f64| format!("{unit}{}", format_amount(number, decimals));
    let interval = gate.interval.filter(|interval| interval.low.is_finite() && interval.high.is_finite());
    let (value, interval) = match gate.is_share {
        true => (
            format!("{:.1} %", 100.0 * value),
            interval.map(|known| format!("{:.1} to {:.1} %", 100.0 * known.low, 100.0 * known.high)),
        ),
        false => (amount(value), interval.map(|known| format!("{} to {}", amount(known.low), amount(known.high)))),
    };
    match interval {
        Some(interval) => format!("{value} of {}, interval {interval}", format_count(gate.count)),
        None => value,
    }
}

/// `4 of 100 trajectories, 9 of 340 steps`. `None` if no question was asked of any trajectory.
pub fn format_flagged_counts(summary: &EvaluationSummary) -> Option<String> {
    let is_asked = summary.metrics.iter().any(|metric| metric.judge != SIMULATOR_JUDGE && metric.asked_count() > 0);
    is_asked.then(|| {
        format!(
            "{} of {}, {} of {}",
            format_count(summary.flagged.trajectories),
            format_counted_noun(summary.trajectories, "trajectory", "trajectories"),
            format_count(summary.flagged.steps),
            format_counted_noun(summary.steps, "step", "steps")
        )
    })
}

/// The value of a metric by rules that mostly notice mistakes: `no rule fired in 40 steps`, `4 of 340 steps flagged,
/// none confirmed right, 336 not judged`, `60 of 60 steps confirmed right by rules, none flagged`. A share of right
/// answers would claim more than such rules can know. `None` for other metrics.
pub fn format_rule_flags(metric: &MetricResult) -> Option<String> {
    if !metric.is_from_flagging_rules() {
        return None;
    }
    let flagged = metric.wrong_count()?;
    let confirmed = metric.denominator.saturating_sub(flagged);
    // A combined metric may abstain although a rule fired for one of its parts.
    let is_combined = matches!(metric.name.as_str(), "combined" | "trajectories_right");
    if metric.denominator == 0 && (is_combined || metric.abstained == 0) {
        return None;
    }
    let (one, many) = if metric.of_steps { ("step", "steps") } else { ("trajectory", "trajectories") };
    let population = format_counted_noun(metric.denominator + metric.abstained, one, many);
    let mut parts = match (confirmed, flagged) {
        (0, 0) => return Some(format!("no rule fired in {population}")),
        (0, _) => vec![format!("{} of {population} flagged", format_count(flagged)), "none confirmed right".to_owned()],
        (_, 0) => {
            vec![
                format!("{} of {population} confirmed right by rules", format_count(confirmed)),
                "none flagged".to_owned(),
            ]
        }
        _ => vec![
            format!("{} of {population} confirmed right by rules", format_count(confirmed)),
            format!("{} flagged", format_count(flagged)),
        ],
    };
    if metric.abstained > 0 {
        parts.push(format!("{} not judged", format_count(metric.abstained)));
    }
    Some(parts.join(", "))
}

/// What [`format_rule_flags`] leaves out: `2 failed, 18 do not apply`. `None` if there is nothing.
pub fn format_unjudged_counts(metric: &MetricResult) -> Option<String> {
    let does_not_apply = if metric.not_applicable == 1 { "does not apply" } else { "do not apply" };
    let parts: Vec<String> = [(metric.failed, "failed"), (metric.not_applicable, does_not_apply)]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", format_count(count)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `judged 12 of 340 (310 cannot judge, 2 failed, 16 do not apply)`. `None` for measurements, which no judge made.
pub fn format_coverage(metric: &MetricResult) -> Option<String> {
    let asked = metric.asked_count();
    if asked == 0 || (metric.judge == SIMULATOR_JUDGE && asked == metric.denominator) {
        return None;
    }
    let does_not_apply = if metric.not_applicable == 1 { "does not apply" } else { "do not apply" };
    let unscored = metric.unscored_count();
    let open: Vec<String> = [
        (unscored, "without a score"),
        (metric.abstained - unscored, "cannot judge"),
        (metric.failed, "failed"),
        (metric.not_applicable, does_not_apply),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| format!("{} {word}", format_count(count)))
    .collect();
    let judged = format!("judged {} of {}", format_count(metric.denominator), format_count(asked));
    Some(if open.is_empty() { judged } else { format!("{judged} ({})", open.join(", ")) })
}

/// `uncalibrated`, `not corrected: it expired at ...`, or `corrected 51.2 %, 95 % interval 36.0 to 66.1 % (by 50 labels of
/// 41 trajectories, post-stratified)`. `None` for numbers that no model judged.
pub fn format_calibration(metric: &MetricResult) -> Option<String> {
    metric.calibration.as_ref().map(|calibration| describe_calibration(calibration, metric.is_share))
}

/// Like [`format_calibration`], for a number that is not a metric of a run.
pub fn describe_calibration(calibration: &MetricCalibration, is_share: bool) -> String {
    match calibration {
        MetricCalibration::Uncalibrated => "uncalibrated".to_owned(),
        MetricCalibration::NotApplied { reason } => format!("uncalibrated: {}", printable_line(reason)),
        MetricCalibration::Corrected(corrected) => {
            let value = format_corrected_value(is_share, corrected);
            let (low, high) = (corrected.interval.low, corrected.interval.high);
            let interval = match is_share {
                true => format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high),
                false => format!("{low:.2} to {high:.2}"),
            };
            let labels = format_counted_noun(corrected.labelled_cases, "label", "labels");
            let of = format_counted_noun(corrected.labelled_trajectories, "trajectory", "trajectories");
            let method = describe_correction(corrected.estimator);
            format!("corrected {value}, 95 % interval {interval} ({method}, {labels} of {of})")
        }
    }
}

/// `51.2 %`, or a mean on the scale of the rubric.
pub fn format_corrected_value(is_share: bool, corrected: &CorrectedMetric) -> String {
    if is_share { format!("{:.1} %", 100.0 * corrected.value) } else { format!("{:.2}", corrected.value) }
}

/// The name of the estimator.
pub fn describe_correction(method: ShareEstimator) -> &'static str {
    match method {
        ShareEstimator::PostStratified => "post-stratified",
        ShareEstimator::RoganGladen => "Rogan-Gladen",
        ShareEstimator::LabelsAlone => "labels alone, which give the narrower interval",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(judge: &str, right: u64, judged: u64, abstained: u64) -> MetricResult {
        MetricResult {
            name: "thought_to_tool".to_owned(),
            judge: judge.to_owned(),
            of_steps: true,
            is_share: true,
            numerator: right as f64,
            denominator: judged,
            abstained,
            not_applicable: 18,
            ..MetricResult::default()
        }
    }

    #[test]
    fn rules_that_found_nothing_are_not_called_right() {
        let flags = |metric: MetricResult| format_rule_flags(&metric);
        assert_eq!(flags(metric("offline", 0, 0, 310)).as_deref(), Some("no rule fired in 310 steps"));
        let text = |right, judged, abstained| flags(metric("offline", right, judged, abstained)).unwrap_or_default();
        assert_eq!(text(60, 60, 0), "60 of 60 steps confirmed right by rules, none flagged");
        assert_eq!(text(30, 30, 10), "30 of 40 steps confirmed right by rules, none flagged, 10 not judged");
        assert_eq!(text(0, 12, 310), "12 of 322 steps flagged, none confirmed right, 310 not judged");
        assert_eq!(text(8, 12, 310), "8 of 322 steps confirmed right by rules, 4 flagged, 310 not judged");
        assert_eq!(flags(metric("openai/gpt-4.1-mini", 12, 12, 0)), None);
        assert_eq!(flags(MetricResult { name: "call_validity".to_owned(), ..metric("rules", 12, 12, 0) }), None);
        assert_eq!(flags(metric("offline", 0, 0, 0)), None);
        let combined =
            |judged, abstained| MetricResult { name: "combined".to_owned(), ..metric("offline", 0, judged, abstained) };
        assert_eq!(flags(combined(0, 9)), None, "a part of it may be flagged");
        assert_eq!(format_unjudged_counts(&metric("offline", 0, 0, 310)).as_deref(), Some("18 do not apply"));
    }

    #[test]
    fn coverage_tells_all_kinds_apart() {
        let covered = |metric: MetricResult| format_coverage(&metric).unwrap_or_default();
        assert_eq!(covered(metric("offline", 8, 12, 310)), "judged 12 of 340 (310 cannot judge, 18 do not apply)");
        let one = MetricResult { failed: 2, not_applicable: 1, ..metric("offline", 8, 1_200, 0) };
        assert_eq!(covered(one), "judged 1,200 of 1,203 (2 failed, 1 does not apply)");
        let all = MetricResult { not_applicable: 0, ..metric("offline", 8, 12, 0) };
        assert_eq!(covered(all.clone()), "judged 12 of 12");
        assert_eq!(covered(MetricResult { judge: SIMULATOR_JUDGE.to_owned(), ..all }), "");
    }

    #[test]
    fn calibrations_are_stated_in_words() {
        use gradus_stats::interval::ConfidenceInterval;
        let text = |calibration| {
            format_calibration(&MetricResult { calibration, ..metric("openai:a", 8, 12, 0) }).unwrap_or_default()
        };
        assert_eq!(text(None), "");
        assert_eq!(text(Some(MetricCalibration::Uncalibrated)), "uncalibrated");
        let reason = "it expired at 2026-01-01T00:00:00Z".to_owned();
        assert_eq!(
            text(Some(MetricCalibration::NotApplied { reason })),
            "uncalibrated: it expired at 2026-01-01T00:00:00Z"
        );
        let corrected = CorrectedMetric {
            value: 0.512,
            interval: ConfidenceInterval { low: 0.36, high: 0.661 },
            estimator: ShareEstimator::PostStratified,
            labelled_cases: 50,
            labelled_trajectories: 1,
        };
        assert_eq!(
            text(Some(MetricCalibration::Corrected(corrected))),
            "corrected 51.2 %, 95 % interval 36.0 to 66.1 % (post-stratified, 50 labels of 1 trajectory)"
        );
    }

    #[test]
    fn endings_are_counted_by_their_labels() {
        let labels = [("answered", 96), ("gave_up", 3), ("crashed", 1)];
        let outcome = MetricResult {
            name: OUTCOME.to_owned(),
            denominator: 97,
            abstained: 5,
            labels: labels.map(|(label, count)| (label.to_owned(), count)).into(),
            ..MetricResult::default()
        };
        assert_eq!(format_outcome_counts(&outcome), "96 answered, 3 gave up, 1 crashed, 2 not known");
        let covered = format_coverage(&outcome);
        assert_eq!(covered.as_deref(), Some("judged 97 of 102 (3 without a score, 2 cannot judge)"));
    }
}
