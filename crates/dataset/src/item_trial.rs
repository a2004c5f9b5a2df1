//! The result of one trial of an experiment: one attempt of an agent at one item. `trials.jsonl` of an experiment's
//! folder has one a line; comparisons and gates read them from there.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::{CheckOutcome, ItemCheck};

/// One attempt of an agent at one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemTrial {
    pub item_id: String,
    /// Counts from 0.
    pub trial: u32,
    /// True if the agent ended well and all checks passed. False is no failure where a check could not be made
    /// (`not_checked`) and none failed: such a trial decides nothing.
    pub passed: bool,
    pub end: TrialEnd,
    /// Why the agent did not end well; null if it did.
    pub failure: Option<String>,
    pub checks: Vec<ItemCheck>,
    pub tags: Vec<String>,
    pub answer: Option<String>,
    /// The main trajectory of the trial, in `trajectories.jsonl`.
    pub trajectory_id: String,
    /// The trace of the main trajectory; null without spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The root span of the main trajectory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub span_ids: Vec<String>,
    /// Spans that the agent sent. Without any, its tool calls are unknown.
    pub has_spans: bool,
    pub step_count: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub cost_usd: Option<f64>,
    pub seconds: f64,
}

/// How the agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnd {
    Answered,
    /// The agent ended without an error, and without an answer.
    NoAnswer,
    /// The program could not be started, or the address could not be reached.
    NotStarted,
    /// The program ended with an exit code other than 0, or the address returned an error.
    Failed,
    /// The program was ended by a signal.
    Signalled,
    TimedOut,
    /// The answer is longer than what is read.
    AnswerTooLong,
}

impl ItemTrial {
    /// Whether the trial passed; `None` if nothing failed and something could not be checked, as when tracing is
    /// broken.
    pub fn verdict(&self) -> Option<bool> {
        ItemTrial::decide(self.end, &self.checks)
    }

    /// Returns the verdict on a trial with this end and these checks.
    pub fn decide(end: TrialEnd, checks: &[ItemCheck]) -> Option<bool> {
        let has = |outcome| checks.iter().any(|check| check.outcome == outcome);
        match end {
            TrialEnd::Answered if has(CheckOutcome::Failed) => Some(false),
            TrialEnd::Answered if has(CheckOutcome::NotChecked) => None,
            TrialEnd::Answered => Some(true),
            _ => Some(false),
        }
    }
}

/// Why results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TrialFileError {
    #[error("results not readable: {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("results not readable: {}:{line}: {source}; hint: run the experiment again", path.display())]
    Format { path: PathBuf, line: usize, source: serde_json::Error },
}

/// Reads the results of all trials in a `trials.jsonl`, in its order.
pub fn read_item_trials(path: &Path) -> Result<Vec<ItemTrial>, TrialFileError> {
    let unreadable = |source| TrialFileError::Unreadable { path: path.to_owned(), source };
    let source = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut trials = Vec::new();
    for (at, line) in source.lines().enumerate() {
        let line = line.map_err(unreadable)?;
        let format = |source| TrialFileError::Format { path: path.to_owned(), line: at + 1, source };
        trials.push(serde_json::from_str(&line).map_err(format)?);
    }
    Ok(trials)
}
