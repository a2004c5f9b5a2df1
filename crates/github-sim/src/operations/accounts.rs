//! Who is who.

use serde_json::json;

use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::Get;
use crate::route::{OperationRoute, route};
use crate::state::AccountKind;

pub(super) const ROUTES: &[OperationRoute] = &[
    route(Get, "/user", "users/get-authenticated", "users/users#get-the-authenticated-user", own),
    route(Get, "/users/{username}", "users/get-by-username", "users/users#get-a-user", by_name),
    route(Get, "/orgs/{org}", "orgs/get", "orgs/orgs#get-an-organization", organization),
    route(
        Get,
        "/user/orgs",
        "orgs/list-for-authenticated-user",
        "orgs/orgs#list-organizations-for-the-authenticated-user",
        own_organizations,
    ),
    // The world answers this one itself: only it knows the limits.
    route(
        Get,
        "/rate_limit",
        "rate-limit/get",
        "rate-limit/rate-limit#get-rate-limit-status-for-the-authenticated-user",
        limits,
    ),
    route(Get, "/meta", "meta/get", "meta/meta#get-apiname-meta-information", meta),
];

fn own(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.account()?;
    let account = call.state.account(id).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(call.view().private_user(account)))
}

fn by_name(call: &mut OperationCall<'_>) -> OperationResult {
    let found = call.state.account_by_login(call.argument("username"));
    let account = found.ok_or_else(|| OperationError::not_found().general())?;
    let is_self = call.actor.as_ref().is_some_and(|actor| actor.account == account.id);
    let view = call.view();
    Ok(OperationReply::ok(if is_self { view.private_user(account) } else { view.user(account) })
        .modified(account.created_at))
}

fn organization(call: &mut OperationCall<'_>) -> OperationResult {
    let found = call.state.account_by_login(call.argument("org"));
    let account = found.filter(|account| account.kind == AccountKind::Organization);
    Ok(OperationReply::ok(call.view().organization(account.ok_or_else(OperationError::not_found)?)))
}

fn own_organizations(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.account()?;
    let found: Vec<_> = call.state.accounts.values().filter(|one| one.members.contains_key(&id)).collect();
    Ok(call.list(&found, |view, account| view.organization_simple(account)))
}

fn limits(_: &mut OperationCall<'_>) -> OperationResult {
    Ok(OperationReply::ok(json!({})))
}

fn meta(_: &mut OperationCall<'_>) -> OperationResult {
    Ok(OperationReply::ok(json!({"verifiable_password_authentication": false})))
}
