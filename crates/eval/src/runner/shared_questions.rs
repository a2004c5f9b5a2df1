//! Questions of a run that shares answers and limits with other processes.

use super::asked_question::{JudgeAsk, UnaskedReason};
use super::evaluation_runner::EvaluationRunner;
use super::run_plan::RunTermination;
use crate::outcome::EvaluationOutcome;
use crate::run::{QuestionKey, RunFileError};

impl EvaluationRunner<'_> {
    /// Records a question that another process answered, or that no limit admits, and the identical ones that waited
    /// for it.
    pub(super) fn finish_unasked(
        &mut self,
        ask: JudgeAsk,
        key: QuestionKey,
        reserved_usd: f64,
        reason: &UnaskedReason,
    ) -> Result<(), RunFileError> {
        let waiting = self.end_in_flight(key, reserved_usd);
        if let UnaskedReason::Exhausted(reason) = reason {
            // No outcome is recorded: these questions stay open for the next run.
            self.stopping.get_or_insert_with(|| RunTermination::Limit(reason.clone()));
            return Ok(());
        }
        for ask in std::iter::once(ask).chain(waiting) {
            match reason {
                UnaskedReason::Answered(verdict, shortened) => {
                    self.record_cached(&ask, key, verdict.clone(), shortened.clone())?;
                }
                UnaskedReason::Refused(reason) if ask.ballot.is_some() => {
                    self.cast_missing_vote(&ask, key, reason.clone())?;
                }
                UnaskedReason::Refused(reason) | UnaskedReason::Exhausted(reason) => {
                    let outcome = EvaluationOutcome::Failed { reason: reason.clone() };
                    let mut line = self.planner.build_blank_line(&ask.job).with(outcome);
                    line.cost_usd = Some(0.0);
                    self.record_outcome(&line)?;
                }
            }
        }
        Ok(())
    }
}
