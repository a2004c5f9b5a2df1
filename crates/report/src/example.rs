//! Example trajectories and an example run for output tests, and a readable form of printed styles.

use std::path::Path;
use std::sync::Arc;

use gradus_core::trajectory::{DefectKind, ExtractionDefect, TokenUsage, ToolDefinition, Trajectory, TrajectoryStep};
use gradus_eval::evaluator::{QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine, RuleRemark, TokenCount};
use gradus_eval::report::RunReader;
use gradus_eval::run::{AppendLog, EvaluatorRecord, RunManifest, RunState, StateFolder};
use serde_json::json;

use crate::{BOLD, DIM, GREEN, RED, YELLOW};

const JUDGE: &str = "openai/gpt-4.1-mini";
const RUN_ID: &str = "2026-03-02-0941-k7qd";

/// Printed text with tags in place of our styles, so that a snapshot can be read. Every other escape sequence stays as
/// it is.
pub(crate) fn show_styles(printed: &[u8]) -> String {
    let mut text = std::str::from_utf8(printed).expect("printed text is UTF-8").to_owned();
    for (style, name) in [(BOLD, "bold"), (DIM, "dim"), (RED, "red"), (GREEN, "green"), (YELLOW, "yellow")] {
        text = text.replace(&style.to_string(), &format!("<{name}>")).replace(&format!("{style:#}"), "</>");
    }
    text
}

/// Everything that a trajectory can have: parallel steps, a failed one, malformed arguments, defects.
pub(crate) fn booking_trajectory() -> Trajectory {
    Trajectory {
        trajectory_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        trace_ids: vec!["4bf92f3577b34da6a3ce929d0e0e4736".to_owned()],
        session_id: Some("chat-118".to_owned()),
        project: Some("travel".to_owned()),
        agent: Some("concierge".to_owned()),
        model: Some("gpt-4.1".to_owned()),
        query: Some("Can I still move my Lisbon flight to Friday?\nPlease do not change anything yet.".to_owned()),
        final_answer: Some("Yes. The change costs 80 euros.".to_owned()),
        steps: vec![
            TrajectoryStep {
                index: 1,
                thought: Some("I look up the booking and the Friday flights.".to_owned()),
                tool: "get_booking".to_owned(),
                arguments: Some(json!({"booking": "TP-88213"})),
                observation: Some("{\"flight\":\"TP 571\",\n \"date\":\"2026-03-05\"}".to_owned()),
                start: Some("2026-03-02T09:41:08Z".to_owned()),
                span_ids: vec!["00f067aa0ba902b7".to_owned(), "=1+1".to_owned()],
                ..TrajectoryStep::default()
            },
            TrajectoryStep {
                index: 2,
                thought: Some("I look up the booking and the Friday flights.".to_owned()),
                tool: "search_flights".to_owned(),
                arguments_raw: Some("{\"date\": friday}".to_owned()),
                observation: Some("bad request: date is no date".to_owned()),
                is_error: true,
                parallel_with_previous: true,
                ..TrajectoryStep::default()
            },
            TrajectoryStep { index: 3, tool: "quote_change".to_owned(), ..TrajectoryStep::default() },
        ],
        tools: Arc::from(
            ["get_booking", "search_flights", "quote_change"]
                .map(|name| ToolDefinition { name: name.to_owned(), ..ToolDefinition::default() }),
        ),
        tokens: TokenUsage { prompt: 2_140, completion: 312, cached_prompt: 0 },
        cost_usd: Some(0.0123),
        defects: vec![
            ExtractionDefect {
                kind: DefectKind::MalformedArguments,
                detail: "the arguments of step 2 are no JSON".to_owned(),
                span_id: Some("00f067aa0ba902b7".to_owned()),
            },
            ExtractionDefect {
                kind: DefectKind::MissingObservation,
                detail: "step 3 has no result".to_owned(),
                span_id: None,
            },
        ],
        parent_trajectory_id: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
        parent_step_index: Some(4),
        start: Some("2026-03-02T09:41:07.250Z".to_owned()),
        root_span_id: Some("53995c3f42cd8ad8".to_owned()),
        ..Trajectory::default()
    }
}

/// A sparse trajectory: an id, wide characters and one step, whose tool is called twice in a row.
pub(crate) fn sparse_trajectory() -> Trajectory {
    let step = |index| TrajectoryStep { index, tool: "検索".to_owned(), ..TrajectoryStep::default() };
    Trajectory {
        trajectory_id: "4bf92f35a0000000000000000000000f".to_owned(),
        query: Some("リスボンの天気を教えてください。明日の朝に空港へ行きます。傘は必要ですか。".to_owned()),
        steps: vec![step(1), step(2)],
        ..Trajectory::default()
    }
}

/// A trajectory with this text in every field that a trace can fill.
pub(crate) fn trajectory_filled_with(text: &str) -> Trajectory {
    let some = || Some(text.to_owned());
    Trajectory {
        trajectory_id: text.to_owned(),
        session_id: some(),
        project: some(),
        agent: some(),
        model: some(),
        query: some(),
        final_answer: some(),
        steps: vec![
            TrajectoryStep {
                index: 1,
                thought: some(),
                tool: text.to_owned(),
                arguments: Some(json!({ text: text })),
                observation: some(),
                ..TrajectoryStep::default()
            },
            TrajectoryStep {
                index: 2,
                tool: text.to_owned(),
                arguments_raw: some(),
                observation: some(),
                is_error: true,
                ..TrajectoryStep::default()
            },
        ],
        tools: Arc::from([ToolDefinition { name: text.to_owned(), ..ToolDefinition::default() }]),
        defects: vec![ExtractionDefect {
            kind: DefectKind::UnreadableRecord,
            detail: text.to_owned(),
            span_id: some(),
        }],
        parent_trajectory_id: some(),
        start: some(),
        ..Trajectory::default()
    }
}

/// A finished run of two trajectories with outcomes of every kind, in a state folder at this path.
pub(crate) fn open_example_run(folder: &Path) -> RunReader {
    let state = StateFolder::open(folder).expect("a state folder");
    let run = state.create_run(example_manifest()).expect("a run folder");
    let mut trajectories = AppendLog::open(&run.trajectories_path()).expect("a file of trajectories");
    for trajectory in [booking_trajectory(), sparse_trajectory()] {
        trajectories.add(&trajectory).expect("a line");
    }
    trajectories.write().expect("trajectories are written");
    let mut outcomes = AppendLog::open(&run.outcomes_path()).expect("a file of outcomes");
    for line in example_outcomes() {
        outcomes.add(&line).expect("a line");
    }
    outcomes.write().expect("outcomes are written");
    RunReader::open(&run).expect("the run is read")
}

fn example_manifest() -> RunManifest {
    let evaluator = |name: &str, title: &str, of_steps, [good, bad]: [&str; 2]| EvaluatorRecord {
        name: name.to_owned(),
        title: title.to_owned(),
        of_steps,
        labels: vec![(good.to_owned(), 1.0), (bad.to_owned(), 0.0)],
        rubric_hash: "5f1c".to_owned(),
        phoenix_name: title.to_owned(),
        judge: JUDGE.to_owned(),
    };
    RunManifest {
        run_id: RUN_ID.to_owned(),
        fingerprint: "f".to_owned(),
        state: RunState::Finished,
        name: None,
        tags: Default::default(),
        commit: None,
        branch: None,
        stopped_because: None,
        started: "2026-03-02T09:41:07Z".to_owned(),
        ended: Some("2026-03-02T09:46:52Z".to_owned()),
        sources: vec!["traces/travel/2026-03.jsonl".to_owned()],
        judge: JUDGE.to_owned(),
        endpoint: Some("https://api.openai.com/v1".to_owned()),
        panel: None,
        models: Vec::new(),
        evaluators: vec![
            evaluator(THOUGHT_TO_TOOL, "Thought to tool", true, ["correct", "incorrect"]),
            evaluator(QUERY_TO_THOUGHT, "Query to thought", true, ["relevant", "irrelevant"]),
            evaluator(SEQUENCE_OPTIMALITY, "Sequence optimality", false, ["optimal", "suboptimal"]),
        ],
        priced: true,
        gates: Vec::new(),
        early_gates: Vec::new(),
        prices: Default::default(),
        gradus_version: "0.0.0".to_owned(),
    }
}

fn example_outcomes() -> Vec<OutcomeLine> {
    let booking = booking_trajectory().trajectory_id;
    let sparse = sparse_trajectory().trajectory_id;
    let line = |trajectory_id: &str, step_index, evaluator: &str, outcome| OutcomeLine {
        run_id: RUN_ID.into(),
        trajectory_id: trajectory_id.into(),
        step_index,
        evaluator: evaluator.into(),
        outcome,
        label: None,
        score: None,
        label_probability: None,
        explanation: None,
        evidence: Vec::new(),
        rule: None,
        remarks: Vec::new(),
        reason: None,
        judge: JUDGE.into(),
        rubric_hash: "5f1c".into(),
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
    };
    let scored =
        |trajectory_id: &str, step_index, evaluator: &str, label: &str, score, explanation: &str| OutcomeLine {
            label: Some(label.to_owned()),
            score: Some(score),
            explanation: Some(explanation.to_owned()),
            tokens: Some(TokenCount { prompt: 812, completion: 74, cached_prompt: 512 }),
            cost_usd: Some(0.0005),
            calls: 1,
            ..line(trajectory_id, step_index, evaluator, OutcomeKind::Scored)
        };
    let without_verdict = |step_index, evaluator: &str, outcome, reason: &str| OutcomeLine {
        reason: Some(reason.to_owned()),
        ..line(&sparse, step_index, evaluator, outcome)
    };
    let missing = "the step has no thought";
    vec![
        scored(&booking, Some(1), THOUGHT_TO_TOOL, "correct", 1.0, "The booking is needed first."),
        scored(&booking, Some(1), QUERY_TO_THOUGHT, "relevant", 1.0, "The request is about this booking."),
        OutcomeLine {
            evidence: vec!["{\"date\": friday}".to_owned(), "=cmd".to_owned()],
            ..scored(
                &booking,
                Some(2),
                THOUGHT_TO_TOOL,
                "incorrect",
                0.0,
                "=HYPERLINK(\"x\") & <b>\"quoted\"</b>,\nno date",
            )
        },
        scored(&booking, Some(2), QUERY_TO_THOUGHT, "relevant", 1.0, "Friday is what was asked for."),
        OutcomeLine {
            rule: Some("sequence.error_ignored".into()),
            remarks: vec![
                RuleRemark { rule: "data_flow.unused".into(), text: "Nothing uses the result of step 1.".to_owned() },
                RuleRemark { rule: "words.topic".into(), text: "=1+1".to_owned() },
            ],
            ..scored(&booking, None, SEQUENCE_OPTIMALITY, "suboptimal", 0.0, "The second call was for nothing.")
        },
        without_verdict(Some(1), THOUGHT_TO_TOOL, OutcomeKind::NotApplicable, missing),
        without_verdict(Some(1), QUERY_TO_THOUGHT, OutcomeKind::NotApplicable, missing),
        without_verdict(Some(2), THOUGHT_TO_TOOL, OutcomeKind::Abstained, "no rule with hard evidence fired"),
        without_verdict(
            None,
            SEQUENCE_OPTIMALITY,
            OutcomeKind::Failed,
            "the endpoint answered 529 (overloaded), after 5 tries",
        ),
    ]
}
