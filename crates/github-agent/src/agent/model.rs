//! Who thinks.

use gradus_llm::{Chat, ChatReply, Client, Failure};

use crate::tools::BoxFuture;

/// A model behind an endpoint, or a script that plays one.
pub trait Model: Send + Sync {
    /// As traces call it.
    fn name(&self) -> &str;

    fn ask<'a>(&'a self, chat: &'a Chat<'a>) -> BoxFuture<'a, Result<ChatReply, Failure>>;
}

impl Model for Client {
    fn name(&self) -> &str {
        &self.endpoint().model
    }

    fn ask<'a>(&'a self, chat: &'a Chat<'a>) -> BoxFuture<'a, Result<ChatReply, Failure>> {
        Box::pin(async move { self.chat(chat).await.1 })
    }
}
