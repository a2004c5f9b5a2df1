//! Pull requests and their reviews.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure, drop_null_fields};
use super::issues::{OpenOrClosed, StateFilter};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

pub(super) fn list_pull_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<ListPullRequests>(ToolFamily::Pulls),
        register_tool::<GetPullRequest>(ToolFamily::Pulls),
        register_tool::<ListPullRequestFiles>(ToolFamily::Pulls),
        register_tool::<CreatePullRequest>(ToolFamily::Pulls),
        register_tool::<UpdatePullRequest>(ToolFamily::Pulls),
        register_tool::<MergePullRequest>(ToolFamily::Pulls),
        register_tool::<ListReviews>(ToolFamily::Pulls),
        register_tool::<CreateReview>(ToolFamily::Pulls),
    ]
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MergeMethod {
    Merge,
    Squash,
    Rebase,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ReviewEvent {
    Approve,
    RequestChanges,
    Comment,
}

arguments! {
    /// Lists pull requests of a repository, newest first. Whether one can be merged is told by get_pull_request.
    ListPullRequests in repository, in pages {
        /// Open ones if not given.
        state: Option<StateFilter>,
        /// Only those from this branch, as owner:branch.
        head: Option<String>,
        /// Only those into this branch.
        base: Option<String>,
    }
}

impl ToolOperation for ListPullRequests {
    const NAME: &'static str = "list_pull_requests";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let query = json!({"state": self.state, "head": self.head, "base": self.base});
        let request = RestRequest::get(self.route(&["pulls"])?).with_query(&query).with_page(self.page());
        Ok(github.send(request).await?.to_item_list(|one| view::summarize_pull(one, true)))
    }
}

arguments! {
    /// Shows a pull request: both branches with their commits, whether it is merged or can be (mergeable is null while
    /// GitHub is still finding out: ask again).
    GetPullRequest in repository {
        pull_number: u64,
    }
}

impl ToolOperation for GetPullRequest {
    const NAME: &'static str = "get_pull_request";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["pulls", &self.pull_number.to_string()])?;
        Ok(view::summarize_pull(&github.send(RestRequest::get(place)).await?.body, false))
    }
}

arguments! {
    /// Lists the files that a pull request changes, with the changes.
    ListPullRequestFiles in repository, in pages {
        pull_number: u64,
    }
}

impl ToolOperation for ListPullRequestFiles {
    const NAME: &'static str = "list_pull_request_files";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["pulls", &self.pull_number.to_string(), "files"])?;
        Ok(github
            .send(RestRequest::get(place).with_page(self.page()))
            .await?
            .to_item_list(view::summarize_changed_file))
    }
}

arguments! {
    /// Opens a pull request. "Fixes #5" in the body closes issue 5 when it is merged into the default branch.
    CreatePullRequest in repository {
        #[schemars(length(min = 1))]
        title: String,
        /// The branch with the changes; owner:branch if it is in a fork.
        #[schemars(length(min = 1))]
        head: String,
        /// The branch that they shall go to.
        #[schemars(length(min = 1))]
        base: String,
        /// Markdown.
        body: Option<String>,
        /// Whether it is not yet ready for review.
        draft: Option<bool>,
    }
}

impl ToolOperation for CreatePullRequest {
    const NAME: &'static str = "create_pull_request";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({
            "title": self.title, "head": self.head, "base": self.base, "body": self.body, "draft": self.draft,
        });
        Ok(view::summarize_pull(&github.send(RestRequest::post(self.route(&["pulls"])?, body)).await?.body, true))
    }
}

arguments! {
    /// Changes a pull request's title, text or base branch, closes it without merging, or opens it again. What is not
    /// given stays as it is.
    UpdatePullRequest in repository {
        pull_number: u64,
        #[schemars(length(min = 1))]
        title: Option<String>,
        /// Markdown; replaces the whole text.
        body: Option<String>,
        state: Option<OpenOrClosed>,
        /// The branch that it shall go to.
        base: Option<String>,
    }
}

impl ToolOperation for UpdatePullRequest {
    const NAME: &'static str = "update_pull_request";
    const EFFECT: ToolEffect = ToolEffect::Write;

    fn effect(&self) -> ToolEffect {
        if self.body.as_deref() == Some("") { ToolEffect::Destructive } else { ToolEffect::Write }
    }

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["pulls", &self.pull_number.to_string()])?;
        let body = json!({"title": self.title, "body": self.body, "state": self.state, "base": self.base});
        Ok(view::summarize_pull(&github.send(RestRequest::patch(place, body)).await?.body, true))
    }
}

arguments! {
    /// Merges a pull request. Look at its files first, and give the head sha that you have seen: then nothing is merged
    /// that came after it.
    MergePullRequest in repository {
        pull_number: u64,
        /// A merge commit if not given.
        merge_method: Option<MergeMethod>,
        /// The head's sha; if the branch has moved on, the answer is 409.
        sha: Option<String>,
        commit_title: Option<String>,
        commit_message: Option<String>,
    }
}

impl ToolOperation for MergePullRequest {
    const NAME: &'static str = "merge_pull_request";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["pulls", &self.pull_number.to_string(), "merge"])?;
        let body = json!({
            "merge_method": self.merge_method, "sha": self.sha, "commit_title": self.commit_title,
            "commit_message": self.commit_message,
        });
        let done = github.send(RestRequest::put(place, body)).await?.body;
        Ok(drop_null_fields(json!({
            "pull_number": self.pull_number, "merged": done["merged"], "sha": done["sha"], "message": done["message"],
        })))
    }
}

arguments! {
    /// Lists the reviews of a pull request, oldest first.
    ListReviews in repository, in pages {
        pull_number: u64,
    }
}

impl ToolOperation for ListReviews {
    const NAME: &'static str = "list_reviews";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["pulls", &self.pull_number.to_string(), "reviews"])?;
        Ok(github.send(RestRequest::get(place).with_page(self.page())).await?.to_item_list(view::summarize_review))
    }
}

arguments! {
    /// Reviews a pull request: approves it, asks for changes, or only comments. Nobody can approve their own.
    CreateReview in repository {
        pull_number: u64,
        event: ReviewEvent,
        /// What you have to say; needed unless you approve.
        body: Option<String>,
    }
}

impl ToolOperation for CreateReview {
    const NAME: &'static str = "create_review";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["pulls", &self.pull_number.to_string(), "reviews"])?;
        let body = json!({"event": self.event, "body": self.body});
        let made = github.send(RestRequest::post(place, body)).await?.body;
        Ok(view::merge_fields(view::summarize_review(&made), json!({"pull_number": self.pull_number})))
    }
}
