//! goose: sessions as JSON lines (a line about the session, then messages), and what `goose run --output-format
//! stream-json` prints, where a message comes in pieces with the same id.

use gradus_core::trajectory::{RUN_FAILED, TokenUsage};
use serde_json::Value as Json;

use super::record_helpers::{add_call_or_defect, add_result_or_defect, parse_record, to_arguments_text};
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, is_true_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedResult, ResultStatus};

const AGENT_NAME: &str = "goose";

/// Whether the records are those of goose.
pub(crate) fn is_goose_session(records: &[Json]) -> bool {
    let has_content = |message: &Json| {
        matches!(message["role"].as_str(), Some("user" | "assistant"))
            && message["created"].is_number()
            && message["content"].as_array().is_some_and(|items| items.iter().all(|item| item["type"].is_string()))
    };
    let is_first = |record: &Json| record["working_dir"].is_string() && record.get("message_count").is_some();
    let is_printed = |record: &Json| record["type"] == "message" && has_content(&record["message"]);
    records.iter().any(is_printed)
        || records.iter().any(is_first) && (records.len() == 1 || records.iter().any(has_content))
}

pub(crate) fn open_goose_session() -> Box<dyn SessionReader> {
    Box::new(GooseReader::default())
}

#[derive(Default)]
struct GooseReader {
    builder: SessionBuilder,
    message_id: Option<String>,
    /// The pieces of the text of a message.
    text: String,
    thinking: String,
}

impl SessionReader for GooseReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(record) = parse_record(record, "a goose session", sink) else {
            return self.builder.mark_unreadable_record();
        };
        self.builder.set_agent(AGENT_NAME, None);
        if let Some(folder) = text_field(&record, "working_dir") {
            self.builder.set_project(folder);
            return;
        }
        match record["type"].as_str() {
            Some("message") => self.read_message(&record["message"], sink),
            Some("complete") => {
                let tokens = TokenUsage {
                    prompt: count_field(&record, "input_tokens"),
                    completion: count_field(&record, "output_tokens"),
                    ..TokenUsage::default()
                };
                self.flush_pieces();
                if self.builder.has_turn() && tokens.total() > 0 {
                    self.builder.set_usage(tokens, None, None);
                }
            }
            Some("error") => {
                self.flush_pieces();
                self.builder.fail_turn(text_field(&record, "error").unwrap_or(RUN_FAILED));
            }
            None if record["role"].is_string() => self.read_message(&record, sink),
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        self.flush_pieces();
        self.builder.finish(sink);
    }
}

impl GooseReader {
    fn read_message(&mut self, message: &Json, sink: &mut dyn ImportSink) {
        let at = message.get("created").and_then(normalize_timestamp);
        let at = at.as_deref();
        let items = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let id = text_field(message, "id");
        let is_same = id.is_some() && self.message_id.as_deref() == id;
        if message["role"] == "user" {
            self.flush_pieces();
            let mut request = Vec::new();
            for item in items {
                match item["type"].as_str() {
                    Some("text") => request.extend(text_field(item, "text")),
                    Some("toolResponse") => self.add_result(item, at, sink),
                    _ => {}
                }
            }
            if !request.is_empty() {
                self.builder.begin_turn(&request.join("\n"), at, sink);
            }
            self.message_id = None;
            return;
        }
        if !is_same {
            self.flush_pieces();
            self.builder.begin_reply(at);
            self.message_id = id.map(str::to_owned);
        }
        for item in items {
            match item["type"].as_str() {
                Some("text") => self.text.push_str(text_field(item, "text").unwrap_or_default()),
                Some("thinking") => {
                    let thinking = text_field(item, "thinking").or(text_field(item, "text"));
                    self.thinking.push_str(thinking.unwrap_or_default());
                }
                Some("toolRequest") => {
                    let call = &item["toolCall"]["value"];
                    let arguments = to_arguments_text(call.get("arguments"));
                    add_call_or_defect(
                        &mut self.builder,
                        text_field(item, "id"),
                        text_field(call, "name"),
                        arguments,
                        at,
                    );
                }
                // Tools that ran at the provider answer in the same message.
                Some("toolResponse") => self.add_result(item, at, sink),
                _ => {}
            }
        }
    }

    fn flush_pieces(&mut self) {
        self.builder.add_reasoning(&std::mem::take(&mut self.thinking));
        self.builder.add_text(&std::mem::take(&mut self.text));
    }

    fn add_result(&mut self, item: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let result = &item["toolResult"];
        let value = &result["value"];
        let (content, has_failed) = match result["status"].as_str() {
            Some("error") => (text_field(result, "error").unwrap_or("error").to_owned(), true),
            _ => (content_text(value.get("content").unwrap_or(value).clone()), is_true_field(value, "isError")),
        };
        let is_denied = content.contains("The user has declined to run this tool");
        let status = match (is_denied, has_failed) {
            (true, _) => ResultStatus::Denied,
            (false, true) => ResultStatus::Error,
            (false, false) => ResultStatus::Success,
        };
        let result = ImportedResult { id: text_field(item, "id"), content: &content, status, at };
        add_result_or_defect(&mut self.builder, &result, sink);
    }
}
