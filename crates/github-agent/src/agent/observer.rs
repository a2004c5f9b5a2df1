//! Observers: terminal, traces, records. They see everything and change nothing.

use std::time::Duration;

use gradus_llm::{ChatReply, ChatRequest, ModelCallFailure};

use super::run_step::AgentRunEnd;
use super::state::AgentToolCall;
use crate::tools::{AgentTool, CallObservation};

/// What happens in a run, in order. Every `Asked` has a `Replied` and every `Called` a `Returned`, unless the run is
/// interrupted.
#[derive(Clone, Debug)]
pub enum ObserverEvent<'e> {
    /// A request starts, or continues after an interruption.
    Begun {
        session: &'e str,
        request: &'e str,
        model: &'e str,
        goes_on: bool,
    },
    Asked {
        chat: &'e ChatRequest<'e>,
        /// All tools on offer, natively or in the prompt.
        tools: &'e [AgentTool],
    },
    Replied {
        reply: &'e Result<ChatReply, ModelCallFailure>,
    },
    /// The reply could not be used, and the model is asked to correct it.
    Corrected {
        problem: &'e str,
    },
    /// Approval of a call is about to be requested.
    Confirms {
        call: &'e AgentToolCall,
    },
    /// Approval was granted or refused.
    Confirmed {
        call: &'e AgentToolCall,
    },
    /// A call starts. `tool` is none for a tool that does not exist.
    Called {
        call: &'e AgentToolCall,
        tool: Option<&'e AgentTool>,
    },
    /// A rate limit is waited for; the same call is made again afterwards.
    Waits {
        call: &'e AgentToolCall,
        time: Duration,
    },
    /// The final result of a call, after any waits.
    Returned {
        call: &'e AgentToolCall,
        observation: &'e CallObservation,
    },
    Finished {
        end: &'e AgentRunEnd,
        answer: Option<&'e str>,
    },
}

/// Receives events synchronously; it must not block.
pub trait AgentObserver: Send {
    fn on_event(&mut self, event: &ObserverEvent<'_>);
}
