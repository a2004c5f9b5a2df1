//! Comments on lines of a pull request.

use super::{pulls, reviews};
use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Get, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{PullRequestReview, ReviewState};

/// Editing and deleting review comments is not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/comments",
        "pulls/list-review-comments",
        "pulls/comments#list-review-comments-on-a-pull-request",
        list_review_comments,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/pulls/{pull_number}/comments",
        "pulls/create-review-comment",
        "pulls/comments#create-a-review-comment-for-a-pull-request",
        create_review_comment,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}/comments",
        "pulls/list-comments-for-review",
        "pulls/reviews#list-comments-for-a-pull-request-review",
        list_comments_of_review,
    ),
];

/// Oldest first by default.
fn list_review_comments(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    let mut found: Vec<_> = pull.review_comments.iter().collect();
    if !call.is_ascending(true) {
        found.reverse();
    }
    Ok(call.reply_with_page(&found, |view, comment| view.render_review_comment(repository, issue, comment)))
}

/// 404 if the review does not belong to the pull request.
fn list_comments_of_review(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let review = call.path_number("review_id")?;
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    if !pull.reviews.iter().any(|one| one.id == review) {
        return Err(OperationError::not_found());
    }
    let found: Vec<_> = pull.review_comments.iter().filter(|comment| comment.review == Some(review)).collect();
    Ok(call.reply_with_page(&found, |view, comment| view.render_review_comment(repository, issue, comment)))
}

/// A single comment creates a review of its own, as on GitHub.
fn create_review_comment(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let author = call.require_account()?;
    let body = call.json_body()?;
    let fields = call.body_fields()?;
    let in_reply_to = fields.number("in_reply_to")?;
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    // By default the present head. GitHub requires the field; clients that omit it are tolerated.
    let commit = match fields.text("commit_id")? {
        Some(name) => pulls::find_review_commit(call, repository, name)
            .ok_or_else(|| OperationError::validation("PullRequestReviewComment", "commit_id", "invalid"))?,
        None => call.state.pull_head(issue, pull),
    };
    let mut body = body;
    if let Some(first) = in_reply_to {
        // A reply has the position of the first comment of its thread.
        let first = pull.review_comments.iter().find(|one| one.id == first).ok_or_else(OperationError::not_found)?;
        body["path"] = serde_json::json!(first.path);
        body["line"] = serde_json::json!(first.line);
    }
    let draft = reviews::ReviewCommentDraft::read(call, id, &body)?;
    let (review_id, comment_id, now) = (call.state.next_id(), call.state.next_id(), call.now());
    let mut comment = draft.into_comment(comment_id, review_id, author, commit, now);
    comment.in_reply_to = in_reply_to;
    let review = PullRequestReview {
        id: review_id,
        author,
        state: ReviewState::Commented,
        body: String::new(),
        commit,
        submitted_at: Some(now),
    };
    let pull = pulls::find_pull_request_mut(call, id)?;
    pull.reviews.push(review);
    pull.review_comments.push(comment.clone());
    reviews::touch_pull_request(call, id)?;
    let (repository, issue, _) = pulls::find_pull_request(call, id)?;
    Ok(OperationReply::created(call.view().render_review_comment(repository, issue, &comment)))
}
