//! Copilot CLI before version 0.0.342: `history-session-state/session_<id>_<time>.json`, one object whose
//! `chatMessages` are those of the model's API. Its `timeline` repeats them for the terminal and is not read.

use gradus_core::trajectory::DefectKind;
use serde_json::{Map, Value as Json};

use super::copilot_cli::AGENT_NAME;
use super::record_helpers::{add_call_or_defect, add_result_or_defect, to_arguments_text};
use super::record_text::normalize_recorded_time;
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{content_text, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedResult, ResultStatus};

/// Whether an object is a session of an early Copilot CLI.
pub(crate) fn is_copilot_document(object: &Map<String, Json>) -> bool {
    let has_text = |key: &str| object.get(key).is_some_and(Json::is_string);
    let is_message = |message: &Json| message["role"].is_string();
    has_text("sessionId")
        && has_text("startTime")
        && object.get("chatMessages").and_then(Json::as_array).is_some_and(|messages| messages.iter().all(is_message))
}

/// Reads a session. Its messages have no times of their own.
pub(crate) fn read_copilot_document(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let session = Json::Object(object);
    let at = normalize_recorded_time(text_field(&session, "startTime"));
    let mut builder = SessionBuilder::new(text_field(&session, "sessionId").unwrap_or_default());
    builder.set_agent(AGENT_NAME, None);
    if let Some(model) = text_field(&session, "selectedModel") {
        builder.set_model(model);
    }
    // The first request came when the session began.
    let mut request_at = at.as_deref();
    for message in session["chatMessages"].as_array().into_iter().flatten() {
        let text = join_part_texts(&message["content"], &["text"], "\n");
        match message["role"].as_str() {
            Some("system" | "developer") => builder.set_system_prompt(&text),
            Some("user") if !text.trim().is_empty() => builder.begin_turn(&text, request_at.take(), sink),
            Some("user") => {}
            Some("assistant") => {
                builder.begin_reply(None);
                builder.add_text(&text);
                add_calls(&mut builder, message);
            }
            Some("tool") => add_result(&mut builder, message, sink),
            _ => {
                builder.mark_unreadable_record();
                sink.report_bad_record("a message of an unknown role");
            }
        }
    }
    builder.finish(sink);
    Ok(())
}

fn add_calls(builder: &mut SessionBuilder, message: &Json) {
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let arguments = to_arguments_text(function.get("arguments"));
        add_call_or_defect(builder, text_field(call, "id"), text_field(function, "name"), arguments, None);
    }
}

fn add_result(builder: &mut SessionBuilder, message: &Json, sink: &mut dyn ImportSink) {
    let content = content_text(message["content"].clone());
    let is_denied = content.contains("rejected this tool call");
    let status = if is_denied { ResultStatus::Denied } else { ResultStatus::Success };
    let id = text_field(message, "tool_call_id");
    let result = ImportedResult { id, content: &content, status, at: None };
    if id.is_some() {
        add_result_or_defect(builder, &result, sink);
    } else if !builder.add_result(&result) {
        builder.add_defect(DefectKind::ToolRunOutsideSteps, "a result without a call");
    }
}
