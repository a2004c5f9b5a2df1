//! Names the hidden folders of a source without other files: coding agents keep their sessions in such folders.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of hidden folders that a message names.
const MAX_NAMED: usize = 5;
/// Maximum number of folders that are searched for hidden ones.
const MAX_SEARCHED: usize = 1_000;

/// Describes a folder in which no file was found: what was left out, and how to name it as a source.
pub(crate) fn describe_empty_folder(folder: &Path) -> String {
    let hidden = find_hidden_folders(folder);
    if hidden.is_empty() {
        return "the folder has no files in it".to_owned();
    }
    let shown: Vec<String> = hidden.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
    let more = if hidden.len() > MAX_NAMED { ", ..." } else { "" };
    format!(
        "the folder has no files in it but those of hidden folders, which are left out; name them as sources: {}{more}",
        shown.join(", ")
    )
}

/// Returns the hidden folders below a folder, in the order of their names, and at most one more than are named.
fn find_hidden_folders(folder: &Path) -> Vec<PathBuf> {
    let mut hidden = Vec::new();
    let mut open = vec![folder.to_owned()];
    let mut searched = 0;
    while let Some(folder) = open.pop()
        && searched < MAX_SEARCHED
        && hidden.len() <= MAX_NAMED
    {
        searched += 1;
        let mut folders: Vec<PathBuf> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        folders.sort();
        let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let (found, visible): (Vec<_>, Vec<_>) = folders.into_iter().partition(is_hidden);
        hidden.extend(found);
        // The last one is searched first.
        open.extend(visible.into_iter().rev());
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_folders_are_named_with_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(describe_empty_folder(folder.path()), "the folder has no files in it");
        let of_user = folder.path().join("ann");
        for name in [".codex", ".claude"] {
            fs::create_dir_all(of_user.join(name).join("sessions")).unwrap();
        }
        let expected = format!(
            "the folder has no files in it but those of hidden folders, which are left out; name them as sources: {}, {}",
            of_user.join(".claude").display(),
            of_user.join(".codex").display()
        );
        assert_eq!(describe_empty_folder(folder.path()), expected);
        for number in 0..5 {
            fs::create_dir(of_user.join(format!(".tool{number}"))).unwrap();
        }
        let description = describe_empty_folder(folder.path());
        assert!(description.ends_with(".tool2, ..."), "{description}");
    }
}
