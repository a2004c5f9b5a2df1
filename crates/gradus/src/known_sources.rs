//! Sources that are no files: projects of a local store, of a running server, of a Phoenix.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gradus_http::SecretString;
use gradus_ingest::{SourceError, SourceResolver, TraceSource};
use gradus_server::{ServerSource, StoreSource};

/// Before the name of a project of the local store.
const STORE: &str = "store:";

/// Finds stores and servers.
#[derive(Clone, Debug)]
pub(crate) struct KnownSources {
    /// Where the local store is.
    pub(crate) state_dir: PathBuf,
    /// For a server that wants one.
    pub(crate) server_key: Option<SecretString>,
}

impl SourceResolver for KnownSources {
    fn resolve(&self, source: &str) -> Option<Result<Arc<dyn TraceSource>, SourceError>> {
        if let Some(server) = ServerSource::parse(source, self.server_key.clone()) {
            return Some(server.map(|server| Arc::new(server) as Arc<dyn TraceSource>));
        }
        let project = source.strip_prefix(STORE)?;
        let project = (!project.is_empty()).then(|| project.to_owned());
        let path = self.state_dir.join(gradus_store::FILE_NAME);
        Some(Ok(Arc::new(StoreSource { path, project })))
    }

    fn open_database(&self, path: &Path) -> Option<Arc<dyn TraceSource>> {
        Some(Arc::new(StoreSource { path: path.to_owned(), project: None }))
    }
}
