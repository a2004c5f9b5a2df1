//! Who may do what in a repository, and who can be given its issues.

use serde_json::{Value, json};

use crate::access::{self, Need};
use crate::call::{Answer, Call, Reply};
use crate::error::ApiError;
use crate::http::Method::Get;
use crate::route::{Route, route};
use crate::state::{AccountId, Permission};
use crate::view::View;

pub(super) const ROUTES: &[Route] = &[
    route(
        Get,
        "/repos/{owner}/{repo}/collaborators",
        "repos/list-collaborators",
        "collaborators/collaborators#list-repository-collaborators",
        list,
    ),
    route(
        Get,
        "/repos/{owner}/{repo}/collaborators/{username}",
        "repos/check-collaborator",
        "collaborators/collaborators#check-if-a-user-is-a-repository-collaborator",
        check,
    ),
    route(
        Get,
        "/repos/{owner}/{repo}/collaborators/{username}/permission",
        "repos/get-collaborator-permission-level",
        "collaborators/collaborators#get-repository-permissions-for-a-user",
        permission_level,
    ),
    route(
        Get,
        "/repos/{owner}/{repo}/assignees",
        "issues/list-assignees",
        "issues/assignees#list-assignees",
        assignable,
    ),
];

fn with_right(view: &View<'_>, account: AccountId, right: Permission) -> Value {
    let mut object = view.simple_user(account);
    object["permissions"] = json!({
        "pull": true,
        "triage": right >= Permission::Triage,
        "push": right >= Permission::Push,
        "maintain": right >= Permission::Maintain,
        "admin": right >= Permission::Admin,
    });
    object["role_name"] = json!(right.role());
    object
}

fn list(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let repository = call.repo(id)?;
    if access::permission(call.state, call.actor.as_ref(), repository) < Some(Permission::Push) {
        return Err(ApiError::new(403, "Must have push access to view repository collaborators."));
    }
    let found: Vec<_> = access::collaborators(call.state, repository).into_iter().collect();
    Ok(call.list(&found, |view, (account, right)| with_right(view, *account, *right)))
}

fn named(call: &Call<'_>) -> Result<AccountId, ApiError> {
    call.state
        .account_by_login(call.argument("username"))
        .map(|account| account.id)
        .ok_or_else(ApiError::not_found)
}

fn check(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let account = named(call)?;
    let is_one = access::collaborators(call.state, call.repo(id)?).contains_key(&account);
    if is_one { Ok(Reply::nothing()) } else { Err(ApiError::not_found()) }
}

fn permission_level(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let account = named(call)?;
    let right = access::permission_of(call.state, account, call.repo(id)?);
    let level = match right {
        None => "none",
        Some(Permission::Admin) => "admin",
        Some(Permission::Push | Permission::Maintain) => "write",
        Some(Permission::Pull | Permission::Triage) => "read",
    };
    let user = with_right(&call.view(), account, right.unwrap_or(Permission::Pull));
    Ok(Reply::ok(
        json!({"permission": level, "role_name": right.map_or("none", Permission::role), "user": user}),
    ))
}

fn assignable(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let found: Vec<AccountId> = access::collaborators(call.state, call.repo(id)?).into_keys().collect();
    Ok(call.list(&found, |view, account| view.simple_user(*account)))
}
