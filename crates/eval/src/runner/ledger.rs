//! Where a run writes down what it finds. A run of `gradus eval` writes files, a server writes to its store.

use gradus_core::trajectory::Trajectory;

use crate::outcome::OutcomeLine;
use crate::prompt::TruncatedValue;
use crate::run::{CachedVerdict, QuestionKey, RunFileError};
use crate::verdict::ParsedVerdict;

/// What it took to ask a question, whatever came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuestionCost {
    pub calls: u32,
    /// What counts against a limit: what the endpoint reports, or, where it does not, the most it can have been.
    pub cost_usd: f64,
    /// Whether the price of a call is known.
    pub is_priced: bool,
    /// There is no answer, and that is the endpoint's fault: it is down, overloaded, or does not speak as it should.
    pub is_endpoint_at_fault: bool,
}

/// A run's memory.
pub trait RunLedger {
    /// Keeps a trajectory; true when the run has met exactly this one before, so that its answers still hold.
    fn trajectory(&mut self, trajectory: &mut Trajectory) -> Result<bool, RunFileError>;

    /// How many questions a trajectory comes to. Their outcomes follow.
    fn planned(&mut self, _trajectory_id: &str, _questions: usize) {}

    fn outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError>;

    /// The outcome of a question that was asked and answered. Comes after its verdict was handed to [`RunLedger::store_verdict`].
    fn answered(&mut self, line: &OutcomeLine, _key: QuestionKey) -> Result<(), RunFileError> {
        self.outcome(line)
    }

    /// What a question of this trajectory took. Comes before its outcome, and also where there will be none.
    fn asked(&mut self, _trajectory_id: &str, _effort: QuestionCost) {}

    fn cached(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError>;

    fn cache(
        &mut self,
        key: QuestionKey,
        reading: &ParsedVerdict,
        shortened: &[TruncatedValue],
    ) -> Result<(), RunFileError>;

    /// Makes what came so far survive this process.
    fn write(&mut self) -> Result<(), RunFileError>;

    /// The same when much has come together.
    fn write_if_long(&mut self) -> Result<(), RunFileError> {
        Ok(())
    }

    /// Called a few times a second.
    fn write_all(&mut self) -> Result<(), RunFileError> {
        self.write()
    }

    fn close(&mut self) -> Result<(), RunFileError> {
        self.write_all()
    }
}
