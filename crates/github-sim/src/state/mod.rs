//! The state of a world: accounts, tokens, repositories and gists. Plain data that can be serialized. `operations`
//! changes it, `view` renders it.
//!
//! ```text
//! WorldState ─┬─ accounts ── starred repositories, members of organizations
//!             ├─ tokens ──── account, scopes or repositories
//!             ├─ repositories ─┬─ settings, collaborators, branch protection
//!             │                ├─ refs ──▶ commits in the network
//!             │                ├─ labels, milestones
//!             │                ├─ issues ── pull request ── reviews, review comments
//!             │                └─ comments, releases, statuses, workflow runs
//!             ├─ networks ──── git objects of a repository and its forks
//!             └─ gists
//! ```
//!
//! Everything refers to everything else by id, never by reference, so a clone of the state is independent. There are no
//! derived values except the index of names: counts, mergeability and histories are computed when they are asked for.

mod account;
mod ids;
mod issue;
mod publication;
mod pull;
mod repository;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::state::ids::AccountId;
pub use crate::state::ids::LabelId;
pub use crate::state::ids::RepositoryId;
pub use account::{AccessToken, Account, AccountKind, TokenAccess};
pub use issue::{Issue, IssueComment, IssueLabel, IssueState, IssueStateReason, Milestone, default_labels};
pub use publication::{CommitStatus, CommitStatusState, Gist, RepositoryRelease, WorkflowRun};
pub use pull::{PullHead, PullRequest, PullRequestMerge, PullRequestReview, ReviewComment, ReviewState};
pub use repository::{BranchProtection, Repository, RepositoryPermission};

use super::git::{GitObjectStore, ObjectId};
use super::time::SimulatedTime;

/// The default time at which a world begins: 2026-01-05T09:00:00Z, a Monday.
const DEFAULT_START: SimulatedTime = SimulatedTime(1_767_603_600);
/// Ids of resources begin here; smaller ones belong to accounts.
const FIRST_ID: u64 = 1_000;

/// The complete state. All maps are ordered, so that lists and serialized states are deterministic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorldState {
    /// The simulated clock. Each successful write advances it by a second.
    pub now: SimulatedTime,
    /// One sequence for all kinds of resources, as ids on GitHub never repeat.
    next_id: u64,
    pub accounts: BTreeMap<AccountId, Account>,
    /// By the token itself. The control API lists them.
    pub tokens: BTreeMap<String, AccessToken>,
    pub repositories: BTreeMap<RepositoryId, Repository>,
    /// Git objects by network: a repository shares them with all of its forks, as on GitHub.
    pub networks: BTreeMap<RepositoryId, GitObjectStore>,
    /// Former `owner/name` of renamed repositories in lower case, for redirects.
    pub former_names: BTreeMap<String, RepositoryId>,
    /// By id, 32 hexadecimal digits.
    pub gists: BTreeMap<String, Gist>,
    /// An index of present names in lower case; see [`WorldState::rebuild_name_index`].
    #[serde(skip)]
    names: BTreeMap<String, RepositoryId>,
}

impl Default for WorldState {
    fn default() -> WorldState {
        let mut state = WorldState {
            now: DEFAULT_START,
            next_id: FIRST_ID,
            accounts: BTreeMap::new(),
            tokens: BTreeMap::new(),
            repositories: BTreeMap::new(),
            networks: BTreeMap::new(),
            former_names: BTreeMap::new(),
            gists: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        // GitHub commits merges under this account.
        let mut web_flow = Account::new("web-flow", AccountKind::User, DEFAULT_START);
        web_flow.name = Some("GitHub".to_owned());
        web_flow.email = Some("noreply@github.com".to_owned());
        state.add_account(web_flow);
        state
    }
}

impl WorldState {
    /// Returns a new id. It is consumed even if the operation fails later, which no client can see.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Rebuilds what is not serialized. Must be called after a state was deserialized.
    pub fn rebuild_name_index(&mut self) {
        let named = self.repositories.values().map(|one| (self.full_name(one).to_lowercase(), one.id)).collect();
        self.names = named;
    }

    /// Adds an account and assigns its id, from 1.
    pub fn add_account(&mut self, mut account: Account) -> AccountId {
        let id = AccountId(self.accounts.len() as u64 + 1);
        account.id = id;
        self.accounts.insert(id, account);
        id
    }

    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(&id)
    }

    /// Finds an account by login, ignoring case, as for all names on GitHub.
    pub fn account_by_login(&self, login: &str) -> Option<&Account> {
        self.accounts.values().find(|account| account.login.eq_ignore_ascii_case(login))
    }

    /// Returns the login; `ghost` for deleted accounts, as on GitHub.
    pub fn login(&self, id: AccountId) -> &str {
        self.accounts.get(&id).map_or("ghost", |account| account.login.as_str())
    }

    /// Returns `owner/name`.
    pub fn full_name(&self, repository: &Repository) -> String {
        format!("{}/{}", self.login(repository.owner), repository.name)
    }

    pub fn repository(&self, id: RepositoryId) -> Option<&Repository> {
        self.repositories.get(&id)
    }

    /// Finds a repository by name, ignoring case. Former names do not count.
    pub fn repository_by_name(&self, owner: &str, name: &str) -> Option<RepositoryId> {
        self.names.get(&format!("{owner}/{name}").to_lowercase()).copied()
    }

    /// Finds the repository that had this name before, if it still exists.
    pub fn repository_by_former_name(&self, owner: &str, name: &str) -> Option<RepositoryId> {
        let id = self.former_names.get(&format!("{owner}/{name}").to_lowercase()).copied()?;
        self.repositories.contains_key(&id).then_some(id)
    }

    /// Adds a repository. The caller has checked that the name is free.
    pub fn add_repository(&mut self, repository: Repository) {
        let name = self.full_name(&repository).to_lowercase();
        // A new repository under a former name ends the redirect.
        self.former_names.remove(&name);
        self.names.insert(name, repository.id);
        self.networks.entry(repository.network).or_default();
        self.repositories.insert(repository.id, repository);
    }

    /// Renames a repository. Keeps the old name as a redirect, unless only the case changed.
    pub fn rename_repository(&mut self, id: RepositoryId, name: &str) {
        let Some(repository) = self.repositories.get(&id) else { return };
        let before = self.full_name(repository).to_lowercase();
        if let Some(repository) = self.repositories.get_mut(&id) {
            name.clone_into(&mut repository.name);
        }
        let after = self.repositories.get(&id).map(|one| self.full_name(one).to_lowercase()).unwrap_or_default();
        if before != after {
            self.names.remove(&before);
            self.former_names.insert(before, id);
        }
        self.former_names.remove(&after);
        self.names.insert(after, id);
    }

    /// Removes a repository. Its forks lose their parent. The objects are removed with the last repository of the
    /// network.
    pub fn remove_repository(&mut self, id: RepositoryId) {
        let Some(repository) = self.repositories.get(&id) else { return };
        let (name, network) = (self.full_name(repository).to_lowercase(), repository.network);
        self.names.remove(&name);
        self.repositories.remove(&id);
        self.former_names.retain(|_, to| *to != id);
        for fork in self.repositories.values_mut() {
            if fork.fork_of == Some(id) {
                fork.fork_of = None;
            }
        }
        if self.repositories.values().all(|one| one.network != network) {
            self.networks.remove(&network);
        }
    }

    /// Returns the object store; an empty one if the network has none yet.
    pub fn objects(&self, repository: &Repository) -> &GitObjectStore {
        static NONE: std::sync::OnceLock<GitObjectStore> = std::sync::OnceLock::new();
        self.networks.get(&repository.network).unwrap_or_else(|| NONE.get_or_init(GitObjectStore::default))
    }

    /// Returns the head commit of a pull request: the present head of its branch while it is open, the stored one
    /// afterwards.
    pub fn pull_head(&self, issue: &Issue, pull: &PullRequest) -> ObjectId {
        let branch = || {
            let repository = self.repository(pull.head.repository?)?;
            repository.branch_head(&pull.head.branch)
        };
        if issue.state == IssueState::Open { branch().unwrap_or(pull.head.sha) } else { pull.head.sha }
    }

    /// Returns the base commit of a pull request in the same way.
    pub fn pull_base(&self, repository: &Repository, issue: &Issue, pull: &PullRequest) -> ObjectId {
        let now = repository.branch_head(&pull.base);
        if issue.state == IssueState::Open { now.unwrap_or(pull.base_sha) } else { pull.base_sha }
    }
}
