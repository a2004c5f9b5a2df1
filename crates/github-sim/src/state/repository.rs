//! A repository: its settings, references and all that belongs to it.

use crate::state::ids::RepositoryId;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::issue::{Issue, IssueComment, IssueLabel, Milestone, default_labels};
use super::publication::{CommitStatus, RepositoryRelease, WorkflowRun};
use crate::git::ObjectId;
use crate::state::ids::AccountId;
use crate::state::ids::LabelId;
use crate::time::SimulatedTime;

/// In rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepositoryPermission {
    Pull,
    Triage,
    Push,
    Maintain,
    Admin,
}

impl RepositoryPermission {
    /// As collaborators' `role_name` says it.
    pub fn role_name(self) -> &'static str {
        match self {
            RepositoryPermission::Pull => "read",
            RepositoryPermission::Triage => "triage",
            RepositoryPermission::Push => "write",
            RepositoryPermission::Maintain => "maintain",
            RepositoryPermission::Admin => "admin",
        }
    }
}

/// What a branch asks of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BranchProtection {
    /// Changes come by pull request only.
    pub require_pull_request: bool,
    pub required_approvals: u32,
    /// Contexts of commit statuses that must be successful.
    pub required_checks: Vec<String>,
    /// Admins may do as they like.
    pub admins_bypass: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repository {
    pub id: RepositoryId,
    pub owner: AccountId,
    pub name: String,
    pub description: Option<String>,
    pub homepage: Option<String>,
    pub topics: Vec<String>,
    pub private: bool,
    pub archived: bool,
    pub default_branch: String,
    pub has_issues: bool,
    pub has_wiki: bool,
    pub has_projects: bool,
    pub allow_merge_commit: bool,
    pub allow_squash_merge: bool,
    pub allow_rebase_merge: bool,
    pub delete_branch_on_merge: bool,
    pub fork_of: Option<RepositoryId>,
    /// Whose objects it shares: its own id, or that of the first of its forebears.
    pub network: RepositoryId,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
    pub pushed_at: SimulatedTime,
    pub collaborators: BTreeMap<AccountId, RepositoryPermission>,
    /// By full name, `refs/heads/main`.
    pub refs: BTreeMap<String, ObjectId>,
    pub protection: BTreeMap<String, BranchProtection>,
    pub labels: BTreeMap<LabelId, IssueLabel>,
    pub milestones: BTreeMap<u64, Milestone>,
    /// Pull requests too: they share the numbers.
    pub issues: BTreeMap<u64, Issue>,
    pub comments: BTreeMap<u64, IssueComment>,
    pub releases: BTreeMap<u64, RepositoryRelease>,
    pub statuses: Vec<CommitStatus>,
    pub runs: BTreeMap<u64, WorkflowRun>,
}

impl Repository {
    /// With GitHub's defaults, labels included; `next_id` gives their ids.
    pub fn new(
        id: RepositoryId,
        owner: AccountId,
        name: &str,
        now: SimulatedTime,
        next_id: impl FnMut() -> u64,
    ) -> Repository {
        Repository {
            id,
            owner,
            name: name.to_owned(),
            description: None,
            homepage: None,
            topics: Vec::new(),
            private: false,
            archived: false,
            default_branch: "main".to_owned(),
            has_issues: true,
            has_wiki: true,
            has_projects: true,
            allow_merge_commit: true,
            allow_squash_merge: true,
            allow_rebase_merge: true,
            delete_branch_on_merge: false,
            fork_of: None,
            network: id,
            created_at: now,
            updated_at: now,
            pushed_at: now,
            collaborators: BTreeMap::new(),
            refs: BTreeMap::new(),
            protection: BTreeMap::new(),
            labels: default_labels(next_id),
            milestones: BTreeMap::new(),
            issues: BTreeMap::new(),
            comments: BTreeMap::new(),
            releases: BTreeMap::new(),
            statuses: Vec::new(),
            runs: BTreeMap::new(),
        }
    }

    pub fn branch_head(&self, name: &str) -> Option<ObjectId> {
        self.refs.get(&format!("refs/heads/{name}")).copied()
    }

    pub fn tag_target(&self, name: &str) -> Option<ObjectId> {
        self.refs.get(&format!("refs/tags/{name}")).copied()
    }

    pub fn branches(&self) -> impl Iterator<Item = (&str, ObjectId)> {
        self.refs.iter().filter_map(|(name, id)| Some((name.strip_prefix("refs/heads/")?, *id)))
    }

    pub fn tags(&self) -> impl Iterator<Item = (&str, ObjectId)> {
        self.refs.iter().filter_map(|(name, id)| Some((name.strip_prefix("refs/tags/")?, *id)))
    }

    /// Where the default branch is; none in a repository without commits.
    pub fn default_branch_head(&self) -> Option<ObjectId> {
        self.branch_head(&self.default_branch)
    }

    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    pub fn next_number(&self) -> u64 {
        self.issues.last_key_value().map_or(1, |(number, _)| number + 1)
    }

    pub fn label_by_name(&self, name: &str) -> Option<&IssueLabel> {
        let name = name.to_lowercase();
        self.labels.values().find(|label| label.name.to_lowercase() == name)
    }

    pub fn comments_of(&self, number: u64) -> impl Iterator<Item = &IssueComment> {
        self.comments.values().filter(move |comment| comment.issue == number)
    }

    pub fn open_issues(&self) -> usize {
        self.issues.values().filter(|issue| issue.is_open()).count()
    }

    /// The newest status of each context at a commit.
    pub fn statuses_at(&self, commit: ObjectId) -> Vec<&CommitStatus> {
        let mut newest: BTreeMap<&str, &CommitStatus> = BTreeMap::new();
        for status in self.statuses.iter().filter(|status| status.commit == commit) {
            newest.insert(&status.context, status);
        }
        newest.into_values().collect()
    }
}
