//! The message schema of the GenAI conventions, `[{"role", "parts": [{"type", ...}]}]`, parsed without building a tree.
//! Agents repeat the whole conversation on every call, and most of its text can be borrowed. Any other shape is left to
//! `message`.

use std::borrow::Cow;

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::bounded_json::{self, MAX_JSON_NODES};
use crate::message::{
    ArgumentsText, ChatMessage, MessagePart, MessageRole, ToolCall, ToolResult, is_printed_response, result_text,
};

/// Maximum number of parts in all messages of one list. A short part takes ten times the memory of its text. A longer
/// list, which no agent sends, is left to the general reader and its budget.
const MAX_PARTS: usize = MAX_JSON_NODES;

/// A list of messages with at most [`MAX_PARTS`] parts.
struct MessageList<'a>(Vec<ChatMessage<'a>>);

/// One message of the schema. A message with other required fields is left to the general reader.
#[derive(Deserialize)]
struct MessageJson<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    parts: PartList<'a>,
    /// LiteLLM leaves these next to the parts. Such a list is left to the general reader.
    #[serde(default)]
    tool_calls: Option<IgnoredAny>,
    #[serde(default)]
    tool_call_id: Option<IgnoredAny>,
}

/// The parts of one message, without empty ones.
struct PartList<'a>(Vec<MessagePart<'a>>);

/// A part of any type. Fields of all known types in one structure, because serde cannot borrow inside of tagged enums.
#[derive(Deserialize)]
struct PartJson<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "result")]
    response: Option<&'a RawValue>,
}

/// serde borrows a text inside an `Option` only with this wrapper.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

/// Parses a list of messages; `None` if anything in it has another shape.
pub(super) fn parse_message_list(text: &str) -> Option<Vec<ChatMessage<'_>>> {
    serde_json::from_str(text).ok().map(|MessageList(messages)| messages)
}

impl<'de: 'a, 'a> Deserialize<'de> for MessageList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(MessageListVisitor).map(MessageList)
    }
}

struct MessageListVisitor;

impl<'de> Visitor<'de> for MessageListVisitor {
    type Value = Vec<ChatMessage<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut messages = Vec::new();
        let mut parts_left = MAX_PARTS;
        while let Some(message) = list.next_element()? {
            let MessageJson { role, parts: PartList(parts), tool_calls, tool_call_id } = message;
            if tool_calls.is_some() || tool_call_id.is_some() {
                return Err(A::Error::custom("calls beside the parts"));
            }
            // An empty message takes memory as well.
            let left = parts_left.checked_sub(parts.len().max(1));
            parts_left = left.ok_or_else(|| A::Error::custom("too many parts"))?;
            messages.push(ChatMessage { role: MessageRole::parse(&role), parts });
        }
        Ok(messages)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PartList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(PartListVisitor).map(PartList)
    }
}

struct PartListVisitor;

impl<'de> Visitor<'de> for PartListVisitor {
    type Value = Vec<MessagePart<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of parts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(json) = list.next_element::<PartJson<'de>>()? {
            if parts.len() == MAX_PARTS {
                return Err(A::Error::custom("too many parts"));
            }
            parts.extend(parse_message_part(json).ok_or_else(|| A::Error::custom("an unknown part"))?);
        }
        Ok(parts)
    }
}

/// The outer `None` means an unknown shape, the inner one an empty part.
fn parse_message_part(json: PartJson<'_>) -> Option<Option<MessagePart<'_>>> {
    let content = json.content.map(|text| text.0).filter(|text| !text.is_empty());
    match json.kind.as_ref() {
        // Left to the general reader, which parses it.
        "text" if content.as_deref().is_some_and(is_printed_response) => None,
        "text" => Some(content.map(MessagePart::Text)),
        "reasoning" | "thinking" => Some(content.map(MessagePart::Reasoning)),
        "tool_call" => {
            let arguments = json.arguments.filter(|raw| raw.get() != "null").and_then(parse_raw_arguments);
            Some(Some(MessagePart::ToolCall(ToolCall { id: json.id, name: json.name?, arguments })))
        }
        "tool_call_response" => {
            let content = json.response.map(parse_raw_result).unwrap_or_default();
            Some(Some(MessagePart::ToolResult(ToolResult { id: json.id, name: json.name, content, is_error: false })))
        }
        _ => None,
    }
}

/// Arguments as text if the model's text was recorded, otherwise as JSON.
fn parse_raw_arguments(raw: &RawValue) -> Option<ArgumentsText<'_>> {
    match raw.get().starts_with('"') {
        true => serde_json::from_str::<BorrowedText<'_>>(raw.get()).ok().map(|text| ArgumentsText::Text(text.0)),
        // Kept as text: most messages repeat an earlier request, and their arguments are not read again.
        false => Some(ArgumentsText::Json(Cow::Borrowed(raw.get()))),
    }
}

/// The text of a result. Anything but a text is rendered as other results are.
fn parse_raw_result(raw: &RawValue) -> Cow<'_, str> {
    match raw.get().starts_with('"') {
        true => serde_json::from_str::<BorrowedText<'_>>(raw.get()).map(|text| text.0).unwrap_or_default(),
        false => {
            Cow::Owned(bounded_json::parse_bounded_json(raw.get()).map_or_else(|| raw.get().to_owned(), result_text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::messages_from_json;

    #[test]
    fn it_reads_what_the_general_reader_reads() {
        let text = r#"[{"role": "user", "parts": [{"type": "text", "content": "How\n many?"}]},
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a":1}},
              {"type": "tool_call", "id": "d", "name": "g", "arguments": "{\"a\": 1}"}], "finish_reason": "tool_calls"},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": {"result": "12"}}, {"type": "tool_call_response", "id": "d", "result": "x"}]}]"#;
        assert_eq!(parse_message_list(text).unwrap(), messages_from_json(serde_json::from_str(text).unwrap()));
    }

    #[test]
    fn a_list_of_too_many_parts_is_left_to_the_general_reader() {
        let parts = |count: usize| vec![r#"{"type":"text","content":"x"}"#; count].join(",");
        let message = |count: usize| format!(r#"{{"role":"user","parts":[{}]}}"#, parts(count));
        assert_eq!(parse_message_list(&format!("[{}]", message(1_000))).unwrap()[0].parts.len(), 1_000);
        assert!(parse_message_list(&format!("[{}]", message(MAX_PARTS + 1))).is_none());
        let half = message(MAX_PARTS / 2);
        assert!(parse_message_list(&format!("[{half},{half}]")).is_some());
        assert!(parse_message_list(&format!("[{half},{half},{half}]")).is_none());
        let empty = vec![r#"{"role":"user","parts":[]}"#; MAX_PARTS + 1].join(",");
        assert!(parse_message_list(&format!("[{empty}]")).is_none());
    }

    #[test]
    fn other_shapes_are_left_to_the_general_reader() {
        for text in [
            "",
            "{}",
            r#"[{"role": "user", "content": "x"}]"#,
            r#"[{"role": "user", "parts": [{"type": "blob"}]}]"#,
            r#"[{"role": "assistant", "parts": [], "tool_calls": []}]"#,
            r#"[{"role": "tool", "parts": [], "tool_call_id": "c"}]"#,
        ] {
            assert!(parse_message_list(text).is_none(), "{text}");
        }
    }
}
