//! A run is read once, and summed up.

use super::RunReader;
use super::counter::SummaryBuilder;
use super::summary::EvaluationSummary;
use crate::run::RunFileError;

impl EvaluationSummary {
    pub fn from_run(reader: &mut RunReader) -> Result<EvaluationSummary, RunFileError> {
        let mut counter = SummaryBuilder::new(&reader.record);
        reader.visit_trajectories(|trajectory, outcomes| {
            counter.add(trajectory, outcomes);
            Ok::<(), RunFileError>(())
        })?;
        reader.visit_superseded(|line| counter.add_cost(line))?;
        Ok(counter.finish(&reader.record))
    }
}
