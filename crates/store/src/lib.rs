//! Stores received records and everything that was derived from them in one SQLite file, which is created at first use.
//!
//! No SQL is visible outside, so another engine could replace this crate. All writes go through one thread
//! ([`WriteHandle`] resolves when they are durable); reads run concurrently and never wait for it. The store does not
//! interpret spans: bodies are compressed OTLP export requests.

mod alert_events;
mod alert_rules;
mod anchor_sets;
mod annotations;
mod buckets;
mod check;
mod coarse_rollup;
mod compaction;
mod compress;
mod connection;
mod engine;
mod error;
mod facets;
mod failures;
mod file_guard;
mod files;
mod grading;
mod index_words;
mod ingest;
mod judge_calls;
mod keys;
mod lease;
mod location;
mod monitor;
mod node_settings;
#[cfg(feature = "postgres")]
mod postgres_server;
mod project_numbers;
mod projects;
mod query;
mod random_digits;
mod readers;
mod ready_queue;
mod records;
mod retention;
mod rollup;
mod short_writes;
mod spend;
mod sql;
#[cfg(feature = "postgres")]
mod staged_ingest;
mod store_copy;
mod store_snapshot;
mod transfer;
mod transfer_tables;
mod ungraded;
mod usage;
mod write_queue;
mod writer;
mod writer_connection;
mod writer_health;

pub use crate::records::BlockSignal;
pub use crate::records::{FailureGroupKey, OutcomeRecord, RecordedKind, TrajectoryRecord};
pub use alert_events::AlertEvent;
pub use alert_rules::{AlertMuteRow, AlertRuleRow};
pub use anchor_sets::AnchorSetRow;
pub use annotations::{AnnotationFilter, AnnotationRecord, NewAnnotation};
pub use check::CheckReport;
pub use coarse_rollup::NameKind;
pub use connection::{schema_version, sqlite_version};
pub use error::StoreError;
pub use failures::{FailureGroupNote, UngroupedVerdict};
pub use grading::{AssembledTraceGroup, TrajectoryDigest};
pub use ingest::{IngestCounts, LinkKind, RootSpan, SpanKey, TraceChunk};
pub use judge_calls::{CallAdmission, CallTicket, JudgeCall};
pub use keys::{KeyRow, KeyScopes, UnknownScope, new_key};
pub use location::{StoreLocation, is_postgres_address};
pub use monitor::{QueryInterrupt, QueryMonitor, QueryStop, check_query, run_monitored};
pub use node_settings::NodeRow;
pub use projects::ProjectInfo;
pub use query::{
    AnnotationQuery, BUCKET_NS, ComparedGroupRow, ComparedOutcome, ComparedRunRow, ComparedRuns, EarlierTurnRow,
    ExampleRow, FailureGroupList, FailureGroupOptions, FailureGroupRow, FailureTrajectoryRow, GradedTrajectory,
    GroupTotals, JudgedCaseRow, LabelRow, LatestOverview, MAX_SORTED_TRACES, MetricFilter, MetricGroup, MetricPeriod,
    MetricPeriods, MetricRow, NameScoreRow, NameScoreTable, OverviewTotals, PagePosition, ProjectPosition, ProjectRow,
    RecentOutcomeRow, ReviewFilter, ReviewItem, ReviewPosition, ReviewProgress, RunEndingRow, ScoreBound, ScoreMoments,
    ScoreRow, SessionFilter, SessionListCursor, SessionRow, SessionSummary, SessionSummaryPage, SessionTotals,
    SessionTrace, SessionTurnPage, SessionTurnRow, SortedTraces, StoreProgress, StoredBlock, StoredTraceGroup, TaskRow,
    ToolSums, TraceCount, TraceFilter, TraceGroupLimits, TraceListCursor, TraceOrder, TraceRecords, TraceRow,
    TraceRowPage, TraceWalk, TrajectoryRow, TrajectoryUsage, TrajectoryWindow, UsagePeriods, VerdictLine, VersionRow,
};
pub use ready_queue::{MAX_ATTEMPTS, QuarantinedTrace, ReadyQuery, ReadyTraceGroup};
pub use retention::{RemovalCounts, RetentionPolicy};
pub use spend::{JudgeSpend, SpendTotal};
pub use store_copy::{CopiedTable, SearchTextBuilder, copy_store};
pub use store_snapshot::StoreSnapshot;
pub use transfer::TransferCounts;
pub use ungraded::{GradingBacklog, RemainingGrading, UngradedTrajectory};
pub use write_queue::WriteLane;
pub use writer::WriteHandle;
pub use writer_health::WriterStatus;

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::StoreEngine;
use gradus_core::span::TraceId;
use lease::ClusterNode;
use readers::ReaderPool;
use short_writes::ShortWrites;
use writer::StoreWriter;

/// Name of the database file inside its folder.
pub const DATABASE_FILE_NAME: &str = "gradus.db";

/// An open store. Shared by all threads; every method takes `&self`.
pub struct Store {
    engine: StoreEngine,
    readers: Arc<ReaderPool>,
    /// For key lookups only, so that senders never wait for queries.
    key_reader: keys::KeyReader,
    /// `None` if the store was opened for reading only.
    writer: Option<StoreWriter>,
    /// This server among those that share the database.
    node: ClusterNode,
    /// For short transactions that must not wait for the writer thread.
    short_writes: ShortWrites,
    calls: judge_calls::OpenCalls,
    /// Held open: the operating system releases the lock when the process ends, however it ends.
    _lock: Option<File>,
}

/// Settings of the writer.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Maximum bytes in the write queue. Beyond them, writes fail with [`StoreError::Busy`].
    pub max_queued_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions { max_queued_bytes: 64 << 20 }
    }
}

impl Store {
    /// Opens the store in a folder for this process alone. Creates folder and store if necessary.
    pub fn open(folder: &Path, options: StoreOptions) -> Result<Store, StoreError> {
        Store::open_folder(folder, options)?.require_complete()
    }

    /// As [`Store::open`], also if a copy into the store is incomplete.
    pub(crate) fn open_folder(folder: &Path, options: StoreOptions) -> Result<Store, StoreError> {
        let not_writable = |error: std::io::Error| StoreError::not_writable(folder, &error);
        create_private_folder(folder).map_err(not_writable)?;
        // The data must not be committed to a repository by accident.
        let ignore = folder.join(".gitignore");
        if !ignore.exists() {
            std::fs::write(ignore, "*\n").map_err(not_writable)?;
        }
        let lock = lock_store_folder(folder)?;
        let path = folder.join(DATABASE_FILE_NAME);
        Store::with_engine(StoreEngine::File(path), Some(lock), options)
    }

    /// Starts the writer and the pool of readers.
    fn with_engine(engine: StoreEngine, lock: Option<File>, options: StoreOptions) -> Result<Store, StoreError> {
        let readers = Arc::new(ReaderPool::new(engine.clone()));
        let node = match engine.file() {
            Some(_) => ClusterNode::standalone()?,
            None => ClusterNode::join(engine.clone())?,
        };
        let name = node.name().to_owned();
        let writer = StoreWriter::start(engine.clone(), name, Arc::clone(&readers), options.max_queued_bytes)?;
        let key_reader = keys::KeyReader::new(engine.clone());
        let (short_writes, calls) = <(ShortWrites, judge_calls::OpenCalls)>::default();
        Ok(Store { engine, readers, key_reader, writer: Some(writer), node, short_writes, calls, _lock: lock })
    }

    /// Opens the file of a store for reading, also while a server uses it. A store that an older version made is migrated
    /// first, which fails while a server of that version uses it.
    pub fn open_to_read(path: &Path) -> Result<Store, StoreError> {
        check_existing_store(path)?;
        connection::upgrade_store(path)?;
        Store::with_engine_to_read(StoreEngine::File(path.to_owned()))?.require_complete()
    }

    /// Only the pool of readers.
    fn with_engine_to_read(engine: StoreEngine) -> Result<Store, StoreError> {
        let readers = Arc::new(ReaderPool::new(engine.clone()));
        drop(readers.take_reader()?);
        let key_reader = keys::KeyReader::new(engine.clone());
        let (short_writes, calls) = <(ShortWrites, judge_calls::OpenCalls)>::default();
        let node = ClusterNode::standalone()?;
        Ok(Store { engine, readers, key_reader, writer: None, node, short_writes, calls, _lock: None })
    }

    /// The format of a store that an older version made, and that of this version; `None` if they are the same. Changes
    /// nothing.
    pub fn pending_upgrade(path: &Path) -> Result<Option<(i64, i64)>, StoreError> {
        check_existing_store(path)?;
        connection::pending_upgrade(path)
    }

    /// Whether writes are expected to succeed, judged by the latest ones: while none succeeds, the writer makes trial
    /// writes. Does not access the store.
    pub fn is_writable(&self) -> bool {
        let is_failing = |writer: &StoreWriter| writer.status.is_failing.load(Ordering::Relaxed);
        !self.node.is_failing() && !self.writer.as_ref().is_none_or(is_failing) && self.check_files().is_ok()
    }

    /// Whether the files of the store are still those that were opened. The writer checks this before every
    /// acknowledgement; this is for health checks in between.
    pub fn check_files(&self) -> Result<(), StoreError> {
        self.writer.as_ref().map_or(Ok(()), |writer| writer.check_files().map(drop))
    }

    /// Stores the records of one request: all of them or none. The handle resolves after the commit.
    pub fn ingest(&self, chunks: Vec<TraceChunk>, now_ns: i64) -> Result<WriteHandle<IngestCounts>, StoreError> {
        self.ingest_in_lane(WriteLane::INTERNAL, chunks, now_ns)
    }

    /// As [`Store::ingest`], in the queue of one client: its requests wait behind each other, and not in front of those
    /// of others.
    pub fn ingest_in_lane(
        &self,
        lane: WriteLane,
        chunks: Vec<TraceChunk>,
        now_ns: i64,
    ) -> Result<WriteHandle<IngestCounts>, StoreError> {
        let bytes = chunks.iter().map(TraceChunk::memory_bytes).sum();
        let now_ns = self.node.shared_time_ns(now_ns);
        let writer = self.writer()?;
        writer.submit_in_lane(lane, bytes, move |writing| match writing.sql {
            #[cfg(feature = "postgres")]
            sql::SqlConnection::Postgres(connection) => {
                staged_ingest::ingest_staged(writing, connection, &chunks, now_ns)
            }
            sql::SqlConnection::Sqlite(_) => ingest::ingest_chunks(writing, &chunks, now_ns),
        })
    }

    /// Links traces by features that only assembling could find. Returns whether trace groups were merged; those
    /// enter the ready queue.
    pub fn link_traces(
        &self,
        links: Vec<(TraceId, LinkKind, u64)>,
        now_ns: i64,
    ) -> Result<WriteHandle<bool>, StoreError> {
        self.writer()?.submit(links.len() * 32, move |writing| {
            let mut has_united = false;
            for (trace, kind, key) in &links {
                has_united |= ingest::link_assembled_trace(writing.sql, *trace, &[(*kind, *key)], now_ns)?;
            }
            Ok(has_united)
        })
    }

    /// Where the store is, for messages: the path of the file, or the address of the database server without a password.
    pub fn location(&self) -> String {
        self.engine.to_string()
    }

    /// Whether several servers may use the store at the same time.
    pub fn is_shared(&self) -> bool {
        self.engine.file().is_none()
    }

    /// Whether this server runs the tasks that only one server of a database may run, such as sending alerts. Always
    /// true for an embedded store.
    pub fn is_leader(&self) -> bool {
        self.node.is_leader()
    }

    /// State of the writer; `None` if the store is open for reading only.
    pub fn writer_status(&self) -> Option<Arc<WriterStatus>> {
        self.writer.as_ref().map(|writer| Arc::clone(&writer.status))
    }

    /// Bytes in use, and free bytes inside the file.
    pub fn used_and_free_bytes(&self) -> Result<(u64, u64), StoreError> {
        let reader = self.readers.take_reader()?;
        let Some(reader) = reader.sqlite() else {
            // PostgreSQL reuses the space of removed rows, so the size of its files says little.
            let used = reader.query_row("SELECT coalesce(sum(bytes), 0) FROM project_count", (), |row| row.get(0))?;
            return Ok((used, 0));
        };
        let number = |name: &str| reader.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        let (pages, free, bytes) = (number("page_count")?, number("freelist_count")?, number("page_size")?);
        Ok((pages.saturating_sub(free) * bytes, free * bytes))
    }

    /// The writer, or [`StoreError::Closed`] for a store that was opened for reading.
    fn writer(&self) -> Result<&StoreWriter, StoreError> {
        self.writer.as_ref().ok_or(StoreError::Closed)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("location", &self.location()).finish_non_exhaustive()
    }
}

/// Fails if there is no database file, or if it was truncated to nothing.
fn check_existing_store(path: &Path) -> Result<(), StoreError> {
    if !path.is_file() {
        return Err(StoreError::Missing { path: path.to_owned() });
    }
    files::check_database_file(path).map(drop)
}

/// Creates a folder that only its owner can read: traces contain what people asked.
fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Creates a file that only its owner can read. An existing file is an error.
pub fn create_private_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Takes the lock of the folder, which the operating system releases with the process. SQLite's own locks would allow
/// several writing processes.
fn lock_store_folder(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join("gradus.lock");
    let not_writable = |error: std::io::Error| StoreError::not_writable(&path, &error);
    let file = File::create(&path).map_err(not_writable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::InUse { path: folder.to_owned() }),
        Err(std::fs::TryLockError::Error(error)) => Err(not_writable(error)),
    }
}
