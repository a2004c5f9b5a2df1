//! What several operations share: resolving commits, creating commits, moving branches, closing issues. Seeds use it,
//! too.

use crate::access::resolve_permission;
use crate::call::{BodyFields, OperationCall};
use crate::error::OperationError;
use crate::git::{CommitSignature, GitCommit, GitObject, ObjectId};
use crate::state::{
    AccountId, Issue, IssueState, IssueStateReason, Repository, RepositoryId, RepositoryPermission, WorldState,
};
use crate::time::SimulatedTime;

/// Resolves a full sha, a branch, a tag, a full or shortened reference, `HEAD`, or an abbreviated sha, in this order.
pub(crate) fn find_commit(state: &WorldState, repository: &Repository, name: &str) -> Option<ObjectId> {
    let objects = state.objects(repository);
    let named = |name: String| repository.refs.get(&name).copied();
    let by_sha = || name.parse().ok().filter(|id| objects.commit(*id).is_some());
    by_sha()
        .or_else(|| named(format!("refs/heads/{name}")))
        .or_else(|| named(format!("refs/tags/{name}")))
        .or_else(|| named(name.to_owned()).filter(|_| name.starts_with("refs/")))
        .or_else(|| named(format!("refs/{name}")))
        .or_else(|| (name == "HEAD").then(|| repository.default_branch_head()).flatten())
        .or_else(|| objects.commit_by_prefix(name))
        .filter(|id| objects.commit(*id).is_some())
}

/// Parses `author` or `committer` of a body; `None` if absent. Name and email are required, the date defaults to now.
pub(super) fn parse_commit_signature(
    call: &OperationCall<'_>,
    fields: &BodyFields,
    field: &str,
) -> Result<Option<CommitSignature>, OperationError> {
    let Some(given) = fields.get(field).filter(|value| !value.is_null()) else { return Ok(None) };
    if !given.is_object() {
        return Err(OperationError::wrong_type(field, given, "an object"));
    }
    let given = BodyFields::from_object_or_empty(given);
    let (name, email) = (given.required_text("name")?, given.required_text("email")?);
    let at = given.time("date")?.unwrap_or_else(|| call.now());
    let made = CommitSignature::new(name, email, at.0);
    if made.name.is_empty() {
        return Err(OperationError::validation("Commit", &format!("{field}.name"), "missing_field"));
    }
    Ok(Some(made))
}

/// Returns the signature of an account; `ghost` for a deleted one.
pub(crate) fn account_signature(state: &WorldState, account: AccountId, at: SimulatedTime) -> CommitSignature {
    match state.account(account) {
        Some(account) => CommitSignature::new(account.display_name(), &account.commit_email(), at.0),
        None => CommitSignature::new("ghost", "ghost@users.noreply.github.com", at.0),
    }
}

/// Builds the signature of GitHub itself, which commits merges.
pub(crate) fn build_github_signature(at: SimulatedTime) -> CommitSignature {
    CommitSignature::new("GitHub", "noreply@github.com", at.0)
}

/// Stores a commit without moving a branch.
pub(super) fn store_commit(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    commit: GitCommit,
) -> Result<ObjectId, OperationError> {
    Ok(call.objects_mut(id)?.insert(GitObject::Commit(commit)))
}

/// Points a branch to a commit, creates it if necessary, and updates the pull requests that come from it. No checks:
/// callers have applied branch protection.
pub(crate) fn move_branch(state: &mut WorldState, id: RepositoryId, branch: &str, to: ObjectId) {
    let now = state.now;
    if let Some(repository) = state.repositories.get_mut(&id) {
        if repository.branches().next().is_none() {
            // The first branch of a repository becomes its default branch.
            branch.clone_into(&mut repository.default_branch);
        }
        repository.refs.insert(format!("refs/heads/{branch}"), to);
        repository.pushed_at = now;
        repository.updated_at = now;
    }
    // Pull requests may come from a fork, so all repositories are searched.
    for repository in state.repositories.values_mut() {
        for issue in repository.issues.values_mut().filter(|issue| issue.state == IssueState::Open) {
            let from =
                issue.pull.as_ref().is_some_and(|pull| pull.head.repository == Some(id) && pull.head.branch == branch);
            if from {
                issue.updated_at = now;
            }
        }
    }
}

/// Deletes a branch. Open pull requests from it and into it are closed, in forks as well.
pub(crate) fn delete_branch(state: &mut WorldState, id: RepositoryId, branch: &str, by: AccountId) {
    let uses = |repository: &Repository, issue: &Issue| {
        issue.is_open()
            && issue.pull.as_ref().is_some_and(|pull| {
                (pull.head.repository == Some(id) && pull.head.branch == branch)
                    || (repository.id == id && pull.base == branch)
            })
    };
    let over: Vec<(RepositoryId, u64)> = state
        .repositories
        .values()
        .flat_map(|repository| {
            repository
                .issues
                .values()
                .filter(move |issue| uses(repository, issue))
                .map(|issue| (repository.id, issue.number))
        })
        .collect();
    for (repository, number) in over {
        close_issue_or_pull(state, repository, number, by, None);
    }
    let now = state.now;
    if let Some(repository) = state.repositories.get_mut(&id) {
        repository.refs.remove(&format!("refs/heads/{branch}"));
        repository.pushed_at = now;
        repository.updated_at = now;
    }
}

/// Closes an issue or a pull request. The heads of both branches are stored, because a closed pull request shows them
/// unchanged later.
pub(crate) fn close_issue_or_pull(
    state: &mut WorldState,
    id: RepositoryId,
    number: u64,
    by: AccountId,
    reason: Option<IssueStateReason>,
) {
    let Some(repository) = state.repository(id) else { return };
    let Some(issue) = repository.issues.get(&number) else { return };
    // Read before the issue is closed: afterwards the stored commits count.
    let ends = issue.pull.as_ref().map(|pull| (state.pull_head(issue, pull), state.pull_base(repository, issue, pull)));
    let now = state.now;
    let Some(issue) = state.repositories.get_mut(&id).and_then(|one| one.issues.get_mut(&number)) else {
        return;
    };
    if let (Some(pull), Some((head, base))) = (&mut issue.pull, ends) {
        pull.head.sha = head;
        pull.base_sha = base;
    }
    issue.close(by, reason, now);
}

/// Returns 409 for a direct change to a branch whose protection requires pull requests or checks, unless the caller
/// is an exempt admin.
pub(super) fn check_may_change_branch(
    call: &OperationCall<'_>,
    id: RepositoryId,
    branch: &str,
) -> Result<(), OperationError> {
    let repository = call.repo(id)?;
    let Some(rule) = repository.protection.get(branch) else { return Ok(()) };
    let is_admin = resolve_permission(call.state, call.actor.as_ref(), repository) >= Some(RepositoryPermission::Admin);
    if (rule.admins_bypass && is_admin) || (!rule.require_pull_request && rule.required_checks.is_empty()) {
        return Ok(());
    }
    let why = if rule.require_pull_request {
        "Changes must be made through a pull request.".to_owned()
    } else {
        format!("Required status check \"{}\" is expected.", rule.required_checks[0])
    };
    Err(OperationError::new(409, format!("Repository rule violations found\n\n{why}\n\n")))
}

/// Whether a name satisfies `git check-ref-format`, without `refs/heads/` or `refs/tags/`.
pub(super) fn is_valid_ref(name: &str) -> bool {
    let bad = |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    name.len() <= 255
        && !name.contains(bad)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

/// Whether a reference can be created: references are files in git, so `a` and `a/b` cannot both exist.
pub(super) fn is_ref_name_free(repository: &Repository, name: &str) -> bool {
    let inside = format!("{name}/");
    !repository.refs.keys().any(|other| other.starts_with(&inside) || name.starts_with(&format!("{other}/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_branches() {
        for good in ["main", "feature/x", "release-1.0", "a@b", "ünïcode"] {
            assert!(is_valid_ref(good), "{good}");
        }
        for bad in
            ["", "a b", "a..b", "/a", "a/", "a//b", ".a", "a.lock", "a/.b", "a^", "a:b", "a.", "a@{1}", "a\\b", "a\n"]
        {
            assert!(!is_valid_ref(bad), "{bad}");
        }
    }
}
