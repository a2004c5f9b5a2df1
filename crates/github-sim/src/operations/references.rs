//! Git references: branches and tags under their full names.
//!
//! | change | refused if |
//! |---|---|
//! | create | the name exists, is invalid, or is a directory of other names; the object is not a commit |
//! | move | the branch is protected; or it is no fast-forward and `force` is not set |
//! | delete | the branch is protected, or it is the default branch |
//!
//! All refusals are 422. Annotated tags are not simulated, so a tag refers to a commit directly.

use super::writing;
use crate::access::RequiredAccess;
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{ObjectId, is_ancestor};
use crate::http::RequestMethod::{Delete, Get, Patch, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::RepositoryId;

/// `git/ref` finds exactly one reference, `git/matching-refs` all with a prefix.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(Get, "/repos/{owner}/{repo}/git/ref/{ref*}", "git/get-ref", "git/refs#get-a-reference", get_reference),
    define_route(
        Get,
        "/repos/{owner}/{repo}/git/matching-refs/{ref*}",
        "git/list-matching-refs",
        "git/refs#list-matching-references",
        list_matching_references,
    ),
    // No longer documented, still used by clients.
    define_route(
        Get,
        "/repos/{owner}/{repo}/git/refs",
        "git/list-refs",
        "git/refs#list-matching-references",
        list_matching_references,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/git/refs",
        "git/create-ref",
        "git/refs#create-a-reference",
        create_reference,
    ),
    define_route(
        Patch,
        "/repos/{owner}/{repo}/git/refs/{ref*}",
        "git/update-ref",
        "git/refs#update-a-reference",
        update_reference,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/git/refs/{ref*}",
        "git/delete-ref",
        "git/refs#delete-a-reference",
        delete_reference,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/git/refs/{ref*}",
        "git/get-refs",
        "git/refs#list-matching-references",
        list_matching_references,
    ),
];

/// Returns the full name of the reference in the path: `heads/x` and `refs/heads/x` are both accepted.
fn reference_name(call: &OperationCall<'_>) -> String {
    let name = call.path_argument("ref").trim_matches('/');
    if name.starts_with("refs/") { name.to_owned() } else { format!("refs/{name}") }
}

/// 404 for a prefix of several references: the old behaviour of returning a list is gone on GitHub.
fn get_reference(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let name = reference_name(call);
    let repository = call.repo(id)?;
    if repository.is_empty() {
        return Err(OperationError::empty_repository());
    }
    let found = *repository.refs.get(&name).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(call.view().render_git_ref(repository, &name, found)))
}

/// All references with this prefix; an empty list if there are none. 409 for an empty repository.
fn list_matching_references(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let begin = reference_name(call);
    let repository = call.repo(id)?;
    if repository.is_empty() {
        return Err(OperationError::empty_repository());
    }
    let found: Vec<_> = repository.refs.iter().filter(|(name, _)| name.starts_with(&begin)).collect();
    Ok(call.reply_with_page(&found, |view, (name, id)| view.render_git_ref(repository, name, **id)))
}

/// Finds the commit that a body names by full sha. 422 for unknown objects and for objects that are not commits.
fn find_target_commit(call: &OperationCall<'_>, id: RepositoryId, sha: &str) -> Result<ObjectId, OperationError> {
    let invalid =
        || OperationError::new(422, "The sha parameter must be exactly 40 characters and contain only [0-9a-f].");
    let sha: ObjectId = sha.parse().map_err(|_| invalid())?;
    let objects = call.objects(id)?;
    match objects.get(sha) {
        None => Err(OperationError::new(422, "Object does not exist")),
        Some(_) if objects.commit(sha).is_none() => Err(OperationError::new(422, "Object is not a commit")),
        Some(_) => Ok(sha),
    }
}

/// Only branches and tags. 422 if the name exists, is invalid, or collides with a directory of names.
fn create_reference(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let name = fields.required_text("ref")?;
    let sha = fields.required_text("sha")?;
    let known = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/tags/"));
    if !known.is_some_and(writing::is_valid_ref) {
        let hint = if name.starts_with("refs/") {
            "is not a valid ref name."
        } else {
            "is not a valid ref name. It must start with 'refs/' and have at least two slashes."
        };
        return Err(OperationError::new(422, format!("{name} {hint}")));
    }
    if call.repo(id)?.is_empty() {
        return Err(OperationError::empty_repository());
    }
    let target = find_target_commit(call, id, sha)?;
    let repository = call.repo(id)?;
    if repository.refs.contains_key(name) {
        return Err(OperationError::new(422, "Reference already exists"));
    }
    if !writing::is_ref_name_free(repository, name) {
        return Err(OperationError::new(422, "Reference cannot be created: another one is in its way"));
    }
    match name.strip_prefix("refs/heads/") {
        Some(branch) => writing::move_branch(call.state, id, branch, target),
        None => {
            let now = call.now();
            let repository = call.repo_mut(id)?;
            repository.refs.insert(name.to_owned(), target);
            repository.pushed_at = now;
        }
    }
    Ok(OperationReply::created(call.view().render_git_ref(call.repo(id)?, name, target)))
}

/// Finds the reference in the path. 422 instead of 404 if it is unknown, as GitHub does for writes.
fn find_reference(call: &OperationCall<'_>, id: RepositoryId) -> Result<(String, ObjectId), OperationError> {
    let name = reference_name(call);
    let found = call.repo(id)?.refs.get(&name).copied();
    Ok((name, found.ok_or_else(|| OperationError::new(422, "Reference does not exist"))?))
}

/// Checks branch protection, with status 422 instead of 409.
fn check_may_change_reference(call: &OperationCall<'_>, id: RepositoryId, name: &str) -> Result<(), OperationError> {
    let Some(branch) = name.strip_prefix("refs/heads/") else { return Ok(()) };
    writing::check_may_change_branch(call, id, branch).map_err(|error| OperationError { status: 422, ..error })
}

/// Without `force`, only fast-forwards are allowed.
fn update_reference(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let sha = fields.required_text("sha")?;
    let force = fields.flag("force")?.unwrap_or(false);
    let (name, now_at) = find_reference(call, id)?;
    let target = find_target_commit(call, id, sha)?;
    check_may_change_reference(call, id, &name)?;
    if !force && !is_ancestor(call.objects(id)?, now_at, target) {
        return Err(OperationError::new(422, "Update is not a fast forward"));
    }
    match name.strip_prefix("refs/heads/") {
        Some(branch) => writing::move_branch(call.state, id, branch, target),
        None => drop(call.repo_mut(id)?.refs.insert(name.clone(), target)),
    }
    Ok(OperationReply::ok(call.view().render_git_ref(call.repo(id)?, &name, target)))
}

/// The default branch and protected branches cannot be deleted. Open pull requests of the branch are closed.
fn delete_reference(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let (name, _) = find_reference(call, id)?;
    let by = call.require_account()?;
    let repository = call.repo(id)?;
    match name.strip_prefix("refs/heads/") {
        Some(branch) if repository.protection.contains_key(branch) => {
            return Err(OperationError::new(422, "Cannot delete this protected branch"));
        }
        Some(branch) if branch == repository.default_branch => {
            return Err(OperationError::new(422, "Cannot delete the default branch"));
        }
        Some(branch) => writing::delete_branch(call.state, id, branch, by),
        None => drop(call.repo_mut(id)?.refs.remove(&name)),
    }
    Ok(OperationReply::no_content())
}
