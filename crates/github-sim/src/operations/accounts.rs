//! Users and organizations, read-only.

use serde_json::json;

use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::Get;
use crate::route::{OperationRoute, define_route};
use crate::state::AccountKind;

/// The `users`, `orgs`, `rate_limit` and `meta` endpoints that clients call on start. Followers, keys and emails are
/// not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/user",
        "users/get-authenticated",
        "users/users#get-the-authenticated-user",
        get_authenticated_user,
    ),
    define_route(Get, "/users/{username}", "users/get-by-username", "users/users#get-a-user", get_user_by_name),
    define_route(Get, "/orgs/{org}", "orgs/get", "orgs/orgs#get-an-organization", get_organization),
    define_route(
        Get,
        "/user/orgs",
        "orgs/list-for-authenticated-user",
        "orgs/orgs#list-organizations-for-the-authenticated-user",
        list_own_organizations,
    ),
    // The world answers this one itself: only it knows the limits.
    define_route(
        Get,
        "/rate_limit",
        "rate-limit/get",
        "rate-limit/rate-limit#get-rate-limit-status-for-the-authenticated-user",
        get_rate_limits,
    ),
    define_route(Get, "/meta", "meta/get", "meta/meta#get-apiname-meta-information", get_api_meta),
];

/// The private profile; clients use it to validate their token.
fn get_authenticated_user(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_account()?;
    let account = call.state.account(id).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(call.view().render_private_user(account)))
}

/// The public profile, or the private one of the caller. Unlike most 404s, this one links to the general documentation.
fn get_user_by_name(call: &mut OperationCall<'_>) -> OperationResult {
    let found = call.state.account_by_login(call.path_argument("username"));
    let account = found.ok_or_else(|| OperationError::not_found().with_general_docs())?;
    let is_self = call.actor.as_ref().is_some_and(|actor| actor.account == account.id);
    let view = call.view();
    Ok(OperationReply::ok(if is_self { view.render_private_user(account) } else { view.render_user(account) })
        .with_modified_at(account.created_at))
}

/// 404 for users, as on GitHub.
fn get_organization(call: &mut OperationCall<'_>) -> OperationResult {
    let found = call.state.account_by_login(call.path_argument("org"));
    let account = found.filter(|account| account.kind == AccountKind::Organization);
    Ok(OperationReply::ok(call.view().render_organization(account.ok_or_else(OperationError::not_found)?)))
}

/// Organizations that the caller is a member of.
fn list_own_organizations(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_account()?;
    let found: Vec<_> = call.state.accounts.values().filter(|one| one.members.contains_key(&id)).collect();
    Ok(call.reply_with_page(&found, |view, account| view.render_simple_organization(account)))
}

/// Never called: `World` answers this route itself, because handlers do not see the rate limits. It exists for the
/// route table.
fn get_rate_limits(_: &mut OperationCall<'_>) -> OperationResult {
    Ok(OperationReply::ok(json!({})))
}

/// Only the field that clients check.
fn get_api_meta(_: &mut OperationCall<'_>) -> OperationResult {
    Ok(OperationReply::ok(json!({"verifiable_password_authentication": false})))
}
