//! Trouble on demand: what goes wrong, where, and how often.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::git::{EMPTY_TREE, GitCommit, GitFileMode, GitObject, TreeLeaf, edit_tree, find_tree_entry, is_valid_path};
use super::http::SimulatedRequest;
use super::operations::{self, writing};
use super::state::WorldState;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedFault {
    /// `GET`, `POST`, ...; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of the request, `*` standing for anything; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// GitHub's name of the operation, `issues/create`; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// So many requests that fit go well first.
    #[serde(default)]
    pub after: u32,
    /// So many requests then do not.
    #[serde(default = "once")]
    pub times: u32,
    pub effect: FaultEffect,
}

fn once() -> u32 {
    1
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultEffect {
    /// Is not carried out, but answered so.
    Answer {
        status: u16,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_s: Option<u64>,
    },
    /// GitHub's secondary rate limit.
    SecondaryLimit {
        #[serde(default = "a_minute")]
        retry_after_s: u64,
    },
    /// Is carried out, but the answer is lost on the way: the client sees this status.
    LostAnswer {
        #[serde(default = "bad_gateway")]
        status: u16,
    },
    Latency {
        ms: u64,
    },
    /// Someone else commits just before the request is carried out.
    Commit {
        /// `owner/name`.
        repository: String,
        branch: String,
        author: String,
        message: String,
        files: BTreeMap<String, String>,
    },
}

fn a_minute() -> u64 {
    60
}

fn bad_gateway() -> u16 {
    502
}

/// What the faults that fit make of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultImpact {
    pub(super) delay_ms: u64,
    pub(super) before: Option<FaultEffect>,
    pub(super) commits: Vec<FaultEffect>,
    pub(super) lost: Option<u16>,
}

impl FaultImpact {
    pub(super) fn is_some(&self) -> bool {
        self.delay_ms > 0 || self.before.is_some() || !self.commits.is_empty() || self.lost.is_some()
    }
}

/// Counts the request for every fault that fits, and says what is to happen.
pub(super) fn apply_faults(
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

/// Why a fault is refused: it names something that the world does not have, so it could never strike.
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
    /// Checks a fault against the world that it is planted in. A fault that cannot strike would make a task easier than
    /// its author intended, and nobody would notice, so it is an error.
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

    fn matches_request(&self, request: &SimulatedRequest, path: &str, operation: Option<&str>) -> bool {
        self.times > 0
            && self.method.as_ref().is_none_or(|method| method.eq_ignore_ascii_case(request.method.name()))
            && self.path.as_ref().is_none_or(|pattern| matches_glob(pattern, path))
            && self.operation.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == operation)
    }
}

/// Whether a text is as the pattern says; `*` is any text. Linear: each piece is looked for once.
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

/// A commit by someone else.
pub(super) fn apply_commit_fault(state: &mut WorldState, effect: &FaultEffect) {
    let FaultEffect::Commit { repository, branch, author, message, files } = effect else { return };
    let found = repository.split_once('/').and_then(|(owner, name)| state.repository_by_name(owner, name));
    let Some(id) = found else { return };
    let author = state.account_by_login(author).map(|account| account.id).unwrap_or_default();
    let now = state.now;
    let who = writing::signature_of(state, author, now);
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
