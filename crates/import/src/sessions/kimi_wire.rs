//! Kimi Code sessions: `sessions/<folder>/<session>/agents/<agent>/wire.jsonl`, a journal of what the agent did. The id
//! of the session is only in the path.

use gradus_core::trajectory::TokenUsage;
use serde_json::Value as Json;

use super::record_helpers::{add_call_or_defect, add_result_or_defect, parse_record, to_arguments_text};
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, is_true_field, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedResult, ResultStatus};

const AGENT_NAME: &str = "kimi-code";

/// Whether the records are those of a Kimi Code session.
pub(crate) fn is_kimi_session(records: &[Json]) -> bool {
    let is_first = |record: &Json| {
        record["type"] == "metadata" && record["protocol_version"].is_string() && record.get("created_at").is_some()
    };
    let is_entry = |record: &Json| match record["type"].as_str() {
        Some("turn.prompt") => record["input"].is_array() && record.get("origin").is_some(),
        Some("context.append_loop_event") => record["event"]["type"].is_string(),
        Some("context.append_message") => record["message"]["role"].is_string(),
        Some("config.update" | "tools.set_active_tools" | "profile.bind") => record.get("time").is_some(),
        _ => false,
    };
    records.iter().any(is_first) && records.iter().any(is_entry)
}

pub(crate) fn open_kimi_session() -> Box<dyn SessionReader> {
    Box::new(KimiReader::default())
}

#[derive(Default)]
struct KimiReader {
    builder: SessionBuilder,
    /// Calls that the user did not allow.
    denied_call: Option<String>,
}

impl SessionReader for KimiReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(entry) = parse_record(record, "a Kimi Code session", sink) else {
            return self.builder.mark_unreadable_record();
        };
        let at = entry.get("time").and_then(normalize_timestamp);
        let at = at.as_deref();
        match entry["type"].as_str().unwrap_or_default() {
            "metadata" => {
                self.builder.set_session_id(&format!("kimi-{}", entry["created_at"]));
                self.builder.set_agent(AGENT_NAME, None);
            }
            "config.update" => {
                if let Some(prompt) = text_field(&entry, "systemPrompt") {
                    self.builder.set_system_prompt(prompt);
                }
                if let Some(folder) = text_field(&entry, "cwd") {
                    self.builder.set_project(folder);
                }
            }
            "llm.request" => {
                if let Some(model) = text_field(&entry, "model") {
                    self.builder.set_model(model);
                }
            }
            // Everything that begins a turn: requests, and the prompts of subagents.
            "turn.prompt" => {
                let request = join_part_texts(&entry["input"], &["text"], "\n");
                self.builder.begin_turn(&request, at, sink);
            }
            "permission.record_approval_result" => {
                let is_denied =
                    matches!(entry["result"]["decision"].as_str(), Some("rejected" | "denied" | "cancelled"));
                if is_denied {
                    self.denied_call = text_field(&entry, "toolCallId").map(str::to_owned);
                }
            }
            "context.apply_compaction" => self.builder.mark_compaction(),
            "context.append_loop_event" => self.read_loop_event(&entry["event"], at, sink),
            _ => {}
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.builder.finish(sink);
    }
}

impl KimiReader {
    fn read_loop_event(&mut self, event: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let builder = &mut self.builder;
        match event["type"].as_str().unwrap_or_default() {
            "step.begin" => builder.begin_reply(at),
            "content.part" => match text_field(&event["part"], "think") {
                Some(thinking) => builder.add_reasoning(thinking),
                None => builder.add_text(text_field(&event["part"], "text").unwrap_or_default()),
            },
            "tool.call" => {
                let arguments = to_arguments_text(event.get("args"));
                add_call_or_defect(builder, text_field(event, "toolCallId"), text_field(event, "name"), arguments, at);
            }
            "tool.result" => {
                let result = &event["result"];
                let content = content_text(result.get("output").unwrap_or(result).clone());
                let id = text_field(event, "toolCallId");
                let is_denied = id.is_some() && self.denied_call.as_deref() == id;
                let status = match () {
                    () if is_denied => ResultStatus::Denied,
                    () if is_true_field(result, "isError") => ResultStatus::Error,
                    () => ResultStatus::Success,
                };
                add_result_or_defect(builder, &ImportedResult { id, content: &content, status, at }, sink);
            }
            "step.end" => {
                let usage = &event["usage"];
                if usage.is_object() {
                    let cached = count_field(usage, "inputCacheRead");
                    let written = count_field(usage, "inputCacheCreation");
                    let tokens = TokenUsage {
                        prompt: count_field(usage, "inputOther").saturating_add(cached).saturating_add(written),
                        completion: count_field(usage, "output"),
                        cached_prompt: cached,
                    };
                    builder.set_usage(tokens, None, None);
                }
            }
            _ => {}
        }
    }
}
