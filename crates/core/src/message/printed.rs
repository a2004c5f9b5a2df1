//! Messages of Haystack as Python prints them: `ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='…'),
//! ToolCall(tool_name='search', arguments={…}, id='call_1', …)], _name=None, _meta={…})`.
//!
//! Linear time and bounded depth: each part is read once, and only results of tools have parts of their own.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::literal;
use crate::quote_tracker::QuoteTracker;

use super::{ArgumentsText, ChatMessage, MessagePart, MessageRole, ToolCall, ToolResult, join_lines};

/// How every printed message begins.
pub(crate) const PRINTED_MESSAGE: &str = "ChatMessage(_role=<ChatRole.";

/// Reads a printed message. `None` for any other text, and for a message that is cut off inside of its content.
pub(super) fn parse_printed_message(text: &str) -> Option<ChatMessage<'static>> {
    let (_, rest) = text.strip_prefix(PRINTED_MESSAGE)?.split_once(": ")?;
    let (role, rest) = parse_text(rest)?;
    let (parts, _) = parse_parts(rest.strip_prefix(">, _content=")?, true)?;
    Some(ChatMessage { role: MessageRole::parse(&role), parts })
}

/// Reads a list of parts. Parts that are neither text nor call, such as images, are skipped.
fn parse_parts(text: &str, may_have_results: bool) -> Option<(Vec<MessagePart<'static>>, &str)> {
    let mut parts = Vec::new();
    let mut rest = text.strip_prefix('[')?;
    loop {
        if let Some(rest) = rest.strip_prefix(']') {
            return Some((parts, rest));
        }
        let (class, fields) = rest.split_once('(')?;
        let behind = match class {
            "TextContent" | "ReasoningContent" => {
                let is_text = class == "TextContent";
                let (text, behind) =
                    parse_text(fields.strip_prefix(if is_text { "text=" } else { "reasoning_text=" })?)?;
                if !text.trim().is_empty() {
                    let text = Cow::Owned(text);
                    parts.push(if is_text { MessagePart::Text(text) } else { MessagePart::Reasoning(text) });
                }
                behind
            }
            "ToolCall" => {
                let (call, behind) = parse_call(fields)?;
                parts.push(MessagePart::ToolCall(call));
                behind
            }
            "ToolCallResult" if may_have_results => {
                let (result, behind) = parse_result(fields)?;
                parts.push(MessagePart::ToolResult(result));
                behind
            }
            _ => fields,
        };
        rest = skip_to_close(behind)?;
        rest = rest.strip_prefix(", ").unwrap_or(rest);
    }
}

/// The fields of a call. What is behind the id is left.
fn parse_call(fields: &str) -> Option<(ToolCall<'static>, &str)> {
    let (name, rest) = parse_text(fields.strip_prefix("tool_name=")?)?;
    let (arguments, rest) = literal::parse_prefix(rest.strip_prefix(", arguments=")?)?;
    let (id, rest) = literal::parse_prefix(rest.strip_prefix(", id=")?)?;
    let id = id.as_str().map(|id| Cow::Owned(id.to_owned()));
    let arguments = Some(arguments).filter(|arguments| !arguments.is_null()).map(ArgumentsText::from);
    Some((ToolCall { id, name: Cow::Owned(name), arguments }, rest))
}

/// The fields of a result, which repeats its call.
fn parse_result(fields: &str) -> Option<(ToolResult<'static>, &str)> {
    let content = fields.strip_prefix("result=")?;
    let (content, rest) = if content.starts_with('[') {
        let (parts, rest) = parse_parts(content, false)?;
        let texts = parts.iter().filter_map(|part| match part {
            MessagePart::Text(text) => Some(text.as_ref()),
            _ => None,
        });
        (join_lines(texts).into_owned(), rest)
    } else {
        parse_text(content)?
    };
    let (origin, rest) = parse_call(rest.strip_prefix(", origin=ToolCall(")?)?;
    let rest = skip_to_close(rest)?;
    let is_error = rest.starts_with(", error=True");
    Some((ToolResult { id: origin.id, name: Some(origin.name), content: Cow::Owned(content), is_error }, rest))
}

/// A text in quotes, and what follows it.
fn parse_text(text: &str) -> Option<(String, &str)> {
    match literal::parse_prefix(text)? {
        (Json::String(text), rest) => Some((text, rest)),
        _ => None,
    }
}

/// What follows the bracket that closes the present one. Brackets in quotes do not count.
fn skip_to_close(text: &str) -> Option<&str> {
    let (mut depth, mut quotes) = (1usize, QuoteTracker::default());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if !quotes.next_is_code(byte) => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[at + 1..]);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(content: &str) -> String {
        format!("ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[{content}], _name=None, _meta={{}})")
    }

    #[test]
    fn parts_are_read_in_order() {
        let text = printed(
            "ReasoningContent(reasoning_text='hm', extra={}), ImageContent(base64_image=')\\')', meta={'a': [1]}), \
             TextContent(text=\"it's (so)\"), ToolCall(tool_name='f', arguments={'a': ')'}, id=None, extra={'b': '('}), \
             ToolCallResult(result=[TextContent(text='x'), TextContent(text='y')], origin=ToolCall(tool_name='f', \
             arguments={}, id='c'), error=True)",
        );
        let message = parse_printed_message(&text).unwrap();
        let call = ToolCall { id: None, name: "f".into(), arguments: Some(ArgumentsText::Json(r#"{"a":")"}"#.into())) };
        let result =
            ToolResult { id: Some("c".into()), name: Some("f".into()), content: "x\ny".into(), is_error: true };
        let parts = [
            MessagePart::Reasoning("hm".into()),
            MessagePart::Text("it's (so)".into()),
            MessagePart::ToolCall(call),
            MessagePart::ToolResult(result),
        ];
        assert_eq!((message.role, message.parts.as_slice()), (MessageRole::Assistant, parts.as_slice()));
    }

    #[test]
    fn damaged_messages_are_refused() {
        let text = printed("TextContent(text='a'), ToolCall(tool_name='f', arguments={'a': 1}, id='c', extra=None)");
        let content_ends = text.find("], _name").unwrap();
        for end in 0..=content_ends {
            assert_eq!(parse_printed_message(&text[..end]), None, "{end}");
        }
        let nested = "ToolCallResult(result=[".repeat(100_000);
        assert_eq!(parse_printed_message(&printed(&nested)), None);
        assert_eq!(parse_printed_message(&printed(&"ToolCall(".repeat(100_000))), None);
        assert_eq!(parse_printed_message("ChatMessage(_role=<ChatRole.é: 'é'>, _content=[é("), None);
    }
}
