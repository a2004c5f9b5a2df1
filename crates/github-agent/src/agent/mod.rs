//! A ReAct agent. `Machine` decides and does nothing: what came to pass goes in, what is to be done comes out. `drive`
//! does it: asks the model, calls tools, waits, asks the user, and tells observers.

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
