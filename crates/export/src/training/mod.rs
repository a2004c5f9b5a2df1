//! Training data: rows made of what was recorded and judged, and of nothing else.

mod preference;
mod step_rewards;
mod stepwise;
mod supervised;
mod unpaired;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use gradus_core::stable_digest;
use serde_json::Value as Json;

use crate::chat_form::ChatForm;
use crate::graded_runs::{GradedRun, GradedRuns, RunQuality};

/// A format of training data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingFormat {
    /// Supervised fine-tuning: whole conversations.
    Supervised,
    /// Preference pairs, for DPO.
    Preference,
    /// Single replies with a label, for KTO.
    Unpaired,
    /// Rows of Eval Protocol with a reward for each step.
    StepRewards,
    /// Steps with labels, for process reward models.
    Stepwise,
}

/// Which runs are good enough to be imitated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunSelection {
    /// Confirmed by a judge, no verdict is bad, and the run did not fail.
    #[default]
    Good,
    /// The run reached its goal, by its record or by the verdict on its outcome.
    Success,
    All,
}

impl RunSelection {
    /// Returns why a run is not selected; `None` if it is.
    fn explain_rejection(self, run: &GradedRun) -> Option<&'static str> {
        match self {
            RunSelection::All => None,
            RunSelection::Good if run.has_bad_verdict() => Some("has a bad verdict"),
            RunSelection::Good if run.trajectory.is_error => Some("ended in an error"),
            RunSelection::Good if run.run_quality() == RunQuality::Failure => Some("did not reach its goal"),
            RunSelection::Good if !run.is_confirmed() => Some("not confirmed by a judge: rules prove only faults"),
            RunSelection::Good => None,
            RunSelection::Success => match run.run_quality() {
                RunQuality::Success => None,
                RunQuality::Failure => Some("did not reach its goal"),
                RunQuality::Unknown => Some("not known whether it reached its goal"),
            },
        }
    }
}

/// How training data is written.
#[derive(Clone, Copy, Debug)]
pub struct TrainingSettings {
    pub format: TrainingFormat,
    pub form: ChatForm,
    pub selection: RunSelection,
}

/// Counts of one export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingCounts {
    pub rows: u64,
    pub duplicates: u64,
    /// What gave no row, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Rows by how they were made.
    pub made_by: BTreeMap<String, u64>,
}

/// Writes training data as lines of JSON.
pub fn write_training_rows(
    runs: &GradedRuns,
    settings: &TrainingSettings,
    out: &mut dyn Write,
) -> io::Result<TrainingCounts> {
    let mut rows = RowWriter { out, written: HashSet::new(), counts: TrainingCounts::default() };
    match settings.format {
        TrainingFormat::Supervised => supervised::write_conversations(runs, settings, &mut rows)?,
        TrainingFormat::Preference => preference::write_pairs(runs, settings, &mut rows)?,
        TrainingFormat::Unpaired => unpaired::write_labelled_replies(runs, settings, &mut rows)?,
        TrainingFormat::StepRewards => step_rewards::write_reward_rows(runs, settings, &mut rows)?,
        TrainingFormat::Stepwise => stepwise::write_labelled_steps(runs, settings, &mut rows)?,
    }
    Ok(rows.counts)
}

/// Writes rows, each of them once.
struct RowWriter<'o> {
    out: &'o mut dyn Write,
    written: HashSet<u128>,
    counts: TrainingCounts,
}

impl RowWriter<'_> {
    /// Writes a row unless an equal one was written. `content` is what makes rows equal, but for the ids of calls.
    fn write_row(&mut self, row: &Json, content: &Json) -> io::Result<bool> {
        if !self.written.insert(stable_digest(without_call_ids(content).to_string().as_bytes())) {
            self.counts.duplicates += 1;
            return Ok(false);
        }
        self.counts.rows += 1;
        writeln!(self.out, "{row}")?;
        Ok(true)
    }

    fn count_left_out(&mut self, reason: &str) {
        *self.counts.left_out.entry(reason.to_owned()).or_default() += 1;
    }
}

/// Returns a value without the ids of calls, which differ in every run.
fn without_call_ids(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(without_call_ids).collect(),
        Json::Object(object) if object.contains_key("role") || object.contains_key("function") => {
            let kept = object.iter().filter(|(key, _)| !matches!(key.as_str(), "id" | "tool_call_id"));
            Json::Object(kept.map(|(key, value)| (key.clone(), without_call_ids(value))).collect())
        }
        Json::Object(object) => {
            Json::Object(object.iter().map(|(key, value)| (key.clone(), without_call_ids(value))).collect())
        }
        other => other.clone(),
    }
}

/// Returns where a row comes from, to trace it back.
fn row_origin(run: &GradedRun, step: Option<u32>) -> Json {
    serde_json::json!({"trajectory_id": run.trajectory.trajectory_id, "step": step})
}
