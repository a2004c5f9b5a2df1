//! Releases and tags. A release refers to a tag by name. Publishing creates a missing tag at `target_commitish`;
//! deleting a release keeps the tag. Drafts have no tag yet, and only accounts with push access see them.

use super::writing;
use crate::access::{self, RequiredAccess};
use crate::call::{OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Patch, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{RepositoryId, RepositoryPermission, RepositoryRelease};

/// Assets and generated notes are not simulated. `latest` and `tags/` come before `{release_id}`.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(Get, "/repos/{owner}/{repo}/tags", "repos/list-tags", "repos/repos#list-repository-tags", list_tags),
    define_route(
        Get,
        "/repos/{owner}/{repo}/releases",
        "repos/list-releases",
        "releases/releases#list-releases",
        list_releases,
    ),
    define_route(
        Post,
        "/repos/{owner}/{repo}/releases",
        "repos/create-release",
        "releases/releases#create-a-release",
        create_release,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/releases/latest",
        "repos/get-latest-release",
        "releases/releases#get-the-latest-release",
        get_latest_release,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/releases/tags/{tag*}",
        "repos/get-release-by-tag",
        "releases/releases#get-a-release-by-tag-name",
        get_release_by_tag,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/releases/{release_id}",
        "repos/get-release",
        "releases/releases#get-a-release",
        get_release,
    ),
    define_route(
        Patch,
        "/repos/{owner}/{repo}/releases/{release_id}",
        "repos/update-release",
        "releases/releases#update-a-release",
        update_release,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/releases/{release_id}",
        "repos/delete-release",
        "releases/releases#delete-a-release",
        delete_release,
    ),
];

/// In descending order of names, as GitHub lists them.
fn list_tags(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    // As GitHub lists them: the highest name first.
    let mut found: Vec<_> = repository.tags().collect();
    found.reverse();
    Ok(call.reply_with_page(&found, |view, (name, id)| view.render_tag(repository, name, *id)))
}

/// Whether the caller has push access, without which drafts are invisible.
fn has_push_access(call: &OperationCall<'_>, id: RepositoryId) -> Result<bool, OperationError> {
    Ok(access::resolve_permission(call.state, call.actor.as_ref(), call.repo(id)?) >= Some(RepositoryPermission::Push))
}

/// Newest first.
fn list_releases(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let sees_drafts = has_push_access(call, id)?;
    let repository = call.repo(id)?;
    let mut found: Vec<_> = repository.releases.values().filter(|one| sees_drafts || !one.draft).collect();
    found.sort_by_key(|one| std::cmp::Reverse((one.created_at, one.id)));
    Ok(call.reply_with_page(&found, |view, one| view.render_release(repository, one)))
}

/// Creates a missing tag at `target_commitish`, unless it is a draft. 422 if a release for the tag exists.
fn create_release(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let tag_name = fields.required_text("tag_name")?.to_owned();
    let repository = call.repo(id)?;
    let target_commitish = fields.text("target_commitish")?.unwrap_or(&repository.default_branch).to_owned();
    let name = fields.clearable_text("name")?.flatten();
    let body = fields.clearable_text("body")?.flatten();
    let draft = fields.flag("draft")?.unwrap_or(false);
    let prerelease = fields.flag("prerelease")?.unwrap_or(false);
    if !writing::is_valid_ref(&tag_name) {
        return Err(OperationError::custom_validation("Release", Some("tag_name"), "tag_name is not a valid tag"));
    }
    if repository.releases.values().any(|one| one.tag_name == tag_name) {
        return Err(OperationError::validation("Release", "tag_name", "already_exists"));
    }
    if repository.is_empty() {
        return Err(OperationError::custom_validation("Release", None, "Repository is empty."));
    }
    let new_tag = plan_release_tag(call, id, &tag_name, &target_commitish, draft)?;
    let now = call.now();
    let release = RepositoryRelease {
        id: call.state.next_id(),
        tag_name,
        target_commitish,
        name,
        body,
        draft,
        prerelease,
        author: call.require_account()?,
        created_at: now,
        published_at: (!draft).then_some(now),
    };
    let repository = call.repo_mut(id)?;
    repository.refs.extend(new_tag);
    repository.releases.insert(release.id, release.clone());
    Ok(OperationReply::created(call.view().render_release(call.repo(id)?, &release)))
}

/// Returns the reference that a published release needs, if it does not exist yet. It is written only after all
/// checks.
fn plan_release_tag(
    call: &OperationCall<'_>,
    id: RepositoryId,
    name: &str,
    target: &str,
    draft: bool,
) -> Result<Option<(String, crate::git::ObjectId)>, OperationError> {
    let repository = call.repo(id)?;
    if repository.tag_target(name).is_some() || draft {
        return Ok(None);
    }
    let full = format!("refs/tags/{name}");
    let commit =
        writing::find_commit(call.state, repository, target).filter(|_| writing::is_ref_name_free(repository, &full));
    let commit = commit.ok_or_else(|| OperationError::validation("Release", "target_commitish", "invalid"))?;
    Ok(Some((full, commit)))
}

/// The newest release that is neither a draft nor a prerelease.
fn get_latest_release(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    let published = repository.releases.values().filter(|one| !one.draft && !one.prerelease);
    let newest = published.max_by_key(|one| (one.created_at, one.id)).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(call.view().render_release(repository, newest)))
}

/// Drafts have no tag yet, so they are not found.
fn get_release_by_tag(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let repository = call.repo(id)?;
    let tag = call.path_argument("tag");
    let found = repository.releases.values().find(|one| one.tag_name == tag && !one.draft);
    Ok(OperationReply::ok(call.view().render_release(repository, found.ok_or_else(OperationError::not_found)?)))
}

/// Finds a release by id; drafts only with push access.
fn find_release(call: &OperationCall<'_>, id: RepositoryId) -> Result<RepositoryRelease, OperationError> {
    let number = call.path_number("release_id")?;
    let sees_drafts = has_push_access(call, id)?;
    let found = call.repo(id)?.releases.get(&number).filter(|one| sees_drafts || !one.draft);
    found.cloned().ok_or_else(OperationError::not_found)
}

/// Drafts only with push access.
fn get_release(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let release = find_release(call, id)?;
    Ok(OperationReply::ok(call.view().render_release(call.repo(id)?, &release)))
}

/// Publishing a draft creates its tag and sets `published_at`.
fn update_release(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let mut release = find_release(call, id)?;
    let fields = call.body_fields()?;
    if let Some(tag_name) = fields.text("tag_name")? {
        let taken = call.repo(id)?.releases.values().any(|one| one.tag_name == tag_name && one.id != release.id);
        if taken {
            return Err(OperationError::validation("Release", "tag_name", "already_exists"));
        }
        if !writing::is_valid_ref(tag_name) {
            return Err(OperationError::custom_validation("Release", Some("tag_name"), "tag_name is not a valid tag"));
        }
        tag_name.clone_into(&mut release.tag_name);
    }
    if let Some(target) = fields.text("target_commitish")? {
        target.clone_into(&mut release.target_commitish);
    }
    // Absent fields keep their value; null and the empty text clear it.
    release.name = fields.clearable_text("name")?.unwrap_or(release.name);
    release.body = fields.clearable_text("body")?.unwrap_or(release.body);
    release.draft = fields.flag("draft")?.unwrap_or(release.draft);
    release.prerelease = fields.flag("prerelease")?.unwrap_or(release.prerelease);
    let new_tag = plan_release_tag(call, id, &release.tag_name, &release.target_commitish, release.draft)?;
    let now = call.now();
    if !release.draft {
        release.published_at = release.published_at.or(Some(now));
    }
    let repository = call.repo_mut(id)?;
    repository.refs.extend(new_tag);
    repository.releases.insert(release.id, release.clone());
    Ok(OperationReply::ok(call.view().render_release(call.repo(id)?, &release)))
}

/// The tag stays, as on GitHub.
fn delete_release(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let release = find_release(call, id)?;
    call.repo_mut(id)?.releases.remove(&release.id);
    Ok(OperationReply::no_content())
}
