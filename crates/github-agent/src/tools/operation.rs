//! One tool as code: its arguments as a type, from which its schema is made, and what it asks of GitHub.

use std::future::Future;
use std::sync::Arc;

use gradus_llm::ToolDefinition;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::api::{Api, Failure};
use super::{BoxFuture, Effect, Family, Tool, schema};

/// The arguments of a tool, which know what to do. The type's doc comment is the tool's description.
pub(super) trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    const EFFECT: Effect;

    /// What a call with these arguments does, which can be worse than what the tool does mostly.
    fn effect(&self) -> Effect {
        Self::EFFECT
    }

    fn run(self, github: &Api) -> impl Future<Output = Result<Value, Failure>> + Send;
}

type Run = for<'r> fn(&'r Api, Value) -> BoxFuture<'r, Result<Value, Failure>>;

/// A tool with what belongs to it, whatever the type of its arguments.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) family: Family,
    pub(super) tool: Tool,
    pub(super) effect_of: fn(Value) -> Effect,
    pub(super) run: Run,
}

pub(super) fn entry<O: Operation>(family: Family) -> Entry {
    let (description, parameters) = schema::of::<O>();
    let definition = ToolDefinition {
        name: Arc::from(O::NAME),
        description: Arc::from(description),
        parameters: Arc::new(parameters),
    };
    Entry {
        family,
        tool: Tool { definition, effect: O::EFFECT },
        // What cannot be read is not carried out either.
        effect_of: |arguments| serde_json::from_value::<O>(arguments).map_or(O::EFFECT, |one| one.effect()),
        run: |github, arguments| {
            Box::pin(async move {
                let operation: O = serde_json::from_value(arguments)
                    .map_err(|error| Failure::Arguments(vec![error.to_string()]))?;
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
            fn page(&self) -> crate::tools::api::Page {
                crate::tools::api::Page { page: self.page, per_page: self.per_page }
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
            fn route(&self, below: &[&str]) -> Result<String, crate::tools::api::Failure> {
                crate::tools::api::repository_route(&self.owner, &self.repo, below)
            }
        }
    };
}

pub(super) use arguments;
