//! The ledger of `gradus eval --stream`: outcomes go to standard output as they are found, and nothing is stored of the
//! run. Answers of judges are in the folder that processes share.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_eval::outcome::{ExportedOutcome, OutcomeLine};
use gradus_eval::run::{CachedVerdict, QuestionKey, RunFileError};
use gradus_eval::runner::RunLedger;
use gradus_eval::shared::QuestionCoordinator;
use serde::Serialize;

/// Bytes of lines that are written at once while only rules judge.
const BATCH_BYTES: usize = 1 << 16;

/// A block that could not be read, or not entirely: a line between the outcomes, so that it cannot be overlooked.
#[derive(Debug, Serialize)]
pub(super) struct UnreadableBlock {
    pub(super) outcome: &'static str,
    /// The name of the block.
    pub(super) block: String,
    pub(super) reason: String,
}

/// Filled by the thread that reads, emptied by the ledger.
pub(super) type UnreadableBlocks = Arc<Mutex<Vec<UnreadableBlock>>>;

pub(super) struct StreamLedger<W> {
    output: W,
    buffer: Vec<u8>,
    coordinator: Option<Arc<dyn QuestionCoordinator>>,
    /// Trajectories with outcomes to come, by id: what leads from an outcome to its spans, and how many are missing.
    open: HashMap<String, (Trajectory, usize)>,
    unreadable: UnreadableBlocks,
}

impl<W: Write> StreamLedger<W> {
    pub(super) fn new(
        output: W,
        coordinator: Option<Arc<dyn QuestionCoordinator>>,
        unreadable: UnreadableBlocks,
    ) -> StreamLedger<W> {
        StreamLedger { output, buffer: Vec::new(), coordinator, open: HashMap::new(), unreadable }
    }

    fn add_line(&mut self, line: &impl Serialize) -> Result<(), RunFileError> {
        serde_json::to_writer(&mut self.buffer, line).map_err(|error| output_error(error.into()))?;
        self.buffer.push(b'\n');
        Ok(())
    }
}

impl<W: Write> RunLedger for StreamLedger<W> {
    fn store_trajectory(&mut self, trajectory: &mut Trajectory) -> Result<bool, RunFileError> {
        self.open.insert(trajectory.trajectory_id.clone(), (without_texts(trajectory), usize::MAX));
        Ok(false)
    }

    fn set_question_count(&mut self, trajectory_id: &str, questions: usize) {
        if questions == 0 {
            self.open.remove(trajectory_id);
        } else if let Some((_, missing)) = self.open.get_mut(trajectory_id) {
            *missing = questions;
        }
    }

    fn store_outcome(&mut self, line: &OutcomeLine) -> Result<(), RunFileError> {
        let known = self.open.remove(&*line.trajectory_id);
        let (spans, missing) = known.unwrap_or_default();
        self.add_line(&ExportedOutcome::new(&spans, line))?;
        if missing > 1 {
            self.open.insert(line.trajectory_id.to_string(), (spans, missing - 1));
        }
        Ok(())
    }

    fn find_cached_verdict(&mut self, key: QuestionKey) -> Result<Option<CachedVerdict>, RunFileError> {
        self.coordinator.as_ref().map_or(Ok(None), |coordinator| coordinator.find_answer(key))
    }

    /// Stores nothing, because the coordinator already has the verdict.
    fn store_verdict(&mut self, _: QuestionKey, _: CachedVerdict) -> Result<(), RunFileError> {
        Ok(())
    }

    fn write(&mut self) -> Result<(), RunFileError> {
        let unreadable = std::mem::take(&mut *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner));
        unreadable.iter().try_for_each(|block| self.add_line(block))?;
        if !self.buffer.is_empty() {
            self.output.write_all(&self.buffer).and_then(|()| self.output.flush()).map_err(output_error)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn write_if_large(&mut self) -> Result<(), RunFileError> {
        if self.buffer.len() >= BATCH_BYTES { self.write() } else { Ok(()) }
    }
}

/// Returns a trajectory without its texts.
fn without_texts(trajectory: &Trajectory) -> Trajectory {
    let step = |step: &TrajectoryStep| TrajectoryStep {
        index: step.index,
        span_ids: step.span_ids.clone(),
        trace_id: step.trace_id.clone(),
        ..TrajectoryStep::default()
    };
    Trajectory {
        trace_ids: trajectory.trace_ids.clone(),
        root_span_id: trajectory.root_span_id.clone(),
        answer_span_ids: trajectory.answer_span_ids.clone(),
        steps: trajectory.steps.iter().map(step).collect(),
        ..Trajectory::default()
    }
}

fn output_error(reason: io::Error) -> RunFileError {
    RunFileError { path: "standard output".to_owned(), reason }
}
