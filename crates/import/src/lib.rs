//! Reads what other agents, harnesses and backends write down: session files of coding agents, exports of tracing
//! backends, logs of benchmarks. A format is read only on positive evidence; records that are known but not readable
//! are named instead of guessed.
//!
//! Three kinds of formats, one table each:
//!
//! - [`SessionFormat`]: consecutive records of one conversation, as JSON lines or as elements of one list. The
//!   reader sees record by record, so that memory does not grow with the file.
//! - [`DocumentFormat`]: JSON objects that are complete in themselves, as a file or as a line.
//! - [`UnreadableFormat`]: what is recognised and not read, with the reason.
//!
//! Tables of spans are read by [`read_csv_table`] and, with the feature `parquet`, by `read_parquet_table`; a table of
//! another kind is named by [`describe_unreadable_table`].
//!
//! Readers fill a [`SessionBuilder`], which makes a trajectory of each request, or hand spans to the [`ImportSink`].

mod base64_text;
mod exports;
mod format_kinds;
mod format_list;
mod import_sink;
mod json_fields;
mod record_head;
mod session_builder;
mod session_folders;
mod sessions;
mod tables;
mod timestamps;
mod turn_draft;

pub use exports::inspect_archive::{ArchiveLimits, read_inspect_archive};
pub use format_kinds::{DocumentFormat, DocumentReadFn, SessionFormat, SessionReader, UnreadableFormat};
pub use format_list::{
    DOCUMENT_FORMATS, SESSION_FORMATS, UNREADABLE_FORMATS, is_foreign_span, is_mlflow_span, is_personal_document,
};
pub use import_sink::{ImportError, ImportSink, ImportedTurn, SubagentStart};
pub use record_head::read_first_records;
pub use session_builder::SessionBuilder;
pub use session_folders::{
    FoundSessions, SESSION_LOCATIONS, SessionFilePattern, SessionLocation, find_session_folders,
};
#[cfg(feature = "parquet")]
pub use tables::read_parquet_table;
pub use tables::{describe_unreadable_table, matches_span_table, read_csv_table, read_table_header};
pub use turn_draft::{ImportedCall, ImportedResult, ResultStatus};
