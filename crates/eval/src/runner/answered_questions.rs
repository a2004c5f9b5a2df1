//! Questions that an earlier process of the same run has answered.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};

use crate::outcome::{OutcomeKind, OutcomeLine};
use crate::run::{RunFileError, RunFolder};

/// Answered questions as 128-bit digests: a run may have millions of them.
#[derive(Debug, Default)]
pub struct AnsweredQuestions {
    questions: HashSet<u128>,
    /// Dollars spent so far, also on questions that failed. The cost limit covers the whole run.
    pub(super) cost_usd: f64,
}

impl AnsweredQuestions {
    /// An answer counts only together with the trajectory: the caller checks that the trajectory has not changed.
    pub(super) fn has(&self, trajectory_id: &str, step_index: Option<u32>, evaluator: &str) -> bool {
        !self.questions.is_empty() && self.questions.contains(&digest_question(trajectory_id, step_index, evaluator))
    }
}

/// Reads the answered questions from the journal of a run. Failed ones are not included, so they are asked again.
pub(super) fn read_answered_questions(folder: &RunFolder) -> Result<AnsweredQuestions, RunFileError> {
    let path = folder.outcomes_path();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(AnsweredQuestions::default()),
        Err(error) => return Err(RunFileError::new(&path, error)),
    };
    let mut done = AnsweredQuestions::default();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(|error| RunFileError::new(&path, error))?;
        // An incomplete line, left by a crash, is not an answer.
        let Ok(line) = serde_json::from_slice::<OutcomeLine>(&line) else { continue };
        // If the cost of one vote is unknown, that of the others still counts.
        let of_votes = || line.votes.iter().filter_map(|vote| vote.cost_usd).sum();
        done.cost_usd += line.cost_usd.unwrap_or_else(of_votes);
        if line.outcome != OutcomeKind::Failed {
            done.questions.insert(digest_question(&line.trajectory_id, line.step_index, &line.evaluator));
        }
    }
    Ok(done)
}

pub(super) fn digest_question(trajectory_id: &str, step_index: Option<u32>, evaluator: &str) -> u128 {
    let step = step_index.map_or(0, |index| u64::from(index) + 1);
    gradus_core::stable_digest(format!("{evaluator}\0{step}\0{trajectory_id}").as_bytes())
}
