//! Writes files that do not exist yet. Nothing is replaced, no link is followed out of the folder, and a file is
//! either complete or absent.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenState {
    Written,
    /// The name was taken, by a file or by a link.
    Kept,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum NewFileError {
    #[error("not written: {}: {source}; hint: run `gradus init` in a folder that you can write to", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("not written: {}: a folder of this name is in the way", path.display())]
    IsFolder { path: PathBuf },
    #[error("not written: {}: {} is a link that leads out of this folder", path.display(), link.display())]
    LeavesFolder { path: PathBuf, link: PathBuf },
}

/// Writes a file below a folder, with the folders that it needs.
pub(super) fn write_new_file(folder: &Path, relative: &Path, text: &str) -> Result<WrittenState, NewFileError> {
    let path = folder.join(relative);
    let failed = |source: io::Error| NewFileError::Io { path: relative.to_owned(), source };
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => return Err(NewFileError::IsFolder { path: relative.to_owned() }),
        Ok(_) => return Ok(WrittenState::Kept),
        Err(_) => {}
    }
    let root = folder.canonicalize().map_err(failed)?;
    let mut parent = folder.to_owned();
    for component in relative.parent().into_iter().flat_map(Path::components) {
        parent.push(component);
        match std::fs::create_dir(&parent) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        // Someone who unpacked an archive must not write to other places by it.
        if !parent.canonicalize().map_err(failed)?.starts_with(&root) {
            return Err(NewFileError::LeavesFolder { path: relative.to_owned(), link: parent });
        }
    }
    // As an editor would create it: the umask decides.
    let permissions = std::fs::Permissions::from_mode(0o666);
    let mut draft = tempfile::Builder::new().permissions(permissions).tempfile_in(&parent).map_err(failed)?;
    draft.write_all(text.as_bytes()).map_err(failed)?;
    match draft.persist_noclobber(&path) {
        Ok(_) => Ok(WrittenState::Written),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(WrittenState::Kept),
        Err(error) => Err(failed(error.error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_and_nothing_leaves_the_folder() {
        let (folder, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        let write = |name: &str| write_new_file(folder.path(), Path::new(name), "new");
        assert_eq!(write("a/b/c.txt").expect("written"), WrittenState::Written);
        assert_eq!(std::fs::read_to_string(folder.path().join("a/b/c.txt")).expect("a file"), "new");
        std::fs::write(folder.path().join("old"), "old").expect("written");
        assert_eq!(write("old").expect("kept"), WrittenState::Kept);
        assert_eq!(std::fs::read_to_string(folder.path().join("old")).expect("a file"), "old");
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).expect("a link");
        // A link to a file that does not exist must not create it.
        link(&outside.path().join("target"), "dangling");
        assert_eq!(write("dangling").expect("kept"), WrittenState::Kept);
        link(outside.path(), "out");
        assert!(matches!(write("out/x/file"), Err(NewFileError::LeavesFolder { .. })));
        assert_eq!(std::fs::read_dir(outside.path()).expect("a folder").count(), 0);
        link(&folder.path().join("a"), "inside");
        assert_eq!(write("inside/d").expect("written"), WrittenState::Written);
        assert!(matches!(write("a"), Err(NewFileError::IsFolder { .. })));
        assert!(matches!(write("old/x"), Err(NewFileError::Io { .. })));
    }
}
