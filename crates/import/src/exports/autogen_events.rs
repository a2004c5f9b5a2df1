//! The messages and events of AutoGen's AgentChat.

use gradus_core::message::ArgumentsText;
use serde_json::{Value as Json, json};

use super::harness_chat::{
    add_result_or_report, finish_session_or_report, join_content_texts, read_usage, result_content,
};
use crate::import_sink::ImportSink;
use crate::json_fields::{is_true_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// Converts the messages of one chat to turns.
#[derive(Default)]
pub(super) struct AgentChatReader {
    session: SessionBuilder,
    /// Who asked first: its later messages are requests, too.
    asker: Option<String>,
    /// The last message of an agent. Another agent's message replaces it, so that only the last one is the answer.
    answer: Option<String>,
    has_thought: bool,
    code_steps: Vec<u32>,
}

impl AgentChatReader {
    pub(super) fn new(id: String) -> Self {
        AgentChatReader { session: SessionBuilder::new(id), ..AgentChatReader::default() }
    }

    pub(super) fn session_mut(&mut self) -> &mut SessionBuilder {
        &mut self.session
    }

    pub(super) fn read_message(&mut self, mut message: Json, sink: &mut dyn ImportSink) {
        let at = message.get("created_at").and_then(normalize_timestamp);
        let at = at.as_deref();
        let source = text_field(&message, "source").unwrap_or_default().to_owned();
        match text_field(&message, "type").unwrap_or_default() {
            "TextMessage" | "MultiModalMessage" | "StructuredMessage" | "StopMessage" | "ToolCallSummaryMessage" => {
                let text = match message.get("content") {
                    Some(Json::Object(_)) => message["content"].to_string(),
                    Some(content) => join_content_texts(content),
                    None => String::new(),
                };
                self.read_text(&source, text, &message, at, sink);
            }
            "ThoughtEvent" => {
                self.begin_reply(at);
                self.has_thought = true;
                self.session.add_reasoning(text_field(&message, "content").unwrap_or_default());
            }
            "ToolCallRequestEvent" => {
                self.begin_reply(at);
                self.add_usage(&message);
                for call in message.get("content").and_then(Json::as_array).into_iter().flatten() {
                    let arguments = text_field(call, "arguments").map(|text| ArgumentsText::Text(text.into()));
                    let (id, name) = (text_field(call, "id"), text_field(call, "name").unwrap_or_default());
                    self.session.add_call(&ImportedCall { id, name, arguments }, at);
                }
            }
            "ToolCallExecutionEvent" => {
                let Some(Json::Array(results)) = message.get_mut("content").map(Json::take) else { return };
                for mut result in results {
                    let content = result.get_mut("content").map(Json::take).map(result_content).unwrap_or_default();
                    let is_error = is_true_field(&result, "is_error");
                    let status = if is_error { ResultStatus::Error } else { ResultStatus::Success };
                    let result = ImportedResult { id: text_field(&result, "call_id"), content: &content, status, at };
                    add_result_or_report(&mut self.session, &result, sink);
                }
            }
            "CodeGenerationEvent" => self.read_code(&message, at),
            "CodeExecutionEvent" => self.read_code_result(&message, at),
            // A message without a type is the task's result, which repeats the messages before it.
            "" if message.get("messages").is_none() => sink.report_bad_record("AutoGen message without a type"),
            // Hand-overs, choices of the next speaker, streams of tokens and requests for input are not replies.
            _ => {}
        }
    }

    pub(super) fn finish(mut self, sink: &mut dyn ImportSink) {
        self.end_turn();
        finish_session_or_report(self.session, sink);
    }

    fn read_text(&mut self, source: &str, text: String, message: &Json, at: Option<&str>, sink: &mut dyn ImportSink) {
        let asker = self.asker.get_or_insert_with(|| source.to_owned());
        if *asker == source || source == "user" {
            self.end_turn();
            return self.session.begin_turn(&text, at, sink);
        }
        self.session.begin_reply(at);
        self.add_usage(message);
        if text_field(message, "type") != Some("StopMessage") || self.answer.is_none() {
            self.answer = Some(text);
        }
    }

    /// Begins a new reply. The thought of a reply is an event before its calls.
    fn begin_reply(&mut self, at: Option<&str>) {
        self.answer = None;
        if std::mem::take(&mut self.has_thought) {
            self.session.begin_reply(at);
        } else {
            self.session.begin_separate_reply(at);
        }
    }

    fn end_turn(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.session.set_answer(&answer);
        }
    }

    fn add_usage(&mut self, message: &Json) {
        if let Some(tokens) = message.get("models_usage").and_then(read_usage) {
            self.session.set_usage(tokens, None, None);
        }
    }

    /// Reads code that the agent wrote to be run. The tool is named by its language.
    fn read_code(&mut self, message: &Json, at: Option<&str>) {
        self.begin_reply(at);
        self.code_steps.clear();
        for block in message.get("code_blocks").and_then(Json::as_array).into_iter().flatten() {
            let language = text_field(block, "language").unwrap_or("python");
            let arguments = ArgumentsText::from(json!({ "code": text_field(block, "code").unwrap_or_default() }));
            let call = ImportedCall { id: None, name: language, arguments: Some(arguments) };
            self.code_steps.push(self.session.add_call(&call, at));
        }
    }

    /// Reads the result of code. All code blocks of a message are run in order and have one result.
    fn read_code_result(&mut self, message: &Json, at: Option<&str>) {
        let result = message.get("result").unwrap_or(&Json::Null);
        let has_failed = result.get("exit_code").and_then(Json::as_i64).is_some_and(|code| code != 0);
        let status = if has_failed { ResultStatus::Error } else { ResultStatus::Success };
        let content = text_field(result, "output").unwrap_or_default();
        for step in std::mem::take(&mut self.code_steps) {
            self.session.add_step_result(step, &ImportedResult { id: None, content, status, at });
        }
    }
}
