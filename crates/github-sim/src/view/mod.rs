//! JSON representations of GitHub's API. Views read the state and never change it. Fields that are not simulated have
//! GitHub's neutral values, since typed clients require them.

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

/// A renderer for one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ApiView<'s> {
    pub(super) state: &'s WorldState,
    /// The base of API URLs.
    pub(super) base: &'s str,
    /// The caller, on whom `permissions` and private fields depend.
    pub(super) actor: Option<&'s AuthenticatedActor>,
    pub(super) media: AcceptedMediaType,
}

impl ApiView<'_> {
    /// Returns the base of URLs of web pages, which do not exist in the simulator.
    pub(super) fn site_url(&self) -> &str {
        self.base.strip_suffix("/api/v3").unwrap_or(self.base)
    }

    /// Adds a Markdown text in the forms that the media type asks for: `body`, `body_text`, `body_html`.
    pub(super) fn add_body_fields(&self, object: &mut Value, body: Option<&str>) {
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

/// Renders a text as escaped paragraphs. Markdown is not interpreted.
fn render_paragraphs(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let blocks = escaped.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.map(|block| format!("<p>{}</p>", block.trim().replace('\n', "<br>\n"))).collect::<Vec<_>>().join("\n")
}

/// Formats a legacy node id of GitHub: Base64 of `length:kind` and id. GraphQL is not simulated, so it is only an
/// opaque value.
pub(super) fn node_id(kind: &str, id: impl std::fmt::Display) -> String {
    STANDARD.encode(format!("{:03}:{kind}{id}", kind.len()))
}

/// Characters that are escaped in a path whose slashes stay.
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

/// Escapes a file path or branch name for a URL.
pub(super) fn escape_path(path: &str) -> String {
    utf8_percent_encode(path, IN_PATH).to_string()
}

/// Escapes a path segment, including slashes.
pub(super) fn escape_segment(text: &str) -> String {
    const IN_SEGMENT: &AsciiSet = &IN_PATH.add(b'/');
    utf8_percent_encode(text, IN_SEGMENT).to_string()
}

/// Adds fields to an object. Large objects are built in parts, because the `json!` macro has a recursion limit.
pub(super) fn extend_json_object(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// Adds fields whose values are URLs below `above`. Braces in them are RFC 6570 templates for the client.
pub(super) fn add_url_fields(object: &mut Map<String, Value>, above: &str, urls: &[(&str, &str)]) {
    for (key, path) in urls {
        object.insert((*key).to_owned(), Value::String(format!("{above}{path}")));
    }
}
