//! Storage backends of archives: a local folder, or object storage that the CLI provides. Parts are buffered in local
//! files, so memory does not grow with their size.

use std::fmt;
use std::fs::File;
use std::ops::ControlFlow;

use super::ArchiveError;
use super::manifest::{ArchivePart, VERSION};

/// Maximum bytes of a manifest. A part takes some 250 of them.
pub const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// A file or object below an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Path below the archive, with `/`.
    pub path: String,
    pub bytes: u64,
}

impl StoredObject {
    /// Whether an archive of this layout has parts of this name.
    pub(super) fn is_part(&self) -> bool {
        self.path.starts_with(&format!("spans/v{VERSION}/date=")) && self.path.ends_with(".parquet")
    }
}

/// The storage of one archive. Paths are those of the manifest.
pub trait ArchiveStorage: fmt::Debug + Send + Sync {
    /// The location for messages; of the archive itself if the path is empty.
    fn describe_path(&self, path: &str) -> String;
    /// Everything below the archive, until `visit` breaks.
    fn visit_objects(&self, visit: &mut dyn FnMut(StoredObject) -> ControlFlow<()>) -> Result<(), ArchiveError>;
    /// Returns the text of the manifest; `None` if it does not exist.
    fn read_manifest(&self) -> Result<Option<Vec<u8>>, ArchiveError>;
    /// Publishes the manifest, which completes the archive. Fails with `Exists` if another process published one first;
    /// only S3 detects this.
    fn publish_manifest(&self, text: &[u8]) -> Result<(), ArchiveError>;
    /// Returns the content of a part as a local file, at its beginning; `None` if it does not exist.
    fn open_part(&self, path: &str) -> Result<Option<File>, ArchiveError>;
    /// A local file to write a part to, which can also be read. An existing file is replaced.
    fn create_part(&self, path: &str) -> Result<File, ArchiveError>;
    /// Stores what was written to the file of [`ArchiveStorage::create_part`]. `stored_bytes` is the size of the part
    /// that an interrupted run left under this path.
    fn store_part(&self, part: &ArchivePart, file: File, stored_bytes: Option<u64>) -> Result<(), ArchiveError>;
    fn remove_part(&self, path: &str) -> Result<(), ArchiveError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_this_layout_are_parts() {
        let is_part = |path: &str| StoredObject { path: path.to_owned(), bytes: 1 }.is_part();
        assert!(is_part("spans/v1/date=2026-11-17/shard=03/part-0.parquet"));
        for other in ["notes.txt", "spans/v2/date=2026-11-17/part-0.parquet", "spans/v1/date=2026-11-17/notes.txt"] {
            assert!(!is_part(other), "{other}");
        }
    }
}
