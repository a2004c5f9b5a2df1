//! Who plays a task where no model is needed: scripts, the oracle that takes the shortest way, and flawed ones that make
//! one known mistake each, so that all that is said of them can be held against the truth.

mod script;
mod scripted;
mod template;

pub use script::{Line, Move, Script};
pub use scripted::Scripted;
pub use template::{TemplateError, fill, fill_text, sources, text_sources};
