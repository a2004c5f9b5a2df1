//! An archive in a folder.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ArchiveError;
use super::manifest::{ArchivePart, MANIFEST_FILE_NAME};
use super::storage::{ArchiveStorage, StoredObject};

/// The manifest before it is renamed to its place.
const DRAFT_NAME: &str = ".manifest.draft";

#[derive(Clone, Debug)]
pub struct FolderStorage {
    folder: PathBuf,
    /// The draft of the manifest, locked while an archive is written: a second writer would take its parts for leftovers.
    lock: Option<Arc<File>>,
}

impl FolderStorage {
    pub fn new(folder: &Path) -> FolderStorage {
        FolderStorage { folder: folder.to_owned(), lock: None }
    }

    /// The folder of a new archive, which is created.
    pub fn create(folder: &Path) -> Result<FolderStorage, ArchiveError> {
        let mut storage = FolderStorage::new(folder);
        fs::create_dir_all(folder).map_err(|error| storage.io_error("", error))?;
        if storage.read_manifest()?.is_some() {
            return Err(ArchiveError::Exists { path: storage.describe_path("") });
        }
        let draft = File::options().create(true).truncate(false).write(true).open(folder.join(DRAFT_NAME));
        let draft = draft.map_err(|error| storage.io_error(DRAFT_NAME, error))?;
        match draft.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ArchiveError::InUse { path: storage.describe_path("") }),
            Err(TryLockError::Error(error)) => return Err(storage.io_error(DRAFT_NAME, error)),
        }
        storage.lock = Some(Arc::new(draft));
        Ok(storage)
    }

    fn io_error(&self, path: &str, source: io::Error) -> ArchiveError {
        ArchiveError::Io { path: self.describe_path(path), source }
    }

    fn visit_folder(
        &self,
        below: &str,
        visit: &mut dyn FnMut(StoredObject) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        for entry in fs::read_dir(self.folder.join(below))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            // Links are not followed: they count as files of somebody else.
            let flow = if entry.file_type()?.is_dir() {
                self.visit_folder(&path, visit)?
            } else if path == DRAFT_NAME {
                ControlFlow::Continue(())
            } else {
                visit(StoredObject { path, bytes: entry.metadata()?.len() })
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl ArchiveStorage for FolderStorage {
    fn describe_path(&self, path: &str) -> String {
        match path {
            "" => self.folder.display().to_string(),
            path => self.folder.join(path).display().to_string(),
        }
    }

    fn visit_objects(&self, visit: &mut dyn FnMut(StoredObject) -> ControlFlow<()>) -> Result<(), ArchiveError> {
        self.visit_folder("", visit).map(drop).map_err(|error| self.io_error("", error))
    }

    fn read_manifest(&self) -> Result<Option<Vec<u8>>, ArchiveError> {
        match fs::read(self.folder.join(MANIFEST_FILE_NAME)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io_error(MANIFEST_FILE_NAME, error)),
        }
    }

    fn publish_manifest(&self, text: &[u8]) -> Result<(), ArchiveError> {
        // It appears at once, and only when everything else is on disk.
        let (draft, target) = (self.folder.join(DRAFT_NAME), self.folder.join(MANIFEST_FILE_NAME));
        let written = File::create(&draft).and_then(|mut file| file.write_all(text).and_then(|()| file.sync_all()));
        written.and_then(|()| fs::rename(&draft, &target)).map_err(|error| self.io_error(MANIFEST_FILE_NAME, error))
    }

    fn open_part(&self, path: &str) -> Result<Option<File>, ArchiveError> {
        match File::open(self.folder.join(path)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io_error(path, error)),
        }
    }

    fn create_part(&self, path: &str) -> Result<File, ArchiveError> {
        let place = self.folder.join(path);
        let parent = place.parent().unwrap_or(&self.folder);
        let removed = match fs::remove_file(&place) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(parent),
        };
        let created = removed.and_then(|()| File::options().read(true).write(true).create_new(true).open(&place));
        created.map_err(|error| self.io_error(path, error))
    }

    fn store_part(&self, part: &ArchivePart, file: File, _: Option<u64>) -> Result<(), ArchiveError> {
        file.sync_all().map_err(|error| self.io_error(&part.path, error))
    }

    fn remove_part(&self, path: &str) -> Result<(), ArchiveError> {
        fs::remove_file(self.folder.join(path)).map_err(|error| self.io_error(path, error))
    }
}
