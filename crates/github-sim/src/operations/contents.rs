//! Files by path: reading, and writing with one commit each.
//!
//! Writes use optimistic locking: an update or a deletion must name the blob sha of the file that it replaces. If the
//! file changed since the client read it, the write is refused with 409. A new file needs no sha. Since each write is a
//! commit, a series of writes is not atomic; `git_objects` is.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::writing;
use crate::access::RequiredAccess;
use crate::call::{BodyFields, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{
    EMPTY_TREE, GitCommit, GitFileMode, GitObject, ObjectId, TreeEntry, TreeLeaf, edit_tree, find_tree_entry,
    is_valid_path,
};
use crate::http::AcceptedMediaType;
use crate::http::RequestMethod::{Delete, Get, Put};
use crate::route::{OperationRoute, define_route};
use crate::state::RepositoryId;

/// Archives (`tarball`, `zipball`) are not simulated.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(
        Get,
        "/repos/{owner}/{repo}/readme",
        "repos/get-readme",
        "repos/contents#get-a-repository-readme",
        get_readme,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/contents/{path*}",
        "repos/get-content",
        "repos/contents#get-repository-content",
        get_contents,
    ),
    define_route(
        Put,
        "/repos/{owner}/{repo}/contents/{path*}",
        "repos/create-or-update-file-contents",
        "repos/contents#create-or-update-file-contents",
        put_file_contents,
    ),
    define_route(
        Delete,
        "/repos/{owner}/{repo}/contents/{path*}",
        "repos/delete-file",
        "repos/contents#delete-a-file",
        delete_file,
    ),
];

/// Maximum size of a file in bytes. Above it GitHub returns no content at all.
const MAX_CONTENT_BYTES: usize = 100 << 20;

/// Returns the tree at `ref` or the default branch, and the name of that ref. 404 for an empty repository.
fn find_requested_tree(call: &OperationCall<'_>, id: RepositoryId) -> Result<(ObjectId, String), OperationError> {
    let repository = call.repo(id)?;
    if repository.is_empty() {
        return Err(OperationError::new(404, "This repository is empty."));
    }
    let name = call.query.get("ref").unwrap_or(&repository.default_branch).to_owned();
    let commit = writing::find_commit(call.state, repository, &name)
        .and_then(|commit| call.state.objects(repository).commit(commit))
        .ok_or_else(|| OperationError::new(404, format!("No commit found for the ref {name}")))?;
    Ok((commit.tree, name))
}

/// A file, or the entries of a directory. The empty path is the root.
fn get_contents(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (tree, at) = find_requested_tree(call, id)?;
    let path = call.path_argument("path").trim_matches('/').to_owned();
    let entry = find_tree_entry(call.objects(id)?, tree, &path).ok_or_else(OperationError::not_found)?;
    build_contents_reply(call, id, &path, &entry, &at)
}

/// Directories list up to 1000 entries. Files support the raw media type.
fn build_contents_reply(
    call: &OperationCall<'_>,
    id: RepositoryId,
    path: &str,
    entry: &TreeEntry,
    at: &str,
) -> OperationResult {
    let (repository, objects) = (call.repo(id)?, call.objects(id)?);
    if entry.mode == GitFileMode::Directory {
        let entries = objects.tree_entries(entry.id).unwrap_or_default();
        let view = call.view();
        let shown = entries.iter().take(1000).map(|entry| {
            let path = if path.is_empty() { entry.name.clone() } else { format!("{path}/{}", entry.name) };
            view.render_content_entry(repository, &path, entry, at)
        });
        return Ok(OperationReply::ok(Value::Array(shown.collect())));
    }
    let bytes = objects.blob(entry.id).unwrap_or_default();
    if bytes.len() > MAX_CONTENT_BYTES {
        return Err(OperationError::new(403, "This API returns blobs up to 100 MB in size."));
    }
    if call.media == AcceptedMediaType::Raw {
        // Octokit treats a response without a charset as binary.
        return Ok(OperationReply::from_bytes("application/vnd.github.raw+json; charset=utf-8", bytes.to_vec()));
    }
    Ok(OperationReply::ok(call.view().render_file_with_content(repository, path, entry, at)))
}

/// The first file called `readme` or `readme.*` in the root, in any case.
fn get_readme(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    let (tree, at) = find_requested_tree(call, id)
        .map_err(|error| if error.status == 404 { OperationError::not_found() } else { error })?;
    let objects = call.objects(id)?;
    let is_readme = |entry: &&TreeEntry| {
        let name = entry.name.to_lowercase();
        entry.mode != GitFileMode::Directory && (name == "readme" || name.starts_with("readme."))
    };
    let entry = objects
        .tree_entries(tree)
        .unwrap_or_default()
        .iter()
        .find(is_readme)
        .ok_or_else(OperationError::not_found)?
        .clone();
    let path = entry.name.clone();
    build_contents_reply(call, id, &path, &entry, &at)
}

/// Where a write goes. Updates and deletions both resolve it first.
struct FileWriteTarget {
    id: RepositoryId,
    path: String,
    branch: String,
    /// `None` in a repository without commits, where the write creates the first one.
    head: Option<ObjectId>,
    tree: ObjectId,
    /// The present entry at the path.
    entry: Option<TreeEntry>,
}

/// Resolves branch and path. The branch must exist, except in an empty repository. 422 for a path that git does not
/// accept.
fn resolve_write_target(
    call: &OperationCall<'_>,
    id: RepositoryId,
    fields: &BodyFields,
) -> Result<FileWriteTarget, OperationError> {
    let repository = call.repo(id)?;
    let branch = fields.text("branch")?.unwrap_or(&repository.default_branch);
    let branch = branch.strip_prefix("refs/heads/").unwrap_or(branch).to_owned();
    let head = repository.branch_head(&branch);
    if head.is_none() && (!repository.is_empty() || !writing::is_valid_ref(&branch)) {
        return Err(OperationError::new(404, format!("Branch {branch} not found")));
    }
    let path = call.path_argument("path").trim_end_matches('/').to_owned();
    if !is_valid_path(&path) {
        return Err(OperationError::new(422, "path contains a malformed path component"));
    }
    let objects = call.objects(id)?;
    let tree = head.and_then(|head| objects.commit(head)).map_or(EMPTY_TREE, |commit| commit.tree);
    let entry = find_tree_entry(objects, tree, &path);
    Ok(FileWriteTarget { id, path, branch, head, tree, entry })
}

/// Optimistic locking: the sha of the request must be that of the present file. 409 if someone else changed it.
fn check_sha(place: &FileWriteTarget, fields: &BodyFields, entry: &TreeEntry) -> Result<(), OperationError> {
    let sha = fields.required_text("sha")?;
    if sha != entry.id.to_string() {
        return Err(OperationError::new(409, format!("{} does not match {sha}", place.path)));
    }
    Ok(())
}

/// 201 for a new file, 200 for an update. `sha` is required for updates (422 if missing).
fn put_file_contents(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let message = fields.required_text("message")?;
    let content = fields.required_text("content")?;
    let place = resolve_write_target(call, id, &fields)?;
    // Encoders break Base64 into lines.
    let packed: String = content.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(packed).map_err(|_| OperationError::new(422, "content is not valid Base64"))?;
    let mut mode = GitFileMode::File;
    if let Some(entry) = &place.entry {
        if entry.mode == GitFileMode::Directory {
            return Err(OperationError::new(422, format!("{} is a directory", place.path)));
        }
        check_sha(&place, &fields, entry)?;
        mode = entry.mode;
    } else {
        // GitHub ignores a sha for a file that does not exist. A file in place of a parent directory is an error.
        let objects = call.objects(id)?;
        let mut above = place.path.match_indices('/').map(|(at, _)| &place.path[..at]);
        let in_the_way = above.find(|above| {
            find_tree_entry(objects, place.tree, above).is_some_and(|one| one.mode != GitFileMode::Directory)
        });
        if let Some(file) = in_the_way {
            return Err(OperationError::new(422, format!("{file} is a file, so {} cannot be created", place.path)));
        }
    }
    // Checked last: a malformed request is reported before rules of the repository.
    writing::check_may_change_branch(call, id, &place.branch)?;
    let blob = TreeLeaf { mode, id: GitObject::Blob(bytes.clone()).id() };
    let existed = place.entry.is_some();
    let made = commit_change(call, &place, &fields, message, Some((blob, bytes)))?;
    let entry = TreeEntry { name: place.path.clone(), mode, id: blob.id };
    let repository = call.repo(id)?;
    let view = call.view();
    let body = json!({
        "content": view.render_content_entry(repository, &place.path, &entry, &place.branch),
        "commit": view.render_git_commit(repository, made),
    });
    Ok(OperationReply::new(if existed { 200 } else { 201 }, body))
}

/// 200 with the commit. Directories cannot be deleted.
fn delete_file(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let mut fields = call.body_fields()?;
    // Some clients cannot send a body with DELETE and use the query instead.
    for name in ["message", "sha", "branch"] {
        if let (None, Some(value)) = (fields.get(name), call.query.get(name)) {
            fields.set(name, json!(value));
        }
    }
    let message = fields.required_text("message")?;
    fields.required_text("sha")?;
    let place = resolve_write_target(call, id, &fields)?;
    let entry = place
        .entry
        .as_ref()
        .filter(|entry| entry.mode != GitFileMode::Directory)
        .ok_or_else(OperationError::not_found)?;
    check_sha(&place, &fields, entry)?;
    writing::check_may_change_branch(call, id, &place.branch)?;
    let made = commit_change(call, &place, &fields, message, None)?;
    Ok(OperationReply::ok(json!({"content": null, "commit": call.view().render_git_commit(call.repo(id)?, made)})))
}

/// Commits one changed or removed file on top of the branch. The author defaults to the committer, which defaults to
/// the caller.
fn commit_change(
    call: &mut OperationCall<'_>,
    place: &FileWriteTarget,
    fields: &BodyFields,
    message: &str,
    file: Option<(TreeLeaf, Vec<u8>)>,
) -> Result<ObjectId, OperationError> {
    let by = writing::account_signature(call.state, call.require_account()?, call.now());
    let committer = writing::parse_commit_signature(call, fields, "committer")?;
    let author = writing::parse_commit_signature(call, fields, "author")?;
    let author = author.or_else(|| committer.clone()).unwrap_or_else(|| by.clone());
    let committer = committer.unwrap_or(by);
    let objects = call.objects_mut(place.id)?;
    let leaf = file.map(|(leaf, bytes)| {
        objects.insert(GitObject::Blob(bytes));
        leaf
    });
    let tree = edit_tree(objects, place.tree, &BTreeMap::from([(place.path.clone(), leaf)]));
    let parents = place.head.into_iter().collect();
    let made = writing::store_commit(
        call,
        place.id,
        GitCommit { tree, parents, author, committer, message: message.to_owned() },
    )?;
    writing::move_branch(call.state, place.id, &place.branch, made);
    Ok(made)
}
