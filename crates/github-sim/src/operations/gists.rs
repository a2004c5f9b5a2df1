//! Gists.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::call::{BodyFields, OperationCall, OperationReply, OperationResult};
use crate::error::OperationError;
use crate::http::RequestMethod::{Delete, Get, Patch, Post};
use crate::route::{OperationRoute, route};
use crate::state::{AccountId, Gist};

pub(super) const ROUTES: &[OperationRoute] = &[
    route(Get, "/gists", "gists/list", "gists/gists#list-gists-for-the-authenticated-user", list),
    route(Post, "/gists", "gists/create", "gists/gists#create-a-gist", create),
    route(Get, "/gists/{gist_id}", "gists/get", "gists/gists#get-a-gist", get),
    route(Patch, "/gists/{gist_id}", "gists/update", "reference/gists/#update-a-gist", update),
    route(Delete, "/gists/{gist_id}", "gists/delete", "gists/gists#delete-a-gist", delete),
    route(
        Get,
        "/users/{username}/gists",
        "gists/list-for-user",
        "gists/gists#list-gists-for-a-user",
        list_of_user,
    ),
];

fn list(call: &mut OperationCall<'_>) -> OperationResult {
    let asker = call.actor.as_ref().map(|actor| actor.account);
    // Without a token this is the list of all public ones.
    let shown = |gist: &&Gist| asker.map_or(gist.public, |asker| gist.owner == asker);
    let mut found: Vec<_> = call.state.gists.values().filter(shown).collect();
    found.sort_by_key(|gist| std::cmp::Reverse((gist.created_at, gist.id.clone())));
    Ok(call.list(&found, |view, gist| view.gist(gist, false)))
}

fn list_of_user(call: &mut OperationCall<'_>) -> OperationResult {
    let owner =
        call.state.account_by_login(call.argument("username")).ok_or_else(OperationError::not_found)?.id;
    let mut found: Vec<_> =
        call.state.gists.values().filter(|gist| gist.owner == owner && gist.public).collect();
    found.sort_by_key(|gist| std::cmp::Reverse((gist.created_at, gist.id.clone())));
    Ok(call.list(&found, |view, gist| view.gist(gist, false)))
}

fn writer(call: &OperationCall<'_>) -> Result<AccountId, OperationError> {
    let account = call.account()?;
    let has_scope = call.actor.as_ref().is_some_and(|actor| actor.reach.has_scope("gist"));
    if has_scope { Ok(account) } else { Err(OperationError::out_of_reach()) }
}

/// Files by name; null takes one away, `filename` renames it.
fn apply_files(files: &mut BTreeMap<String, String>, given: &Value) -> Result<(), OperationError> {
    let Some(given) = given.as_object() else {
        return Err(OperationError::wrong_type("files", given, "an object"));
    };
    for (name, file) in given {
        if file.is_null() {
            files.remove(name);
            continue;
        }
        let fields = BodyFields::from_value(file);
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

fn create(call: &mut OperationCall<'_>) -> OperationResult {
    let owner = writer(call)?;
    let fields = call.fields()?;
    let mut files = BTreeMap::new();
    apply_files(&mut files, fields.get("files").ok_or_else(|| OperationError::missing("files"))?)?;
    let description = fields.text("description")?.map(str::to_owned);
    let public = match fields.get("public") {
        Some(Value::String(text)) => text == "true",
        _ => fields.flag("public")?.unwrap_or(false),
    };
    let (number, now) = (call.state.next_id(), call.now());
    let id = blake3::hash(format!("gist {number}").as_bytes()).to_hex()[..32].to_owned();
    let gist = Gist { id: id.clone(), owner, description, public, files, created_at: now, updated_at: now };
    call.state.gists.insert(id, gist.clone());
    Ok(OperationReply::created(call.view().gist(&gist, true)))
}

/// Secret gists are not listed, but whoever knows the address can read them.
fn named(call: &OperationCall<'_>) -> Result<Gist, OperationError> {
    call.state.gists.get(call.argument("gist_id")).cloned().ok_or_else(OperationError::not_found)
}

fn get(call: &mut OperationCall<'_>) -> OperationResult {
    let gist = named(call)?;
    Ok(OperationReply::ok(call.view().gist(&gist, true)).modified(gist.updated_at))
}

fn own(call: &OperationCall<'_>) -> Result<Gist, OperationError> {
    let owner = writer(call)?;
    let gist = named(call)?;
    if gist.owner == owner { Ok(gist) } else { Err(OperationError::not_found()) }
}

fn update(call: &mut OperationCall<'_>) -> OperationResult {
    let mut gist = own(call)?;
    let fields = call.fields()?;
    if let Some(files) = fields.get("files").filter(|files| !files.is_null()) {
        apply_files(&mut gist.files, files)?;
    }
    gist.description = fields.clearable("description")?.unwrap_or(gist.description);
    gist.updated_at = call.now();
    call.state.gists.insert(gist.id.clone(), gist.clone());
    Ok(OperationReply::ok(call.view().gist(&gist, true)))
}

fn delete(call: &mut OperationCall<'_>) -> OperationResult {
    let gist = own(call)?;
    call.state.gists.remove(&gist.id);
    Ok(OperationReply::nothing())
}
