//! Commits: the history of a branch or a file, a single commit with its changes, and contributors.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::writing;
use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{GitCommit, GitObjectStore, ObjectId, find_tree_entry, walk_history};
use crate::http::{AcceptedMediaType, RequestMethod::Get};
use crate::route::{OperationRoute, define_route};
use crate::state::RepositoryId;
use crate::time::SimulatedTime;
use crate::view::{ApiView, CommitParts};

/// Commit comments are not simulated. `{ref*}` accepts names with slashes, so the literal routes come first.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/commits",
        "repos/list-commits",
        "commits/commits#list-commits",
        list_commits,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/commits/{commit_sha}/pulls",
        "repos/list-pull-requests-associated-with-commit",
        "commits/commits#list-pull-requests-associated-with-a-commit",
        list_commit_pulls,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/commits/{ref*}",
        "repos/get-commit",
        "commits/commits#get-a-commit",
        get_repository_commit,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/contributors",
        "repos/list-contributors",
        "repos/repos#list-repository-contributors",
        list_contributors,
    ),
];

/// Newest first, from `sha` or the default branch. 409 for an empty repository. Filters: `path`, `author`, `committer`,
/// `since`, `until`, of which times are those of the committer.
fn list_commits(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (repository, objects) = (call.repo(id)?, call.objects(id)?);
    if repository.is_empty() {
        return Err(OperationError::empty_repository());
    }
    let name = call.query.get("sha").unwrap_or(&repository.default_branch);
    // `sha` may be any name of a commit: branch, tag or sha.
    let head = writing::find_commit(call.state, repository, name).ok_or_else(OperationError::not_found)?;
    let time = |name: &str| call.query.get(name).and_then(SimulatedTime::parse);
    let (since, until) = (time("since"), time("until"));
    let wrote = |name: &str| find_person_emails(call, name);
    let (author, committer) = (wrote("author"), wrote("committer"));
    let path = call.query.get("path").map(|path| path.trim_matches('/'));
    let fits = |id: &ObjectId| {
        let Some(commit) = objects.commit(*id) else { return false };
        let at = SimulatedTime(commit.committer.at);
        since.is_none_or(|since| at >= since)
            && until.is_none_or(|until| at <= until)
            && author.as_ref().is_none_or(|names| names.contains(&commit.author.email.to_lowercase()))
            && committer.as_ref().is_none_or(|names| names.contains(&commit.committer.email.to_lowercase()))
            && path.is_none_or(|path| is_path_changed(objects, commit, path))
    };
    let found: Vec<_> = walk_history(objects, head, &BTreeSet::new()).into_iter().filter(fits).collect();
    Ok(call.reply_with_page(&found, |view, commit| view.render_commit(repository, *commit, CommitParts::Head)))
}

/// Returns the email addresses that match a login or an address. Commits carry only addresses.
fn find_person_emails(call: &OperationCall<'_>, name: &str) -> Option<BTreeSet<String>> {
    let wanted = call.query.get(name)?;
    let mut addresses = BTreeSet::from([wanted.to_lowercase()]);
    addresses.extend(call.state.account_by_login(wanted).map(|account| account.commit_email().to_lowercase()));
    Some(addresses)
}

/// Whether a commit changed the path. As in `git log`, a merge that took one side unchanged does not count.
fn is_path_changed(objects: &GitObjectStore, commit: &GitCommit, path: &str) -> bool {
    let at = |commit: &GitCommit| find_tree_entry(objects, commit.tree, path).map(|entry| (entry.mode, entry.id));
    let now = at(commit);
    if commit.parents.is_empty() {
        return now.is_some();
    }
    commit.parents.iter().filter_map(|parent| objects.commit(*parent)).all(|parent| at(parent) != now)
}

/// 422 for an unknown ref, not 404. Supports the diff and patch media types.
fn get_repository_commit(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    if repository.is_empty() {
        return Err(OperationError::empty_repository());
    }
    let name = call.path_argument("ref");
    let commit = writing::find_commit(call.state, repository, name)
        .ok_or_else(|| OperationError::new(422, format!("No commit found for SHA: {name}")))?;
    if let Some(text) = render_diff_or_patch(&call.view(), call.media, id, commit) {
        return Ok(text);
    }
    Ok(OperationReply::ok(call.view().render_commit(repository, commit, CommitParts::Files)))
}

/// Renders the diff or the patch of a commit, if the media type asks for it.
fn render_diff_or_patch(
    view: &ApiView<'_>,
    media: AcceptedMediaType,
    id: RepositoryId,
    commit: ObjectId,
) -> Option<OperationReply> {
    let repository = view.state.repository(id)?;
    let made = view.state.objects(repository).commit(commit)?;
    let changes = view.commit_changes(repository, made);
    match media {
        AcceptedMediaType::Diff => Some(OperationReply::from_bytes(
            "application/vnd.github.diff; charset=utf-8",
            super::compare::format_git_diff(&changes).into_bytes(),
        )),
        AcceptedMediaType::Patch => {
            let text = super::compare::format_patch_mail(commit, made, &changes);
            Some(OperationReply::from_bytes("application/vnd.github.patch; charset=utf-8", text.into_bytes()))
        }
        _ => None,
    }
}

/// Pull requests that contain the commit or were merged with it. An invalid sha gives an empty list.
fn list_commit_pulls(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let sha: Option<ObjectId> = call.path_argument("commit_sha").parse().ok();
    let repository = call.repo(id)?;
    let view = call.view();
    let found: Vec<_> = repository
        .issues
        .values()
        .filter_map(|issue| issue.pull.as_ref().map(|pull| (issue, pull)))
        .filter(|(issue, pull)| {
            // Squash and rebase commits are not among the commits of the pull request, so the merge commit is compared
            // as well.
            let merged = pull.merged.as_ref().map(|merged| merged.commit);
            sha.is_some()
                && (merged == sha || view.pull_commits(repository, issue, pull).into_iter().any(|one| Some(one) == sha))
        })
        .collect();
    Ok(call.reply_with_page(&found, |view, (issue, pull)| view.render_simple_pull(repository, issue, pull)))
}

/// Accounts by number of commits on the default branch. Authors without an account are omitted. 204 for an empty
/// repository.
fn list_contributors(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (repository, objects) = (call.repo(id)?, call.objects(id)?);
    let Some(head) = repository.default_branch_head() else { return Ok(OperationReply::no_content()) };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for commit in walk_history(objects, head, &BTreeSet::new()).into_iter().filter_map(|id| objects.commit(id)) {
        *counts.entry(commit.author.email.to_lowercase()).or_default() += 1;
    }
    let by_address =
        |address: &str| call.state.accounts.values().find(|one| one.commit_email().to_lowercase() == address);
    let mut found: Vec<_> = counts.iter().filter_map(|(address, count)| Some((by_address(address)?, *count))).collect();
    found.sort_by_key(|(account, count)| (std::cmp::Reverse(*count), account.login.clone()));
    Ok(call.reply_with_page(&found, |view, (account, count)| {
        let mut object: Value = view.render_simple_account(account);
        object["contributions"] = json!(count);
        object
    }))
}
