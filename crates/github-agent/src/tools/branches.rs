//! Branches and tags. Moving a branch by force is destructive; the effect depends on the arguments.

use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure, split_path_segments};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

pub(super) fn list_branch_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<ListBranches>(ToolFamily::Branches),
        register_tool::<GetBranch>(ToolFamily::Branches),
        register_tool::<CreateBranch>(ToolFamily::Branches),
        register_tool::<UpdateBranch>(ToolFamily::Branches),
        register_tool::<DeleteBranch>(ToolFamily::Branches),
        register_tool::<ListTags>(ToolFamily::Branches),
        register_tool::<CreateTag>(ToolFamily::Branches),
    ]
}

/// Builds the path of a branch below `git/refs`; slashes in its name are slashes in the path.
fn build_branch_ref_path(branch: &str) -> Vec<&str> {
    let mut path = vec!["git", "refs", "heads"];
    path.extend(split_path_segments(branch));
    path
}

arguments! {
    /// Lists the branches of a repository with the commit each points to.
    ListBranches in repository, in pages {}
}

impl ToolOperation for ListBranches {
    const NAME: &'static str = "list_branches";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(self.route(&["branches"])?).with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_branch))
    }
}

arguments! {
    /// Shows a branch: the commit it points to, with message, tree and parents, and whether it is protected.
    GetBranch in repository {
        #[schemars(length(min = 1))]
        branch: String,
    }
}

impl ToolOperation for GetBranch {
    const NAME: &'static str = "get_branch";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = github.send(RestRequest::get(self.route(&["branches", &self.branch])?)).await?.body;
        let commit = view::summarize_commit(&body["commit"]);
        Ok(view::merge_fields(view::summarize_branch(&body), json!({"commit": commit})))
    }
}

arguments! {
    /// Makes a branch that points to a commit. Get the commit's sha from get_branch or list_branches.
    CreateBranch in repository {
        /// The new branch's name, without refs/heads/.
        #[schemars(length(min = 1))]
        branch: String,
        /// The commit it shall point to.
        #[schemars(length(min = 1))]
        sha: String,
    }
}

impl ToolOperation for CreateBranch {
    const NAME: &'static str = "create_branch";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({"ref": format!("refs/heads/{}", self.branch), "sha": self.sha});
        let answer = github.send(RestRequest::post(self.route(&["git", "refs"])?, body)).await?;
        Ok(json!({"branch": self.branch, "ref": answer.body["ref"], "sha": answer.body["object"]["sha"]}))
    }
}

arguments! {
    /// Moves a branch to another commit. Without force only forward, so that no commit is lost.
    UpdateBranch in repository {
        #[schemars(length(min = 1))]
        branch: String,
        /// The commit it shall point to.
        #[schemars(length(min = 1))]
        sha: String,
        /// True moves it anywhere; commits that only this branch held are lost.
        force: Option<bool>,
    }
}

impl ToolOperation for UpdateBranch {
    const NAME: &'static str = "update_branch";
    const EFFECT: ToolEffect = ToolEffect::Write;

    fn effect(&self) -> ToolEffect {
        if self.force == Some(true) { ToolEffect::Destructive } else { ToolEffect::Write }
    }

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({"sha": self.sha, "force": self.force});
        let answer = github.send(RestRequest::patch(self.route(&build_branch_ref_path(&self.branch))?, body)).await?;
        Ok(json!({"branch": self.branch, "ref": answer.body["ref"], "sha": answer.body["object"]["sha"]}))
    }
}

arguments! {
    /// Deletes a branch. Commits that only this branch held are lost.
    DeleteBranch in repository {
        #[schemars(length(min = 1))]
        branch: String,
    }
}

impl ToolOperation for DeleteBranch {
    const NAME: &'static str = "delete_branch";
    const EFFECT: ToolEffect = ToolEffect::Destructive;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        github.send(RestRequest::delete(self.route(&build_branch_ref_path(&self.branch))?)).await?;
        Ok(json!({"deleted": self.branch}))
    }
}

arguments! {
    /// Lists the tags of a repository with the commit each points to.
    ListTags in repository, in pages {}
}

impl ToolOperation for ListTags {
    const NAME: &'static str = "list_tags";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(self.route(&["tags"])?).with_page(self.page());
        let view = |one: &Value| json!({"name": one["name"], "sha": one["commit"]["sha"]});
        Ok(github.send(request).await?.to_item_list(view))
    }
}

arguments! {
    /// Makes a tag that points to a commit.
    CreateTag in repository {
        /// The tag's name, without refs/tags/.
        #[schemars(length(min = 1))]
        tag: String,
        /// The commit it shall point to.
        #[schemars(length(min = 1))]
        sha: String,
    }
}

impl ToolOperation for CreateTag {
    const NAME: &'static str = "create_tag";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({"ref": format!("refs/tags/{}", self.tag), "sha": self.sha});
        let answer = github.send(RestRequest::post(self.route(&["git", "refs"])?, body)).await?;
        Ok(json!({"tag": self.tag, "ref": answer.body["ref"], "sha": answer.body["object"]["sha"]}))
    }
}
