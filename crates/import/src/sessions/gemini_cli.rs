//! Gemini CLI sessions (`packages/core/src/services/chatRecordingService.ts`): `chats/session-<time>-<id>.jsonl`, whose
//! records add, replace and take back messages, and before version 0.40 one `.json` with all messages.

use std::collections::{HashMap, VecDeque};

use gradus_core::trajectory::TokenUsage;
use serde_json::{Map, Value as Json, json};

use super::record_helpers::{add_call_or_defect, parse_record, to_arguments_text};
use super::record_text::normalize_recorded_time;
use crate::format_kinds::SessionReader;
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{content_text, count_field, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedResult, ResultStatus};

pub(crate) const AGENT_NAME: &str = "gemini-cli";
/// Maximum size of the messages that are held, because a later record can replace or take them back, in bytes.
const MAX_HELD_MESSAGE_BYTES: usize = 64 << 20;
/// The type of the entry that is held in place of a record that could not be read. No message has it.
const UNREADABLE: &str = "$unreadable";
/// Prefix of errors of the field in which the user types the next request. They do not end a run.
const PROMPT_EDITOR_PREFIX: &str = "[useTextBuffer]";

/// Whether the records are those of a Gemini CLI session.
pub(crate) fn is_gemini_session(records: &[Json]) -> bool {
    let is_metadata = |record: &Json| {
        record["sessionId"].is_string() && record["projectHash"].is_string() && record.get("messages").is_none()
    };
    let is_message =
        |record: &Json| record["type"] == "gemini" && record["id"].is_string() && record.get("timestamp").is_some();
    records.iter().any(|record| is_metadata(record) || is_message(record))
}

/// Whether an object is a Gemini CLI session of an older version.
pub(crate) fn is_gemini_document(object: &Map<String, Json>) -> bool {
    let has = |key: &str| object.get(key).is_some_and(Json::is_string);
    let is_message = |message: &Json| {
        matches!(message["type"].as_str(), Some("user" | "gemini"))
            && message["id"].is_string()
            && message.get("content").is_some()
    };
    has("sessionId")
        && (has("projectHash") || has("startTime") && has("lastUpdated"))
        && object
            .get("messages")
            .and_then(Json::as_array)
            .is_some_and(|messages| messages.is_empty() || messages.iter().any(is_message))
}

pub(crate) fn open_gemini_session() -> Box<dyn SessionReader> {
    Box::new(GeminiReader::default())
}

/// Reads a session of an older version.
pub(crate) fn read_gemini_document(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut reader = GeminiReader::default();
    let mut metadata = Json::Object(object);
    let messages = metadata["messages"].take();
    reader.read_metadata(&metadata);
    for message in messages.as_array().into_iter().flatten() {
        reader.conversation.add_message(message, sink);
    }
    reader.conversation.finish(sink);
    Ok(())
}

#[derive(Default)]
struct GeminiReader {
    conversation: GeminiConversation,
    messages: HeldMessages,
}

/// Messages that can still be replaced, as JSON: parsed they take many times their size.
#[derive(Default)]
struct HeldMessages {
    messages: VecDeque<(String, String)>,
    /// The number of each message since the beginning.
    numbers: HashMap<String, usize>,
    first_number: usize,
    bytes: usize,
}

impl SessionReader for GeminiReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(record) = parse_record(record, "a Gemini CLI session", sink) else {
            return self.messages.hold_unreadable();
        };
        if let Some(id) = record["$rewindTo"].as_str() {
            if !self.messages.rewind(id) {
                sink.report_bad_record("the conversation was taken back further than messages are held");
            }
        } else if record["$set"].is_object() {
            self.read_metadata(&record["$set"]);
            if let Some(messages) = record["$set"]["messages"].as_array() {
                self.messages.rewind("");
                for message in messages {
                    self.messages.add_or_replace(message);
                }
            }
        } else if record["type"] == "message_update" {
            self.messages.update(&record, sink);
        } else if record["type"].is_string() && record["id"].is_string() {
            self.messages.add_or_replace(&record);
        } else if record.get("sessionId").is_some() {
            self.read_metadata(&record);
        } else {
            sink.report_bad_record("a record that is neither a message nor a change");
        }
        while self.messages.bytes > MAX_HELD_MESSAGE_BYTES
            && let Some(message) = self.messages.take_oldest()
        {
            self.conversation.add_message(&message, sink);
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        while let Some(message) = self.messages.take_oldest() {
            self.conversation.add_message(&message, sink);
        }
        self.conversation.finish(sink);
    }
}

impl GeminiReader {
    fn read_metadata(&mut self, metadata: &Json) {
        let builder = &mut self.conversation.builder;
        if let Some(id) = text_field(metadata, "sessionId") {
            builder.set_session_id(id);
            builder.set_agent(AGENT_NAME, None);
            if metadata["kind"] == "subagent" {
                // The call in the parent names the subagent by the same id.
                builder.set_started_as(id.to_owned());
            }
        }
        if let Some(folder) = metadata["directories"].get(0).and_then(Json::as_str) {
            builder.set_project(folder);
        }
    }
}

impl HeldMessages {
    /// Adds a message, or replaces the one of the same id.
    fn add_or_replace(&mut self, message: &Json) {
        let Some(id) = text_field(message, "id").map(str::to_owned) else { return };
        let text = message.to_string();
        self.bytes += text.len();
        match self.position(&id) {
            Some(position) => {
                let old = std::mem::replace(&mut self.messages[position].1, text);
                self.bytes -= old.len();
            }
            None => {
                self.numbers.insert(id.clone(), self.first_number + self.messages.len());
                self.messages.push_back((id, text));
            }
        }
    }

    /// Holds an entry in place of a record that could not be read, because messages become turns much later.
    fn hold_unreadable(&mut self) {
        let id = format!("{UNREADABLE} {}", self.first_number + self.messages.len());
        self.add_or_replace(&json!({"type": UNREADABLE, "id": id}));
    }

    fn update(&mut self, update: &Json, sink: &mut dyn ImportSink) {
        let position = text_field(update, "id").and_then(|id| self.position(id));
        let message = position.and_then(|position| serde_json::from_str::<Json>(&self.messages[position].1).ok());
        let Some(Json::Object(mut message)) = message else {
            return sink.report_bad_record("a change of a message that is not held");
        };
        for (key, value) in update.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "type" | "id") {
                message.insert(key.clone(), value.clone());
            }
        }
        self.add_or_replace(&Json::Object(message));
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.numbers.get(id)?.checked_sub(self.first_number)
    }

    /// Drops a message and all after it; all messages if it is unknown. Returns `false` if some are no longer held.
    fn rewind(&mut self, id: &str) -> bool {
        let position = self.position(id);
        while self.messages.len() > position.unwrap_or_default()
            && let Some((id, text)) = self.messages.pop_back()
        {
            self.numbers.remove(&id);
            self.bytes -= text.len();
        }
        position.is_some() || self.first_number == 0
    }

    fn take_oldest(&mut self) -> Option<Json> {
        let (id, text) = self.messages.pop_front()?;
        self.bytes -= text.len();
        self.first_number += 1;
        self.numbers.remove(&id);
        serde_json::from_str(&text).ok()
    }
}

/// The messages that are final.
#[derive(Default)]
struct GeminiConversation {
    builder: SessionBuilder,
    /// An error after the last reply.
    error: Option<String>,
}

impl GeminiConversation {
    fn add_message(&mut self, message: &Json, sink: &mut dyn ImportSink) {
        let at = normalize_recorded_time(text_field(message, "timestamp"));
        let at = at.as_deref();
        match message["type"].as_str() {
            Some("user") => {
                // What is displayed is what the user typed, before files were put in.
                let shown =
                    Some(join_part_texts(&message["displayContent"], &["text"], "\n")).filter(|text| !text.is_empty());
                let text = shown.unwrap_or_else(|| join_part_texts(&message["content"], &["text"], "\n"));
                if !text.trim().is_empty() && !is_session_context(&text) {
                    self.end_in_error();
                    self.builder.begin_turn(&text, at, sink);
                }
            }
            Some("gemini") => self.add_reply(message, at),
            Some("error") => {
                let error = join_part_texts(&message["content"], &["text"], "\n");
                if !error.trim_start().starts_with(PROMPT_EDITOR_PREFIX) {
                    self.error = Some(error);
                }
            }
            Some("info" | "warning") => {}
            Some(UNREADABLE) => self.builder.mark_unreadable_record(),
            _ => sink.report_bad_record("a message of an unknown type"),
        }
    }

    fn add_reply(&mut self, message: &Json, at: Option<&str>) {
        self.error = None;
        let builder = &mut self.builder;
        builder.begin_reply(at);
        if let Some(model) = text_field(message, "model") {
            builder.set_model(model);
        }
        for thought in message["thoughts"].as_array().into_iter().flatten() {
            let part = |key: &str| text_field(thought, key);
            match (part("subject"), part("description").or(part("text"))) {
                (Some(subject), Some(description)) => builder.add_reasoning(&format!("{subject}: {description}")),
                (subject, description) => builder.add_reasoning(description.or(subject).unwrap_or_default()),
            }
        }
        builder.add_text(&join_part_texts(&message["content"], &["text"], ""));
        let calls = message["toolCalls"].as_array().map(Vec::as_slice).unwrap_or_default();
        for call in calls {
            let (id, name) = (text_field(call, "id"), text_field(call, "name"));
            let at = normalize_recorded_time(text_field(call, "timestamp"));
            add_call_or_defect(builder, id, name, to_arguments_text(call.get("args")), None);
            if let Some(result) = call_result(call) {
                let status = result_status(call, &result);
                builder.add_result(&ImportedResult { id, content: &result, status, at: at.as_deref() });
            }
            if let (Some(call_id), Some(agent_id)) = (id, text_field(call, "agentId")) {
                builder.add_subagent(call_id, agent_id.to_owned());
            }
        }
        let tokens = &message["tokens"];
        if tokens.is_object() {
            let usage = TokenUsage {
                prompt: count_field(tokens, "input").saturating_add(count_field(tokens, "tool")),
                completion: count_field(tokens, "output").saturating_add(count_field(tokens, "thoughts")),
                cached_prompt: count_field(tokens, "cached"),
            };
            builder.set_usage(usage, text_field(message, "model"), None);
        }
    }

    fn end_in_error(&mut self) {
        if let Some(error) = self.error.take()
            && self.builder.has_turn()
        {
            self.builder.begin_reply(None);
            self.builder.fail_turn(&error);
        }
    }

    fn finish(mut self, sink: &mut dyn ImportSink) {
        self.end_in_error();
        self.builder.finish(sink);
    }
}

/// Returns the result as the model got it; `None` if it is not recorded.
fn call_result(call: &Json) -> Option<String> {
    match call.get("result")? {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => {
            let texts: Vec<String> = parts.iter().filter_map(part_result).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        part => part_result(part),
    }
}

fn part_result(part: &Json) -> Option<String> {
    if let Some(response) = part["functionResponse"].get("response") {
        // `{"error": ...}` alone, too: the model saw the text in it.
        let inner = response.get("output").or_else(|| response.get("error"));
        return Some(content_text(inner.unwrap_or(response).clone()));
    }
    part.as_str().or_else(|| text_field(part, "text")).map(str::to_owned)
}

fn result_status(call: &Json, result: &str) -> ResultStatus {
    match call["status"].as_str() {
        Some("cancelled" | "error") => failure_status(result),
        _ => ResultStatus::Success,
    }
}

/// Whether a call failed or was not allowed to run, from its result.
pub(crate) fn failure_status(result: &str) -> ResultStatus {
    let is_denial = ["User denied execution", "did not allow", "denied by policy", "User did not approve"]
        .iter()
        .any(|denial| result.contains(denial));
    if is_denial { ResultStatus::Denied } else { ResultStatus::Error }
}

/// Whether a text of the user is the context that the program sends before a conversation, and nothing else.
pub(crate) fn is_session_context(text: &str) -> bool {
    const END: &str = "</session_context>";
    let inside = text.trim().strip_prefix("<session_context>").and_then(|rest| rest.strip_suffix(END));
    inside.is_some_and(|context| !context.contains(END))
}
