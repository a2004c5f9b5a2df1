//! Sessions of pi (`sessions/<folder>/<time>_<id>.jsonl`), and what `pi --mode json` prints. Entries of newer versions
//! form a tree, in the order in which they were written; branches that were left are read as well, because they are
//! runs, too.

use gradus_core::trajectory::{DefectKind, TokenUsage};
use serde_json::Value as Json;

use super::record_helpers::{add_call_or_defect, add_result_or_defect, parse_record, to_arguments_text};
use super::record_text::normalize_recorded_time;
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, is_true_field, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedResult, ResultStatus};

const AGENT_NAME: &str = "pi";

/// Whether the records are those of a session of pi.
pub(crate) fn is_pi_session(records: &[Json]) -> bool {
    let is_first = |record: &Json| {
        record["type"] == "session"
            && record["id"].is_string()
            && record["cwd"].is_string()
            && record.get("timestamp").is_some()
    };
    let is_entry = |record: &Json| match record["type"].as_str() {
        Some("message") => record["message"]["role"].is_string() && record["message"].get("content").is_some(),
        Some("model_change") => record["modelId"].is_string(),
        Some("thinking_level_change") => record["thinkingLevel"].is_string(),
        _ => false,
    };
    let is_printed = |record: &Json| match record["type"].as_str() {
        Some("message_end") => record["message"]["role"].is_string() && record["message"].get("content").is_some(),
        Some("tool_execution_start") => record["toolCallId"].is_string() && record["toolName"].is_string(),
        _ => false,
    };
    let begins_run = |record: &Json| matches!(record["type"].as_str(), Some("agent_start" | "turn_start" | "session"));
    (records.iter().any(is_printed) && records.iter().any(begins_run))
        || records.iter().any(is_first) && (records.len() == 1 || records.iter().any(is_entry))
}

pub(crate) fn open_pi_session() -> Box<dyn SessionReader> {
    Box::new(PiReader::default())
}

#[derive(Default)]
struct PiReader {
    builder: SessionBuilder,
    /// The error of the last reply, until another reply shows that the call was tried again.
    error: Option<String>,
}

impl SessionReader for PiReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(entry) = parse_record(record, "a session of pi", sink) else {
            return self.builder.mark_unreadable_record();
        };
        let at = normalize_recorded_time(text_field(&entry, "timestamp"));
        let at = at.as_deref();
        match entry["type"].as_str().unwrap_or_default() {
            "agent_start" => self.builder.set_agent(AGENT_NAME, None),
            "session" => {
                self.builder.set_session_id(text_field(&entry, "id").unwrap_or_default());
                self.builder.set_agent(AGENT_NAME, None);
                self.builder.set_project(text_field(&entry, "cwd").unwrap_or_default());
                self.read_model_change(&entry);
            }
            "model_change" => self.read_model_change(&entry),
            "message" | "message_end" => self.read_message(&entry["message"], at, sink),
            "tool_execution_start" => {
                let id = text_field(&entry, "toolCallId");
                if id.is_none_or(|id| !self.builder.has_open_call(id)) {
                    let arguments = to_arguments_text(entry.get("args"));
                    add_call_or_defect(&mut self.builder, id, text_field(&entry, "toolName"), arguments, at);
                }
            }
            "tool_execution_end" => {
                let result = &entry["result"];
                let content = content_text(without_images(result.get("content").unwrap_or(result)));
                let status = if is_true_field(&entry, "isError") { ResultStatus::Error } else { ResultStatus::Success };
                let result = ImportedResult { id: text_field(&entry, "toolCallId"), content: &content, status, at };
                add_result_or_defect(&mut self.builder, &result, sink);
            }
            "compaction" => self.builder.mark_compaction(),
            // Other summaries, labels and settings.
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        self.end_in_error();
        self.builder.finish(sink);
    }
}

impl PiReader {
    fn read_model_change(&mut self, entry: &Json) {
        if let Some(model) = text_field(entry, "modelId") {
            self.builder.set_model(model);
        }
    }

    fn read_message(&mut self, message: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        match message["role"].as_str() {
            Some("user") => {
                let request = join_part_texts(&message["content"], &["text"], "\n");
                if !request.trim().is_empty() {
                    self.end_in_error();
                    self.builder.begin_turn(&request, at, sink);
                }
            }
            Some("assistant") => self.add_reply(message, at),
            Some("toolResult") => {
                let content = content_text(without_images(&message["content"]));
                let status =
                    if is_true_field(message, "isError") { ResultStatus::Error } else { ResultStatus::Success };
                let result = ImportedResult { id: text_field(message, "toolCallId"), content: &content, status, at };
                add_result_or_defect(&mut self.builder, &result, sink);
            }
            // Commands that the user ran, and texts of extensions.
            Some("bashExecution" | "custom" | "hookMessage" | "branchSummary" | "compactionSummary" | "system") => {}
            _ => sink.report_bad_record("a message of an unknown role"),
        }
    }

    fn end_in_error(&mut self) {
        if let Some(error) = self.error.take() {
            self.builder.fail_turn(&error);
        }
    }

    fn add_reply(&mut self, message: &Json, at: Option<&str>) {
        self.error = None;
        let builder = &mut self.builder;
        builder.begin_reply(at);
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("text") => builder.add_text(text_field(block, "text").unwrap_or_default()),
                Some("thinking") => builder.add_reasoning(text_field(block, "thinking").unwrap_or_default()),
                Some("toolCall") => {
                    let arguments = to_arguments_text(block.get("arguments"));
                    add_call_or_defect(builder, text_field(block, "id"), text_field(block, "name"), arguments, at);
                }
                _ => {}
            }
        }
        let usage = &message["usage"];
        if usage.is_object() {
            let cached = count_field(usage, "cacheRead");
            let tokens = TokenUsage {
                prompt: count_field(usage, "input")
                    .saturating_add(cached)
                    .saturating_add(count_field(usage, "cacheWrite")),
                completion: count_field(usage, "output"),
                cached_prompt: cached,
            };
            builder.set_usage(tokens, text_field(message, "model"), usage["cost"]["total"].as_f64());
        }
        match message["stopReason"].as_str() {
            Some("error") => {
                self.error = Some(text_field(message, "errorMessage").unwrap_or("the model call failed").to_owned());
            }
            Some("aborted") => builder.add_defect(DefectKind::MissingAnswer, "the user interrupted the request"),
            _ => {}
        }
    }
}

/// Replaces each image in the content by a short note.
fn without_images(content: &Json) -> Json {
    let Json::Array(parts) = content else { return content.clone() };
    let note = |part: &Json| match part["type"].as_str() {
        Some("image") => serde_json::json!({"type": "text", "text": "[image]"}),
        _ => part.clone(),
    };
    Json::Array(parts.iter().map(note).collect())
}
