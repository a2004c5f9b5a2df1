//! The test harness of live grading: a real store with one trajectory that waits for a model.

use gradus_core::span::{SpanId, TraceId};
use gradus_store::{
    AssembledTraceGroup, BlockSignal, SpanKey, Store, StoreOptions, TraceChunk, TrajectoryRecord, UngradedTrajectory,
};

/// A store in a temporary folder, which is deleted on drop.
pub(super) struct Lab {
    folder: tempfile::TempDir,
    pub(super) store: Store,
}

impl Lab {
    pub(super) fn new(max_queued_bytes: usize) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions { max_queued_bytes }).unwrap();
        let mut chunk = TraceChunk::new(TraceId(1), "p".into(), BlockSignal::Spans, b"");
        chunk.spans.push(SpanKey { span_id: SpanId(1), digest: 1, has_ended: true, is_error: false });
        store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
        let trace_group = store.trace(TraceId(1)).unwrap().unwrap().trace_group;
        let record = TrajectoryRecord {
            trajectory_id: "t".to_owned(),
            trace_id: TraceId(1),
            json: b"{}".to_vec(),
            ungraded_by: Some("r".to_owned()),
            ..TrajectoryRecord::default()
        };
        let trace_groups = vec![AssembledTraceGroup { trace_group, due_ns: None, records: vec![record] }];
        store.store_assembled_groups(trace_groups, 2).unwrap().wait().unwrap();
        Lab { folder, store }
    }

    pub(super) fn ungraded(&self, now_ns: i64) -> Option<UngradedTrajectory> {
        self.store.ungraded_trajectories("r", now_ns, 0, 1).unwrap().pop()
    }

    /// Waits until everything that was handed to the store is written. Writes are in order, so the last one proves the
    /// others.
    pub(super) fn flush(&self) {
        self.store.put_alert_state("flush".to_owned(), String::new(), None, 1).unwrap().wait().unwrap();
    }

    /// Holds the write lock of SQLite as another process would, so that the store cannot write.
    pub(super) fn hold(&self) -> rusqlite::Connection {
        let other = rusqlite::Connection::open(self.folder.path().join(gradus_store::DATABASE_FILE_NAME)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        other
    }
}
