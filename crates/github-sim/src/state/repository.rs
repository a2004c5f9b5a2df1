//! A repository: settings, references, and everything that belongs to it.

use crate::state::ids::RepositoryId;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::issue::{Issue, IssueComment, IssueLabel, Milestone, default_labels};
use super::publication::{CommitStatus, RepositoryRelease, WorkflowRun};
use crate::git::ObjectId;
use crate::state::ids::AccountId;
use crate::state::ids::LabelId;
use crate::time::SimulatedTime;

/// Permissions in ascending order; the derived `Ord` is used for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepositoryPermission {
    /// To read.
    Pull,
    /// To manage issues and pull requests.
    Triage,
    /// To write.
    Push,
    /// To manage the repository without sensitive actions.
    Maintain,
    /// Everything.
    Admin,
}

impl RepositoryPermission {
    /// Returns the `role_name` of collaborators, which differs from the permission names.
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

/// Branch protection, as far as it is simulated. Part of the seed format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BranchProtection {
    /// Whether direct pushes are refused.
    pub require_pull_request: bool,
    /// Approvals by accounts with push access that a merge needs.
    pub required_approvals: u32,
    /// Contexts of commit statuses that must be successful on the head.
    pub required_checks: Vec<String>,
    /// Whether admins are exempt from all rules.
    pub admins_bypass: bool,
}

/// A repository.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repository {
    pub id: RepositoryId,
    pub owner: AccountId,
    /// Without the owner.
    pub name: String,
    pub description: Option<String>,
    pub homepage: Option<String>,
    /// Lower-case words, at most 20.
    pub topics: Vec<String>,
    /// Private repositories are visible only to accounts with an explicit permission.
    pub private: bool,
    /// Archived repositories are read-only.
    pub archived: bool,
    /// May name a branch that does not exist yet, in an empty repository.
    pub default_branch: String,
    /// If false, issues are answered with 410. Pull requests still work.
    pub has_issues: bool,
    pub has_wiki: bool,
    pub has_projects: bool,
    /// The merge methods that the repository allows; at least one of the three should be set.
    pub allow_merge_commit: bool,
    pub allow_squash_merge: bool,
    pub allow_rebase_merge: bool,
    /// Deletes the head branch of a merged pull request.
    pub delete_branch_on_merge: bool,
    /// The parent of a fork; cleared when the parent is deleted.
    pub fork_of: Option<RepositoryId>,
    /// The key of its objects in `WorldState::networks`: its own id, or that of the root of its forks.
    pub network: RepositoryId,
    pub created_at: SimulatedTime,
    /// When settings, issues or branches last changed.
    pub updated_at: SimulatedTime,
    /// When a branch last moved.
    pub pushed_at: SimulatedTime,
    /// Explicit collaborators, without the owner and members of the owning organization.
    pub collaborators: BTreeMap<AccountId, RepositoryPermission>,
    /// By full name, `refs/heads/main`. Symbolic references are not simulated.
    pub refs: BTreeMap<String, ObjectId>,
    /// By branch name; patterns are not simulated.
    pub protection: BTreeMap<String, BranchProtection>,
    /// By id; names are unique in any case.
    pub labels: BTreeMap<LabelId, IssueLabel>,
    /// By number.
    pub milestones: BTreeMap<u64, Milestone>,
    /// Issues and pull requests by number.
    pub issues: BTreeMap<u64, Issue>,
    /// By id, which is also the order of creation.
    pub comments: BTreeMap<u64, IssueComment>,
    /// By id.
    pub releases: BTreeMap<u64, RepositoryRelease>,
    /// In order of creation.
    pub statuses: Vec<CommitStatus>,
    /// By id, which is also the order of creation.
    pub runs: BTreeMap<u64, WorkflowRun>,
}

impl Repository {
    /// Creates a public repository with GitHub's default settings and labels; `next_id` provides ids of the labels.
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

    /// Returns branches by name without `refs/heads/`, sorted.
    pub fn branches(&self) -> impl Iterator<Item = (&str, ObjectId)> {
        self.refs.iter().filter_map(|(name, id)| Some((name.strip_prefix("refs/heads/")?, *id)))
    }

    /// Returns tags by name without `refs/tags/`, sorted.
    pub fn tags(&self) -> impl Iterator<Item = (&str, ObjectId)> {
        self.refs.iter().filter_map(|(name, id)| Some((name.strip_prefix("refs/tags/")?, *id)))
    }

    /// Returns the head of the default branch; `None` in a repository without commits.
    pub fn default_branch_head(&self) -> Option<ObjectId> {
        self.branch_head(&self.default_branch)
    }

    /// Whether the repository has no reference; git endpoints then answer with 409.
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    /// Returns the next number for an issue or a pull request. Numbers of seeds may have gaps.
    pub fn next_number(&self) -> u64 {
        self.issues.last_key_value().map_or(1, |(number, _)| number + 1)
    }

    /// Finds a label by name, ignoring case.
    pub fn label_by_name(&self, name: &str) -> Option<&IssueLabel> {
        let name = name.to_lowercase();
        self.labels.values().find(|label| label.name.to_lowercase() == name)
    }

    /// Returns the comments of an issue, oldest first.
    pub fn list_comments(&self, number: u64) -> impl Iterator<Item = &IssueComment> {
        self.comments.values().filter(move |comment| comment.issue == number)
    }

    /// Counts open issues and pull requests, as GitHub's `open_issues_count` does.
    pub fn count_open_issues(&self) -> usize {
        self.issues.values().filter(|issue| issue.is_open()).count()
    }

    /// Returns the newest status of each context on a commit, sorted by context.
    pub fn latest_statuses(&self, commit: ObjectId) -> Vec<&CommitStatus> {
        let mut newest: BTreeMap<&str, &CommitStatus> = BTreeMap::new();
        for status in self.statuses.iter().filter(|status| status.commit == commit) {
            newest.insert(&status.context, status);
        }
        newest.into_values().collect()
    }
}
