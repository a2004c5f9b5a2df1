//! Logs of AutoGen and AG2. AgentChat (0.4 and later) records typed messages and events; the older chat history records
//! chat messages with the `name` of the agent that sent them. The SQLite log of the older versions is not read.

use serde_json::{Map, Value as Json};
use xxhash_rust::xxh3::Xxh3;

use super::autogen_chat::ChatHistoryReader;
use super::autogen_events::AgentChatReader;
use super::harness_chat::{add_outcome, content_id, first_elements, has_list, object_to_value};
use crate::format_kinds::SessionReader;
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::text_field;
use crate::session_builder::SessionBuilder;

/// Types of AgentChat's messages that no other format has.
const TYPED_MESSAGES: [&str; 9] = [
    "TextMessage",
    "MultiModalMessage",
    "ToolCallRequestEvent",
    "ToolCallExecutionEvent",
    "ToolCallSummaryMessage",
    "ThoughtEvent",
    "HandoffMessage",
    "StopMessage",
    "SelectSpeakerEvent",
];
/// Number of first records by which a format is recognised.
const RECOGNITION_RECORDS: usize = 20;
/// Keys that hold the chat history, in what AG2 and the studies of its logs write.
const HISTORY_KEYS: [&str; 4] = ["chat_history", "messages", "trajectory", "history"];
/// Results that such logs state about the whole chat.
const OUTCOME_KEYS: [&str; 3] = ["correct", "is_correct", "is_corrected"];

/// Whether the first records of a list or file are messages of AgentChat.
pub(crate) fn is_agent_chat(records: &[Json]) -> bool {
    let is_message = |record: &Json| {
        text_field(record, "type").is_some_and(|kind| kind.ends_with("Message") || kind.ends_with("Event"))
            && record.get("source").is_some_and(Json::is_string)
    };
    let is_known = |record: &Json| {
        text_field(record, "type").is_some_and(|kind| TYPED_MESSAGES.contains(&kind)) && record.get("content").is_some()
    };
    // The last element of a printed stream is the task's result, which has no type.
    let messages = records.iter().filter(|record| record.get("type").is_some());
    let (mut all, mut known) = (true, 0);
    for record in messages {
        all &= is_message(record);
        known += usize::from(is_known(record));
    }
    all && known >= 2
}

/// Whether the first records of a list are a chat history: senders have names, and something was called or run.
pub(crate) fn is_chat_history(records: &[Json]) -> bool {
    let is_message = |record: &Json| {
        record.get("role").is_some_and(Json::is_string) && record.as_object().is_some_and(|r| r.contains_key("content"))
    };
    let named = records.iter().filter(|record| text_field(record, "name").is_some()).count();
    let has_action = |record: &Json| {
        has_tool_responses(record)
            || (text_field(record, "name").is_some()
                && record.get("function_call").is_some_and(|call| call.get("name").is_some()))
            || (text_field(record, "name").is_some() && ChatHistoryReader::is_execution_result(record))
    };
    records.len() >= 2 && named * 2 >= records.len() && records.iter().all(is_message) && records.iter().any(has_action)
}

fn has_tool_responses(record: &Json) -> bool {
    let responses = record.get("tool_responses").and_then(Json::as_array);
    responses.is_some_and(|responses| responses.iter().any(|response| response.get("tool_call_id").is_some()))
}

/// Whether an object is the result of a task: its messages and why it stopped.
pub(crate) fn is_task_result(object: &Map<String, Json>) -> bool {
    object.contains_key("stop_reason") && is_agent_chat(first_elements(object, "messages", RECOGNITION_RECORDS))
}

pub(crate) fn read_task_result(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let mut reader = AgentChatReader::new(content_id("autogen", &document));
    let Some(Json::Array(messages)) = document.get_mut("messages").map(Json::take) else {
        return Err(ImportError::new("AutoGen task result: `messages` is not a list"));
    };
    for message in messages {
        reader.read_message(message, sink);
    }
    reader.finish(sink);
    Ok(())
}

/// Whether an object is a chat with its history under one of the known keys. The senders must be named: other chats
/// have the same keys.
pub(crate) fn is_chat_document(object: &Map<String, Json>) -> bool {
    let Some(key) = HISTORY_KEYS.iter().find(|key| has_list(object, key)) else { return false };
    let messages = first_elements(object, key, RECOGNITION_RECORDS);
    let has_context = ["summary", "cost", "chat_id", "problem_statement", "question", "mistake_agent", "human_input"]
        .iter()
        .any(|key| object.contains_key(*key));
    let is_named = |message: &Json| {
        text_field(message, "name").is_some()
            && message.get("role").is_some_and(Json::is_string)
            && message.get("content").is_some()
    };
    has_context && (is_chat_history(messages) || (messages.len() >= 2 && messages.iter().all(is_named)))
}

pub(crate) fn read_chat_document(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let id = ["instance_id", "question_ID"].iter().find_map(|key| text_field(&document, key)).unwrap_or("autogen");
    let mut reader = ChatHistoryReader::new(content_id(id, &document));
    let key = HISTORY_KEYS.iter().find(|key| document.get(**key).is_some_and(Json::is_array));
    let Some(Json::Array(messages)) = key.and_then(|key| document.get_mut(*key)).map(Json::take) else {
        return Err(ImportError::new("AutoGen chat: no list of messages"));
    };
    for message in messages {
        reader.read_message(message, sink);
    }
    let add_outcomes = |session: &mut SessionBuilder| {
        for holder in [Some(&document), document.get("other_data")].into_iter().flatten() {
            OUTCOME_KEYS.iter().for_each(|key| add_outcome(session, holder, key));
        }
    };
    reader.finish_with(add_outcomes, sink);
    Ok(())
}

/// Whether an object is the saved state of a team or an agent, from which it can be resumed.
pub(crate) fn is_saved_state(object: &Map<String, Json>) -> bool {
    let kind = object.get("type").and_then(Json::as_str).unwrap_or_default();
    kind.ends_with("State")
        && object.contains_key("version")
        && object
            .keys()
            .any(|key| matches!(key.as_str(), "agent_states" | "llm_context" | "inner_team_state" | "message_thread"))
}

/// Whether an object is a line of the event log of the core: a call of a model or a tool.
pub(crate) fn is_event_log_record(object: &Map<String, Json>) -> bool {
    let has_all = |keys: &[&str]| keys.iter().all(|key| object.contains_key(*key));
    match object.get("type").and_then(Json::as_str).unwrap_or_default() {
        "LLMCall" => has_all(&["messages", "response", "prompt_tokens"]),
        "ToolCall" => has_all(&["tool_name", "arguments", "result"]),
        _ => false,
    }
}

/// Reads a list or file of AgentChat's messages.
#[derive(Default)]
pub(crate) struct AgentChatListReader {
    chat: AgentChatReader,
    id: FirstRecordsId,
}

impl AgentChatListReader {
    pub(crate) fn open() -> Box<dyn SessionReader> {
        Box::new(AgentChatListReader::default())
    }
}

impl SessionReader for AgentChatListReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        self.id.update(record, self.chat.session_mut());
        match serde_json::from_slice(record) {
            Ok(message) => self.chat.read_message(message, sink),
            Err(error) => sink.report_bad_record(&format!("AutoGen message is not JSON: {error}")),
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.chat.finish(sink);
    }
}

/// Reads a list of chat messages.
#[derive(Default)]
pub(crate) struct ChatHistoryListReader {
    chat: ChatHistoryReader,
    id: FirstRecordsId,
}

impl ChatHistoryListReader {
    pub(crate) fn open() -> Box<dyn SessionReader> {
        Box::new(ChatHistoryListReader::default())
    }
}

impl SessionReader for ChatHistoryListReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        self.id.update(record, self.chat.session_mut());
        match serde_json::from_slice(record) {
            Ok(message) => self.chat.read_message(message, sink),
            Err(error) => sink.report_bad_record(&format!("AutoGen message is not JSON: {error}")),
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.chat.finish_with(|_| {}, sink);
    }
}

/// An id from the first records, because it must be known before the first turn is handed over.
#[derive(Default)]
struct FirstRecordsId {
    hasher: Xxh3,
    records: usize,
}

impl FirstRecordsId {
    fn update(&mut self, record: &[u8], session: &mut SessionBuilder) {
        self.records += 1;
        if self.records <= RECOGNITION_RECORDS {
            self.hasher.update(record);
            session.set_session_id(&format!("autogen-{:016x}", self.hasher.digest()));
        }
    }
}
