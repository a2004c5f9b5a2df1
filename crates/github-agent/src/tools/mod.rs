//! What an agent can do: tools with a description and a schema, and boxes of them. GitHub's are here, one family a file.

mod api;
mod boxes;
mod branches;
mod commits;
mod connection;
mod error;
mod files;
mod fit;
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

pub use crate::tools::error::GITHUB_COM;
pub use crate::tools::error::ToolsError;
pub use boxes::CombinedToolSet;
pub use fit::find_argument_problems;
pub(crate) use fit::with_whole_numbers;
pub use fit::without_nulls;
pub(crate) use github::CARRIED_OUT;
pub use github::{GitHubTools, TIMEOUT, all_tools};
pub use limits::{ToolFamily, ToolRestrictions, UnknownFamily};
pub(crate) use view::truncate_text;

pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolEffect {
    Read,
    Write,
    /// Takes something away, or shows it to others, in a way that is hard to take back.
    Destructive,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AgentTool {
    pub definition: ChatToolDefinition,
    /// Of most calls; see `ToolBox::effect_of`.
    pub effect: ToolEffect,
}

/// What a call came to, as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallObservation {
    pub text: String,
    pub is_error: bool,
    /// How long the service asked to be left alone.
    pub retry_after: Option<Duration>,
}

/// Tools that can be called. A call never fails: what goes wrong is an observation.
pub trait ToolBox: Send + Sync {
    fn tools(&self) -> &[AgentTool];

    /// What a call with these arguments would do: a branch that is moved by force is another matter than one that is
    /// moved forward. A tool that is not there does nothing.
    fn effect_of(&self, name: &str, arguments: &Value) -> ToolEffect {
        let _ = arguments;
        let tool = self.tools().iter().find(|tool| &*tool.definition.name == name);
        tool.map_or(ToolEffect::Read, |tool| tool.effect)
    }

    /// Why a tool that is there is not among the tools.
    fn kept_back(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, CallObservation>;
}
