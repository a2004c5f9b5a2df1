//! Labels and milestones of a repository.

use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure};
use super::issues::{OpenOrClosed, StateFilter};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

pub(super) fn list_label_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<ListLabels>(ToolFamily::Labels),
        register_tool::<CreateLabel>(ToolFamily::Labels),
        register_tool::<UpdateLabel>(ToolFamily::Labels),
        register_tool::<DeleteLabel>(ToolFamily::Labels),
        register_tool::<ListMilestones>(ToolFamily::Labels),
        register_tool::<CreateMilestone>(ToolFamily::Labels),
        register_tool::<UpdateMilestone>(ToolFamily::Labels),
    ]
}

/// Removes a leading `#`, which GitHub does not accept in colours.
fn strip_color_hash(color: Option<&String>) -> Option<&str> {
    color.map(|color| color.strip_prefix('#').unwrap_or(color))
}

arguments! {
    /// Lists the labels that a repository has, with colour and description.
    ListLabels in repository, in pages {}
}

impl ToolOperation for ListLabels {
    const NAME: &'static str = "list_labels";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(self.route(&["labels"])?).with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_label))
    }
}

arguments! {
    /// Adds a label to a repository's labels.
    CreateLabel in repository {
        #[schemars(length(min = 1))]
        name: String,
        /// Six hexadecimal digits, such as ff0000.
        color: Option<String>,
        description: Option<String>,
    }
}

impl ToolOperation for CreateLabel {
    const NAME: &'static str = "create_label";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let color = strip_color_hash(self.color.as_ref());
        let body = json!({"name": self.name, "color": color, "description": self.description});
        Ok(view::summarize_label(&github.send(RestRequest::post(self.route(&["labels"])?, body)).await?.body))
    }
}

arguments! {
    /// Renames a label or changes its colour or description. It stays on the issues that have it.
    UpdateLabel in repository {
        /// As it is called now.
        #[schemars(length(min = 1))]
        name: String,
        #[schemars(length(min = 1))]
        new_name: Option<String>,
        /// Six hexadecimal digits, such as ff0000.
        color: Option<String>,
        description: Option<String>,
    }
}

impl ToolOperation for UpdateLabel {
    const NAME: &'static str = "update_label";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let color = strip_color_hash(self.color.as_ref());
        let body = json!({"new_name": self.new_name, "color": color, "description": self.description});
        Ok(view::summarize_label(
            &github.send(RestRequest::patch(self.route(&["labels", &self.name])?, body)).await?.body,
        ))
    }
}

arguments! {
    /// Deletes a label from a repository, and so from all of its issues.
    DeleteLabel in repository {
        #[schemars(length(min = 1))]
        name: String,
    }
}

impl ToolOperation for DeleteLabel {
    const NAME: &'static str = "delete_label";
    const EFFECT: ToolEffect = ToolEffect::Destructive;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        github.send(RestRequest::delete(self.route(&["labels", &self.name])?)).await?;
        Ok(json!({"deleted": self.name}))
    }
}

arguments! {
    /// Lists the milestones of a repository.
    ListMilestones in repository, in pages {
        /// Open ones if not given.
        state: Option<StateFilter>,
    }
}

impl ToolOperation for ListMilestones {
    const NAME: &'static str = "list_milestones";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let request = RestRequest::get(self.route(&["milestones"])?)
            .with_query(&json!({"state": self.state}))
            .with_page(self.page());
        Ok(github.send(request).await?.to_item_list(view::summarize_milestone))
    }
}

arguments! {
    /// Makes a milestone. Issues are put into it by its number, with update_issue.
    CreateMilestone in repository {
        #[schemars(length(min = 1))]
        title: String,
        description: Option<String>,
        /// When it is due, such as 2026-01-31T00:00:00Z.
        due_on: Option<String>,
    }
}

impl ToolOperation for CreateMilestone {
    const NAME: &'static str = "create_milestone";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({"title": self.title, "description": self.description, "due_on": self.due_on});
        Ok(view::summarize_milestone(&github.send(RestRequest::post(self.route(&["milestones"])?, body)).await?.body))
    }
}

arguments! {
    /// Changes a milestone, or closes it. What is not given stays as it is.
    UpdateMilestone in repository {
        milestone_number: u64,
        #[schemars(length(min = 1))]
        title: Option<String>,
        state: Option<OpenOrClosed>,
        description: Option<String>,
    }
}

impl ToolOperation for UpdateMilestone {
    const NAME: &'static str = "update_milestone";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&["milestones", &self.milestone_number.to_string()])?;
        let body = json!({"title": self.title, "state": self.state, "description": self.description});
        Ok(view::summarize_milestone(&github.send(RestRequest::patch(place, body)).await?.body))
    }
}
