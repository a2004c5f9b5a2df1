//! mini-SWE-agent's trajectories: chat messages whose actions are bash code blocks in the text (version 1) or calls
//! of a tool named `bash` (version 2), and whose results are user or tool messages.

use gradus_core::message::{ArgumentsText, MessagePart, message_from_json};
use gradus_core::trajectory::DefectKind;
use serde_json::{Map, Value as Json, json};
use xxhash_rust::xxh3::Xxh3;

use super::harness_chat::{
    add_reply, add_result_or_report, content_id, finish_run, has_list, join_content_texts, object_to_value,
    outcome_annotation, read_usage, result_content,
};
use crate::format_kinds::SessionReader;
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::text_field;
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// Languages of the code block that is the action.
const ACTION_FENCES: [&str; 2] = ["```bash\n", "```mswea_bash_command\n"];

pub(crate) fn is_mini_swe_agent(object: &Map<String, Json>) -> bool {
    let format = object.get("trajectory_format").and_then(Json::as_str).unwrap_or_default();
    let has_version = || object.get("info").is_some_and(|info| info.get("mini_version").is_some());
    has_list(object, "messages") && (format.starts_with("mini-swe-agent") || has_version())
}

pub(crate) fn read_mini_swe_agent(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let hashed = content_id("mini-swe-agent", &document);
    let id = match text_field(&document, "instance_id") {
        Some(instance) => format!("{instance}-{hashed}"),
        None => hashed,
    };
    let mut run = MiniSweRunReader::new(id);
    let info = document.get_mut("info").map(Json::take).unwrap_or_default();
    run.session.set_agent("mini-swe-agent", text_field(&info, "mini_version"));
    let model = info.get("config").and_then(|config| config.get("model"));
    if let Some(model) = model.and_then(|model| text_field(model, "model_name")) {
        run.session.set_model(model);
    }
    let Some(Json::Array(messages)) = document.get_mut("messages").map(Json::take) else {
        return Err(ImportError::new("mini-SWE-agent trajectory: `messages` is not a list"));
    };
    for message in messages {
        run.read_message(message, sink);
    }
    run.read_info(&info);
    finish_run(run.session, "mini-SWE-agent trajectory", sink)
}

/// Whether the records are the messages of a first version, which wrote them as a list without anything around it.
pub(crate) fn is_message_list(records: &[Json]) -> bool {
    let has_action = |record: &Json| {
        text_field(record, "role") == Some("assistant")
            && text_field(record, "content").is_some_and(|content| split_action(content).is_some())
    };
    let is_result = |record: &Json| {
        let content = text_field(record, "content").unwrap_or_default();
        text_field(record, "role") == Some("user")
            && content.starts_with("<returncode>")
            && content.contains("</returncode>")
    };
    let pairs = records.windows(2).filter(|pair| has_action(&pair[0]) && is_result(&pair[1])).count();
    pairs > 0 && records.first().is_some_and(|record| text_field(record, "role") == Some("system"))
}

/// Reads the bare list of messages.
#[derive(Default)]
pub(crate) struct MessageListReader {
    run: MiniSweRunReader,
    hasher: Xxh3,
}

impl MessageListReader {
    pub(crate) fn open() -> Box<dyn SessionReader> {
        let mut reader = MessageListReader::default();
        reader.run.session.set_agent("mini-swe-agent", None);
        Box::new(reader)
    }
}

impl SessionReader for MessageListReader {
    fn read_record(&mut self, record: &[u8], sink: &mut dyn ImportSink) {
        self.hasher.update(record);
        match serde_json::from_slice(record) {
            Ok(message) => self.run.read_message(message, sink),
            Err(error) => sink.report_bad_record(&format!("mini-SWE-agent message is not JSON: {error}")),
        }
    }

    fn finish(mut self: Box<Self>, sink: &mut dyn ImportSink) {
        // All messages belong to one turn, so that its id can be set last.
        self.run.session.set_session_id(&format!("mini-swe-agent-{:016x}", self.hasher.digest()));
        self.run.session.finish(sink);
    }
}

#[derive(Default)]
struct MiniSweRunReader {
    session: SessionBuilder,
    has_request: bool,
    /// The step of a code block that has no result yet. The user message that follows is its result.
    open_step: Option<u32>,
    /// The steps of the last reply, until one of them has a result.
    waiting_steps: Vec<u32>,
}

impl MiniSweRunReader {
    fn new(id: String) -> Self {
        MiniSweRunReader { session: SessionBuilder::new(id), ..MiniSweRunReader::default() }
    }

    fn read_message(&mut self, mut message: Json, sink: &mut dyn ImportSink) {
        let extra = message.get_mut("extra").map(Json::take).unwrap_or_default();
        let at = extra.get("timestamp").and_then(normalize_timestamp);
        let at = at.as_deref();
        if text_field(&message, "type") == Some("function_call_output") {
            let id = text_field(&message, "call_id").map(str::to_owned);
            let content = message.get_mut("output").map(Json::take).map(result_content).unwrap_or_default();
            return self.add_result(id.as_deref(), &content, &extra, at, sink);
        }
        if let Some(Json::Array(items)) = message.get_mut("output").map(Json::take) {
            return self.read_response(items, &message, at);
        }
        let content = message.get("content").map(join_content_texts).unwrap_or_default();
        match text_field(&message, "role") {
            Some("system") => self.session.set_system_prompt(&content),
            Some("user") if !self.has_request => {
                self.has_request = true;
                self.session.begin_turn(&content, at, sink);
            }
            Some("user") if is_rejection(&content, &extra) && !self.waiting_steps.is_empty() => {
                let status = ResultStatus::Denied;
                for step in std::mem::take(&mut self.waiting_steps) {
                    self.session.add_step_result(step, &ImportedResult { id: None, content: &content, status, at });
                }
                self.open_step = None;
            }
            Some("user") if is_interruption(&extra) => {
                self.session.begin_turn(&content, at, sink);
                (self.open_step, self.waiting_steps) = (None, Vec::new());
            }
            Some("user") if self.open_step.is_some() => self.add_result(None, &content, &extra, at, sink),
            // The harness rejects a reply without exactly one action: nothing was run.
            Some("user") => {}
            Some("assistant") => self.read_reply(message, &content, &extra, at),
            Some("tool") => {
                let id = text_field(&message, "tool_call_id");
                self.add_result(id, &content, &extra, at, sink);
            }
            Some("exit") => {}
            _ => sink.report_bad_record("mini-SWE-agent message has an unknown role"),
        }
    }

    fn read_reply(&mut self, message: Json, content: &str, extra: &Json, at: Option<&str>) {
        (self.open_step, self.waiting_steps) = (None, Vec::new());
        let chat = message_from_json(message).unwrap_or_default();
        if chat.tool_calls().next().is_some() {
            self.waiting_steps = add_reply(&mut self.session, &chat, at);
        } else {
            self.session.begin_separate_reply(at);
            for part in &chat.parts {
                if let MessagePart::Reasoning(text) = part {
                    self.session.add_reasoning(text);
                }
            }
            match split_action(content) {
                Some((thought, command)) => {
                    self.session.add_text(thought);
                    let arguments = Some(ArgumentsText::from(json!({ "command": command })));
                    let call = ImportedCall { id: None, name: "bash", arguments };
                    let step = self.session.add_call(&call, at);
                    (self.open_step, self.waiting_steps) = (Some(step), vec![step]);
                }
                None => {
                    self.session.add_text(content);
                    self.session.add_defect(DefectKind::MissingAction, "a reply without exactly one bash code block");
                }
            }
        }
        self.add_usage(extra.get("response"));
    }

    /// Reads a reply of OpenAI's Responses API: a list of items.
    fn read_response(&mut self, items: Vec<Json>, response: &Json, at: Option<&str>) {
        (self.open_step, self.waiting_steps) = (None, Vec::new());
        self.session.begin_separate_reply(at);
        for item in items {
            if let Some(chat) = message_from_json(item) {
                for part in chat.parts {
                    match part {
                        MessagePart::Text(text) => self.session.add_text(&text),
                        MessagePart::Reasoning(text) => self.session.add_reasoning(&text),
                        MessagePart::ToolCall(call) => {
                            let (id, name) = (call.id.as_deref(), &*call.name);
                            let call = ImportedCall { id, name, arguments: call.arguments.clone() };
                            self.waiting_steps.push(self.session.add_call(&call, at));
                        }
                        MessagePart::ToolResult(_) => {}
                    }
                }
            }
        }
        self.add_usage(Some(response));
    }

    fn add_usage(&mut self, response: Option<&Json>) {
        let Some(response) = response else { return };
        if let Some(tokens) = response.get("usage").and_then(read_usage) {
            self.session.set_usage(tokens, text_field(response, "model"), None);
        }
    }

    fn add_result(
        &mut self,
        id: Option<&str>,
        content: &str,
        extra: &Json,
        at: Option<&str>,
        sink: &mut dyn ImportSink,
    ) {
        let code = extra.get("returncode").and_then(Json::as_i64).or_else(|| read_return_code(content));
        let status = if code.is_some_and(|code| code != 0) { ResultStatus::Error } else { ResultStatus::Success };
        let result = ImportedResult { id, content, status, at };
        self.waiting_steps.clear();
        match self.open_step.take().filter(|_| id.is_none()) {
            Some(step) => {
                self.session.add_step_result(step, &result);
            }
            None => add_result_or_report(&mut self.session, &result, sink),
        }
    }

    fn read_info(&mut self, info: &Json) {
        if !self.session.has_turn() {
            return;
        }
        let stats = info.get("model_stats");
        let cost = stats.and_then(|stats| stats.get("instance_cost")).and_then(Json::as_f64);
        if let Some(cost) = cost.filter(|cost| cost.is_finite()) {
            self.session.add_cost(cost);
        }
        if let Some(submission) = text_field(info, "submission").filter(|text| !text.trim().is_empty()) {
            self.session.set_answer(submission);
        }
        if let Some(status) = info.get("exit_status").and_then(|status| outcome_annotation("exit_status", status)) {
            let is_submitted = status.label.as_deref().is_some_and(|label| label.eq_ignore_ascii_case("submitted"));
            if !is_submitted {
                self.session.fail_turn(&format!("exit status: {}", status.label.as_deref().unwrap_or_default()));
            }
            self.session.add_annotation(status);
        }
    }
}

/// Whether the user did not let the commands run. The first version has only the text.
fn is_rejection(content: &str, extra: &Json) -> bool {
    text_field(extra, "interrupt_type") == Some("UserRejection")
        || content.starts_with("Command not executed.")
        || content.starts_with("Commands not executed.")
}

/// Whether the user said something while the agent worked.
fn is_interruption(extra: &Json) -> bool {
    matches!(text_field(extra, "interrupt_type"), Some("UserInterruption" | "UserNewTask"))
}

/// Returns the text before the only bash code block of a reply, and the command in it. `None` if there is not exactly
/// one.
fn split_action(content: &str) -> Option<(&str, &str)> {
    for fence in ACTION_FENCES {
        let Some(start) = content.find(fence) else { continue };
        let body = &content[start + fence.len()..];
        let end = body.find("\n```")?;
        if body[end..].contains(fence) {
            return None;
        }
        return Some((content[..start].trim(), body[..end].trim()));
    }
    None
}

/// Reads the exit code in a result as the agent sees it: `<returncode>1</returncode>`, or a JSON object.
fn read_return_code(content: &str) -> Option<i64> {
    let content = content.trim_start();
    // An exception of the environment comes before it.
    let behind = content.strip_prefix("<exception>").and_then(|rest| rest.split_once("</exception>"));
    let tagged = behind.map_or(content, |(_, rest)| rest.trim_start());
    if let Some(rest) = tagged.strip_prefix("<returncode>") {
        return rest.split_once("</returncode>")?.0.trim().parse().ok();
    }
    let rest = content.strip_prefix('{')?.trim_start().strip_prefix("\"returncode\":")?.trim_start();
    let digits = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_exactly_one_code_block() {
        assert_eq!(split_action("Look.\n```bash\nls\n```\ndone"), Some(("Look.", "ls")));
        assert_eq!(split_action("```mswea_bash_command\na\nb\n```"), Some(("", "a\nb")));
        assert_eq!(split_action("```bash\nls\n```\n```bash\npwd\n```"), None);
        assert_eq!(split_action("```bash\nls"), None);
        assert_eq!(split_action("```python\nls\n```"), None);
    }

    #[test]
    fn return_codes_are_read_as_the_agent_sees_them() {
        assert_eq!(read_return_code("<returncode>-1</returncode>\n<output></output>"), Some(-1));
        assert_eq!(read_return_code("{\n  \"returncode\": 2,\n  \"output\": \"\"\n}"), Some(2));
        assert_eq!(read_return_code("returncode 1"), None);
    }
}
