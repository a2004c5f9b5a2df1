//! GenAI's own message schema, `[{"role", "parts": [{"type", ...}]}]`, read without building a tree: agents repeat the
//! whole conversation on every call, and most of it can be borrowed. Any other shape is left to `message`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bounded_json;
use crate::message::{Arguments, Message, Part, Role, ToolCall, ToolResult, result_text};

#[derive(Deserialize)]
struct MessageJson<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    parts: Vec<PartJson<'a>>,
}

#[derive(Deserialize)]
struct PartJson<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "result")]
    response: Option<&'a RawValue>,
}

/// serde borrows a text inside an `Option` only if it is told so.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a list of messages; `None` when anything in it has another shape.
pub(super) fn read(text: &str) -> Option<Vec<Message<'_>>> {
    let messages: Vec<MessageJson<'_>> = serde_json::from_str(text).ok()?;
    messages.into_iter().map(message).collect()
}

fn message(json: MessageJson<'_>) -> Option<Message<'_>> {
    let parts: Option<Vec<Option<Part<'_>>>> = json.parts.into_iter().map(part).collect();
    Some(Message { role: Role::parse(&json.role), parts: parts?.into_iter().flatten().collect() })
}

/// The outer `None` is an unknown shape, the inner one an empty part.
fn part(json: PartJson<'_>) -> Option<Option<Part<'_>>> {
    let content = json.content.map(|text| text.0).filter(|text| !text.is_empty());
    match json.kind.as_ref() {
        "text" => Some(content.map(Part::Text)),
        "reasoning" | "thinking" => Some(content.map(Part::Reasoning)),
        "tool_call" => {
            let arguments = json.arguments.filter(|raw| raw.get() != "null").and_then(arguments);
            Some(Some(Part::ToolCall(ToolCall { id: json.id, name: json.name?, arguments })))
        }
        "tool_call_response" => {
            let content = json.response.map(result).unwrap_or_default();
            Some(Some(Part::ToolResult(ToolResult {
                id: json.id,
                name: json.name,
                content,
                is_error: false,
            })))
        }
        _ => None,
    }
}

fn arguments(raw: &RawValue) -> Option<Arguments<'_>> {
    match raw.get().starts_with('"') {
        true => serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|text| Arguments::Text(text.0)),
        // Kept as text: most messages repeat an earlier request's, and nobody looks into their arguments again.
        false => Some(Arguments::Json(Cow::Borrowed(raw.get()))),
    }
}

fn result(raw: &RawValue) -> Cow<'_, str> {
    match raw.get().starts_with('"') {
        true => serde_json::from_str::<Text<'_>>(raw.get()).map(|text| text.0).unwrap_or_default(),
        false => Cow::Owned(bounded_json::parse(raw.get()).map_or_else(|| raw.get().to_owned(), result_text)),
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
        assert_eq!(read(text).unwrap(), messages_from_json(serde_json::from_str(text).unwrap()));
    }

    #[test]
    fn other_shapes_are_left_to_the_general_reader() {
        for text in [
            "",
            "{}",
            r#"[{"role": "user", "content": "x"}]"#,
            r#"[{"role": "user", "parts": [{"type": "blob"}]}]"#,
        ] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
