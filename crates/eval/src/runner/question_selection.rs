//! Which questions of a plan are asked. A judge test asks about single steps whose truth is known, not about all of
//! them, and some of its questions several times.

use std::collections::HashSet;

use super::progress_order::digest_question;

/// The questions of a run, by trajectory, step number and evaluator. Digests: a test may have many thousand cases.
#[derive(Clone, Debug, Default)]
pub struct QuestionSelection {
    questions: HashSet<u128>,
    repeat: u32,
}

impl QuestionSelection {
    /// Nothing is selected yet. `repeat` numbers deliberate repetitions of the same questions, from 0: each repetition
    /// has verdicts of its own in the cache.
    pub fn with_repeat(repeat: u32) -> QuestionSelection {
        QuestionSelection { questions: HashSet::new(), repeat }
    }

    /// Selects a question. `step_index` is the number of the step as in outcome lines; `None` for the whole trajectory.
    pub fn add_question(&mut self, trajectory_id: &str, step_index: Option<u32>, evaluator: &str) {
        self.questions.insert(digest_question(trajectory_id, step_index, evaluator));
    }

    pub fn repeat(&self) -> u32 {
        self.repeat
    }

    pub(super) fn has(&self, trajectory_id: &str, step_index: Option<u32>, evaluator: &str) -> bool {
        self.questions.contains(&digest_question(trajectory_id, step_index, evaluator))
    }
}
