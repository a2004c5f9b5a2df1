//! The git database: blobs, trees and commits. Clients use it to change several files in one commit:
//!
//! 1. `GET git/ref/heads/main`: the present head.
//! 2. `POST git/blobs`: one per file, or `content` in the tree.
//! 3. `POST git/trees` with `base_tree`: the new tree.
//! 4. `POST git/commits` with the tree and the head as the parent.
//! 5. `PATCH git/refs/heads/main`: moves the branch, if nobody else moved it in the meantime.
//!
//! Objects that no reference reaches stay in the store but are invisible to the inventory, so an abandoned attempt is
//! not a change.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::writing;
use crate::access::RequiredAccess;
use crate::call::{BodyFields, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::git::{
    EMPTY_TREE, GitCommit, GitFileMode, GitObject, ObjectId, TreeEntry, TreeLeaf, edit_tree, is_valid_path,
    list_tree_entries,
};
use crate::http::RequestMethod::{Get, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::RepositoryId;
use crate::view::content::encode_base64_lines;
use crate::view::node_id;

/// Tag objects are not simulated. None of these operations moves a branch; that needs `references`.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(Post, "/repos/{owner}/{repo}/git/blobs", "git/create-blob", "git/blobs#create-a-blob", create_blob),
    define_route(Get, "/repos/{owner}/{repo}/git/blobs/{file_sha}", "git/get-blob", "git/blobs#get-a-blob", get_blob),
    define_route(Post, "/repos/{owner}/{repo}/git/trees", "git/create-tree", "git/trees#create-a-tree", create_tree),
    define_route(Get, "/repos/{owner}/{repo}/git/trees/{tree_sha*}", "git/get-tree", "git/trees#get-a-tree", get_tree),
    define_route(
        Post,
        "/repos/{owner}/{repo}/git/commits",
        "git/create-commit",
        "git/commits#create-a-commit",
        create_commit,
    ),
    define_route(
        Get,
        "/repos/{owner}/{repo}/git/commits/{commit_sha}",
        "git/get-commit",
        "git/commits#get-a-commit-object",
        get_commit,
    ),
];

/// Maximum number of entries in one new tree.
const MAX_ENTRIES: usize = 10_000;

/// Returns 409 for a repository without commits, whose git database cannot be used.
fn ensure_not_empty(call: &OperationCall<'_>, id: RepositoryId) -> Result<(), OperationError> {
    if call.repo(id)?.is_empty() { Err(OperationError::empty_repository()) } else { Ok(()) }
}

/// Text or Base64. Creating the same content again gives the same sha and still 201.
fn create_blob(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let content = fields.required_text("content")?;
    let bytes = match fields.text_one_of("encoding", &["utf-8", "base64"])? {
        Some("base64") => {
            let packed: String = content.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            STANDARD.decode(packed).map_err(|_| OperationError::new(422, "content is not valid Base64"))?
        }
        _ => content.as_bytes().to_vec(),
    };
    ensure_not_empty(call, id)?;
    let blob = call.objects_mut(id)?.insert(GitObject::Blob(bytes));
    let url = format!("{}/git/blobs/{blob}", call.view().repository_url(call.repo(id)?));
    Ok(OperationReply::created(json!({"sha": blob, "url": url})))
}

/// Base64, or the bytes with the raw media type.
fn get_blob(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    ensure_not_empty(call, id)?;
    let invalid =
        || OperationError::new(422, "The sha parameter must be exactly 40 characters and contain only [0-9a-f].");
    let blob: ObjectId = call.path_argument("file_sha").parse().map_err(|_| invalid())?;
    let bytes = call.objects(id)?.blob(blob).ok_or_else(OperationError::not_found)?;
    if call.media == crate::http::AcceptedMediaType::Raw {
        return Ok(OperationReply::from_bytes("application/vnd.github.raw+json; charset=utf-8", bytes.to_vec()));
    }
    let url = format!("{}/git/blobs/{blob}", call.view().repository_url(call.repo(id)?));
    Ok(OperationReply::ok(json!({
        "sha": blob,
        "node_id": node_id("Blob", blob),
        "size": bytes.len(),
        "url": url,
        "content": encode_base64_lines(bytes),
        "encoding": "base64",
    })))
}

/// Renders a tree as JSON. `recursive` lists all levels with full paths, and sets `truncated` at the limit.
fn build_tree_object(
    call: &OperationCall<'_>,
    id: RepositoryId,
    tree: ObjectId,
    recursive: bool,
) -> Result<Value, OperationError> {
    let objects = call.objects(id)?;
    let url = call.view().repository_url(call.repo(id)?);
    let (found, truncated) = if recursive {
        list_tree_entries(objects, tree)
    } else {
        let own = objects.tree_entries(tree).unwrap_or_default();
        (own.iter().map(|entry| (entry.name.clone(), entry.clone())).collect(), false)
    };
    let shown = found.iter().map(|(path, entry): &(String, TreeEntry)| {
        let kind = entry.mode.object_kind();
        let mut object = json!({"path": path, "mode": entry.mode.digits(), "type": kind, "sha": entry.id});
        if let Some(bytes) = objects.blob(entry.id) {
            object["size"] = json!(bytes.len());
        }
        if entry.mode != GitFileMode::Submodule {
            object["url"] = json!(format!("{url}/git/{kind}s/{}", entry.id));
        }
        object
    });
    let shown: Vec<Value> = shown.collect();
    Ok(json!({"sha": tree, "url": format!("{url}/git/trees/{tree}"), "tree": shown, "truncated": truncated}))
}

/// By the sha of a tree or a commit, or by a branch or tag. Any value of `recursive` counts, even `false`, as on
/// GitHub.
fn get_tree(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    ensure_not_empty(call, id)?;
    let name = call.path_argument("tree_sha");
    let objects = call.objects(id)?;
    let by_sha = name.parse().ok().filter(|id| objects.tree_entries(*id).is_some());
    let by_commit = || {
        let commit = writing::find_commit(call.state, call.repo(id).ok()?, name)?;
        objects.commit(commit).map(|commit| commit.tree)
    };
    let tree = by_sha.or_else(by_commit).ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(build_tree_object(call, id, tree, call.query.has("recursive"))?))
}

/// A new tree on top of `base_tree`, or from scratch without it, which removes all files that are not listed: a
/// frequent mistake of agents.
fn create_tree(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let items = fields.list("tree")?.ok_or_else(|| OperationError::missing_field("tree"))?;
    ensure_not_empty(call, id)?;
    if items.len() > MAX_ENTRIES {
        return Err(OperationError::new(422, "The tree array has too many entries."));
    }
    let base = match fields.text("base_tree")? {
        None => EMPTY_TREE,
        Some(name) => {
            let objects = call.objects(id)?;
            // `base_tree` may also be the sha of a commit.
            let found = name.parse::<ObjectId>().ok().and_then(|given| match objects.commit(given) {
                Some(commit) => Some(commit.tree),
                None => objects.tree_entries(given).map(|_| given),
            });
            found.ok_or_else(|| OperationError::new(404, "base_tree is not a valid tree oid"))?
        }
    };
    let mut changes: BTreeMap<String, Option<TreeLeaf>> = BTreeMap::new();
    // Blobs are stored only after all entries are valid.
    let mut blobs = Vec::new();
    for item in items {
        let (path, leaf) = parse_tree_item(call, id, item, &mut blobs)?;
        changes.insert(path, leaf);
    }
    let objects = call.objects_mut(id)?;
    for blob in blobs {
        objects.insert(blob);
    }
    let tree = edit_tree(objects, base, &changes);
    let mut reply = OperationReply::created(build_tree_object(call, id, tree, false)?);
    // GitHub sends no `Location` for trees.
    reply.headers.retain(|(name, _)| *name != "location");
    Ok(reply)
}

/// Parses one entry of a new tree. A null `sha` removes the path; `content` creates a blob.
fn parse_tree_item(
    call: &OperationCall<'_>,
    id: RepositoryId,
    item: &Value,
    blobs: &mut Vec<GitObject>,
) -> Result<(String, Option<TreeLeaf>), OperationError> {
    if !item.is_object() {
        return Err(OperationError::wrong_type("tree", item, "an object"));
    }
    let item = BodyFields::from_object_or_empty(item);
    let malformed = |what: &str| OperationError::new(422, format!("tree.{what}"));
    let path = item.text("path")?.ok_or_else(|| malformed("path must be supplied"))?;
    if !is_valid_path(path) {
        return Err(malformed("path contains a malformed path component"));
    }
    if item.is_null("sha") && item.text("content")?.is_none() {
        return Ok((path.to_owned(), None));
    }
    let mode = item.text("mode")?.ok_or_else(|| malformed("mode must be supplied"))?;
    let mode = GitFileMode::from_digits(mode)
        .ok_or_else(|| malformed("mode must be one of 100644, 100755, 040000, 160000, 120000"))?;
    if let Some(content) = item.text("content")? {
        if mode.object_kind() != "blob" {
            return Err(malformed("content needs the mode of a file"));
        }
        let blob = GitObject::Blob(content.as_bytes().to_vec());
        let leaf = TreeLeaf { mode, id: blob.id() };
        blobs.push(blob);
        return Ok((path.to_owned(), Some(leaf)));
    }
    let sha = item.text("sha")?.ok_or_else(|| malformed("sha or content must be supplied"))?;
    let not_there = || OperationError::new(422, format!("tree.sha {sha} is not a valid {}", mode.object_kind()));
    let sha_id: ObjectId = sha.parse().map_err(|_| not_there())?;
    let objects = call.objects(id)?;
    let fits = match mode {
        GitFileMode::Directory => objects.tree_entries(sha_id).is_some(),
        // A submodule's commit is in another repository.
        GitFileMode::Submodule => true,
        GitFileMode::File | GitFileMode::Executable | GitFileMode::Link => objects.blob(sha_id).is_some(),
    };
    if !fits {
        return Err(not_there());
    }
    Ok((path.to_owned(), Some(TreeLeaf { mode, id: sha_id })))
}

/// A commit object. It is not on any branch yet. Trees and parents must exist (422).
fn create_commit(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Push)?;
    let fields = call.body_fields()?;
    let message = fields.required_text("message")?.to_owned();
    let tree = fields.required_text("tree")?;
    ensure_not_empty(call, id)?;
    let objects = call.objects(id)?;
    let known: Option<ObjectId> = tree.parse().ok().filter(|tree| objects.tree_entries(*tree).is_some());
    let tree = known.ok_or_else(|| OperationError::new(422, "Tree SHA does not exist"))?;
    let mut parents: Vec<ObjectId> = Vec::new();
    for parent in fields.text_list("parents")?.unwrap_or_default() {
        let known = parent.parse().ok().filter(|parent| objects.commit(*parent).is_some());
        parents.push(
            known.ok_or_else(|| OperationError::new(422, "Parent SHA does not exist or is not a commit object"))?,
        );
    }
    let by = writing::account_signature(call.state, call.require_account()?, call.now());
    let committer = writing::parse_commit_signature(call, &fields, "committer")?;
    let author = writing::parse_commit_signature(call, &fields, "author")?.unwrap_or_else(|| by.clone());
    let committer = committer.unwrap_or_else(|| author.clone());
    let made = writing::store_commit(call, id, GitCommit { tree, parents, author, committer, message })?;
    Ok(OperationReply::created(call.view().render_git_commit(call.repo(id)?, made)))
}

/// By full sha only.
fn get_commit(call: &mut OperationCall<'_>) -> OperationResult {
    let id = call.require_repository(RequiredAccess::Read)?;
    ensure_not_empty(call, id)?;
    let found = call.path_argument("commit_sha").parse().ok();
    let found = found.filter(|commit| call.objects(id).is_ok_and(|objects| objects.commit(*commit).is_some()));
    let commit = found.ok_or_else(OperationError::not_found)?;
    Ok(OperationReply::ok(call.view().render_git_commit(call.repo(id)?, commit)))
}
