//! Issues: finding, opening and changing them, and what is said on them. Pull requests are issues too, for comments,
//! labels and assignees.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{Api, Failure, Request};
use super::operation::{Entry, Operation, arguments, entry};
use super::{Effect, Family, view};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry::<ListIssues>(Family::Issues),
        entry::<GetIssue>(Family::Issues),
        entry::<OpenIssue>(Family::Issues),
        entry::<UpdateIssue>(Family::Issues),
        entry::<CloseIssue>(Family::Issues),
        entry::<ListIssueComments>(Family::Issues),
        entry::<CommentOnIssue>(Family::Issues),
        entry::<AddLabels>(Family::Issues),
        entry::<RemoveLabel>(Family::Issues),
        entry::<AddAssignees>(Family::Issues),
        entry::<RemoveAssignees>(Family::Issues),
    ]
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StateFilter {
    Open,
    Closed,
    All,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OpenOrClosed {
    Open,
    Closed,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    Asc,
    Desc,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum IssueSort {
    Created,
    Updated,
    Comments,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CloseReason {
    Completed,
    NotPlanned,
    Duplicate,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StateReason {
    Completed,
    NotPlanned,
    Duplicate,
    Reopened,
}

arguments! {
    /// Lists issues of a repository, newest first. GitHub lists pull requests among them: is_pull_request tells which.
    ListIssues in repository, in pages {
        /// Open ones if not given.
        state: Option<StateFilter>,
        /// Only issues that have all of these labels.
        labels: Option<Vec<String>>,
        /// Only issues assigned to this user; none or * for unassigned or any.
        assignee: Option<String>,
        /// Only issues opened by this user.
        creator: Option<String>,
        /// Only issues of the milestone with this number; none or * for without or with any.
        milestone: Option<String>,
        /// Only issues updated after this time, such as 2026-01-31T00:00:00Z.
        since: Option<String>,
        sort: Option<IssueSort>,
        direction: Option<Direction>,
    }
}

impl Operation for ListIssues {
    const NAME: &'static str = "list_issues";
    const EFFECT: Effect = Effect::Read;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let query = json!({
            "state": self.state, "labels": self.labels.as_ref().map(|labels| labels.join(",")),
            "assignee": self.assignee, "creator": self.creator, "milestone": self.milestone, "since": self.since,
            "sort": self.sort, "direction": self.direction,
        });
        let request = Request::get(self.route(&["issues"])?).with_query(&query).with_page(self.page());
        Ok(github.send(request).await?.items(|one| view::issue(one, true)))
    }
}

arguments! {
    /// Shows one issue. Its comments come from list_issue_comments.
    GetIssue in repository {
        issue_number: u64,
    }
}

impl Operation for GetIssue {
    const NAME: &'static str = "get_issue";
    const EFFECT: Effect = Effect::Read;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string()])?;
        Ok(view::issue(&github.send(Request::get(place)).await?.body, false))
    }
}

arguments! {
    /// Opens an issue.
    OpenIssue in repository {
        #[schemars(length(min = 1))]
        title: String,
        /// Markdown.
        body: Option<String>,
        /// Names of labels; those that do not exist yet are made.
        labels: Option<Vec<String>>,
        /// Logins of those who shall work on it.
        assignees: Option<Vec<String>>,
        /// A milestone's number.
        milestone: Option<u64>,
    }
}

impl Operation for OpenIssue {
    const NAME: &'static str = "open_issue";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let body = json!({
            "title": self.title, "body": self.body, "labels": self.labels, "assignees": self.assignees,
            "milestone": self.milestone,
        });
        Ok(view::issue(&github.send(Request::post(self.route(&["issues"])?, body)).await?.body, true))
    }
}

arguments! {
    /// Changes an issue. Lists replace what was there, so labels and assignees must be given in full; to add or remove
    /// some, use add_labels, remove_label, add_assignees, remove_assignees. What is not given stays as it is.
    UpdateIssue in repository {
        issue_number: u64,
        #[schemars(length(min = 1))]
        title: Option<String>,
        /// Markdown; replaces the whole text.
        body: Option<String>,
        labels: Option<Vec<String>>,
        assignees: Option<Vec<String>>,
        /// A milestone's number.
        milestone: Option<u64>,
        state: Option<OpenOrClosed>,
        /// Why the state changes.
        state_reason: Option<StateReason>,
    }
}

impl Operation for UpdateIssue {
    const NAME: &'static str = "update_issue";
    const EFFECT: Effect = Effect::Write;

    fn effect(&self) -> Effect {
        if self.body.as_deref() == Some("") { Effect::Destructive } else { Effect::Write }
    }

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string()])?;
        let body = json!({
            "title": self.title, "body": self.body, "labels": self.labels, "assignees": self.assignees,
            "milestone": self.milestone, "state": self.state, "state_reason": self.state_reason,
        });
        Ok(view::issue(&github.send(Request::patch(place, body)).await?.body, true))
    }
}

arguments! {
    /// Closes an issue.
    CloseIssue in repository {
        issue_number: u64,
        /// Why: completed if not given.
        reason: Option<CloseReason>,
    }
}

impl Operation for CloseIssue {
    const NAME: &'static str = "close_issue";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string()])?;
        let body = json!({"state": "closed", "state_reason": self.reason});
        Ok(view::issue(&github.send(Request::patch(place, body)).await?.body, true))
    }
}

arguments! {
    /// Lists the comments on an issue or a pull request, oldest first.
    ListIssueComments in repository, in pages {
        issue_number: u64,
    }
}

impl Operation for ListIssueComments {
    const NAME: &'static str = "list_issue_comments";
    const EFFECT: Effect = Effect::Read;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "comments"])?;
        Ok(github.send(Request::get(place).with_page(self.page())).await?.items(view::comment))
    }
}

arguments! {
    /// Writes a comment on an issue or a pull request.
    CommentOnIssue in repository {
        /// Of the issue or pull request.
        issue_number: u64,
        /// Markdown.
        #[schemars(length(min = 1))]
        body: String,
    }
}

impl Operation for CommentOnIssue {
    const NAME: &'static str = "comment_on_issue";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "comments"])?;
        let made = github.send(Request::post(place, json!({"body": self.body}))).await?.body;
        Ok(view::with(view::comment(&made), json!({"issue_number": self.issue_number})))
    }
}

/// What labels there are on an issue now.
fn labels_now(number: u64, body: &Value) -> Value {
    json!({"issue_number": number, "labels": view::names(body, "name")})
}

arguments! {
    /// Adds labels to an issue or a pull request; those that it has stay.
    AddLabels in repository {
        issue_number: u64,
        /// Names of labels; those that do not exist yet are made.
        #[schemars(length(min = 1))]
        labels: Vec<String>,
    }
}

impl Operation for AddLabels {
    const NAME: &'static str = "add_labels";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "labels"])?;
        let answer = github.send(Request::post(place, json!({"labels": self.labels}))).await?;
        Ok(labels_now(self.issue_number, &answer.body))
    }
}

arguments! {
    /// Takes a label from an issue or a pull request. The label itself stays in the repository.
    RemoveLabel in repository {
        issue_number: u64,
        /// The label's name.
        #[schemars(length(min = 1))]
        label: String,
    }
}

impl Operation for RemoveLabel {
    const NAME: &'static str = "remove_label";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "labels", &self.label])?;
        Ok(labels_now(self.issue_number, &github.send(Request::delete(place)).await?.body))
    }
}

/// Who works on an issue now.
fn assignees_now(body: &Value) -> Value {
    json!({"issue_number": body["number"], "assignees": view::names(&body["assignees"], "login")})
}

arguments! {
    /// Assigns more people to an issue or a pull request. Those who cannot be assigned are left out silently: look at the
    /// answer.
    AddAssignees in repository {
        issue_number: u64,
        /// Logins.
        #[schemars(length(min = 1))]
        assignees: Vec<String>,
    }
}

impl Operation for AddAssignees {
    const NAME: &'static str = "add_assignees";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "assignees"])?;
        let answer = github.send(Request::post(place, json!({"assignees": self.assignees}))).await?;
        Ok(assignees_now(&answer.body))
    }
}

arguments! {
    /// Takes people off an issue or a pull request.
    RemoveAssignees in repository {
        issue_number: u64,
        /// Logins.
        #[schemars(length(min = 1))]
        assignees: Vec<String>,
    }
}

impl Operation for RemoveAssignees {
    const NAME: &'static str = "remove_assignees";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "assignees"])?;
        let request = Request::delete(place).with_body(json!({"assignees": self.assignees}));
        Ok(assignees_now(&github.send(request).await?.body))
    }
}
