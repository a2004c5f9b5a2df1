//! Issues: finding, opening and changing them, and what is said on them. Pull requests are issues too, for comments,
//! labels and assignees.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

/// Registers the issue tools in the order of listings and prompts.
pub(super) fn list_issue_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<ListIssues>(ToolFamily::Issues),
        register_tool::<GetIssue>(ToolFamily::Issues),
        register_tool::<OpenIssue>(ToolFamily::Issues),
        register_tool::<UpdateIssue>(ToolFamily::Issues),
        register_tool::<CloseIssue>(ToolFamily::Issues),
        register_tool::<ListIssueComments>(ToolFamily::Issues),
        register_tool::<CommentOnIssue>(ToolFamily::Issues),
        register_tool::<AddLabels>(ToolFamily::Issues),
        register_tool::<RemoveLabel>(ToolFamily::Issues),
        register_tool::<AddAssignees>(ToolFamily::Issues),
        register_tool::<RemoveAssignees>(ToolFamily::Issues),
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
#[schemars(rename = "Direction")]
pub(super) enum SortDirection {
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
#[schemars(rename = "CloseReason")]
enum IssueCloseReason {
    Completed,
    NotPlanned,
    Duplicate,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "StateReason")]
enum StateReasonArgument {
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
        direction: Option<SortDirection>,
    }
}

impl ToolOperation for ListIssues {
    const NAME: &'static str = "list_issues";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let query = json!({
            "state": self.state, "labels": self.labels.as_ref().map(|labels| labels.join(",")),
            "assignee": self.assignee, "creator": self.creator, "milestone": self.milestone, "since": self.since,
            "sort": self.sort, "direction": self.direction,
        });
        let request = RestRequest::get(self.route(&["issues"])?).with_query(&query).with_page(self.page());
        Ok(github.send(request).await?.to_item_list(|one| view::summarize_issue(one, true)))
    }
}

arguments! {
    /// Shows one issue. Its comments come from list_issue_comments.
    GetIssue in repository {
        issue_number: u64,
    }
}

impl ToolOperation for GetIssue {
    const NAME: &'static str = "get_issue";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string()])?;
        Ok(view::summarize_issue(&github.send(RestRequest::get(place)).await?.body, false))
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

impl ToolOperation for OpenIssue {
    const NAME: &'static str = "open_issue";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({
            "title": self.title, "body": self.body, "labels": self.labels, "assignees": self.assignees,
            "milestone": self.milestone,
        });
        Ok(view::summarize_issue(&github.send(RestRequest::post(self.route(&["issues"])?, body)).await?.body, true))
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
        state_reason: Option<StateReasonArgument>,
    }
}

impl ToolOperation for UpdateIssue {
    const NAME: &'static str = "update_issue";
    const EFFECT: ToolEffect = ToolEffect::Write;

    fn effect(&self) -> ToolEffect {
        if self.body.as_deref() == Some("") { ToolEffect::Destructive } else { ToolEffect::Write }
    }

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string()])?;
        let body = json!({
            "title": self.title, "body": self.body, "labels": self.labels, "assignees": self.assignees,
            "milestone": self.milestone, "state": self.state, "state_reason": self.state_reason,
        });
        Ok(view::summarize_issue(&github.send(RestRequest::patch(place, body)).await?.body, true))
    }
}

arguments! {
    /// Closes an issue.
    CloseIssue in repository {
        issue_number: u64,
        /// Why: completed if not given.
        reason: Option<IssueCloseReason>,
    }
}

impl ToolOperation for CloseIssue {
    const NAME: &'static str = "close_issue";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string()])?;
        let body = json!({"state": "closed", "state_reason": self.reason});
        Ok(view::summarize_issue(&github.send(RestRequest::patch(place, body)).await?.body, true))
    }
}

arguments! {
    /// Lists the comments on an issue or a pull request, oldest first.
    ListIssueComments in repository, in pages {
        issue_number: u64,
    }
}

impl ToolOperation for ListIssueComments {
    const NAME: &'static str = "list_issue_comments";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "comments"])?;
        Ok(github.send(RestRequest::get(place).with_page(self.page())).await?.to_item_list(view::summarize_comment))
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

impl ToolOperation for CommentOnIssue {
    const NAME: &'static str = "comment_on_issue";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "comments"])?;
        let made = github.send(RestRequest::post(place, json!({"body": self.body}))).await?.body;
        Ok(view::merge_fields(view::summarize_comment(&made), json!({"issue_number": self.issue_number})))
    }
}

/// Returns all labels of the issue after the change, as GitHub sends them.
fn summarize_current_labels(number: u64, body: &Value) -> Value {
    json!({"issue_number": number, "labels": view::collect_field(body, "name")})
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

impl ToolOperation for AddLabels {
    const NAME: &'static str = "add_labels";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "labels"])?;
        let answer = github.send(RestRequest::post(place, json!({"labels": self.labels}))).await?;
        Ok(summarize_current_labels(self.issue_number, &answer.body))
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

impl ToolOperation for RemoveLabel {
    const NAME: &'static str = "remove_label";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "labels", &self.label])?;
        Ok(summarize_current_labels(self.issue_number, &github.send(RestRequest::delete(place)).await?.body))
    }
}

/// Returns all assignees after the change, as GitHub sends them. Logins that cannot be assigned are silently missing.
fn summarize_current_assignees(body: &Value) -> Value {
    json!({"issue_number": body["number"], "assignees": view::collect_field(&body["assignees"], "login")})
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

impl ToolOperation for AddAssignees {
    const NAME: &'static str = "add_assignees";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "assignees"])?;
        let answer = github.send(RestRequest::post(place, json!({"assignees": self.assignees}))).await?;
        Ok(summarize_current_assignees(&answer.body))
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

impl ToolOperation for RemoveAssignees {
    const NAME: &'static str = "remove_assignees";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["issues", &self.issue_number.to_string(), "assignees"])?;
        let request = RestRequest::delete(place).with_body(json!({"assignees": self.assignees}));
        Ok(summarize_current_assignees(&github.send(request).await?.body))
    }
}
