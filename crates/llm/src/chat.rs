//! A conversation with a model that may call tools, independent of the provider.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::request::{CompletionUsage, FinishReason};

/// One request of a conversation: its messages so far, the tools on offer and the limits of the reply.
#[derive(Clone, Debug)]
pub struct ChatRequest<'c> {
    /// The constant part. It is sent first, so that the provider's prompt cache can reuse it.
    pub system: &'c str,
    pub messages: &'c [PromptMessage],
    /// Tools of the provider's tool calling. Empty when tools are described in the prompt instead (ReAct).
    pub tools: &'c [ChatToolDefinition],
    /// Stop sequences: the model stops before it would write one of them.
    pub stop: &'c [&'c str],
    /// Maximum tokens of the reply; the prompt does not count.
    pub max_tokens: u32,
    /// `None` uses the endpoint's default.
    pub temperature: Option<f64>,
}

/// A message of the conversation. The serialised form is part of saved agent sessions, so its names must stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum PromptMessage {
    User {
        text: String,
    },
    Assistant {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ChatToolCall>,
    },
    /// The result of the tool call with the id `call_id`.
    Tool {
        call_id: String,
        name: String,
        text: String,
        #[serde(default)]
        is_error: bool,
    },
}

/// A tool that the model may call. Its texts are shared, because every request of a conversation repeats them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatToolDefinition {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// JSON Schema of an object.
    pub parameters: Arc<Value>,
}

/// A tool call that the model requested. The tool may not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatToolCall {
    /// Set by the endpoint; empty if it sets none. The result must repeat it.
    pub id: String,
    pub name: String,
    /// As the model wrote them: usually a JSON object, but nothing guarantees that.
    pub arguments: String,
}

/// The reply to one request of a conversation: text, tool calls, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatReply {
    pub text: String,
    pub calls: Vec<ChatToolCall>,
    /// `None` if the endpoint does not report its usage.
    pub usage: Option<CompletionUsage>,
    pub stop: FinishReason,
}

/// A conversation with every kind of message, for the tests of each wire form.
#[cfg(test)]
pub(crate) fn conversation_for_tests() -> (Vec<PromptMessage>, Vec<ChatToolDefinition>) {
    let call = |id: &str, arguments: &str| ChatToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments: arguments.to_owned(),
    };
    let result = |call_id: &str, text: &str, is_error| PromptMessage::Tool {
        call_id: call_id.to_owned(),
        name: "read".to_owned(),
        text: text.to_owned(),
        is_error,
    };
    let user = |text: &str| PromptMessage::User { text: text.to_owned() };
    let messages = vec![
        user("do"),
        PromptMessage::Assistant { text: String::new(), calls: vec![call("a", "{\"p\":1}"), call("b", "{oops")] },
        result("a", "one", false),
        result("b", "bad", true),
        user("and now?"),
        PromptMessage::Assistant { text: "done".to_owned(), calls: Vec::new() },
        user("thanks"),
    ];
    let parameters = Arc::new(serde_json::json!({"type": "object"}));
    (messages, vec![ChatToolDefinition { name: "read".into(), description: "Reads.".into(), parameters }])
}
