//! What an agent can do: tools with a description and a schema, and boxes of them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use gradus_llm::ToolDefinition;
use serde_json::Value;

pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    Read,
    Write,
    /// Takes something away, or shows it to others, in a way that is hard to take back.
    Destructive,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub definition: ToolDefinition,
    pub effect: Effect,
}

/// What a call came to, as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub text: String,
    pub is_error: bool,
    /// How long the service asked to be left alone.
    pub retry_after: Option<Duration>,
}

/// Tools that can be called. A call never fails: what goes wrong is an observation.
pub trait ToolBox: Send + Sync {
    fn tools(&self) -> &[Tool];

    /// What a call with these arguments would do, which can be worse than what the tool does mostly.
    fn effect_of(&self, name: &str, arguments: &Value) -> Effect {
        let _ = arguments;
        let tool = self.tools().iter().find(|tool| &*tool.definition.name == name);
        tool.map_or(Effect::Write, |tool| tool.effect)
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Value) -> BoxFuture<'c, Observation>;
}
