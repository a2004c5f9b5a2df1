//! Those who look on: the terminal, traces, records. They see everything and change nothing.

use std::time::Duration;

use gradus_llm::{ChatReply, ChatRequest, ModelCallFailure};

use super::run_step::AgentRunEnd;
use super::state::AgentToolCall;
use crate::tools::{AgentTool, CallObservation};

#[derive(Clone, Debug)]
pub enum ObserverEvent<'e> {
    /// A request begins, or goes on after it was put down.
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
    /// The reply could not be used, and the model is told why.
    Corrected {
        problem: &'e str,
    },
    /// Somebody is going to be asked whether a call may be made.
    Confirms {
        call: &'e AgentToolCall,
    },
    /// Somebody was asked whether a call may be made.
    Confirmed {
        call: &'e AgentToolCall,
    },
    /// `tool` is none where there is no such tool.
    Called {
        call: &'e AgentToolCall,
        tool: Option<&'e AgentTool>,
    },
    /// A rate limit; the same call is made again afterwards.
    Waits {
        call: &'e AgentToolCall,
        time: Duration,
    },
    Returned {
        call: &'e AgentToolCall,
        observation: &'e CallObservation,
    },
    Finished {
        end: &'e AgentRunEnd,
        answer: Option<&'e str>,
    },
}

pub trait AgentObserver: Send {
    fn see(&mut self, seen: &ObserverEvent<'_>);
}
