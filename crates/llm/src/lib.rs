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
mod proxy;
mod request;
mod retry;
mod secret;

pub use chat::{Chat, ChatReply, Message, ToolCall, ToolDefinition};
pub use client::{Client, LoadNotice};
pub use endpoint::{Endpoint, Provider};
pub use error::{CallError, Failure};
pub use headers::retry_after;
pub use proxy::except_here;
pub use request::{AnswerForm, Reply, Request, Stop, Usage};
pub use retry::RetryPolicy;
pub use secret::{Secret, mask_secrets, register_secret, register_url_secrets};
