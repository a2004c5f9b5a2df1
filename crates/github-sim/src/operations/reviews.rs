//! Reviews of pull requests and requested reviewers.
//!
//! ```text
//! (no event)                                 APPROVE, REQUEST_CHANGES, COMMENT
//!     ▼                                                  ▼
//!  PENDING ──submit with an event──▶ APPROVED, CHANGES_REQUESTED, COMMENTED
//!                                            │
//!                                            └──dismiss──▶ DISMISSED   (not for COMMENTED)
//! ```
//!
//! For branch protection, the last decision of each reviewer with push access counts.

use serde_json::{Value, json};

use super::pulls;
use crate::access::{self, RequiredAccess};
use crate::call::{BodyFields, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::ObjectId;
use crate::http::RequestMethod::{Delete, Get, Post, Put};
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, PullRequestReview, RepositoryId, ReviewComment, ReviewState};

/// Team reviewers and deleting pending reviews are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/reviews",
        "pulls/list-reviews",
        "pulls/reviews#list-reviews-for-a-pull-request",
        list_reviews,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/pulls/{pull_number}/reviews",
        "pulls/create-review",
        "pulls/reviews#create-a-review-for-a-pull-request",
        create_review,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}",
        "pulls/get-review",
        "pulls/reviews#get-a-review-for-a-pull-request",
        get_review,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}/events",
        "pulls/submit-review",
        "pulls/reviews#submit-a-review-for-a-pull-request",
        submit_review,
    ),
    define_route(
        Put,
        "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}/dismissals",
        "pulls/dismiss-review",
        "pulls/reviews#dismiss-a-review-for-a-pull-request",
        dismiss_review,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
        "pulls/list-requested-reviewers",
        "pulls/review-requests#get-all-requested-reviewers-for-a-pull-request",
        list_requested_reviewers,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
        "pulls/request-reviewers",
        "reference/pulls#request-reviewers-for-a-pull-request",
        request_reviewers,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
        "pulls/remove-requested-reviewers",
        "pulls/review-requests#remove-requested-reviewers-from-a-pull-request",
        remove_requested_reviewers,
    ),
];

/// In order of creation.
fn list_reviews(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    let asker = call.actor.as_ref().map(|actor| actor.account);
    // A pending review is visible only to its author.
    let shown = |review: &&PullRequestReview| review.state != ReviewState::Pending || Some(review.author) == asker;
    let found: Vec<_> = pull.reviews.iter().filter(shown).collect();
    Ok(call.reply_with_page(&found, |view, review| view.render_pull_review(repository, issue, review)))
}

/// Returns the state that an event leads to; without an event the review stays pending.
fn parse_review_event(event: Option<&str>) -> ReviewState {
    match event {
        Some("APPROVE") => ReviewState::Approved,
        Some("REQUEST_CHANGES") => ReviewState::ChangesRequested,
        Some("COMMENT") => ReviewState::Commented,
        _ => ReviewState::Pending,
    }
}

/// Events that submit a review.
const EVENTS: [&str; 3] = ["APPROVE", "REQUEST_CHANGES", "COMMENT"];

/// Checks whether a review is allowed. Authors can neither approve nor request changes on their own pull request. A
/// request for changes needs a body; a comment needs a body or line comments.
fn check_may_review(state: ReviewState, is_author: bool, body: &str, comments: usize) -> Result<(), OperationError> {
    match state {
        ReviewState::Approved if is_author => {
            Err(OperationError::unprocessable("Can not approve your own pull request"))
        }
        ReviewState::ChangesRequested if is_author => {
            Err(OperationError::unprocessable("Can not request changes on your own pull request"))
        }
        ReviewState::ChangesRequested if body.is_empty() => {
            Err(OperationError::unprocessable("You need to leave a comment indicating the requested changes."))
        }
        ReviewState::Commented if body.is_empty() && comments == 0 => {
            Err(OperationError::unprocessable("Could not create review: body or comments are required"))
        }
        _ => Ok(()),
    }
}

/// Any account that can see the repository may review, but only reviews of accounts with push access count for
/// protection. The author of a submitted review is no longer a requested reviewer.
fn create_review(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let author = call.require_account()?;
    let fields = call.body_fields()?;
    let state = parse_review_event(fields.text_one_of("event", &EVENTS)?);
    let body = fields.text("body")?.unwrap_or_default().to_owned();
    let items = fields.list("comments")?.unwrap_or_default().to_vec();
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    check_may_review(state, issue.author == author, &body, items.len())?;
    let head = call.state.pull_head(issue, pull);
    let commit = match fields.text("commit_id")? {
        None => head,
        Some(name) => pulls::find_review_commit(call, repository, name)
            .ok_or_else(|| OperationError::unprocessable("Commit is not part of the pull request"))?,
    };
    // All comments are validated before the review exists.
    let drafts = items.iter().map(|item| ReviewCommentDraft::read(call, id, item)).collect::<Result<Vec<_>, _>>()?;
    let review_id = call.state.next_id();
    let now = call.now();
    let submitted_at = (state != ReviewState::Pending).then_some(now);
    let review = PullRequestReview { id: review_id, author, state, body, commit, submitted_at };
    let comments: Vec<ReviewComment> = drafts
        .into_iter()
        .map(|draft| draft.into_comment(call.state.next_id(), review_id, author, commit, now))
        .collect();
    let pull = pulls::find_pull_request_mut(call, id)?;
    pull.reviews.push(review.clone());
    pull.review_comments.extend(comments);
    if state != ReviewState::Pending {
        pull.requested_reviewers.retain(|one| *one != author);
    }
    touch_pull_request(call, id)?;
    let (repository, issue, _) = pulls::find_pull_request(call, id)?;
    Ok(OperationReply::ok(call.view().render_pull_review(repository, issue, &review)))
}

/// Updates `updated_at`, by which lists are sorted.
pub(super) fn touch_pull_request(call: &mut OperationCall<'_>, id: RepositoryId) -> Result<(), OperationError> {
    let (number, now) = (call.path_number("pull_number")?, call.now());
    if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
        issue.updated_at = now;
    }
    Ok(())
}

/// A validated line comment without an id.
pub(super) struct ReviewCommentDraft {
    path: String,
    line: Option<u64>,
    side: String,
    body: String,
    diff_hunk: String,
}

impl ReviewCommentDraft {
    /// Reads a line comment. The path must be among the changed files (422). `position` is accepted instead of
    /// `line`. Whether the line is part of the diff is not checked.
    pub(super) fn read(
        call: &OperationCall<'_>,
        id: RepositoryId,
        item: &Value,
    ) -> Result<ReviewCommentDraft, OperationError> {
        let fields = BodyFields::from_object_or_empty(item);
        let (path, body) = (fields.required_text("path")?, fields.required_text("body")?);
        let line = fields.number("line")?.or(fields.number("position")?);
        let side = fields.text_one_of("side", &["LEFT", "RIGHT"])?.unwrap_or("RIGHT");
        let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
        let changes = call.view().pull_changes(repository, issue, pull);
        let Some(change) = changes.iter().find(|change| change.path == path) else {
            return Err(OperationError::unprocessable("Path could not be resolved"));
        };
        let patch = change.patch.clone().unwrap_or_default();
        let hunk: Vec<&str> = patch.lines().take(12).collect();
        Ok(ReviewCommentDraft {
            path: path.to_owned(),
            line,
            side: side.to_owned(),
            body: body.to_owned(),
            diff_hunk: hunk.join("\n"),
        })
    }

    /// Creates the comment with its ids and time.
    pub(super) fn into_comment(
        self,
        id: u64,
        review: u64,
        author: AccountId,
        commit: ObjectId,
        now: crate::time::SimulatedTime,
    ) -> ReviewComment {
        let ReviewCommentDraft { path, line, side, body, diff_hunk } = self;
        let (review, in_reply_to) = (Some(review), None);
        ReviewComment {
            id,
            review,
            in_reply_to,
            author,
            body,
            path,
            line,
            side,
            commit,
            diff_hunk,
            created_at: now,
            updated_at: now,
        }
    }
}

/// Finds a review by id within the pull request of the path.
fn find_review(call: &OperationCall<'_>, id: RepositoryId) -> Result<PullRequestReview, OperationError> {
    let number = call.path_number("review_id")?;
    let (_, _, pull) = pulls::find_pull_request(call, id)?;
    pull.reviews.iter().find(|review| review.id == number).cloned().ok_or_else(OperationError::not_found)
}

/// Pending reviews of others are found by id, which GitHub would hide.
fn get_review(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let review = find_review(call, id)?;
    let (repository, issue, _) = pulls::find_pull_request(call, id)?;
    Ok(OperationReply::ok(call.view().render_pull_review(repository, issue, &review)))
}

/// Stores a changed review and replies with it.
fn replace_review(call: &mut OperationCall<'_>, id: RepositoryId, review: &PullRequestReview) -> OperationResult {
    let pull = pulls::find_pull_request_mut(call, id)?;
    if let Some(place) = pull.reviews.iter_mut().find(|one| one.id == review.id) {
        *place = review.clone();
    }
    touch_pull_request(call, id)?;
    let (repository, issue, _) = pulls::find_pull_request(call, id)?;
    Ok(OperationReply::ok(call.view().render_pull_review(repository, issue, review)))
}

/// Submits the caller's own pending review.
fn submit_review(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Participate)?;
    let mut review = find_review(call, id)?;
    let fields = call.body_fields()?;
    let event = fields.text_one_of("event", &EVENTS)?.ok_or_else(|| OperationError::missing_field("event"))?;
    if review.author != call.require_account()? || review.state != ReviewState::Pending {
        return Err(OperationError::unprocessable("Could not submit review: it is not pending"));
    }
    if let Some(body) = fields.text("body")? {
        body.clone_into(&mut review.body);
    }
    review.state = parse_review_event(Some(event));
    let (_, issue, pull) = pulls::find_pull_request(call, id)?;
    let comments = pull.review_comments.iter().filter(|comment| comment.review == Some(review.id)).count();
    check_may_review(review.state, issue.author == review.author, &review.body, comments)?;
    review.submitted_at = Some(call.now());
    replace_review(call, id, &review)
}

/// Requires push access. Only decisions can be dismissed. `message` is required but not stored.
fn dismiss_review(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let mut review = find_review(call, id)?;
    call.body_fields()?.required_text("message")?;
    if !matches!(review.state, ReviewState::Approved | ReviewState::ChangesRequested) {
        return Err(OperationError::unprocessable("Can not dismiss a commented pull request review"));
    }
    review.state = ReviewState::Dismissed;
    replace_review(call, id, &review)
}

/// Teams are always empty.
fn list_requested_reviewers(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (_, _, pull) = pulls::find_pull_request(call, id)?;
    Ok(OperationReply::ok(json!({"users": call.view().render_simple_users(&pull.requested_reviewers), "teams": []})))
}

/// 422 for the author of the pull request and for accounts without access.
fn request_reviewers(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let names = call.body_fields()?.text_list("reviewers")?.unwrap_or_default();
    let (repository, issue, _) = pulls::find_pull_request(call, id)?;
    let mut wanted = Vec::new();
    for name in &names {
        let account = call.state.account_by_login(name).map(|account| account.id);
        if account == Some(issue.author) {
            return Err(OperationError::new(422, "Review cannot be requested from pull request author."));
        }
        let collaborator = account.filter(|account| access::can_be_assigned(call.state, repository, *account));
        wanted.push(collaborator.ok_or_else(|| {
            OperationError::new(422, "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not a collaborator of this repository.")
        })?);
    }
    let pull = pulls::find_pull_request_mut(call, id)?;
    for account in wanted {
        if !pull.requested_reviewers.contains(&account) {
            pull.requested_reviewers.push(account);
        }
    }
    touch_pull_request(call, id)?;
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    Ok(OperationReply::created(call.view().render_simple_pull(repository, issue, pull)))
}

/// Unknown names are ignored.
fn remove_requested_reviewers(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let names =
        call.body_fields()?.text_list("reviewers")?.ok_or_else(|| OperationError::missing_field("reviewers"))?;
    let gone: Vec<AccountId> =
        names.iter().filter_map(|name| call.state.account_by_login(name)).map(|one| one.id).collect();
    pulls::find_pull_request_mut(call, id)?.requested_reviewers.retain(|one| !gone.contains(one));
    touch_pull_request(call, id)?;
    let (repository, issue, pull) = pulls::find_pull_request(call, id)?;
    Ok(OperationReply::ok(call.view().render_simple_pull(repository, issue, pull)))
}
