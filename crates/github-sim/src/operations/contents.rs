//! Files by path: reading them, and writing them with one commit each.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::writing;
use crate::access::Need;
use crate::call::{Answer, Call, Fields, Reply};
use crate::error::ApiError;
use crate::git::{Commit, EMPTY_TREE, Leaf, Mode, Object, ObjectId, TreeEntry, edit, is_valid_path, lookup};
use crate::http::Media;
use crate::http::Method::{Delete, Get, Put};
use crate::route::{Route, route};
use crate::state::RepositoryId;

pub(super) const ROUTES: &[Route] = &[
    route(
        Get,
        "/repos/{owner}/{repo}/readme",
        "repos/get-readme",
        "repos/contents#get-a-repository-readme",
        readme,
    ),
    route(
        Get,
        "/repos/{owner}/{repo}/contents/{path*}",
        "repos/get-content",
        "repos/contents#get-repository-content",
        get,
    ),
    route(
        Put,
        "/repos/{owner}/{repo}/contents/{path*}",
        "repos/create-or-update-file-contents",
        "repos/contents#create-or-update-file-contents",
        put,
    ),
    route(
        Delete,
        "/repos/{owner}/{repo}/contents/{path*}",
        "repos/delete-file",
        "repos/contents#delete-a-file",
        delete,
    ),
];

/// Above this GitHub gives no content at all.
const MAX_BYTES: usize = 100 << 20;

/// The tree at the wanted reference, and the reference's name.
fn tree_at(call: &Call<'_>, id: RepositoryId) -> Result<(ObjectId, String), ApiError> {
    let repository = call.repo(id)?;
    if repository.is_empty() {
        return Err(ApiError::new(404, "This repository is empty."));
    }
    let name = call.query.get("ref").unwrap_or(&repository.default_branch).to_owned();
    let commit = writing::find_commit(call.state, repository, &name)
        .and_then(|commit| call.state.objects(repository).commit(commit))
        .ok_or_else(|| ApiError::new(404, format!("No commit found for the ref {name}")))?;
    Ok((commit.tree, name))
}

fn get(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let (tree, at) = tree_at(call, id)?;
    let path = call.argument("path").trim_matches('/').to_owned();
    let entry = lookup(call.objects(id)?, tree, &path).ok_or_else(ApiError::not_found)?;
    show(call, id, &path, &entry, &at)
}

fn show(call: &Call<'_>, id: RepositoryId, path: &str, entry: &TreeEntry, at: &str) -> Answer {
    let (repository, objects) = (call.repo(id)?, call.objects(id)?);
    if entry.mode == Mode::Directory {
        let entries = objects.tree(entry.id).unwrap_or_default();
        let view = call.view();
        let shown = entries.iter().take(1000).map(|entry| {
            let path = if path.is_empty() { entry.name.clone() } else { format!("{path}/{}", entry.name) };
            view.entry(repository, &path, entry, at)
        });
        return Ok(Reply::ok(Value::Array(shown.collect())));
    }
    let bytes = objects.blob(entry.id).unwrap_or_default();
    if bytes.len() > MAX_BYTES {
        return Err(ApiError::new(403, "This API returns blobs up to 100 MB in size."));
    }
    if call.media == Media::Raw {
        // Without a charset octokit takes it for binary.
        return Ok(Reply::bytes("application/vnd.github.raw+json; charset=utf-8", bytes.to_vec()));
    }
    Ok(Reply::ok(call.view().file(repository, path, entry, at)))
}

fn readme(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Read)?;
    let (tree, at) =
        tree_at(call, id).map_err(|error| if error.status == 404 { ApiError::not_found() } else { error })?;
    let objects = call.objects(id)?;
    let is_readme = |entry: &&TreeEntry| {
        let name = entry.name.to_lowercase();
        entry.mode != Mode::Directory && (name == "readme" || name.starts_with("readme."))
    };
    let entry = objects
        .tree(tree)
        .unwrap_or_default()
        .iter()
        .find(is_readme)
        .ok_or_else(ApiError::not_found)?
        .clone();
    let path = entry.name.clone();
    show(call, id, &path, &entry, &at)
}

/// What both writes begin with: the branch, where it is, and what is at the path now.
struct Place {
    id: RepositoryId,
    path: String,
    branch: String,
    /// None in a repository without commits.
    head: Option<ObjectId>,
    tree: ObjectId,
    entry: Option<TreeEntry>,
}

fn place(call: &Call<'_>, id: RepositoryId, fields: &Fields) -> Result<Place, ApiError> {
    let repository = call.repo(id)?;
    let branch = fields.text("branch")?.unwrap_or(&repository.default_branch);
    let branch = branch.strip_prefix("refs/heads/").unwrap_or(branch).to_owned();
    let head = repository.branch(&branch);
    if head.is_none() && (!repository.is_empty() || !writing::is_valid_ref(&branch)) {
        return Err(ApiError::new(404, format!("Branch {branch} not found")));
    }
    let path = call.argument("path").trim_end_matches('/').to_owned();
    if !is_valid_path(&path) {
        return Err(ApiError::new(422, "path contains a malformed path component"));
    }
    let objects = call.objects(id)?;
    let tree = head.and_then(|head| objects.commit(head)).map_or(EMPTY_TREE, |commit| commit.tree);
    let entry = lookup(objects, tree, &path);
    Ok(Place { id, path, branch, head, tree, entry })
}

/// The sha that was sent must be that of the file now.
fn check_sha(place: &Place, fields: &Fields, entry: &TreeEntry) -> Result<(), ApiError> {
    let sha = fields.required_text("sha")?;
    if sha != entry.id.to_string() {
        return Err(ApiError::new(409, format!("{} does not match {sha}", place.path)));
    }
    Ok(())
}

fn put(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let fields = call.fields()?;
    let message = fields.required_text("message")?;
    let content = fields.required_text("content")?;
    let place = place(call, id, &fields)?;
    let packed: String = content.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(packed).map_err(|_| ApiError::new(422, "content is not valid Base64"))?;
    let mut mode = Mode::File;
    if let Some(entry) = &place.entry {
        if entry.mode == Mode::Directory {
            return Err(ApiError::new(422, format!("{} is a directory", place.path)));
        }
        check_sha(&place, &fields, entry)?;
        mode = entry.mode;
    } else {
        // A sha for a file that is not there is ignored; a file where a folder has to be is not.
        let objects = call.objects(id)?;
        let mut above = place.path.match_indices('/').map(|(at, _)| &place.path[..at]);
        let in_the_way = above
            .find(|above| lookup(objects, place.tree, above).is_some_and(|one| one.mode != Mode::Directory));
        if let Some(file) = in_the_way {
            return Err(ApiError::new(422, format!("{file} is a file, so {} cannot be created", place.path)));
        }
    }
    writing::may_change_branch(call, id, &place.branch)?;
    let blob = Leaf { mode, id: Object::Blob(bytes.clone()).id() };
    let existed = place.entry.is_some();
    let made = commit_change(call, &place, &fields, message, Some((blob, bytes)))?;
    let entry = TreeEntry { name: place.path.clone(), mode, id: blob.id };
    let repository = call.repo(id)?;
    let view = call.view();
    let body = json!({
        "content": view.entry(repository, &place.path, &entry, &place.branch),
        "commit": view.git_commit(repository, made),
    });
    Ok(Reply::new(if existed { 200 } else { 201 }, body))
}

fn delete(call: &mut Call<'_>) -> Answer {
    let id = call.repository(Need::Push)?;
    let mut fields = call.fields()?;
    // Some clients send these in the query, as a body of DELETE is not for everyone.
    for name in ["message", "sha", "branch"] {
        if let (None, Some(value)) = (fields.get(name), call.query.get(name)) {
            fields.set(name, json!(value));
        }
    }
    let message = fields.required_text("message")?;
    fields.required_text("sha")?;
    let place = place(call, id, &fields)?;
    let entry =
        place.entry.as_ref().filter(|entry| entry.mode != Mode::Directory).ok_or_else(ApiError::not_found)?;
    check_sha(&place, &fields, entry)?;
    writing::may_change_branch(call, id, &place.branch)?;
    let made = commit_change(call, &place, &fields, message, None)?;
    Ok(Reply::ok(json!({"content": null, "commit": call.view().git_commit(call.repo(id)?, made)})))
}

fn commit_change(
    call: &mut Call<'_>,
    place: &Place,
    fields: &Fields,
    message: &str,
    file: Option<(Leaf, Vec<u8>)>,
) -> Result<ObjectId, ApiError> {
    let by = writing::signature_of(call.state, call.account()?, call.now());
    let committer = writing::signature(call, fields, "committer")?;
    let author = writing::signature(call, fields, "author")?;
    let author = author.or_else(|| committer.clone()).unwrap_or_else(|| by.clone());
    let committer = committer.unwrap_or(by);
    let objects = call.objects_mut(place.id)?;
    let leaf = file.map(|(leaf, bytes)| {
        objects.insert(Object::Blob(bytes));
        leaf
    });
    let tree = edit(objects, place.tree, &BTreeMap::from([(place.path.clone(), leaf)]));
    let parents = place.head.into_iter().collect();
    let made = writing::commit(
        call,
        place.id,
        Commit { tree, parents, author, committer, message: message.to_owned() },
    )?;
    writing::move_branch(call.state, place.id, &place.branch, made);
    Ok(made)
}
