//! Several reads of the server's own work in one transaction. A transaction for each read would empty the page cache of
//! the connection whenever something was written in between.

use gradus_core::span::TraceId;

use crate::Store;
use crate::error::StoreError;
use crate::query::{EarlierTurnRow, StoredTraceGroup, TraceGroupLimits};
use crate::readers::PooledReader;

/// The state of the store at one moment. It holds a reading connection, so it is short-lived, and its owner reads
/// through it alone: taking a second connection could wait for ever. SQLite's write-ahead log cannot be reset meanwhile.
#[must_use]
pub struct StoreSnapshot<'s> {
    reader: PooledReader<'s>,
}

impl std::fmt::Debug for StoreSnapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSnapshot").finish_non_exhaustive()
    }
}

impl Store {
    /// Begins a snapshot. Waits until a reading connection is free.
    pub fn open_snapshot(&self) -> Result<StoreSnapshot<'_>, StoreError> {
        let reader = self.readers.take_reader()?;
        reader.begin_patient_snapshot()?;
        Ok(StoreSnapshot { reader })
    }
}

impl StoreSnapshot<'_> {
    /// The records of a trace group within limits; see [`StoredTraceGroup::is_cut`]. Records that arrive later put the
    /// group into the ready queue again.
    pub fn trace_group_within(
        &self,
        trace_group: i64,
        limits: TraceGroupLimits,
    ) -> Result<StoredTraceGroup, StoreError> {
        crate::query::read_trace_group(&self.reader, trace_group, limits)
    }

    /// Trajectories of the session that began before this time, the latest first. `trace` identifies the project.
    pub fn earlier_session_turns(
        &self,
        trace: TraceId,
        session: &str,
        start_ns: i64,
        limit: usize,
    ) -> Result<Vec<EarlierTurnRow>, StoreError> {
        crate::query::read_earlier_turns(&self.reader, trace, session, start_ns, limit)
    }

    /// The stored trajectory as JSON; `None` also if it has more than `max_bytes`.
    pub fn trajectory_json_within(&self, trajectory_id: &str, max_bytes: u64) -> Result<Option<Vec<u8>>, StoreError> {
        crate::query::read_trajectory_json(&self.reader, trajectory_id, max_bytes)
    }
}

impl Drop for StoreSnapshot<'_> {
    fn drop(&mut self) {
        self.reader.end_snapshot();
    }
}
