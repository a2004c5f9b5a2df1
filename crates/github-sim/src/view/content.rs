//! Files and directories in the form of the contents endpoints.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{ApiView, escape_path};
use crate::git::{GitFileMode, TreeEntry};
use crate::state::Repository;

/// Maximum size in bytes of content in a response. Above it, GitHub sends no content and the encoding `none`.
const MAX_INLINE_BYTES: usize = 1 << 20;
/// Number of characters after which GitHub breaks Base64.
const BASE64_LINE_CHARS: usize = 60;

/// Encodes as Base64 in lines, each ending in a line feed.
pub(crate) fn encode_base64_lines(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let mut lines = String::with_capacity(text.len() + text.len() / BASE64_LINE_CHARS + 1);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(BASE64_LINE_CHARS));
        lines.push_str(line);
        lines.push('\n');
        rest = after;
    }
    lines
}

impl ApiView<'_> {
    /// Without the content: as in directory listings and in replies to writes. `at` is the ref that the client asked
    /// for, which URLs repeat.
    pub(crate) fn render_content_entry(
        &self,
        repository: &Repository,
        path: &str,
        entry: &TreeEntry,
        at: &str,
    ) -> Value {
        let (url, page) = (self.repository_url(repository), self.repository_page(repository));
        let objects = self.state.objects(repository);
        let (name_in_url, at_in_url) = (escape_path(path), escape_path(at));
        let kind = match entry.mode {
            GitFileMode::Directory => "dir",
            GitFileMode::Link => "symlink",
            GitFileMode::Submodule => "submodule",
            GitFileMode::File | GitFileMode::Executable => "file",
        };
        let own = format!("{url}/contents/{name_in_url}?ref={at_in_url}");
        let folder = if entry.mode == GitFileMode::Directory { "tree" } else { "blob" };
        let is_directory = matches!(entry.mode, GitFileMode::Directory | GitFileMode::Submodule);
        let git_url = match entry.mode {
            GitFileMode::Submodule => Value::Null,
            _ => json!(format!("{url}/git/{folder}s/{}", entry.id)),
        };
        let html_url = json!(format!("{page}/{folder}/{at_in_url}/{name_in_url}"));
        json!({
            "name": path.rsplit('/').next().unwrap_or(path),
            "path": path,
            "sha": entry.id,
            "size": if is_directory { 0 } else { objects.blob(entry.id).map_or(0, <[u8]>::len) },
            "url": own,
            "html_url": html_url,
            "git_url": git_url,
            "download_url": if is_directory { Value::Null } else { json!(format!("{page}/raw/{at_in_url}/{name_in_url}")) },
            "type": kind,
            "_links": {"self": own, "git": git_url, "html": html_url},
        })
    }

    /// Renders a file with its content; links have a target and submodules a URL instead.
    pub(crate) fn render_file_with_content(
        &self,
        repository: &Repository,
        path: &str,
        entry: &TreeEntry,
        at: &str,
    ) -> Value {
        let mut object = self.render_content_entry(repository, path, entry, at);
        let bytes = self.state.objects(repository).blob(entry.id).unwrap_or_default();
        match entry.mode {
            GitFileMode::Link => object["target"] = json!(String::from_utf8_lossy(bytes)),
            GitFileMode::Submodule => {
                object["submodule_git_url"] = json!(format!("{}.git", self.repository_page(repository)));
            }
            GitFileMode::Directory | GitFileMode::File | GitFileMode::Executable => {
                let inline = bytes.len() <= MAX_INLINE_BYTES;
                object["content"] = json!(if inline { encode_base64_lines(bytes) } else { String::new() });
                object["encoding"] = json!(if inline { "base64" } else { "none" });
            }
        }
        object
    }
}
