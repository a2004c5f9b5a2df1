//! The labels of a repository.

use serde_json::Value;

use crate::access::Need;
use crate::call::{Answer, Call, Reply};
use crate::error::ApiError;
use crate::http::Method::{Delete, Get, Patch, Post};
use crate::route::{Route, route};
use crate::state::{Label, LabelId, RepositoryId};

pub(super) const ROUTES: &[Route] = &[
    route(
        Get,
        "/repos/{owner}/{repo}/labels",
        "issues/list-labels-for-repo",
        "issues/labels#list-labels-for-a-repository",
        list,
    ),
    route(
        Post,
        "/repos/{owner}/{repo}/labels",
        "issues/create-label",
        "issues/labels#create-a-label",
        create,
    ),
    route(Get, "/repos/{owner}/{repo}/labels/{name}", "issues/get-label", "issues/labels#get-a-label", get),
    route(
        Patch,
        "/repos/{owner}/{repo}/labels/{name}",
        "issues/update-label",
        "issues/labels#update-a-label",
        update,
    ),
    route(
        Delete,
        "/repos/{owner}/{repo}/labels/{name}",
        "issues/delete-label",
        "issues/labels#delete-a-label",
        delete,
    ),
];

/// What a label gets that was made by naming it on an issue.
const COLOR: &str = "ededed";
const MAX_CHARACTERS: usize = 50;

fn list(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let repository = call.repo(id)?;
    let mut found: Vec<_> = repository.labels.values().collect();
    found.sort_by_key(|label| label.name.to_lowercase());
    Ok(call.list(&found, |view, label| view.label(repository, label)))
}

fn valid_name(name: &str) -> Result<(), ApiError> {
    if name.trim().is_empty() {
        return Err(ApiError::validation("Label", "name", "missing_field"));
    }
    if name.chars().count() > MAX_CHARACTERS || name.contains(char::is_control) {
        return Err(ApiError::validation("Label", "name", "invalid"));
    }
    Ok(())
}

fn valid_color(color: &str) -> Result<String, ApiError> {
    if color.len() == 6 && color.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(color.to_ascii_lowercase());
    }
    Err(ApiError::validation("Label", "color", "invalid"))
}

fn create(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let fields = call.fields()?;
    let name = fields.required_text("name")?;
    valid_name(name)?;
    let color = valid_color(fields.text("color")?.unwrap_or(COLOR))?;
    let description = fields.text("description")?.map(str::to_owned);
    if call.repo(id)?.label_by_name(name).is_some() {
        return Err(ApiError::validation("Label", "name", "already_exists"));
    }
    let label_id = LabelId(call.state.next_id());
    let label = Label { id: label_id, name: name.to_owned(), color, description, is_default: false };
    call.repo_mut(id)?.labels.insert(label_id, label.clone());
    Ok(Reply::created(call.view().label(call.repo(id)?, &label)))
}

fn named(call: &Call<'_>, id: RepositoryId) -> Result<LabelId, ApiError> {
    call.repo(id)?.label_by_name(call.argument("name")).map(|label| label.id).ok_or_else(ApiError::not_found)
}

fn get(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let label = named(call, id)?;
    shown(call, id, label)
}

fn shown(call: &Call<'_>, id: RepositoryId, label: LabelId) -> Answer {
    let repository = call.repo(id)?;
    let label = repository.labels.get(&label).ok_or_else(ApiError::not_found)?;
    Ok(Reply::ok(call.view().label(repository, label)))
}

fn update(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let fields = call.fields()?;
    let label = named(call, id)?;
    let new_name = fields.text("new_name")?.or(fields.text("name")?).map(str::to_owned);
    let color = fields.text("color")?.map(valid_color).transpose()?;
    let description = fields.clearable("description")?;
    if let Some(name) = &new_name {
        valid_name(name)?;
        if call.repo(id)?.label_by_name(name).is_some_and(|other| other.id != label) {
            return Err(ApiError::validation("Label", "name", "already_exists"));
        }
    }
    if let Some(label) = call.repo_mut(id)?.labels.get_mut(&label) {
        label.name = new_name.unwrap_or_else(|| label.name.clone());
        label.color = color.unwrap_or_else(|| label.color.clone());
        label.description = description.unwrap_or_else(|| label.description.clone());
    }
    shown(call, id, label)
}

fn delete(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let label = named(call, id)?;
    let repository = call.repo_mut(id)?;
    repository.labels.remove(&label);
    for issue in repository.issues.values_mut() {
        issue.labels.retain(|one| *one != label);
    }
    Ok(Reply::nothing())
}

/// Names of labels in any of the forms that GitHub takes: texts, or objects with a name.
pub(super) fn names(items: &[Value]) -> Result<Vec<String>, ApiError> {
    let mut found: Vec<String> = Vec::new();
    for item in items {
        let name = item.as_str().or_else(|| item.get("name")?.as_str());
        let name = name.ok_or_else(|| ApiError::wrong_type("labels", item, "a string"))?;
        valid_name(name)?;
        if !found.iter().any(|known| known.to_lowercase() == name.to_lowercase()) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// The labels with these names; those that are not there are made.
pub(super) fn ensure(
    call: &mut Call<'_>,
    id: RepositoryId,
    names: &[String],
) -> Result<Vec<LabelId>, ApiError> {
    let mut found = Vec::new();
    for name in names {
        if let Some(label) = call.repo(id)?.label_by_name(name) {
            found.push(label.id);
            continue;
        }
        let label_id = LabelId(call.state.next_id());
        let label = Label {
            id: label_id,
            name: name.clone(),
            color: COLOR.to_owned(),
            description: None,
            is_default: false,
        };
        call.repo_mut(id)?.labels.insert(label_id, label);
        found.push(label_id);
    }
    Ok(found)
}
