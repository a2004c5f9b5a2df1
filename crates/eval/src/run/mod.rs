//! A run's files. What is on disk survives the process, so an interrupted run resumes where it stopped.
//!
//! ```text
//! STATE/cache/verdicts.jsonl           verdicts by what was asked, for all runs
//! STATE/runs/ID/run.json               what the run was, and how it ended
//! STATE/runs/ID/outcomes.jsonl         its outcomes, in the order they came in; `k`, also of votes, is the key in the cache
//! STATE/runs/ID/responses.jsonl        raw answers of the judge model, each cut at 8 KB
//! STATE/runs/ID/restored               how far its outcomes were looked through for answers that the cache lost
//! STATE/runs/ID/trajectories.jsonl     what was judged, without tool definitions and long results
//! ```

mod cache;
mod early_stop;
mod folder;
mod log;
mod question_key;
mod responses;
mod restore;
mod run_name;

pub use crate::run::question_key::QuestionKey;
use cache::parse_line_key;
pub use cache::{CachedVerdict, VerdictCache};
pub use early_stop::EarlyGateRecord;
pub use folder::{EvaluatorRecord, JudgeModelRecord, PanelRecord, RunFolder, RunManifest, RunState, StateFolder};
pub use log::AppendLog;
pub use responses::{JudgeAnswer, JudgeAnswers, MAX_RESPONSE_BYTES};
pub use run_name::{LATEST_RUN, RunNameError, find_run_id};

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct RunFileError {
    pub path: String,
    #[source]
    pub reason: std::io::Error,
}

impl RunFileError {
    /// Wraps an I/O error with the file that it concerns.
    pub(crate) fn new(path: &std::path::Path, reason: std::io::Error) -> Self {
        RunFileError { path: path.display().to_string(), reason }
    }
}
