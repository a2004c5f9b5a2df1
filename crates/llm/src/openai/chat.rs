//! Conversations with tools in OpenAI's Chat Completions API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EndpointQuirks, OpenAiUsage, map_finish_reason, parse_openai_json};
use crate::chat::{ChatReply, ChatRequest, ChatToolCall, ChatToolDefinition, PromptMessage};
use crate::error::ReplyDecodeError;
use crate::request::CompletionUsage;

#[derive(Serialize)]
struct OpenAiChatRequest<'b> {
    model: &'b str,
    messages: Vec<OpenAiChatMessage<'b>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OpenAiChatTool<'b>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop: &'b [&'b str],
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
}

#[derive(Serialize)]
struct OpenAiChatMessage<'b> {
    role: &'static str,
    /// `None` becomes null, next to tool calls: some endpoints refuse an empty text.
    content: Option<&'b str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<SentToolCall<'b>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'b str>,
}

#[derive(Serialize)]
struct SentToolCall<'b> {
    id: &'b str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: SentFunction<'b>,
}

#[derive(Serialize)]
struct SentFunction<'b> {
    name: &'b str,
    arguments: &'b str,
}

#[derive(Serialize)]
struct OpenAiChatTool<'b> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: &'b ChatToolDefinition,
}

/// Encodes the body of one turn of a conversation, without the features that the endpoint does not support.
pub(crate) fn encode_openai_chat(model: &str, chat: &ChatRequest<'_>, quirks: EndpointQuirks) -> Vec<u8> {
    let limit = Some(chat.max_tokens);
    let plain =
        |role, content| OpenAiChatMessage { role, content: Some(content), tool_calls: Vec::new(), tool_call_id: None };
    let mut messages = Vec::with_capacity(chat.messages.len() + 1);
    messages.push(plain("system", chat.system));
    messages.extend(chat.messages.iter().map(|message| match message {
        PromptMessage::User { text } => plain("user", text),
        PromptMessage::Assistant { text, calls } => OpenAiChatMessage {
            role: "assistant",
            content: Some(text.as_str()).filter(|text| calls.is_empty() || !text.is_empty()),
            tool_calls: calls.iter().map(encode_tool_call).collect(),
            tool_call_id: None,
        },
        PromptMessage::Tool { call_id, text, .. } => {
            OpenAiChatMessage { tool_call_id: Some(call_id), ..plain("tool", text) }
        }
    }));
    let body = OpenAiChatRequest {
        model,
        messages,
        tools: chat.tools.iter().map(|function| OpenAiChatTool { kind: "function", function }).collect(),
        stop: if quirks.no_stop { &[] } else { chat.stop },
        temperature: chat.temperature.filter(|_| !quirks.no_temperature),
        max_tokens: limit.filter(|_| !quirks.completion_tokens),
        max_completion_tokens: limit.filter(|_| quirks.completion_tokens),
    };
    let mut bytes = Vec::with_capacity(8 << 10);
    // Writing texts and numbers into memory cannot fail.
    let _ = serde_json::to_writer(&mut bytes, &body);
    bytes
}

/// Encodes a received tool call. Empty arguments become `{}`, because endpoints parse the history, too.
fn encode_tool_call(call: &ChatToolCall) -> SentToolCall<'_> {
    let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
    SentToolCall { id: &call.id, kind: "function", function: SentFunction { name: &call.name, arguments } }
}

#[derive(Deserialize)]
struct OpenAiChatCompletion {
    choices: Vec<OpenAiChatChoice>,
    usage: Option<OpenAiUsage>,
}

#[derive(Deserialize)]
struct OpenAiChatChoice {
    message: OpenAiChatReply,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiChatReply {
    /// A text, or a list of parts.
    content: Option<Value>,
    refusal: Option<String>,
    tool_calls: Option<Vec<ReceivedToolCall>>,
}

#[derive(Deserialize)]
struct ReceivedToolCall {
    id: Option<String>,
    function: ReceivedFunction,
}

#[derive(Deserialize)]
struct ReceivedFunction {
    #[serde(default)]
    name: String,
    /// JSON as a text, as OpenAI sends it. Some endpoints send the JSON value itself.
    #[serde(default)]
    arguments: Value,
}

/// Reads the first choice. Call ids may be empty: not every endpoint sends them.
pub(crate) fn decode_openai_chat(bytes: &[u8]) -> Result<ChatReply, ReplyDecodeError> {
    let completion: OpenAiChatCompletion = parse_openai_json(bytes)?;
    let choice = completion.choices.into_iter().next().ok_or(ReplyDecodeError::NoChoices)?;
    let message = choice.message;
    let refused = message.refusal.as_ref().is_some_and(|text| !text.is_empty());
    let calls = message.tool_calls.unwrap_or_default().into_iter().map(|call| ChatToolCall {
        id: call.id.unwrap_or_default(),
        name: call.function.name,
        arguments: match call.function.arguments {
            Value::String(text) => text,
            Value::Null => String::new(),
            json => json.to_string(),
        },
    });
    let text = message.content.as_ref().map(join_text_parts).unwrap_or_default();
    Ok(ChatReply {
        text: if refused { message.refusal.unwrap_or_default() } else { text.into_owned() },
        calls: calls.collect(),
        usage: completion.usage.map(CompletionUsage::from),
        stop: map_finish_reason(refused, choice.finish_reason.as_deref()),
    })
}

/// Returns the text of a message, joined if it is a list of parts.
fn join_text_parts(content: &Value) -> Cow<'_, str> {
    match content {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            Cow::Owned(texts.collect::<Vec<_>>().concat())
        }
        _ => Cow::Borrowed(""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::RequestedFeatures;
    use super::*;
    use crate::chat::conversation_for_tests;
    use crate::request::FinishReason;

    fn sent(quirks: EndpointQuirks) -> Value {
        let (messages, tools) = conversation_for_tests();
        let chat = ChatRequest {
            system: "s",
            messages: &messages,
            tools: &tools,
            stop: &["\nObservation:"],
            max_tokens: 9,
            temperature: Some(0.0),
        };
        serde_json::from_slice(&encode_openai_chat("m", &chat, quirks)).expect("JSON")
    }

    #[test]
    fn writes_calls_and_their_results() {
        let body = sent(EndpointQuirks::default());
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}});
        assert_eq!(
            body["messages"],
            json!([
                {"role": "system", "content": "s"},
                {"role": "user", "content": "do"},
                {"role": "assistant", "content": null, "tool_calls": [call("a", "{\"p\":1}"), call("b", "{oops")]},
                {"role": "tool", "tool_call_id": "a", "content": "one"},
                {"role": "tool", "tool_call_id": "b", "content": "bad"},
                {"role": "user", "content": "and now?"},
                {"role": "assistant", "content": "done"},
                {"role": "user", "content": "thanks"},
            ])
        );
        assert_eq!(
            body["tools"],
            json!([{"type": "function", "function":
                {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}])
        );
        assert_eq!((&body["stop"], &body["max_tokens"]), (&json!(["\nObservation:"]), &json!(9)));
    }

    #[test]
    fn learns_that_stop_sequences_are_not_taken() {
        let known = EndpointQuirks::default();
        let features = RequestedFeatures { stop: true, ..RequestedFeatures::default() };
        let learned = known
            .learn_from_refusal(features, "Unsupported parameter: 'stop' is not supported with this model.")
            .expect("something to learn");
        assert!(sent(learned).get("stop").is_none());
        assert_eq!(learned.learn_from_refusal(features, "Unsupported parameter: 'stop'"), None);
        assert_eq!(known.learn_from_refusal(RequestedFeatures::default(), "Unsupported parameter: 'stop'"), None);
        assert_eq!(known.learn_from_refusal(features, "please stop sending nonsense"), None);
    }

    #[test]
    fn reads_calls_as_endpoints_write_them() {
        let reply = decode_openai_chat(
            br#"{"choices":[{"message":{"content":null,"tool_calls":[
            {"id":"x","type":"function","function":{"name":"a","arguments":"{\"p\":1}"}},
            {"function":{"name":"b","arguments":{"p":2}}},{"id":"y","function":{"name":"c"}}]},"finish_reason":"tool_calls"}],
            "usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
        )
        .expect("a reply");
        let calls: Vec<_> =
            reply.calls.iter().map(|c| (c.id.as_str(), c.name.as_str(), c.arguments.as_str())).collect();
        assert_eq!(calls, [("x", "a", "{\"p\":1}"), ("", "b", "{\"p\":2}"), ("y", "c", "")]);
        assert_eq!((reply.text.as_str(), reply.stop), ("", FinishReason::Done));
        let parts = decode_openai_chat(
            br#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}"#,
        );
        assert_eq!(parts.expect("a reply").text, "ab");
        let refused =
            decode_openai_chat(br#"{"choices":[{"message":{"content":null,"refusal":"no"}}]}"#).expect("a reply");
        assert_eq!((refused.text.as_str(), refused.stop), ("no", FinishReason::Refused));
        let reported = decode_openai_chat(br#"{"error":{"message":"overloaded"}}"#).expect_err("an error");
        assert_eq!(reported.to_string(), "it reports an error (overloaded)");
    }
}
