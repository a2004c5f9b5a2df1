//! What a seed's file can say. Unknown keys are refused: a misspelt one would be a world that is not as meant.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use crate::fault::SimulatedFault;
use crate::rate::ApiRateLimits;
use crate::state::{AccountKind, BranchProtection, CheckState, IssueStateReason, RepositoryPermission, ReviewState};
use crate::time::SimulatedTime;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SeedFile {
    /// What this adds to: a name, or a file beside this one.
    pub(super) extends: Option<String>,
    /// When the simulation begins; else right after the last thing that happened.
    pub(super) now: Option<SimulatedTime>,
    pub(super) limits: Option<ApiRateLimits>,
    pub(super) accounts: Vec<AccountSeed>,
    pub(super) tokens: Vec<TokenSeed>,
    pub(super) repositories: Vec<RepositorySeed>,
    pub(super) faults: Vec<SimulatedFault>,
    #[serde(skip)]
    pub(super) origin: String,
    #[serde(skip)]
    pub(super) folder: Option<PathBuf>,
    /// What it was read from, and which table of it; empty where lines are not known.
    #[serde(skip)]
    pub(super) text: Arc<str>,
    #[serde(skip)]
    pub(super) table: &'static str,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountSeed {
    pub(super) login: String,
    #[serde(default)]
    pub(super) kind: AccountKind,
    pub(super) name: Option<String>,
    pub(super) email: Option<String>,
    pub(super) bio: Option<String>,
    pub(super) company: Option<String>,
    pub(super) location: Option<String>,
    #[serde(default)]
    pub(super) members: BTreeMap<String, RepositoryPermission>,
    /// Repositories, applied when all are there.
    #[serde(default)]
    pub(super) starred: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenSeed {
    pub(super) token: String,
    pub(super) account: String,
    /// Of a classic token.
    pub(super) scopes: Option<Vec<String>>,
    /// Of a fine-grained one.
    pub(super) repositories: Option<BTreeMap<String, RepositoryPermission>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RepositorySeed {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) homepage: Option<String>,
    pub(super) topics: Option<Vec<String>>,
    pub(super) private: Option<bool>,
    pub(super) archived: Option<bool>,
    pub(super) default_branch: Option<String>,
    pub(super) has_issues: Option<bool>,
    pub(super) delete_branch_on_merge: Option<bool>,
    pub(super) at: Option<SimulatedTime>,
    pub(super) collaborators: BTreeMap<String, RepositoryPermission>,
    pub(super) commits: Vec<CommitSeed>,
    pub(super) branches: Vec<BranchSeed>,
    pub(super) tags: Vec<BranchSeed>,
    pub(super) protection: BTreeMap<String, BranchProtection>,
    pub(super) labels: Vec<LabelSeed>,
    pub(super) milestones: Vec<MilestoneSeed>,
    pub(super) issues: Vec<IssueSeed>,
    pub(super) pulls: Vec<PullSeed>,
    pub(super) releases: Vec<ReleaseSeed>,
    pub(super) statuses: Vec<StatusSeed>,
    pub(super) runs: Vec<RunSeed>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommitSeed {
    /// Else the default branch.
    pub(super) branch: Option<String>,
    /// Where a new branch begins; else at the default branch.
    pub(super) from: Option<String>,
    pub(super) message: String,
    pub(super) author: Option<String>,
    pub(super) at: Option<SimulatedTime>,
    /// Whole contents by path.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) delete: Vec<String>,
    /// A branch that is merged in by this commit.
    pub(super) merge: Option<String>,
    /// A tag that is put on it.
    pub(super) tag: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchSeed {
    pub(super) name: String,
    /// A branch, a tag, a sha, or `main~2`: so many commits before; else the default branch.
    pub(super) from: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabelSeed {
    pub(super) name: String,
    pub(super) color: Option<String>,
    pub(super) description: Option<String>,
}

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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IssueSeed {
    pub(super) number: Option<u64>,
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) author: Option<String>,
    #[serde(default)]
    pub(super) labels: Vec<String>,
    #[serde(default)]
    pub(super) assignees: Vec<String>,
    /// By title.
    pub(super) milestone: Option<String>,
    pub(super) at: Option<SimulatedTime>,
    /// When it was closed; `closed_as` alone does too.
    pub(super) closed_at: Option<SimulatedTime>,
    pub(super) closed_as: Option<IssueStateReason>,
    pub(super) closed_by: Option<String>,
    #[serde(default)]
    pub(super) locked: bool,
    #[serde(default)]
    pub(super) comments: Vec<CommentSeed>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommentSeed {
    pub(super) author: String,
    pub(super) body: String,
    pub(super) at: Option<SimulatedTime>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PullSeed {
    pub(super) number: Option<u64>,
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) author: Option<String>,
    /// `branch`, or `owner:branch` of a fork.
    pub(super) head: String,
    pub(super) base: Option<String>,
    #[serde(default)]
    pub(super) draft: bool,
    #[serde(default)]
    pub(super) labels: Vec<String>,
    #[serde(default)]
    pub(super) assignees: Vec<String>,
    #[serde(default)]
    pub(super) reviewers: Vec<String>,
    #[serde(default)]
    pub(super) reviews: Vec<ReviewSeed>,
    #[serde(default)]
    pub(super) comments: Vec<CommentSeed>,
    pub(super) at: Option<SimulatedTime>,
    #[serde(default)]
    pub(super) closed: bool,
    pub(super) merged: Option<MergeSeed>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MergeSeed {
    pub(super) by: Option<String>,
    pub(super) at: Option<SimulatedTime>,
    #[serde(default)]
    pub(super) squash: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReviewSeed {
    pub(super) author: String,
    pub(super) state: ReviewState,
    #[serde(default)]
    pub(super) body: String,
    pub(super) at: Option<SimulatedTime>,
}

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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusSeed {
    /// A branch, a tag or a sha.
    pub(super) on: String,
    pub(super) state: CheckState,
    pub(super) context: String,
    pub(super) description: Option<String>,
    pub(super) creator: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunSeed {
    /// The workflow's file.
    pub(super) path: String,
    pub(super) branch: Option<String>,
    pub(super) event: String,
    pub(super) status: String,
    pub(super) conclusion: Option<String>,
    pub(super) actor: Option<String>,
    pub(super) at: Option<SimulatedTime>,
}
