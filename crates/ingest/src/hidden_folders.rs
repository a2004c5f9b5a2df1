//! Names the hidden folders and files of a source without other files: coding agents keep their sessions in hidden
//! folders, and files whose names begin with a dot are left out of a folder.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of hidden folders and files that a message names.
const MAX_NAMED: usize = 5;
/// Maximum number of folders that are searched for hidden ones.
const MAX_SEARCHED: usize = 1_000;

/// Describes a folder in which no file was found: what was left out, and how to name it as a source.
pub(crate) fn describe_empty_folder(folder: &Path) -> String {
    let hidden = find_hidden_entries(folder);
    let (kinds, found) = match (hidden.folders.is_empty(), hidden.files.is_empty()) {
        (true, true) => return "the folder has no files in it".to_owned(),
        (false, true) => ("those of hidden folders", hidden.folders),
        (true, false) => ("hidden files (their names begin with a dot)", hidden.files),
        (false, false) => (
            "hidden files (their names begin with a dot) and those of hidden folders",
            hidden.folders.into_iter().chain(hidden.files).collect(),
        ),
    };
    let shown: Vec<String> = found.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
    let more = if found.len() > MAX_NAMED { ", ..." } else { "" };
    format!(
        "the folder has no files in it but {kinds}, which are left out; name them as sources: {}{more}",
        shown.join(", ")
    )
}

/// What is left out below a folder.
#[derive(Default)]
struct HiddenEntries {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

/// Returns the hidden folders and files below a folder, in the order of their names. The search ends when there are more
/// folders than are named. Files in hidden folders are not searched.
fn find_hidden_entries(folder: &Path) -> HiddenEntries {
    let mut hidden = HiddenEntries::default();
    let mut open = vec![folder.to_owned()];
    let mut searched = 0;
    while let Some(folder) = open.pop()
        && searched < MAX_SEARCHED
        && hidden.folders.len() <= MAX_NAMED
    {
        searched += 1;
        let mut entries: Vec<fs::DirEntry> = fs::read_dir(&folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut visible = Vec::new();
        for entry in entries {
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match (is_folder, is_hidden) {
                (true, true) => hidden.folders.push(entry.path()),
                (true, false) => visible.push(entry.path()),
                (false, true) if hidden.files.len() <= MAX_NAMED => hidden.files.push(entry.path()),
                (false, _) => {}
            }
        }
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

    #[test]
    fn hidden_files_are_named_with_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".session.jsonl");
        fs::write(&file, "{}").unwrap();
        let expected = format!(
            "the folder has no files in it but hidden files (their names begin with a dot), which are left out; name them as \
             sources: {}",
            file.display()
        );
        assert_eq!(describe_empty_folder(folder.path()), expected);
        fs::create_dir(folder.path().join(".codex")).unwrap();
        let description = describe_empty_folder(folder.path());
        let end = format!(
            "hidden files (their names begin with a dot) and those of hidden folders, which are left out; name them as \
             sources: {}, {}",
            folder.path().join(".codex").display(),
            file.display()
        );
        assert!(description.ends_with(&end), "{description}");
    }
}
