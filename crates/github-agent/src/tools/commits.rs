//! Commits: history, differences, merges.

use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure, drop_null_fields};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

pub(super) fn list_commit_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<ListCommits>(ToolFamily::Commits),
        register_tool::<GetCommit>(ToolFamily::Commits),
        register_tool::<CompareCommits>(ToolFamily::Commits),
        register_tool::<CreateCommit>(ToolFamily::Commits),
        register_tool::<MergeBranches>(ToolFamily::Commits),
    ]
}

arguments! {
    /// Lists commits, newest first, without what they changed (see get_commit).
    ListCommits in repository, in pages {
        /// The branch, tag or commit to begin with; the default branch if not given.
        sha: Option<String>,
        /// Only commits that changed this file or folder.
        path: Option<String>,
        /// Only commits of this author: a login or an e-mail address.
        author: Option<String>,
        /// Only commits after this time, such as 2026-01-31T00:00:00Z.
        since: Option<String>,
        /// Only commits before this time.
        until: Option<String>,
    }
}

impl ToolOperation for ListCommits {
    const NAME: &'static str = "list_commits";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let query = json!({
            "sha": self.sha, "path": self.path, "author": self.author, "since": self.since, "until": self.until,
        });
        let request = RestRequest::get(self.route(&["commits"])?).with_query(&query).with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_commit))
    }
}

/// Summarizes the files of a commit or a comparison.
fn summarize_changed_files(body: &Value) -> Value {
    body["files"].as_array().map(|files| files.iter().map(view::summarize_changed_file).collect()).unwrap_or_default()
}

arguments! {
    /// Shows a commit and what it changed, file by file.
    GetCommit in repository {
        /// A commit's sha, a branch or a tag.
        #[schemars(length(min = 1))]
        r#ref: String,
    }
}

impl ToolOperation for GetCommit {
    const NAME: &'static str = "get_commit";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = github.send(RestRequest::get(self.route(&["commits", &self.r#ref])?)).await?.body;
        Ok(view::merge_fields(
            view::summarize_commit(&body),
            json!({"stats": body["stats"], "files": summarize_changed_files(&body)}),
        ))
    }
}

arguments! {
    /// Compares two branches, tags or commits: how far head is ahead of base and behind it, the commits that base lacks,
    /// and what they change.
    CompareCommits in repository, in pages {
        #[schemars(length(min = 1))]
        base: String,
        #[schemars(length(min = 1))]
        head: String,
    }
}

impl ToolOperation for CompareCommits {
    const NAME: &'static str = "compare_commits";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let both = format!("{}...{}", self.base, self.head);
        let answer = github.send(RestRequest::get(self.route(&["compare", &both])?).with_page(self.page())).await?;
        let body = &answer.body;
        let commits: Vec<_> = body["commits"].as_array().into_iter().flatten().map(view::summarize_commit).collect();
        Ok(drop_null_fields(json!({
            "status": body["status"], "ahead_by": body["ahead_by"], "behind_by": body["behind_by"],
            "total_commits": body["total_commits"], "base_sha": body["base_commit"]["sha"],
            "merge_base_sha": body["merge_base_commit"]["sha"], "commits": commits, "files": summarize_changed_files(body),
            "next_page": answer.next_page(),
        })))
    }
}

arguments! {
    /// Makes a commit of a tree that exists, such as an earlier commit's tree_sha to go back to it. No branch moves there
    /// by itself: use update_branch with the new commit's sha.
    CreateCommit in repository {
        message: String,
        /// The sha of the tree that the commit shall hold.
        #[schemars(length(min = 1))]
        tree: String,
        /// The commits before it: mostly one, the branch's.
        parents: Vec<String>,
    }
}

impl ToolOperation for CreateCommit {
    const NAME: &'static str = "create_commit";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({"message": self.message, "tree": self.tree, "parents": self.parents});
        let made = github.send(RestRequest::post(self.route(&["git", "commits"])?, body)).await?.body;
        Ok(drop_null_fields(json!({
            "sha": made["sha"], "tree_sha": made["tree"]["sha"], "parents": view::collect_field(&made["parents"], "sha"),
            "message": made["message"], "html_url": made["html_url"],
        })))
    }
}

arguments! {
    /// Merges a branch or commit into a branch, without a pull request.
    MergeBranches in repository {
        /// The branch that is changed.
        #[schemars(length(min = 1))]
        base: String,
        /// What is merged into it.
        #[schemars(length(min = 1))]
        head: String,
        /// The merge commit's message.
        message: Option<String>,
    }
}

impl ToolOperation for MergeBranches {
    const NAME: &'static str = "merge_branches";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({"base": self.base, "head": self.head, "commit_message": self.message});
        let answer = github.send(RestRequest::post(self.route(&["merges"])?, body)).await?;
        if answer.status == 204 {
            return Ok(json!({"merged": false, "note": "Nothing to merge: base holds all of head already."}));
        }
        Ok(view::merge_fields(json!({"merged": true}), view::summarize_commit(&answer.body)))
    }
}
