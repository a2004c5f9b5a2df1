//! Comments on issues and pull requests.

use super::issues;
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Patch, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{IssueComment, RepositoryId, RepositoryPermission};
use crate::time::SimulatedTime;

/// Both kinds share these endpoints, as on GitHub. Reactions are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/issues/comments",
        "issues/list-comments-for-repo",
        "issues/comments#list-issue-comments-for-a-repository",
        list_repository_comments,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/issues/comments/{comment_id}",
        "issues/get-comment",
        "issues/comments#get-an-issue-comment",
        get_issue_comment,
    ),
    define_route(
        Patch,
        "/repos/{owner}/{repo}/issues/comments/{comment_id}",
        "issues/update-comment",
        "issues/comments#update-an-issue-comment",
        update_issue_comment,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/issues/comments/{comment_id}",
        "issues/delete-comment",
        "issues/comments#delete-an-issue-comment",
        delete_issue_comment,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/issues/{issue_number}/comments",
        "issues/list-comments",
        "issues/comments#list-issue-comments",
        list_issue_comments,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/issues/{issue_number}/comments",
        "issues/create-comment",
        "issues/comments#create-an-issue-comment",
        create_issue_comment,
    ),
];

/// Oldest first; `since` compares with the time of the last update.
fn list_issue_comments(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let number = issues::find_issue_number(call, id)?;
    let repository = call.repo(id)?;
    let since = call.query.get("since").and_then(SimulatedTime::parse);
    let new_enough = |comment: &&IssueComment| since.is_none_or(|since| comment.updated_at >= since);
    let found: Vec<_> = repository.list_comments(number).filter(new_enough).collect();
    Ok(call.reply_with_page(&found, |view, comment| view.render_issue_comment(repository, comment)))
}

/// All comments of a repository, with `sort`, `direction` and `since`.
fn list_repository_comments(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    let since = call.query.get("since").and_then(SimulatedTime::parse);
    let new_enough = |comment: &&IssueComment| since.is_none_or(|since| comment.updated_at >= since);
    let mut found: Vec<_> = repository.comments.values().filter(new_enough).collect();
    // The map is sorted by id, which is the order of creation.
    if call.query.get("sort") == Some("updated") {
        found.sort_by_key(|comment| (comment.updated_at, comment.id));
    }
    if !call.is_ascending(true) {
        found.reverse();
    }
    Ok(call.reply_with_page(&found, |view, comment| view.render_issue_comment(repository, comment)))
}

/// Reads the body; 422 if it is blank or has more than 65536 characters.
fn read_comment_body(call: &OperationCall<'_>) -> Result<String, OperationError> {
    let fields = call.body_fields()?;
    let body = fields.required_text("body")?;
    if body.trim().is_empty() {
        return Err(OperationError::custom_validation("IssueComment", Some("body"), "body can't be blank"));
    }
    issues::check_body_length(body, "IssueComment")?;
    Ok(body.to_owned())
}

/// Anyone who can see the repository may comment. On a locked issue, only accounts with push access.
fn create_issue_comment(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let number = issues::find_issue_number(call, id)?;
    let author = call.require_account()?;
    let body = read_comment_body(call)?;
    let repository = call.repo(id)?;
    let locked = repository.issues.get(&number).is_some_and(|issue| issue.locked);
    // Locking stops everybody without push access, even the author of the issue.
    if locked
        && access::resolve_permission(call.state, call.actor.as_ref(), repository) < Some(RepositoryPermission::Push)
    {
        return Err(OperationError::new(403, "Unable to create comment because issue is locked."));
    }
    let (comment_id, now) = (call.state.next_id(), call.now());
    let comment = IssueComment { id: comment_id, issue: number, author, body, created_at: now, updated_at: now };
    let repository = call.repo_mut(id)?;
    repository.comments.insert(comment_id, comment.clone());
    if let Some(issue) = repository.issues.get_mut(&number) {
        issue.updated_at = now;
    }
    Ok(OperationReply::created(call.view().render_issue_comment(call.repo(id)?, &comment)))
}

/// Finds a comment by the id in the path.
fn find_issue_comment(call: &OperationCall<'_>, id: RepositoryId) -> Result<IssueComment, OperationError> {
    let number = call.path_number("comment_id")?;
    call.repo(id)?.comments.get(&number).cloned().ok_or_else(OperationError::not_found)
}

/// Checks permission: authors may change their own comments, accounts with push access all of them.
fn check_may_change_comment(
    call: &OperationCall<'_>,
    id: RepositoryId,
    comment: &IssueComment,
) -> Result<(), OperationError> {
    let is_own = call.require_account()? == comment.author;
    let pushes =
        access::resolve_permission(call.state, call.actor.as_ref(), call.repo(id)?) >= Some(RepositoryPermission::Push);
    if is_own || pushes { Ok(()) } else { Err(OperationError::token_lacks_permission()) }
}

/// Supports conditional requests by time.
fn get_issue_comment(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let comment = find_issue_comment(call, id)?;
    Ok(OperationReply::ok(call.view().render_issue_comment(call.repo(id)?, &comment))
        .with_modified_at(comment.updated_at))
}

/// The issue itself is not touched: its `updated_at` stays.
fn update_issue_comment(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let mut comment = find_issue_comment(call, id)?;
    check_may_change_comment(call, id, &comment)?;
    comment.body = read_comment_body(call)?;
    comment.updated_at = call.now();
    call.repo_mut(id)?.comments.insert(comment.id, comment.clone());
    Ok(OperationReply::ok(call.view().render_issue_comment(call.repo(id)?, &comment)))
}

/// The id is never used again.
fn delete_issue_comment(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let comment = find_issue_comment(call, id)?;
    check_may_change_comment(call, id, &comment)?;
    call.repo_mut(id)?.comments.remove(&comment.id);
    Ok(OperationReply::no_content())
}
