//! Steps with labels, for process reward models: `prompt`, `completions`, `labels`. Ends before the first step
//! without a verdict, because the format has no third value.

use std::io;

use gradus_core::trajectory::TrajectoryStep;
use serde_json::{Value as Json, json};

use super::{RowWriter, TrainingSettings, row_origin};
use crate::chat_form::context_messages;
use crate::graded_runs::{GradedRuns, StepQuality};

pub(super) fn write_labelled_steps(
    runs: &GradedRuns,
    settings: &TrainingSettings,
    rows: &mut RowWriter<'_>,
) -> io::Result<()> {
    for run in runs.iter() {
        if let Some(reason) = runs.explain_missing_context(run).or_else(|| run.explain_incomplete()) {
            rows.count_left_out(reason);
            continue;
        }
        let judged = |step: &&TrajectoryStep| run.step_quality(step.index) != StepQuality::Unjudged;
        let steps: Vec<&TrajectoryStep> = run.trajectory.steps.iter().take_while(judged).collect();
        if steps.is_empty() {
            rows.count_left_out("the first step was not judged");
            continue;
        }
        let mut prompt = context_messages(runs, run, settings.form);
        prompt.extend(settings.form.messages_before(&run.trajectory, 0));
        let prompt: Vec<String> = prompt.iter().map(message_text).collect();
        let completions: Vec<String> = steps.iter().map(|step| step_text(step)).collect();
        let labels: Vec<bool> = steps.iter().map(|step| run.step_quality(step.index) == StepQuality::Right).collect();
        let content = json!({"prompt": prompt.join("\n"), "completions": completions, "labels": labels});
        let mut row = content.clone();
        row["origin"] = row_origin(run, None);
        rows.write_row(&row, &content)?;
    }
    Ok(())
}

fn message_text(message: &Json) -> String {
    let text = |key: &str| message[key].as_str().unwrap_or_default();
    let mut lines = vec![format!("{}: {}", text("role"), text("content"))];
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        lines.push(format!("Action: {}", function["name"].as_str().unwrap_or_default()));
        lines.push(format!("Action Input: {}", function["arguments"]));
    }
    lines.join("\n")
}

/// Returns a step as text: thought, call, result.
fn step_text(step: &TrajectoryStep) -> String {
    let mut lines = Vec::new();
    lines.extend(step.thought.as_ref().map(|thought| format!("Thought: {thought}")));
    lines.push(format!("Action: {}", step.tool));
    lines.extend(step.arguments_text().map(|arguments| format!("Action Input: {arguments}")));
    lines.extend(step.observation.as_ref().map(|observation| format!("Observation: {observation}")));
    lines.join("\n")
}
