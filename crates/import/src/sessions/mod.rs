//! Sessions: conversations that are recorded one record after the other in a file.

mod anthropic_content;
pub(crate) mod claude_code;
mod claude_conversation;
mod claude_lines;
mod claude_requests;
pub(crate) mod claude_stream;
pub(crate) mod codex_document;
pub(crate) mod codex_exec;
pub(crate) mod codex_lines;
mod codex_requests;
pub(crate) mod codex_rollout;
pub(crate) mod copilot_cli;
pub(crate) mod copilot_history;
pub(crate) mod cursor_stream;
pub(crate) mod cursor_transcript;
mod field_types;
pub(crate) mod gemini_cli;
pub(crate) mod gemini_stream;
pub(crate) mod goose;
pub(crate) mod kimi_wire;
pub(crate) mod opencode;
pub(crate) mod pi_session;
pub(crate) mod qwen_code;
mod record_helpers;
mod record_text;
mod seen_ids;
pub(crate) mod unread_records;
