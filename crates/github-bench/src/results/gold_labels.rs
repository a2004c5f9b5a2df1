//! The truth of scripted runs as files: `gold.json` next to each trace, in the format of this project's captures, or
//! one label per line with the keys of `gradus eval --jsonl`.

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::policy::{RunTruth, ScriptedPolicy};
use crate::record::TrialRecord;
use crate::trial::TrialLine;
use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::{CALL_VALIDITY, QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use gradus_github_agent::agent::AgentRunEnd;
use serde_json::{Value, json};

/// Returns the label of the step rubrics.
fn label_correctness(is_right: bool) -> &'static str {
    if is_right { "correct" } else { "incorrect" }
}

/// Returns the label of the sequence rubric.
fn label_sequence(truth: &RunTruth) -> &'static str {
    if truth.is_optimal() { "optimal" } else { "suboptimal" }
}

/// Writes `FOLDER/<policy>/<task>-<trial>/gold.json` and the trace as `001.bin`. Nothing for runs without a truth.
pub fn write_gold_folder(folder: &Path, line: &TrialLine, record: &TrialRecord, otlp: &[u8]) -> io::Result<()> {
    let Some(truth) = &line.truth else { return Ok(()) };
    let place = folder.join(&truth.policy).join(line.name());
    fs::create_dir_all(&place)?;
    fs::write(place.join("001.bin"), otlp)?;
    let mut text = serde_json::to_vec_pretty(&build_gold_record(line, truth, record))?;
    text.push(b'\n');
    fs::write(place.join("gold.json"), text)
}

/// Removes what an earlier call has written, and nothing else: hand-made labels may be in the same folder.
pub fn clear_gold_folder(folder: &Path) -> io::Result<()> {
    for policy in list_matching_folders(folder, |name| ScriptedPolicy::from_name(name).is_some())? {
        for run in list_matching_folders(&policy, is_trial_name)? {
            if !run.join("gold.json").is_file() {
                continue;
            }
            for name in ["gold.json", "001.bin"] {
                match fs::remove_file(run.join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            // A folder with other files in it stays.
            let _ = fs::remove_dir(&run);
        }
        let _ = fs::remove_dir(&policy);
    }
    Ok(())
}

/// Whether a name has the form of [`TrialLine::name`].
fn is_trial_name(name: &str) -> bool {
    let parts = name.rsplit_once('-');
    parts.is_some_and(|(task, trial)| !task.is_empty() && trial.parse::<u32>().is_ok())
}

/// Lists subfolders whose name matches; empty if the folder does not exist.
fn list_matching_folders(folder: &Path, is_called: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&is_called) && entry.path().is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Builds the JSON of a capture: sessions, turns and steps with their labels. All fields are marked as exactly
/// recoverable, since our own traces contain them.
fn build_gold_record(line: &TrialLine, truth: &RunTruth, record: &TrialRecord) -> Value {
    let steps = record.steps.iter().zip(&truth.steps).enumerate();
    let steps: Vec<Value> = steps
        .map(|(at, (step, true_step))| {
            json!({
                "index": at + 1,
                "thought": step.thought,
                "tool": step.tool,
                "arguments": step.arguments,
                "arguments_raw": step.arguments.to_string(),
                "observation": step.observation,
                "is_error": step.is_error,
                "labels": {
                    THOUGHT_TO_TOOL: label_correctness(true_step.tool_fits_thought),
                    QUERY_TO_THOUGHT: label_correctness(true_step.thought_fits_request),
                    CALL_VALIDITY: label_correctness(true_step.is_valid),
                    "note": true_step.note,
                },
                "recoverable": {"thought": "exact", "arguments": "exact", "observation": "exact"},
            })
        })
        .collect();
    json!({
        "framework": "gradus",
        "scenario": line.name(),
        "description": format!("{}: {}", truth.policy, truth.variant),
        "task": line.task,
        "sessions": [{
            "session_id": line.session,
            "turns": [{
                "user_query": record.request,
                "steps": steps,
                "final_answer": record.answer,
                "final_answer_correct": line.passed,
                "terminated": if record.end == AgentRunEnd::Answered { "final_answer" } else { "other" },
                "sequence": {"label": label_sequence(truth), "reason": truth.detour.as_deref().unwrap_or_default()},
                "recoverable": {"user_query": "exact", "final_answer": "exact", "session_id": "exact"},
            }],
        }],
    })
}

/// Writes one label per line: `trajectory_id`, `step_index`, `evaluator`, `label` and its origin.
pub fn write_lines(out: &mut BufWriter<fs::File>, line: &TrialLine, trajectory: &Trajectory) -> io::Result<()> {
    let Some(truth) = &line.truth else { return Ok(()) };
    let mut write = |step: Option<u32>, evaluator: &str, label: &str, note: &str| {
        let label = json!({
            "trajectory_id": trajectory.trajectory_id,
            "step_index": step,
            "evaluator": evaluator,
            "label": label,
            "note": note,
            "task": line.task,
            "trial": line.trial,
            "policy": truth.policy,
            "variant": truth.variant,
        });
        serde_json::to_writer(&mut *out, &label)?;
        out.write_all(b"\n")
    };
    for (step, true_step) in trajectory.steps.iter().zip(&truth.steps) {
        for (evaluator, is_right) in [
            (THOUGHT_TO_TOOL, true_step.tool_fits_thought),
            (QUERY_TO_THOUGHT, true_step.thought_fits_request),
            (CALL_VALIDITY, true_step.is_valid),
        ] {
            write(Some(step.index), evaluator, label_correctness(is_right), &true_step.note)?;
        }
    }
    write(None, SEQUENCE_OPTIMALITY, label_sequence(truth), truth.detour.as_deref().unwrap_or_default())
}
