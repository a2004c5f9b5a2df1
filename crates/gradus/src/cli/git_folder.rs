//! What a git folder says without git: which commit and branch is checked out, and where the repository is from. Git
//! itself is not run: it may be missing, and a hook of a foreign repository must not be executed.
//!
//! The build script uses this file as well, so it needs nothing but the standard library.

use std::path::{Path, PathBuf};

/// Maximum length of a commit or branch; longer ones are cut.
const MAX_NAME_CHARS: usize = 200;

/// What is checked out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GitHead {
    pub(super) commit: Option<String>,
    pub(super) branch: Option<String>,
}

/// The folders of git for a folder of files.
#[derive(Clone, Debug)]
pub(super) struct GitFolder {
    /// Where the files are checked out: the folder that contains `.git`.
    pub(super) root: PathBuf,
    /// Of this worktree.
    git: PathBuf,
    /// Of the repository, where references and settings are.
    common: PathBuf,
}

/// Returns the first line of a name, without control characters.
pub(super) fn clean_name(text: &str) -> Option<String> {
    let text: String = text.trim().chars().filter(|letter| !letter.is_control()).take(MAX_NAME_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

impl GitFolder {
    /// Finds the git folder that contains a folder. In a worktree `.git` is a file that names the folder.
    pub(super) fn find(folder: &Path) -> Option<GitFolder> {
        let root = folder.ancestors().find(|above| above.join(".git").exists())?;
        let mut git = root.join(".git");
        if let Ok(text) = std::fs::read_to_string(&git) {
            git = root.join(text.trim().strip_prefix("gitdir: ")?);
        }
        // The references of a worktree are in the folder of the repository.
        let common = std::fs::read_to_string(git.join("commondir")).ok();
        let common = common.map_or_else(|| git.clone(), |path| git.join(path.trim()));
        Some(GitFolder { root: root.to_owned(), git, common })
    }

    /// Reads `HEAD` and the reference that it names.
    pub(super) fn read_head(&self) -> Option<GitHead> {
        let head = std::fs::read_to_string(self.git.join("HEAD")).ok()?;
        let Some(reference) = head.trim().strip_prefix("ref: ") else {
            return Some(GitHead { commit: clean_name(&head), branch: None });
        };
        let loose = std::fs::read_to_string(self.common.join(reference)).ok().and_then(|text| clean_name(&text));
        let packed = || {
            let packed = std::fs::read_to_string(self.common.join("packed-refs")).ok()?;
            let line = packed.lines().find(|line| line.split_whitespace().nth(1) == Some(reference))?;
            clean_name(line.split_whitespace().next()?)
        };
        Some(GitHead {
            commit: loose.or_else(packed),
            branch: clean_name(reference.strip_prefix("refs/heads/").unwrap_or(reference)),
        })
    }

    /// Lists the files that change when another commit is checked out.
    #[allow(dead_code, reason = "the build script uses it")]
    pub(super) fn list_head_files(&self) -> Vec<PathBuf> {
        let head = std::fs::read_to_string(self.git.join("HEAD")).unwrap_or_default();
        let reference = head.trim().strip_prefix("ref: ").map(|reference| self.common.join(reference));
        let files = [Some(self.git.join("HEAD")), reference, Some(self.common.join("packed-refs"))];
        files.into_iter().flatten().filter(|path| path.exists()).collect()
    }

    /// Lists the addresses of the remotes, as the settings of the repository have them.
    pub(super) fn list_remote_urls(&self) -> Vec<String> {
        let settings = std::fs::read_to_string(self.common.join("config")).unwrap_or_default();
        let pairs = settings.lines().filter_map(|line| line.split_once('='));
        pairs.filter(|(name, _)| name.trim() == "url").map(|(_, url)| url.trim().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_head(folder: &Path) -> Option<GitHead> {
        GitFolder::find(folder)?.read_head()
    }

    #[test]
    fn a_git_folder_names_commit_and_branch() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        let below = folder.path().join("src/deep");
        std::fs::create_dir_all(git.join("refs/heads/feature")).unwrap();
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        std::fs::write(git.join("packed-refs"), "# pack-refs\nabc123 refs/heads/feature/x\n").unwrap();
        let version = |commit: &str, branch: Option<&str>| GitHead {
            commit: Some(commit.to_owned()),
            branch: branch.map(str::to_owned),
        };
        assert_eq!(read_head(&below), Some(version("abc123", Some("feature/x"))));
        std::fs::write(git.join("refs/heads/feature/x"), "def456\n").unwrap();
        assert_eq!(read_head(&below), Some(version("def456", Some("feature/x"))));
        std::fs::write(git.join("HEAD"), "0123abc\n").unwrap();
        assert_eq!(read_head(&below), Some(version("0123abc", None)));
        // A worktree: `.git` is a file, and the references are in the repository.
        let worktree = folder.path().join("worktree");
        std::fs::create_dir_all(git.join("worktrees/w")).unwrap();
        std::fs::create_dir_all(&worktree).unwrap();
        std::fs::write(worktree.join(".git"), format!("gitdir: {}\n", git.join("worktrees/w").display())).unwrap();
        std::fs::write(git.join("worktrees/w/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        std::fs::write(git.join("worktrees/w/commondir"), "../..\n").unwrap();
        assert_eq!(read_head(&worktree), Some(version("def456", Some("feature/x"))));
    }
}
