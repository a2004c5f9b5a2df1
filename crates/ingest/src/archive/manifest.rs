//! `manifest.json` of an archive: what belongs to it, with checksums.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use super::ArchiveError;

/// The version of the layout.
pub(super) const VERSION: u32 = 1;
/// Identifies the manifest of an archive; other tools write files of this name, too.
pub(super) const MANIFEST_FORMAT: &str = "gradus archive";
/// Path of the manifest below the archive.
pub const MANIFEST_FILE_NAME: &str = "manifest.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchiveManifest {
    pub format: String,
    pub version: u32,
    /// Shards of a day; the shard of a trace is a hash of its group modulo this number.
    pub shards: u32,
    pub traces: u64,
    /// Spans and log records.
    pub records: u64,
    /// Bytes of the records before compression.
    pub record_bytes: u64,
    /// By date and shard.
    pub parts: Vec<ArchivePart>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchivePart {
    /// Path below the folder of the archive.
    pub path: String,
    /// The day on which the first trace of the group began, in UTC.
    pub date: String,
    pub shard: u32,
    pub traces: u64,
    pub records: u64,
    pub bytes: u64,
    /// BLAKE3 of the file, in hexadecimal.
    pub checksum: String,
}

impl ArchiveManifest {
    pub(super) fn parse(path: &str, text: &[u8]) -> Result<ArchiveManifest, ArchiveError> {
        #[derive(Deserialize)]
        struct ManifestHead {
            format: Option<String>,
            version: Option<u32>,
        }
        let bad = |reason: String| ArchiveError::BadManifest { path: path.to_owned(), reason };
        let head: ManifestHead = serde_json::from_slice(text).map_err(|error| bad(error.to_string()))?;
        if head.format.as_deref() != Some(MANIFEST_FORMAT) {
            return Err(bad(format!("`format` is not {MANIFEST_FORMAT:?}")));
        }
        // A newer layout may have other fields, so the version is looked at first.
        match head.version {
            Some(version) if version > VERSION => {
                return Err(ArchiveError::TooNew { path: path.to_owned(), version });
            }
            _ => {}
        }
        let manifest: ArchiveManifest = serde_json::from_slice(text).map_err(|error| bad(error.to_string()))?;
        // A manifest can come from elsewhere; it must not name files outside of its folder.
        let is_inside = |part: &ArchivePart| {
            Path::new(&part.path).components().all(|component| matches!(component, Component::Normal(_)))
        };
        match manifest.parts.iter().find(|part| !is_inside(part)) {
            Some(part) => Err(bad(format!("{:?} is not a path below the archive", part.path))),
            None => Ok(manifest),
        }
    }
}
