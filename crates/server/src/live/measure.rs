//! Measures the metric of an alert condition from the store, and finds examples for the notice.

use std::cmp::Reverse;

use gradus_store::{
    BUCKET_NS, ExampleRow, MetricFilter, MetricGroup, ScoreMoments, Store, StoreError, TrajectoryWindow,
};

use crate::alert::{
    AlertCondition, AlertMeasurement, AlertMetric, AlertRule, AlertThreshold, SampleUnit, ThresholdComparison,
};
use crate::judge_anchors::load_anchor_sets;
use crate::project_pattern;

/// A tool is new for `unseen_tool` if its first use lies within this time: ten minutes.
pub(crate) const NEW_TOOL_PERIOD_NS: i64 = 600 * 1_000_000_000;
/// Maximum number of durations that a percentile is computed from, to bound its memory.
const MAX_DURATIONS: usize = 200_000;

/// Builds the time window of a rule for each project that its pattern matches. One window without a project stands
/// for all projects.
pub(super) fn build_rule_windows(
    store: &Store,
    rule: &AlertRule,
    now_ns: i64,
) -> Result<Vec<TrajectoryWindow>, StoreError> {
    let window_ns = i64::try_from(rule.condition.window.as_nanos()).unwrap_or(i64::MAX);
    let projects = match rule.project.as_deref() {
        pattern if project_pattern::matches_every_project(pattern) => vec![None],
        Some(pattern) if project_pattern::may_match_several(pattern) => {
            let names = store.project_names()?;
            names.into_iter().filter(|name| project_pattern::is_project_match(pattern, name)).map(Some).collect()
        }
        name => vec![name.map(str::to_owned)],
    };
    let window = |project| TrajectoryWindow {
        project,
        from_ns: now_ns.saturating_sub(window_ns),
        // Trajectories count by their start, by the sender's clock. A minute ahead tolerates small clock errors.
        to_ns: now_ns.saturating_add(60_000_000_000),
    };
    Ok(projects.into_iter().map(window).collect())
}

/// Measures the current value of the metric; `None` if there is no data for it. Several projects are measured as one
/// population.
pub(super) fn measure_condition(
    store: &Store,
    condition: &AlertCondition,
    windows: &[TrajectoryWindow],
    now_ns: i64,
) -> Result<Option<AlertMeasurement>, StoreError> {
    let of = |value: f64, count: u64| Some(AlertMeasurement { value, count, ..AlertMeasurement::default() });
    Ok(match &condition.subject {
        AlertMetric::Evaluator { name, best, gives_only_flags, .. } => {
            let sums = sum_score_moments(store, windows, Some(name))?;
            let unflagged = if *gives_only_flags { sums.abstained } else { 0 };
            let cases = sums.scored + unflagged;
            // The minimum sample may be given in steps or in trajectories.
            let count = match condition.min_sample.and_then(|min_sample| min_sample.unit) {
                Some(SampleUnit::Trajectories) if *gives_only_flags => sums.trajectories.min(cases),
                Some(SampleUnit::Trajectories) => sums.scored_trajectories,
                _ => cases,
            };
            if cases > 0 { of((sums.sum + best * unflagged as f64) / cases as f64, count as u64) } else { None }
        }
        AlertMetric::FailureRate => {
            let sums = sum_score_moments(store, windows, None)?;
            let questions = sums.failed + sums.scored;
            if questions > 0 { of(sums.failed as f64 / questions as f64, questions as u64) } else { None }
        }
        AlertMetric::ErrorRate => {
            let (mut count, mut errors) = (0, 0);
            for window in windows {
                let (more, with_error) = store.error_counts(window)?;
                (count, errors) = (count + more, errors + with_error);
            }
            if count > 0 { of(errors as f64 / count as f64, count) } else { None }
        }
        AlertMetric::CostPerHour => cost_per_hour(store, windows, now_ns)?.and_then(|value| of(value, 0)),
        AlertMetric::Latency(percentile) => {
            let mut durations = Vec::new();
            for window in windows {
                durations.extend(store.durations_ns(window)?);
                if durations.len() > MAX_DURATIONS {
                    break;
                }
            }
            if durations.is_empty() {
                return Ok(None);
            }
            // Nearest-rank percentile: the smallest duration that is at least as large as the given share of all.
            let at = (durations.len() as f64 * percentile.as_fraction()).ceil() as usize;
            let at = at.clamp(1, durations.len()) - 1;
            let (_, value, _) = durations.select_nth_unstable(at);
            let seconds = *value as f64 / 1e9;
            of(seconds, durations.len() as u64)
        }
        AlertMetric::UnseenTool => {
            let mut measured = AlertMeasurement::default();
            for window in windows {
                let (unseen, steps) = store.newly_used_tools(window, NEW_TOOL_PERIOD_NS)?;
                measured.unseen.extend(unseen);
                measured.count += steps;
            }
            // Several projects may have the same new tool.
            measured.unseen.sort_unstable();
            measured.unseen.dedup();
            measured.value = measured.unseen.len() as f64;
            Some(measured)
        }
        AlertMetric::JudgeDrift => measure_judge_drift(store, condition, now_ns)?,
    })
}

/// Lists the judges that drifted, of those that were asked within the window. Anchor sets of removed judges are not
/// asked, so they drop out of the window.
fn measure_judge_drift(
    store: &Store,
    condition: &AlertCondition,
    now_ns: i64,
) -> Result<Option<AlertMeasurement>, StoreError> {
    let window_ns = i64::try_from(condition.window.as_nanos()).unwrap_or(i64::MAX);
    let mut measured = AlertMeasurement::default();
    for known in load_anchor_sets(store)? {
        let Some(last) = known.set.last.filter(|last| last.at_ns >= now_ns.saturating_sub(window_ns)) else { continue };
        measured.count += last.asked;
        if known.set.has_drifted() {
            measured.unseen.push(format!("{} by {}: {}", known.evaluator, known.judge, known.set.describe()));
        }
    }
    measured.value = measured.unseen.len() as f64;
    Ok((measured.count > 0).then_some(measured))
}

/// Sums the rollups of all windows, of one evaluator or of all.
fn sum_score_moments(
    store: &Store,
    windows: &[TrajectoryWindow],
    evaluator: Option<&str>,
) -> Result<ScoreMoments, StoreError> {
    let mut sums = ScoreMoments::default();
    for window in windows {
        let filter = MetricFilter {
            project: window.project.clone(),
            evaluator: evaluator.map(str::to_owned),
            from_ns: Some(window.from_ns),
            // Without an end, verdicts of a sender whose clock is ahead would be in every window until that time.
            to_ns: Some(window.to_ns),
            ..MetricFilter::default()
        };
        for row in store.metrics(&filter, MetricGroup::All)? {
            sums += row.moments;
        }
    }
    Ok(sums)
}

/// Computes dollars per hour. `None` without a window: no project matches the pattern yet.
fn cost_per_hour(store: &Store, windows: &[TrajectoryWindow], now_ns: i64) -> Result<Option<f64>, StoreError> {
    let Some(first) = windows.first() else { return Ok(None) };
    let mut spent = 0.0;
    for window in windows {
        spent += store.load_spend_since(window.from_ns, None, window.project.as_deref())?.cost_usd;
    }
    // Spending is stored in buckets, so the measured time begins where the first bucket does.
    let from_ns = first.from_ns.div_euclid(BUCKET_NS) * BUCKET_NS;
    Ok(Some(spent / (now_ns.saturating_sub(from_ns).max(1) as f64 / 3.6e12)))
}

/// Loads examples for a notice: the worst verdicts, the latest errors, or the longest trajectories, depending on the
/// metric. At most `most`.
pub(super) fn load_alert_examples(
    store: &Store,
    condition: &AlertCondition,
    unseen: &[String],
    windows: &[TrajectoryWindow],
    most: usize,
) -> Result<Vec<ExampleRow>, StoreError> {
    let mut rows = Vec::new();
    for window in windows {
        rows.extend(match &condition.subject {
            AlertMetric::Evaluator { name, .. } => store.worst_verdicts(window, Some(name), false, most)?,
            AlertMetric::FailureRate => store.worst_verdicts(window, None, true, most)?,
            AlertMetric::ErrorRate => store.worst_trajectories(window, false, most)?,
            AlertMetric::Latency(_) => store.worst_trajectories(window, true, most)?,
            AlertMetric::UnseenTool => store.find_tool_uses(window, unseen, most)?,
            AlertMetric::CostPerHour | AlertMetric::JudgeDrift => Vec::new(),
        });
    }
    // If the condition fires below a threshold, examples above it would mislead, unless there are no others.
    if let (
        AlertMetric::Evaluator { .. },
        Some(AlertThreshold { comparison: ThresholdComparison::Less | ThresholdComparison::AtMost, threshold }),
    ) = (&condition.subject, condition.bar)
    {
        let is_low = |row: &ExampleRow| row.score.is_none_or(|score| score < threshold);
        if rows.iter().any(is_low) {
            rows.retain(is_low);
        }
    }
    // Each window is sorted already. Here they are merged.
    match &condition.subject {
        AlertMetric::Latency(_) => rows.sort_by_key(|row| Reverse(row.duration_ns)),
        _ => rows.sort_by(|a, b| {
            let score = |row: &ExampleRow| row.score.unwrap_or(0.0);
            score(a).total_cmp(&score(b)).then(b.start_ns.cmp(&a.start_ns))
        }),
    }
    rows.truncate(most);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use gradus_core::span::{SpanId, TraceId};
    use gradus_store::{
        AssembledTraceGroup, BlockSignal, OutcomeRecord, RecordedKind, SpanKey, StoreOptions, TraceChunk,
        TrajectoryRecord,
    };

    use super::*;
    use crate::alert::{AlertSection, AlertableEvaluator};
    use crate::clock::now_ns;

    /// A trajectory for each project, with so many steps that were scored, and one that does not apply.
    fn store(projects: &[(&str, u32)]) -> (tempfile::TempDir, Store) {
        store_at(projects, now_ns() - 1_000_000_000)
    }

    fn store_at(projects: &[(&str, u32)], start_ns: i64) -> (tempfile::TempDir, Store) {
        store_with(projects, start_ns, outcome)
    }

    fn outcome(step: u32) -> OutcomeRecord {
        OutcomeRecord {
            evaluator: "fit".to_owned(),
            step: Some(step),
            kind: if step > 0 { RecordedKind::Scored } else { RecordedKind::NotApplicable },
            label: None,
            score: (step > 0).then_some(f64::from(step)),
            is_wrong: false,
            tool: String::new(),
            run: String::new(),
            line: "{}".to_owned(),
            failure_group: None,
        }
    }

    fn store_with(
        projects: &[(&str, u32)],
        start_ns: i64,
        outcome: impl Fn(u32) -> OutcomeRecord,
    ) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        for ((project, steps), trace) in projects.iter().zip(1..) {
            let mut chunk = TraceChunk::new(TraceId(trace), (*project).into(), BlockSignal::Spans, b"");
            chunk.spans.push(SpanKey { span_id: SpanId(1), digest: 1, has_ended: true, is_error: false });
            store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
            let record = TrajectoryRecord {
                trajectory_id: (*project).to_owned(),
                trace_id: TraceId(trace),
                start_ns: start_ns + trace as i64,
                end_ns: start_ns + 1_000_000_000,
                steps: *steps,
                tools: vec!["look".to_owned()],
                outcomes: (0..=*steps).map(&outcome).collect(),
                ..TrajectoryRecord::default()
            };
            let trace_group = store.trace(TraceId(trace)).unwrap().unwrap().trace_group;
            let trace_groups = vec![AssembledTraceGroup { trace_group, due_ns: None, records: vec![record] }];
            store.store_assembled_groups(trace_groups, 2).unwrap().wait().unwrap();
        }
        (folder, store)
    }

    fn look(store: &Store, project: Option<&str>, when: &str) -> (Option<(f64, u64)>, Vec<String>) {
        let section = AlertSection {
            name: "n".to_owned(),
            project: project.map(str::to_owned),
            when: when.to_owned(),
            ..AlertSection::default()
        };
        let rule = AlertRule::from_section(
            section,
            &[AlertableEvaluator { name: "fit", worst: 0.0, best: 5.0, gives_only_flags: false }],
        )
        .unwrap();
        let windows = build_rule_windows(store, &rule, now_ns()).unwrap();
        let measured = measure_condition(store, &rule.condition, &windows, now_ns()).unwrap();
        let examples = load_alert_examples(store, &rule.condition, &[], &windows, 3).unwrap();
        let examples = examples.into_iter().map(|row| row.trajectory_id).collect();
        (measured.map(|measured| (measured.value, measured.count)), examples)
    }

    #[test]
    fn a_star_takes_in_all_projects_that_begin_so() {
        let (_folder, store) = store(&[("shop-a", 3), ("other", 5), ("shop-b", 1), ("shop", 2)]);
        let of = |project| look(&store, project, "fit < 0.5 over 1h").0;
        assert_eq!(of(Some("shop-*")), Some((7.0 / 4.0, 4)));
        assert_eq!((of(Some("shop")), of(Some("nobody*"))), (Some((1.5, 2)), None));
        assert_eq!((of(Some("*")), of(None)), (Some((25.0 / 11.0, 11)), Some((25.0 / 11.0, 11))));
        // The worst of all of them, not of the first.
        assert_eq!(look(&store, Some("shop-*"), "fit < 0.5 over 1h").1, ["shop-b", "shop-a", "shop-a"]);
        assert_eq!(look(&store, Some("shop-*"), "error_rate > 0.5 over 1h").0, Some((0.0, 2)));
        assert_eq!(look(&store, Some("shop-*"), "latency_p50 > 9s over 1h").0.unwrap().1, 2);
    }

    #[test]
    fn flags_are_a_share_of_what_was_judged() {
        // Each of the first steps is flagged; of the others no rule fired, and one question does not apply.
        let (_folder, store) = store_with(&[("a", 3), ("b", 7)], now_ns() - 1_000_000_000, |step| OutcomeRecord {
            kind: match step {
                0 => RecordedKind::NotApplicable,
                1 => RecordedKind::Scored,
                _ => RecordedKind::Abstained,
            },
            score: (step == 1).then_some(0.0),
            is_wrong: step == 1,
            ..outcome(step)
        });
        let measure = |gives_only_flags: bool, unit: &str| {
            let evaluator = AlertableEvaluator { name: "fit", worst: 0.0, best: 1.0, gives_only_flags };
            let when = format!("fit < 0.5 over 1h, at least 3 {unit}");
            let section = AlertSection { name: "n".to_owned(), when, ..AlertSection::default() };
            let rule = AlertRule::from_section(section, &[evaluator]).unwrap();
            let windows = build_rule_windows(&store, &rule, now_ns()).unwrap();
            let measured = measure_condition(&store, &rule.condition, &windows, now_ns()).unwrap().unwrap();
            let undecided = gives_only_flags.then_some(1.0);
            let (scores, _) = store.scores_after("fit", undecided, &windows, 0, now_ns()).unwrap();
            (measured.value, measured.count, scores)
        };
        // The mean of what was decided says nothing: it is 0 from the first flag on.
        assert_eq!(measure(false, "steps"), (0.0, 2, vec![0.0, 0.0]));
        assert_eq!(measure(true, "steps"), (0.8, 10, vec![2.0 / 3.0, 6.0 / 7.0]));
        assert_eq!(measure(true, "trajectories").1, 2);
    }

    #[test]
    fn a_clock_that_is_ahead_gives_no_alarm() {
        let century = 100 * 365 * 86_400_000_000_000;
        let (_folder, store) = store_at(&[("shop", 3)], now_ns() + century / 2);
        assert_eq!(look(&store, None, "fit < 4 over 1h").0, None);
        assert_eq!(look(&store, None, "failure_rate > 0.5 over 1h").0, None);
        assert_eq!(look(&store, None, "error_rate > 0.5 over 1h").0, None);
    }

    #[test]
    fn what_is_counted_is_what_was_asked_for() {
        // The last has no score: it is no data.
        let (_folder, store) = store(&[("a", 3), ("b", 4), ("c", 0)]);
        let count = |when: &str| look(&store, None, when).0.unwrap().1;
        assert_eq!(count("fit < 0.5 over 1h, at least 3 steps"), 7);
        assert_eq!(count("fit < 0.5 over 1h, at least 3 trajectories"), 2);
        assert_eq!(count("fit < 0.5 over 1h, at least 3"), 7);
        assert_eq!(count("unseen_tool over 7d, at least 3 steps"), 7);
        assert_eq!(count("failure_rate > 0.5 over 1h"), 7);
    }
}
