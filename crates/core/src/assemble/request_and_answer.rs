//! Finds the request of the user and the answer of the agent.
//!
//! The outermost span of the framework often has both as plain text, but just as often has something else in the same
//! attribute. So its text is used if the conversation with the model confirms it; otherwise the conversation is used.

use std::borrow::Cow;

use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::bounded_json;
use crate::dialect::{NormalizedSpan, OperationKind, looks_like_repr};
use crate::literal;
use crate::message::{ChatMessage, MessageRole, messages_from_json};
use crate::react;
use crate::whitespace::collapse_whitespace;

use super::tree::{SpanNode, SpanTree};
use crate::assemble::agent_run::RequestSpans;

/// Index of the last message written by the user, skipping tool results and framework feedback.
pub(super) fn find_last_user_message(input: &[ChatMessage<'_>]) -> Option<usize> {
    input.iter().rposition(|message| {
        message.role == MessageRole::User && message.tool_results().next().is_none() && {
            let text = message.joined_text();
            !text.trim().is_empty() && !is_feedback(&text)
        }
    })
}

/// Whether a message with the role of the user was written by a framework.
pub(super) fn is_feedback(text: &str) -> bool {
    let text = text.trim_start();
    // Beginnings of the messages with which frameworks ask for a corrected reply.
    const OPENINGS: [&str; 6] = [
        "Error while parsing the output",
        "Error:",
        "Now let's retry",
        "Validation feedback:",
        "Fix the errors and try again",
        "Handle the requests as specified in the System Instruction",
    ];
    react::starts_like_observation(text)
        || OPENINGS.iter().any(|opening| text.starts_with(opening))
        || (text.starts_with("Call id:") && text.contains("Observation:"))
}

/// The request of the user in a run.
pub(super) fn find_query(tree: &SpanTree<'_>, run: &RequestSpans) -> Option<String> {
    let inputs =
        run.calls.iter().map(|at| &tree.nodes[*at].facts.input).find(|input| find_last_user_message(input).is_some());
    let spoken = inputs.and_then(|input| find_last_user_message(input).map(|at| (input, at)));
    // All messages of the user, because a frame may state an earlier part of the request.
    let asked: Vec<String> = match &spoken {
        Some((input, _)) => input
            .iter()
            .filter(|message| message.role == MessageRole::User)
            .map(|m| m.joined_text().into_owned())
            .collect(),
        None => Vec::new(),
    };
    // Comparing all frames with all messages is quadratic. When the comparison budget is used up, text counts as
    // unconfirmed.
    let is_in = |message: &str, text: &str| {
        tree.budget.try_charge_comparison(message.len() + text.len()) && contains_ignoring_whitespace(message, text)
    };
    let confirmed = |text: &str| asked.is_empty() || asked.iter().any(|message| is_in(message, text));
    for node in find_dialogue_frames(tree, run) {
        if let Some(request) = extract_frame_query(&node.facts).filter(|text| confirmed(text)) {
            return Some(request);
        }
    }
    let (input, at) = spoken?;
    Some(strip_prompt_template(&input[at].joined_text()).to_owned())
}

/// The frames that can contain the request and the answer: the outermost one and those of agents.
fn find_dialogue_frames<'t, 's>(
    tree: &'t SpanTree<'s>,
    run: &'t RequestSpans,
) -> impl Iterator<Item = &'t SpanNode<'s>> {
    let frames = run.frames.iter().enumerate().map(|(position, at)| (position, &tree.nodes[*at]));
    frames
        .filter(|(position, node)| {
            *position == 0 || node.facts.kind == OperationKind::Agent || node.facts.query.is_some()
        })
        .map(|(_, node)| node)
}

/// The request that a frame records: stated directly, in its messages, or in its input text.
pub(super) fn extract_frame_query(frame: &NormalizedSpan<'_>) -> Option<String> {
    if let Some(query) = &frame.query {
        return Some(query.trim().to_owned());
    }
    if let Some(at) = find_last_user_message(&frame.input) {
        return Some(frame.input[at].joined_text().trim().to_owned());
    }
    let text = frame.input_text.as_deref()?.trim();
    // Parameter names of the entry points of frameworks, the most specific first.
    const KEYS: [&str; 16] = [
        "input_args",
        "input",
        "query",
        "question",
        "task",
        "message",
        "user_msg",
        "user_message",
        "user_input",
        "prompt",
        "request",
        "new_message",
        "text",
        "content",
        "messages",
        "inputs",
    ];
    find_text_in_field(text, &KEYS, MessageRole::User)
}

/// The answer of a run. `spoken` is the text of the last reply without tool calls. `is_whole_reply` says that this text is the
/// whole reply and was not extracted from a larger one.
pub(super) fn extract_answer(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    spoken: Option<&str>,
    is_whole_reply: bool,
) -> Option<String> {
    let reply = spoken.map(str::trim).filter(|text| !text.is_empty());
    if let Some(reply) = reply.filter(|_| is_whole_reply) {
        return Some(reply.to_owned());
    }
    for (position, node) in find_dialogue_frames(tree, run).enumerate() {
        // The output of a failed agent is an error message, not an answer.
        if node.span.is_error() && reply.is_none() {
            continue;
        }
        let recorded = node.facts.answer.as_deref().map(str::to_owned).or_else(|| extract_frame_answer(&node.facts));
        let Some(recorded) = recorded.filter(|text| !text.trim().is_empty()) else { continue };
        match reply {
            Some(reply)
                if tree.budget.try_charge_comparison(reply.len() + recorded.len())
                    && contains_ignoring_whitespace(reply, &recorded) =>
            {
                return Some(recorded.trim().to_owned());
            }
            // Some frameworks record the transcript so far as output. That is not an answer.
            None if react::read_react_transcript(&recorded).steps.is_empty()
                && (node.facts.kind == OperationKind::Agent || position == 0) =>
            {
                return Some(recorded.trim().to_owned());
            }
            _ => {}
        }
    }
    reply.map(str::to_owned)
}

/// The answer that a frame records.
fn extract_frame_answer(frame: &NormalizedSpan<'_>) -> Option<String> {
    if let Some(message) = frame.output.last().filter(|message| !message.has_tool_calls()) {
        let text = message.joined_text().trim().to_owned();
        return (!text.is_empty()).then_some(text);
    }
    let text = frame.output_text.as_deref()?.trim();
    // Names of result fields of frameworks, the most specific first.
    const KEYS: [&str; 14] = [
        "output",
        "raw",
        "result",
        "response",
        "answer",
        "final_answer",
        "final_output",
        "content",
        "text",
        "message",
        "return_values",
        "chat_message",
        "messages",
        "outputs",
    ];
    find_text_in_field(text, &KEYS, MessageRole::Assistant)
}

/// Finds a plain text in the input or output of a frame: the text itself, or one of its fields, in the order of `keys`.
fn find_text_in_field(text: &str, keys: &[&str], role: MessageRole) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if !text.starts_with(['{', '[']) {
        return (!looks_like_repr(text)).then(|| text.to_owned());
    }
    // Frames record whole states, so only the fields that may matter are parsed.
    let fields = bounded_json::raw_fields(text);
    let is_message =
        |fields: &[(Cow<'_, str>, &RawValue)]| fields.iter().any(|(key, _)| key == "parts" || key == "role");
    let Some(fields) = fields.filter(|fields| !is_message(fields)) else {
        return literal::parse_lenient_json(text).and_then(|json| find_text_in_json(json, keys, role, 0));
    };
    keys.iter().find_map(|key| {
        let (_, raw) = fields.iter().find(|(name, _)| name == key)?;
        find_text_in_json(bounded_json::parse_bounded_json(raw.get())?, keys, role, 1)
    })
}

/// Searches nested values. Four levels are deeper than any framework wraps.
fn find_text_in_json(json: Json, keys: &[&str], role: MessageRole, depth: usize) -> Option<String> {
    if depth > 4 {
        return None;
    }
    match json {
        Json::String(text) => {
            let text = text.trim();
            (!text.is_empty() && !looks_like_repr(text)).then(|| text.to_owned())
        }
        Json::Array(_) => {
            let messages = messages_from_json(json);
            let found = match role {
                MessageRole::User => find_last_user_message(&messages),
                _ => messages.iter().rposition(|message| {
                    message.role == MessageRole::Assistant && !message.joined_text().trim().is_empty()
                }),
            };
            found.map(|at| messages[at].joined_text().trim().to_owned())
        }
        Json::Object(mut object) => {
            if object.contains_key("parts") || object.contains_key("role") {
                let messages = messages_from_json(Json::Object(object));
                let text = messages.first()?.joined_text().trim().to_owned();
                return (!text.is_empty()).then_some(text);
            }
            keys.iter()
                .find_map(|key| object.remove(*key).and_then(|inner| find_text_in_json(inner, keys, role, depth + 1)))
        }
        _ => None,
    }
}

/// Removes the text that well-known prompts put around the request.
fn strip_prompt_template(text: &str) -> &str {
    let text = text.trim();
    for opening in ["New task:", "Current Task:", "Task:", "User:", "Human:"] {
        if let Some(rest) = text.strip_prefix(opening) {
            // CrewAI continues with the expected output.
            let end = rest.find("\n\nThis is the expect").unwrap_or(rest.len());
            return rest[..end].trim();
        }
    }
    if let Some(begin) = text.rfind("Begin!")
        && let Some(question) = text[begin..].find("Question:")
    {
        let rest = &text[begin + question + "Question:".len()..];
        let end = rest.find("\nThought:").unwrap_or(rest.len());
        return rest[..end].trim();
    }
    let end = text.find("\n\nThis was your previous work").or_else(|| text.find("(reminder to respond in a JSON blob"));
    end.map_or(text, |end| text[..end].trim())
}

/// Whether a text contains another, ignoring differences in white space.
fn contains_ignoring_whitespace(text: &str, part: &str) -> bool {
    let part = part.trim();
    if part.is_empty() || text.contains(part) {
        return true;
    }
    // Collapsing copies the text. A text without the first word of the part need not be copied.
    if !part.split_whitespace().next().is_some_and(|word| text.contains(word)) {
        return false;
    }
    collapse_whitespace(text).contains(&collapse_whitespace(part))
}
