//! Archives of traces: Parquet files that other engines read as a table, and that Gradus reads part by part.
//!
//! ```text
//! ARCHIVE/spans/v1/date=2026-11-17/shard=03/part-0.parquet
//! ARCHIVE/manifest.json                       written last: without it the archive is not complete
//! ```
//!
//! A row is a trace with its records as one OTLP export. Traces that are assembled together have the same `group_id`,
//! which decides the shard, so that each shard can be graded on its own. Rows are sorted by group and trace.

mod archive_reader;
mod archive_writer;
mod folder_storage;
mod manifest;
mod storage;

pub use archive_reader::{FetchedShard, TraceArchive};
pub use archive_writer::{ArchiveWriter, MAX_SHARDS};
pub use folder_storage::FolderStorage;
pub use manifest::{ArchiveManifest, ArchivePart, MANIFEST_FILE_NAME as MANIFEST_NAME};
pub use storage::{ArchiveStorage, MAX_MANIFEST_BYTES, StoredObject};

/// Why an archive cannot be written or read. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    /// An error of storage that is no folder, with its complete message.
    #[error(transparent)]
    Storage(Box<dyn std::error::Error + Send + Sync>),
    #[error("{path}: {reason}")]
    Parquet { path: String, reason: String },
    #[error("{path}: there is an archive already\nhint: archives do not change; choose a new location")]
    Exists { path: String },
    #[error("{path}: another gradus is writing this archive\nhint: wait for it, or choose a new location")]
    InUse { path: String },
    #[error("{path}: it is not empty\nhint: an archive needs a new location")]
    NotEmpty { path: String },
    #[error(
        "{path}: an archive without manifest.json: writing it was interrupted\nhint: run the same `gradus store archive` again to complete it"
    )]
    Incomplete { path: String },
    #[error("{path}: not an archive: there is no manifest.json")]
    NotArchive { path: String },
    #[error("{path}: not a manifest of an archive: {reason}")]
    BadManifest { path: String, reason: String },
    #[error("{path}: version {version} of the layout is newer than this program; update gradus")]
    TooNew { path: String, version: u32 },
    #[error("{path}: the manifest names this part, and it is missing")]
    PartMissing { path: String },
    #[error("{path}: its checksum is not that of the manifest: the file was changed or damaged")]
    Checksum { path: String },
}
