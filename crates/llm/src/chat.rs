//! A conversation with a model that may call tools, in no provider's terms.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::request::{CompletionUsage, FinishReason};

/// What is asked: the conversation so far, and what the model may do.
#[derive(Clone, Debug)]
pub struct ChatRequest<'c> {
    /// The constant part; comes first, so that a provider's prompt cache can keep it.
    pub system: &'c str,
    pub messages: &'c [PromptMessage],
    /// Empty: the model is offered no tools natively.
    pub tools: &'c [ChatToolDefinition],
    /// The model stops before it writes one of these.
    pub stop: &'c [&'c str],
    pub max_tokens: u32,
    pub temperature: Option<f64>,
}

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
    /// What a call came to.
    Tool {
        call_id: String,
        name: String,
        text: String,
        #[serde(default)]
        is_error: bool,
    },
}

/// A tool on offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatToolDefinition {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// JSON Schema of an object.
    pub parameters: Arc<Value>,
}

/// A call that the model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatToolCall {
    pub id: String,
    pub name: String,
    /// As the model wrote them: JSON, one hopes.
    pub arguments: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChatReply {
    pub text: String,
    pub calls: Vec<ChatToolCall>,
    pub usage: Option<CompletionUsage>,
    pub stop: FinishReason,
}

/// All that can be in a conversation; each wire form writes it in its own way.
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
