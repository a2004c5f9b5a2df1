//! Clients of language model endpoints: wire forms, concurrency limits, retries and prices.
//!
//! The crate knows nothing of judging or of agents. A concurrency limit belongs to an endpoint, so the limiter lives
//! here.

mod anthropic;
mod chat;
mod client;
mod context_refusal;
mod endpoint;
mod error;
mod headers;
pub mod limiter;
mod loading;
mod local_server;
mod openai;
pub mod price;
mod request;
mod retry;
mod server_probe;
mod silence;

pub use chat::{ChatReply, ChatRequest, ChatToolCall, ChatToolDefinition, PromptMessage};
pub use client::{LoadNotice, ModelClient};
pub use context_refusal::ContextRefusal;
pub use endpoint::{ModelEndpoint, ModelProvider};
pub use error::{CallError, ModelCallFailure, ModelSetupError};
pub use local_server::LocalServer;
pub use request::{AnswerForm, CompletionUsage, FinishReason, ModelReply, ModelRequest, TokenLogprob};
pub use retry::RetryPolicy;
pub use server_probe::{ProbeFinding, ServedModel, probe_model_server};
