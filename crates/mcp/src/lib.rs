//! An MCP server for assistants that ask about graded runs: tools over a [`RunArchive`], on standard input and output
//! and over streamable HTTP.
//!
//! The assistant that reads an answer is the target of every prompt injection in the recordings. All recorded text goes
//! through `recorded_text`, which marks each line of it as data and leaves no invisible or control character. Every
//! answer is bounded ([`MAX_RESPONSE_BYTES`]) and says how to get the rest. This crate never sees the store or the
//! network: callers bring an archive, and HTTP requests that they have authenticated.

mod archive;
mod archived_run;
mod arguments;
mod bounded_response;
mod comparison_text;
mod evaluation_text;
mod failure_text;
mod flagged_steps;
mod folder_archive;
mod gate_text;
mod instructions;
mod label_file;
mod mcp_service;
mod recorded_text;
mod run_filter;
mod run_list_text;
mod stdio_transport;
mod time_bound;
mod tool_call;
mod tool_catalog;
mod transcript_text;
mod verdict_text;

pub use archive::{
    ArchiveError, EvaluationEntry, EvaluationList, EvaluationScores, FlaggedScope, FoundRun, FoundRunPage, GateReport,
    LabelSource, NewRunLabel, RunArchive, RunFlag, SkippedEvaluations, StoredFailureGroups, TrafficName,
};
pub use archived_run::{ArchivedRun, ArchivedVerdict, RunLabel};
pub use bounded_response::MAX_RESPONSE_BYTES;
pub use folder_archive::FolderArchive;
pub use label_file::LabelFile;
pub use mcp_service::{StdioError, ToolRunner, answer_http_request, serve_stdio};
pub use run_filter::RunFilter;
pub use tool_call::{McpToolCall, ToolError};
