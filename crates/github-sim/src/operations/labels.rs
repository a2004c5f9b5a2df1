//! Labels of a repository.

use serde_json::Value;

use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Patch, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{IssueLabel, LabelId, RepositoryId};

/// Names are case-insensitive and may contain spaces, which clients escape.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/labels",
        "issues/list-labels-for-repo",
        "issues/labels#list-labels-for-a-repository",
        list_labels,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/labels",
        "issues/create-label",
        "issues/labels#create-a-label",
        create_label,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/labels/{name}",
        "issues/get-label",
        "issues/labels#get-a-label",
        get_label,
    ),
    define_route(
        Patch,
        "/repos/{owner}/{repo}/labels/{name}",
        "issues/update-label",
        "issues/labels#update-a-label",
        update_label,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/labels/{name}",
        "issues/delete-label",
        "issues/labels#delete-a-label",
        delete_label,
    ),
];

/// The color of labels that are created without one, grey.
const DEFAULT_LABEL_COLOR: &str = "ededed";
/// Maximum length of a name in characters.
const MAX_LABEL_NAME_CHARS: usize = 50;

/// Sorted by name.
fn list_labels(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    let mut found: Vec<_> = repository.labels.values().collect();
    found.sort_by_key(|label| label.name.to_lowercase());
    Ok(call.reply_with_page(&found, |view, label| view.render_label(repository, label)))
}

/// Returns 422 for a blank or long name.
fn check_label_name(name: &str) -> Result<(), OperationError> {
    if name.trim().is_empty() {
        return Err(OperationError::validation("Label", "name", "missing_field"));
    }
    if name.chars().count() > MAX_LABEL_NAME_CHARS || name.contains(char::is_control) {
        return Err(OperationError::validation("Label", "name", "invalid"));
    }
    Ok(())
}

/// Parses six hexadecimal digits; 422 with a leading `#`, which agents often send.
fn parse_color(color: &str) -> Result<String, OperationError> {
    if color.len() == 6 && color.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(color.to_ascii_lowercase());
    }
    Err(OperationError::validation("Label", "color", "invalid"))
}

/// 422 `already_exists` if a label has the name in any case.
fn create_label(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let name = fields.required_text("name")?;
    check_label_name(name)?;
    let color = parse_color(fields.text("color")?.unwrap_or(DEFAULT_LABEL_COLOR))?;
    let description = fields.text("description")?.map(str::to_owned);
    if call.repo(id)?.label_by_name(name).is_some() {
        return Err(OperationError::validation("Label", "name", "already_exists"));
    }
    let label_id = LabelId(call.state.next_id());
    let label = IssueLabel { id: label_id, name: name.to_owned(), color, description, is_default: false };
    call.repo_mut(id)?.labels.insert(label_id, label.clone());
    Ok(OperationReply::created(call.view().render_label(call.repo(id)?, &label)))
}

/// Finds a label by the name in the path.
fn find_label(call: &OperationCall<'_>, id: RepositoryId) -> Result<LabelId, OperationError> {
    call.repo(id)?.label_by_name(call.path_argument("name")).map(|label| label.id).ok_or_else(OperationError::not_found)
}

/// By name, in any case.
fn get_label(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let label = find_label(call, id)?;
    build_label_reply(call, id, label)
}

/// Replies 200 with the current label.
fn build_label_reply(call: &OperationCall<'_>, id: RepositoryId, label: LabelId) -> OperationResult {
    let repository = call.repo(id)?;
    let label = repository.labels.get(&label).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(call.view().render_label(repository, label)))
}

/// `new_name` renames; issues keep the label, since they refer to it by id.
fn update_label(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let label = find_label(call, id)?;
    // Older clients send the new name as `name`.
    let new_name = fields.text("new_name")?.or(fields.text("name")?).map(str::to_owned);
    let color = fields.text("color")?.map(parse_color).transpose()?;
    let description = fields.clearable_text("description")?;
    if let Some(name) = &new_name {
        check_label_name(name)?;
        if call.repo(id)?.label_by_name(name).is_some_and(|other| other.id != label) {
            return Err(OperationError::validation("Label", "name", "already_exists"));
        }
    }
    if let Some(label) = call.repo_mut(id)?.labels.get_mut(&label) {
        label.name = new_name.unwrap_or_else(|| label.name.clone());
        label.color = color.unwrap_or_else(|| label.color.clone());
        label.description = description.unwrap_or_else(|| label.description.clone());
    }
    build_label_reply(call, id, label)
}

/// Removes it from all issues as well.
fn delete_label(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let label = find_label(call, id)?;
    let repository = call.repo_mut(id)?;
    repository.labels.remove(&label);
    // Ids of deleted labels must not remain on issues.
    for issue in repository.issues.values_mut() {
        issue.labels.retain(|one| *one != label);
    }
    Ok(OperationReply::no_content())
}

/// Parses names in each form that GitHub accepts: strings, or objects with a `name`. Duplicates are dropped.
pub(super) fn parse_label_names(items: &[Value]) -> Result<Vec<String>, OperationError> {
    let mut found: Vec<String> = Vec::new();
    for item in items {
        let name = item.as_str().or_else(|| item.get("name")?.as_str());
        let name = name.ok_or_else(|| OperationError::wrong_type("labels", item, "a string"))?;
        check_label_name(name)?;
        if !found.iter().any(|known| known.to_lowercase() == name.to_lowercase()) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// Returns the ids of labels with these names. Missing labels are created, as GitHub does when an issue names them.
pub(super) fn ensure_labels(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    names: &[String],
) -> Result<Vec<LabelId>, OperationError> {
    let mut found = Vec::new();
    for name in names {
        if let Some(label) = call.repo(id)?.label_by_name(name) {
            found.push(label.id);
            continue;
        }
        let label_id = LabelId(call.state.next_id());
        let label = IssueLabel {
            id: label_id,
            name: name.clone(),
            color: DEFAULT_LABEL_COLOR.to_owned(),
            description: None,
            is_default: false,
        };
        call.repo_mut(id)?.labels.insert(label_id, label);
        found.push(label_id);
    }
    Ok(found)
}
