//! Assignees of issues and pull requests.

use super::issues;
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Post};
use crate::operations::issues::MAX_ASSIGNEES;
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, RepositoryId};

/// Adding and removing. `collaborators` lists who can be assigned.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Post,
        "/repos/{owner}/{repo}/issues/{issue_number}/assignees",
        "issues/add-assignees",
        "issues/assignees#add-assignees-to-an-issue",
        add_assignees,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/issues/{issue_number}/assignees",
        "issues/remove-assignees",
        "reference/issues#remove-assignees-from-an-issue",
        remove_assignees,
    ),
];

/// Accounts that the body names. Unknown ones and accounts without access are ignored silently, as on GitHub.
fn read_assignees(call: &OperationCall<'_>, id: RepositoryId) -> Result<Vec<AccountId>, OperationError> {
    let names = call.body_fields()?.text_list("assignees")?.unwrap_or_default();
    let repository = call.repo(id)?;
    let known = names.iter().filter_map(|name| call.state.account_by_login(name)).map(|account| account.id);
    Ok(known.filter(|account| access::can_be_assigned(call.state, repository, *account)).collect())
}

/// Applies a change and the limit of ten.
fn change_assignees(
    call: &mut OperationCall<'_>,
    id: RepositoryId,
    number: u64,
    to: impl FnOnce(&mut Vec<AccountId>),
) -> Result<(), OperationError> {
    let now = call.now();
    if let Some(issue) = call.repo_mut(id)?.issues.get_mut(&number) {
        to(&mut issue.assignees);
        issue.assignees.truncate(MAX_ASSIGNEES);
        issue.updated_at = now;
    }
    Ok(())
}

/// 201 with the issue, even if nobody was added.
fn add_assignees(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = issues::find_issue_number(call, id)?;
    let new = read_assignees(call, id)?;
    change_assignees(call, id, number, |assigned| {
        for account in new {
            if !assigned.contains(&account) {
                assigned.push(account);
            }
        }
    })?;
    let shown = issues::build_issue_reply(call, id, number)?;
    Ok(OperationReply { status: 201, ..shown })
}

/// 200 with the issue, even if nobody was removed.
fn remove_assignees(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Triage)?;
    let number = issues::find_issue_number(call, id)?;
    let gone = read_assignees(call, id)?;
    change_assignees(call, id, number, |assigned| assigned.retain(|one| !gone.contains(one)))?;
    issues::build_issue_reply(call, id, number)
}
