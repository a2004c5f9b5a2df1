//! The user, and repositories as a whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure, build_route};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

pub(super) fn list_repo_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<GetMe>(ToolFamily::Repos),
        register_tool::<ListMyRepos>(ToolFamily::Repos),
        register_tool::<GetRepo>(ToolFamily::Repos),
        register_tool::<CreateRepo>(ToolFamily::Repos),
        register_tool::<UpdateRepo>(ToolFamily::Repos),
        register_tool::<DeleteRepo>(ToolFamily::Repos),
        register_tool::<ForkRepo>(ToolFamily::Repos),
        register_tool::<StarRepo>(ToolFamily::Repos),
        register_tool::<UnstarRepo>(ToolFamily::Repos),
        register_tool::<ListStarred>(ToolFamily::Repos),
    ]
}

arguments! {
    /// Who the token belongs to: login, name and so on. Use the login as `owner` for the user's own repositories.
    GetMe {}
}

impl ToolOperation for GetMe {
    const NAME: &'static str = "get_me";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let answer = github.send(RestRequest::get(build_route(&["user"])?)).await?;
        Ok(view::summarize_account(&answer.body))
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Visibility")]
enum VisibilityFilter {
    All,
    Public,
    Private,
}

arguments! {
    /// Lists the repositories of the authenticated user, private ones and those of the user's organizations included.
    ListMyRepos in pages {
        /// Only public or only private ones; all if not given.
        visibility: Option<VisibilityFilter>,
    }
}

impl ToolOperation for ListMyRepos {
    const NAME: &'static str = "list_my_repos";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(build_route(&["user", "repos"])?)
            .with_query(&json!({"visibility": self.visibility}))
            .with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_repository))
    }
}

arguments! {
    /// Shows a repository: description, visibility, default branch, licence, counts.
    GetRepo in repository {}
}

impl ToolOperation for GetRepo {
    const NAME: &'static str = "get_repo";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        Ok(view::summarize_repository(&github.send(RestRequest::get(self.route(&[])?)).await?.body))
    }
}

arguments! {
    /// Creates a repository for the authenticated user, or in an organization. Without auto_init it is empty: no branch
    /// and no commit until the first file is committed.
    CreateRepo {
        /// Its name, without an owner.
        #[schemars(length(min = 1))]
        name: String,
        description: Option<String>,
        /// Whether only invited people can see it; public if not given.
        private: Option<bool>,
        /// Whether to make a first commit with a README.md.
        auto_init: Option<bool>,
        /// The organization that shall own it; the authenticated user if not given.
        #[schemars(length(min = 1))]
        org: Option<String>,
    }
}

impl ToolOperation for CreateRepo {
    const NAME: &'static str = "create_repo";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = match &self.org {
            Some(org) => build_route(&["orgs", org, "repos"])?,
            None => build_route(&["user", "repos"])?,
        };
        let body = json!({
            "name": self.name, "description": self.description, "private": self.private, "auto_init": self.auto_init,
        });
        Ok(view::summarize_repository(&github.send(RestRequest::post(place, body)).await?.body))
    }
}

arguments! {
    /// Changes a repository: its name, description, visibility, default branch, or whether it is archived. What is not
    /// given stays as it is.
    UpdateRepo in repository {
        /// A new name.
        #[schemars(length(min = 1))]
        name: Option<String>,
        description: Option<String>,
        /// False makes it public: everyone can then read all of its history.
        private: Option<bool>,
        /// The branch that pull requests go to; it must exist.
        default_branch: Option<String>,
        /// True makes it read-only for everyone.
        archived: Option<bool>,
    }
}

impl ToolOperation for UpdateRepo {
    const NAME: &'static str = "update_repo";
    const EFFECT: ToolEffect = ToolEffect::Write;

    fn effect(&self) -> ToolEffect {
        let shows = self.private == Some(false);
        if shows || self.archived == Some(true) { ToolEffect::Destructive } else { ToolEffect::Write }
    }

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({
            "name": self.name, "description": self.description, "private": self.private,
            "default_branch": self.default_branch, "archived": self.archived,
        });
        Ok(view::summarize_repository(&github.send(RestRequest::patch(self.route(&[])?, body)).await?.body))
    }
}

arguments! {
    /// Deletes a repository with everything in it. This cannot be undone.
    DeleteRepo in repository {}
}

impl ToolOperation for DeleteRepo {
    const NAME: &'static str = "delete_repo";
    const EFFECT: ToolEffect = ToolEffect::Destructive;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        github.send(RestRequest::delete(self.route(&[])?)).await?;
        Ok(json!({"deleted": format!("{}/{}", self.owner, self.repo)}))
    }
}

arguments! {
    /// Makes a copy of a repository in the authenticated user's account, from which pull requests can be made.
    ForkRepo in repository {}
}

impl ToolOperation for ForkRepo {
    const NAME: &'static str = "fork_repo";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let answer = github.send(RestRequest::post(self.route(&["forks"])?, json!({}))).await?;
        Ok(view::summarize_repository(&answer.body))
    }
}

arguments! {
    /// Stars a repository for the authenticated user.
    StarRepo in repository {}
}

impl ToolOperation for StarRepo {
    const NAME: &'static str = "star_repo";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        // Asked for only because it refuses names that cannot be.
        self.route(&[])?;
        let place = build_route(&["user", "starred", &self.owner, &self.repo])?;
        github.send(RestRequest::put(place, Value::Null)).await?;
        Ok(json!({"starred": format!("{}/{}", self.owner, self.repo)}))
    }
}

arguments! {
    /// Takes the authenticated user's star from a repository.
    UnstarRepo in repository {}
}

impl ToolOperation for UnstarRepo {
    const NAME: &'static str = "unstar_repo";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        self.route(&[])?;
        github.send(RestRequest::delete(build_route(&["user", "starred", &self.owner, &self.repo])?)).await?;
        Ok(json!({"unstarred": format!("{}/{}", self.owner, self.repo)}))
    }
}

arguments! {
    /// Lists the repositories that the authenticated user has starred.
    ListStarred in pages {}
}

impl ToolOperation for ListStarred {
    const NAME: &'static str = "list_starred";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(build_route(&["user", "starred"])?).with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_repository))
    }
}
