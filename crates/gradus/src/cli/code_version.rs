//! The commit and branch of the code under test: from the variables of a CI job, else from the git folder.

use super::git_folder::{GitFolder, clean_name};
use crate::config::{BRANCH_VARIABLES, COMMIT_VARIABLES};

/// The state of the code when a run was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CodeVersion {
    pub(super) commit: Option<String>,
    pub(super) branch: Option<String>,
}

impl CodeVersion {
    /// Reads the environment and, where it says nothing, the git folder that contains the working directory.
    pub(super) fn detect() -> CodeVersion {
        let from_variables = |names: &[&str]| names.iter().find_map(|name| clean_name(&std::env::var(name).ok()?));
        let git = std::env::current_dir().ok().and_then(|folder| GitFolder::find(&folder));
        let from_git = git.and_then(|git| git.read_head()).unwrap_or_default();
        CodeVersion {
            commit: from_variables(&COMMIT_VARIABLES).or(from_git.commit),
            branch: from_variables(&BRANCH_VARIABLES).or(from_git.branch),
        }
    }
}
