//! A ReAct agent. `Machine` decides and does nothing: what came to pass goes in, what is to be done comes out. `drive`
//! does it: asks the model, calls tools, waits, asks the user, and tells observers.

mod arguments;
mod context;
mod drive;
mod literal;
mod machine;
mod model;
pub mod nearest;
mod observer;
mod prompt;
mod react;
mod recorder;
mod reply;
mod run_step;
mod session;
mod state;
#[cfg(test)]
mod tests;

pub use drive::{Approval, Clock, Confirm, Driver, Nobody, RealClock};
pub use machine::{Action, Event, Machine, OutOfOrder};
pub use model::Model;
pub use observer::{Observer, Seen};
pub use recorder::{RecordedRun, Recorder};
pub use run_step::{RunEnd, RunStep};
pub use session::{Keeper, SessionError, SessionFile};
pub use state::{Call, Form, Settings, State};
