//! The ledger of a run: where its results are stored. `gradus eval` writes files, the server writes to its store.

use gradus_core::trajectory::Trajectory;

use crate::outcome::OutcomeLine;
use crate::run::{CachedVerdict, QuestionKey, RunFileError};

/// The cost of a question, answered or not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuestionCost {
    pub calls: u32,
    /// The cost that counts against a budget: the reported cost or, without a report, its upper bound.
    pub cost_usd: f64,
    /// Whether the price of a call is known.
    pub is_priced: bool,
    /// Whether the endpoint is the reason for a missing answer: it is down, overloaded, or violates its protocol.
    pub is_endpoint_at_fault: bool,
}

/// Stores the results of a run. The runner calls it from one task: per trajectory, it first stores the trajectory,
/// then sets the number of questions, then records the cost and the outcome of each question.
pub trait RunLedger {
    /// Stores a trajectory. Returns true if the run has stored exactly this one before, so that its earlier answers
    /// still hold.
    fn store_trajectory(&mut self, trajectory: &mut Trajectory) -> Result<bool, RunFileError>;

    /// Sets the number of questions about a trajectory. As many outcomes follow, unless the run is stopped.
    fn set_question_count(&mut self, _trajectory_id: &str, _questions: usize) {}

    /// Records an outcome that cost nothing: by rules, from the cache, not applicable, or failed.
    fn store_outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError>;

    /// Records the outcome of a question that a model answered. Its verdict was stored before.
    fn store_model_outcome(&mut self, line: &OutcomeLine, _key: QuestionKey) -> Result<(), RunFileError> {
        self.store_outcome(line)
    }

    /// Stores the raw answer of the judge that the previous outcome was parsed from. `None` refers to the answer to
    /// an identical question, which was stored with the same key. By default answers are not stored.
    fn store_raw_response(
        &mut self,
        _line: &OutcomeLine,
        _key: QuestionKey,
        _text: Option<&str>,
    ) -> Result<(), RunFileError> {
        Ok(())
    }

    /// Reports the cost of a question before its outcome, also if there will be no outcome.
    fn record_question_cost(&mut self, _trajectory_id: &str, _effort: QuestionCost) {}

    /// Looks up the verdict of an identical question of this or an earlier run.
    fn find_cached_verdict(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError>;

    /// Stores a verdict for later runs.
    fn store_verdict(&mut self, key: QuestionKey, verdict: CachedVerdict) -> Result<(), RunFileError>;

    /// Writes everything so far, so that it survives this process. The runner calls it after each batch of answers.
    fn write(&mut self) -> Result<(), RunFileError>;

    /// Writes if much is buffered. Called while planning, when no answers arrive.
    fn write_if_large(&mut self) -> Result<(), RunFileError> {
        Ok(())
    }

    /// Called a few times a second, before progress is reported.
    fn write_all(&mut self) -> Result<(), RunFileError> {
        self.write()
    }

    /// Called once, at the end of the run.
    fn close(&mut self) -> Result<(), RunFileError> {
        self.write_all()
    }
}
