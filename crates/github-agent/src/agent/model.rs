//! The model behind the agent. A trait, so that a script can take its place in benchmarks and tests, and a monitor can
//! wrap it.

use gradus_llm::{ChatReply, ChatRequest, ModelCallFailure, ModelClient};

use crate::tools::BoxFuture;

/// A model behind an endpoint, or a script in its place.
pub trait ChatModel: Send + Sync {
    /// Returns the model name for traces.
    fn name(&self) -> &str;

    /// Sends one request, including the retries of the client.
    fn ask<'a>(&'a self, chat: &'a ChatRequest<'a>) -> BoxFuture<'a, Result<ChatReply, ModelCallFailure>>;
}

impl ChatModel for ModelClient {
    fn name(&self) -> &str {
        &self.endpoint().model
    }

    fn ask<'a>(&'a self, chat: &'a ChatRequest<'a>) -> BoxFuture<'a, Result<ChatReply, ModelCallFailure>> {
        Box::pin(async move { self.chat(chat).await.1 })
    }
}
