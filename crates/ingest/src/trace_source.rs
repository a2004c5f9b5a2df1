//! Sources that are no files, and who finds them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::SourceError;
use crate::intake::RecordIntake;

/// Something to read traces from that is no file: a store, a server, a Phoenix.
pub trait TraceSource: fmt::Debug + Send + Sync {
    /// As the user wrote it.
    fn name(&self) -> &str;
    /// Hands all its records to the intake.
    fn read(&self, intake: &mut RecordIntake<'_>) -> Result<(), SourceError>;
}

/// Finds the sources that are no files.
pub trait SourceResolver {
    /// The source behind what a user wrote; None where it is none of this resolver's.
    fn resolve(&self, source: &str) -> Option<Result<Arc<dyn TraceSource>, SourceError>>;
    /// A file that is a database.
    fn open_database(&self, path: &Path) -> Option<Arc<dyn TraceSource>>;
}

/// Knows no sources but files.
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
