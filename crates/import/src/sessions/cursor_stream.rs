//! What `cursor-agent --output-format stream-json` prints. A call is printed when it starts and when it ends; thinking
//! comes in pieces.

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::{RUN_FAILED, TokenUsage};
use serde_json::Value as Json;

use super::record_helpers::{add_call_or_defect, parse_record, to_arguments_text};
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, is_true_field, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedResult, ResultStatus};

const AGENT_NAME: &str = "cursor-cli";

/// Whether the records are Cursor's stream JSON. Claude Code's has the same line types, but other keys.
pub(crate) fn is_cursor_stream(records: &[Json]) -> bool {
    records.iter().any(|record| {
        record["session_id"].is_string()
            && match record["type"].as_str() {
                Some("tool_call") => record["tool_call"].is_object() && record.get("call_id").is_some(),
                Some("thinking") => matches!(record["subtype"].as_str(), Some("delta" | "completed")),
                Some("system") => {
                    record["subtype"] == "init" && record.get("tools").is_none() && record["apiKeySource"].is_string()
                }
                _ => false,
            }
    })
}

pub(crate) fn open_cursor_stream() -> Box<dyn SessionReader> {
    Box::new(CursorReader::default())
}

#[derive(Default)]
struct CursorReader {
    builder: SessionBuilder,
    session_id: String,
    thinking: String,
    /// The model call that wrote the last text or call.
    model_call: Option<String>,
    /// Whether a result came, so that what the model writes next is a new reply.
    is_reply_over: bool,
    /// Text that is printed in pieces. The whole message repeats it.
    pieces: String,
}

impl SessionReader for CursorReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(event) = parse_record(record, "Cursor's stream JSON", sink) else {
            return self.builder.mark_unreadable_record();
        };
        self.switch_session(&event, sink);
        let at = event.get("timestamp_ms").and_then(normalize_timestamp);
        let at = at.as_deref();
        match event["type"].as_str().unwrap_or_default() {
            "system" => {
                if let Some(model) = text_field(&event, "model") {
                    self.builder.set_model(model);
                }
                if let Some(folder) = text_field(&event, "cwd") {
                    self.builder.set_project(folder);
                }
            }
            "user" => {
                self.flush_pieces();
                self.builder.begin_turn(&join_part_texts(&event["message"]["content"], &["text"], ""), at, sink);
                (self.is_reply_over, self.model_call) = (false, None);
            }
            "thinking" => {
                if let Some(text) = text_field(&event, "text") {
                    self.begin_reply_if_new(None, at);
                    self.thinking.push_str(text);
                }
                if event["subtype"] == "completed" {
                    self.flush_pieces();
                }
            }
            "assistant" => self.add_text(&event, at),
            "tool_call" => self.read_call(&event, at),
            "result" => self.end_turn(&event),
            // Permission prompts and notices: the result of the call says how they ended.
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        self.flush_pieces();
        self.builder.finish(sink);
    }
}

impl CursorReader {
    fn switch_session(&mut self, event: &Json, sink: &mut dyn ImportSink) {
        let Some(id) = text_field(event, "session_id").filter(|id| *id != self.session_id) else { return };
        if !self.session_id.is_empty() {
            self.flush_pieces();
            std::mem::take(&mut self.builder).finish(sink);
        }
        id.clone_into(&mut self.session_id);
        self.builder.set_session_id(id);
        self.builder.set_agent(AGENT_NAME, None);
    }

    fn begin_reply_if_new(&mut self, model_call: Option<&str>, at: Option<&str>) {
        let is_other = model_call.is_some() && self.model_call.is_some() && self.model_call.as_deref() != model_call;
        if is_other || std::mem::take(&mut self.is_reply_over) {
            self.builder.begin_reply(at);
            (self.is_reply_over, self.model_call) = (false, None);
        }
        if model_call.is_some() {
            self.model_call = model_call.map(str::to_owned);
        }
    }

    /// Adds the text that was printed in pieces.
    fn flush_pieces(&mut self) {
        let thinking = std::mem::take(&mut self.thinking);
        if !thinking.trim().is_empty() {
            self.builder.add_reasoning(thinking.trim());
        }
        let text = std::mem::take(&mut self.pieces);
        self.builder.add_text(&text);
    }

    /// Adds a message, or with `--stream-partial-output` a piece of one: pieces have a time and no model call, and
    /// the whole message follows them.
    fn add_text(&mut self, event: &Json, at: Option<&str>) {
        let text = join_part_texts(&event["message"]["content"], &["text"], "");
        if text.is_empty() || self.pieces == text {
            return;
        }
        let model_call = text_field(event, "model_call_id");
        if model_call.is_none() && at.is_some() {
            if self.pieces.is_empty() {
                self.flush_pieces();
                self.begin_reply_if_new(None, at);
            }
            self.pieces.push_str(&text);
            return;
        }
        self.flush_pieces();
        self.begin_reply_if_new(model_call, at);
        self.builder.add_text(&text);
    }

    fn read_call(&mut self, event: &Json, at: Option<&str>) {
        let Some(id) = text_field(event, "call_id") else { return };
        let Some((kind, call)) = event["tool_call"].as_object().and_then(|calls| {
            // Details about the call may be in the same object.
            calls.iter().find(|(kind, call)| call.is_object() && (kind.ends_with("ToolCall") || *kind == "function"))
        }) else {
            return;
        };
        let (name, arguments) = tool_and_arguments(kind, call);
        let is_known = match event["subtype"].as_str() {
            Some("started") => self.builder.has_open_call(id),
            _ => self.builder.find_repeated_step(id, arguments.as_ref()).is_some(),
        };
        if !is_known {
            self.flush_pieces();
            self.begin_reply_if_new(text_field(event, "model_call_id"), at);
            add_call_or_defect(&mut self.builder, Some(id), name, arguments, at);
        }
        if event["subtype"] == "completed"
            && let Some(result) = call.get("result").filter(|result| !result.is_null())
        {
            let (content, status) = read_result(result);
            self.builder.add_result(&ImportedResult { id: Some(id), content: &content, status, at });
            self.is_reply_over = true;
        }
    }

    fn end_turn(&mut self, event: &Json) {
        self.flush_pieces();
        let usage = &event["usage"];
        if usage.is_object() {
            let cached = count_field(usage, "cacheReadTokens");
            let written = count_field(usage, "cacheWriteTokens");
            let tokens = TokenUsage {
                prompt: count_field(usage, "inputTokens").saturating_add(cached).saturating_add(written),
                completion: count_field(usage, "outputTokens"),
                cached_prompt: cached,
            };
            let cost = usage.get("totalCost").or(usage.get("cost")).and_then(Json::as_f64);
            self.builder.set_usage(tokens, None, cost);
        }
        if is_true_field(event, "is_error") {
            self.builder.fail_turn(text_field(event, "result").unwrap_or(RUN_FAILED));
        }
        self.is_reply_over = true;
    }
}

/// Returns the name of the tool and its arguments.
fn tool_and_arguments<'a>(kind: &'a str, call: &'a Json) -> (Option<&'a str>, Option<ArgumentsText<'a>>) {
    if kind == "function" {
        return (text_field(call, "name"), to_arguments_text(call.get("arguments")));
    }
    (Some(kind), to_arguments_text(call.get("args")))
}

/// Reads the text of a result and how the call ended: `{"success": ...}`, `{"error": ...}`, `{"rejected": ...}`.
fn read_result(result: &Json) -> (String, ResultStatus) {
    for (key, status) in [
        ("rejected", ResultStatus::Denied),
        ("permissionDenied", ResultStatus::Denied),
        ("error", ResultStatus::Error),
        ("failure", ResultStatus::Error),
        ("timeout", ResultStatus::Error),
    ] {
        if let Some(value) = result.get(key) {
            return (outcome_text(value), status);
        }
    }
    let Some(success) = result.get("success") else { return (outcome_text(result), ResultStatus::Success) };
    let has_failed = success["exitCode"].as_i64().is_some_and(|code| code != 0) || is_true_field(success, "isError");
    let status = if has_failed { ResultStatus::Error } else { ResultStatus::Success };
    (outcome_text(success), status)
}

/// Returns what the tool returned: the text of a file, the output of a command, an error message, otherwise the
/// structure.
fn outcome_text(outcome: &Json) -> String {
    if outcome.get("stdout").is_some() {
        let outputs = [text_field(outcome, "stdout"), text_field(outcome, "stderr")];
        return outputs.into_iter().flatten().collect::<Vec<_>>().join("\n");
    }
    match ["content", "errorMessage", "error", "reason"].iter().find_map(|key| outcome.get(key)) {
        Some(content) if content.is_string() || content.is_array() => content_text(content.clone()),
        _ => content_text(outcome.clone()),
    }
}
