//! What an earlier process of the same run has answered already.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};

use crate::outcome::{OutcomeKind, OutcomeLine};
use crate::run::{RunFileError, RunFolder};

/// Answered questions, each by a digest.
#[derive(Debug, Default)]
pub(super) struct Done(HashSet<u128>);

impl Done {
    pub(super) fn has(&self, trajectory_id: &str, step_index: Option<u32>, evaluator: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&digest(trajectory_id, step_index, evaluator))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Reads the run's log. Questions that failed are asked again.
pub(super) fn outcomes_in(folder: &RunFolder) -> Result<Done, RunFileError> {
    let path = folder.outcomes_path();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Done::default()),
        Err(error) => return Err(RunFileError::new(&path, error)),
    };
    let mut done = HashSet::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(|error| RunFileError::new(&path, error))?;
        // A line that was cut off is an answer that is not there.
        if let Ok(line) = serde_json::from_slice::<OutcomeLine>(&line)
            && line.outcome != OutcomeKind::Failed
        {
            done.insert(digest(&line.trajectory_id, line.step_index, &line.evaluator));
        }
    }
    Ok(Done(done))
}

fn digest(trajectory_id: &str, step_index: Option<u32>, evaluator: &str) -> u128 {
    let step = step_index.map_or(0, |index| u64::from(index) + 1);
    gradus_core::digest(format!("{evaluator}\0{step}\0{trajectory_id}").as_bytes())
}
