//! Reads a run once and summarises it.

use super::RunReader;
use super::summary::EvaluationSummary;
use super::summary_builder::SummaryBuilder;
use crate::run::RunFileError;

impl EvaluationSummary {
    /// Summarises a run. Trajectories are visited one at a time, so memory does not grow with the run. Only the cost
    /// of superseded outcomes counts.
    pub fn from_run(reader: &mut RunReader) -> Result<EvaluationSummary, RunFileError> {
        let mut builder = SummaryBuilder::new(&reader.record);
        reader.visit_trajectories(|trajectory, outcomes| {
            builder.add_trajectory(trajectory, outcomes);
            Ok::<(), RunFileError>(())
        })?;
        reader.visit_superseded(|line| builder.add_superseded(line))?;
        Ok(builder.finish(&reader.record))
    }
}
