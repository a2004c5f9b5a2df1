//! Sources that are not files. This crate does not know stores, servers or Phoenix; the command line passes them in.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::SourceError;
use crate::intake::RecordIntake;

/// A source of traces that is not a file: a store, a server, a Phoenix.
pub trait TraceSource: fmt::Debug + Send + Sync {
    /// As the user wrote it.
    fn name(&self) -> &str;
    /// Adds all its records to the intake. Should read no more than the selection of the intake asks for, where it can.
    fn read(&self, intake: &mut RecordIntake<'_>) -> Result<(), SourceError>;
}

/// Recognises sources that are not files.
pub trait SourceResolver {
    /// The source that an argument names; `None` if it is not one of this resolver's, so that it may be a file.
    fn resolve(&self, source: &str) -> Option<Result<Arc<dyn TraceSource>, SourceError>>;
    /// The source for a file that begins with SQLite's magic number; `None` if it is not one of the known databases.
    fn open_database(&self, path: &Path) -> Option<Arc<dyn TraceSource>>;
}

/// A resolver that recognises nothing, for callers that read files only.
#[derive(Clone, Copy, Debug)]
pub struct FilesOnly;

impl SourceResolver for FilesOnly {
    fn resolve(&self, _: &str) -> Option<Result<Arc<dyn TraceSource>, SourceError>> {
        None
    }

    fn open_database(&self, _: &Path) -> Option<Arc<dyn TraceSource>> {
        None
    }
}
