//! Search over all that the user can see.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure, build_route, drop_null_fields};
use super::issues::SortDirection;
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

/// Registers the search tools. Search has a rate limit of its own, far below that of other requests.
pub(super) fn list_search_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<SearchCode>(ToolFamily::Search),
        register_tool::<SearchIssues>(ToolFamily::Search),
        register_tool::<SearchRepositories>(ToolFamily::Search),
    ]
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SearchSort {
    Comments,
    Created,
    Updated,
}

arguments! {
    /// Finds files by what is in them, on default branches. Qualifiers: repo:owner/name, org:name, user:login, path:,
    /// extension:, filename:, language:.
    SearchCode in pages {
        /// Words and qualifiers.
        #[schemars(length(min = 1))]
        query: String,
    }
}

impl ToolOperation for SearchCode {
    const NAME: &'static str = "search_code";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(build_route(&["search", "code"])?)
            .with_query(&json!({"q": self.query}))
            .with_page(self.page());
        Ok(github.send(request).await?.to_item_list(|one| {
            drop_null_fields(json!({
                "repository": one["repository"]["full_name"], "path": one["path"], "sha": one["sha"],
                "html_url": one["html_url"],
            }))
        }))
    }
}

arguments! {
    /// Finds issues and pull requests in any repository, and counts them (total_count). Qualifiers: repo:owner/name,
    /// is:issue, is:pr, is:open, is:closed, label:, author:, assignee:, milestone:, in:title, no:label, created:>2026-01-31.
    SearchIssues in pages {
        /// Words and qualifiers.
        #[schemars(length(min = 1))]
        query: String,
        sort: Option<SearchSort>,
        order: Option<SortDirection>,
    }
}

impl ToolOperation for SearchIssues {
    const NAME: &'static str = "search_issues";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(build_route(&["search", "issues"])?)
            .with_query(&json!({"q": self.query, "sort": self.sort, "order": self.order}))
            .with_page(self.page());
        Ok(github.send(request).await?.to_item_list(|one| view::summarize_issue(one, true)))
    }
}

arguments! {
    /// Finds repositories by name and description. Qualifiers: user:login, org:name, language:, topic:, stars:>100.
    SearchRepositories in pages {
        /// Words and qualifiers.
        #[schemars(length(min = 1))]
        query: String,
    }
}

impl ToolOperation for SearchRepositories {
    const NAME: &'static str = "search_repositories";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(build_route(&["search", "repositories"])?)
            .with_query(&json!({"q": self.query}))
            .with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_repository))
    }
}
