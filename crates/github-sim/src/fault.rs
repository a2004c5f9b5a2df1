//! Planted faults: what fails, where, and how often. Tasks use them to test how an agent reacts to outages, rate limits
//! and concurrent changes. In a seed:
//!
//! ```toml
//! [[faults]]                                  # the first two attempts to comment fail
//! operation = "issues/create-comment"
//! times = 2
//! effect = { answer = { status = 502, message = "Server Error" } }
//!
//! [[faults]]                                  # the third request below this path is executed, but its response is lost
//! method = "POST"
//! path = "/repos/octo/demo/*"
//! after = 2
//! effect = { lost_answer = { status = 504 } }
//! ```
//!
//! Several faults may match one request. Delays add up, commits are all made, and of the effects that replace the
//! response the first one counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::git::{EMPTY_TREE, GitCommit, GitFileMode, GitObject, TreeLeaf, edit_tree, find_tree_entry, is_valid_path};
use super::http::SimulatedRequest;
use super::operations::{self, writing};
use super::state::WorldState;

/// A planted fault. All conditions that are set must match a request. Part of the seed format and of the control API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedFault {
    /// `GET`, `POST`, ...; any method if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Glob on the request path, `*` matches any text; any path if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// GitHub's operation id, `issues/create`; any operation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Number of matching requests that succeed first.
    #[serde(default)]
    pub after: u32,
    /// Number of matching requests that fail then. The fault is removed afterwards.
    #[serde(default = "default_times")]
    pub times: u32,
    pub effect: FaultEffect,
}

/// The default of `times`.
fn default_times() -> u32 {
    1
}

/// What a fault does to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultEffect {
    /// The request is not executed and answered with this status.
    Answer {
        status: u16,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_s: Option<u64>,
    },
    /// GitHub's secondary rate limit: 403 with `Retry-After`. The request is not executed.
    SecondaryLimit {
        #[serde(default = "default_retry_after_s")]
        retry_after_s: u64,
    },
    /// The request is executed, but its response is lost: the client sees this status. A retry may execute it twice.
    LostAnswer {
        #[serde(default = "default_lost_status")]
        status: u16,
    },
    /// The response is delayed.
    Latency { ms: u64 },
    /// Someone else commits just before the request is executed, which makes a known sha stale.
    Commit {
        /// `owner/name`.
        repository: String,
        branch: String,
        author: String,
        message: String,
        files: BTreeMap<String, String>,
    },
}

fn default_retry_after_s() -> u64 {
    60
}

fn default_lost_status() -> u16 {
    502
}

/// The combined effect of all faults that match a request.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultImpact {
    /// Sum of all matching latencies.
    pub(super) delay_ms: u64,
    /// The first effect that replaces the execution.
    pub(super) before: Option<FaultEffect>,
    /// Commits by others, in the order of the faults.
    pub(super) commits: Vec<FaultEffect>,
    /// The status that replaces a successful response.
    pub(super) lost: Option<u16>,
}

impl FaultImpact {
    /// Whether any fault had an effect, for the journal.
    pub(super) fn is_some(&self) -> bool {
        self.delay_ms > 0 || self.before.is_some() || !self.commits.is_empty() || self.lost.is_some()
    }
}

/// Counts the request for every matching fault and returns their combined effect. Exhausted faults are removed.
pub(super) fn take_matching_faults(
    faults: &mut Vec<SimulatedFault>,
    request: &SimulatedRequest,
    path: &str,
    operation: Option<&str>,
) -> FaultImpact {
    let mut trouble = FaultImpact::default();
    for fault in faults.iter_mut().filter(|fault| fault.matches_request(request, path, operation)) {
        if fault.after > 0 {
            fault.after -= 1;
            continue;
        }
        fault.times = fault.times.saturating_sub(1);
        match &fault.effect {
            FaultEffect::Latency { ms } => trouble.delay_ms += ms,
            FaultEffect::LostAnswer { status } => trouble.lost = Some(*status),
            effect @ FaultEffect::Commit { .. } => trouble.commits.push(effect.clone()),
            effect => trouble.before = trouble.before.or_else(|| Some(effect.clone())),
        }
    }
    faults.retain(|fault| fault.times > 0);
    trouble
}

/// Why a fault is refused: it names something that the world does not have, so it could never take effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FaultError {
    #[error("there is no operation {0:?}; they are called as in GitHub's description")]
    UnknownOperation(String),
    #[error("there is no repository {0:?}")]
    UnknownRepository(String),
    #[error("there is no account {0:?}")]
    UnknownAccount(String),
    #[error("{0:?} is no path of a file")]
    InvalidPath(String),
}

impl SimulatedFault {
    /// Checks a fault against the world that it is planted in. A fault that cannot take effect would silently make a
    /// task easier than its author intended, so it is an error.
    pub(super) fn validate(&self, state: &WorldState) -> Result<(), FaultError> {
        if let Some(operation) = &self.operation
            && !operations::list_operation_routes().any(|route| route.operation == operation)
        {
            return Err(FaultError::UnknownOperation(operation.clone()));
        }
        let FaultEffect::Commit { repository, author, files, .. } = &self.effect else { return Ok(()) };
        let found = repository.split_once('/').and_then(|(owner, name)| state.repository_by_name(owner, name));
        if found.is_none() {
            return Err(FaultError::UnknownRepository(repository.clone()));
        }
        if state.account_by_login(author).is_none() {
            return Err(FaultError::UnknownAccount(author.clone()));
        }
        match files.keys().find(|path| !is_valid_path(path)) {
            Some(path) => Err(FaultError::InvalidPath(path.clone())),
            None => Ok(()),
        }
    }

    /// Whether all conditions that are set match.
    fn matches_request(&self, request: &SimulatedRequest, path: &str, operation: Option<&str>) -> bool {
        self.times > 0
            && self.method.as_ref().is_none_or(|method| method.eq_ignore_ascii_case(request.method.name()))
            && self.path.as_ref().is_none_or(|pattern| matches_glob(pattern, path))
            && self.operation.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == operation)
    }
}

/// Whether a text matches a pattern in which `*` is any text. It takes linear time: each literal part is searched once.
pub fn matches_glob(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Executes a `Commit` effect. It does nothing if its repository was deleted in the meantime.
pub(super) fn apply_commit_fault(state: &mut WorldState, effect: &FaultEffect) {
    let FaultEffect::Commit { repository, branch, author, message, files } = effect else { return };
    let found = repository.split_once('/').and_then(|(owner, name)| state.repository_by_name(owner, name));
    let Some(id) = found else { return };
    let author = state.account_by_login(author).map(|account| account.id).unwrap_or_default();
    let now = state.now;
    let who = writing::account_signature(state, author, now);
    let head = state.repository(id).and_then(|one| one.branch_head(branch));
    let Some(network) = state.repository(id).map(|one| one.network) else { return };
    let objects = state.networks.entry(network).or_default();
    let tree = head.and_then(|head| objects.commit(head)).map_or(EMPTY_TREE, |commit| commit.tree);
    let mut changes = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| is_valid_path(path)) {
        let mode = find_tree_entry(objects, tree, path).map_or(GitFileMode::File, |entry| entry.mode);
        let id = objects.insert(GitObject::Blob(text.clone().into_bytes()));
        changes.insert(path.clone(), Some(TreeLeaf { mode, id }));
    }
    let tree = edit_tree(objects, tree, &changes);
    let parents = head.into_iter().collect();
    let made = objects.insert(GitObject::Commit(GitCommit {
        tree,
        parents,
        author: who.clone(),
        committer: who,
        message: message.clone(),
    }));
    writing::move_branch(state, id, branch, made);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches_glob("/repos/*/issues", "/repos/octo/demo/issues"));
        assert!(matches_glob("*", "/anything"));
        assert!(matches_glob("/user", "/user"));
        assert!(!matches_glob("/user", "/users"));
        assert!(!matches_glob("/repos/*/issues", "/repos/octo/demo/issues/5"));
        assert!(matches_glob("*issues*", "/repos/octo/demo/issues/5"));
        assert!(!matches_glob("*a*a", "/a"));
    }
}
