//! Those who look on: the terminal, traces, records. They see everything and change nothing.

use std::time::Duration;

use gradus_llm::{Chat, ChatReply, Failure};

use super::run_step::RunEnd;
use super::state::Call;
use crate::tools::{Observation, Tool};

#[derive(Clone, Debug)]
pub enum Seen<'e> {
    /// A request begins, or goes on after it was put down.
    Begun {
        session: &'e str,
        request: &'e str,
        model: &'e str,
        goes_on: bool,
    },
    Asked {
        chat: &'e Chat<'e>,
        /// All tools on offer, natively or in the prompt.
        tools: &'e [Tool],
    },
    Replied {
        reply: &'e Result<ChatReply, Failure>,
    },
    /// The reply could not be used, and the model is told why.
    Corrected {
        problem: &'e str,
    },
    /// Somebody is going to be asked whether a call may be made.
    Confirms {
        call: &'e Call,
    },
    /// Somebody was asked whether a call may be made.
    Confirmed {
        call: &'e Call,
    },
    /// `tool` is none where there is no such tool.
    Called {
        call: &'e Call,
        tool: Option<&'e Tool>,
    },
    /// A rate limit; the same call is made again afterwards.
    Waits {
        call: &'e Call,
        time: Duration,
    },
    Returned {
        call: &'e Call,
        observation: &'e Observation,
    },
    Finished {
        end: &'e RunEnd,
        answer: Option<&'e str>,
    },
}

pub trait Observer: Send {
    fn see(&mut self, seen: &Seen<'_>);
}
