//! Qwen Code sessions (`projects/<folder>/chats/<id>.jsonl`): lines like Claude Code's, with Gemini's messages.

use gradus_core::trajectory::TokenUsage;
use serde_json::Value as Json;

use super::record_helpers::{add_call_or_defect, add_result_or_defect, parse_record, to_arguments_text};
use super::record_text::normalize_recorded_time;
use super::seen_ids::SeenIds;
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedResult, ResultStatus};

const AGENT_NAME: &str = "qwen-code";

/// Whether the records are those of a Qwen Code session.
pub(crate) fn is_qwen_session(records: &[Json]) -> bool {
    records.iter().any(|record| {
        record["uuid"].is_string()
            && record["sessionId"].is_string()
            && record.get("parentUuid").is_some()
            && record["message"]["parts"].is_array()
            && matches!(record["type"].as_str(), Some("user" | "assistant" | "tool_result"))
    })
}

pub(crate) fn open_qwen_session() -> Box<dyn SessionReader> {
    Box::new(QwenReader::default())
}

#[derive(Default)]
struct QwenReader {
    builder: SessionBuilder,
    session_id: String,
    seen_lines: SeenIds,
}

impl SessionReader for QwenReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(line) = parse_record(record, "a Qwen Code session", sink) else {
            return self.builder.mark_unreadable_record();
        };
        if text_field(&line, "uuid").is_some_and(|uuid| !self.seen_lines.insert(uuid)) {
            return;
        }
        self.switch_session(&line, sink);
        let at = normalize_recorded_time(text_field(&line, "timestamp"));
        let at = at.as_deref();
        let parts = line["message"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        match line["type"].as_str() {
            Some("user") => {
                // What is displayed is what the user typed, before files were put in.
                let typed = text_field(&line["systemPayload"], "displayText").map(str::to_owned);
                let texts = || parts.iter().filter_map(|part| text_field(part, "text")).collect::<Vec<_>>().join("\n");
                let request = typed.unwrap_or_else(texts);
                if !request.trim().is_empty() {
                    self.builder.begin_turn(&request, at, sink);
                }
            }
            Some("assistant") => self.add_reply(&line, parts, at),
            Some("tool_result") => {
                for part in parts {
                    self.add_result(&line, part, at, sink);
                }
            }
            _ => {}
        }
    }

    fn finish(self: Box<Self>, sink: &mut dyn ImportSink) {
        self.builder.finish(sink);
    }
}

impl QwenReader {
    fn switch_session(&mut self, line: &Json, sink: &mut dyn ImportSink) {
        let Some(id) = text_field(line, "sessionId") else { return };
        // Subagents have files of their own, with the session of their parent.
        let id = match text_field(line, "agentId") {
            Some(agent_id) => format!("{id}/{agent_id}"),
            None => id.to_owned(),
        };
        if id == self.session_id {
            return;
        }
        if !self.session_id.is_empty() {
            std::mem::take(&mut self.builder).finish(sink);
        }
        self.builder.set_session_id(&id);
        self.builder.set_agent(AGENT_NAME, text_field(line, "version"));
        if let Some(folder) = text_field(line, "cwd") {
            self.builder.set_project(folder);
        }
        self.session_id = id;
    }

    fn add_reply(&mut self, line: &Json, parts: &[Json], at: Option<&str>) {
        let builder = &mut self.builder;
        builder.begin_reply(at);
        if let Some(model) = text_field(line, "model") {
            builder.set_model(model);
        }
        for part in parts {
            match text_field(part, "text") {
                Some(text) if part["thought"] == Json::Bool(true) => builder.add_reasoning(text),
                Some(text) => builder.add_text(text),
                None => {}
            }
            if let Some(call) = part.get("functionCall") {
                let arguments = to_arguments_text(call.get("args"));
                add_call_or_defect(builder, text_field(call, "id"), text_field(call, "name"), arguments, at);
            }
        }
        let usage = &line["usageMetadata"];
        if usage.is_object() {
            // Output tokens contain those of reasoning, as OpenAI counts them.
            let tokens = TokenUsage {
                prompt: count_field(usage, "promptTokenCount"),
                completion: count_field(usage, "candidatesTokenCount"),
                cached_prompt: count_field(usage, "cachedContentTokenCount"),
            };
            builder.set_usage(tokens, text_field(line, "model"), None);
        }
    }

    fn add_result(&mut self, line: &Json, part: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let Some(response) = part.get("functionResponse") else { return };
        let value = &response["response"];
        let inner = value.get("output").or_else(|| value.get("error")).unwrap_or(value);
        let content = content_text(inner.clone());
        let outcome = line["toolCallResult"]["status"].as_str();
        let is_denied =
            ["User denied", "did not allow", "denied by", "declined"].iter().any(|text| content.contains(text));
        let status = match outcome {
            Some("cancelled" | "error") if is_denied => ResultStatus::Denied,
            Some("cancelled" | "error") => ResultStatus::Error,
            _ if value.get("error").is_some() && value.get("output").is_none() => ResultStatus::Error,
            _ => ResultStatus::Success,
        };
        let result = ImportedResult { id: text_field(response, "id"), content: &content, status, at };
        add_result_or_defect(&mut self.builder, &result, sink);
    }
}
