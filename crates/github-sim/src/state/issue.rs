//! Issues and what belongs to them: labels, milestones and comments.

use crate::state::ids::LabelId;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pull::PullRequest;
use crate::state::ids::AccountId;
use crate::time::SimulatedTime;

/// A label of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueLabel {
    pub id: LabelId,
    pub name: String,
    /// Six hexadecimal digits in lower case, without `#`.
    pub color: String,
    pub description: Option<String>,
    /// Whether GitHub created it with the repository.
    pub is_default: bool,
}

/// Returns the labels of every new repository on GitHub. `next_id` provides their ids.
pub fn default_labels(mut next_id: impl FnMut() -> u64) -> BTreeMap<LabelId, IssueLabel> {
    const LABELS: [(&str, &str, &str); 9] = [
        ("bug", "d73a4a", "Something isn't working"),
        ("documentation", "0075ca", "Improvements or additions to documentation"),
        ("duplicate", "cfd3d7", "This issue or pull request already exists"),
        ("enhancement", "a2eeef", "New feature or request"),
        ("good first issue", "7057ff", "Good for newcomers"),
        ("help wanted", "008672", "Extra attention is needed"),
        ("invalid", "e4e669", "This doesn't seem right"),
        ("question", "d876e3", "Further information is requested"),
        ("wontfix", "ffffff", "This will not be worked on"),
    ];
    let label = |(name, color, description): (&str, &str, &str)| {
        let id = LabelId(next_id());
        let (name, color) = (name.to_owned(), color.to_owned());
        (id, IssueLabel { id, name, color, description: Some(description.to_owned()), is_default: true })
    };
    LABELS.into_iter().map(label).collect()
}

/// Of issues, pull requests and milestones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssueState {
    Open,
    Closed,
}

impl IssueState {
    pub fn name(self) -> &'static str {
        match self {
            IssueState::Open => "open",
            IssueState::Closed => "closed",
        }
    }
}

/// Why an issue was closed, or that it was reopened. Pull requests have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssueStateReason {
    /// The default when an issue is closed.
    Completed,
    NotPlanned,
    Duplicate,
    Reopened,
}

impl IssueStateReason {
    pub fn name(self) -> &'static str {
        match self {
            IssueStateReason::Completed => "completed",
            IssueStateReason::NotPlanned => "not_planned",
            IssueStateReason::Duplicate => "duplicate",
            IssueStateReason::Reopened => "reopened",
        }
    }

    /// Parses a reason; `None` for other texts.
    pub fn from_name(name: &str) -> Option<IssueStateReason> {
        let all = [
            IssueStateReason::Completed,
            IssueStateReason::NotPlanned,
            IssueStateReason::Duplicate,
            IssueStateReason::Reopened,
        ];
        all.into_iter().find(|reason| reason.name() == name)
    }
}

/// An issue or a pull request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Issue {
    /// Unique in the world. Clients usually refer to `number`.
    pub id: u64,
    /// Unique in the repository, from 1; issues and pull requests share the sequence.
    pub number: u64,
    pub title: String,
    /// Markdown. The empty text is stored as `None`.
    pub body: Option<String>,
    /// May edit the issue without any permission on the repository.
    pub author: AccountId,
    /// In the order in which they were added.
    pub labels: Vec<LabelId>,
    /// At most 10.
    pub assignees: Vec<AccountId>,
    /// The number of a milestone of the same repository.
    pub milestone: Option<u64>,
    pub state: IssueState,
    pub state_reason: Option<IssueStateReason>,
    /// Only accounts with push access can comment on a locked issue.
    pub locked: bool,
    /// One of GitHub's four reasons.
    pub lock_reason: Option<String>,
    pub created_at: SimulatedTime,
    /// Changes with every change of the issue and with every comment.
    pub updated_at: SimulatedTime,
    /// `None` while it is open.
    pub closed_at: Option<SimulatedTime>,
    pub closed_by: Option<AccountId>,
    /// Present if this is a pull request.
    pub pull: Option<Box<PullRequest>>,
}

impl Issue {
    /// Creates an open issue without labels, assignees and body.
    pub fn new(id: u64, number: u64, title: &str, author: AccountId, now: SimulatedTime) -> Issue {
        Issue {
            id,
            number,
            title: title.to_owned(),
            body: None,
            author,
            labels: Vec::new(),
            assignees: Vec::new(),
            milestone: None,
            state: IssueState::Open,
            state_reason: None,
            locked: false,
            lock_reason: None,
            created_at: now,
            updated_at: now,
            closed_at: None,
            closed_by: None,
            pull: None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.state == IssueState::Open
    }

    /// Closes the issue, but not the pull request part; `writing::close_issue_or_pull` freezes its commits, too.
    pub fn close(&mut self, by: AccountId, reason: Option<IssueStateReason>, now: SimulatedTime) {
        self.state = IssueState::Closed;
        self.state_reason = reason;
        self.closed_at = Some(now);
        self.closed_by = Some(by);
        self.updated_at = now;
    }

    /// Reopens the issue. Pull requests get no state reason.
    pub fn reopen(&mut self, now: SimulatedTime) {
        self.state = IssueState::Open;
        self.state_reason = self.pull.is_none().then_some(IssueStateReason::Reopened);
        self.closed_at = None;
        self.closed_by = None;
        self.updated_at = now;
    }
}

/// A comment on an issue or a pull request. Comments on lines are [`super::ReviewComment`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueComment {
    pub id: u64,
    /// The number of its issue or pull request.
    pub issue: u64,
    pub author: AccountId,
    pub body: String,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
}

/// A milestone of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestone {
    pub id: u64,
    /// Unique in the repository, from 1. The sequence is separate from that of issues.
    pub number: u64,
    pub title: String,
    pub description: Option<String>,
    pub creator: AccountId,
    pub state: IssueState,
    pub due_on: Option<SimulatedTime>,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
    pub closed_at: Option<SimulatedTime>,
}
