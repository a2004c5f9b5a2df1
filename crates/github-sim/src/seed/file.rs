//! The format of a seed file. Unknown keys are errors: a misspelled key would silently give another world.
//! `docs/reference/simulate.md` documents all keys.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use crate::fault::SimulatedFault;
use crate::rate::ApiRateLimits;
use crate::state::{
    AccountKind, BranchProtection, CommitStatusState, IssueStateReason, RepositoryPermission, ReviewState,
};
use crate::time::SimulatedTime;

/// A parsed seed. Order matters: accounts, members, repositories, stars, tokens, faults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SeedFile {
    /// The seed that this one adds to: a built-in name, or a file in the same folder.
    pub(super) extends: Option<String>,
    /// When the simulation starts; by default right after the last event.
    pub(super) now: Option<SimulatedTime>,
    /// Replaces the limits of the extended seed.
    pub(super) limits: Option<ApiRateLimits>,
    pub(super) accounts: Vec<AccountSeed>,
    pub(super) tokens: Vec<TokenSeed>,
    pub(super) repositories: Vec<RepositorySeed>,
    /// Planted faults, in addition to those of the extended seed.
    pub(super) faults: Vec<SimulatedFault>,
    /// The name in errors.
    #[serde(skip)]
    pub(super) origin: String,
    /// Where extended files are looked up; `None` for built-in seeds and requests.
    #[serde(skip)]
    pub(super) folder: Option<PathBuf>,
    /// The TOML text for line numbers; empty if they are unknown.
    #[serde(skip)]
    pub(super) text: Arc<str>,
    /// The table of that text which contains the seed; empty for the whole file.
    #[serde(skip)]
    pub(super) table: &'static str,
}

/// An account. Naming an existing one changes its profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountSeed {
    /// Letters, digits and hyphens, at most 39.
    pub(super) login: String,
    #[serde(default)]
    pub(super) kind: AccountKind,
    pub(super) name: Option<String>,
    pub(super) email: Option<String>,
    pub(super) bio: Option<String>,
    pub(super) company: Option<String>,
    pub(super) location: Option<String>,
    /// Members of an organization by login, with their permission on all repositories.
    #[serde(default)]
    pub(super) members: BTreeMap<String, RepositoryPermission>,
    /// Repositories as `owner/name`. Applied after all repositories exist.
    #[serde(default)]
    pub(super) starred: Vec<String>,
}

/// A token: exactly one of `scopes` and `repositories`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenSeed {
    /// The token as clients send it; without spaces.
    pub(super) token: String,
    pub(super) account: String,
    /// OAuth scopes of a classic token.
    pub(super) scopes: Option<Vec<String>>,
    /// Repositories of a fine-grained token, with the highest permission on each.
    pub(super) repositories: Option<BTreeMap<String, RepositoryPermission>>,
}

/// A repository. Naming an existing one adds to it; absent settings stay as they are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RepositorySeed {
    /// `owner/name`.
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) homepage: Option<String>,
    pub(super) topics: Option<Vec<String>>,
    pub(super) private: Option<bool>,
    pub(super) archived: Option<bool>,
    pub(super) default_branch: Option<String>,
    pub(super) has_issues: Option<bool>,
    pub(super) delete_branch_on_merge: Option<bool>,
    /// When it was created.
    pub(super) at: Option<SimulatedTime>,
    /// Explicit collaborators by login.
    pub(super) collaborators: BTreeMap<String, RepositoryPermission>,
    /// In order. Branches are created by committing to them.
    pub(super) commits: Vec<CommitSeed>,
    /// Additional branches, created after all commits.
    pub(super) branches: Vec<BranchSeed>,
    pub(super) tags: Vec<BranchSeed>,
    /// By branch name.
    pub(super) protection: BTreeMap<String, BranchProtection>,
    pub(super) labels: Vec<LabelSeed>,
    pub(super) milestones: Vec<MilestoneSeed>,
    /// Created before pull requests, so they get the lower numbers by default.
    pub(super) issues: Vec<IssueSeed>,
    pub(super) pulls: Vec<PullSeed>,
    pub(super) releases: Vec<ReleaseSeed>,
    pub(super) statuses: Vec<StatusSeed>,
    pub(super) runs: Vec<RunSeed>,
}

/// One commit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommitSeed {
    /// By default the default branch.
    pub(super) branch: Option<String>,
    /// Where a new branch begins; by default at the default branch.
    pub(super) from: Option<String>,
    pub(super) message: String,
    /// A login; by default the owner of the repository.
    pub(super) author: Option<String>,
    pub(super) at: Option<SimulatedTime>,
    /// Complete contents by path. Files that are not named stay.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    /// Paths to remove.
    #[serde(default)]
    pub(super) delete: Vec<String>,
    /// A branch that this commit merges. Conflicts are errors.
    pub(super) merge: Option<String>,
    /// A tag on this commit.
    pub(super) tag: Option<String>,
}

/// A branch or a tag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchSeed {
    pub(super) name: String,
    /// A branch, a tag, a sha, or `main~2` for two commits before; by default the default branch.
    pub(super) from: Option<String>,
}

/// A label in addition to GitHub's default ones. Naming an existing one changes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabelSeed {
    pub(super) name: String,
    /// Six hexadecimal digits; grey by default.
    pub(super) color: Option<String>,
    pub(super) description: Option<String>,
}

/// A milestone; numbers are assigned in order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MilestoneSeed {
    pub(super) title: String,
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) closed: bool,
    pub(super) due_on: Option<SimulatedTime>,
    pub(super) at: Option<SimulatedTime>,
}

/// An issue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IssueSeed {
    /// By default the next free number.
    pub(super) number: Option<u64>,
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) author: Option<String>,
    /// Names of labels, which must exist.
    #[serde(default)]
    pub(super) labels: Vec<String>,
    #[serde(default)]
    pub(super) assignees: Vec<String>,
    /// The title of a milestone.
    pub(super) milestone: Option<String>,
    pub(super) at: Option<SimulatedTime>,
    /// When it was closed. `closed_as` alone closes it, too.
    pub(super) closed_at: Option<SimulatedTime>,
    pub(super) closed_as: Option<IssueStateReason>,
    /// A login; by default the owner of the repository.
    pub(super) closed_by: Option<String>,
    #[serde(default)]
    pub(super) locked: bool,
    #[serde(default)]
    pub(super) comments: Vec<CommentSeed>,
}

/// A comment on an issue or a pull request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommentSeed {
    pub(super) author: String,
    pub(super) body: String,
    pub(super) at: Option<SimulatedTime>,
}

/// A pull request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PullSeed {
    pub(super) number: Option<u64>,
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) author: Option<String>,
    /// `branch`, or `owner:branch` of a fork. The branch must have commits.
    pub(super) head: String,
    /// By default the default branch.
    pub(super) base: Option<String>,
    /// Drafts cannot be merged.
    #[serde(default)]
    pub(super) draft: bool,
    #[serde(default)]
    pub(super) labels: Vec<String>,
    #[serde(default)]
    pub(super) assignees: Vec<String>,
    /// Requested reviewers by login.
    #[serde(default)]
    pub(super) reviewers: Vec<String>,
    #[serde(default)]
    pub(super) reviews: Vec<ReviewSeed>,
    #[serde(default)]
    pub(super) comments: Vec<CommentSeed>,
    pub(super) at: Option<SimulatedTime>,
    /// Closed without a merge.
    #[serde(default)]
    pub(super) closed: bool,
    /// Merged. Conflicts are errors.
    pub(super) merged: Option<MergeSeed>,
}

/// How a pull request was merged.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MergeSeed {
    /// A login; by default the owner of the repository.
    pub(super) by: Option<String>,
    pub(super) at: Option<SimulatedTime>,
    /// A squash commit instead of a merge commit.
    #[serde(default)]
    pub(super) squash: bool,
}

/// A submitted review, on the head of the pull request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReviewSeed {
    pub(super) author: String,
    pub(super) state: ReviewState,
    #[serde(default)]
    pub(super) body: String,
    pub(super) at: Option<SimulatedTime>,
}

/// A release. A missing tag is created at the default branch, unless it is a draft.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseSeed {
    pub(super) tag: String,
    pub(super) name: Option<String>,
    pub(super) body: Option<String>,
    pub(super) author: Option<String>,
    #[serde(default)]
    pub(super) draft: bool,
    #[serde(default)]
    pub(super) prerelease: bool,
    pub(super) at: Option<SimulatedTime>,
}

/// A commit status.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusSeed {
    /// A branch, a tag or a sha.
    pub(super) on: String,
    pub(super) state: CommitStatusState,
    pub(super) context: String,
    pub(super) description: Option<String>,
    pub(super) creator: Option<String>,
}

/// A workflow run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunSeed {
    /// The path of the workflow file.
    pub(super) path: String,
    pub(super) branch: Option<String>,
    pub(super) event: String,
    pub(super) status: String,
    /// Only for completed runs.
    pub(super) conclusion: Option<String>,
    pub(super) actor: Option<String>,
    pub(super) at: Option<SimulatedTime>,
}
