//! Releases, gists, commit statuses and workflow runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::state::ids::AccountId;
use crate::time::SimulatedTime;

/// A release of a repository. Assets are not simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryRelease {
    pub id: u64,
    /// The tag exists once the release is published; a draft may name one that does not exist yet.
    pub tag_name: String,
    /// Branch or commit that a missing tag is created at.
    pub target_commitish: String,
    pub name: Option<String>,
    pub body: Option<String>,
    /// Drafts are visible only to accounts with push access.
    pub draft: bool,
    pub prerelease: bool,
    pub author: AccountId,
    pub created_at: SimulatedTime,
    /// `None` for drafts.
    pub published_at: Option<SimulatedTime>,
}

/// A gist. Its history is not simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gist {
    /// 32 hexadecimal digits, derived from a sequence number.
    pub id: String,
    pub owner: AccountId,
    pub description: Option<String>,
    /// Secret gists are not listed, but can be read by anyone who knows the id.
    pub public: bool,
    /// Contents by file name; never empty.
    pub files: BTreeMap<String, String>,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
}

/// The state of a commit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitStatusState {
    Error,
    Failure,
    Pending,
    Success,
}

impl CommitStatusState {
    pub fn name(self) -> &'static str {
        match self {
            CommitStatusState::Error => "error",
            CommitStatusState::Failure => "failure",
            CommitStatusState::Pending => "pending",
            CommitStatusState::Success => "success",
        }
    }

    /// Parses a state; `None` for other texts.
    pub fn from_name(name: &str) -> Option<CommitStatusState> {
        let all = [
            CommitStatusState::Error,
            CommitStatusState::Failure,
            CommitStatusState::Pending,
            CommitStatusState::Success,
        ];
        all.into_iter().find(|state| state.name() == name)
    }
}

/// A status that a check reported on a commit. Statuses are only added; the newest one of a context counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStatus {
    pub id: u64,
    /// The commit that was checked, which need not be on a branch any more.
    pub commit: ObjectId,
    pub state: CommitStatusState,
    /// The name of the check, which branch protection refers to.
    pub context: String,
    pub description: Option<String>,
    /// A page with details; never requested.
    pub target_url: Option<String>,
    pub creator: AccountId,
    pub created_at: SimulatedTime,
}

/// A workflow run, dispatched or from a seed. There is no runner: a queued run stays queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowRun {
    pub id: u64,
    /// From 1 for each workflow.
    pub number: u64,
    /// The path of the workflow file.
    pub path: String,
    /// The branch or tag that it was dispatched on.
    pub branch: String,
    pub commit: ObjectId,
    /// The trigger, `push` or `workflow_dispatch`.
    pub event: String,
    /// `queued`, `in_progress` or `completed`.
    pub status: String,
    /// `success`, `failure` and so on; only for completed runs.
    pub conclusion: Option<String>,
    pub actor: AccountId,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
}
