//! JSON texts of the GenAI convention, parsed as strictly as Phoenix does: one malformed message invalidates its whole
//! list. Parts for which OpenInference has no attribute are skipped.

use serde_json::{Map, Value as Json};

use gradus_core::bounded_json;

use super::python::{NonAsciiEscaping, dump_python_json, is_python_truthy};
use crate::span_view::synthesized::{SynthesizedAttributes, insert_attribute};

/// A message with its parts.
pub(super) struct GenAiMessage {
    role: String,
    name: Option<String>,
    /// Only replies have one, and they must.
    finish_reason: Option<String>,
    parts: Vec<GenAiPart>,
}

/// A part of a message, by its `type`.
enum GenAiPart {
    Text(String),
    Reasoning(String),
    /// The URI of a medium, or its content as a data URL. Empty if the content is not base64.
    Medium(String),
    /// A tool call; arguments are usually an object, but any JSON is accepted.
    Call {
        id: Option<String>,
        name: String,
        arguments: Json,
    },
    /// The result of a tool call.
    Result {
        id: Option<String>,
        response: Json,
    },
    /// A part of unknown type, or one that lacks required fields.
    Other,
}

/// The messages of a list; none if one is malformed. Replies must have a finish reason.
pub(super) fn parse_messages(text: &str, are_replies: bool) -> Option<Vec<GenAiMessage>> {
    let Some(Json::Array(items)) = bounded_json::parse_bounded_json(text) else { return None };
    items.into_iter().map(|item| parse_message(item, are_replies)).collect()
}

/// The system prompt as a message; none if it has no parts.
pub(super) fn parse_system_message(text: &str) -> Option<GenAiMessage> {
    let Some(Json::Array(items)) = bounded_json::parse_bounded_json(text) else { return None };
    let parts = items.into_iter().map(parse_genai_part).collect::<Option<Vec<GenAiPart>>>()?;
    let message = GenAiMessage { role: "system".to_owned(), name: None, finish_reason: None, parts };
    (!message.parts.is_empty()).then_some(message)
}

/// Tool schemas in the form of the chat completion API.
pub(super) fn parse_tool_schemas(text: &str) -> Option<Vec<Json>> {
    let Some(Json::Array(items)) = bounded_json::parse_bounded_json(text) else { return None };
    items.into_iter().map(parse_tool_schema).collect()
}

/// Retrieved documents, each as flat attributes.
pub(super) fn parse_documents(text: &str) -> Option<Vec<Map<String, Json>>> {
    let Some(Json::Array(items)) = bounded_json::parse_bounded_json(text) else { return None };
    items.into_iter().map(parse_document).collect()
}

impl GenAiMessage {
    /// Adds the message under the prefix `base` in OpenInference names.
    pub(super) fn write(self, base: &str, out: &mut SynthesizedAttributes) {
        insert_attribute(out, &format!("{base}.message.role"), self.role);
        if let Some(name) = self.name.filter(|name| !name.is_empty()) {
            insert_attribute(out, &format!("{base}.message.name"), name);
        }
        if let Some(reason) = self.finish_reason.filter(|reason| !reason.is_empty()) {
            insert_attribute(out, &format!("{base}.message.finish_reason"), reason);
        }
        let (mut contents, mut calls, mut result) = (Vec::new(), Vec::new(), None);
        for part in self.parts {
            match part {
                GenAiPart::Text(_) | GenAiPart::Reasoning(_) | GenAiPart::Medium(_) => contents.push(part),
                GenAiPart::Call { id, name, arguments } => calls.push((id, name, arguments)),
                GenAiPart::Result { id, response } => result = Some((id, response)),
                GenAiPart::Other => {}
            }
        }
        // A message with a tool result has nothing else in OpenInference.
        if let Some((id, response)) = result {
            if let Some(id) = id.filter(|id| !id.is_empty()) {
                insert_attribute(out, &format!("{base}.message.tool_call_id"), id);
            }
            if !response.is_null() {
                insert_attribute(out, &format!("{base}.message.content"), as_string(response));
            }
            return;
        }
        write_contents(contents, base, out);
        for (index, (id, name, arguments)) in calls.into_iter().enumerate() {
            let call = format!("{base}.message.tool_calls.{index}.tool_call");
            if let Some(id) = id.filter(|id| !id.is_empty()) {
                insert_attribute(out, &format!("{call}.id"), id);
            }
            if !name.is_empty() {
                insert_attribute(out, &format!("{call}.function.name"), name);
            }
            if !arguments.is_null() {
                insert_attribute(out, &format!("{call}.function.arguments"), as_string(arguments));
            }
        }
    }
}

/// A single text is `message.content`; anything else becomes a list of `message.contents`.
fn write_contents(mut contents: Vec<GenAiPart>, base: &str, out: &mut SynthesizedAttributes) {
    if let [GenAiPart::Text(_)] = contents[..] {
        if let Some(GenAiPart::Text(text)) = contents.pop() {
            insert_attribute(out, &format!("{base}.message.content"), text);
        }
        return;
    }
    for (index, part) in contents.into_iter().enumerate() {
        let content = format!("{base}.message.contents.{index}.message_content");
        let (kind, key, value) = match part {
            GenAiPart::Text(text) => ("text", "text", text),
            GenAiPart::Reasoning(text) => ("reasoning", "text", text),
            GenAiPart::Medium(url) => ("image", "image.image.url", url),
            GenAiPart::Call { .. } | GenAiPart::Result { .. } | GenAiPart::Other => continue,
        };
        insert_attribute(out, &format!("{content}.type"), kind);
        // A medium without an address still counts as one.
        if kind != "image" || !value.is_empty() {
            insert_attribute(out, &format!("{content}.{key}"), value);
        }
    }
}

/// None invalidates the list.
fn parse_message(item: Json, is_reply: bool) -> Option<GenAiMessage> {
    let Json::Object(mut item) = item else { return None };
    let Some(Json::String(role)) = item.remove("role") else { return None };
    let name = optional_text(item.remove("name"))?;
    let finish_reason = match item.remove("finish_reason") {
        Some(Json::String(reason)) if is_reply => Some(reason),
        _ if is_reply => return None,
        _ => None,
    };
    let Some(Json::Array(parts)) = item.remove("parts") else { return None };
    let parts = parts.into_iter().map(parse_genai_part).collect::<Option<Vec<GenAiPart>>>()?;
    Some(GenAiMessage { role, name, finish_reason, parts })
}

/// None only if it is no object with a type. A known type with wrong fields becomes [`GenAiPart::Other`].
fn parse_genai_part(item: Json) -> Option<GenAiPart> {
    let Json::Object(mut item) = item else { return None };
    let Some(Json::String(kind)) = item.remove("type") else { return None };
    Some(parse_known_part(&kind, item).unwrap_or(GenAiPart::Other))
}

/// The fields that the schema of each type requires; none if one is missing or has the wrong type.
fn parse_known_part(kind: &str, mut item: Map<String, Json>) -> Option<GenAiPart> {
    match kind {
        "text" => required_text(item.remove("content")).map(GenAiPart::Text),
        "reasoning" => required_text(item.remove("content")).map(GenAiPart::Reasoning),
        "tool_call" => {
            let (id, name) = (optional_text(item.remove("id"))?, required_text(item.remove("name"))?);
            Some(GenAiPart::Call { id, name, arguments: item.remove("arguments").unwrap_or(Json::Null) })
        }
        "tool_call_response" => {
            let id = optional_text(item.remove("id"))?;
            Some(GenAiPart::Result { id, response: item.remove("response")? })
        }
        // Fields that are not used are validated all the same, because Phoenix's schema does.
        "uri" => {
            let _ = (required_text(item.remove("modality"))?, optional_text(item.remove("mime_type"))?);
            required_text(item.remove("uri")).map(GenAiPart::Medium)
        }
        "blob" => {
            required_text(item.remove("modality"))?;
            let mime_type = optional_text(item.remove("mime_type"))?.filter(|text| !text.is_empty());
            let content = required_text(item.remove("content"))?;
            let mime_type = mime_type.as_deref().unwrap_or("application/octet-stream");
            // Content that is not base64 gives no address, but the part still counts as a medium.
            let url = content.is_ascii().then(|| format!("data:{mime_type};base64,{content}"));
            Some(GenAiPart::Medium(url.unwrap_or_default()))
        }
        _ => None,
    }
}

/// Type, name, description and parameters of one tool definition.
fn parse_tool_schema(item: Json) -> Option<Json> {
    let Json::Object(mut item) = item else { return None };
    let kind = match item.remove("type") {
        None => "function".to_owned(),
        Some(Json::String(kind)) => kind,
        Some(_) => return None,
    };
    let mut function = Map::new();
    insert_attribute(&mut function, "name", required_text(item.remove("name"))?);
    if let Some(description) = item.remove("description").filter(is_python_truthy) {
        insert_attribute(&mut function, "description", description);
    }
    if let Some(parameters) = item.remove("parameters").filter(|parameters| !parameters.is_null()) {
        insert_attribute(&mut function, "parameters", parameters);
    }
    let mut schema = Map::new();
    insert_attribute(&mut schema, "type", kind);
    insert_attribute(&mut schema, "function", function);
    Some(Json::Object(schema))
}

/// Id and score are required. Scores may be texts or booleans, since Phoenix's validator converts them.
fn parse_document(item: Json) -> Option<Map<String, Json>> {
    let Json::Object(mut item) = item else { return None };
    let mut out = Map::new();
    let id = required_text(item.remove("id"))?;
    let score = match item.remove("score")? {
        Json::Number(number) => number.as_f64()?,
        Json::Bool(value) => f64::from(u8::from(value)),
        Json::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    if !id.is_empty() {
        insert_attribute(&mut out, "document.id", id);
    }
    insert_attribute(&mut out, "document.score", score);
    if let Some(content) = item.remove("content").filter(|content| !content.is_null()) {
        insert_attribute(&mut out, "document.content", as_string(content));
    }
    match item.remove("metadata") {
        // This is one of the attributes that Phoenix reads as JSON.
        Some(Json::String(text)) => {
            let json = bounded_json::parse_bounded_json(&text).unwrap_or(Json::String(text));
            insert_attribute(&mut out, "document.metadata", json);
        }
        Some(other) if !other.is_null() => insert_attribute(&mut out, "document.metadata", other),
        _ => {}
    }
    Some(out)
}

fn required_text(value: Option<Json>) -> Option<String> {
    match value {
        Some(Json::String(text)) => Some(text),
        _ => None,
    }
}

/// The outer none is for a value that is neither a text nor null, which makes the object malformed.
fn optional_text(value: Option<Json>) -> Option<Option<String>> {
    match value {
        None | Some(Json::Null) => Some(None),
        Some(Json::String(text)) => Some(Some(text)),
        Some(_) => None,
    }
}

/// A text as it is, anything else as Python's JSON.
fn as_string(value: Json) -> String {
    match value {
        Json::String(text) => text,
        other => dump_python_json(&other, NonAsciiEscaping::AsNeeded),
    }
}
