//! Projects of a local store as trace sources.

use std::path::PathBuf;

use gradus_ingest::{RecordIntake, SourceError, TraceSource};
use gradus_store::{DATABASE_FILE_NAME, Store, StoreError, StoreLocation, is_postgres_address};

/// One project of a store, or all of them. The store is opened read-only, so a server may use it at the same time.
pub struct StoreSource {
    /// The database file.
    pub path: PathBuf,
    /// The address of a store, instead of the path.
    pub address: Option<String>,
    pub project: Option<String>,
}

/// Omits the address, which may contain a password.
impl std::fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSource").field("path", &self.path).field("project", &self.project).finish_non_exhaustive()
    }
}

impl TraceSource for StoreSource {
    fn name(&self) -> &str {
        self.project.as_deref().unwrap_or("store")
    }

    fn read(&self, intake: &mut RecordIntake<'_>) -> Result<(), SourceError> {
        let (path, project) = (&self.path, self.project.as_deref());
        let name = match &self.address {
            Some(address) if is_postgres_address(address) => "the store in PostgreSQL".to_owned(),
            Some(address) => address.clone(),
            None => path.display().to_string(),
        };
        let failed = |error: StoreError| match error {
            // A database of another program must not be reported as a damaged store.
            StoreError::Damaged { .. } if path.file_name() != Some(DATABASE_FILE_NAME.as_ref()) => {
                SourceError::Unrecognised {
                    name: name.clone(),
                    looks_like: "a SQLite database that is no Gradus store".to_owned(),
                }
            }
            // These errors name the location themselves.
            error @ (StoreError::Missing { .. }
            | StoreError::NoTables { .. }
            | StoreError::ForeignSchema { .. }
            | StoreError::Damaged { .. }
            | StoreError::TooNew { .. }) => SourceError::External(error.to_string()),
            error => SourceError::Unreadable { name: name.clone(), reason: error.to_string() },
        };
        let store = match &self.address {
            Some(address) => {
                StoreLocation::from_address(address).and_then(|location| Store::open_at_to_read(&location))
            }
            None => Store::open_to_read(path),
        }
        .map_err(failed)?;
        let known: Vec<String> = store.projects().map_err(failed)?.into_iter().map(|row| row.name).collect();
        let wanted: Vec<&String> = known.iter().filter(|known| project.is_none_or(|name| name == *known)).collect();
        if wanted.is_empty() {
            return Err(SourceError::no_project(&name, project.unwrap_or_default(), &known));
        }
        for project in wanted {
            intake.begin_project(project);
            // Page by page, so that only a few traces are in memory.
            let mut after = None;
            while let Some((page, last)) = store.read_project_page(project, after).map_err(failed)? {
                crate::stored_records::write_otlp(&page, &mut |export| intake.add_export(export));
                after = Some(last);
            }
        }
        Ok(())
    }
}
