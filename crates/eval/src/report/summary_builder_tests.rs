//! Summaries of small runs: the outcome first, abstentions apart, and what is flagged.

use gradus_core::trajectory::{Trajectory, TrajectoryStep};

use super::summary::{EvaluationSummary, FlaggedCounts};
use super::summary_builder::SummaryBuilder;
use crate::evaluator::{
    OFFLINE_JUDGE, OUTCOME, QUERY_TO_THOUGHT, REQUEST_TO_TOOL, SEQUENCE_OPTIMALITY, SIMULATOR_JUDGE, THOUGHT_TO_TOOL,
};
use crate::outcome::{OutcomeKind, OutcomeLine};
use crate::run::{EvaluatorRecord, RunManifest, RunState};

fn manifest() -> RunManifest {
    let evaluator = |name: &str, of_steps| EvaluatorRecord {
        name: name.to_owned(),
        title: name.to_owned(),
        of_steps,
        labels: vec![("good".to_owned(), 1.0), ("bad".to_owned(), 0.0)],
        rubric_hash: "h".to_owned(),
        phoenix_name: name.to_owned(),
        judge: OFFLINE_JUDGE.to_owned(),
    };
    RunManifest {
        run_id: "r".to_owned(),
        fingerprint: "f".to_owned(),
        state: RunState::Finished,
        name: None,
        tags: Default::default(),
        commit: None,
        branch: None,
        stopped_because: None,
        started: "2026-03-02T09:41:07Z".to_owned(),
        ended: None,
        sources: Vec::new(),
        judge: OFFLINE_JUDGE.to_owned(),
        endpoint: None,
        panel: None,
        models: Vec::new(),
        evaluators: vec![
            evaluator(THOUGHT_TO_TOOL, true),
            evaluator(QUERY_TO_THOUGHT, true),
            evaluator(REQUEST_TO_TOOL, true),
            evaluator(SEQUENCE_OPTIMALITY, false),
            evaluator(OUTCOME, false),
        ],
        priced: false,
        gates: Vec::new(),
        early_gates: Vec::new(),
        prices: Default::default(),
        gradus_version: "0.0.0".to_owned(),
    }
}

/// How a question ends: `+` and `-` are scored, `0` is a label without a score, `?` abstains, `!` fails, `.` does not
/// apply.
fn line(evaluator: &str, step_index: Option<u32>, sign: char) -> OutcomeLine {
    let (outcome, score) = match sign {
        '+' => (OutcomeKind::Scored, Some(1.0)),
        '-' => (OutcomeKind::Scored, Some(0.0)),
        '0' => (OutcomeKind::Scored, None),
        '?' => (OutcomeKind::Abstained, None),
        '!' => (OutcomeKind::Failed, None),
        _ => (OutcomeKind::NotApplicable, None),
    };
    OutcomeLine {
        run_id: "r".into(),
        trajectory_id: "t".into(),
        step_index,
        evaluator: evaluator.into(),
        outcome,
        label: (outcome == OutcomeKind::Scored).then(|| sign.to_string()),
        score,
        label_probability: None,
        explanation: None,
        evidence: Vec::new(),
        rule: None,
        remarks: Vec::new(),
        reason: (outcome != OutcomeKind::Scored).then(|| "because".to_owned()),
        judge: OFFLINE_JUDGE.into(),
        rubric_hash: "h".into(),
        tokens: None,
        cost_usd: None,
        cached: false,
        calls: 0,
        shortened: Vec::new(),
        votes: Vec::new(),
        vote_count: None,
        disagreement: None,
        escalated: None,
        first_label: None,
        answered_by: None,
    }
}

/// Summarises trajectories. Each has the signs of `thought_to_tool`, `query_to_thought` and `request_to_tool` for each
/// step, then those of `sequence_optimality` and `outcome`.
fn summarize(trajectories: &[(&[&str], &str)]) -> EvaluationSummary {
    let record = manifest();
    let mut builder = SummaryBuilder::new(&record);
    for (steps, whole) in trajectories {
        let indices = 1..=steps.len() as u32;
        let step = |index| TrajectoryStep { index, tool: "look".to_owned(), ..TrajectoryStep::default() };
        let trajectory = Trajectory { steps: indices.clone().map(step).collect(), ..Trajectory::default() };
        let of_steps = indices.zip(*steps).flat_map(|(index, signs)| {
            let names = [THOUGHT_TO_TOOL, QUERY_TO_THOUGHT, REQUEST_TO_TOOL];
            names.into_iter().zip(signs.chars()).map(move |(name, sign)| line(name, Some(index), sign))
        });
        let of_whole = [SEQUENCE_OPTIMALITY, OUTCOME].into_iter().zip(whole.chars());
        let outcomes: Vec<OutcomeLine> = of_steps.chain(of_whole.map(|(name, sign)| line(name, None, sign))).collect();
        builder.add_trajectory(&trajectory, &outcomes);
    }
    builder.finish(&record)
}

/// Right, judged, abstained, failed, and not applicable.
fn counts(summary: &EvaluationSummary, name: &str) -> (u64, u64, u64, u64, u64) {
    let metric = summary.find_metric(name).unwrap();
    (metric.numerator as u64, metric.denominator, metric.abstained, metric.failed, metric.not_applicable)
}

#[test]
fn the_outcome_comes_first_and_a_dead_run_is_not_right() {
    let summary = summarize(&[(&["++."], "++"), (&["++."], "+-"), (&["++."], "+0"), (&[], ".-"), (&[], ".+")]);
    assert_eq!(summary.metrics[0].name, OUTCOME);
    assert_eq!(counts(&summary, OUTCOME), (2, 4, 1, 0, 0));
    assert_eq!(summary.metrics[0].labels["0"], 1, "a label without a score is still counted as a label");
    assert_eq!(counts(&summary, "trajectories_right"), (1, 3, 1, 0, 1));
}

#[test]
fn steps_without_a_thought_are_combined_by_the_request() {
    let summary = summarize(&[(&["++.", "..+", "..-", "..?", "+-.", "-?.", "!+.", "..."], "?+")]);
    assert_eq!(counts(&summary, "combined"), (2, 4, 2, 1, 1));
    assert_eq!(counts(&summary, REQUEST_TO_TOOL), (1, 2, 1, 0, 5));
    assert_eq!(counts(&summary, "trajectories_right"), (0, 0, 0, 1, 0), "a failed question leaves it open");
}

#[test]
fn flagged_steps_are_counted_also_where_the_whole_is_undecided() {
    let summary = summarize(&[(&["-?.", "??."], "?+"), (&["--.", "..-"], "-+"), (&["??."], "?+"), (&["++."], "+-")]);
    assert_eq!(summary.flagged, FlaggedCounts { trajectories: 3, steps: 3 });
    assert_eq!(summary.failed_share(), Some(0.0), "abstentions are no failures");
    let reason = summary.reasons.iter().find(|reason| reason.outcome == OutcomeKind::Abstained).unwrap();
    assert_eq!((reason.evaluator.as_str(), reason.count), (QUERY_TO_THOUGHT, 3));
}

#[test]
fn measurements_of_the_simulator_flag_nothing() {
    let record = manifest();
    let mut builder = SummaryBuilder::new(&record);
    let measured = OutcomeLine { judge: SIMULATOR_JUDGE.into(), ..line(OUTCOME, None, '-') };
    builder.add_trajectory(&Trajectory::default(), &[measured]);
    let summary = builder.finish(&record);
    assert_eq!(summary.flagged, FlaggedCounts::default());
    assert!(summary.findings.is_empty() && summary.failure_groups.is_empty());
}
