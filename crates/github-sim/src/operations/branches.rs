//! Branches and their protection, read-only. References are created and moved in `references`.

use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::ObjectId;
use crate::http::RequestMethod::Get;
use crate::route::{OperationRoute, define_route};
use crate::state::RepositoryId;

/// Names may contain slashes, hence `{branch*}`. Changing protection is not simulated; seeds define it.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/branches",
        "repos/list-branches",
        "branches/branches#list-branches",
        list_branches,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/branches/{branch*}/protection",
        "repos/get-branch-protection",
        "branches/branch-protection#get-branch-protection",
        get_branch_protection,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/branches/{branch*}",
        "repos/get-branch",
        "branches/branches#get-a-branch",
        get_branch,
    ),
];

/// Sorted by name; `protected` filters.
fn list_branches(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    // Any value but `true` selects unprotected branches.
    let wanted = call.query.get("protected").map(|text| text == "true");
    let fits =
        |(name, _): &(&str, ObjectId)| wanted.is_none_or(|wanted| repository.protection.contains_key(*name) == wanted);
    let found: Vec<_> = repository.branches().filter(fits).collect();
    Ok(call.reply_with_page(&found, |view, (name, id)| view.render_short_branch(repository, name, *id)))
}

/// Finds the branch in the path. 404 with GitHub's special message.
fn find_branch(call: &OperationCall<'_>, id: RepositoryId) -> Result<(String, ObjectId), OperationError> {
    let name = call.path_argument("branch");
    let found = call.repo(id)?.branch_head(name).ok_or_else(|| OperationError::new(404, "Branch not found"))?;
    Ok((name.to_owned(), found))
}

/// Includes the head commit and the required checks.
fn get_branch(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (name, commit) = find_branch(call, id)?;
    Ok(OperationReply::ok(call.view().render_branch(call.repo(id)?, &name, commit)))
}

/// Requires push access. 404 if the branch is not protected.
fn get_branch_protection(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let (name, _) = find_branch(call, id)?;
    let repository = call.repo(id)?;
    let rule = repository.protection.get(&name).ok_or_else(|| OperationError::new(404, "Branch not protected"))?;
    Ok(OperationReply::ok(call.view().render_branch_protection(repository, &name, rule)))
}
