//! Reads a run once and summarises it.

use super::RunReader;
use super::counter::SummaryBuilder;
use super::summary::EvaluationSummary;
use crate::run::RunFileError;

impl EvaluationSummary {
    /// Summarises a run. Trajectories are visited one at a time, so memory does not grow with the run. Only the cost
    /// of superseded outcomes counts.
    pub fn from_run(reader: &mut RunReader) -> Result<EvaluationSummary, RunFileError> {
        let mut counter = SummaryBuilder::new(&reader.record);
        reader.visit_trajectories(|trajectory, outcomes| {
            counter.add(trajectory, outcomes);
            Ok::<(), RunFileError>(())
        })?;
        reader.visit_superseded(|line| counter.add_superseded(line))?;
        Ok(counter.finish(&reader.record))
    }
}
