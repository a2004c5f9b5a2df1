//! SWE-agent's `.traj` files. The first generation records what the model wrote and the shell command in it; the second
//! adds the tool calls to its `history`. Recorded tool calls name the tool. Without them the tool is `bash` with the
//! command as its argument, because SWE-agent runs all actions, its own commands included, in one shell.

use std::collections::VecDeque;

use gradus_core::message::ArgumentsText;
use gradus_core::trajectory::TokenUsage;
use serde_json::{Map, Value as Json, json};

use super::harness_chat::{
    add_outcome, content_id, finish_run, first_elements, has_list, join_content_texts, object_to_value,
};
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{count_field, is_true_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::turn_draft::{ImportedCall, ImportedResult};

/// Maximum number of replies of the history that are searched for the one of a step. A reply that could not be parsed
/// has no step.
const MAX_SKIPPED_REPLIES: usize = 4;
/// The command that ends a run.
const SUBMIT_COMMAND: &str = "submit";
/// Number of first elements by which the format is recognised.
const RECOGNITION_RECORDS: usize = 20;

pub(crate) fn is_swe_agent(object: &Map<String, Json>) -> bool {
    if has_list(object, "trajectory") {
        let is_step = |step: &Json| {
            step.get("action").is_some_and(Json::is_string)
                && step.get("observation").is_some()
                && (step.get("response").is_some() || step.get("thought").is_some())
        };
        let steps = first_elements(object, "trajectory", RECOGNITION_RECORDS);
        let has_run_keys =
            ["info", "history", "environment", "replay_config"].iter().any(|key| object.contains_key(*key));
        return has_run_keys && !steps.is_empty() && steps.iter().all(is_step);
    }
    // Demonstrations are a history alone.
    let messages = first_elements(object, "history", RECOGNITION_RECORDS);
    let is_message = |message: &Json| {
        message.get("role").is_some_and(Json::is_string)
            && (message.get("agent").is_some_and(Json::is_string) || message.get("message_type").is_some())
    };
    let has_action = |message: &Json| message.get("action").is_some_and(Json::is_string);
    !messages.is_empty() && messages.iter().all(is_message) && messages.iter().any(has_action)
}

pub(crate) fn read_swe_agent(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let id = content_id("swe-agent", &document);
    let mut session = SessionBuilder::new(id);
    session.set_agent("SWE-agent", None);
    if let Some(model) = recorded_model(&document) {
        session.set_model(&model);
    }
    let history = match document.get_mut("history").map(Json::take) {
        Some(Json::Array(history)) => history,
        _ => Vec::new(),
    };
    let messages = history.into_iter().filter(|message| !is_true_field(message, "is_demo")).collect::<Vec<_>>();
    match document.get_mut("trajectory").map(Json::take) {
        Some(Json::Array(steps)) => {
            begin_run(&mut session, &messages, sink);
            let mut replies = RecordedReplies::from_history(messages);
            for step in steps {
                read_step(&mut session, &step, &mut replies);
            }
        }
        _ => read_history(&mut session, messages, sink),
    }
    if let Some(info) = document.get("info") {
        read_info(&mut session, info);
    }
    finish_run(session, "SWE-agent trajectory", sink)
}

/// Reads the instructions and the request, which are the first messages of the history.
fn begin_run(session: &mut SessionBuilder, messages: &[Json], sink: &mut dyn ImportSink) {
    for message in messages {
        let content = message.get("content").map(join_content_texts).unwrap_or_default();
        match text_field(message, "role") {
            Some("system") => session.set_system_prompt(&content),
            Some("user") => session.begin_turn(&content, None, sink),
            _ => break,
        }
    }
}

/// The replies of the history that belong to no step yet.
struct RecordedReplies {
    replies: VecDeque<Json>,
    has_tool_calls: bool,
}

impl RecordedReplies {
    fn from_history(messages: Vec<Json>) -> Self {
        let is_reply = |message: &Json| text_field(message, "role") == Some("assistant");
        let replies: VecDeque<Json> = messages.into_iter().filter(is_reply).collect();
        let has_calls = |reply: &Json| reply.get("tool_calls").is_some_and(Json::is_array);
        RecordedReplies { has_tool_calls: replies.iter().any(has_calls), replies }
    }

    /// Takes the reply with this action. A reply before it that could not be parsed is skipped.
    fn take_reply(&mut self, action: &str) -> Option<Json> {
        let has_action = |reply: &Json| reply.get("action").and_then(Json::as_str).unwrap_or_default() == action;
        let position = self.replies.iter().take(MAX_SKIPPED_REPLIES).position(has_action)?;
        self.replies.drain(..=position).next_back()
    }
}

/// Reads one step of `trajectory`, with the tool calls of its reply in the history.
fn read_step(session: &mut SessionBuilder, step: &Json, replies: &mut RecordedReplies) {
    let action = text_field(step, "action").unwrap_or_default();
    let reply = replies.take_reply(action);
    session.begin_separate_reply(None);
    add_thought(session, step, reply.as_ref());
    if action.trim().is_empty() {
        // The run ended here, or the reply could not be parsed: nothing was run.
        return;
    }
    // The last reply can be missing in the history. In a run with tool calls, its command is the tool of that name.
    let last_call = json!([{ "function": { "name": SUBMIT_COMMAND, "arguments": {} } }]);
    let recorded = match &reply {
        Some(reply) => reply.get("tool_calls"),
        None => Some(&last_call).filter(|_| replies.has_tool_calls && action.trim() == SUBMIT_COMMAND),
    };
    let calls = add_calls(session, action, recorded);
    if let Some(observation) = step.get("observation").filter(|observation| !observation.is_null()) {
        add_observation(session, &calls, &join_content_texts(observation));
    }
}

fn add_thought(session: &mut SessionBuilder, step: &Json, reply: Option<&Json>) {
    for block in step.get("thinking_blocks").and_then(Json::as_array).into_iter().flatten() {
        session.add_reasoning(text_field(block, "thinking").unwrap_or_default());
    }
    let thought = text_field(step, "thought").or_else(|| reply.and_then(|reply| text_field(reply, "thought")));
    // Without an action, the reply as a whole is the text.
    let has_action = text_field(step, "action").is_some_and(|action| !action.trim().is_empty());
    match thought {
        Some(thought) => session.add_text(thought),
        None if !has_action => session.add_text(text_field(step, "response").unwrap_or_default()),
        None => {}
    }
}

/// Adds the calls of a reply and returns the numbers of their steps. Ids of calls repeat in replayed runs.
fn add_calls(session: &mut SessionBuilder, action: &str, recorded: Option<&Json>) -> Vec<u32> {
    let mut steps = Vec::new();
    for call in recorded.and_then(Json::as_array).into_iter().flatten() {
        let function = call.get("function").unwrap_or(call);
        let Some(name) = text_field(function, "name") else { continue };
        let arguments = match function.get("arguments") {
            None | Some(Json::Null) => None,
            Some(Json::String(text)) => Some(ArgumentsText::Text(text.as_str().into())),
            Some(json) => Some(ArgumentsText::from(json.clone())),
        };
        steps.push(session.add_call(&ImportedCall { id: text_field(call, "id"), name, arguments }, None));
    }
    if steps.is_empty() {
        let arguments = ArgumentsText::from(json!({ "command": action.trim_end_matches(['\n', '\r']) }));
        let call = ImportedCall { id: None, name: "bash", arguments: Some(arguments) };
        steps.push(session.add_call(&call, None));
    }
    steps
}

/// Adds the observation of an action to all calls of its reply, because SWE-agent runs one action a reply.
fn add_observation(session: &mut SessionBuilder, steps: &[u32], content: &str) {
    for step in steps {
        session.add_step_result(*step, &ImportedResult { content, ..ImportedResult::default() });
    }
}

/// Reads a history without `trajectory`: replies with actions, each followed by its observation.
fn read_history(session: &mut SessionBuilder, messages: Vec<Json>, sink: &mut dyn ImportSink) {
    let mut open = Vec::new();
    let mut has_request = false;
    for message in messages {
        let content = message.get("content").map(join_content_texts).unwrap_or_default();
        match text_field(&message, "role") {
            Some("system") => session.set_system_prompt(&content),
            Some("user") if !has_request => {
                session.begin_turn(&content, None, sink);
                has_request = true;
            }
            Some("user" | "tool") => add_observation(session, &std::mem::take(&mut open), &content),
            Some("assistant") => {
                has_request = true;
                session.begin_separate_reply(None);
                match text_field(&message, "action").filter(|action| !action.trim().is_empty()) {
                    Some(action) => {
                        session.add_text(text_field(&message, "thought").unwrap_or_default());
                        open = add_calls(session, action, message.get("tool_calls"));
                    }
                    None => session.add_text(&content),
                }
            }
            _ => sink.report_bad_record("SWE-agent message has an unknown role"),
        }
    }
}

fn read_info(session: &mut SessionBuilder, info: &Json) {
    if !session.has_turn() {
        return;
    }
    if let Some(stats) = info.get("model_stats") {
        let tokens = TokenUsage {
            prompt: count_field(stats, "tokens_sent"),
            completion: count_field(stats, "tokens_received"),
            cached_prompt: 0,
        };
        session.set_usage(tokens, None, None);
        if let Some(cost) = stats.get("instance_cost").and_then(Json::as_f64).filter(|cost| cost.is_finite()) {
            session.add_cost(cost);
        }
    }
    if let Some(submission) = text_field(info, "submission") {
        session.set_answer(submission);
    }
    add_outcome(session, info, "exit_status");
    if let Some(status) = text_field(info, "exit_status").filter(|status| !status.starts_with("submitted")) {
        session.fail_turn(&format!("exit status: {status}"));
    }
}

/// Returns the model of the run's configuration, which is recorded as an object or as JSON text.
fn recorded_model(document: &Json) -> Option<String> {
    let config = match document.get("replay_config")? {
        Json::String(text) => serde_json::from_str(text).ok()?,
        config => config.clone(),
    };
    text_field(config.get("agent")?.get("model")?, "name").map(str::to_owned)
}
