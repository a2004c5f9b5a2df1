//! What a pull request is beyond an issue.

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::state::ids::AccountId;
use crate::state::ids::RepositoryId;
use crate::time::SimulatedTime;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PullRequest {
    pub id: u64,
    pub head: PullHead,
    /// The branch it goes into.
    pub base: String,
    /// Where that branch was when this was closed; while it is open the branch itself says so.
    pub base_sha: ObjectId,
    pub draft: bool,
    pub maintainer_can_modify: bool,
    pub merged: Option<PullRequestMerge>,
    pub requested_reviewers: Vec<AccountId>,
    pub reviews: Vec<PullRequestReview>,
    pub review_comments: Vec<ReviewComment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullHead {
    /// None when a fork was deleted.
    pub repository: Option<RepositoryId>,
    pub owner: AccountId,
    pub branch: String,
    /// Where it was when this was opened or closed; while it is open the branch itself says so.
    pub sha: ObjectId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestMerge {
    pub at: SimulatedTime,
    pub by: AccountId,
    pub commit: ObjectId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReviewState {
    Approved,
    ChangesRequested,
    Commented,
    Dismissed,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestReview {
    pub id: u64,
    pub author: AccountId,
    pub state: ReviewState,
    pub body: String,
    pub commit: ObjectId,
    pub submitted_at: Option<SimulatedTime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewComment {
    pub id: u64,
    pub review: Option<u64>,
    pub in_reply_to: Option<u64>,
    pub author: AccountId,
    pub body: String,
    pub path: String,
    pub line: Option<u64>,
    /// `LEFT` or `RIGHT`.
    pub side: String,
    pub commit: ObjectId,
    pub diff_hunk: String,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
}

impl PullRequest {
    /// Each reviewer's last word: who approves, and who asks for changes.
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
