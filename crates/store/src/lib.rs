//! Keeps what was received and what was found out about it: one SQLite file, made at first use.
//!
//! Nothing of SQL shows on the outside, so that another engine can take this crate's place. Writes go through one thread
//! ([`WriteHandle`] says when they are durable), reads go beside it and never wait for it. What a span means is not known
//! here: bodies are OTLP export requests, packed.

mod annotations;
mod buckets;
mod check;
mod compress;
mod connection;
mod error;
mod facets;
mod files;
mod grading;
mod ingest;
mod keys;
mod long;
mod monitor;
mod notes;
mod project_numbers;
mod projects;
mod query;
mod readers;
mod ready_queue;
mod records;
mod retention;
mod rollup;
mod spend;
mod transfer;
mod ungraded;
mod usage;
mod words;
mod write_queue;
mod writer;

pub use crate::records::BlockSignal;
pub use crate::records::{OutcomeRecord, RecordedKind, TrajectoryRecord};
pub use annotations::{AnnotationFilter, AnnotationRecord, NewAnnotation};
pub use check::CheckReport;
pub use error::StoreError;
pub use grading::{AssembledTraceGroup, TrajectoryDigest};
pub use ingest::{IngestCounts, LinkKind, RootSpan, SpanKey, TraceChunk};
pub use keys::{KeyRow, KeyScopes, UnknownScope, new_key};
pub use long::NameKind;
pub use monitor::{QueryInterrupt, QueryMonitor, QueryStop, check_query, run_monitored};
pub use notes::AlertEvent;
pub use projects::ProjectInfo;
pub use query::{
    AnnotationQuery, BUCKET_NS, ExampleRow, LabelRow, LatestOverview, MetricFilter, MetricGroup, MetricPeriod,
    MetricPeriods, MetricRow, OverviewTotals, PagePosition, ProjectPosition, ProjectRow, ReviewFilter, ReviewItem,
    ReviewPlace, ScoreBound, ScoreMoments, ScoreRow, SessionRow, SessionTrace, StoredBlock, StoredTraceGroup, TaskRow,
    ToolSums, TraceFilter, TraceGroupLimits, TraceListCursor, TraceRecords, TraceRow, TraceRowPage, TraceWalk,
    TrajectoryRow, TrajectoryUsage, TrajectoryWindow, UsagePeriods, VerdictLine, VersionRow,
};
pub use ready_queue::{MAX_ATTEMPTS, QuarantinedTrace, ReadyQuery, ReadyTraceGroup};
pub use retention::{RemovalCounts, RetentionPolicy};
pub use spend::{JudgeSpend, SpendTotal};
pub use transfer::TransferCounts;
pub use ungraded::{GradingBacklog, RemainingGrading, UngradedTrajectory};
pub use write_queue::WriteLane;
pub use writer::{WriteHandle, WriterStatus};

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gradus_core::span::TraceId;
use readers::ReaderPool;
use writer::StoreWriter;

/// The file's name inside of its folder.
pub const FILE_NAME: &str = "gradus.db";

/// An open store.
pub struct Store {
    path: PathBuf,
    readers: Arc<ReaderPool>,
    /// Where keys are looked up, and nothing else: whoever sends something waits for no query.
    key_reader: keys::KeyReader,
    /// `None` when it was opened for reading only.
    writer: Option<StoreWriter>,
    /// Kept open: the lock ends with the process, however it ends.
    _lock: Option<File>,
}

#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// What may wait to be written, in memory.
    pub most_queued_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions { most_queued_bytes: 64 << 20 }
    }
}

impl Store {
    /// Opens the store in a folder for this process alone; makes both if they are not there.
    pub fn open(folder: &Path, options: StoreOptions) -> Result<Store, StoreError> {
        let not_writable = |error: std::io::Error| StoreError::not_writable(folder, &error);
        make_folder(folder).map_err(not_writable)?;
        // What is kept here belongs to no repository.
        let ignore = folder.join(".gitignore");
        if !ignore.exists() {
            std::fs::write(ignore, "*\n").map_err(not_writable)?;
        }
        let lock = lock_store_folder(folder)?;
        let path = folder.join(FILE_NAME);
        let readers = Arc::new(ReaderPool::new(path.clone()));
        let connection = connection::open_writer(&path)?;
        let writer = StoreWriter::start(connection, Arc::clone(&readers), options.most_queued_bytes)?;
        let key_reader = keys::KeyReader::new(path.clone());
        Ok(Store { readers, key_reader, path, writer: Some(writer), _lock: Some(lock) })
    }

    /// Opens a store's file for reading, also while a server uses it.
    pub fn open_to_read(path: &Path) -> Result<Store, StoreError> {
        if !path.is_file() {
            return Err(StoreError::Missing { path: path.to_owned() });
        }
        files::check_database_file(path)?;
        let readers = Arc::new(ReaderPool::new(path.to_owned()));
        drop(readers.take_reader()?);
        let key_reader = keys::KeyReader::new(path.to_owned());
        Ok(Store { path: path.to_owned(), readers, key_reader, writer: None, _lock: None })
    }

    /// Writes about as much as a small request does, to find out whether that can be done.
    pub fn try_to_write(&self) -> Result<WriteHandle<()>, StoreError> {
        self.writer()?.submit(0, |writing| {
            // The name that no rule can have. The row stays, and is another each time: what is taken away in the same
            // transaction, or does not change, need not be written.
            let put = "INSERT OR REPLACE INTO alert_state (rule, state) VALUES ('', hex(randomblob(32768)))";
            writing.sql.execute(put, []).map(drop).map_err(StoreError::from)
        })
    }

    /// Whether the files of the store are what they were when it was opened; the writer looks before it acknowledges
    /// something, and this is for whoever wants to know in between.
    pub fn check_files(&self) -> Result<(), StoreError> {
        self.writer.as_ref().map_or(Ok(()), |writer| writer.files.check().map(drop))
    }

    /// Keeps the records of one request: all of them or none.
    pub fn ingest(&self, chunks: Vec<TraceChunk>, now_ns: i64) -> Result<WriteHandle<IngestCounts>, StoreError> {
        self.ingest_in_lane(WriteLane::INTERNAL, chunks, now_ns)
    }

    /// As [`Store::ingest`], for a client: its requests wait behind each other, not in front of those of others.
    pub fn ingest_in_lane(
        &self,
        lane: WriteLane,
        chunks: Vec<TraceChunk>,
        now_ns: i64,
    ) -> Result<WriteHandle<IngestCounts>, StoreError> {
        let bytes = chunks.iter().map(TraceChunk::memory_bytes).sum();
        let writer = self.writer()?;
        writer.submit_in_lane(lane, bytes, move |writing| ingest::ingest_chunks(writing, &chunks, now_ns))
    }

    /// Ties traces by what only their log records tell; true when trace groups became one, which are due then.
    pub fn link_traces(
        &self,
        links: Vec<(TraceId, LinkKind, u64)>,
        now_ns: i64,
    ) -> Result<WriteHandle<bool>, StoreError> {
        self.writer()?.submit(links.len() * 32, move |writing| {
            let mut has_united = false;
            for (trace, kind, key) in &links {
                has_united |= ingest::tie_later(writing.sql, *trace, &[(*kind, *key)], now_ns)?;
            }
            Ok(has_united)
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the writer is doing; `None` when the store is open for reading only.
    pub fn writer_status(&self) -> Option<Arc<WriterStatus>> {
        self.writer.as_ref().map(|writer| Arc::clone(&writer.status))
    }

    /// Bytes in use, and bytes of the file that are free.
    pub fn used_and_free_bytes(&self) -> Result<(u64, u64), StoreError> {
        let reader = self.readers.take_reader()?;
        let number = |name: &str| reader.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        let (pages, free, bytes) = (number("page_count")?, number("freelist_count")?, number("page_size")?);
        Ok((pages.saturating_sub(free) * bytes, free * bytes))
    }

    fn writer(&self) -> Result<&StoreWriter, StoreError> {
        self.writer.as_ref().ok_or(StoreError::Closed)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What agents were asked and what they did is for the eyes of whoever runs the server.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Makes a file that only its owner can read. What is there already is an error.
pub fn create_private(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

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
