//! Reads sources into trajectories: files, folders and standard input, compressed or not, in any known format, and
//! everything else that implements [`TraceSource`].
//!
//! Two passes. While sources are read, each span goes into the spool as bytes, and only its trace and its links are
//! kept in memory. When all sources are read, the traces that belong together are fetched group by group and assembled.
//! So memory is bounded by one group, and a trace may be spread over any number of files.
//!
//! Stores, servers and Phoenix are not known here: the command line passes them in through [`SourceResolver`].

#[cfg(feature = "parquet")]
pub mod archive;
mod bounded_lines;
mod detect;
mod document_error;
mod error;
mod groups;
mod hidden_folders;
mod imported_turns;
mod imports;
mod intake;
mod json;
mod limits;
mod open;
mod parallel;
mod protobuf;
mod read_ahead;
mod records;
mod selection;
mod shapes;
mod source_reader;
mod spool;
mod text;
mod trace_source;
mod turn_links;
mod unread_tools;

pub use crate::records::{ReadSummary, TrajectorySink};
pub use error::{ReadError, SourceError};
pub use imports::find_personal_session;
pub use intake::{MAX_LINKED_ON_ARRIVAL, RecordIntake};
pub use limits::{GroupLimits, SourceLimits};
pub use open::{InputSource, expand_source};
pub use protobuf::read_protobuf_export as read_export;
pub use selection::{SpanCondition, TraceSelection, TraceSelectionError};
pub use source_reader::{read_files, read_input_source, read_stream};
pub use trace_source::{FilesOnly, SourceResolver, TraceSource};
