//! Reads an archive shard by shard. A shard is complete in itself, so memory is bounded by the largest one's spool.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::ArchiveError;
use super::archive_writer::checksum_file;
use super::folder_storage::FolderStorage;
use super::manifest::{ArchiveManifest, ArchivePart, MANIFEST_FILE_NAME};
use super::storage::ArchiveStorage;
use crate::intake::RecordIntake;

/// A complete archive.
#[derive(Clone, Debug)]
pub struct TraceArchive {
    storage: Arc<dyn ArchiveStorage>,
    manifest: ArchiveManifest,
}

/// The parts of one day and shard, as local files whose checksums are right.
#[derive(Debug)]
pub struct FetchedShard {
    parts: Vec<FetchedPart>,
}

#[derive(Debug)]
struct FetchedPart {
    name: String,
    file: File,
}

impl TraceArchive {
    /// Opens the archive in a folder; `None` if it is another folder.
    pub fn open_folder(folder: &Path) -> Result<Option<TraceArchive>, ArchiveError> {
        let storage = FolderStorage::new(folder);
        let is_archive = folder.join("spans").join("v1").is_dir();
        let text = match storage.read_manifest() {
            Ok(Some(text)) => text,
            Ok(None) if is_archive => return Err(ArchiveError::Incomplete { path: storage.describe_path("") }),
            Err(error) if is_archive => return Err(error),
            _ => return Ok(None),
        };
        match ArchiveManifest::parse(&storage.describe_path(MANIFEST_FILE_NAME), &text) {
            Ok(manifest) => Ok(Some(TraceArchive { storage: Arc::new(storage), manifest })),
            // Other tools have files of this name, too. It is an error only beside our data.
            Err(ArchiveError::BadManifest { .. }) if !is_archive => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the archive in storage that is no folder.
    pub fn open_storage(storage: Arc<dyn ArchiveStorage>) -> Result<TraceArchive, ArchiveError> {
        if let Some(text) = storage.read_manifest()? {
            let manifest = ArchiveManifest::parse(&storage.describe_path(MANIFEST_FILE_NAME), &text)?;
            return Ok(TraceArchive { storage, manifest });
        }
        let path = storage.describe_path("");
        let mut has_parts = false;
        storage.visit_objects(&mut |object| {
            has_parts |= object.is_part();
            if has_parts { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Err(if has_parts { ArchiveError::Incomplete { path } } else { ArchiveError::NotArchive { path } })
    }

    pub fn manifest(&self) -> &ArchiveManifest {
        &self.manifest
    }

    /// Visits the shards in the order of the manifest, each with its content or the reason why it cannot be read. The
    /// next shard is fetched in the meantime, so that two are on this machine at a time. Ends with the first error of
    /// `visit`.
    pub fn visit_shards<E>(
        &self,
        visit: impl FnMut(Result<FetchedShard, ArchiveError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_same = |one: &ArchivePart, other: &ArchivePart| one.date == other.date && one.shard == other.shard;
        let (sender, receiver) = mpsc::sync_channel(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut shards = self.manifest.parts.chunk_by(is_same).map(|parts| self.fetch_shard(parts));
                // Sending fails when `visit` has failed.
                shards.all(|fetched| sender.send(fetched).is_ok())
            });
            receiver.into_iter().try_for_each(visit)
        })
    }

    /// Checks the parts against the manifest: nothing of a part with a wrong checksum is read.
    fn fetch_shard(&self, parts: &[ArchivePart]) -> Result<FetchedShard, ArchiveError> {
        let parts = parts.iter().map(|part| {
            let name = self.storage.describe_path(&part.path);
            let Some(mut file) = self.storage.open_part(&part.path)? else {
                return Err(ArchiveError::PartMissing { path: name });
            };
            match checksum_file(&mut file) {
                Ok((_, checksum)) if checksum == part.checksum => Ok(FetchedPart { name, file }),
                Ok(_) => Err(ArchiveError::Checksum { path: name }),
                Err(source) => Err(ArchiveError::Io { path: name, source }),
            }
        });
        Ok(FetchedShard { parts: parts.collect::<Result<_, _>>()? })
    }
}

impl FetchedShard {
    /// Adds all records to an intake.
    pub fn read_into(self, intake: &mut RecordIntake<'_>) -> Result<(), ArchiveError> {
        for FetchedPart { name, file } in self.parts {
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
