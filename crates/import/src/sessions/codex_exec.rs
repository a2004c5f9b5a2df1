//! The output of `codex exec --json`: events of a thread, its turns and their items
//! (`codex-rs/exec/src/exec_events.rs`). The prompt and the model are not printed.

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::{RUN_FAILED, TokenUsage};
use serde_json::{Value as Json, json};

use super::codex_rollout::AGENT_NAME;
use super::record_helpers::{add_call_or_defect, parse_record};
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedResult, ResultStatus};

/// Whether the records are events of `codex exec --json`.
pub(crate) fn is_codex_exec(records: &[Json]) -> bool {
    records.iter().any(|record| match record["type"].as_str() {
        Some("thread.started") => record["thread_id"].is_string(),
        Some("item.started" | "item.updated" | "item.completed") => {
            record["item"]["id"].is_string() && item_kind(&record["item"]).is_some()
        }
        Some("turn.completed") => record["usage"].get("input_tokens").is_some(),
        _ => false,
    })
}

pub(crate) fn open_codex_exec() -> Box<dyn SessionReader> {
    Box::new(CodexExecReader::default())
}

#[derive(Default)]
struct CodexExecReader {
    builder: SessionBuilder,
    thread_id: String,
    /// Whether a result came, so that what the model writes next is a new reply.
    is_reply_over: bool,
}

/// Returns the type of an item. Early versions had it under another key.
fn item_kind(item: &Json) -> Option<&str> {
    text_field(item, "type").or_else(|| text_field(item, "item_type"))
}

impl SessionReader for CodexExecReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(event) = parse_record(record, "codex exec", sink) else {
            return self.builder.mark_unreadable_record();
        };
        match event["type"].as_str().unwrap_or_default() {
            "thread.started" => {
                // A resumed thread is started again, under the same id.
                let id = text_field(&event, "thread_id").unwrap_or_default();
                if !self.thread_id.is_empty() && self.thread_id != id {
                    std::mem::take(&mut self.builder).finish(sink);
                }
                id.clone_into(&mut self.thread_id);
                self.builder.set_session_id(id);
                self.builder.set_agent(AGENT_NAME, None);
            }
            "turn.started" => {
                self.builder.begin_turn("", None, sink);
                self.is_reply_over = false;
            }
            "item.started" => self.begin_item(&event["item"]),
            "item.completed" => self.complete_item(&event["item"], sink),
            "turn.completed" => {
                let usage = &event["usage"];
                let tokens = TokenUsage {
                    prompt: count_field(usage, "input_tokens"),
                    completion: count_field(usage, "output_tokens"),
                    cached_prompt: count_field(usage, "cached_input_tokens"),
                };
                self.builder.set_usage(tokens, None, None);
            }
            "turn.failed" => {
                self.builder.fail_turn(text_field(&event["error"], "message").unwrap_or("the turn failed"));
            }
            "error" if self.builder.has_turn() => {
                self.builder.fail_turn(text_field(&event, "message").unwrap_or(RUN_FAILED));
            }
            _ => {}
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.builder.finish(sink);
    }
}

impl CodexExecReader {
    fn begin_reply_if_new(&mut self) {
        if std::mem::take(&mut self.is_reply_over) {
            self.builder.begin_reply(None);
        }
    }

    /// Adds the call of an item, at its first event.
    fn begin_item(&mut self, item: &Json) {
        let id = text_field(item, "id");
        let (name, arguments) = match item_kind(item).unwrap_or_default() {
            kind @ "command_execution" => (kind.to_owned(), json!({"command": item["command"]})),
            kind @ "file_change" => (kind.to_owned(), json!({"changes": item["changes"]})),
            kind @ "web_search" => (kind.to_owned(), json!({"query": item["query"]})),
            "mcp_tool_call" => {
                let server = text_field(item, "server").unwrap_or_default();
                (format!("mcp__{server}__{}", text_field(item, "tool").unwrap_or_default()), item["arguments"].clone())
            }
            "collab_tool_call" => {
                let arguments = json!({"prompt": item["prompt"], "receiver_thread_ids": item["receiver_thread_ids"]});
                (text_field(item, "tool").unwrap_or_default().to_owned(), arguments)
            }
            _ => return,
        };
        let arguments = ArgumentsText::from(arguments);
        if id.is_some_and(|id| self.builder.find_repeated_step(id, Some(&arguments)).is_some()) {
            return;
        }
        self.begin_reply_if_new();
        add_call_or_defect(&mut self.builder, id, Some(&name), Some(arguments), None);
    }

    fn complete_item(&mut self, item: &Json, sink: &mut dyn ImportSink) {
        match item_kind(item) {
            Some("agent_message" | "assistant_message") => {
                self.begin_reply_if_new();
                self.builder.add_text(text_field(item, "text").unwrap_or_default());
            }
            Some("reasoning") => {
                self.begin_reply_if_new();
                self.builder.add_reasoning(text_field(item, "text").unwrap_or_default());
            }
            // The current list of tasks, and notices: neither is a call.
            Some("todo_list" | "error") => {}
            Some("command_execution" | "file_change" | "mcp_tool_call" | "web_search" | "collab_tool_call") => {
                self.begin_item(item);
                self.end_call(item);
            }
            _ => {
                // It may be a call of a kind that is newer than this reader.
                self.builder.mark_unreadable_record();
                sink.report_bad_record("an item of an unknown type");
            }
        }
    }

    fn end_call(&mut self, item: &Json) {
        let Some(id) = text_field(item, "id") else { return };
        let status = text_field(item, "status").unwrap_or_default();
        let content = match item_kind(item).unwrap_or_default() {
            "command_execution" => text_field(item, "aggregated_output").unwrap_or_default().to_owned(),
            "mcp_tool_call" => match text_field(&item["error"], "message") {
                Some(error) => error.to_owned(),
                None => content_text(item["result"].get("content").cloned().unwrap_or_default()),
            },
            "collab_tool_call" => item["agents_states"].to_string(),
            // The results of searches are not printed.
            "web_search" => {
                self.is_reply_over = true;
                return;
            }
            _ => status.to_owned(),
        };
        let exit_code = item["exit_code"].as_i64().unwrap_or_default();
        let status = match status {
            "declined" => ResultStatus::Denied,
            "failed" => ResultStatus::Error,
            _ if exit_code != 0 => ResultStatus::Error,
            _ => ResultStatus::Success,
        };
        if item["tool"] == "spawn_agent" {
            for agent in item["receiver_thread_ids"].as_array().into_iter().flatten().filter_map(Json::as_str) {
                self.builder.add_subagent(id, format!("{}/{agent}", self.thread_id));
            }
        }
        self.builder.add_result(&ImportedResult { id: Some(id), content: &content, status, at: None });
        self.is_reply_over = true;
    }
}
