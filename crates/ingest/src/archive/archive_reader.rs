//! Reads an archive shard by shard. A shard is complete in itself, so memory is bounded by the largest one's spool.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::ArchiveError;
use super::archive_writer::checksum_file;
use super::manifest::{ArchiveManifest, ArchivePart, FILE_NAME};
use crate::intake::RecordIntake;

/// A complete archive.
#[derive(Clone, Debug)]
pub struct TraceArchive {
    folder: PathBuf,
    manifest: ArchiveManifest,
}

/// The parts of one day and shard.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveShard<'a> {
    parts: &'a [ArchivePart],
}

impl TraceArchive {
    /// Opens the archive in a folder; `None` if it is another folder.
    pub fn open(folder: &Path) -> Result<Option<TraceArchive>, ArchiveError> {
        let path = folder.join(FILE_NAME);
        let name = path.display().to_string();
        let is_archive = folder.join("spans").join("v1").is_dir();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match is_archive {
                    true => Err(ArchiveError::Incomplete { path: folder.display().to_string() }),
                    false => Ok(None),
                };
            }
            Err(_) if !is_archive => return Ok(None),
            Err(source) => return Err(ArchiveError::Io { path: name, source }),
        };
        match ArchiveManifest::parse(&name, &text) {
            Ok(manifest) => Ok(Some(TraceArchive { folder: folder.to_owned(), manifest })),
            // Other tools have files of this name, too: only beside our data it is a mistake.
            Err(ArchiveError::BadManifest { .. }) if !is_archive => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn manifest(&self) -> &ArchiveManifest {
        &self.manifest
    }

    /// All shards, in the order of the manifest.
    pub fn shards(&self) -> impl Iterator<Item = ArchiveShard<'_>> {
        let is_same = |one: &ArchivePart, other: &ArchivePart| one.date == other.date && one.shard == other.shard;
        self.manifest.parts.chunk_by(is_same).map(|parts| ArchiveShard { parts })
    }

    /// Checks the parts of a shard against the manifest and reads them. Nothing of a part with a wrong checksum is read.
    pub fn read_shard(&self, shard: ArchiveShard<'_>, intake: &mut RecordIntake<'_>) -> Result<(), ArchiveError> {
        for part in shard.parts {
            let path = self.folder.join(&part.path);
            let name = path.display().to_string();
            let (_, checksum) = checksum_file(&path).map_err(|source| match source.kind() {
                ErrorKind::NotFound => ArchiveError::PartMissing { path: name.clone() },
                _ => ArchiveError::Io { path: name.clone(), source },
            })?;
            if checksum != part.checksum {
                return Err(ArchiveError::Checksum { path: name });
            }
            let file = File::open(&path).map_err(|source| ArchiveError::Io { path: name.clone(), source })?;
            intake.begin_input(&name);
            read_part(file, intake).map_err(|error| ArchiveError::Parquet { path: name, reason: error.to_string() })?;
        }
        Ok(())
    }
}

fn read_part(file: File, intake: &mut RecordIntake<'_>) -> Result<(), ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let mut project = None;
        let mut record = None;
        for (name, field) in row.get_column_iter() {
            match (name.as_str(), field) {
                ("project", Field::Str(text)) => project = Some(text.as_str()),
                ("record", Field::Bytes(bytes)) => record = Some(bytes),
                _ => {}
            }
        }
        let Some(record) = record else {
            return Err(ParquetError::General("a row without the column `record`".to_owned()));
        };
        match project {
            Some(project) => intake.begin_project(project),
            None => intake.end_project(),
        }
        intake.add_export(record.data());
    }
    intake.end_project();
    Ok(())
}
