//! Releases. Publishing one creates its tag if it does not exist.

use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

pub(super) fn list_release_tools() -> Vec<RegisteredTool> {
    vec![register_tool::<ListReleases>(ToolFamily::Releases), register_tool::<CreateRelease>(ToolFamily::Releases)]
}

arguments! {
    /// Lists the releases of a repository, newest first.
    ListReleases in repository, in pages {}
}

impl ToolOperation for ListReleases {
    const NAME: &'static str = "list_releases";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(self.route(&["releases"])?).with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_release))
    }
}

arguments! {
    /// Publishes a release for a tag. If there is no such tag, it is made on target_commitish.
    CreateRelease in repository {
        #[schemars(length(min = 1))]
        tag_name: String,
        /// The branch or commit that a new tag shall point to; the default branch if not given.
        target_commitish: Option<String>,
        /// The release's title.
        name: Option<String>,
        /// The notes, in Markdown.
        body: Option<String>,
        /// Whether it is kept back from the public.
        draft: Option<bool>,
        prerelease: Option<bool>,
    }
}

impl ToolOperation for CreateRelease {
    const NAME: &'static str = "create_release";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({
            "tag_name": self.tag_name, "target_commitish": self.target_commitish, "name": self.name,
            "body": self.body, "draft": self.draft, "prerelease": self.prerelease,
        });
        Ok(view::summarize_release(&github.send(RestRequest::post(self.route(&["releases"])?, body)).await?.body))
    }
}
