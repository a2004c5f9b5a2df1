//! Separates failures of the model endpoint from failures of the agent. A trial that ends because the endpoint was
//! unreachable is no result and is repeated on resume.

use std::sync::{Mutex, PoisonError};

use gradus_llm::{CallError, ChatReply, ChatRequest, ModelCallFailure};

use gradus_github_agent::agent::ChatModel;
use gradus_github_agent::tools::BoxFuture;

/// Passes requests to a model and remembers whether the last one was answered.
pub(super) struct MonitoredModel<'w> {
    model: &'w dyn ChatModel,
    seen: Mutex<EndpointReplies>,
}

/// Number of successful replies, and the failure of the last request if it failed.
#[derive(Default)]
struct EndpointReplies {
    /// Successful replies so far.
    replies: u32,
    failure: Option<ModelCallFailure>,
}

impl<'w> MonitoredModel<'w> {
    pub(super) fn new(model: &'w dyn ChatModel) -> MonitoredModel<'w> {
        MonitoredModel { model, seen: Mutex::default() }
    }

    /// Returns the failure of the last request, if the endpoint caused it.
    pub(super) fn endpoint_failure(&self) -> Option<ModelCallFailure> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.failure.clone().filter(|failure| is_endpoint_failure(&failure.error, seen.replies))
    }
}

/// Whether the endpoint caused a failure: transport errors, limits, and authentication. A refused or malformed reply
/// counts only if no request was answered before, since a later one may be caused by what the agent put into the
/// conversation. A conversation that is too long is always caused by the agent.
fn is_endpoint_failure(error: &CallError, replies: u32) -> bool {
    match error {
        CallError::Connect(_)
        | CallError::Broken(_)
        | CallError::Timeout(_)
        | CallError::Silent(_)
        | CallError::RateLimited { .. }
        | CallError::Server { .. }
        | CallError::Loading { .. }
        | CallError::LongPause(_)
        | CallError::Unauthorized { .. }
        | CallError::NotFound { .. }
        | CallError::CallLimit => true,
        // The agent's part of the conversation may be the cause, but not for the first request.
        CallError::Refused { .. } | CallError::BadReply(_) => replies == 0,
        CallError::TooLong(_) => false,
    }
}

impl ChatModel for MonitoredModel<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn ask<'a>(&'a self, chat: &'a ChatRequest<'a>) -> BoxFuture<'a, Result<ChatReply, ModelCallFailure>> {
        Box::pin(async move {
            let reply = self.model.ask(chat).await;
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.replies += u32::from(reply.is_ok());
            seen.failure = reply.as_ref().err().cloned();
            reply
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_away_is_not_the_agents_fault() {
        let refused = CallError::Refused { status: 400, message: String::new() };
        assert!(is_endpoint_failure(&CallError::Connect("refused".to_owned()), 3));
        assert!(is_endpoint_failure(&CallError::Unauthorized { status: 402, message: String::new() }, 3));
        assert!(is_endpoint_failure(&refused, 0));
        assert!(!is_endpoint_failure(&refused, 1));
        assert!(!is_endpoint_failure(&CallError::TooLong(String::new().into()), 0));
    }
}
