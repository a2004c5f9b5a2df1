//! Stars of the caller.

use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Put};
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, TokenAccess};

/// Lists of stargazers and of other users' stars are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/user/starred",
        "activity/list-repos-starred-by-authenticated-user",
        "activity/starring#list-repositories-starred-by-the-authenticated-user",
        list_starred_repositories,
    ),
    define_route(
        Get,
        "/user/starred/{owner}/{repo}",
        "activity/check-repo-is-starred-by-authenticated-user",
        "activity/starring#check-if-a-repository-is-starred-by-the-authenticated-user",
        check_repository_starred,
    ),
    define_route(
        Put,
        "/user/starred/{owner}/{repo}",
        "activity/star-repo-for-authenticated-user",
        "activity/starring#star-a-repository-for-the-authenticated-user",
        star_repository,
    ),
    define_route(
        Delete,
        "/user/starred/{owner}/{repo}",
        "activity/unstar-repo-for-authenticated-user",
        "activity/starring#unstar-a-repository-for-the-authenticated-user",
        unstar_repository,
    ),
];

/// Latest first by default. Repositories that the caller can no longer see are omitted.
fn list_starred_repositories(call: &mut OperationCall<'_>) -> OperationResult {
    let account = call.require_account()?;
    let starred = call.state.account(account).map(|account| account.starred.clone()).unwrap_or_default();
    let mut starred: Vec<_> = starred.into_iter().collect();
    starred.sort_by_key(|(id, at)| (*at, *id));
    if !call.is_ascending(false) {
        starred.reverse();
    }
    let found: Vec<_> = starred
        .iter()
        .filter_map(|(id, _)| call.state.repository(*id))
        .filter(|one| access::can_see(call.state, call.actor.as_ref(), one))
        .collect();
    Ok(call.reply_with_page(&found, |view, one| view.render_repository(one)))
}

/// 204 or 404.
fn check_repository_starred(call: &mut OperationCall<'_>) -> OperationResult {
    let account = call.require_account()?;
    let id = call.require_repository(RequiredAccess::Read)?;
    let starred = call.state.account(account).is_some_and(|account| account.starred.contains_key(&id));
    if starred { Ok(OperationReply::no_content()) } else { Err(OperationError::not_found()) }
}

/// Returns the caller if its token may change stars. They belong to the account, which a fine-grained token does not
/// cover.
fn authorize_star_change(call: &OperationCall<'_>) -> Result<AccountId, OperationError> {
    let account = call.require_account()?;
    match call.actor.as_ref().map(|actor| &actor.reach) {
        Some(TokenAccess::Scopes(scopes)) if scopes.contains("repo") || scopes.contains("public_repo") => Ok(account),
        _ => Err(OperationError::token_lacks_permission()),
    }
}

/// Idempotent: a second star keeps the time of the first.
fn star_repository(call: &mut OperationCall<'_>) -> OperationResult {
    let account = authorize_star_change(call)?;
    let id = call.require_repository(RequiredAccess::Read)?;
    let now = call.now();
    if let Some(account) = call.state.accounts.get_mut(&account) {
        // The first star decides the order of the list.
        account.starred.entry(id).or_insert(now);
    }
    Ok(OperationReply::no_content())
}

/// 204 even if there was no star.
fn unstar_repository(call: &mut OperationCall<'_>) -> OperationResult {
    let account = authorize_star_change(call)?;
    let id = call.require_repository(RequiredAccess::Read)?;
    if let Some(account) = call.state.accounts.get_mut(&account) {
        account.starred.remove(&id);
    }
    Ok(OperationReply::no_content())
}
