//! What `gemini --output-format stream-json` prints. Replies come in pieces, calls and results are records of their
//! own, and the tokens are known only for the whole run. Reasoning is not printed.
//!
//! Harnesses put the request that they were given before the first record, in the same form.

use gradus_core::trajectory::{RUN_FAILED, TokenUsage};
use serde_json::Value as Json;

use super::gemini_cli::{AGENT_NAME, failure_status, is_session_context};
use super::record_helpers::{add_call_or_defect, add_result_or_defect, parse_record, to_arguments_text};
use super::record_text::normalize_recorded_time;
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedResult, ResultStatus};

/// Whether the records are Gemini CLI's stream JSON. Other tools have records of these types with other keys.
pub(crate) fn is_gemini_stream(records: &[Json]) -> bool {
    records.iter().any(|record| match record["type"].as_str() {
        Some("init") => {
            record["session_id"].is_string()
                && record["model"].is_string()
                && record["timestamp"].is_string()
                && ["subtype", "tools", "cwd"].iter().all(|key| record.get(key).is_none())
        }
        Some("tool_use") => {
            record["tool_name"].is_string() && record["tool_id"].is_string() && record["parameters"].is_object()
        }
        _ => false,
    })
}

pub(crate) fn open_gemini_stream() -> Box<dyn SessionReader> {
    Box::new(GeminiStreamReader::default())
}

#[derive(Default)]
struct GeminiStreamReader {
    builder: SessionBuilder,
    session_id: String,
    /// A request that is held, because the session that it belongs to may begin after it.
    request: Option<HeldRequest>,
    /// Text that is printed in pieces.
    pieces: String,
    /// Whether a result came, so that what the model writes next is a new reply.
    is_reply_over: bool,
    /// Whether the run has ended. What follows without a request is a turn of its own.
    is_turn_over: bool,
    /// An error after the last output of the model.
    error: Option<String>,
}

#[derive(Default)]
struct HeldRequest {
    text: String,
    at: Option<String>,
}

impl SessionReader for GeminiStreamReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(event) = parse_record(record, "Gemini CLI's stream JSON", sink) else {
            return self.builder.mark_unreadable_record();
        };
        let at = normalize_recorded_time(text_field(&event, "timestamp"));
        let at = at.as_deref();
        match event["type"].as_str().unwrap_or_default() {
            "init" => self.switch_session(&event, sink),
            "message" => match event["role"].as_str() {
                Some("user") => self.hold_request(&event, at),
                Some("assistant") => self.add_text(&event, at, sink),
                _ => sink.report_bad_record("a message of an unknown role"),
            },
            "tool_use" => {
                self.begin_reply_if_new(at, sink);
                self.flush_pieces();
                let (id, name) = (text_field(&event, "tool_id"), text_field(&event, "tool_name"));
                add_call_or_defect(&mut self.builder, id, name, to_arguments_text(event.get("parameters")), at);
            }
            "tool_result" => self.read_result(&event, at, sink),
            // Warnings are for the user; the run goes on.
            "error" if event["severity"] == "error" => {
                self.begin_turn(sink);
                self.error = text_field(&event, "message").map(str::to_owned);
            }
            "result" => self.end_run(&event, sink),
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        self.end_session(sink);
    }
}

impl GeminiStreamReader {
    fn switch_session(&mut self, event: &Json, sink: &mut dyn ImportSink) {
        if let Some(id) = text_field(event, "session_id").filter(|id| *id != self.session_id) {
            if !self.session_id.is_empty() {
                let request = self.request.take();
                self.end_session(sink);
                self.request = request;
            }
            id.clone_into(&mut self.session_id);
            self.builder.set_session_id(id);
        }
        self.builder.set_agent(AGENT_NAME, None);
        if let Some(model) = text_field(event, "model") {
            self.builder.set_model(model);
        }
    }

    fn hold_request(&mut self, event: &Json, at: Option<&str>) {
        let text = join_part_texts(&event["content"], &["text"], "\n");
        if text.trim().is_empty() || is_session_context(&text) {
            return;
        }
        let request = self.request.get_or_insert_default();
        if !request.text.is_empty() {
            request.text.push('\n');
        }
        request.text.push_str(text.trim());
        request.at = request.at.take().or(at.map(str::to_owned));
    }

    /// Begins the turn of the request that is held. Without one, only what follows the end of a run begins a turn.
    fn begin_turn(&mut self, sink: &mut dyn ImportSink) {
        let is_turn_over = std::mem::take(&mut self.is_turn_over);
        let request = match self.request.take() {
            Some(request) => request,
            None if is_turn_over => HeldRequest::default(),
            None => return,
        };
        self.end_turn();
        self.builder.begin_turn(&request.text, request.at.as_deref(), sink);
        self.is_reply_over = false;
    }

    fn begin_reply_if_new(&mut self, at: Option<&str>, sink: &mut dyn ImportSink) {
        self.begin_turn(sink);
        self.error = None;
        if std::mem::take(&mut self.is_reply_over) {
            self.builder.begin_reply(at);
        }
    }

    fn add_text(&mut self, event: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        self.begin_reply_if_new(at, sink);
        if event["delta"] != true {
            self.flush_pieces();
        }
        self.pieces.push_str(&join_part_texts(&event["content"], &["text"], ""));
    }

    /// Adds the text that was printed in pieces.
    fn flush_pieces(&mut self) {
        let text = std::mem::take(&mut self.pieces);
        self.builder.add_text(&text);
    }

    fn read_result(&mut self, event: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        self.begin_turn(sink);
        let output = event.get("output").filter(|output| !output.is_null());
        let message = text_field(&event["error"], "message");
        // What the tool displays is left out for most successful calls, and repeats the error of the others.
        let content = match output {
            Some(output) => content_text(output.clone()),
            None => message.unwrap_or_default().to_owned(),
        };
        let status = match event["status"].as_str() {
            Some("error") => failure_status(&content),
            _ => ResultStatus::Success,
        };
        self.flush_pieces();
        let result = ImportedResult { id: text_field(event, "tool_id"), content: &content, status, at };
        add_result_or_defect(&mut self.builder, &result, sink);
        self.is_reply_over = true;
    }

    /// Reads the end of a run: its tokens, and how it ended.
    fn end_run(&mut self, event: &Json, sink: &mut dyn ImportSink) {
        self.begin_turn(sink);
        self.flush_pieces();
        let stats = &event["stats"];
        if stats.is_object() {
            if std::mem::take(&mut self.is_reply_over) {
                // The tokens are those of the run, not of its last call.
                self.builder.begin_reply(None);
            }
            let (prompt, output) = (count_field(stats, "input_tokens"), count_field(stats, "output_tokens"));
            // The rest of the total are thoughts, which count as output.
            let completion = count_field(stats, "total_tokens").saturating_sub(prompt).max(output);
            let tokens = TokenUsage { prompt, completion, cached_prompt: count_field(stats, "cached") };
            self.builder.set_usage(tokens, None, None);
        }
        if event["status"] == "error" {
            let message = text_field(&event["error"], "message").map(str::to_owned);
            self.error = message.or(self.error.take()).or(Some(RUN_FAILED.to_owned()));
        }
        self.end_turn();
        self.is_turn_over = true;
    }

    fn end_turn(&mut self) {
        self.flush_pieces();
        if let Some(error) = self.error.take()
            && self.builder.has_turn()
        {
            self.builder.begin_reply(None);
            self.builder.fail_turn(&error);
        }
    }

    fn end_session(&mut self, sink: &mut dyn ImportSink) {
        if self.request.is_some() {
            self.begin_turn(sink);
        }
        self.end_turn();
        std::mem::take(&mut self.builder).finish(sink);
        (self.is_reply_over, self.is_turn_over) = (false, false);
    }
}
