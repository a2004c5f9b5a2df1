//! The chat histories of AutoGen 0.2 and AG2: messages with the name of their sender, calls of functions and tools, and
//! code blocks that another agent runs.

use gradus_core::message::{ArgumentsText, MessagePart, message_from_json};
use gradus_core::trajectory::DefectKind;
use serde_json::{Value as Json, json};

use super::harness_chat::{
    add_result_or_report, add_results, finish_session_or_report, join_content_texts, result_content,
};
use crate::import_sink::ImportSink;
use crate::json_fields::text_field;
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// How the executor begins its report, in all versions: `exitcode: 0 (execution succeeded)`.
const EXECUTION_REPORT: &str = "exitcode: ";

/// Converts the messages of one chat to turns.
#[derive(Default)]
pub(super) struct ChatHistoryReader {
    session: SessionBuilder,
    asker: Option<String>,
    has_request: bool,
    has_calls: bool,
    has_chat: bool,
    /// The last text of an agent: the answer, unless something follows. If it has code blocks that are run, they are
    /// calls.
    pending: Option<String>,
    /// A call without an id, which is answered by the next result.
    open_step: Option<u32>,
}

impl ChatHistoryReader {
    pub(super) fn new(id: String) -> Self {
        ChatHistoryReader { session: SessionBuilder::new(id), ..ChatHistoryReader::default() }
    }

    pub(super) fn session_mut(&mut self) -> &mut SessionBuilder {
        &mut self.session
    }

    /// Whether a message reports the run of a code block.
    pub(super) fn is_execution_result(message: &Json) -> bool {
        message.get("content").map(first_text_line).is_some_and(|line| read_exit_code(&line).is_some())
    }

    pub(super) fn read_message(&mut self, mut message: Json, sink: &mut dyn ImportSink) {
        let role = text_field(&message, "role").unwrap_or_default().to_owned();
        let name = text_field(&message, "name").unwrap_or_default().to_owned();
        if let Some(Json::Array(responses)) = message.get_mut("tool_responses").map(Json::take) {
            return self.read_responses(responses, sink);
        }
        let content = message.get("content").map(join_content_texts).unwrap_or_default();
        let has_calls = message.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(|c| !c.is_empty()))
            || message.get("function_call").is_some_and(Json::is_object);
        if role == "system" && !self.has_request {
            return self.session.set_system_prompt(&content);
        }
        if has_calls {
            return self.read_calls(message, &content);
        }
        if role == "function" || role == "tool" {
            return self.read_result(message, &content, sink);
        }
        if let Some(code) = read_exit_code(content.lines().next().unwrap_or_default())
            && self.add_pending_code_calls(&content, code)
        {
            return;
        }
        self.read_text(&name, &role, content, sink);
    }

    /// Ends the chat and hands its turns to the sink. `annotate` adds what the record says about all of it.
    pub(super) fn finish_with(mut self, annotate: impl FnOnce(&mut SessionBuilder), sink: &mut dyn ImportSink) {
        self.end_turn();
        if self.session.has_turn() {
            if self.has_chat && !self.has_calls {
                let detail = "a chat of several agents without tool calls or code that was run";
                self.session.add_defect(DefectKind::ChatWithoutToolCalls, detail);
            }
            annotate(&mut self.session);
        }
        finish_session_or_report(self.session, sink);
    }

    fn read_text(&mut self, name: &str, role: &str, content: String, sink: &mut dyn ImportSink) {
        let is_asker = self.asker.as_deref().is_some_and(|asker| asker == name && !asker.is_empty());
        let is_person = name.to_ascii_lowercase().contains("user") || (name.is_empty() && role == "user");
        if !self.has_request {
            self.has_request = true;
            self.asker = Some(name.to_owned());
            return self.session.begin_turn(&content, None, sink);
        }
        // Proxies of users send empty messages to let the agent go on.
        if content.trim().is_empty() {
            return;
        }
        if is_person && is_asker {
            self.end_turn();
            return self.session.begin_turn(&content, None, sink);
        }
        self.has_chat = true;
        self.session.begin_separate_reply(None);
        self.pending = Some(content);
    }

    fn end_turn(&mut self) {
        self.open_step = None;
        if let Some(answer) = self.pending.take() {
            self.session.set_answer(&answer);
        }
    }

    fn read_calls(&mut self, message: Json, content: &str) {
        (self.pending, self.has_calls, self.has_request) = (None, true, true);
        let is_function = message.get("function_call").is_some_and(Json::is_object);
        let chat = message_from_json(message).unwrap_or_default();
        self.session.begin_separate_reply(None);
        self.session.add_text(content);
        for part in &chat.parts {
            match part {
                MessagePart::Reasoning(text) => self.session.add_reasoning(text),
                MessagePart::ToolCall(call) => {
                    let (id, name) = (call.id.as_deref(), &*call.name);
                    let call = ImportedCall { id, name, arguments: call.arguments.clone() };
                    let step = self.session.add_call(&call, None);
                    self.open_step = is_function.then_some(step);
                }
                _ => {}
            }
        }
    }

    fn read_responses(&mut self, responses: Vec<Json>, sink: &mut dyn ImportSink) {
        for mut response in responses {
            let content = response.get_mut("content").map(Json::take).map(result_content).unwrap_or_default();
            let id = text_field(&response, "tool_call_id");
            let status = read_status(&content);
            add_result_or_report(&mut self.session, &ImportedResult { id, content: &content, status, at: None }, sink);
        }
    }

    fn read_result(&mut self, message: Json, content: &str, sink: &mut dyn ImportSink) {
        let status = read_status(content);
        match self.open_step.take() {
            Some(step) if message.get("tool_call_id").is_none() => {
                self.session.add_step_result(step, &ImportedResult { content, status, ..ImportedResult::default() });
            }
            _ => {
                let chat = message_from_json(message).unwrap_or_default();
                add_results(&mut self.session, &chat, None, sink);
            }
        }
    }

    /// Adds the code blocks of the last text as calls, which this result reports. The tool is named by the language
    /// of the block. Returns `false` if there are none.
    fn add_pending_code_calls(&mut self, report: &str, exit_code: i64) -> bool {
        let Some(text) = self.pending.take() else { return false };
        let (thought, blocks) = split_code_blocks(&text);
        if blocks.is_empty() {
            self.pending = Some(text);
            return false;
        }
        self.has_calls = true;
        self.session.begin_separate_reply(None);
        self.session.add_text(thought);
        let status = if exit_code == 0 { ResultStatus::Success } else { ResultStatus::Error };
        for (language, code) in blocks {
            let name = if language.is_empty() { "python" } else { language };
            let arguments = Some(ArgumentsText::from(json!({ "code": code })));
            let step = self.session.add_call(&ImportedCall { id: None, name, arguments }, None);
            let result = ImportedResult { content: report, status, ..ImportedResult::default() };
            self.session.add_step_result(step, &result);
        }
        true
    }
}

/// Classifies a result: AutoGen writes `Error: ...` if a function raised or is not known.
fn read_status(content: &str) -> ResultStatus {
    if content.starts_with("Error: ") { ResultStatus::Error } else { ResultStatus::Success }
}

fn first_text_line(content: &Json) -> String {
    match content {
        Json::String(text) => text.lines().next().unwrap_or_default().to_owned(),
        Json::Array(lines) => lines.first().and_then(Json::as_str).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Reads the exit code in the first line of an executor's report.
fn read_exit_code(line: &str) -> Option<i64> {
    let (code, rest) = line.strip_prefix(EXECUTION_REPORT)?.split_once(' ')?;
    (rest.starts_with("(execution succeeded") || rest.starts_with("(execution failed")).then(|| code.parse().ok())?
}

/// Splits a text into the text before the first code block, and all blocks with their languages.
fn split_code_blocks(text: &str) -> (&str, Vec<(&str, &str)>) {
    let mut blocks = Vec::new();
    let mut rest = text;
    let thought = text.find("```").map_or(text, |start| &text[..start]);
    while let Some(start) = rest.find("```") {
        let Some((language, body)) = rest[start + 3..].split_once('\n') else { break };
        let Some(end) = body.find("```") else { break };
        blocks.push((language.trim(), body[..end].trim_end()));
        rest = &body[end + 3..];
    }
    (thought.trim(), blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_blocks_are_split_from_the_text() {
        let text = "Let me see.\n```python\nprint(1)\n```\nand\n```sh\nls\n```";
        assert_eq!(split_code_blocks(text), ("Let me see.", vec![("python", "print(1)"), ("sh", "ls")]));
        assert_eq!(split_code_blocks("no code"), ("no code", vec![]));
        assert_eq!(split_code_blocks("```python\nprint(1)").1, vec![]);
    }

    #[test]
    fn only_reports_of_an_executor_have_an_exit_code() {
        assert_eq!(read_exit_code("exitcode: 1 (execution failed)"), Some(1));
        assert_eq!(read_exit_code("exitcode: 0 (execution succeeded)"), Some(0));
        assert_eq!(read_exit_code("exitcode: zero (execution failed)"), None);
        assert_eq!(read_exit_code("exitcode: 1 is bad"), None);
    }
}
