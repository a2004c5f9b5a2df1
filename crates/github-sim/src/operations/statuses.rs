//! Commit statuses, which branch protection can require.

use serde_json::{Value, json};

use super::writing;
use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::ObjectId;
use crate::http::RequestMethod::{Get, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{CommitStatus, CommitStatusState, RepositoryId};

/// The newer check runs are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/commits/{ref*}/status",
        "repos/get-combined-status-for-ref",
        "commits/statuses#get-the-combined-status-for-a-specific-reference",
        get_combined_status,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/commits/{ref*}/statuses",
        "repos/list-commit-statuses-for-ref",
        "commits/statuses#list-commit-statuses-for-a-reference",
        list_commit_statuses,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/statuses/{sha}",
        "repos/create-commit-status",
        "commits/statuses#create-a-commit-status",
        create_commit_status,
    ),
];

/// Resolves the ref in the path; 422 if it is unknown.
fn resolve_commit_ref(call: &OperationCall<'_>, id: RepositoryId) -> Result<ObjectId, OperationError> {
    let name = call.path_argument("ref");
    let found = writing::find_commit(call.state, call.repo(id)?, name);
    found.ok_or_else(|| OperationError::new(422, format!("No commit found for SHA: {name}")))
}

/// `failure` if any context failed, `pending` if any is pending or there are none, otherwise `success`. Only the newest
/// status of each context counts.
fn get_combined_status(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let commit = resolve_commit_ref(call, id)?;
    let repository = call.repo(id)?;
    let statuses = repository.latest_statuses(commit);
    let has = |state: CommitStatusState| statuses.iter().any(|status| status.state == state);
    let state = if has(CommitStatusState::Error) || has(CommitStatusState::Failure) {
        "failure"
    } else if statuses.is_empty() || has(CommitStatusState::Pending) {
        "pending"
    } else {
        "success"
    };
    let view = call.view();
    let url = view.repository_url(repository);
    let shown: Vec<Value> = statuses.iter().map(|status| view.render_commit_status(repository, status)).collect();
    Ok(OperationReply::ok(json!({
        "state": state,
        "statuses": shown,
        "sha": commit,
        "total_count": statuses.len(),
        "repository": view.render_repository(repository),
        "commit_url": format!("{url}/commits/{commit}"),
        "url": format!("{url}/commits/{commit}/status"),
    })))
}

/// All statuses, newest first.
fn list_commit_statuses(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let commit = resolve_commit_ref(call, id)?;
    let repository = call.repo(id)?;
    let found: Vec<_> = repository.statuses.iter().rev().filter(|status| status.commit == commit).collect();
    Ok(call.reply_with_page(&found, |view, status| view.render_commit_status(repository, status)))
}

/// Requires push access and a full sha. A new status of the same context supersedes the old one.
fn create_commit_status(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let state = fields.required_text("state")?;
    let state = CommitStatusState::from_name(state)
        .ok_or_else(|| OperationError::not_one_of("state", state, &["error", "failure", "pending", "success"]))?;
    // Only a full sha: a status belongs to a commit and not to a branch.
    let sha = call.path_argument("sha");
    let found =
        sha.parse().ok().filter(|commit| call.objects(id).is_ok_and(|objects| objects.commit(*commit).is_some()));
    let commit = found.ok_or_else(|| OperationError::new(422, format!("No commit found for SHA: {sha}")))?;
    let context = fields.text("context")?.unwrap_or("default").to_owned();
    let description = fields.text("description")?.map(str::to_owned);
    let target_url = fields.text("target_url")?.map(str::to_owned);
    let (creator, created_at) = (call.require_account()?, call.now());
    let status_id = call.state.next_id();
    let status = CommitStatus { id: status_id, commit, state, context, description, target_url, creator, created_at };
    call.repo_mut(id)?.statuses.push(status.clone());
    Ok(OperationReply::created(call.view().render_commit_status(call.repo(id)?, &status)))
}
