//! Tools of the agent: descriptions, schemas and tool sets. The tools for GitHub are here, one family per file.

mod api;
mod argument_check;
mod branches;
mod combined_tools;
mod commits;
mod connection;
mod error;
mod files;
mod github;
mod issues;
mod labels;
mod limits;
mod operation;
mod pulls;
mod releases;
mod repos;
mod schema;
mod search;
mod view;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use gradus_llm::ChatToolDefinition;
use serde_json::Value;

pub use crate::tools::error::GITHUB_COM_API_URL;
pub use crate::tools::error::ToolsError;
pub(crate) use argument_check::convert_whole_floats;
pub use argument_check::find_argument_problems;
pub use argument_check::remove_needless_nulls;
pub use combined_tools::CombinedToolSet;
pub(crate) use github::UNKNOWN_EFFECT_NOTE;
pub use github::{GITHUB_RESPONSE_TIMEOUT, GitHubTools, all_tools};
pub use limits::{ToolFamily, ToolRestrictions, UnknownFamily};
pub(crate) use view::truncate_text;

/// A boxed future that threads can exchange; traits with async methods are used as trait objects here.
pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// What a call does. The order is that of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolEffect {
    Read,
    Write,
    /// Deletes or discloses something in a way that is hard to undo.
    Destructive,
}

/// A tool as the model sees it, with its usual effect.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentTool {
    pub definition: ChatToolDefinition,
    /// The effect of most calls; [`ToolSet::classify_effect`] decides by arguments.
    pub effect: ToolEffect,
}

/// The result of a call as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallObservation {
    pub text: String,
    pub is_error: bool,
    /// How long a rate limit asks to wait. Set only if repeating the call cannot do harm.
    pub retry_after: Option<Duration>,
}

/// A tool set. A call never fails: errors are observations, since the model has to react to them.
pub trait ToolSet: Send + Sync {
    /// Tools on offer, in a stable order.
    fn tools(&self) -> &[AgentTool];

    /// Returns the effect of a call with these arguments: moving a branch by force is worse than moving it forward. A
    /// tool that does not exist has no effect.
    fn classify_effect(&self, name: &str, arguments: &Value) -> ToolEffect {
        let _ = arguments;
        let tool = self.tools().iter().find(|tool| &*tool.definition.name == name);
        tool.map_or(ToolEffect::Read, |tool| tool.effect)
    }

    /// Returns why an existing tool is not offered; none if it is offered or does not exist.
    fn withheld_reason(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Makes one call. Arguments are validated here, not by the caller.
    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, CallObservation>;
}
