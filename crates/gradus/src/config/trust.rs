//! Which found settings files the user trusts: a list in the user's own state folder (`$XDG_STATE_HOME/gradus`, by
//! default `~/.local/state/gradus`), keyed by the path of the file and the digest of its bytes. A file that was changed
//! is not trusted. The list is outside of any project folder, so that a repository cannot bring its own.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::consent::ConsentRequest;

const LIST_NAME: &str = "trusted.json";
/// A file of its own, because the list is replaced by renaming and a lock on it would be lost.
const LOCK_NAME: &str = "trusted.lock";

/// Why the list of trusted files could not be read or changed. A list that cannot be read trusts nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("trusted files cannot be recorded: no folder: set HOME or XDG_STATE_HOME")]
    NoFolder,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: not a list of trusted files: {source}; remove it and run `gradus trust` again", path.display())]
    Format { path: PathBuf, source: serde_json::Error },
    /// The list is owned by another user, or group or others may write to it.
    #[error("{}: other users can change it; run `chmod 600` on it, or remove it", path.display())]
    Writable { path: PathBuf },
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct TrustList {
    #[serde(default)]
    files: Vec<TrustedFile>,
}

/// One file as it was when the user consented; an entry of the list's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrustedFile {
    /// As `canonical_name` gives it.
    pub(crate) path: PathBuf,
    /// BLAKE3 of its bytes, in hexadecimal.
    pub(crate) digest: String,
    /// The `grant_text` of every request that the user saw.
    pub(crate) grants: Vec<String>,
    pub(crate) trusted_at: jiff::Timestamp,
}

/// Access to the list. Every call reads the file again, so that several processes see each other's changes.
#[derive(Clone, Debug)]
pub(crate) struct TrustStore {
    folder: PathBuf,
}

/// Returns the digest under which the bytes of a file are trusted: BLAKE3 in hexadecimal, collision resistant, so
/// that nobody can prepare a second file with the digest of a trusted one.
pub(crate) fn digest_bytes(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Returns the name under which a file is trusted: its folder with links resolved, and its own name unresolved. A
/// link to the file in another folder is another name, because relative paths are resolved from the folder of the
/// link.
pub(crate) fn canonical_name(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, absolute.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => absolute,
    }
}

impl TrustStore {
    /// Finds the list below `XDG_STATE_HOME`, else below `HOME/.local/state`, as the XDG base directory specification
    /// has it.
    pub(crate) fn from_folders(state_home: Option<&Path>, home: Option<&Path>) -> Result<TrustStore, TrustError> {
        // A relative path would be resolved in the working directory, which the untrusted repository controls.
        let state_home = state_home.filter(|path| path.is_absolute()).map(Path::to_owned);
        let home = home.filter(|path| path.is_absolute()).map(|home| home.join(".local/state"));
        let base = state_home.or(home).ok_or(TrustError::NoFolder)?;
        Ok(TrustStore { folder: base.join("gradus") })
    }

    fn list_path(&self) -> PathBuf {
        self.folder.join(LIST_NAME)
    }

    /// Reads all entries; none if the list does not exist yet. Fails on a list that another user could have written.
    pub(crate) fn load(&self) -> Result<Vec<TrustedFile>, TrustError> {
        let path = self.list_path();
        let failed = |source| TrustError::Io { path: path.clone(), source };
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        // Owned by this user or root, and not writable for group and others.
        let owner = metadata.uid();
        let is_own = owner == rustix::process::geteuid().as_raw() || owner == 0;
        if !is_own || metadata.mode() & 0o022 != 0 {
            return Err(TrustError::Writable { path });
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        let list: TrustList = serde_json::from_slice(&bytes).map_err(|source| TrustError::Format { path, source })?;
        Ok(list.files)
    }

    /// Whether the user trusts these bytes at this path, and has consented to every present request. A request can be
    /// new although the bytes are the same: when a symbolic link has another target now.
    pub(crate) fn is_trusted(
        &self,
        path: &Path,
        digest: &str,
        requests: &[ConsentRequest],
    ) -> Result<bool, TrustError> {
        let name = canonical_name(path);
        let files = self.load()?;
        let found = files.iter().find(|file| file.path == name && file.digest == digest);
        Ok(found.is_some_and(|file| requests.iter().all(|request| file.grants.contains(&request.grant_text()))))
    }

    /// Records the consent. An earlier entry of the same path is replaced, so an old version is no longer trusted.
    pub(crate) fn add(&self, path: &Path, digest: String, requests: &[ConsentRequest]) -> Result<(), TrustError> {
        let file = TrustedFile {
            path: canonical_name(path),
            digest,
            grants: requests.iter().map(ConsentRequest::grant_text).collect(),
            trusted_at: jiff::Timestamp::now(),
        };
        self.change(|files| {
            files.retain(|known| known.path != file.path);
            files.push(file);
        })
    }

    /// Removes a file from the list. Returns whether it was in it.
    pub(crate) fn remove(&self, path: &Path) -> Result<bool, TrustError> {
        let name = canonical_name(path);
        let mut is_removed = false;
        self.change(|files| {
            let before = files.len();
            files.retain(|known| known.path != name);
            is_removed = files.len() < before;
        })?;
        Ok(is_removed)
    }

    /// Changes the list under an advisory lock between processes, and replaces it by renaming: a reader without the
    /// lock sees the old list or the new one, never half of it.
    fn change(&self, edit: impl FnOnce(&mut Vec<TrustedFile>)) -> Result<(), TrustError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| TrustError::Io { path, source }
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed(&self.folder))?;
        let lock_path = self.folder.join(LOCK_NAME);
        let lock = std::fs::File::create(&lock_path).map_err(failed(&lock_path))?;
        lock.lock().map_err(failed(&lock_path))?;
        let mut files = self.load()?;
        edit(&mut files);
        let path = self.list_path();
        // A new temporary file is readable by its owner only (0600), and keeps that mode under its new name.
        let mut temporary = tempfile::NamedTempFile::new_in(&self.folder).map_err(failed(&self.folder))?;
        let text = serde_json::to_string_pretty(&TrustList { files })
            .map_err(|source| TrustError::Format { path: path.clone(), source })?;
        temporary.write_all(text.as_bytes()).map_err(failed(&path))?;
        temporary.as_file().sync_all().map_err(failed(&path))?;
        temporary.persist(&path).map_err(|error| TrustError::Io { path: path.clone(), source: error.error })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::consent::ConsentEffect;
    use super::*;

    fn request(key: &str, resolved: Option<&str>) -> ConsentRequest {
        let resolved = resolved.map(PathBuf::from);
        ConsentRequest { key: key.to_owned(), effect: ConsentEffect::RunsCommand, value: "v".to_owned(), resolved }
    }

    #[test]
    fn trust_is_for_these_bytes_at_this_place_and_these_grants() {
        let (home, work) = (tempfile::tempdir().expect("a home"), tempfile::tempdir().expect("a folder"));
        let store = TrustStore::from_folders(None, Some(home.path())).expect("a store");
        let file = work.path().join("gradus.toml");
        let (digest, asked) = (digest_bytes(b"one"), [request("a", None), request("p", Some("/x"))]);
        let is_trusted = |path: &Path, digest: &str, asked: &[ConsentRequest]| {
            store.is_trusted(path, digest, asked).expect("an answer")
        };
        assert!(!is_trusted(&file, &digest, &asked));
        store.add(&file, digest.clone(), &asked).expect("added");
        assert!(is_trusted(&file, &digest, &asked) && is_trusted(&file, &digest, &asked[..1]));
        assert!(!is_trusted(&file, &digest_bytes(b"two"), &asked));
        assert!(!is_trusted(&work.path().join("sub/gradus.toml"), &digest, &asked));
        // A link that leads elsewhere now.
        assert!(!is_trusted(&file, &digest, &[request("p", Some("/y"))]));
        let list = home.path().join(".local/state/gradus/trusted.json");
        let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        assert_eq!((mode(&list), mode(list.parent().expect("a folder"))), (0o600, 0o700));
        // Trusting a changed file replaces what was trusted before.
        store.add(&file, digest_bytes(b"two"), &asked).expect("added");
        assert!(!is_trusted(&file, &digest, &asked));
        assert_eq!(store.load().expect("a list").len(), 1);
        assert!(store.remove(&file).expect("removed") && !store.remove(&file).expect("removed"));
        assert!(!is_trusted(&file, &digest_bytes(b"two"), &asked));
    }

    #[test]
    fn a_list_that_others_can_change_or_that_is_broken_is_refused() {
        let home = tempfile::tempdir().expect("a home");
        let store = TrustStore::from_folders(Some(home.path()), None).expect("a store");
        store.add(&home.path().join("gradus.toml"), digest_bytes(b""), &[]).expect("added");
        let list = home.path().join("gradus/trusted.json");
        std::fs::set_permissions(&list, PermissionsExt::from_mode(0o666)).expect("changed");
        assert!(matches!(store.load(), Err(TrustError::Writable { .. })));
        std::fs::set_permissions(&list, PermissionsExt::from_mode(0o600)).expect("changed");
        std::fs::write(&list, "{").expect("written");
        assert!(matches!(store.load(), Err(TrustError::Format { .. })));
        assert!(TrustStore::from_folders(Some(Path::new("here")), None).is_err());
    }
}
