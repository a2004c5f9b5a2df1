//! Labels on issues and pull requests.

use serde_json::Value;

use super::{issues, labels};
use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Post, Put};
use crate::route::{OperationRoute, define_route};
use crate::state::{LabelId, RepositoryId};

/// Pull requests use the same endpoints with their number.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/issues/{issue_number}/labels",
        "issues/list-labels-on-issue",
        "issues/labels#list-labels-for-an-issue",
        list_issue_labels,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/issues/{issue_number}/labels",
        "issues/add-labels",
        "issues/labels#add-labels-to-an-issue",
        add_issue_labels,
    ),
    define_route(
        Put,
        "/repos/{owner}/{repo}/issues/{issue_number}/labels",
        "issues/set-labels",
        "issues/labels#set-labels-for-an-issue",
        set_issue_labels,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/issues/{issue_number}/labels",
        "issues/remove-all-labels",
        "issues/labels#remove-all-labels-from-an-issue",
        remove_all_issue_labels,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}",
        "issues/remove-label",
        "issues/labels#remove-a-label-from-an-issue",
        remove_issue_label,
    ),
];

/// In the order in which they were added.
fn list_issue_labels(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let number = issues::find_issue_number(call, id)?;
    let repository = call.repo(id)?;
    let on = repository.issues.get(&number).map(|issue| issue.labels.as_slice()).unwrap_or_default();
    let found: Vec<_> = on.iter().filter_map(|label| repository.labels.get(label)).collect();
    Ok(call.reply_with_page(&found, |view, label| view.render_label(repository, label)))
}

/// Reads a list of labels, or an object with the list in `labels`; GitHub accepts both.
fn read_label_names(call: &OperationCall<'_>) -> Result<Vec<String>, OperationError> {
    match call.json_body()? {
        Value::Array(items) => labels::parse_label_names(&items),
        Value::Object(_) => {
            let fields = call.body_fields()?;
            let items = fields.list("labels")?.ok_or_else(|| OperationError::missing_field("labels"))?;
            labels::parse_label_names(items)
        }
        _ => Err(OperationError::new(400, "Body should be a JSON object")),
    }
}

/// Applies a change and returns all labels of the issue.
fn change_issue_labels(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    number: u64,
    to: impl FnOnce(&mut Vec<LabelId>),
) -> OperationResult {
    let now = call.now();
    if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
        to(&mut issue.labels);
        issue.updated_at = now;
    }
    let repository = call.repo(id)?;
    let on = repository.issues.get(&number).map(|issue| issue.labels.as_slice()).unwrap_or_default();
    Ok(OperationReply::ok(call.view().render_labels(repository, on)))
}

/// Labels that do not exist in the repository are created, as on GitHub.
fn add_issue_labels(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = issues::find_issue_number(call, id)?;
    let names = read_label_names(call)?;
    let new = labels::ensure_labels(call, id, &names)?;
    change_issue_labels(call, id, number, |on| {
        for label in new {
            if !on.contains(&label) {
                on.push(label);
            }
        }
    })
}

/// Replaces all labels. An empty list removes them.
fn set_issue_labels(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = issues::find_issue_number(call, id)?;
    let names = read_label_names(call)?;
    let new = labels::ensure_labels(call, id, &names)?;
    change_issue_labels(call, id, number, |on| *on = new)
}

/// 204 even if there were none.
fn remove_all_issue_labels(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = issues::find_issue_number(call, id)?;
    change_issue_labels(call, id, number, Vec::clear)?;
    Ok(OperationReply::no_content())
}

/// 404 with GitHub's message if the issue does not have the label.
fn remove_issue_label(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = issues::find_issue_number(call, id)?;
    let repository = call.repo(id)?;
    let on = repository.issues.get(&number).map(|issue| issue.labels.as_slice()).unwrap_or_default();
    // A label may exist in the repository without being on the issue.
    let label =
        repository.label_by_name(call.path_argument("name")).map(|label| label.id).filter(|label| on.contains(label));
    let label = label.ok_or_else(|| OperationError::new(404, "Label does not exist"))?;
    change_issue_labels(call, id, number, |on| on.retain(|one| *one != label))
}
