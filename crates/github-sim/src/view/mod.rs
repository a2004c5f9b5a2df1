//! How things look in GitHub's JSON. Views read the state and never change it.

mod account;
mod commit;
pub(super) mod content;
mod issue;
pub(super) mod publication;
mod pull;
pub(super) mod repository;

pub(super) use commit::CommitParts;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::access::AuthenticatedActor;
use super::http::AcceptedMediaType;
use super::state::WorldState;

#[derive(Clone, Copy, Debug)]
pub(super) struct ApiView<'s> {
    pub(super) state: &'s WorldState,
    /// What API addresses begin with.
    pub(super) base: &'s str,
    pub(super) actor: Option<&'s AuthenticatedActor>,
    pub(super) media: AcceptedMediaType,
}

impl ApiView<'_> {
    /// What addresses of pages begin with.
    pub(super) fn site_url(&self) -> &str {
        self.base.strip_suffix("/api/v3").unwrap_or(self.base)
    }

    /// A text that people wrote, in the forms that the client asked for.
    pub(super) fn put_body(&self, object: &mut Value, body: Option<&str>) {
        if !matches!(self.media, AcceptedMediaType::Text | AcceptedMediaType::Html) {
            object["body"] = json!(body);
        }
        if matches!(self.media, AcceptedMediaType::Text | AcceptedMediaType::Full) {
            object["body_text"] = json!(body.unwrap_or_default());
        }
        if matches!(self.media, AcceptedMediaType::Html | AcceptedMediaType::Full) {
            object["body_html"] = json!(render_paragraphs(body.unwrap_or_default()));
        }
    }
}

/// Texts as paragraphs; no Markdown is rendered.
fn render_paragraphs(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let blocks = escaped.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.map(|block| format!("<p>{}</p>", block.trim().replace('\n', "<br>\n"))).collect::<Vec<_>>().join("\n")
}

pub(super) fn node_id(kind: &str, id: impl std::fmt::Display) -> String {
    STANDARD.encode(format!("{:03}:{kind}{id}", kind.len()))
}

/// What must be escaped in a path whose slashes stay.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'\\')
    .add(b'^')
    .add(b'|')
    .add(b'[')
    .add(b']');

pub(super) fn escape_path(path: &str) -> String {
    utf8_percent_encode(path, IN_PATH).to_string()
}

/// The same for a single segment.
pub(super) fn escape_segment(text: &str) -> String {
    const IN_SEGMENT: &AsciiSet = &IN_PATH.add(b'/');
    utf8_percent_encode(text, IN_SEGMENT).to_string()
}

/// Puts more keys into an object.
pub(super) fn extend_json_object(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// Keys whose values are addresses below the same one.
pub(super) fn put_urls(object: &mut Map<String, Value>, above: &str, urls: &[(&str, &str)]) {
    for (key, path) in urls {
        object.insert((*key).to_owned(), Value::String(format!("{above}{path}")));
    }
}
