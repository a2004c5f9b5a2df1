//! Whether and how branches come together; for merges of branches and of pull requests.

use crate::git::{
    CommitSignature, EMPTY_TREE, GitCommit, GitObject, GitObjectStore, MergePlan, ObjectId, collect_ancestors,
    merge_base, merge_trees, walk_history,
};
use crate::state::{CheckState, Issue, PullRequest, Repository, RepositoryPermission, ReviewState, WorldState};

/// The tree of a merge, or the paths that are in conflict.
pub(crate) fn plan_merge(objects: &GitObjectStore, base: ObjectId, head: ObjectId) -> Result<MergePlan, Vec<String>> {
    let tree = |id: Option<ObjectId>| id.and_then(|id| objects.commit(id)).map_or(EMPTY_TREE, |commit| commit.tree);
    merge_trees(objects, tree(merge_base(objects, base, head)), tree(Some(base)), tree(Some(head)))
}

/// Whether a pull request can be merged, and what stands in its way.
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

/// What the rules of the base branch still ask for.
pub(super) fn find_merge_blocker(
    state: &WorldState,
    repository: &Repository,
    issue: &Issue,
    pull: &PullRequest,
) -> Option<String> {
    let rule = repository.protection.get(&pull.base)?;
    let can_push =
        |account| crate::access::permission_of(state, account, repository) >= Some(RepositoryPermission::Push);
    let opinions = pull.latest_review_states();
    if rule.require_pull_request {
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
    let statuses = repository.statuses_at(state.pull_head(issue, pull));
    let succeeded = |context: &&String| {
        statuses.iter().any(|status| status.context == **context && status.state == CheckState::Success)
    };
    let missing = rule.required_checks.iter().find(|context| !succeeded(context))?;
    Some(format!("Required status check \"{missing}\" is expected."))
}

/// A commit with two parents.
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

/// The head's commits put one by one upon the base; the paths in conflict if that does not work.
pub(super) fn rebase_commits(
    objects: &mut GitObjectStore,
    base: ObjectId,
    head: ObjectId,
    committer: &CommitSignature,
) -> Result<ObjectId, Vec<String>> {
    let mut commits = walk_history(objects, head, &collect_ancestors(objects, base));
    commits.reverse();
    let mut at = base;
    // A conflict half way must leave nothing behind.
    let mut made = objects.clone();
    for id in commits {
        let Some(commit) = made.commit(id).cloned() else { continue };
        // Merges are left out: what they brought in comes by itself.
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
