//! Who is who.

use serde_json::json;

use crate::call::{Answer, Call, Reply};
use crate::error::ApiError;
use crate::http::Method::Get;
use crate::route::{Route, route};
use crate::state::AccountKind;

pub(super) const ROUTES: &[Route] = &[
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

fn own(call: &mut Call<'_>) -> Answer {
    let id = call.account()?;
    let account = call.state.account(id).ok_or_else(ApiError::not_found)?;
    Ok(Reply::ok(call.view().private_user(account)))
}

fn by_name(call: &mut Call<'_>) -> Answer {
    let found = call.state.account_by_login(call.argument("username"));
    let account = found.ok_or_else(|| ApiError::not_found().general())?;
    let is_self = call.actor.as_ref().is_some_and(|actor| actor.account == account.id);
    let view = call.view();
    Ok(Reply::ok(if is_self { view.private_user(account) } else { view.user(account) })
        .modified(account.created_at))
}

fn organization(call: &mut Call<'_>) -> Answer {
    let found = call.state.account_by_login(call.argument("org"));
    let account = found.filter(|account| account.kind == AccountKind::Organization);
    Ok(Reply::ok(call.view().organization(account.ok_or_else(ApiError::not_found)?)))
}

fn own_organizations(call: &mut Call<'_>) -> Answer {
    let id = call.account()?;
    let found: Vec<_> = call.state.accounts.values().filter(|one| one.members.contains_key(&id)).collect();
    Ok(call.list(&found, |view, account| view.organization_simple(account)))
}

fn limits(_: &mut Call<'_>) -> Answer {
    Ok(Reply::ok(json!({})))
}

fn meta(_: &mut Call<'_>) -> Answer {
    Ok(Reply::ok(json!({"verifiable_password_authentication": false})))
}
