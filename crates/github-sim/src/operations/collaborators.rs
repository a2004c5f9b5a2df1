//! Permissions of accounts on a repository, and who can be assigned to issues.

use serde_json::{Value, json};

use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::Get;
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, RepositoryPermission};
use crate::view::ApiView;

/// Read-only: invitations are not simulated, seeds define collaborators.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/collaborators",
        "repos/list-collaborators",
        "collaborators/collaborators#list-repository-collaborators",
        list_collaborators,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/collaborators/{username}",
        "repos/check-collaborator",
        "collaborators/collaborators#check-if-a-user-is-a-repository-collaborator",
        check_collaborator,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/collaborators/{username}/permission",
        "repos/get-collaborator-permission-level",
        "collaborators/collaborators#get-repository-permissions-for-a-user",
        get_permission_level,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/assignees",
        "issues/list-assignees",
        "issues/assignees#list-assignees",
        list_assignable_users,
    ),
];

/// Renders a user with the `permissions` object and the role name.
fn render_collaborator(view: &ApiView<'_>, account: AccountId, right: RepositoryPermission) -> Value {
    let mut object = view.render_simple_user(account);
    object["permissions"] = json!({
        "pull": true,
        "triage": right >= RepositoryPermission::Triage,
        "push": right >= RepositoryPermission::Push,
        "maintain": right >= RepositoryPermission::Maintain,
        "admin": right >= RepositoryPermission::Admin,
    });
    object["role_name"] = json!(right.role_name());
    object
}

/// Requires push access; the message differs from other 403s.
fn list_collaborators(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    if access::resolve_permission(call.state, call.actor.as_ref(), repository) < Some(RepositoryPermission::Push) {
        return Err(OperationError::new(403, "Must have push access to view repository collaborators."));
    }
    let found: Vec<_> = access::collect_collaborators(call.state, repository).into_iter().collect();
    Ok(call.reply_with_page(&found, |view, (account, right)| render_collaborator(view, *account, *right)))
}

/// Finds the account in the path; 404 if it does not exist.
fn find_path_user(call: &OperationCall<'_>) -> Result<AccountId, OperationError> {
    call.state
        .account_by_login(call.path_argument("username"))
        .map(|account| account.id)
        .ok_or_else(OperationError::not_found)
}

/// 204 or 404. Read access to a public repository does not make a collaborator.
fn check_collaborator(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let account = find_path_user(call)?;
    let is_one = access::collect_collaborators(call.state, call.repo(id)?).contains_key(&account);
    if is_one { Ok(OperationReply::no_content()) } else { Err(OperationError::not_found()) }
}

/// Returns the legacy level (`admin`, `write`, `read`, `none`) and the exact role.
fn get_permission_level(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let account = find_path_user(call)?;
    let right = access::account_permission(call.state, account, call.repo(id)?);
    // The old API knows three levels: `triage` counts as read and `maintain` as write.
    let level = match right {
        None => "none",
        Some(RepositoryPermission::Admin) => "admin",
        Some(RepositoryPermission::Push | RepositoryPermission::Maintain) => "write",
        Some(RepositoryPermission::Pull | RepositoryPermission::Triage) => "read",
    };
    let user = render_collaborator(&call.view(), account, right.unwrap_or(RepositoryPermission::Pull));
    Ok(OperationReply::ok(
        json!({"permission": level, "role_name": right.map_or("none", RepositoryPermission::role_name), "user": user}),
    ))
}

/// The same accounts as the collaborators, visible to all readers.
fn list_assignable_users(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let found: Vec<AccountId> = access::collect_collaborators(call.state, call.repo(id)?).into_keys().collect();
    Ok(call.reply_with_page(&found, |view, account| view.render_simple_user(*account)))
}
