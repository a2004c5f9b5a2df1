//! A ReAct agent.

use gradus_llm::{Chat, ChatReply, Failure};

use crate::tools::BoxFuture;

/// Who thinks: a model behind an endpoint, or a script that plays one.
pub trait Model: Send + Sync {
    /// As traces call it.
    fn name(&self) -> &str;

    fn ask<'a>(&'a self, chat: &'a Chat<'a>) -> BoxFuture<'a, Result<ChatReply, Failure>>;
}
