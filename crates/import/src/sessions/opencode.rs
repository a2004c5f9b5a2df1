//! OpenCode: what `opencode run --format json` prints, and the document that `opencode export` writes.

use std::collections::HashMap;

use gradus_core::trajectory::{RUN_FAILED, TokenUsage};
use serde_json::{Map, Value as Json};

use super::record_helpers::{add_call_or_defect, parse_record, to_arguments_text};
use crate::format_kinds::SessionReader;
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{content_text, count_field, is_true_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedResult, ResultStatus};

const AGENT_NAME: &str = "opencode";

/// Whether the records are events of `opencode run --format json`.
pub(crate) fn is_opencode_stream(records: &[Json]) -> bool {
    records.iter().any(|record| {
        record["sessionID"].is_string()
            && (record["part"]["messageID"].is_string()
                || matches!(record["part"]["type"].as_str(), Some("step-start" | "step-finish" | "tool")))
            && matches!(record["type"].as_str(), Some("step_start" | "step_finish" | "text" | "reasoning" | "tool_use"))
    })
}

/// Whether an object is what `opencode export` writes.
pub(crate) fn is_opencode_export(object: &Map<String, Json>) -> bool {
    let is_message = |message: &Json| {
        message["info"]["sessionID"].is_string() && message["info"]["role"].is_string() && message["parts"].is_array()
    };
    object.get("info").is_some_and(|info| info["id"].is_string() && info.get("time").is_some())
        && object.get("messages").and_then(Json::as_array).is_some_and(|messages| messages.iter().all(is_message))
}

pub(crate) fn open_opencode_stream() -> Box<dyn SessionReader> {
    Box::new(OpenCodeReader::default())
}

/// Reads an exported session.
pub(crate) fn read_opencode_export(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let document = Json::Object(object);
    let info = &document["info"];
    let id = text_field(info, "id").unwrap_or_default();
    let mut reader = OpenCodeReader { session_id: id.to_owned(), is_export: true, ..OpenCodeReader::default() };
    reader.builder.set_session_id(id);
    reader.builder.set_agent(AGENT_NAME, text_field(info, "version"));
    if let Some(folder) = text_field(info, "directory") {
        reader.builder.set_project(folder);
    }
    if let Some(parent) = text_field(info, "parentID") {
        reader.builder.set_started_as(format!("{parent}/{id}"));
    }
    for message in document["messages"].as_array().into_iter().flatten() {
        reader.read_message(message, sink);
    }
    reader.builder.finish(sink);
    Ok(())
}

#[derive(Default)]
struct OpenCodeReader {
    builder: SessionBuilder,
    session_id: String,
    /// Whether a reply ended with a step.
    is_reply_over: bool,
    /// An export lists each part once; the printed events repeat a part while its state changes.
    is_export: bool,
    /// The steps of the current turn by the id of their part. Ids of calls do not distinguish calls: some providers
    /// restart them with each reply.
    steps_by_part: HashMap<String, u32>,
}

impl SessionReader for OpenCodeReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(event) = parse_record(record, "OpenCode's JSON output", sink) else {
            return self.builder.mark_unreadable_record();
        };
        self.switch_session(&event, sink);
        let at = event.get("timestamp").and_then(normalize_timestamp);
        let at = at.as_deref();
        match event["type"].as_str().unwrap_or_default() {
            // Newer versions print the request.
            "user" => {
                let parts = event.get("parts").or(event["part"].get("parts")).unwrap_or(&Json::Null);
                self.begin_request(parts, at, sink);
            }
            "error" => self.builder.fail_turn(&error_text(&event["error"])),
            _ => self.read_part(&event["part"], at),
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.builder.finish(sink);
    }
}

impl OpenCodeReader {
    fn switch_session(&mut self, event: &Json, sink: &mut dyn ImportSink) {
        let Some(id) = text_field(event, "sessionID").filter(|id| *id != self.session_id) else { return };
        if !self.session_id.is_empty() {
            std::mem::take(&mut self.builder).finish(sink);
            self.steps_by_part.clear();
        }
        id.clone_into(&mut self.session_id);
        self.builder.set_session_id(id);
        self.builder.set_agent(AGENT_NAME, None);
    }

    /// Reads one message of an export.
    fn read_message(&mut self, message: &Json, sink: &mut dyn ImportSink) {
        let info = &message["info"];
        let at = info["time"].get("created").and_then(normalize_timestamp);
        let parts = &message["parts"];
        if info["role"] == "user" {
            return self.begin_request(parts, at.as_deref(), sink);
        }
        if let Some(model) = text_field(info, "modelID") {
            self.builder.set_model(model);
        }
        self.is_reply_over = true;
        let mut has_step_usage = false;
        for part in parts.as_array().into_iter().flatten() {
            has_step_usage |= part["type"] == "step-finish";
            self.read_part(part, at.as_deref());
        }
        if !has_step_usage && info["tokens"].is_object() {
            self.set_usage(info);
        }
        if info["error"].is_object() {
            self.builder.fail_turn(&error_text(&info["error"]));
        }
    }

    fn begin_request(&mut self, parts: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        // Synthetic parts are what OpenCode added: the text of files, reminders.
        let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_written = |part: &&Json| {
            part["type"] == "text" && !is_true_field(part, "synthetic") && !is_true_field(part, "ignored")
        };
        let texts: Vec<&str> = parts.iter().filter(is_written).filter_map(|part| text_field(part, "text")).collect();
        if !texts.is_empty() {
            self.builder.begin_turn(&texts.join("\n"), at, sink);
            self.is_reply_over = false;
            self.steps_by_part.clear();
        }
    }

    fn read_part(&mut self, part: &Json, at: Option<&str>) {
        match part["type"].as_str().unwrap_or_default() {
            "step-start" => {
                self.builder.begin_reply(at);
                self.is_reply_over = false;
            }
            "text" => {
                self.begin_reply_if_new(at);
                self.builder.add_text(text_field(part, "text").unwrap_or_default());
            }
            "reasoning" => {
                self.begin_reply_if_new(at);
                self.builder.add_reasoning(text_field(part, "text").unwrap_or_default());
            }
            "tool" => self.add_call(part, at),
            "step-finish" => {
                self.set_usage(part);
                self.is_reply_over = true;
            }
            // Files, snapshots, patches: what the calls did, again.
            _ => {}
        }
    }

    fn begin_reply_if_new(&mut self, at: Option<&str>) {
        if std::mem::take(&mut self.is_reply_over) {
            self.builder.begin_reply(at);
        }
    }

    fn add_call(&mut self, part: &Json, at: Option<&str>) {
        self.begin_reply_if_new(at);
        let state = &part["state"];
        let part_id = text_field(part, "id");
        let id = text_field(part, "callID").or(part_id);
        let arguments = to_arguments_text(state.get("input"));
        let known_step = match part_id {
            _ if self.is_export => None,
            Some(part_id) => self.steps_by_part.get(part_id).copied(),
            None => id.and_then(|id| self.builder.find_repeated_step(id, arguments.as_ref())),
        };
        let step_index = match known_step {
            Some(step_index) => step_index,
            None => {
                let started = state["time"].get("start").and_then(normalize_timestamp);
                let started = started.as_deref().or(at);
                let step_index =
                    add_call_or_defect(&mut self.builder, id, text_field(part, "tool"), arguments, started);
                if let Some(part_id) = part_id {
                    self.steps_by_part.insert(part_id.to_owned(), step_index);
                }
                step_index
            }
        };
        if let Some(child) = child_session(state) {
            self.builder.add_step_subagent(step_index, format!("{}/{child}", self.session_id));
        }
        let (content, status) = match (state["status"].as_str(), state.get("output")) {
            (Some("error"), _) => {
                let error = state["error"].as_str().unwrap_or("error");
                let is_denied =
                    ["rejected permission", "permission denied by", "prevents you from using", "user dismissed"]
                        .iter()
                        .any(|denial| error.contains(denial));
                (error.to_owned(), if is_denied { ResultStatus::Denied } else { ResultStatus::Error })
            }
            (_, Some(output)) if !output.is_null() => {
                let exit_code = state["metadata"]["exit"].as_i64().unwrap_or_default();
                let status = if exit_code == 0 { ResultStatus::Success } else { ResultStatus::Error };
                (content_text(output.clone()), status)
            }
            _ => return,
        };
        let ended = state["time"].get("end").and_then(normalize_timestamp);
        let result = ImportedResult { id, content: &content, status, at: ended.as_deref().or(at) };
        self.builder.add_step_result(step_index, &result);
    }

    fn set_usage(&mut self, record: &Json) {
        let tokens = &record["tokens"];
        let cached = count_field(&tokens["cache"], "read");
        let written = count_field(&tokens["cache"], "write");
        let usage = TokenUsage {
            prompt: count_field(tokens, "input").saturating_add(cached).saturating_add(written),
            completion: count_field(tokens, "output").saturating_add(count_field(tokens, "reasoning")),
            cached_prompt: cached,
        };
        self.builder.set_usage(usage, None, record["cost"].as_f64());
    }
}

/// Returns the session of the subagent that a call started.
fn child_session(state: &Json) -> Option<&str> {
    text_field(&state["metadata"], "sessionId").or_else(|| text_field(&state["metadata"], "sessionID"))
}

fn error_text(error: &Json) -> String {
    let message = text_field(&error["data"], "message").or(text_field(error, "message")).or(text_field(error, "name"));
    message.or(error.as_str()).unwrap_or(RUN_FAILED).to_owned()
}
