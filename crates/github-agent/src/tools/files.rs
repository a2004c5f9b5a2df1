//! Files: reading them, and commits that change them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{Api, Failure, Request, given, segments};
use super::operation::{Entry, Operation, arguments, entry};
use super::{Effect, Family, view};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry::<ReadFile>(Family::Files),
        entry::<ListDirectory>(Family::Files),
        entry::<CommitFile>(Family::Files),
        entry::<UpdateFileContent>(Family::Files),
        entry::<DeleteFile>(Family::Files),
        entry::<PushFiles>(Family::Files),
    ]
}

/// Below `contents`.
fn below(path: &str) -> Vec<&str> {
    let mut below = vec!["contents"];
    if !path.trim_matches('/').is_empty() {
        below.extend(segments(path));
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

impl Operation for ReadFile {
    const NAME: &'static str = "read_file";
    const EFFECT: Effect = Effect::Read;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let place = self.route(&below(&self.path))?;
        let file = github.send(Request::get(place).with_query(&json!({"ref": self.r#ref}))).await?.body;
        if file.is_array() {
            return Err(Failure::Unfit(format!("{} is a directory; use list_directory", self.path)));
        }
        let mut seen = json!({"path": file["path"], "sha": file["sha"], "size": file["size"]});
        match decoded(&file) {
            Ok(content) if content.len() > view::MAX_TEXT => {
                let end = content.floor_char_boundary(view::MAX_TEXT);
                seen["content"] = content[..end].into();
                seen["note"] = format!(
                    "The content is cut: its first {end} of {} bytes are here. Do not write it back.",
                    content.len()
                )
                .into();
            }
            Ok(content) => seen["content"] = content.into(),
            Err(why) => seen["note"] = why.into(),
        }
        Ok(seen)
    }
}

fn decoded(file: &Value) -> Result<String, String> {
    match (file["type"].as_str(), file["encoding"].as_str(), file["content"].as_str()) {
        (Some("file") | None, Some("base64"), Some(content)) => {
            let packed: String = content.split_whitespace().collect();
            let bytes =
                BASE64_STANDARD.decode(packed).map_err(|_| "The content cannot be decoded.".to_owned())?;
            String::from_utf8(bytes).map_err(|_| "This is not a text file, so it is not shown.".to_owned())
        }
        (Some("symlink"), ..) => Err(format!("A symbolic link to {}.", file["target"])),
        (Some("submodule"), ..) => Err("A submodule, which is a repository of its own.".to_owned()),
        _ => Err("Over 1 MB, which GitHub does not give as text.".to_owned()),
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

impl Operation for ListDirectory {
    const NAME: &'static str = "list_directory";
    const EFFECT: Effect = Effect::Read;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let path = self.path.as_deref().unwrap_or_default();
        let place = self.route(&below(path))?;
        let answer = github.send(Request::get(place).with_query(&json!({"ref": self.r#ref}))).await?;
        if !answer.body.is_array() {
            return Err(Failure::Unfit(format!("{path} is not a directory; use read_file")));
        }
        Ok(answer.items(|one| {
            given(json!({
                "name": one["name"], "path": one["path"], "type": one["type"], "sha": one["sha"], "size": one["size"],
            }))
        }))
    }
}

/// What a write of one file came to.
fn written(body: &Value) -> Value {
    given(json!({
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

impl Operation for CommitFile {
    const NAME: &'static str = "commit_file";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let body = json!({
            "message": self.message, "content": BASE64_STANDARD.encode(&self.content), "branch": self.branch,
        });
        Ok(written(&github.send(Request::put(self.route(&below(&self.path))?, body)).await?.body))
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

impl Operation for UpdateFileContent {
    const NAME: &'static str = "update_file_content";
    const EFFECT: Effect = Effect::Write;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let body = json!({
            "message": self.message, "content": BASE64_STANDARD.encode(&self.content), "sha": self.sha,
            "branch": self.branch,
        });
        Ok(written(&github.send(Request::put(self.route(&below(&self.path))?, body)).await?.body))
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

impl Operation for DeleteFile {
    const NAME: &'static str = "delete_file";
    const EFFECT: Effect = Effect::Destructive;

    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let body = json!({"message": self.message, "sha": self.sha, "branch": self.branch});
        let request = Request::delete(self.route(&below(&self.path))?).with_body(body);
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

impl Operation for PushFiles {
    const NAME: &'static str = "push_files";
    const EFFECT: Effect = Effect::Write;

    /// As git does it: a tree over the branch's tree, a commit on its commit, then the branch moves there.
    async fn run(self, github: &Api) -> Result<Value, Failure> {
        let mut reference = vec!["git", "ref", "heads"];
        reference.extend(segments(&self.branch));
        let found = github.send(Request::get(self.route(&reference)?)).await?.body;
        let parent = text(&found["object"]["sha"], "the branch's commit")?;
        let commit = github.send(Request::get(self.route(&["git", "commits", parent])?)).await?.body;
        let base_tree = text(&commit["tree"]["sha"], "the commit's tree")?;
        let entries: Vec<_> = self
            .files
            .iter()
            .map(|file| json!({"path": file.path, "mode": "100644", "type": "blob", "content": file.content}))
            .collect();
        let tree = json!({"base_tree": base_tree, "tree": entries});
        let tree = github.send(Request::post(self.route(&["git", "trees"])?, tree)).await?.body;
        let tree_sha = text(&tree["sha"], "the new tree")?;
        let commit = json!({"message": self.message, "tree": tree_sha, "parents": [parent]});
        let commit = github.send(Request::post(self.route(&["git", "commits"])?, commit)).await?.body;
        let commit_sha = text(&commit["sha"], "the new commit")?;
        reference[1] = "refs";
        github.send(Request::patch(self.route(&reference)?, json!({"sha": commit_sha}))).await?;
        let paths: Vec<_> = self.files.iter().map(|file| &file.path).collect();
        Ok(json!({"branch": self.branch, "commit_sha": commit_sha, "tree_sha": tree_sha, "files": paths}))
    }
}

fn text<'v>(value: &'v Value, what: &str) -> Result<&'v str, Failure> {
    value.as_str().ok_or_else(|| Failure::Unfit(format!("GitHub's answer does not tell {what}")))
}
