//! Gists. Their comments, forks, stars and revisions are not simulated.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::call::{BodyFields, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Patch, Post};
use crate::route::{OperationRoute, define_route};
use crate::state::{AccountId, Gist};

/// `/gists/public` and `/gists/starred` are listed as unsimulated, since `{gist_id}` would match them.
pub(super) const ROUTES: &[OperationRoute] = &[
    define_route(Get, "/gists", "gists/list", "gists/gists#list-gists-for-the-authenticated-user", list_gists),
    define_route(Post, "/gists", "gists/create", "gists/gists#create-a-gist", create_gist),
    define_route(Get, "/gists/{gist_id}", "gists/get", "gists/gists#get-a-gist", get_gist),
    define_route(Patch, "/gists/{gist_id}", "gists/update", "reference/gists/#update-a-gist", update_gist),
    define_route(Delete, "/gists/{gist_id}", "gists/delete", "gists/gists#delete-a-gist", delete_gist),
    define_route(
        Get,
        "/users/{username}/gists",
        "gists/list-for-user",
        "gists/gists#list-gists-for-a-user",
        list_user_gists,
    ),
];

/// The caller's gists, or all public ones for anonymous callers; newest first, without contents.
fn list_gists(call: &mut OperationCall<'_>) -> OperationResult {
    let asker = call.actor.as_ref().map(|actor| actor.account);
    // Without a token this is the list of all public ones.
    let shown = |gist: &&Gist| asker.map_or(gist.public, |asker| gist.owner == asker);
    let mut found: Vec<_> = call.state.gists.values().filter(shown).collect();
    found.sort_by_key(|gist| std::cmp::Reverse((gist.created_at, gist.id.clone())));
    Ok(call.reply_with_page(&found, |view, gist| view.render_gist(gist, false)))
}

/// Public gists only, even for the owner.
fn list_user_gists(call: &mut OperationCall<'_>) -> OperationResult {
    let owner = call.state.account_by_login(call.path_argument("username")).ok_or_else(OperationError::not_found)?.id;
    let mut found: Vec<_> = call.state.gists.values().filter(|gist| gist.owner == owner && gist.public).collect();
    found.sort_by_key(|gist| std::cmp::Reverse((gist.created_at, gist.id.clone())));
    Ok(call.reply_with_page(&found, |view, gist| view.render_gist(gist, false)))
}

/// Returns the caller if it may write gists, which needs the `gist` scope. Fine-grained tokens do not have it.
fn require_gist_writer(call: &OperationCall<'_>) -> Result<AccountId, OperationError> {
    let account = call.require_account()?;
    let has_scope = call.actor.as_ref().is_some_and(|actor| actor.reach.has_scope("gist"));
    if has_scope { Ok(account) } else { Err(OperationError::token_lacks_permission()) }
}

/// Applies the `files` object: null removes a file, `filename` renames it. A gist must keep at least one file, and no
/// file may be empty (422).
fn apply_files(files: &mut BTreeMap<String, String>, given: &Value) -> Result<(), OperationError> {
    let Some(given) = given.as_object() else {
        return Err(OperationError::wrong_type("files", given, "an object"));
    };
    for (name, file) in given {
        if file.is_null() {
            files.remove(name);
            continue;
        }
        let fields = BodyFields::from_object_or_empty(file);
        let before = files.remove(name);
        let content = fields.text("content")?.map(str::to_owned).or(before);
        let content = content.filter(|content| !content.is_empty());
        let content = content.ok_or_else(|| OperationError::validation("Gist", "files", "missing_field"))?;
        files.insert(fields.text("filename")?.unwrap_or(name).to_owned(), content);
    }
    if files.is_empty() {
        return Err(OperationError::validation("Gist", "files", "missing_field"));
    }
    Ok(())
}

/// Secret by default.
fn create_gist(call: &mut OperationCall<'_>) -> OperationResult {
    let owner = require_gist_writer(call)?;
    let fields = call.body_fields()?;
    let mut files = BTreeMap::new();
    apply_files(&mut files, fields.get("files").ok_or_else(|| OperationError::missing_field("files"))?)?;
    let description = fields.text("description")?.map(str::to_owned);
    // GitHub also accepts the strings "true" and "false".
    let public = match fields.get("public") {
        Some(Value::String(text)) => text == "true",
        _ => fields.flag("public")?.unwrap_or(false),
    };
    let (number, now) = (call.state.next_id(), call.now());
    // A hash of the sequence number: unguessable by sight, and still deterministic.
    let id = blake3::hash(format!("gist {number}").as_bytes()).to_hex()[..32].to_owned();
    let gist = Gist { id: id.clone(), owner, description, public, files, created_at: now, updated_at: now };
    call.state.gists.insert(id, gist.clone());
    Ok(OperationReply::created(call.view().render_gist(&gist, true)))
}

/// Finds a gist. Secret gists are readable for everyone who knows the id.
fn find_gist(call: &OperationCall<'_>) -> Result<Gist, OperationError> {
    call.state.gists.get(call.path_argument("gist_id")).cloned().ok_or_else(OperationError::not_found)
}

/// With contents. No token is needed.
fn get_gist(call: &mut OperationCall<'_>) -> OperationResult {
    let gist = find_gist(call)?;
    Ok(OperationReply::ok(call.view().render_gist(&gist, true)).with_modified_at(gist.updated_at))
}

/// Finds a gist of the caller. 404 instead of 403 for gists of others, as on GitHub.
fn find_own_gist(call: &OperationCall<'_>) -> Result<Gist, OperationError> {
    let owner = require_gist_writer(call)?;
    let gist = find_gist(call)?;
    if gist.owner == owner { Ok(gist) } else { Err(OperationError::not_found()) }
}

/// Files that are not named stay.
fn update_gist(call: &mut OperationCall<'_>) -> OperationResult {
    let mut gist = find_own_gist(call)?;
    let fields = call.body_fields()?;
    if let Some(files) = fields.get("files").filter(|files| !files.is_null()) {
        apply_files(&mut gist.files, files)?;
    }
    gist.description = fields.clearable_text("description")?.unwrap_or(gist.description);
    gist.updated_at = call.now();
    call.state.gists.insert(gist.id.clone(), gist.clone());
    Ok(OperationReply::ok(call.view().render_gist(&gist, true)))
}

/// Only the owner; 404 for others.
fn delete_gist(call: &mut OperationCall<'_>) -> OperationResult {
    let gist = find_own_gist(call)?;
    call.state.gists.remove(&gist.id);
    Ok(OperationReply::no_content())
}
