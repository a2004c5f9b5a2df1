//! Logs of AgentDojo: one run of a user task, with or without an injection.

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::DefectKind;
use serde_json::{Map, Value as Json};

use super::harness_chat::{
    add_outcome, add_result_or_report, content_id, finish_run, has_list, join_content_texts, object_to_value,
};
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{content_text, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

pub(crate) fn is_agentdojo(object: &Map<String, Json>) -> bool {
    let keys =
        ["suite_name", "pipeline_name", "user_task_id", "injection_task_id", "attack_type", "utility", "security"];
    let known = keys.iter().filter(|key| object.contains_key(**key)).count();
    has_list(object, "messages") && object.contains_key("user_task_id") && known >= 4
}

pub(crate) fn read_agentdojo(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let tasks = [text_field(&document, "suite_name"), text_field(&document, "user_task_id")];
    let prefix = tasks.into_iter().flatten().collect::<Vec<_>>().join("-");
    let mut session = SessionBuilder::new(content_id(&prefix, &document));
    if let Some(pipeline) = text_field(&document, "pipeline_name") {
        session.set_agent(pipeline, None);
    }
    if let Some(suite) = text_field(&document, "suite_name") {
        session.set_project(suite);
    }
    let Some(Json::Array(messages)) = document.get_mut("messages").map(Json::take) else {
        return Err(ImportError::new("AgentDojo log: `messages` is not a list"));
    };
    let at = document.get("evaluation_timestamp").and_then(normalize_timestamp);
    for message in messages {
        read_message(&mut session, message, at.as_deref(), sink);
    }
    if session.has_turn() {
        add_outcome(&mut session, &document, "utility");
        add_outcome(&mut session, &document, "security");
        if let Some(error) = text_field(&document, "error") {
            session.fail_turn(error);
        }
    }
    finish_run(session, "AgentDojo log", sink)
}

fn read_message(session: &mut SessionBuilder, mut message: Json, at: Option<&str>, sink: &mut dyn ImportSink) {
    let role = text_field(&message, "role").unwrap_or_default().to_owned();
    match role.as_str() {
        "system" => session.set_system_prompt(&message.get("content").map(join_content_texts).unwrap_or_default()),
        "user" => session.begin_turn(&message.get("content").map(join_content_texts).unwrap_or_default(), at, sink),
        "assistant" => {
            session.begin_separate_reply(at);
            match message.get("content") {
                Some(Json::Array(blocks)) => blocks.iter().for_each(|block| read_block(session, block)),
                Some(Json::String(text)) => session.add_text(text),
                _ => {}
            }
            if let Some(Json::Array(calls)) = message.get_mut("tool_calls").map(Json::take) {
                calls.into_iter().for_each(|call| add_call(session, call, at));
            }
        }
        "tool" => {
            let id = text_field(&message, "tool_call_id");
            let id = id.or_else(|| message.get("tool_call").and_then(|call| text_field(call, "id")));
            let id = id.map(str::to_owned);
            // The agent is shown the error instead of the content.
            let error = text_field(&message, "error").map(str::to_owned);
            let status = if error.is_some() { ResultStatus::Error } else { ResultStatus::Success };
            let content = error.unwrap_or_else(|| match message.get_mut("content").map(Json::take) {
                Some(Json::Array(blocks)) => join_content_texts(&Json::Array(blocks)),
                Some(content) => content_text(content),
                None => String::new(),
            });
            let result = ImportedResult { id: id.as_deref(), content: &content, status, at };
            add_result_or_report(session, &result, sink);
        }
        _ => sink.report_bad_record("AgentDojo message has an unknown role"),
    }
}

fn read_block(session: &mut SessionBuilder, block: &Json) {
    let text = text_field(block, "content").or_else(|| text_field(block, "text")).unwrap_or_default();
    match text_field(block, "type") {
        Some("thinking") => session.add_reasoning(text),
        // Its content is encrypted.
        Some("redacted_thinking") => {}
        _ => session.add_text(text),
    }
}

/// Adds a call. AgentDojo names the tool in `function`, as a text. The shape of OpenAI occurs in logs that other
/// tools wrote.
fn add_call(session: &mut SessionBuilder, mut call: Json, at: Option<&str>) {
    let id = text_field(&call, "id").map(str::to_owned);
    if call.get("function").is_some_and(Json::is_object) {
        call = call["function"].take();
    }
    let name = text_field(&call, "function").or_else(|| text_field(&call, "name")).unwrap_or_default().to_owned();
    if name.is_empty() {
        session.add_defect(DefectKind::MissingToolName, "a tool call without the name of a tool");
    }
    let arguments = ["args", "arguments"].iter().find_map(|key| call.get_mut(*key).map(Json::take));
    let arguments = match arguments {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) => Some(ArgumentsText::Text(text.into())),
        Some(json) => Some(ArgumentsText::from(json)),
    };
    session.add_call(&ImportedCall { id: id.as_deref(), name: &name, arguments }, at);
}
