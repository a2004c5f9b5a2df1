//! Language model endpoints: what is asked, what comes back, how fast one may ask, and what it costs.
//!
//! The crate knows nothing of judging or of agents. Concurrency limits belong to an endpoint, so they live here.

mod anthropic;
mod chat;
mod client;
mod endpoint;
mod error;
mod headers;
pub mod limiter;
mod loading;
mod openai;
pub mod price;
mod request;
mod retry;

pub use chat::{ChatReply, ChatRequest, ChatToolCall, ChatToolDefinition, PromptMessage};
pub use client::{LoadNotice, ModelClient};
pub use endpoint::{ModelEndpoint, ModelProvider};
pub use error::{CallError, ModelCallFailure, ModelSetupError};
pub use request::{AnswerForm, CompletionUsage, FinishReason, ModelReply, ModelRequest};
pub use retry::RetryPolicy;
