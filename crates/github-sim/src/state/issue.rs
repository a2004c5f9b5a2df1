//! Issues, and what hangs on them: labels, milestones, comments.

use crate::state::ids::LabelId;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pull::PullRequest;
use crate::state::ids::AccountId;
use crate::time::SimulatedTime;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueLabel {
    pub id: LabelId,
    pub name: String,
    /// Six hexadecimal digits.
    pub color: String,
    pub description: Option<String>,
    pub is_default: bool,
}

/// What GitHub gives every new repository.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssueStateReason {
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Issue {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: Option<String>,
    pub author: AccountId,
    pub labels: Vec<LabelId>,
    pub assignees: Vec<AccountId>,
    pub milestone: Option<u64>,
    pub state: IssueState,
    pub state_reason: Option<IssueStateReason>,
    pub locked: bool,
    pub lock_reason: Option<String>,
    pub created_at: SimulatedTime,
    pub updated_at: SimulatedTime,
    pub closed_at: Option<SimulatedTime>,
    pub closed_by: Option<AccountId>,
    /// What makes it a pull request.
    pub pull: Option<Box<PullRequest>>,
}

impl Issue {
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

    pub fn close(&mut self, by: AccountId, reason: Option<IssueStateReason>, now: SimulatedTime) {
        self.state = IssueState::Closed;
        self.state_reason = reason;
        self.closed_at = Some(now);
        self.closed_by = Some(by);
        self.updated_at = now;
    }

    pub fn reopen(&mut self, now: SimulatedTime) {
        self.state = IssueState::Open;
        self.state_reason = self.pull.is_none().then_some(IssueStateReason::Reopened);
        self.closed_at = None;
        self.closed_by = None;
        self.updated_at = now;
    }
}

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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestone {
    pub id: u64,
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
