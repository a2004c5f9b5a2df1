//! A ReAct agent with native tool calls or ReAct text. `machine` decides and has no side effects: events go in, actions
//! come out. `drive` carries actions out: it asks the model, calls tools, waits, asks the user, and notifies observers.

mod arguments;
mod context;
mod drive;
mod machine;
mod model;
pub mod nearest;
mod observer;
mod prompt;
mod recorder;
mod reply;
mod run_step;
mod session;
mod state;
#[cfg(test)]
mod tests;

pub use drive::{AgentClock, AgentDriver, CallApproval, CallConfirmer, RealClock, RefusingConfirmer};
pub use machine::{AgentAction, AgentEvent, AgentStateMachine, InvalidTransition};
pub use model::ChatModel;
pub use observer::{AgentObserver, ObserverEvent};
pub use recorder::{AgentRunRecorder, RecordedRun};
pub use run_step::{AgentRunEnd, RunStep};
pub use session::{AgentSessionStore, SessionError, SessionFile};
pub use state::{AgentRunSettings, AgentState, AgentToolCall, ToolCallMode};
