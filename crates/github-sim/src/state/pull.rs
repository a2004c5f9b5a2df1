//! The part of a pull request that goes beyond an issue.

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::state::ids::AccountId;
use crate::state::ids::RepositoryId;
use crate::time::SimulatedTime;

/// A pull request. Title, body, state and labels are in its issue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PullRequest {
    /// Differs from the id of the issue, as on GitHub.
    pub id: u64,
    pub head: PullHead,
    /// The branch that it is merged into.
    pub base: String,
    /// The head of the base branch when it was opened or closed. While it is open, the branch itself counts.
    pub base_sha: ObjectId,
    /// Drafts cannot be merged.
    pub draft: bool,
    /// Stored and shown; pushing to a fork is not extended by it.
    pub maintainer_can_modify: bool,
    /// Present after a merge; the issue is closed then.
    pub merged: Option<PullRequestMerge>,
    /// Reviewers who have not answered yet.
    pub requested_reviewers: Vec<AccountId>,
    /// In order of submission.
    pub reviews: Vec<PullRequestReview>,
    /// Of all reviews, in order of creation.
    pub review_comments: Vec<ReviewComment>,
}

/// The branch that a pull request comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullHead {
    /// `None` if the fork was deleted.
    pub repository: Option<RepositoryId>,
    /// Stored separately, since it must be shown even if the fork is gone.
    pub owner: AccountId,
    pub branch: String,
    /// The head when it was opened or closed. While it is open, the branch itself counts.
    pub sha: ObjectId,
}

/// When, by whom, and with which commit on the base branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestMerge {
    pub at: SimulatedTime,
    pub by: AccountId,
    pub commit: ObjectId,
}

/// The state of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReviewState {
    Approved,
    ChangesRequested,
    Commented,
    Dismissed,
    /// Not submitted yet, and visible only to its author.
    Pending,
}

impl ReviewState {
    pub fn name(self) -> &'static str {
        match self {
            ReviewState::Approved => "APPROVED",
            ReviewState::ChangesRequested => "CHANGES_REQUESTED",
            ReviewState::Commented => "COMMENTED",
            ReviewState::Dismissed => "DISMISSED",
            ReviewState::Pending => "PENDING",
        }
    }
}

/// A review. Its line comments refer to it by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestReview {
    pub id: u64,
    /// Never the author of the pull request for a decision.
    pub author: AccountId,
    pub state: ReviewState,
    pub body: String,
    /// The head that was reviewed.
    pub commit: ObjectId,
    /// `None` while it is pending.
    pub submitted_at: Option<SimulatedTime>,
}

/// A comment on a line or a file of a pull request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewComment {
    pub id: u64,
    /// The review that it belongs to. A single comment gets a review of its own.
    pub review: Option<u64>,
    /// The first comment of the thread.
    pub in_reply_to: Option<u64>,
    pub author: AccountId,
    pub body: String,
    pub path: String,
    /// `None` for a comment on the whole file.
    pub line: Option<u64>,
    /// `LEFT` for the old and `RIGHT` for the new file.
    pub side: String,
    pub commit: ObjectId,
    /// The beginning of the file's patch, up to 12 lines. GitHub shows the lines before the comment.
    pub diff_hunk: String,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
}

impl PullRequest {
    /// Returns the last decision of each reviewer: approval or request for changes. Comments do not change it, a
    /// dismissal removes it.
    pub fn latest_review_states(&self) -> Vec<(AccountId, ReviewState)> {
        let mut last: std::collections::BTreeMap<AccountId, ReviewState> = std::collections::BTreeMap::new();
        for review in &self.reviews {
            match review.state {
                ReviewState::Approved | ReviewState::ChangesRequested => {
                    last.insert(review.author, review.state);
                }
                ReviewState::Dismissed => {
                    last.remove(&review.author);
                }
                ReviewState::Commented | ReviewState::Pending => {}
            }
        }
        last.into_iter().collect()
    }
}
