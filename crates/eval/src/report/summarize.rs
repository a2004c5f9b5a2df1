//! A run is read once, and summed up.

use super::RunReader;
use super::counter::Counter;
use super::summary::Summary;
use crate::run::RunFileError;

impl Summary {
    pub fn of(reader: &mut RunReader) -> Result<Summary, RunFileError> {
        let mut counter = Counter::new(&reader.record);
        reader.visit(|trajectory, outcomes| {
            counter.add(trajectory, outcomes);
            Ok::<(), RunFileError>(())
        })?;
        reader.visit_superseded(|line| counter.add_cost(line))?;
        Ok(counter.finish(&reader.record))
    }
}
