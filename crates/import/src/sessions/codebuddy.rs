//! CodeBuddy Code sessions (and WorkBuddy's, which are the same): `projects/<folder>/<session>.jsonl`. They are laid out
//! as those of Claude Code, and their lines are the items of the OpenAI Agents SDK for JavaScript, with the id and the
//! folder of the session. There is no specification; this follows what public readers of these files expect.

use gradus_core::trajectory::TokenUsage;
use serde_json::Value as Json;

use super::claude_conversation::ClaudeConversation;
use super::claude_requests::classify_result;
use super::record_helpers::{add_call_or_defect, add_result_or_defect, parse_record, to_arguments_text};
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, is_true_field, join_part_texts, text_field};
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedResult, ResultStatus};

const AGENT_NAME: &str = "codebuddy";

/// Whether the records are those of a CodeBuddy session.
pub(crate) fn is_codebuddy_session(records: &[Json]) -> bool {
    records.iter().any(|record| {
        let is_item = match record["type"].as_str() {
            Some("function_call") => record["callId"].is_string() && record["name"].is_string(),
            Some("function_call_result") => record["callId"].is_string(),
            Some("message") => {
                let is_part = |part: &Json| matches!(part["type"].as_str(), Some("input_text" | "output_text"));
                record["role"].is_string()
                    && record["content"].as_array().is_some_and(|parts| parts.iter().any(is_part))
            }
            _ => false,
        };
        // The first versions name neither the session nor times.
        is_item && (record["sessionId"].is_string() || record["providerData"]["agent"].is_string())
    })
}

pub(crate) fn open_codebuddy_session() -> Box<dyn SessionReader> {
    Box::new(CodeBuddyReader::default())
}

#[derive(Default)]
struct CodeBuddyReader {
    /// Texts of the user have the form of Claude Code's.
    conversation: ClaudeConversation,
    has_begun: bool,
    has_session: bool,
    /// Whether a result came, so that what the model writes next is a new reply.
    is_reply_over: bool,
}

impl SessionReader for CodeBuddyReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(record) = parse_record(record, "a CodeBuddy session", sink) else {
            return self.conversation.builder.mark_unreadable_record();
        };
        self.read_session_data(&record);
        let at = record.get("timestamp").and_then(normalize_timestamp);
        let at = at.as_deref();
        match record["type"].as_str() {
            Some("message") if record["role"] == "user" => self.read_user_message(&record, at, sink),
            Some("message") if record["role"] == "assistant" => {
                self.begin_reply_if_new(at, sink);
                self.conversation.builder.add_text(&join_part_texts(&record["content"], &["text"], ""));
                self.set_usage(&record);
            }
            Some("reasoning") => {
                self.begin_reply_if_new(at, sink);
                for parts in [&record["rawContent"], &record["content"]] {
                    self.conversation.builder.add_reasoning(&join_part_texts(parts, &["text"], "\n"));
                }
            }
            Some("function_call") => {
                self.begin_reply_if_new(at, sink);
                let arguments = to_arguments_text(record.get("arguments"));
                let (id, name) = (text_field(&record, "callId"), text_field(&record, "name"));
                add_call_or_defect(&mut self.conversation.builder, id, name, arguments, at);
                self.set_usage(&record);
            }
            Some("function_call_result") => self.read_result(&record, at, sink),
            // Titles, summaries and snapshots of files.
            _ => {}
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.conversation.finish(sink);
    }
}

impl CodeBuddyReader {
    fn read_session_data(&mut self, record: &Json) {
        let builder = &mut self.conversation.builder;
        if !std::mem::replace(&mut self.has_begun, true) {
            builder.set_agent(AGENT_NAME, None);
        }
        if self.has_session {
            return;
        }
        if let Some(id) = text_field(record, "sessionId") {
            builder.set_session_id(id);
            if let Some(folder) = text_field(record, "cwd") {
                builder.set_project(folder);
            }
            self.has_session = true;
        }
    }

    /// Reads a request, or the summary that replaces the conversation.
    fn read_user_message(&mut self, record: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let data = &record["providerData"];
        if is_true_field(data, "isSummary") || is_true_field(data, "isCompacted") {
            let builder = &mut self.conversation.builder;
            if !builder.has_begun() {
                builder.mark_missing_context("the session continues another one, of which only a summary is here");
            }
            return builder.mark_compaction();
        }
        // The request to write a summary.
        if text_field(data, "agent") == Some("compact") {
            return;
        }
        let text = join_part_texts(&record["content"], &["text"], "\n");
        self.conversation.apply_user_texts(&[unwrap_query(&text)], at, sink);
        self.is_reply_over = true;
    }

    fn begin_reply_if_new(&mut self, at: Option<&str>, sink: &mut dyn ImportSink) {
        self.conversation.begin_command_request(sink);
        if std::mem::take(&mut self.is_reply_over) {
            self.conversation.builder.begin_reply(at);
        }
    }

    /// Sets the usage of the reply. Each of its items repeats it.
    fn set_usage(&mut self, record: &Json) {
        let data = &record["providerData"];
        let usage = &data["usage"];
        if usage.get("outputTokens").is_none() {
            return;
        }
        let details = usage["inputTokensDetails"].as_array().into_iter().flatten();
        let tokens = TokenUsage {
            prompt: count_field(usage, "inputTokens"),
            completion: count_field(usage, "outputTokens"),
            cached_prompt: details.map(|detail| count_field(detail, "cached_tokens")).fold(0, u64::saturating_add),
        };
        self.conversation.builder.set_usage(tokens, text_field(data, "model"), None);
    }

    fn read_result(&mut self, record: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let output = &record["output"];
        let content = match output {
            Json::Array(_) => join_part_texts(output, &["text"], "\n"),
            Json::Object(part) if part.get("text").is_some() => join_part_texts(output, &["text"], "\n"),
            other => content_text(other.clone()),
        };
        let error = &record["providerData"]["error"];
        let has_failed = matches!(record["status"].as_str(), Some("incomplete" | "failed" | "error"))
            || !error.is_null() && *error != Json::Bool(false);
        let status = match has_failed {
            true => classify_result(true, &content, None),
            false => ResultStatus::Success,
        };
        let result = ImportedResult { id: text_field(record, "callId"), content: &content, status, at };
        add_result_or_defect(&mut self.conversation.builder, &result, sink);
        self.is_reply_over = true;
    }
}

/// Returns what the user wrote, if the program put its own text in front of it.
fn unwrap_query(text: &str) -> &str {
    let (open, close) = ("<user_query>", "</user_query>");
    let query = text.trim_end().strip_suffix(close).and_then(|text| Some(text.split_once(open)?.1));
    query.map_or(text, str::trim)
}
