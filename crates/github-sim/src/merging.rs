//! Merging of branches, for the merge endpoint and for pull requests.
//!
//! | `mergeable_state` | meaning |
//! |---|---|
//! | `dirty` | there are conflicts |
//! | `draft` | the pull request is a draft |
//! | `blocked` | branch protection is not satisfied |
//! | `clean` | it can be merged |
//! | `unknown` | it is closed, or GitHub has not computed it yet |
//!
//! GitHub's `behind` and `unstable` are not simulated.

use crate::git::{
    CommitSignature, EMPTY_TREE, GitCommit, GitObject, GitObjectStore, MergePlan, ObjectId, collect_ancestors,
    merge_base, merge_trees, walk_history,
};
use crate::state::{CommitStatusState, Issue, PullRequest, Repository, RepositoryPermission, ReviewState, WorldState};

/// Plans the merge of two commits. `Err` lists the paths in conflict. Nothing is written yet.
pub(crate) fn plan_merge(objects: &GitObjectStore, base: ObjectId, head: ObjectId) -> Result<MergePlan, Vec<String>> {
    let tree = |id: Option<ObjectId>| id.and_then(|id| objects.commit(id)).map_or(EMPTY_TREE, |commit| commit.tree);
    merge_trees(objects, tree(merge_base(objects, base, head)), tree(Some(base)), tree(Some(head)))
}

/// Returns `mergeable` and `mergeable_state` of a pull request. Closed ones have neither.
pub(crate) fn assess_mergeability(
    state: &WorldState,
    repository: &Repository,
    issue: &Issue,
    pull: &PullRequest,
) -> (Option<bool>, &'static str) {
    if !issue.is_open() {
        return (None, "unknown");
    }
    let (base, head) = (state.pull_base(repository, issue, pull), state.pull_head(issue, pull));
    if plan_merge(state.objects(repository), base, head).is_err() {
        return (Some(false), "dirty");
    }
    let state_name = if pull.draft {
        "draft"
    } else if find_merge_blocker(state, repository, issue, pull).is_some() {
        "blocked"
    } else {
        "clean"
    };
    (Some(true), state_name)
}

/// Returns what the protection of the base branch still requires, as GitHub's message. `None` if nothing blocks the
/// merge.
pub(super) fn find_merge_blocker(
    state: &WorldState,
    repository: &Repository,
    issue: &Issue,
    pull: &PullRequest,
) -> Option<String> {
    let rule = repository.protection.get(&pull.base)?;
    let can_push =
        |account| crate::access::account_permission(state, account, repository) >= Some(RepositoryPermission::Push);
    let opinions = pull.latest_review_states();
    if rule.require_pull_request {
        // A single request for changes blocks, however many approvals there are.
        if opinions.iter().any(|(who, opinion)| *opinion == ReviewState::ChangesRequested && can_push(*who)) {
            return Some("Changes have been requested by a reviewer with write access.".to_owned());
        }
        let approvals =
            opinions.iter().filter(|(who, opinion)| *opinion == ReviewState::Approved && can_push(*who)).count();
        if approvals < rule.required_approvals as usize {
            return Some(format!(
                "At least {} approving review is required by reviewers with write access.",
                rule.required_approvals
            ));
        }
    }
    // Required checks are evaluated on the head commit, not on the base.
    let statuses = repository.latest_statuses(state.pull_head(issue, pull));
    let succeeded = |context: &&String| {
        statuses.iter().any(|status| status.context == **context && status.state == CommitStatusState::Success)
    };
    let missing = rule.required_checks.iter().find(|context| !succeeded(context))?;
    Some(format!("Required status check \"{missing}\" is expected."))
}

/// Writes a merge commit with two parents, base first.
pub(crate) fn merge_commit(
    objects: &mut GitObjectStore,
    plan: MergePlan,
    (base, head): (ObjectId, ObjectId),
    (author, committer): (CommitSignature, CommitSignature),
    message: String,
) -> ObjectId {
    let tree = plan.write(objects);
    objects.insert(GitObject::Commit(GitCommit { tree, parents: vec![base, head], author, committer, message }))
}

/// Applies the commits of the head one by one on the base. `Err` lists the paths in conflict.
pub(super) fn rebase_commits(
    objects: &mut GitObjectStore,
    base: ObjectId,
    head: ObjectId,
    committer: &CommitSignature,
) -> Result<ObjectId, Vec<String>> {
    let mut commits = walk_history(objects, head, &collect_ancestors(objects, base));
    commits.reverse();
    let mut at = base;
    // A later conflict must not leave objects in the store, so a copy is changed. Objects are shared, so it is cheap.
    let mut made = objects.clone();
    for id in commits {
        let Some(commit) = made.commit(id).cloned() else { continue };
        // Merge commits are skipped, as `git rebase` does: their changes come with the other commits.
        if commit.parents.len() > 1 {
            continue;
        }
        let tree = |id: Option<&ObjectId>| id.and_then(|id| made.commit(*id)).map_or(EMPTY_TREE, |commit| commit.tree);
        let plan = merge_trees(&made, tree(commit.parents.first()), tree(Some(&at)), commit.tree)?;
        let tree = plan.write(&mut made);
        at = made.insert(GitObject::Commit(GitCommit {
            tree,
            parents: vec![at],
            committer: committer.clone(),
            ..commit
        }));
    }
    *objects = made;
    Ok(at)
}
