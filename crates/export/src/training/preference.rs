//! Preference pairs. A pair is honest if both replies answer the same messages, and one of them was found right and the
//! other wrong. Two sources:
//!
//! - `sibling`: two runs of the same task that are equal up to a step, at which one is right and the other wrong;
//! - `correction`: a call that failed and was found wrong, and that the agent itself corrected with its next call of
//!   the same tool. Every value of the corrected call must be in the prompt or in the wrong call: values that only the
//!   error contained could not have been known. The thoughts are left out on both sides, because the thought of the
//!   correction speaks of the failure.

use std::collections::HashMap;
use std::io;

use gradus_core::stable_digest;
use gradus_core::trajectory::TrajectoryStep;
use serde_json::{Value as Json, json};

use super::{RowWriter, TrainingSettings, row_origin, without_call_ids};
use crate::chat_form::{ChatForm, ChatShape, context_messages};
use crate::graded_runs::{GradedRun, GradedRuns, StepQuality, split_replies};

/// Maximum number of pairs for one prompt: enough to learn the difference, and no prompt outweighs the others.
const MAX_PAIRS_PER_PROMPT: usize = 4;

/// A reply of a run.
#[derive(Clone, Copy)]
struct JudgedReply<'r> {
    run: &'r GradedRun,
    steps: &'r [TrajectoryStep],
    quality: StepQuality,
}

/// A pair before it is written.
struct PreferencePair {
    prompt: Vec<Json>,
    chosen: Json,
    rejected: Json,
    tools: Option<Json>,
    /// Whether one of the replies has several calls.
    is_parallel: bool,
    made_by: &'static str,
    origin: Json,
}

pub(super) fn write_pairs(runs: &GradedRuns, settings: &TrainingSettings, rows: &mut RowWriter<'_>) -> io::Result<()> {
    let form = settings.form;
    // Replies by a digest of the messages before them. Prompts are built again for the few pairs that are written: all
    // prompts of a long run together have the square of its size.
    let mut by_prompt: HashMap<u128, Vec<JudgedReply<'_>>> = HashMap::new();
    let mut order = Vec::new();
    for run in runs.iter() {
        if let Some(reason) = runs.explain_missing_context(run).or_else(|| run.explain_incomplete()) {
            rows.count_left_out(reason);
            continue;
        }
        let start =
            json!([context_messages(runs, run, form), form.tools_field(&run.trajectory), run.trajectory.project]);
        let mut digest = stable_digest(json!([without_call_ids(&start), run.trajectory.query]).to_string().as_bytes());
        for steps in split_replies(&run.trajectory.steps) {
            let quality = reply_quality(run, steps);
            if quality == StepQuality::Unjudged {
                rows.count_left_out("a reply that was not judged");
            } else {
                let same = by_prompt.entry(digest).or_insert_with(|| {
                    order.push(digest);
                    Vec::new()
                });
                same.push(JudgedReply { run, steps, quality });
            }
            let results: Vec<_> = steps.iter().map(|step| &step.observation).collect();
            let reply = without_call_ids(&form.reply_message(steps, true));
            digest = stable_digest(format!("{digest:032x} {reply} {results:?}").as_bytes());
        }
    }
    for digest in order {
        let Some(same) = by_prompt.remove(&digest) else { continue };
        write_sibling_pairs(runs, &same, form, rows)?;
    }
    for run in
        runs.iter().filter(|run| runs.explain_missing_context(run).is_none() && run.explain_incomplete().is_none())
    {
        write_corrections(runs, run, form, rows)?;
    }
    Ok(())
}

/// Returns the quality of a reply, which is right if every call of it is.
fn reply_quality(run: &GradedRun, steps: &[TrajectoryStep]) -> StepQuality {
    let qualities: Vec<_> = steps.iter().map(|step| run.step_quality(step.index)).collect();
    if qualities.contains(&StepQuality::Wrong) {
        StepQuality::Wrong
    } else if qualities.iter().all(|quality| *quality == StepQuality::Right) {
        StepQuality::Right
    } else {
        StepQuality::Unjudged
    }
}

/// Returns the messages before a reply.
fn prompt_before(runs: &GradedRuns, run: &GradedRun, steps: &[TrajectoryStep], form: ChatForm) -> Vec<Json> {
    let first = steps.first().map_or(1, |step| step.index);
    let mut prompt = context_messages(runs, run, form);
    prompt.extend(form.messages_before(&run.trajectory, first));
    prompt
}

fn write_sibling_pairs(
    runs: &GradedRuns,
    same: &[JudgedReply<'_>],
    form: ChatForm,
    rows: &mut RowWriter<'_>,
) -> io::Result<()> {
    let right: Vec<_> = same.iter().filter(|reply| reply.quality == StepQuality::Right).collect();
    let wrong: Vec<_> = same.iter().filter(|reply| reply.quality == StepQuality::Wrong).collect();
    let mut tried = 0;
    for rejected in wrong {
        for chosen in right.iter().filter(|chosen| !std::ptr::eq(chosen.run, rejected.run)) {
            if tried == MAX_PAIRS_PER_PROMPT {
                return Ok(());
            }
            tried += 1;
            let pair = PreferencePair {
                prompt: prompt_before(runs, rejected.run, rejected.steps, form),
                chosen: form.reply_message(chosen.steps, true),
                rejected: form.reply_message(rejected.steps, true),
                tools: form.tools_field(&rejected.run.trajectory),
                is_parallel: chosen.steps.len() > 1 || rejected.steps.len() > 1,
                made_by: "sibling",
                origin: json!({
                    "chosen": row_origin(chosen.run, chosen.steps.first().map(|step| step.index)),
                    "rejected": row_origin(rejected.run, rejected.steps.first().map(|step| step.index)),
                }),
            };
            write_pair(pair, form, rows)?;
        }
    }
    Ok(())
}

/// Pairs of a wrong call and the next call of the same tool, which was found right.
fn write_corrections(runs: &GradedRuns, run: &GradedRun, form: ChatForm, rows: &mut RowWriter<'_>) -> io::Result<()> {
    let steps: Vec<&[TrajectoryStep]> = split_replies(&run.trajectory.steps).collect();
    for pair in steps.windows(2) {
        let ([wrong], [right]) = (pair[0], pair[1]) else { continue };
        let is_correction = wrong.tool == right.tool
            && wrong.arguments_text() != right.arguments_text()
            && wrong.is_error
            && !wrong.is_denied
            && !right.is_error
            && run.step_quality(wrong.index) == StepQuality::Wrong
            && run.step_quality(right.index) == StepQuality::Right;
        if !is_correction {
            continue;
        }
        let prompt = prompt_before(runs, run, pair[0], form);
        let known = format!("{} {}", Json::from(prompt.clone()), wrong.arguments_text().unwrap_or_default());
        if !right.arguments.as_ref().is_some_and(|arguments| has_known_values(arguments, &known)) {
            rows.count_left_out("a correction with a value that only the error told");
            continue;
        }
        let pair = PreferencePair {
            prompt,
            chosen: form.reply_message(pair[1], false),
            rejected: form.reply_message(pair[0], false),
            tools: form.tools_field(&run.trajectory),
            is_parallel: false,
            made_by: "correction",
            origin: json!({"chosen": row_origin(run, Some(right.index)), "rejected": row_origin(run, Some(wrong.index))}),
        };
        write_pair(pair, form, rows)?;
    }
    Ok(())
}

/// Whether every value of a call occurs in a text.
fn has_known_values(value: &Json, known: &str) -> bool {
    match value {
        Json::Array(items) => items.iter().all(|item| has_known_values(item, known)),
        Json::Object(object) => object.values().all(|item| has_known_values(item, known)),
        Json::String(text) => {
            // Escaped as in JSON.
            let quoted = Json::from(text.as_str()).to_string();
            known.contains(&quoted[1..quoted.len() - 1])
        }
        Json::Number(number) => known.contains(&number.to_string()),
        Json::Bool(_) | Json::Null => true,
    }
}

/// Writes a pair, unless both sides say the same.
fn write_pair(pair: PreferencePair, form: ChatForm, rows: &mut RowWriter<'_>) -> io::Result<()> {
    if without_call_ids(&pair.chosen) == without_call_ids(&pair.rejected) {
        rows.count_left_out("both replies of a pair are the same");
        return Ok(());
    }
    let content = json!([pair.prompt, pair.chosen, pair.rejected]);
    let mut row = match form.shape {
        ChatShape::Trl => json!({"prompt": pair.prompt, "chosen": [pair.chosen], "rejected": [pair.rejected]}),
        ChatShape::OpenAi => json!({
            "input": {"messages": pair.prompt, "parallel_tool_calls": pair.is_parallel},
            "preferred_output": [pair.chosen],
            "non_preferred_output": [pair.rejected],
        }),
    };
    if let Some(tools) = pair.tools {
        match form.shape {
            ChatShape::Trl => row["tools"] = tools,
            ChatShape::OpenAi => row["input"]["tools"] = tools,
        }
    }
    if form.shape == ChatShape::Trl {
        row["made_by"] = json!(pair.made_by);
        row["origin"] = pair.origin;
    }
    if rows.write_row(&row, &content)? {
        *rows.counts.made_by.entry(pair.made_by.to_owned()).or_default() += 1;
    }
    Ok(())
}
