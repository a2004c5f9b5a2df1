//! Clients of language model endpoints: wire forms, concurrency limits, retries and prices.
//!
//! The crate knows nothing of judging or of agents. A concurrency limit belongs to an endpoint, so the limiter lives
//! here.

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
