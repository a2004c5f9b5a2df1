//! Sources that are not files: `store:PROJECT` of the local store, `gradus://` of a running server, and a store given
//! by the path of its database. `ingest` does not know them and resolves them by `SourceResolver`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gradus_http::SecretString;
use gradus_ingest::{SourceError, SourceResolver, TraceSource};
use gradus_server::{ServerSource, StoreSource};

/// Prefix of a project of the local store; without a name after it, all projects.
const STORE_PREFIX: &str = "store:";

/// Resolves names of stores and servers.
#[derive(Clone, Debug)]
pub(crate) struct StoreAndServerResolver {
    /// The state folder with the local store.
    pub(crate) state_dir: PathBuf,
    /// GRADUS_STORE: the address of a store elsewhere.
    pub(crate) store: Option<SecretString>,
    /// GRADUS_API_KEY, sent to servers that are named as `gradus://` sources.
    pub(crate) server_key: Option<SecretString>,
}

impl SourceResolver for StoreAndServerResolver {
    fn resolve(&self, source: &str) -> Option<Result<Arc<dyn TraceSource>, SourceError>> {
        if let Some(server) = ServerSource::parse(source, self.server_key.clone()) {
            return Some(server.map(|server| Arc::new(server) as Arc<dyn TraceSource>));
        }
        let project = source.strip_prefix(STORE_PREFIX)?;
        let project = (!project.is_empty()).then(|| project.to_owned());
        let path = self.state_dir.join(gradus_store::DATABASE_FILE_NAME);
        let address = self.store.as_ref().map(|store| store.expose().to_owned());
        Some(Ok(Arc::new(StoreSource { path, address, project })))
    }

    fn open_database(&self, path: &Path) -> Option<Arc<dyn TraceSource>> {
        Some(Arc::new(StoreSource { path: path.to_owned(), address: None, project: None }))
    }
}

/// Returns the tool whose sessions one of these sources holds, if there is one: files and folders that a coding agent
/// writes for its user.
pub(crate) fn find_personal_session(sources: &[String]) -> Option<&'static str> {
    let files = sources.iter().filter(|source| Path::new(source).exists());
    files.into_iter().find_map(|source| gradus_ingest::find_personal_session(source))
}
