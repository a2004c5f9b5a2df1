//! Recognises what a JSON document is: an OTLP export, Phoenix spans, a nested dump of spans, a message list, or our
//! own line format. Decided by the keys of the document, never by file names.

use crate::records::FoundRecord;

use gradus_core::message::{ChatMessage, messages_from_json};
use gradus_core::span_json::{is_nested_span, is_phoenix_span, read_nested_spans, read_phoenix_span};
use gradus_core::trajectory::Trajectory;
use gradus_otlp::{JsonRecord, is_export_key, read_export_json, span_from_json};
use serde_json::{Map, Value as Json};

use crate::detect::detect_program_log;
use crate::document_error::DocumentError;
use crate::imports;
use crate::intake::RecordIntake;
use crate::intake::documents::DocumentIds;
use crate::unread_tools::{has_unread_tool, lack_tool_parts, names_tool};

/// Messages on lines of their own. Consecutive ones are one conversation, which ends at a line of another kind or
/// with the file.
#[derive(Default)]
pub(crate) struct MessageBuffer {
    messages: Vec<ChatMessage<'static>>,
    digest_of: Vec<u8>,
    /// Whether a line was damaged, or names a tool in a form that is not read.
    has_lost_record: bool,
}

impl MessageBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Records that a line after a message could not be read: a damaged one may have been a message.
    pub(crate) fn note_line_failure(&mut self, failure: &DocumentError) {
        let is_damaged = matches!(failure, DocumentError::Incomplete | DocumentError::Malformed(_));
        self.has_lost_record |= is_damaged && !self.is_empty();
    }

    /// Adds the collected messages as one conversation.
    pub(crate) fn flush(&mut self, intake: &mut RecordIntake<'_>) {
        if !self.messages.is_empty() {
            let MessageBuffer { messages, digest_of, has_lost_record } = std::mem::take(self);
            let ids = DocumentIds { has_lost_record, ..DocumentIds::default() };
            intake.add_messages(&messages, &ids, &digest_of, &[]);
        }
    }
}

/// Beginning of our own lines, as the serialiser writes them. Saves the attempt to parse every document as a
/// trajectory.
const OWN_LINE: &[u8] = b"{\"trajectory_id\":";

/// Adds one complete document. OTLP exports and our own lines, which are the frequent ones, are parsed without building
/// a tree of JSON values first.
pub(crate) fn ingest_document(
    text: &[u8],
    intake: &mut RecordIntake<'_>,
    conversation: &mut MessageBuffer,
) -> Result<(), DocumentError> {
    if begins_like_export(text) {
        return read_export_document(text, &mut |found| intake.add_found_record(found));
    }
    // A document that only begins like one of our own lines is read as any other.
    if text.starts_with(OWN_LINE)
        && let Ok(trajectory) = serde_json::from_slice::<Trajectory>(text)
    {
        intake.add_trajectory(trajectory);
        return Ok(());
    }
    let json: Json = serde_json::from_slice(text)?;
    ingest_json_value(json, text, intake, conversation)
}

/// Whether the first key of a document is that of an OTLP export.
fn begins_like_export(text: &[u8]) -> bool {
    let inside = text.strip_prefix(b"{").unwrap_or_default().trim_ascii_start();
    let key = inside.strip_prefix(b"\"").and_then(|rest| rest.split(|byte| *byte == b'"').next());
    key.and_then(|key| std::str::from_utf8(key).ok()).is_some_and(is_export_key)
}

pub(crate) fn add_export_record(record: JsonRecord, intake: &mut RecordIntake<'_>) {
    pass_export_record(record, &mut |found| intake.add_found_record(found));
}

fn pass_export_record(record: JsonRecord, take: &mut dyn FnMut(FoundRecord<'_>)) {
    match record {
        JsonRecord::Span(span, _) => take(FoundRecord::Span(&span)),
        JsonRecord::Log(log, ..) => take(FoundRecord::Log(&log)),
        JsonRecord::Bad(reason) => take(FoundRecord::Bad(reason)),
    }
}

/// Reads a document that contains spans or log records; `None` if it is anything else. Needs no state, so it can run on
/// any thread.
pub(crate) fn read_span_document(
    text: &[u8],
    take: &mut dyn FnMut(FoundRecord<'_>),
) -> Option<Result<(), DocumentError>> {
    if begins_like_export(text) {
        return Some(read_export_document(text, take));
    }
    if text.starts_with(OWN_LINE) {
        return None;
    }
    match serde_json::from_slice(text) {
        Ok(Json::Object(object)) => take_spans(object, take).ok(),
        Ok(_) => None,
        Err(error) => Some(Err(error.into())),
    }
}

fn read_export_document(text: &[u8], take: &mut dyn FnMut(FoundRecord<'_>)) -> Result<(), DocumentError> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    read_export_json(&mut deserializer, &mut |record| pass_export_record(record, take))?;
    Ok(deserializer.end()?)
}

/// Takes the spans out of an object. `Err` returns the object if it is of another kind.
fn take_spans(
    object: Map<String, Json>,
    take: &mut dyn FnMut(FoundRecord<'_>),
) -> Result<Result<(), DocumentError>, Map<String, Json>> {
    let has = |keys: &[&str]| keys.iter().any(|key| object.contains_key(*key));
    if object.keys().any(|key| is_export_key(key)) {
        let read = read_export_json(Json::Object(object), &mut |record| pass_export_record(record, take));
        return Ok(read.map_err(DocumentError::from));
    }
    if gradus_import::is_foreign_span(&object) {
        return Err(object);
    }
    // Metrics say nothing about steps. A collector's file contains them in addition to traces, so they are no error.
    if has(&["resourceMetrics", "resource_metrics"]) {
        return Ok(Ok(()));
    }
    if is_phoenix_span(&object) {
        take(FoundRecord::Span(&read_phoenix_span(&object)));
        return Ok(Ok(()));
    }
    if is_nested_span(&object) {
        read_nested_spans(&object).iter().for_each(|span| take(FoundRecord::Span(span)));
        return Ok(Ok(()));
    }
    if is_trajectory(&object) || !has(&["spanId", "span_id"]) || !has(&["traceId", "trace_id"]) {
        return Err(object);
    }
    let span = span_from_json(Json::Object(object)).map_err(DocumentError::from);
    Ok(span.map(|span| take(FoundRecord::Span(&span))))
}

/// A line of our own format. ATIF has the same two keys, and a field with its version.
fn is_trajectory(object: &Map<String, Json>) -> bool {
    object.contains_key("trajectory_id") && object.contains_key("steps") && !object.contains_key("schema_version")
}

/// Adds a JSON value of any known kind. Recurses into lists; the depth is bounded by serde_json's limit of 128.
pub(crate) fn ingest_json_value(
    json: Json,
    source: &[u8],
    intake: &mut RecordIntake<'_>,
    conversation: &mut MessageBuffer,
) -> Result<(), DocumentError> {
    match json {
        Json::Array(items) => ingest_json_list(items, intake, conversation),
        Json::Object(object) => self::ingest_json_object(object, source, intake, conversation),
        _ => Err(DocumentError::Unrecognised),
    }
}

/// Adds the elements of a list. All messages of a list are one conversation. An error only if no element is known.
fn ingest_json_list(
    items: Vec<Json>,
    intake: &mut RecordIntake<'_>,
    alone: &mut MessageBuffer,
) -> Result<(), DocumentError> {
    if items.is_empty() {
        return Ok(());
    }
    let (messages, others): (Vec<Json>, Vec<Json>) =
        items.into_iter().partition(|item| item.as_object().is_some_and(is_message));
    let mut unknown = 0;
    let all = others.len();
    for item in others {
        let bytes = item.to_string();
        unknown += usize::from(ingest_json_value(item, bytes.as_bytes(), intake, alone).is_err());
    }
    if messages.is_empty() && unknown == all {
        return Err(DocumentError::Unrecognised);
    }
    if unknown > 0 {
        intake.bad_record(&format!("{unknown} elements of a list are neither spans nor messages"));
    }
    if !messages.is_empty() {
        self::ingest_conversation(messages, intake);
    }
    Ok(())
}

/// Adds a bare list of messages as one conversation.
pub(crate) fn ingest_conversation(messages: Vec<Json>, intake: &mut RecordIntake<'_>) {
    let has_lost_record = messages.iter().any(has_unread_tool);
    let list = Json::Array(messages);
    let source = list.to_string();
    let ids = DocumentIds { is_agent_chat: is_agent_chat(&list), has_lost_record, ..DocumentIds::default() };
    intake.add_messages(&messages_from_json(list), &ids, source.as_bytes(), &[]);
}

/// Whether a list behind these fields is a listing, whose elements are read one by one. Beside the ids of a trace or
/// the columns of a table, the list is a part of one record.
pub(crate) fn is_listing(fields: &Map<String, Json>) -> bool {
    const PART_OF_RECORD: [&str; 6] = ["columns", "info", "traceID", "traceId", "trace_id", "request_id"];
    !is_message(fields) && !PART_OF_RECORD.iter().any(|key| fields.contains_key(*key))
}

/// Whether an object is a message: OpenAI and Anthropic (`role`), LangChain (`type` with `content` or `data`), or an
/// item of OpenAI's Responses API.
pub(crate) fn is_message(object: &Map<String, Json>) -> bool {
    let kind = object.get("type").and_then(Json::as_str).unwrap_or_default();
    (object.contains_key("role") && !object.contains_key("messages"))
        || (matches!(kind, "human" | "ai" | "tool" | "system")
            && (object.contains_key("content") || object.contains_key("data")))
        || matches!(kind, "function_call" | "function_call_output" | "reasoning" | "message")
}

fn ingest_json_object(
    object: Map<String, Json>,
    source: &[u8],
    intake: &mut RecordIntake<'_>,
    conversation: &mut MessageBuffer,
) -> Result<(), DocumentError> {
    let mut object = match take_spans(object, &mut |found| intake.add_found_record(found)) {
        Ok(done) => return done,
        Err(object) => object,
    };
    if is_trajectory(&object) {
        intake.add_trajectory(serde_json::from_value::<Trajectory>(Json::Object(object))?);
        return Ok(());
    }
    if let Some(format) = imports::detect_document(&object) {
        conversation.flush(intake);
        return imports::read_document(object, format, intake).map_err(|error| DocumentError::Malformed(error.reason));
    }
    if let Some(format) = imports::detect_unreadable(&object) {
        return Err(DocumentError::NotRuns(format.name, format.hint));
    }
    if is_message(&object) {
        conversation.digest_of.extend_from_slice(source);
        let names_tool = names_tool(&object);
        let messages = messages_from_json(Json::Object(object));
        conversation.has_lost_record |= names_tool && lack_tool_parts(&messages);
        conversation.messages.extend(messages);
        return Ok(());
    }
    // Keys under which datasets, SWE-agent trajectories and recorded requests keep their messages.
    for key in ["messages", "conversation", "conversations", "traj", "trajectory", "history", "input"] {
        let holds = |items: &Vec<Json>| items.iter().any(|item| item.as_object().is_some_and(is_message));
        if object.get(key).and_then(Json::as_array).is_some_and(holds) {
            conversation.flush(intake);
            ingest_message_document(key, object, source, intake);
            return Ok(());
        }
    }
    if let Some(refused) = detect_refused_record(&object) {
        return Err(refused);
    }
    // Listings of REST APIs, such as Phoenix's.
    for key in ["data", "spans", "traces"] {
        if let Some(Json::Array(items)) = object.get_mut(key) {
            let items = std::mem::take(items);
            return ingest_json_list(items, intake, conversation);
        }
    }
    conversation.has_lost_record |= names_tool(&object);
    Err(DocumentError::Unrecognised)
}

/// Returns why a record of a known dataset of agents' conversations is not read: it has no roles and no tool calls.
fn detect_refused_record(object: &Map<String, Json>) -> Option<DocumentError> {
    // MAST: the log of a run, as one text or as lines, below `trace` or at the top.
    let trace = object.get("trace").and_then(|trace| trace.get("trajectory")).or_else(|| object.get("trajectory"));
    let text = match trace {
        Some(Json::String(text)) => Some(text.as_str()),
        Some(Json::Array(lines)) => lines.first().and_then(Json::as_str),
        _ => None,
    };
    if let Some(program) = text.and_then(|text| detect_program_log(text.as_bytes())) {
        return Some(DocumentError::ProgramLog(program));
    }
    let is_mast = object.contains_key("mast_annotation") || object.contains_key("mas_name");
    // Who&When: entries with the name of an agent instead of a role.
    let speaks = |entry: &Json| entry.get("agent").or_else(|| entry.get("name")).is_some_and(Json::is_string);
    let is_entry = |entry: &Json| entry.get("content").is_some_and(Json::is_string) && speaks(entry);
    let is_chat = ["history", "messages", "conversation", "trajectory"]
        .iter()
        .any(|key| object.get(*key).and_then(Json::as_array).is_some_and(|list| list.first().is_some_and(is_entry)));
    (is_mast || is_chat).then_some(DocumentError::AgentChat)
}

/// Whether a message list is a chat of several agents: at least two speak under names of their own, which replace or
/// accompany a role.
fn is_agent_chat(list: &Json) -> bool {
    let mut first: Option<&str> = None;
    for item in list.as_array().into_iter().flatten() {
        let text = |key: &str| item.get(key).and_then(Json::as_str);
        let speaker = match text("role").unwrap_or_default() {
            "assistant" | "ai" | "model" => text("name"),
            "user" | "human" | "system" | "developer" | "tool" | "function" | "tool-call" | "tool-response" | "" => {
                None
            }
            role => Some(text("name").unwrap_or(role)),
        };
        let Some(speaker) = speaker else { continue };
        if *first.get_or_insert(speaker) != speaker {
            return true;
        }
    }
    false
}

/// Adds an object that contains a message list. Ids, model, tools and the system prompt may be other fields of it.
fn ingest_message_document(key: &str, mut object: Map<String, Json>, source: &[u8], intake: &mut RecordIntake<'_>) {
    let text = |keys: &[&str]| keys.iter().find_map(|key| object.get(*key)?.as_str().map(str::to_owned));
    let ids = DocumentIds {
        id: text(&["id", "trajectory_id", "session_id", "conversation_id", "task_id"]),
        session: text(&["session_id", "conversation_id", "thread_id"]),
        model: text(&["model"]),
        ..DocumentIds::default()
    };
    let tools = object.remove("tools").map(|tools| gradus_core::assemble::tool_definitions(&tools.to_string()));
    let tools = tools.unwrap_or_default();
    let list = object.remove(key).unwrap_or_default();
    let is_chat = is_agent_chat(&list);
    let mut wrapped = Map::new();
    wrapped.insert("messages".to_owned(), list);
    if let Some(system) = object.remove("system") {
        wrapped.insert("system".to_owned(), system);
    }
    let mut messages = messages_from_json(Json::Object(wrapped));
    // A recorded exchange has the messages of the request, and the response as another field.
    for key in ["response", "choices", "output"] {
        if let Some(reply) = object.remove(key).filter(|reply| reply.is_object() || reply.is_array()) {
            messages.extend(messages_from_json(reply));
            break;
        }
    }
    let ids = DocumentIds { is_agent_chat: is_chat, ..ids };
    intake.add_messages(&messages, &ids, source, &tools);
}
