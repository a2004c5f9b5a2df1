//! Releases.

use serde_json::{Value, json};

use super::api::{Api, Failure, Request};
use super::operation::{Entry, Operation, arguments, entry};
use super::{Effect, Family, view};

pub(super) fn entries() -> Vec<Entry> {
    vec![entry::<ListReleases>(Family::Releases), entry::<CreateRelease>(Family::Releases)]
}

arguments! {
    /// Lists the releases of a repository, newest first.
    ListReleases in repository, in pages {}
}

impl Operation for ListReleases {
    const NAME: &'static str = "list_releases";
    const EFFECT: Effect = Effect::Read;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let request = Request::get(self.route(&["releases"])?).with_page(self.page());
        Ok(github.send(request).await?.items(view::release))
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

impl Operation for CreateRelease {
    const NAME: &'static str = "create_release";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let body = json!({
            "tag_name": self.tag_name, "target_commitish": self.target_commitish, "name": self.name,
            "body": self.body, "draft": self.draft, "prerelease": self.prerelease,
        });
        Ok(view::release(&github.send(Request::post(self.route(&["releases"])?, body)).await?.body))
    }
}
