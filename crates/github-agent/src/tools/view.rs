//! GitHub's objects as an agent sees them: the fields that later steps need, and texts of bounded length. Null fields
//! are left out.

use serde_json::{Map, Value, json};

use super::api::drop_null_fields;

/// Maximum size in bytes of a file or of the body of a single object.
pub(super) const MAX_OBJECT_TEXT_BYTES: usize = 100_000;
/// Maximum size in bytes of a body in a list.
const MAX_LISTED_TEXT_BYTES: usize = 4_000;
/// Maximum size in bytes of the patch of one file.
const MAX_PATCH_BYTES: usize = 20_000;
/// Maximum size in bytes of a whole observation.
const MAX_OBSERVATION_BYTES: usize = 400_000;

pub(super) fn summarize_account(one: &Value) -> Value {
    drop_null_fields(json!({
        "login": one["login"], "name": one["name"], "type": one["type"], "email": one["email"], "bio": one["bio"],
        "public_repos": one["public_repos"], "html_url": one["html_url"],
    }))
}

/// `parent` is set for forks in responses about a single repository only.
pub(super) fn summarize_repository(one: &Value) -> Value {
    drop_null_fields(json!({
        "full_name": one["full_name"], "owner": one["owner"]["login"], "name": one["name"],
        "description": one["description"], "private": one["private"], "default_branch": one["default_branch"],
        "fork": one["fork"], "parent": one["parent"]["full_name"], "archived": one["archived"],
        "language": one["language"], "license": one["license"]["spdx_id"], "topics": one["topics"],
        "stargazers_count": one["stargazers_count"], "open_issues_count": one["open_issues_count"],
        "updated_at": one["updated_at"], "html_url": one["html_url"],
    }))
}

/// Summarizes an issue or a pull request. `is_listed` cuts the body earlier.
pub(super) fn summarize_issue(one: &Value, is_listed: bool) -> Value {
    // Search results name the repository only here.
    let repository = one["repository_url"].as_str().and_then(|url| url.split_once("/repos/")).map(|(_, name)| name);
    drop_null_fields(json!({
        "number": one["number"], "title": one["title"], "state": one["state"], "state_reason": one["state_reason"],
        "is_pull_request": one.get("pull_request").is_some_and(|pull| !pull.is_null()),
        "repository": repository, "author": one["user"]["login"],
        "labels": collect_field(&one["labels"], "name"), "assignees": collect_field(&one["assignees"], "login"),
        "milestone": milestone_of(&one["milestone"]), "comments": one["comments"], "locked": one["locked"],
        "created_at": one["created_at"], "updated_at": one["updated_at"], "closed_at": one["closed_at"],
        "body": truncate_body(&one["body"], is_listed), "html_url": one["html_url"],
    }))
}

fn milestone_of(one: &Value) -> Value {
    if one.is_null() { Value::Null } else { json!({"number": one["number"], "title": one["title"]}) }
}

pub(super) fn summarize_comment(one: &Value) -> Value {
    drop_null_fields(json!({
        "id": one["id"], "author": one["user"]["login"], "body": truncate_body(&one["body"], true),
        "created_at": one["created_at"], "html_url": one["html_url"],
    }))
}

pub(super) fn summarize_label(one: &Value) -> Value {
    drop_null_fields(json!({"name": one["name"], "color": one["color"], "description": one["description"]}))
}

pub(super) fn summarize_milestone(one: &Value) -> Value {
    drop_null_fields(json!({
        "number": one["number"], "title": one["title"], "state": one["state"], "description": one["description"],
        "due_on": one["due_on"], "open_issues": one["open_issues"], "closed_issues": one["closed_issues"],
        "html_url": one["html_url"],
    }))
}

pub(super) fn summarize_branch(one: &Value) -> Value {
    drop_null_fields(json!({"name": one["name"], "sha": one["commit"]["sha"], "protected": one["protected"]}))
}

/// Summarizes a commit as in lists: git's own data is one level below GitHub's.
pub(super) fn summarize_commit(one: &Value) -> Value {
    let author = match &one["author"]["login"] {
        Value::Null => &one["commit"]["author"]["name"],
        login => login,
    };
    drop_null_fields(json!({
        "sha": one["sha"], "message": truncate_body(&one["commit"]["message"], true), "author": author,
        "date": one["commit"]["author"]["date"], "tree_sha": one["commit"]["tree"]["sha"],
        "parents": collect_field(&one["parents"], "sha"), "html_url": one["html_url"],
    }))
}

/// Summarizes a changed file of a commit, comparison or pull request.
pub(super) fn summarize_changed_file(one: &Value) -> Value {
    drop_null_fields(json!({
        "filename": one["filename"], "status": one["status"], "previous_filename": one["previous_filename"],
        "additions": one["additions"], "deletions": one["deletions"], "sha": one["sha"],
        "patch": one["patch"].as_str().map(|patch| truncate_text(patch, MAX_PATCH_BYTES)),
    }))
}

/// `mergeable` is kept even if it is null, which says that GitHub has not computed it yet.
pub(super) fn summarize_pull(one: &Value, is_listed: bool) -> Value {
    let end = |end: &Value| {
        drop_null_fields(json!({"ref": end["ref"], "sha": end["sha"], "repository": end["repo"]["full_name"]}))
    };
    let mut seen = drop_null_fields(json!({
        "number": one["number"], "title": one["title"], "state": one["state"], "draft": one["draft"],
        "merged": one["merged"], "merged_at": one["merged_at"], "merge_commit_sha": one["merge_commit_sha"],
        "mergeable_state": one["mergeable_state"], "author": one["user"]["login"], "head": end(&one["head"]),
        "base": end(&one["base"]), "labels": collect_field(&one["labels"], "name"),
        "assignees": collect_field(&one["assignees"], "login"),
        "requested_reviewers": collect_field(&one["requested_reviewers"], "login"),
        "commits": one["commits"], "changed_files": one["changed_files"], "additions": one["additions"],
        "deletions": one["deletions"], "created_at": one["created_at"], "updated_at": one["updated_at"],
        "body": truncate_body(&one["body"], is_listed), "html_url": one["html_url"],
    }));
    // Null has a meaning: GitHub has not computed it yet.
    if let (Some(mergeable), Some(seen)) = (one.get("mergeable"), seen.as_object_mut()) {
        seen.insert("mergeable".to_owned(), mergeable.clone());
    }
    seen
}

pub(super) fn summarize_review(one: &Value) -> Value {
    drop_null_fields(json!({
        "id": one["id"], "author": one["user"]["login"], "state": one["state"], "body": truncate_body(&one["body"], true),
        "commit_sha": one["commit_id"], "submitted_at": one["submitted_at"], "html_url": one["html_url"],
    }))
}

pub(super) fn summarize_release(one: &Value) -> Value {
    drop_null_fields(json!({
        "id": one["id"], "tag_name": one["tag_name"], "name": one["name"], "draft": one["draft"],
        "prerelease": one["prerelease"], "target_commitish": one["target_commitish"],
        "author": one["author"]["login"], "published_at": one["published_at"], "body": truncate_body(&one["body"], true),
        "html_url": one["html_url"],
    }))
}

/// Collects one field of each element.
pub(super) fn collect_field(list: &Value, field: &str) -> Vec<Value> {
    list.as_array().into_iter().flatten().map(|one| one[field].clone()).collect()
}

/// Cuts a body to its limit. None for a null body.
fn truncate_body(value: &Value, is_listed: bool) -> Option<String> {
    Some(truncate_text(value.as_str()?, if is_listed { MAX_LISTED_TEXT_BYTES } else { MAX_OBJECT_TEXT_BYTES }))
}

/// Cuts a text to this many bytes, at a character, with a note on how much is shown.
pub(crate) fn truncate_text(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most);
    format!("{}… [cut: {} of {} bytes are shown]", &text[..end], end, text.len())
}

/// Formats a value as JSON text of bounded length. Long texts are cut further and further, then lists lose their
/// ends; the result stays JSON.
pub(super) fn format_observation(mut value: Value) -> String {
    let mut most = MAX_OBJECT_TEXT_BYTES;
    loop {
        let written = value.to_string();
        if written.len() <= MAX_OBSERVATION_BYTES {
            return written;
        }
        if most < 500 {
            break;
        }
        most /= 2;
        cut_long_texts(&mut value, most);
    }
    let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) else {
        return json!({"note": "too long to show", "start": truncate_text(&value.to_string(), MAX_OBSERVATION_BYTES / 8)})
            .to_string();
    };
    let all = items.len();
    let mut room = MAX_OBSERVATION_BYTES / 2;
    items.retain(|item| {
        let length = item.to_string().len();
        let fits = length <= room;
        room = if fits { room - length } else { 0 };
        fits
    });
    let note = format!("only the first {} of {all} on this page are shown; ask with a smaller per_page", items.len());
    if let Some(object) = value.as_object_mut() {
        object.insert("note".to_owned(), note.into());
    }
    value.to_string()
}

/// Cuts all texts of a value that are clearly longer than the limit.
fn cut_long_texts(value: &mut Value, most: usize) {
    match value {
        Value::String(text) if text.len() > most + 100 => *text = truncate_text(text, most),
        Value::Array(items) => items.iter_mut().for_each(|item| cut_long_texts(item, most)),
        Value::Object(fields) => fields.values_mut().for_each(|field| cut_long_texts(field, most)),
        _ => {}
    }
}

/// Adds fields that the request already knew to the result of a write.
pub(super) fn merge_fields(mut seen: Value, fields: Value) -> Value {
    if let (Some(seen), Value::Object(fields)) = (seen.as_object_mut(), fields) {
        let fields: Map<String, Value> = fields;
        seen.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters_and_say_so() {
        assert_eq!(truncate_text("short", 10), "short");
        assert_eq!(truncate_text("ää ää", 3), "ä… [cut: 2 of 9 bytes are shown]");
    }

    #[test]
    fn observations_are_bounded_and_stay_json() {
        let items: Vec<_> = (0..100).map(|n| json!({"number": n, "body": "\u{1}".repeat(90_000)})).collect();
        let seen = format_observation(json!({"items": items}));
        assert!(seen.len() <= MAX_OBSERVATION_BYTES, "{}", seen.len());
        let seen: Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(seen["items"].as_array().unwrap().len(), 100);
        let many: Vec<_> = (0..60_000).map(|n| json!({"number": n})).collect();
        let seen: Value = serde_json::from_str(&format_observation(json!({"items": many}))).unwrap();
        assert!(seen["note"].as_str().unwrap().contains("of 60000 on this page"), "{}", seen["note"]);
        let deep = format_observation(json!({"files": vec!["x".repeat(400); 2000]}));
        assert!(deep.len() <= MAX_OBSERVATION_BYTES && serde_json::from_str::<Value>(&deep).is_ok());
    }
}
