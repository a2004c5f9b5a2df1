//! Lists of repositories: the caller's own, of a user, of an organization.

use super::repositories::find_organization;
use crate::access;
use crate::call::{OperationCall, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::Get;
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, Repository};

/// The list of all public repositories is not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/user/repos",
        "repos/list-for-authenticated-user",
        "repos/repos#list-repositories-for-the-authenticated-user",
        list_own_repositories,
    ),
    define_route(
        Get,
        "/users/{username}/repos",
        "repos/list-for-user",
        "repos/repos#list-repositories-for-a-user",
        list_user_repositories,
    ),
    define_route(
        Get,
        "/orgs/{org}/repos",
        "repos/list-for-org",
        "repos/repos#list-organization-repositories",
        list_organization_repositories,
    ),
];

/// Sorts repositories: names ascend by default, times descend. Ids break ties, so that pages are stable.
fn sort_repositories<'s>(
    call: &OperationCall<'_>,
    mut found: Vec<&'s Repository>,
    default: &str,
) -> Vec<&'s Repository> {
    let sort = call.query.get("sort").unwrap_or(default);
    let name = |one: &Repository| (call.state.login(one.owner).to_lowercase(), one.name.to_lowercase());
    match sort {
        "created" => found.sort_by_key(|one| (one.created_at, one.id)),
        "updated" => found.sort_by_key(|one| (one.updated_at, one.id)),
        "pushed" => found.sort_by_key(|one| (one.pushed_at, one.id)),
        _ => found.sort_by_key(|one| name(one)),
    }
    let by_name = !matches!(sort, "created" | "updated" | "pushed");
    if !call.is_ascending(by_name) {
        found.reverse();
    }
    found
}

/// By `affiliation`, `visibility` or the older `type`, which cannot be combined with them (422).
fn list_own_repositories(call: &mut OperationCall<'_>) -> OperationResult {
    let account = call.require_account()?;
    let query = &call.query;
    if query.has("type") && (query.has("visibility") || query.has("affiliation")) {
        return Err(OperationError::new(422, "If you specify visibility or affiliation, you cannot specify type."));
    }
    let affiliation = query.get("affiliation").unwrap_or("owner,collaborator,organization_member");
    // `type` is the older form of `affiliation` and `visibility` together.
    let kinds: Vec<&str> = match query.get("type") {
        Some("owner") => vec!["owner"],
        Some("member") => vec!["collaborator", "organization_member"],
        _ => affiliation.split(',').map(str::trim).collect(),
    };
    let wanted = query.get("visibility").or(query.get("type"));
    let belongs = |one: &&Repository| {
        let is_member = || call.state.account(one.owner).is_some_and(|owner| owner.members.contains_key(&account));
        (kinds.contains(&"owner") && one.owner == account)
            || (kinds.contains(&"collaborator") && one.collaborators.contains_key(&account))
            || (kinds.contains(&"organization_member") && is_member())
    };
    let visible = |one: &&Repository| match wanted {
        Some("public") => !one.private,
        Some("private") => one.private,
        _ => true,
    };
    // A token may see less than its account.
    let seen = |one: &&Repository| access::can_see(call.state, call.actor.as_ref(), one);
    let found = call.state.repositories.values().filter(belongs).filter(visible).filter(seen).collect();
    let found = sort_repositories(call, found, "full_name");
    Ok(call.reply_with_page(&found, |view, one| view.render_repository(one)))
}

/// Works for organizations as well.
fn list_user_repositories(call: &mut OperationCall<'_>) -> OperationResult {
    let found = call.state.account_by_login(call.path_argument("username"));
    let account = found.ok_or_else(OperationError::not_found)?.id;
    list_owned(call, account)
}

/// `type` selects public, private, forks or sources.
fn list_organization_repositories(call: &mut OperationCall<'_>) -> OperationResult {
    let account = find_organization(call)?;
    let wanted = call.query.get("type").unwrap_or("all");
    let fits = |one: &&Repository| match wanted {
        "public" => !one.private,
        "private" => one.private,
        "forks" => one.fork_of.is_some(),
        "sources" => one.fork_of.is_none(),
        _ => true,
    };
    let seen = |one: &&Repository| one.owner == account && access::can_see(call.state, call.actor.as_ref(), one);
    let found = call.state.repositories.values().filter(seen).filter(fits).collect();
    let found = sort_repositories(call, found, "created");
    Ok(call.reply_with_page(&found, |view, one| view.render_repository(one)))
}

/// Lists the repositories of an account. Private ones are listed only for the owner, even if the caller could see
/// them.
fn list_owned(call: &OperationCall<'_>, account: AccountId) -> OperationResult {
    let is_self = call.actor.as_ref().is_some_and(|actor| actor.account == account);
    let seen = |one: &&Repository| {
        one.owner == account && (!one.private || is_self) && access::can_see(call.state, call.actor.as_ref(), one)
    };
    let found = call.state.repositories.values().filter(seen).collect();
    let found = sort_repositories(call, found, "full_name");
    Ok(call.reply_with_page(&found, |view, one| view.render_repository(one)))
}
