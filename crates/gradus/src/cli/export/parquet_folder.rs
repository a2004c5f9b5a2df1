//! `--format parquet`: a folder with one file for each table, and the manifest.

use std::io;
use std::path::Path;

use gradus_export::training::TrainingCounts;

use super::scrubbed_rows::RowScrubber;
use super::{ExportArguments, GradedInput};

/// Why the folder was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParquetFolderError {
    #[error("--format parquet writes a folder: name it with --out")]
    NoFolder,
    #[error("{0}: cannot be written: it is a file, and Parquet needs a folder")]
    NotAFolder(String),
    #[cfg(not(feature = "parquet"))]
    #[error("this build cannot write Parquet\nhint: build with `--features parquet`, or export as jsonl")]
    NotBuilt,
    #[error("{path}: cannot be written: {source}")]
    Io { path: String, source: io::Error },
    /// Of the rows, not of the folder: a secret that was left, for example.
    #[error(transparent)]
    Rows(io::Error),
}

/// Writes all tables. They appear in the folder only when all are complete.
#[cfg(feature = "parquet")]
pub(super) fn write_parquet_folder(
    arguments: &ExportArguments,
    input: &GradedInput,
    mut scrubber: Option<&mut RowScrubber>,
) -> Result<(PendingFolder, TrainingCounts), ParquetFolderError> {
    use std::io::BufWriter;

    use gradus_export::{FlatTable, ParquetTableWriter, write_table_rows};

    use super::export_file::new_export_file;
    use super::scrubbed_rows::ScrubbedRows;

    let folder = check_folder(&arguments.out)?;
    let failed = |source: io::Error| ParquetFolderError::Io { path: folder.display().to_string(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut counts = TrainingCounts::default();
    let mut tables = Vec::new();
    for table in FlatTable::ALL {
        let file = BufWriter::new(new_export_file(folder).map_err(failed)?);
        let mut rows = ParquetTableWriter::new(table, file).map_err(failed)?;
        let written = match scrubber.as_deref_mut() {
            Some(scrubber) => write_table_rows(&input.runs, table, &mut ScrubbedRows::new(&mut rows, scrubber)),
            None => write_table_rows(&input.runs, table, &mut rows),
        };
        counts.rows += written.map_err(ParquetFolderError::Rows)?;
        let file = rows.finish().map_err(failed)?.into_inner().map_err(|error| failed(error.into_error()))?;
        tables.push((table.name(), file));
    }
    Ok((PendingFolder { folder: folder.to_owned(), tables }, counts))
}

#[cfg(not(feature = "parquet"))]
pub(super) fn write_parquet_folder(
    arguments: &ExportArguments,
    _: &GradedInput,
    _: Option<&mut RowScrubber>,
) -> Result<(PendingFolder, TrainingCounts), ParquetFolderError> {
    check_folder(&arguments.out)?;
    Err(ParquetFolderError::NotBuilt)
}

/// Tables that are complete and not renamed to their final names yet.
#[cfg(feature = "parquet")]
pub(super) struct PendingFolder {
    folder: std::path::PathBuf,
    tables: Vec<(&'static str, tempfile::NamedTempFile)>,
}

#[cfg(feature = "parquet")]
impl PendingFolder {
    /// Renames the files to their final names, and writes the manifest next to them.
    pub(super) fn finish(self, manifest: &serde_json::Value) -> anyhow::Result<()> {
        let text = format!("{}\n", serde_json::to_string_pretty(manifest)?);
        std::fs::write(self.folder.join("manifest.json"), text)?;
        for (name, file) in self.tables {
            file.persist(self.folder.join(format!("{name}.parquet")))?;
        }
        Ok(())
    }
}

/// Never made: a build without the feature writes no folder.
#[cfg(not(feature = "parquet"))]
pub(super) enum PendingFolder {}

#[cfg(not(feature = "parquet"))]
impl PendingFolder {
    pub(super) fn finish(self, _: &serde_json::Value) -> anyhow::Result<()> {
        match self {}
    }
}

fn check_folder(out: &Path) -> Result<&Path, ParquetFolderError> {
    if out.as_os_str() == "-" {
        return Err(ParquetFolderError::NoFolder);
    }
    match std::fs::metadata(out) {
        Ok(known) if !known.is_dir() => Err(ParquetFolderError::NotAFolder(out.display().to_string())),
        _ => Ok(out),
    }
}
