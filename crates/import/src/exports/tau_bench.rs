//! Results of tau-bench and tau2-bench: conversations of an agent with a simulated user. Each request of the user is a
//! turn; the reward is that of the whole conversation and is attached to its last turn.

use std::collections::HashMap;

use gradus_core::message::{ArgumentsText, ChatMessage, MessagePart, MessageRole, message_from_json};
use gradus_core::trajectory::{DefectKind, TokenUsage};
use serde_json::{Map, Value as Json};

use super::harness_chat::{
    add_chat_message, add_outcome, add_result_or_report, content_id, finish_run, first_elements, has_list,
    object_to_value, outcome_annotation, read_tool_definitions, read_usage, result_content,
};
use crate::import_sink::{ImportError, ImportSink};
use crate::json_fields::{is_true_field, text_field};
use crate::session_builder::SessionBuilder;
use crate::timestamps::normalize_timestamp;
use crate::turn_draft::{ImportedCall, ImportedResult, ResultStatus};

/// The simulated user ends the conversation with a message that has one of these. The agent does not see it.
const STOP_MARKS: [&str; 3] = ["###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"];

pub(crate) fn is_tau_result(object: &Map<String, Json>) -> bool {
    let context = ["info", "trial"].iter().filter(|key| object.contains_key(**key)).count();
    let messages = first_elements(object, "traj", 4);
    // A task that failed before its first message has an empty list, and is recognised by all other keys.
    let min_context = if messages.is_empty() { 2 } else { 1 };
    has_list(object, "traj")
        && object.contains_key("task_id")
        && object.contains_key("reward")
        && context >= min_context
        && messages.iter().all(|message| message.get("role").is_some_and(Json::is_string))
}

pub(crate) fn read_tau_result(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let mut session = SessionBuilder::new(content_id("tau-bench", &document));
    let Some(Json::Array(messages)) = document.get_mut("traj").map(Json::take) else {
        return Err(ImportError::new("tau-bench result: `traj` is not a list"));
    };
    let is_text_agent = messages.iter().any(is_api_output);
    for message in messages {
        if is_text_agent {
            read_text_message(&mut session, &message, sink);
        } else if !is_stop_message(&message)
            && let Some(mut message) = message_from_json(message)
            && (message.role != MessageRole::Assistant || session.has_turn())
        {
            mark_failures(&mut message);
            add_chat_message(&mut session, &message, None, sink);
        }
    }
    if session.has_turn() {
        add_outcome(&mut session, &document, "reward");
        if let Some(error) = document.get("info").and_then(|info| text_field(info, "error")) {
            session.fail_turn(error);
        }
    }
    finish_run(session, "tau-bench result", sink)
}

/// Whether an output reports a failure: the tools of tau-bench do so in texts of this form.
fn is_failure(output: &str) -> bool {
    output.starts_with("Error: ") || output.starts_with("Unknown action ")
}

fn mark_failures(message: &mut ChatMessage<'_>) {
    for part in &mut message.parts {
        if let MessagePart::ToolResult(result) = part {
            result.is_error |= is_failure(&result.content);
        }
    }
}

fn is_stop_message(message: &Json) -> bool {
    let content = message.get("content").and_then(Json::as_str).unwrap_or_default();
    text_field(message, "role") == Some("user") && STOP_MARKS.iter().any(|mark| content.contains(mark))
}

/// Whether a user message is a result, as for agents that write their actions as text.
fn is_api_output(message: &Json) -> bool {
    text_field(message, "role") == Some("user")
        && text_field(message, "content").is_some_and(|content| content.starts_with("API output: "))
}

/// Reads a message of an agent that writes `Action:` and a JSON object with the name and the arguments.
fn read_text_message(session: &mut SessionBuilder, message: &Json, sink: &mut dyn ImportSink) {
    let content = text_field(message, "content").unwrap_or_default();
    match text_field(message, "role") {
        Some("system") => session.set_system_prompt(content),
        Some("user") if is_stop_message(message) => {}
        Some("user") => match content.strip_prefix("API output: ") {
            Some(output) => {
                let status = if is_failure(output) { ResultStatus::Error } else { ResultStatus::Success };
                let result = ImportedResult { id: None, content: output, status, at: None };
                add_result_or_report(session, &result, sink);
            }
            None => session.begin_turn(content, None, sink),
        },
        Some("assistant") => {
            session.begin_separate_reply(None);
            let Some((thought, action)) = content.rsplit_once("Action:") else {
                session.add_text(content);
                return;
            };
            let thought = thought.trim();
            session.add_text(thought.strip_prefix("Thought:").unwrap_or(thought).trim());
            let Ok(mut action) = serde_json::from_str::<Json>(action.trim()) else {
                session.add_defect(DefectKind::MalformedArguments, action);
                return;
            };
            let name = text_field(&action, "name").unwrap_or_default().to_owned();
            let arguments = action.get_mut("arguments").map(Json::take).unwrap_or_default();
            if name == "respond" {
                session.begin_separate_reply(None);
                session.set_answer(text_field(&arguments, "content").unwrap_or_default());
            } else {
                let arguments = Some(ArgumentsText::from(arguments));
                session.add_call(&ImportedCall { id: None, name: &name, arguments }, None);
            }
        }
        _ => sink.report_bad_record("tau-bench message has an unknown role"),
    }
}

pub(crate) fn is_tau2_results(object: &Map<String, Json>) -> bool {
    let simulations = first_elements(object, "simulations", 4);
    has_list(object, "tasks")
        && object.get("info").is_some_and(Json::is_object)
        && !simulations.is_empty()
        && simulations.iter().all(|simulation| simulation.as_object().is_some_and(has_simulation_keys))
}

/// Whether an object is a simulation in a file of its own.
pub(crate) fn is_tau2_simulation(object: &Map<String, Json>) -> bool {
    has_simulation_keys(object) && has_list(object, "messages")
}

/// Whether an object is a simulation of a voice agent, which is recorded as ticks of audio.
pub(crate) fn is_tau2_voice(object: &Map<String, Json>) -> bool {
    has_simulation_keys(object) && has_list(object, "ticks") && !has_list(object, "messages")
}

/// Whether an object is `results.json` of a run that is stored as a folder: without its simulations.
pub(crate) fn is_tau2_index(object: &Map<String, Json>) -> bool {
    let info = object.get("info");
    has_list(object, "tasks")
        && info.is_some_and(|info| info.get("num_trials").is_some() && info.get("user_info").is_some())
        && first_elements(object, "simulations", 1).is_empty()
}

fn has_simulation_keys(object: &Map<String, Json>) -> bool {
    ["id", "task_id", "termination_reason", "start_time", "end_time"].iter().all(|key| object.contains_key(*key))
}

pub(crate) fn read_tau2_results(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut document = object_to_value(object);
    let Some(Json::Array(simulations)) = document.get_mut("simulations").map(Json::take) else {
        return Err(ImportError::new("tau2-bench results: `simulations` is not a list"));
    };
    let tasks = document.get("tasks").and_then(Json::as_array).into_iter().flatten();
    let tickets = tasks.filter_map(|task| Some((text_field(task, "id")?, text_field(task, "ticket")?)));
    let tickets: HashMap<&str, &str> = tickets.collect();
    for simulation in simulations {
        let ticket = text_field(&simulation, "task_id").and_then(|id| tickets.get(id).copied());
        if let Err(error) = read_simulation(simulation, document.get("info"), ticket, sink) {
            sink.report_bad_record(&error.reason);
        }
    }
    Ok(())
}

pub(crate) fn read_tau2_simulation(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    read_simulation(object_to_value(object), None, None, sink)
}

fn read_simulation(
    mut simulation: Json,
    info: Option<&Json>,
    ticket: Option<&str>,
    sink: &mut dyn ImportSink,
) -> Result<(), ImportError> {
    let id = text_field(&simulation, "id").map(str::to_owned);
    let id = id.unwrap_or_else(|| content_id("tau2-bench", &simulation));
    let mut session = SessionBuilder::new(id);
    if let Some(info) = info {
        let agent = info.get("agent_info").unwrap_or(&Json::Null);
        if let Some(name) = text_field(agent, "implementation") {
            session.set_agent(name, None);
        }
        if let Some(model) = text_field(agent, "llm") {
            session.set_model(model);
        }
        let environment = info.get("environment_info").unwrap_or(&Json::Null);
        if let Some(policy) = text_field(environment, "policy") {
            session.set_system_prompt(policy);
        }
        if let Some(domain) = text_field(environment, "domain_name") {
            session.set_project(domain);
        }
        if let Some(tools) = environment.get("tool_defs") {
            session.set_tools(read_tool_definitions(tools));
        }
    }
    let Some(Json::Array(messages)) = simulation.get_mut("messages").map(Json::take) else {
        return Err(ImportError::new("tau2-bench simulation has no `messages`: voice simulations are not read"));
    };
    // An agent that works alone gets the ticket of its task instead of a user.
    let has_user = messages.iter().any(|message| text_field(message, "role") == Some("user"));
    if let Some(ticket) = ticket.filter(|_| !has_user) {
        session.begin_turn(ticket, None, sink);
    }
    for message in messages {
        read_tau2_message(&mut session, message, sink);
    }
    if session.has_turn() {
        if let Some(reward) = simulation.get("reward_info").and_then(|info| info.get("reward")) {
            outcome_annotation("reward", reward).into_iter().for_each(|reward| session.add_annotation(reward));
        }
        if let Some(reason) = text_field(&simulation, "termination_reason") {
            let has_ended = matches!(reason, "user_stop" | "agent_stop");
            if !has_ended {
                session.fail_turn(&format!("termination reason: {reason}"));
            }
        }
    }
    finish_run(session, "tau2-bench simulation", sink)
}

fn read_tau2_message(session: &mut SessionBuilder, mut message: Json, sink: &mut dyn ImportSink) {
    let at = message.get("timestamp").and_then(normalize_timestamp);
    let at = at.as_deref();
    match text_field(&message, "role").unwrap_or_default() {
        // The simulated user has tools of its own, which are not steps of the agent.
        "user" => {
            let content = text_field(&message, "content").unwrap_or_default();
            if !content.is_empty() && !is_stop_message(&message) {
                session.begin_turn(content, at, sink);
            }
        }
        // A greeting before the first request is written by the harness.
        "assistant" if !session.has_turn() && message.get("tool_calls").is_none_or(Json::is_null) => {}
        "assistant" => {
            let usage = message.get("usage").and_then(read_usage);
            let cost = message.get("cost").and_then(Json::as_f64).filter(|cost| cost.is_finite());
            let calls = message.get_mut("tool_calls").map(Json::take).unwrap_or_default();
            session.begin_separate_reply(at);
            session.add_text(text_field(&message, "content").unwrap_or_default());
            let Json::Array(calls) = calls else { return add_tau2_usage(session, usage, cost) };
            for mut call in calls {
                let arguments = call.get_mut("arguments").map(Json::take).filter(|json| !json.is_null());
                let (id, name) = (text_field(&call, "id"), text_field(&call, "name").unwrap_or_default());
                let arguments = arguments.map(ArgumentsText::from);
                session.add_call(&ImportedCall { id, name, arguments }, at);
            }
            add_tau2_usage(session, usage, cost);
        }
        "tool" => match message.get_mut("tool_messages").map(Json::take) {
            Some(Json::Array(results)) => {
                results.into_iter().for_each(|result| read_tau2_result(session, result, at, sink))
            }
            _ => read_tau2_result(session, message, None, sink),
        },
        "system" => {}
        _ => sink.report_bad_record("tau2-bench message has an unknown role"),
    }
}

fn add_tau2_usage(session: &mut SessionBuilder, usage: Option<TokenUsage>, cost: Option<f64>) {
    if usage.is_some() || cost.is_some() {
        session.set_usage(usage.unwrap_or_default(), None, cost);
    }
}

fn read_tau2_result(session: &mut SessionBuilder, mut result: Json, at: Option<&str>, sink: &mut dyn ImportSink) {
    if text_field(&result, "requestor") == Some("user") {
        return;
    }
    let own = result.get("timestamp").and_then(normalize_timestamp);
    let status = if is_true_field(&result, "error") { ResultStatus::Error } else { ResultStatus::Success };
    let content = result.get_mut("content").map(Json::take).map(result_content).unwrap_or_default();
    let id = text_field(&result, "id");
    add_result_or_report(session, &ImportedResult { id, content: &content, status, at: own.as_deref().or(at) }, sink);
}
