//! Conversations with tools in Anthropic's Messages API. The roles must alternate, so tool results are part of the
//! user's turn.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AnthropicUsage, CACHED_PREFIX, CacheControl, SystemBlock, map_stop_reason};
use crate::chat::{ChatReply, ChatRequest, ChatToolCall, PromptMessage};
use crate::error::ReplyDecodeError;
use crate::request::CompletionUsage;

#[derive(Serialize)]
struct AnthropicChatRequest<'b> {
    model: &'b str,
    max_tokens: u32,
    system: [SystemBlock<'b>; 1],
    messages: Vec<AnthropicChatMessage<'b>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicChatTool<'b>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'b [&'b str],
}

#[derive(Serialize)]
struct AnthropicChatMessage<'b> {
    role: &'static str,
    content: Vec<CacheableBlock<'b>>,
}

/// A content block that can carry the mark of the prompt cache.
#[derive(Serialize)]
struct CacheableBlock<'b> {
    #[serde(flatten)]
    block: AnthropicPromptBlock<'b>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicPromptBlock<'b> {
    Text {
        text: &'b str,
    },
    ToolUse {
        id: &'b str,
        name: &'b str,
        input: Value,
    },
    ToolResult {
        tool_use_id: &'b str,
        content: &'b str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
struct AnthropicChatTool<'b> {
    name: &'b str,
    description: &'b str,
    input_schema: &'b Value,
}

/// Encodes the body of one turn of a conversation. No temperature is sent: newer models refuse it.
pub(crate) fn encode_anthropic_chat(model: &str, chat: &ChatRequest<'_>) -> Vec<u8> {
    let tools = chat.tools.iter().map(|tool| AnthropicChatTool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.parameters,
    });
    let body = AnthropicChatRequest {
        model,
        max_tokens: chat.max_tokens,
        system: [SystemBlock { kind: "text", text: chat.system, cache_control: CACHED_PREFIX }],
        messages: group_message_turns(chat.messages),
        tools: tools.collect(),
        stop_sequences: chat.stop,
    };
    let mut bytes = Vec::with_capacity(8 << 10);
    // Writing texts and numbers into memory cannot fail.
    let _ = serde_json::to_writer(&mut bytes, &body);
    bytes
}

/// Groups messages into turns of alternating roles, as the API demands.
fn group_message_turns(messages: &[PromptMessage]) -> Vec<AnthropicChatMessage<'_>> {
    let mut turns: Vec<AnthropicChatMessage<'_>> = Vec::new();
    for message in messages {
        let role = if matches!(message, PromptMessage::Assistant { .. }) { "assistant" } else { "user" };
        if turns.last().is_none_or(|turn| turn.role != role) {
            turns.push(AnthropicChatMessage { role, content: Vec::new() });
        }
        if let Some(turn) = turns.last_mut() {
            turn.content.extend(
                build_prompt_blocks(message).into_iter().map(|block| CacheableBlock { block, cache_control: None }),
            );
        }
    }
    for turn in &mut turns {
        // The API refuses turns without content and blocks without text.
        if turn.content.is_empty() {
            turn.content
                .push(CacheableBlock { block: AnthropicPromptBlock::Text { text: "(nothing)" }, cache_control: None });
        }
    }
    // The next request repeats the whole conversation, so it is cached up to its end.
    if let Some(last) = turns.last_mut().and_then(|turn| turn.content.last_mut()) {
        last.cache_control = Some(CACHED_PREFIX);
    }
    turns
}

fn build_prompt_blocks(message: &PromptMessage) -> Vec<AnthropicPromptBlock<'_>> {
    match message {
        PromptMessage::User { text } => build_text_block(text).into_iter().collect(),
        PromptMessage::Assistant { text, calls } => {
            let calls = calls.iter().map(|call| AnthropicPromptBlock::ToolUse {
                id: &call.id,
                name: &call.name,
                input: parse_tool_input(&call.arguments),
            });
            build_text_block(text).into_iter().chain(calls).collect()
        }
        PromptMessage::Tool { call_id, text, is_error, .. } => {
            vec![AnthropicPromptBlock::ToolResult { tool_use_id: call_id, content: text, is_error: *is_error }]
        }
    }
}

/// Returns `None` for blank text, which the API refuses. It also refuses trailing white space in the assistant's
/// text.
fn build_text_block(text: &str) -> Option<AnthropicPromptBlock<'_>> {
    let text = text.trim_end();
    (!text.is_empty()).then_some(AnthropicPromptBlock::Text { text })
}

/// Returns the arguments as an object, since the API takes nothing else. Other arguments are wrapped in an object
/// under `unreadable`, as the model wrote them.
fn parse_tool_input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ if arguments.trim().is_empty() => Value::Object(Map::new()),
        _ => serde_json::json!({ "unreadable": arguments }),
    }
}

#[derive(Deserialize)]
struct AnthropicChatReply {
    content: Vec<ChatReplyBlock>,
    stop_reason: Option<String>,
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ChatReplyBlock {
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Other,
}

/// Reads text and tool calls. Blocks of other types, such as thinking, are ignored.
pub(crate) fn decode_anthropic_chat(bytes: &[u8]) -> Result<ChatReply, ReplyDecodeError> {
    let message: AnthropicChatReply = serde_json::from_slice(bytes)?;
    let (mut text, mut calls) = (String::new(), Vec::new());
    for block in message.content {
        match block {
            ChatReplyBlock::Text { text: more } => text.push_str(&more),
            ChatReplyBlock::ToolUse { id, name, input } => {
                let arguments = if input.is_null() { String::new() } else { input.to_string() };
                calls.push(ChatToolCall { id, name, arguments });
            }
            ChatReplyBlock::Other => {}
        }
    }
    let usage = message.usage.map(CompletionUsage::from);
    Ok(ChatReply { text, calls, usage, stop: map_stop_reason(message.stop_reason.as_deref()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::conversation_for_tests;
    use crate::request::FinishReason;

    #[test]
    fn results_are_one_turn_of_the_user() {
        let (messages, tools) = conversation_for_tests();
        let stop = ["\nObservation:"];
        let chat = ChatRequest {
            system: "s",
            messages: &messages,
            tools: &tools,
            stop: &stop,
            max_tokens: 9,
            temperature: None,
        };
        let body: Value = serde_json::from_slice(&encode_anthropic_chat("m", &chat)).expect("JSON");
        assert_eq!(
            body["messages"],
            json!([
                {"role": "user", "content": [{"type": "text", "text": "do"}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "read", "input": {"p": 1}},
                    {"type": "tool_use", "id": "b", "name": "read", "input": {"unreadable": "{oops"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "bad", "is_error": true},
                    {"type": "text", "text": "and now?"},
                ]},
                {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
                {"role": "user", "content":
                    [{"type": "text", "text": "thanks", "cache_control": {"type": "ephemeral"}}]},
            ])
        );
        assert_eq!(
            body["tools"],
            json!([{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}])
        );
        assert_eq!(body["stop_sequences"], json!(["\nObservation:"]));
    }

    #[test]
    fn an_empty_turn_is_not_sent_empty() {
        let messages = [
            PromptMessage::User { text: "do".to_owned() },
            PromptMessage::Assistant { text: "  ".to_owned(), calls: Vec::new() },
            PromptMessage::User { text: "say something".to_owned() },
        ];
        let turns = serde_json::to_value(group_message_turns(&messages)).expect("JSON");
        assert_eq!(turns[1]["content"][0]["text"], "(nothing)");
    }

    #[test]
    fn reads_several_calls() {
        let reply = decode_anthropic_chat(
            br#"{"content":[{"type":"thinking","thinking":"..."},{"type":"text","text":"Both."},
            {"type":"tool_use","id":"a","name":"x","input":{"p":1}},{"type":"tool_use","id":"b","name":"y","input":{}}],
            "stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":2}}"#,
        )
        .expect("a reply");
        assert_eq!((reply.text.as_str(), reply.calls.len(), reply.stop), ("Both.", 2, FinishReason::Done));
        assert_eq!(reply.calls[0].arguments, "{\"p\":1}");
        let cut = decode_anthropic_chat(br#"{"content":[],"stop_reason":"max_tokens"}"#).expect("a reply");
        assert_eq!(cut.stop, FinishReason::Length);
        assert!(decode_anthropic_chat(br#"{"type":"error"}"#).is_err());
    }
}
