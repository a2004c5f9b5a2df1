//! What the logs of harnesses have in common: chat messages that become turns, outcomes that become annotations, ids
//! for runs that record none.

use std::io;

use gradus_core::message::{ChatMessage, MessagePart, MessageRole};
use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::{DefectKind, RecordedAnnotation, TokenUsage, ToolDefinition};
use serde_json::{Map, Value as Json};
use xxhash_rust::xxh3::Xxh3;

use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{content_text, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// Maximum number of characters of a name in a message about a bad record.
const MAX_QUOTED_CHARS: usize = 80;

/// Returns an id for a run that records none: the same for the same content, whatever file it is in.
pub(super) fn content_id(prefix: &str, record: &Json) -> String {
    let mut hasher = ContentHasher(Xxh3::new());
    // Writing to a hasher does not fail.
    serde_json::to_writer(&mut hasher, record).ok();
    format!("{prefix}-{:016x}", hasher.0.digest())
}

/// Hashes JSON while it is written, so that a large record is not copied.
struct ContentHasher(Xxh3);

impl io::Write for ContentHasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the fields of an object as a JSON value, so that the helpers of [`crate::json_fields`] apply.
pub(super) fn object_to_value(object: Map<String, Json>) -> Json {
    Json::Object(object)
}

/// Ends a run and hands its turns to the sink. A run without any message is an error: its file would be read as
/// nothing.
pub(super) fn finish_run(session: SessionBuilder, name: &str, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    if !session.has_turn() {
        return Err(ImportError::new(format!("{name} without a conversation in it")));
    }
    session.finish(sink);
    Ok(())
}

/// Does the same for a file of records; a failure is reported to the sink.
pub(super) fn finish_session_or_report(session: SessionBuilder, sink: &mut dyn ImportSink) {
    if session.has_turn() {
        session.finish(sink);
    } else {
        sink.report_bad_record("no conversation in these records");
    }
}

/// Whether a key has a list.
pub(super) fn has_list(object: &Map<String, Json>, key: &str) -> bool {
    object.get(key).is_some_and(Json::is_array)
}

/// Returns the first elements of a list; none if the key is missing or has another type.
pub(super) fn first_elements<'a>(object: &'a Map<String, Json>, key: &str, count: usize) -> &'a [Json] {
    let list = object.get(key).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    &list[..list.len().min(count)]
}

/// Returns an outcome as an annotation: numbers are scores, booleans both, texts labels. `None` for other values,
/// which do not describe the run.
pub(super) fn outcome_annotation(name: &str, value: &Json) -> Option<RecordedAnnotation> {
    let (label, score) = match value {
        Json::Bool(flag) => (Some(flag.to_string()), Some(f64::from(u8::from(*flag)))),
        Json::Number(number) => (None, number.as_f64().filter(|score| score.is_finite())),
        Json::String(text) if !text.is_empty() => (Some(text.clone()), None),
        _ => return None,
    };
    let annotation = RecordedAnnotation { name: name.to_owned(), label, score, ..RecordedAnnotation::default() };
    (annotation.label.is_some() || annotation.score.is_some()).then_some(annotation)
}

/// Adds the outcome of a key, if the record has one.
pub(super) fn add_outcome(session: &mut SessionBuilder, record: &Json, key: &str) {
    if let Some(annotation) = record.get(key).and_then(|value| outcome_annotation(key, value)) {
        session.add_annotation(annotation);
    }
}

/// Reads tools in OpenAI's function schema, with or without the wrapper around the function.
pub(super) fn read_tool_definitions(list: &Json) -> Vec<ToolDefinition> {
    let read = |tool: &Json| {
        let function = tool.get("function").unwrap_or(tool);
        let schema = ["parameters", "inputSchema", "input_schema"].iter().find_map(|key| function.get(*key));
        Some(ToolDefinition {
            name: text_field(function, "name")?.to_owned(),
            description: text_field(function, "description").map(str::to_owned),
            schema: schema.filter(|schema| !schema.is_null()).map(RawJson::from_value),
        })
    };
    list.as_array().into_iter().flatten().filter_map(read).collect()
}

/// Returns a text, or the texts of a list of parts or of lines, joined by line feeds.
pub(super) fn join_content_texts(content: &Json) -> String {
    join_part_texts(content, &["text", "content"], "\n")
}

/// Returns the text of a result. Images and audio among the parts have none.
pub(super) fn result_content(content: Json) -> String {
    match &content {
        Json::Array(parts) if parts.iter().any(|part| text_field(part, "type").is_some()) => {
            join_content_texts(&content)
        }
        _ => content_text(content),
    }
}

/// Adds a reply: its reasoning, text and calls. Returns the numbers of its steps.
pub(super) fn add_reply(session: &mut SessionBuilder, message: &ChatMessage<'_>, at: Option<&str>) -> Vec<u32> {
    let mut steps = Vec::new();
    session.begin_separate_reply(at);
    for part in &message.parts {
        match part {
            MessagePart::Text(text) => session.add_text(text),
            MessagePart::Reasoning(text) => session.add_reasoning(text),
            MessagePart::ToolCall(call) => {
                if call.name.is_empty() {
                    session.add_defect(DefectKind::MissingToolName, "a tool call without the name of a tool");
                }
                let call = ImportedCall { id: call.id.as_deref(), name: &call.name, arguments: call.arguments.clone() };
                steps.push(session.add_call(&call, at));
            }
            MessagePart::ToolResult(_) => {}
        }
    }
    steps
}

/// Adds the results in a message. A result of an unknown call is reported.
pub(super) fn add_results(
    session: &mut SessionBuilder,
    message: &ChatMessage<'_>,
    at: Option<&str>,
    sink: &mut dyn ImportSink,
) {
    for part in &message.parts {
        if let MessagePart::ToolResult(result) = part {
            let status = if result.is_error { ResultStatus::Error } else { ResultStatus::Success };
            let result = ImportedResult { id: result.id.as_deref(), content: &result.content, status, at };
            add_result_or_report(session, &result, sink);
        }
    }
}

/// Adds a result, or reports it if its call is not in the current turn.
pub(super) fn add_result_or_report(
    session: &mut SessionBuilder,
    result: &ImportedResult<'_>,
    sink: &mut dyn ImportSink,
) {
    if !session.add_result(result) {
        let id: String = result.id.unwrap_or("without an id").chars().take(MAX_QUOTED_CHARS).collect();
        sink.report_bad_record(&format!("tool result answers no call of its turn: {id}"));
    }
}

/// Adds one message of a plain chat: a system message sets the instructions, a user message begins a turn.
pub(super) fn add_chat_message(
    session: &mut SessionBuilder,
    message: &ChatMessage<'_>,
    at: Option<&str>,
    sink: &mut dyn ImportSink,
) {
    match message.role {
        MessageRole::System => {
            if !session.has_turn() {
                session.set_system_prompt(&message.joined_text());
            }
        }
        MessageRole::User => session.begin_turn(&message.joined_text(), at, sink),
        MessageRole::Assistant => {
            add_reply(session, message, at);
            add_results(session, message, at, sink);
        }
        MessageRole::Tool => add_results(session, message, at, sink),
    }
}

/// Reads token counts in the spellings of OpenAI, Anthropic and LiteLLM. Anthropic does not count cached tokens as
/// input.
pub(super) fn read_usage(usage: &Json) -> Option<TokenUsage> {
    let count = |keys: &[&str]| keys.iter().find_map(|key| usage.get(*key).and_then(Json::as_u64));
    let detail = |holder: &str| {
        let details = usage.get(holder)?;
        details.get("cached_tokens").and_then(Json::as_u64)
    };
    let prompt = count(&["prompt_tokens", "input_tokens"]);
    let completion = count(&["completion_tokens", "output_tokens"]);
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let mut tokens = TokenUsage {
        prompt: prompt.unwrap_or_default(),
        completion: completion.unwrap_or_default(),
        cached_prompt: detail("prompt_tokens_details").or_else(|| detail("input_tokens_details")).unwrap_or_default(),
    };
    if usage.get("prompt_tokens").is_none() {
        let read = count(&["cache_read_input_tokens"]).unwrap_or_default();
        let written = count(&["cache_creation_input_tokens"]).unwrap_or_default();
        tokens.prompt = tokens.prompt.saturating_add(read).saturating_add(written);
        tokens.cached_prompt = tokens.cached_prompt.max(read);
    }
    Some(tokens)
}
