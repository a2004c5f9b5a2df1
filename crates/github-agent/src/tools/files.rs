//! Files: reading them, and commits that change them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{RestClient, RestRequest, ToolOperationFailure, drop_null_fields, split_path_segments};
use super::operation::{RegisteredTool, ToolOperation, arguments, register_tool};
use super::{ToolEffect, ToolFamily, view};

pub(super) fn list_file_tools() -> Vec<RegisteredTool> {
    vec![
        register_tool::<ReadFile>(ToolFamily::Files),
        register_tool::<ListDirectory>(ToolFamily::Files),
        register_tool::<CommitFile>(ToolFamily::Files),
        register_tool::<UpdateFileContent>(ToolFamily::Files),
        register_tool::<DeleteFile>(ToolFamily::Files),
        register_tool::<PushFiles>(ToolFamily::Files),
    ]
}

/// Builds the path of a file below `contents`; the root of the repository for an empty path.
fn build_contents_segments(path: &str) -> Vec<&str> {
    let mut below = vec!["contents"];
    if !path.trim_matches('/').is_empty() {
        below.extend(split_path_segments(path));
    }
    below
}

arguments! {
    /// Reads a text file. The answer's sha is what update_file_content and delete_file need.
    ReadFile in repository {
        /// From the repository's root, such as src/main.rs.
        #[schemars(length(min = 1))]
        path: String,
        /// A branch, a tag or a commit; the default branch if not given.
        r#ref: Option<String>,
    }
}

impl ToolOperation for ReadFile {
    const NAME: &'static str = "read_file";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let place = self.route(&build_contents_segments(&self.path))?;
        let file = github.send(RestRequest::get(place).with_query(&json!({"ref": self.r#ref}))).await?.body;
        if file.is_array() {
            return Err(ToolOperationFailure::Unfit(format!("{} is a directory; use list_directory", self.path)));
        }
        let mut seen = json!({"path": file["path"], "sha": file["sha"], "size": file["size"]});
        match decode_file_content(&file) {
            Ok(content) if content.len() > view::MAX_OBJECT_TEXT_BYTES => {
                let end = content.floor_char_boundary(view::MAX_OBJECT_TEXT_BYTES);
                seen["content"] = content[..end].into();
                seen["note"] = format!(
                    "The content is cut: its first {end} of {} bytes are here. Do not write it back.",
                    content.len()
                )
                .into();
            }
            Ok(content) => seen["content"] = content.into(),
            Err(why) => seen["note"] = why.to_string().into(),
        }
        Ok(seen)
    }
}

/// Why the text of a file is not shown. The sentence becomes the `note` that the model reads.
#[derive(Debug, thiserror::Error)]
enum ContentNotShown {
    #[error("The content cannot be decoded.")]
    BrokenBase64,
    #[error("This is not a text file, so it is not shown.")]
    NotText,
    /// The target is printed as JSON, in quotation marks.
    #[error("A symbolic link to {0}.")]
    SymbolicLink(Value),
    #[error("A submodule, which is a repository of its own.")]
    Submodule,
    /// GitHub leaves `content` empty and sets `encoding` to `none` for files over 1 MB.
    #[error("Over 1 MB, which GitHub does not give as text.")]
    TooLarge,
}

/// Decodes the `content` of GitHub's contents API, which is base64 with line breaks.
fn decode_file_content(file: &Value) -> Result<String, ContentNotShown> {
    match (file["type"].as_str(), file["encoding"].as_str(), file["content"].as_str()) {
        (Some("file") | None, Some("base64"), Some(content)) => {
            let packed: String = content.split_whitespace().collect();
            let bytes = BASE64_STANDARD.decode(packed).map_err(|_| ContentNotShown::BrokenBase64)?;
            String::from_utf8(bytes).map_err(|_| ContentNotShown::NotText)
        }
        (Some("symlink"), ..) => Err(ContentNotShown::SymbolicLink(file["target"].clone())),
        (Some("submodule"), ..) => Err(ContentNotShown::Submodule),
        _ => Err(ContentNotShown::TooLarge),
    }
}

arguments! {
    /// Lists the files and folders of a folder.
    ListDirectory in repository {
        /// From the repository's root; the root itself if not given.
        path: Option<String>,
        /// A branch, a tag or a commit; the default branch if not given.
        r#ref: Option<String>,
    }
}

impl ToolOperation for ListDirectory {
    const NAME: &'static str = "list_directory";
    const EFFECT: ToolEffect = ToolEffect::Read;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let path = self.path.as_deref().unwrap_or_default();
        let place = self.route(&build_contents_segments(path))?;
        let answer = github.send(RestRequest::get(place).with_query(&json!({"ref": self.r#ref}))).await?;
        if !answer.body.is_array() {
            return Err(ToolOperationFailure::Unfit(format!("{path} is not a directory; use read_file")));
        }
        Ok(answer.to_item_list(|one| {
            drop_null_fields(json!({
                "name": one["name"], "path": one["path"], "type": one["type"], "sha": one["sha"], "size": one["size"],
            }))
        }))
    }
}

/// Returns the new SHA of the file and of its commit, which the next write needs.
fn summarize_file_write(body: &Value) -> Value {
    drop_null_fields(json!({
        "path": body["content"]["path"], "sha": body["content"]["sha"], "commit_sha": body["commit"]["sha"],
        "html_url": body["content"]["html_url"],
    }))
}

arguments! {
    /// Adds a new file in a commit of its own. For a file that is there already, use update_file_content.
    CommitFile in repository {
        /// From the repository's root; folders need not exist.
        #[schemars(length(min = 1))]
        path: String,
        /// The whole text of the file.
        content: String,
        /// The commit's message.
        message: String,
        /// The default branch if not given.
        branch: Option<String>,
    }
}

impl ToolOperation for CommitFile {
    const NAME: &'static str = "commit_file";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({
            "message": self.message, "content": BASE64_STANDARD.encode(&self.content), "branch": self.branch,
        });
        Ok(summarize_file_write(
            &github.send(RestRequest::put(self.route(&build_contents_segments(&self.path))?, body)).await?.body,
        ))
    }
}

arguments! {
    /// Replaces the whole text of a file that is there, in a commit of its own. Read the file first: its sha is needed,
    /// and if someone changed the file since, the answer is 409 and nothing is lost.
    UpdateFileContent in repository {
        /// From the repository's root.
        #[schemars(length(min = 1))]
        path: String,
        /// The whole new text.
        content: String,
        /// The commit's message.
        message: String,
        /// The sha of the file that is replaced, from read_file.
        #[schemars(length(min = 1))]
        sha: String,
        /// The default branch if not given.
        branch: Option<String>,
    }
}

impl ToolOperation for UpdateFileContent {
    const NAME: &'static str = "update_file_content";
    const EFFECT: ToolEffect = ToolEffect::Write;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({
            "message": self.message, "content": BASE64_STANDARD.encode(&self.content), "sha": self.sha,
            "branch": self.branch,
        });
        Ok(summarize_file_write(
            &github.send(RestRequest::put(self.route(&build_contents_segments(&self.path))?, body)).await?.body,
        ))
    }
}

arguments! {
    /// Removes a file, in a commit of its own.
    DeleteFile in repository {
        /// From the repository's root.
        #[schemars(length(min = 1))]
        path: String,
        /// The commit's message.
        message: String,
        /// The sha of the file, from read_file or list_directory.
        #[schemars(length(min = 1))]
        sha: String,
        /// The default branch if not given.
        branch: Option<String>,
    }
}

impl ToolOperation for DeleteFile {
    const NAME: &'static str = "delete_file";
    const EFFECT: ToolEffect = ToolEffect::Destructive;

    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let body = json!({"message": self.message, "sha": self.sha, "branch": self.branch});
        let request = RestRequest::delete(self.route(&build_contents_segments(&self.path))?).with_body(body);
        let answer = github.send(request).await?;
        Ok(json!({"deleted": self.path, "commit_sha": answer.body["commit"]["sha"]}))
    }
}

/// A file to push.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PushedFile {
    /// From the repository's root.
    #[schemars(length(min = 1))]
    path: String,
    /// The whole text of the file.
    content: String,
}

arguments! {
    /// Adds or replaces several files in one commit on a branch that exists. Files that are not named stay as they are.
    PushFiles in repository {
        #[schemars(length(min = 1))]
        branch: String,
        /// The commit's message.
        message: String,
        #[schemars(length(min = 1))]
        files: Vec<PushedFile>,
    }
}

impl ToolOperation for PushFiles {
    const NAME: &'static str = "push_files";
    const EFFECT: ToolEffect = ToolEffect::Write;

    /// As git does it: a tree over the branch's tree, a commit on its commit, then the branch moves there.
    async fn run(self, github: &RestClient) -> Result<Value, ToolOperationFailure> {
        let mut reference = vec!["git", "ref", "heads"];
        reference.extend(split_path_segments(&self.branch));
        let found = github.send(RestRequest::get(self.route(&reference)?)).await?.body;
        let parent = require_text(&found["object"]["sha"], "the branch's commit")?;
        let commit = github.send(RestRequest::get(self.route(&["git", "commits", parent])?)).await?.body;
        let base_tree = require_text(&commit["tree"]["sha"], "the commit's tree")?;
        let entries: Vec<_> = self
            .files
            .iter()
            .map(|file| json!({"path": file.path, "mode": "100644", "type": "blob", "content": file.content}))
            .collect();
        let tree = json!({"base_tree": base_tree, "tree": entries});
        let tree = github.send(RestRequest::post(self.route(&["git", "trees"])?, tree)).await?.body;
        let tree_sha = require_text(&tree["sha"], "the new tree")?;
        let commit = json!({"message": self.message, "tree": tree_sha, "parents": [parent]});
        let commit = github.send(RestRequest::post(self.route(&["git", "commits"])?, commit)).await?.body;
        let commit_sha = require_text(&commit["sha"], "the new commit")?;
        reference[1] = "refs";
        github.send(RestRequest::patch(self.route(&reference)?, json!({"sha": commit_sha}))).await?;
        let paths: Vec<_> = self.files.iter().map(|file| &file.path).collect();
        Ok(json!({"branch": self.branch, "commit_sha": commit_sha, "tree_sha": tree_sha, "files": paths}))
    }
}

/// Returns a SHA that the next request of the sequence needs, or fails.
fn require_text<'v>(value: &'v Value, what: &str) -> Result<&'v str, ToolOperationFailure> {
    value.as_str().ok_or_else(|| ToolOperationFailure::Unfit(format!("GitHub's answer does not tell {what}")))
}
