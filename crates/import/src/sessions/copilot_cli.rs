//! Copilot CLI sessions: `session-state/<id>/events.jsonl`, and what `copilot --output-format json` prints. Events have
//! the envelope `{"type", "data", "id", "timestamp", "parentId"}`; those of subagents name the call that started them.

use gradus_core::trajectory::{DefectKind, TokenUsage};
use serde_json::Value as Json;

use super::record_helpers::{add_call_or_defect, add_result_or_defect, parse_record, to_arguments_text};
use super::record_text::normalize_recorded_time;
use crate::format_kinds::SessionReader;
use crate::import_sink::ImportSink;
use crate::json_fields::{content_text, count_field, join_part_texts, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedResult, ResultStatus};

pub(crate) const AGENT_NAME: &str = "copilot-cli";
/// Maximum number of subagents that are open at the same time. The oldest is ended if there are more.
const MAX_OPEN_SUBAGENTS: usize = 256;

/// Whether the records are events of the Copilot CLI.
pub(crate) fn is_copilot_session(records: &[Json]) -> bool {
    records.iter().any(|record| {
        let data = &record["data"];
        match record["type"].as_str() {
            Some("session.start") => data["sessionId"].is_string() && data.get("copilotVersion").is_some(),
            Some("user.message") => data.get("content").is_some() && record["id"].is_string(),
            Some("assistant.message") => data.get("toolRequests").is_some() || data["messageId"].is_string(),
            Some("tool.execution_start" | "tool.execution_complete") => data["toolCallId"].is_string(),
            _ => false,
        }
    })
}

pub(crate) fn open_copilot_session() -> Box<dyn SessionReader> {
    Box::new(CopilotReader::default())
}

#[derive(Default)]
struct CopilotReader {
    session_id: String,
    main: CopilotConversation,
    /// By the call that started them.
    subagents: Vec<(String, CopilotConversation)>,
}

/// The conversation of the main agent or of a subagent.
#[derive(Default)]
struct CopilotConversation {
    builder: SessionBuilder,
    /// Whether a result came, so that what the model writes next is a new reply.
    is_reply_over: bool,
    /// Reasoning that was printed separately: messages repeat it.
    reasoning: Option<String>,
    /// An error after the last reply.
    error: Option<String>,
}

impl SessionReader for CopilotReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        let Some(event) = parse_record(record, "a Copilot CLI session", sink) else {
            // It may belong to any conversation that is open.
            let conversations = std::iter::once(&mut self.main).chain(self.subagents.iter_mut().map(|(_, open)| open));
            return conversations.for_each(|conversation| conversation.builder.mark_unreadable_record());
        };
        let data = &event["data"];
        let at = normalize_recorded_time(text_field(&event, "timestamp"));
        let at = at.as_deref();
        let kind = event["type"].as_str().unwrap_or_default();
        match kind {
            "session.start" | "session.resume" | "session.model_change" => return self.read_session_data(data),
            "result" => return self.read_run_result(&event),
            "subagent.started" => return self.begin_subagent(data, sink),
            "subagent.completed" | "subagent.failed" => return self.end_subagent(data, sink),
            _ => {}
        }
        let conversation = match text_field(data, "parentToolCallId") {
            Some(call_id) => self.find_or_begin_subagent(call_id, sink),
            None => &mut self.main,
        };
        match kind {
            "user.message" => conversation.begin_request(data, at, sink),
            "assistant.reasoning" => conversation.add_reasoning(text_field(data, "content"), at),
            "assistant.message" => conversation.add_message(data, at),
            "assistant.usage" => conversation.set_usage(data),
            "tool.execution_start" => {
                // Calls that the message did not announce.
                let id = text_field(data, "toolCallId");
                if id.is_none_or(|id| !conversation.builder.has_open_call(id)) {
                    conversation.begin_reply_if_new(at);
                    let arguments = to_arguments_text(data.get("arguments"));
                    add_call_or_defect(&mut conversation.builder, id, text_field(data, "toolName"), arguments, at);
                }
            }
            "tool.execution_complete" => conversation.add_result(data, at, sink),
            "session.error" => conversation.error = text_field(data, "message").map(str::to_owned),
            "abort" if conversation.builder.has_turn() => {
                conversation.builder.add_defect(DefectKind::MissingAnswer, "the user interrupted the request");
            }
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        self.main.end_in_error();
        self.main.builder.finish(sink);
        for (_, mut subagent) in self.subagents {
            subagent.end_in_error();
            subagent.builder.finish(sink);
        }
    }
}

impl CopilotReader {
    fn read_session_data(&mut self, data: &Json) {
        let builder = &mut self.main.builder;
        if let Some(id) = text_field(data, "sessionId") {
            id.clone_into(&mut self.session_id);
            builder.set_session_id(id);
            builder.set_agent(AGENT_NAME, text_field(data, "copilotVersion"));
        }
        if let Some(model) = text_field(data, "newModel").or(text_field(data, "selectedModel")) {
            builder.set_model(model);
        }
        if let Some(folder) = text_field(&data["context"], "cwd") {
            builder.set_project(folder);
        }
    }

    /// Reads the last record of the output.
    fn read_run_result(&mut self, event: &Json) {
        let id = text_field(event, "sessionId").or(text_field(&event["data"], "sessionId"));
        if let Some(id) = id.filter(|_| self.session_id.is_empty()) {
            id.clone_into(&mut self.session_id);
            self.main.builder.set_session_id(id);
            self.main.builder.set_agent(AGENT_NAME, None);
        }
        let exit_code = event.get("exitCode").or(event["data"].get("exitCode")).and_then(Json::as_i64);
        if let Some(code) = exit_code.filter(|code| *code != 0)
            && self.main.builder.has_turn()
        {
            let error = self.main.error.take().unwrap_or_else(|| format!("the run ended with exit code {code}"));
            self.main.builder.fail_turn(&error);
        }
    }

    fn begin_subagent(&mut self, data: &Json, sink: &mut dyn ImportSink) {
        if let Some(call_id) = text_field(data, "toolCallId") {
            self.find_or_begin_subagent(call_id, sink);
        }
    }

    fn end_subagent(&mut self, data: &Json, sink: &mut dyn ImportSink) {
        let position = self.subagents.iter().position(|(id, _)| Some(id.as_str()) == text_field(data, "toolCallId"));
        if let Some(position) = position {
            let (_, mut subagent) = self.subagents.remove(position);
            subagent.end_in_error();
            subagent.builder.finish(sink);
        }
    }

    fn find_or_begin_subagent(&mut self, call_id: &str, sink: &mut dyn ImportSink) -> &mut CopilotConversation {
        let position = match self.subagents.iter().position(|(id, _)| id == call_id) {
            Some(position) => position,
            None => {
                let key = format!("{}/{call_id}", self.session_id);
                let mut subagent = CopilotConversation::default();
                subagent.builder.set_session_id(&key);
                subagent.builder.set_agent(AGENT_NAME, None);
                subagent.builder.set_started_as(key.clone());
                let others = self.subagents.iter_mut().map(|(_, subagent)| subagent);
                let parent =
                    std::iter::once(&mut self.main).chain(others).find(|other| other.builder.has_call(call_id));
                if let Some(parent) = parent {
                    // The request of a subagent is in the arguments of the call.
                    if let Some(prompt) = parent.builder.call_argument(call_id, "prompt") {
                        subagent.builder.begin_turn(&prompt, None, sink);
                    }
                    parent.builder.add_subagent(call_id, key);
                }
                if self.subagents.len() >= MAX_OPEN_SUBAGENTS {
                    self.subagents.remove(0).1.builder.finish(sink);
                }
                self.subagents.push((call_id.to_owned(), subagent));
                self.subagents.len() - 1
            }
        };
        &mut self.subagents[position].1
    }
}

impl CopilotConversation {
    fn begin_request(&mut self, data: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        // Skills and the system write in the name of the user.
        let is_added = text_field(data, "source").is_some_and(|source| source != "user");
        let request = join_part_texts(&data["content"], &["text"], "\n");
        if !is_added && !request.trim().is_empty() {
            self.end_in_error();
            self.builder.begin_turn(&request, at, sink);
            self.is_reply_over = false;
        }
    }

    fn begin_reply_if_new(&mut self, at: Option<&str>) {
        self.error = None;
        if std::mem::take(&mut self.is_reply_over) {
            self.builder.begin_reply(at);
        }
    }

    fn add_reasoning(&mut self, text: Option<&str>, at: Option<&str>) {
        if let Some(text) = text
            && self.reasoning.as_deref() != Some(text)
        {
            self.begin_reply_if_new(at);
            self.builder.add_reasoning(text);
            self.reasoning = Some(text.to_owned());
        }
    }

    fn add_message(&mut self, data: &Json, at: Option<&str>) {
        self.begin_reply_if_new(at);
        self.add_reasoning(text_field(data, "reasoningText"), at);
        self.builder.add_text(&join_part_texts(&data["content"], &["text"], "\n"));
        let mut announced = Vec::new();
        for request in data["toolRequests"].as_array().into_iter().flatten() {
            let id = text_field(request, "toolCallId");
            let arguments = to_arguments_text(request.get("arguments"));
            // Calls of one message are different calls, also with the same id.
            let is_repeated = id.is_some_and(|id| {
                !announced.contains(&id) && self.builder.find_repeated_step(id, arguments.as_ref()).is_some()
            });
            announced.extend(id);
            if !is_repeated {
                add_call_or_defect(&mut self.builder, id, text_field(request, "name"), arguments, at);
            }
        }
        if data.get("outputTokens").is_some() {
            let tokens = TokenUsage { completion: count_field(data, "outputTokens"), ..TokenUsage::default() };
            self.builder.set_usage(tokens, text_field(data, "model"), None);
        }
        self.reasoning = None;
        self.is_reply_over = true;
    }

    /// Sets the usage. Input tokens are only in this event, which is printed but not stored.
    fn set_usage(&mut self, data: &Json) {
        if self.builder.has_turn() {
            let tokens = TokenUsage {
                prompt: count_field(data, "inputTokens"),
                completion: count_field(data, "outputTokens"),
                cached_prompt: count_field(data, "cacheReadTokens"),
            };
            self.builder.set_usage(tokens, text_field(data, "model"), None);
        }
    }

    fn add_result(&mut self, data: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let error = &data["error"];
        let result = match &data["result"] {
            Json::Null => String::new(),
            result => content_text(result.get("content").unwrap_or(result).clone()),
        };
        let reason = error.as_str().or_else(|| text_field(error, "message")).unwrap_or_default();
        let content = match (result.is_empty(), reason.is_empty()) {
            (false, false) => format!("{result}\n{reason}"),
            (true, _) => reason.to_owned(),
            (false, true) => result,
        };
        let is_denied = matches!(text_field(error, "code"), Some("denied" | "rejected"));
        let status = match data["success"].as_bool() {
            Some(false) if is_denied || content.contains("rejected this tool call") => ResultStatus::Denied,
            Some(false) => ResultStatus::Error,
            _ if !error.is_null() => ResultStatus::Error,
            _ => ResultStatus::Success,
        };
        let result = ImportedResult { id: text_field(data, "toolCallId"), content: &content, status, at };
        add_result_or_defect(&mut self.builder, &result, sink);
        self.is_reply_over = true;
    }

    fn end_in_error(&mut self) {
        if let Some(error) = self.error.take()
            && self.builder.has_turn()
        {
            self.builder.begin_reply(None);
            self.builder.fail_turn(&error);
        }
    }
}
