//! Projects of a local store as sources.

use std::path::Path;

use gradus_store::{Store, StoreError};

use super::SourceError;
use super::intake::Intake;

/// How every SQLite file begins.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// Reads one project of a store, or all of them, also while a server uses it.
pub(super) fn read(path: &Path, project: Option<&str>, intake: &mut Intake<'_>) -> Result<(), SourceError> {
    let name = path.display().to_string();
    let failed = |error: StoreError| match error {
        // These say where they are.
        error @ (StoreError::Missing { .. } | StoreError::Damaged { .. } | StoreError::TooNew { .. }) => {
            SourceError::Told(error.to_string())
        }
        error => SourceError::Unreadable { name: name.clone(), reason: error.to_string() },
    };
    let store = Store::open_to_read(path).map_err(failed)?;
    let known: Vec<String> = store.projects().map_err(failed)?.into_iter().map(|row| row.name).collect();
    let wanted: Vec<&String> =
        known.iter().filter(|known| project.is_none_or(|name| name == *known)).collect();
    if wanted.is_empty() {
        return Err(SourceError::no_project(&name, project.unwrap_or_default(), &known));
    }
    for project in wanted {
        intake.begin_project(project);
        let mut after = None;
        while let Some((page, last)) = store.project_page(project, after).map_err(failed)? {
            crate::stored_records::write_otlp(&page, &mut |export| intake.export(export));
            after = Some(last);
        }
    }
    Ok(())
}
