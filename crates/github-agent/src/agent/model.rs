//! Who thinks.

use gradus_llm::{ChatReply, ChatRequest, ModelCallFailure, ModelClient};

use crate::tools::BoxFuture;

/// A model behind an endpoint, or a script that plays one.
pub trait ChatModel: Send + Sync {
    /// As traces call it.
    fn name(&self) -> &str;

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
