//! A tool as code: a type for its arguments, from which the schema is generated, and the requests it makes.

use std::future::Future;
use std::sync::Arc;

use gradus_llm::ChatToolDefinition;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::api::{RestClient, ToolOperationFailure};
use super::{AgentTool, BoxFuture, ToolEffect, ToolFamily, schema};

/// Arguments that can be run. The doc comment of the type is the description that the model reads, and those of the
/// fields describe parameters: editing them changes the tool.
pub(super) trait ToolOperation: DeserializeOwned + JsonSchema + Send + 'static {
    /// The name that models see. Part of benchmarks and scripts, so it must not change.
    const NAME: &'static str;
    const EFFECT: ToolEffect;

    /// Returns the effect with these arguments, which can be worse than [`ToolOperation::EFFECT`].
    fn effect(&self) -> ToolEffect {
        Self::EFFECT
    }

    /// Sends the requests. Restrictions and schema were checked before.
    fn run(self, github: &RestClient) -> impl Future<Output = Result<Value, ToolOperationFailure>> + Send;
}

/// `run` without the type of the arguments.
type ToolOperationFn = for<'r> fn(&'r RestClient, Value) -> BoxFuture<'r, Result<Value, ToolOperationFailure>>;

/// A tool with its functions, independent of the type of its arguments.
#[derive(Clone)]
pub(super) struct RegisteredTool {
    pub(super) family: ToolFamily,
    pub(super) tool: AgentTool,
    pub(super) classify_effect: fn(Value) -> ToolEffect,
    pub(super) run: ToolOperationFn,
}

/// Generates description and schema from the type.
pub(super) fn register_tool<O: ToolOperation>(family: ToolFamily) -> RegisteredTool {
    let (description, parameters) = schema::describe_arguments::<O>();
    let definition = ChatToolDefinition {
        name: Arc::from(O::NAME),
        description: Arc::from(description),
        parameters: Arc::new(parameters),
    };
    RegisteredTool {
        family,
        tool: AgentTool { definition, effect: O::EFFECT },
        // Arguments that cannot be parsed are refused anyway.
        classify_effect: |arguments| serde_json::from_value::<O>(arguments).map_or(O::EFFECT, |one| one.effect()),
        run: |github, arguments| {
            Box::pin(async move {
                let operation: O = serde_json::from_value(arguments)
                    .map_err(|error| ToolOperationFailure::Arguments(vec![error.to_string()]))?;
                operation.run(github).await
            })
        },
    }
}

/// Declares the arguments of a tool. `in repository` adds owner and repo, `in pages` page and per_page.
macro_rules! arguments {
    ($(#[$about:meta])* $name:ident { $($(#[$hint:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $($(#[$hint])* $field: $type,)*
        }
    };
    ($(#[$about:meta])* $name:ident in pages { $($rest:tt)* }) => {
        arguments! {
            $(#[$about])*
            $name {
                $($rest)*
                /// Which page of the list, from 1.
                #[schemars(range(min = 1))]
                page: Option<u32>,
                /// How many on a page; 30 if not given.
                #[schemars(range(min = 1, max = 100))]
                per_page: Option<u32>,
            }
        }
        impl $name {
            fn page(&self) -> crate::tools::api::PagingArguments {
                crate::tools::api::PagingArguments { page: self.page, per_page: self.per_page }
            }
        }
    };
    ($(#[$about:meta])* $name:ident in repository { $($rest:tt)* }) => {
        arguments! {
            $(#[$about])*
            $name {
                /// Who owns the repository: a user or an organization.
                #[schemars(length(min = 1))]
                owner: String,
                /// The repository's name, without its owner.
                #[schemars(length(min = 1))]
                repo: String,
                $($rest)*
            }
        }
        arguments!(@route $name);
    };
    ($(#[$about:meta])* $name:ident in repository, in pages { $($rest:tt)* }) => {
        arguments! {
            $(#[$about])*
            $name in pages {
                /// Who owns the repository: a user or an organization.
                #[schemars(length(min = 1))]
                owner: String,
                /// The repository's name, without its owner.
                #[schemars(length(min = 1))]
                repo: String,
                $($rest)*
            }
        }
        arguments!(@route $name);
    };
    (@route $name:ident) => {
        impl $name {
            /// A path below the repository's.
            fn route(&self, below: &[&str]) -> Result<String, crate::tools::api::ToolOperationFailure> {
                crate::tools::api::repository_route(&self.owner, &self.repo, below)
            }
        }
    };
}

pub(super) use arguments;
