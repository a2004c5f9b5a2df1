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

pub use chat::{Chat, ChatReply, Message, ToolCall, ToolDefinition};
pub use client::{Client, LoadNotice};
pub use endpoint::{Endpoint, Provider};
pub use error::{CallError, Failure};
pub use request::{AnswerForm, Reply, Request, Stop, Usage};
pub use retry::RetryPolicy;
