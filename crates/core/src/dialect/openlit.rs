//! OpenLIT before 1.40: the request is one text, `user: …\nassistant: …\ntool: …`, and the calls of a reply stand side by
//! side in `gen_ai.tool.name`, `gen_ai.tool.call.id` and `gen_ai.tool.args`. Where a message holds such a line break and
//! label itself, it is split there: the text does not say where messages end.

use std::borrow::Cow;

use crate::literal;
use crate::message::{ArgumentsText, ChatMessage, MessagePart, MessageRole, ToolCall, ToolResult, messages_from_json};
use crate::span::Span;

use super::NormalizedSpan;

/// Reads request and reply of a model call. Later versions record lists of messages, which are left to `genai`.
pub(super) fn read_openlit_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let text = |key: &str| span.attributes.get(key).and_then(|value| value.as_str());
    let Some(prompt) = text("gen_ai.prompt").filter(|prompt| label_at(prompt).is_some()) else { return };
    facts.add_input(split_prompt(prompt));
    let mut reply = ChatMessage::new(MessageRole::Assistant);
    reply
        .parts
        .extend(text("gen_ai.completion").filter(|text| !text.is_empty()).map(|text| MessagePart::Text(text.into())));
    if let Some(names) = text("gen_ai.tool.name") {
        let calls = read_calls(names, text("gen_ai.tool.call.id"), text("gen_ai.tool.args"));
        reply.parts.extend(calls.into_iter().map(MessagePart::ToolCall));
    }
    if !reply.is_empty() {
        facts.add_output(vec![reply]);
    }
}

const LABELS: [(&str, MessageRole); 5] = [
    ("system: ", MessageRole::System),
    ("developer: ", MessageRole::System),
    ("user: ", MessageRole::User),
    ("assistant: ", MessageRole::Assistant),
    ("tool: ", MessageRole::Tool),
];

/// The label that a line begins with.
fn label_at(line: &str) -> Option<(&'static str, MessageRole)> {
    LABELS.into_iter().find(|(label, _)| line.starts_with(label))
}

/// The messages of a prompt.
fn split_prompt(prompt: &str) -> Vec<ChatMessage<'_>> {
    let mut messages = Vec::new();
    let mut rest = prompt;
    while let Some((label, role)) = label_at(rest) {
        let inside = &rest[label.len()..];
        let line_breaks = inside.match_indices('\n').map(|(at, _)| at);
        let end = line_breaks.into_iter().find(|at| label_at(&inside[at + 1..]).is_some()).unwrap_or(inside.len());
        let text = inside[..end].trim();
        rest = inside.get(end + 1..).unwrap_or_default();
        // The items of a Responses request are printed as a list, with everything that was said before.
        let items = Some(text).filter(|text| text.starts_with("[{'")).and_then(literal::parse_lenient_json);
        match items {
            Some(items) => messages = messages_from_json(items),
            None if text.is_empty() => {}
            None if role == MessageRole::Tool => {
                let result = ToolResult { content: text.into(), ..ToolResult::default() };
                messages.push(ChatMessage { role, parts: vec![MessagePart::ToolResult(result)] });
            }
            None => messages.push(ChatMessage::from_text(role, text)),
        }
    }
    messages
}

/// The calls of a reply. Their arguments are JSON, or dictionaries as Python prints them.
fn read_calls<'s>(names: &'s str, ids: Option<&'s str>, arguments: Option<&str>) -> Vec<ToolCall<'s>> {
    let mut ids = ids.into_iter().flat_map(|ids| ids.split(", "));
    let mut rest = arguments.unwrap_or_default();
    let names = names.split(", ").filter(|name| !name.is_empty());
    names
        .map(|name| {
            let read = literal::parse_prefix(rest);
            rest = read.as_ref().map_or("", |(_, behind)| behind.trim_start_matches([',', ' ']));
            let arguments = read.map(|(json, _)| ArgumentsText::from(json));
            ToolCall { id: ids.next().map(Cow::Borrowed), name: Cow::Borrowed(name), arguments }
        })
        .collect()
}
