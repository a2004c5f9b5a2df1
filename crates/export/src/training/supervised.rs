//! Supervised fine-tuning: one row for each conversation. A conversation is cut before its first turn that was not
//! chosen, so that no content is trained on twice and none that was found wrong.

use std::io;

use serde_json::{Value as Json, json};

use super::{RowWriter, RunSelection, TrainingSettings, row_origin};
use crate::chat_form::{ChatForm, ChatShape};
use crate::graded_runs::{GradedRun, GradedRuns, RunQuality};

pub(super) fn write_conversations(
    runs: &GradedRuns,
    settings: &TrainingSettings,
    rows: &mut RowWriter<'_>,
) -> io::Result<()> {
    let form = settings.form;
    for turns in runs.conversations() {
        if let Some(reason) = turns.first().and_then(|first| runs.explain_missing_context(first)) {
            turns.iter().for_each(|_| rows.count_left_out(reason));
            continue;
        }
        // Harnesses record the outcome of a conversation with its last turn.
        let last = turns.iter().rev().find(|turn| turn.run_quality() != RunQuality::Unknown);
        let outcome = last.copied().filter(|_| settings.selection == RunSelection::Success);
        let explain_rejection = |turn: &GradedRun| {
            turn.explain_incomplete().or_else(|| settings.selection.explain_rejection(outcome.unwrap_or(turn)))
        };
        let chosen = turns.iter().take_while(|turn| explain_rejection(turn).is_none()).count();
        for turn in &turns[chosen..] {
            rows.count_left_out(explain_rejection(turn).unwrap_or("follows a turn that was not chosen"));
        }
        let turns = &turns[..chosen];
        let Some(first) = turns.first() else { continue };
        let mut messages: Vec<Json> = ChatForm::system_message(&first.trajectory).into_iter().collect();
        for turn in turns {
            messages.extend(form.turn_messages(&turn.trajectory));
        }
        if !messages.iter().any(|message| message["role"] == "assistant") {
            rows.count_left_out("has no reply");
            continue;
        }
        let content = json!({"messages": messages});
        let mut row = content.clone();
        if let Some(tools) = form.tools_field(&first.trajectory) {
            row["tools"] = tools;
        }
        match form.shape {
            ChatShape::OpenAi => {
                let has_parallel =
                    turns.iter().flat_map(|turn| &turn.trajectory.steps).any(|step| step.parallel_with_previous);
                row["parallel_tool_calls"] = json!(has_parallel);
            }
            ChatShape::Trl => row["origin"] = row_origin(first, None),
        }
        rows.write_row(&row, &content)?;
    }
    Ok(())
}
