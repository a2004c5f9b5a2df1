//! The commit and branch of the code under test: from the variables of a CI job, else from the git folder.

use std::path::{Path, PathBuf};

/// Variables of GitHub, GitLab, Buildkite, CircleCI, Bitbucket, Azure, Travis and Jenkins.
const COMMIT_VARIABLES: [&str; 8] = [
    "GITHUB_SHA",
    "CI_COMMIT_SHA",
    "BUILDKITE_COMMIT",
    "CIRCLE_SHA1",
    "BITBUCKET_COMMIT",
    "BUILD_SOURCEVERSION",
    "TRAVIS_COMMIT",
    "GIT_COMMIT",
];
/// The source branch of a pull request comes before the name of its merge.
const BRANCH_VARIABLES: [&str; 9] = [
    "GITHUB_HEAD_REF",
    "GITHUB_REF_NAME",
    "CI_COMMIT_REF_NAME",
    "BUILDKITE_BRANCH",
    "CIRCLE_BRANCH",
    "BITBUCKET_BRANCH",
    "BUILD_SOURCEBRANCHNAME",
    "TRAVIS_BRANCH",
    "GIT_BRANCH",
];
/// Longest commit or branch; longer ones are cut.
const MAX_NAME_CHARS: usize = 200;

/// The state of the code when a run was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CodeVersion {
    pub(super) commit: Option<String>,
    pub(super) branch: Option<String>,
}

impl CodeVersion {
    /// Reads the environment and, where it says nothing, the git folder that contains the working directory. Git itself
    /// is not run: it may be missing, and a hook of a foreign repository must not be executed.
    pub(super) fn detect() -> CodeVersion {
        let from_variables = |names: &[&str]| names.iter().find_map(|name| clean_name(&std::env::var(name).ok()?));
        let from_git = std::env::current_dir().ok().and_then(|folder| read_git_folder(&folder)).unwrap_or_default();
        CodeVersion {
            commit: from_variables(&COMMIT_VARIABLES).or(from_git.commit),
            branch: from_variables(&BRANCH_VARIABLES).or(from_git.branch),
        }
    }
}

fn clean_name(text: &str) -> Option<String> {
    let text: String = text.trim().chars().filter(|letter| !letter.is_control()).take(MAX_NAME_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

/// Reads `HEAD` and the reference that it names. In a worktree `.git` is a file that names the folder.
fn read_git_folder(folder: &Path) -> Option<CodeVersion> {
    let git = folder.ancestors().map(|above| above.join(".git")).find(|path| path.exists())?;
    let git = match std::fs::read_to_string(&git) {
        Ok(text) => {
            let named = PathBuf::from(text.trim().strip_prefix("gitdir: ")?);
            git.parent().map_or(named.clone(), |parent| parent.join(&named))
        }
        Err(_) => git,
    };
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(reference) = head.trim().strip_prefix("ref: ") else {
        return Some(CodeVersion { commit: clean_name(&head), branch: None });
    };
    // The references of a worktree are in the folder of the repository.
    let common = std::fs::read_to_string(git.join("commondir")).ok();
    let common = common.map_or_else(|| git.clone(), |path| git.join(path.trim()));
    let loose = std::fs::read_to_string(common.join(reference)).ok().and_then(|text| clean_name(&text));
    let packed = || {
        let packed = std::fs::read_to_string(common.join("packed-refs")).ok()?;
        let line = packed.lines().find(|line| line.split_whitespace().nth(1) == Some(reference))?;
        clean_name(line.split_whitespace().next()?)
    };
    Some(CodeVersion {
        commit: loose.or_else(packed),
        branch: clean_name(reference.strip_prefix("refs/heads/").unwrap_or(reference)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_folder_names_commit_and_branch() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        let below = folder.path().join("src/deep");
        std::fs::create_dir_all(git.join("refs/heads/feature")).unwrap();
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        std::fs::write(git.join("packed-refs"), "# pack-refs\nabc123 refs/heads/feature/x\n").unwrap();
        let version = |commit: &str, branch: Option<&str>| CodeVersion {
            commit: Some(commit.to_owned()),
            branch: branch.map(str::to_owned),
        };
        assert_eq!(read_git_folder(&below), Some(version("abc123", Some("feature/x"))));
        std::fs::write(git.join("refs/heads/feature/x"), "def456\n").unwrap();
        assert_eq!(read_git_folder(&below), Some(version("def456", Some("feature/x"))));
        std::fs::write(git.join("HEAD"), "0123abc\n").unwrap();
        assert_eq!(read_git_folder(&below), Some(version("0123abc", None)));
        // A worktree: `.git` is a file, and the references are in the repository.
        let worktree = folder.path().join("worktree");
        std::fs::create_dir_all(git.join("worktrees/w")).unwrap();
        std::fs::create_dir_all(&worktree).unwrap();
        std::fs::write(worktree.join(".git"), format!("gitdir: {}\n", git.join("worktrees/w").display())).unwrap();
        std::fs::write(git.join("worktrees/w/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        std::fs::write(git.join("worktrees/w/commondir"), "../..\n").unwrap();
        assert_eq!(read_git_folder(&worktree), Some(version("def456", Some("feature/x"))));
    }
}
