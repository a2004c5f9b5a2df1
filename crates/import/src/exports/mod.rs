//! Exports: documents that are complete in themselves, of tracing backends and of harnesses.

pub(crate) mod agentdojo;
pub(crate) mod atif;
mod atif_text_replies;
pub(crate) mod autogen;
mod autogen_chat;
mod autogen_events;
pub(crate) mod braintrust;
pub(crate) mod harbor;
mod harness_chat;
#[cfg(test)]
mod harness_tests;
pub(crate) mod inspect;
pub(crate) mod inspect_archive;
pub(crate) mod jaeger;
pub(crate) mod langfuse;
mod langfuse_attributes;
pub(crate) mod langsmith;
pub(crate) mod mini_swe_agent;
pub(crate) mod mlflow;
mod model_content;
pub(crate) mod openai_agents;
pub(crate) mod openhands;
mod openhands_events;
pub(crate) mod phoenix;
pub(crate) mod responses;
mod span_record;
pub(crate) mod swe_agent;
pub(crate) mod tau_bench;
pub(crate) mod unreadable;
pub(crate) mod zipkin;
