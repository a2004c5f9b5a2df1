//! Writes a dataset to a file, all of it or nothing.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use gradus_core::visible::printable_line;
use gradus_dataset::{DatasetItem, write_dataset};

/// Why a dataset cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatasetOutputError {
    #[error("dataset not written: {}: the file exists; hint: --overwrite replaces it", path.display())]
    Exists { path: PathBuf },
    #[error("dataset not written: {}: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

/// Where a dataset goes.
pub(super) struct DatasetOutput {
    path: PathBuf,
    may_replace: bool,
}

impl DatasetOutput {
    pub(super) fn new(path: PathBuf, may_replace: bool) -> DatasetOutput {
        DatasetOutput { path, may_replace }
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    pub(super) fn shown_name(&self) -> String {
        match self.is_stdout() {
            true => "standard output".to_owned(),
            false => printable_line(&self.path.display().to_string()),
        }
    }

    /// Fails if the file exists and must not be replaced.
    pub(super) fn check_overwrite(&self) -> Result<(), DatasetOutputError> {
        match !self.may_replace && !self.is_stdout() && self.path.exists() {
            true => Err(DatasetOutputError::Exists { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    /// Writes a new file next to the old one and renames it, so that an interrupted command does not damage the old
    /// one.
    pub(super) fn write<'a>(&self, items: impl IntoIterator<Item = &'a DatasetItem>) -> Result<(), DatasetOutputError> {
        let written = || -> io::Result<()> {
            if self.is_stdout() {
                return write_dataset(items, &mut BufWriter::new(io::stdout().lock()));
            }
            let mut name = self.path.file_name().unwrap_or_default().to_owned();
            name.push(".new");
            let new = self.path.with_file_name(name);
            let mut out = BufWriter::new(File::create(&new)?);
            write_dataset(items, &mut out)?;
            out.flush()?;
            out.get_ref().sync_data()?;
            std::fs::rename(&new, &self.path)
        };
        written().map_err(|source| DatasetOutputError::Unwritable { path: self.path.clone(), source })
    }
}
