//! Releases, gists, commit statuses and runs of workflows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::state::ids::AccountId;
use crate::time::SimulatedTime;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryRelease {
    pub id: u64,
    pub tag_name: String,
    pub target_commitish: String,
    pub name: Option<String>,
    pub body: Option<String>,
    pub draft: bool,
    pub prerelease: bool,
    pub author: AccountId,
    pub created_at: SimulatedTime,
    pub published_at: Option<SimulatedTime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gist {
    pub id: String,
    pub owner: AccountId,
    pub description: Option<String>,
    pub public: bool,
    pub files: BTreeMap<String, String>,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    Error,
    Failure,
    Pending,
    Success,
}

impl CheckState {
    pub fn name(self) -> &'static str {
        match self {
            CheckState::Error => "error",
            CheckState::Failure => "failure",
            CheckState::Pending => "pending",
            CheckState::Success => "success",
        }
    }

    pub fn from_name(name: &str) -> Option<CheckState> {
        let all = [CheckState::Error, CheckState::Failure, CheckState::Pending, CheckState::Success];
        all.into_iter().find(|state| state.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStatus {
    pub id: u64,
    pub commit: ObjectId,
    pub state: CheckState,
    pub context: String,
    pub description: Option<String>,
    pub target_url: Option<String>,
    pub creator: AccountId,
    pub created_at: SimulatedTime,
}

/// A run that was asked for or that a seed tells of. There is no runner: what is queued stays so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowRun {
    pub id: u64,
    pub number: u64,
    /// The workflow's file.
    pub path: String,
    pub branch: String,
    pub commit: ObjectId,
    pub event: String,
    pub status: String,
    pub conclusion: Option<String>,
    pub actor: AccountId,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
}
