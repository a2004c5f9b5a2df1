//! Single replies with a label, for KTO: was this reply desirable?

use std::io;

use serde_json::json;

use super::{RowWriter, TrainingSettings, row_origin};
use crate::chat_form::context_messages;
use crate::graded_runs::{GradedRuns, StepQuality, split_replies};

pub(super) fn write_labelled_replies(
    runs: &GradedRuns,
    settings: &TrainingSettings,
    rows: &mut RowWriter<'_>,
) -> io::Result<()> {
    let form = settings.form;
    for run in runs.iter() {
        if let Some(reason) = runs.explain_missing_context(run).or_else(|| run.explain_incomplete()) {
            rows.count_left_out(reason);
            continue;
        }
        let context = context_messages(runs, run, form);
        for steps in split_replies(&run.trajectory.steps) {
            let Some(first) = steps.first() else { continue };
            let qualities: Vec<_> = steps.iter().map(|step| run.step_quality(step.index)).collect();
            let label = if qualities.contains(&StepQuality::Wrong) {
                false
            } else if qualities.iter().all(|quality| *quality == StepQuality::Right) {
                true
            } else {
                rows.count_left_out("a reply that was not judged");
                continue;
            };
            let mut prompt = context.clone();
            prompt.extend(form.messages_before(&run.trajectory, first.index));
            let content = json!({"prompt": prompt, "completion": [form.reply_message(steps, true)], "label": label});
            let mut row = content.clone();
            if let Some(tools) = form.tools_field(&run.trajectory) {
                row["tools"] = tools;
            }
            row["origin"] = row_origin(run, Some(first.index));
            rows.write_row(&row, &content)?;
        }
    }
    Ok(())
}
