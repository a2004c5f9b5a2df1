//! Selects the questions of a plan that are asked. A judge test only asks about steps whose truth is known, and
//! repeats some questions.

use std::collections::HashSet;

use super::answered_questions::digest_question;

/// The questions of a run, by trajectory, step number and evaluator. Digests: a test may have many thousand cases.
#[derive(Clone, Debug, Default)]
pub struct QuestionSelection {
    questions: HashSet<u128>,
    repeat: u32,
}

impl QuestionSelection {
    /// Starts an empty selection. `repeat` numbers deliberate repetitions of the same questions, from 0: each
    /// repetition has its own verdicts in the cache.
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
