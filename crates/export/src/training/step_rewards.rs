//! Rows of Eval Protocol: a conversation with the score of the run and a reward for each step. A step without a verdict
//! has a reward of 0 that is marked as not valid in its metrics, because the format requires a number.

use std::io;

use serde_json::{Map, Value as Json, json};

use super::{RowWriter, TrainingSettings, row_origin};
use crate::chat_form::{context_messages, tool_schemas};
use crate::graded_runs::{GradedRun, GradedRuns, RunVerdict};

pub(super) fn write_reward_rows(
    runs: &GradedRuns,
    settings: &TrainingSettings,
    rows: &mut RowWriter<'_>,
) -> io::Result<()> {
    for run in runs.iter() {
        if run.verdicts.is_empty() && run.trajectory.annotations.is_empty() {
            rows.count_left_out("not judged");
            continue;
        }
        if let Some(reason) = runs.explain_missing_context(run).or_else(|| run.explain_incomplete()) {
            rows.count_left_out(reason);
            continue;
        }
        let mut messages = context_messages(runs, run, settings.form);
        messages.extend(settings.form.turn_messages(&run.trajectory));
        let outputs: Vec<Json> =
            (0..).zip(&run.trajectory.steps).map(|(at, step)| step_output(run, at, step.index)).collect();
        let reward = run.trajectory.annotations.iter().find(|one| one.name == "reward" && one.step_index.is_none());
        let score = reward.and_then(|reward| reward.score).or_else(|| run.run_score());
        let content = json!({
            "messages": messages,
            "tools": tool_schemas(&run.trajectory),
            "evaluation_result": {
                "score": score.unwrap_or(0.0),
                "is_score_valid": score.is_some(),
                "reason": join_explanations(run.run_verdicts()),
                "metrics": metrics(run.run_verdicts()),
                "step_outputs": outputs,
            },
        });
        let mut row = content.clone();
        row["input_metadata"] = json!({
            "row_id": run.trajectory.trajectory_id,
            "session_data": {"session_id": run.trajectory.session_id, "origin": row_origin(run, None)},
        });
        rows.write_row(&row, &content)?;
    }
    Ok(())
}

fn step_output(run: &GradedRun, at: usize, step_index: u32) -> Json {
    let reward = run.step_score(step_index);
    let mut metrics = metrics(run.step_verdicts(step_index));
    if reward.is_none() {
        metrics.insert(
            "judged".to_owned(),
            json!({"score": 0.0, "is_score_valid": false, "reason": "no verdict on this step"}),
        );
    }
    json!({
        "step_index": at,
        "base_reward": reward.unwrap_or(0.0),
        "terminated": at + 1 == run.trajectory.steps.len(),
        "metrics": metrics,
        "reason": join_explanations(run.step_verdicts(step_index)),
    })
}

/// Returns one metric for each evaluator.
fn metrics<'v>(verdicts: impl Iterator<Item = &'v RunVerdict>) -> Map<String, Json> {
    let metric = |verdict: &RunVerdict| {
        let value = json!({
            "score": verdict.score.unwrap_or(0.0),
            "is_score_valid": verdict.score.is_some(),
            "reason": verdict.explanation.as_deref().unwrap_or(&verdict.label),
        });
        (verdict.evaluator.clone(), value)
    };
    verdicts.map(metric).collect()
}

/// Joins the explanations, each after the name of its evaluator.
fn join_explanations<'v>(verdicts: impl Iterator<Item = &'v RunVerdict>) -> String {
    let reason = |verdict: &RunVerdict| {
        let text = verdict.explanation.as_deref().unwrap_or(&verdict.label);
        format!("{}: {text}", verdict.evaluator)
    };
    verdicts.map(reason).collect::<Vec<_>>().join("; ")
}
