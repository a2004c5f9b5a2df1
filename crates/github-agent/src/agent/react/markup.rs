//! Calls without ReAct's labels: in elements (`<tool_call>{"name": ..}</tool_call>`, `<tool>name</tool>`), or as the one
//! object that a reply ends with (`{"action": .., "action_input": ..}`).

use std::borrow::Cow;

use serde_json::Value;

use super::super::literal;
use super::{MAX_CALLS, TextCall, TextCalls, TextReply, action};

/// What a reply without actions of its own comes to; `None` if it has nothing of all this.
pub(super) fn parse_markup_reply<'t>(text: &'t str, thinking: Option<&'t str>) -> Option<TextReply<'t>> {
    parse_markup_elements(text, thinking).or_else(|| parse_json_action(text, thinking))
}

fn parse_markup_elements<'t>(text: &'t str, thinking: Option<&'t str>) -> Option<TextReply<'t>> {
    let mut thought = None;
    let mut calls: Vec<TextCall<'t>> = Vec::new();
    let (mut rest, mut kept) = (text, 0);
    while let Some(element) = find_markup_element(rest) {
        let said = strip_thought_label(element.before);
        // Calls without a word in between are made together; behind a word or an observation begins what the model
        // could not know yet.
        if !calls.is_empty() && (said.is_some() || !matches!(element.name, "tool" | "tool_call")) {
            break;
        }
        // What stands behind so many is not made, so it does not stay in the conversation either.
        if calls.len() >= MAX_CALLS {
            break;
        }
        if calls.is_empty() {
            thought = said.or(thinking);
        }
        rest = element.behind;
        match element.name {
            "tool" => {
                let (input, behind) = input_element(rest);
                rest = behind;
                calls.push(TextCall {
                    name: element.inside.trim().into(),
                    input: Cow::Borrowed(action::extract_action_input(input)),
                });
            }
            "tool_call" => {
                let value = literal::parse_literal(element.inside).filter(|value| value.get("name").is_some());
                calls.extend(value.and_then(action::calls_in).into_iter().flatten());
            }
            "final_answer" if element.inside.trim().is_empty() => {}
            "final_answer" => return Some(TextReply::Answer(Cow::Borrowed(element.inside.trim()))),
            _ => {}
        }
        kept = text.len() - rest.len();
    }
    let has_more = find_markup_element(rest).is_some_and(|element| matches!(element.name, "tool" | "tool_call"));
    (!calls.is_empty()).then(|| {
        let thought = thought.map(Cow::Borrowed);
        TextReply::Calls(TextCalls { thought, calls, kept: text[..kept].trim(), has_more })
    })
}

/// `{"action": .., "action_input": ..}` to the end of the reply, bare or in a fence; `{"name": .., "arguments": {..}}` if
/// there is nothing else.
fn parse_json_action<'t>(text: &'t str, thinking: Option<&'t str>) -> Option<TextReply<'t>> {
    let trimmed = text.trim();
    let at = if trimmed.starts_with('{') {
        0
    } else {
        trimmed.find("```").or_else(|| trimmed.find("\n{").map(|at| at + 1))?
    };
    let (before, written) = trimmed.split_at(at);
    let written = written.trim_start_matches('`').trim_start_matches(char::is_alphanumeric).trim_start();
    let (value, behind) = literal::at_start(written).filter(|_| written.starts_with('{'))?;
    let is_call = value.get("action").is_some_and(Value::is_string) && value.get("action_input").is_some()
        || before.is_empty() && is_native(&value);
    if !is_call || !behind.trim().trim_matches('`').is_empty() {
        return None;
    }
    let calls = action::calls_in(value)?;
    if calls.iter().any(|call| action::is_answer(&call.name)) {
        let answer = calls.into_iter().next().map(|call| action::extract_final_answer(&call.input).into_owned());
        return answer.filter(|answer| !answer.is_empty()).map(|answer| TextReply::Answer(answer.into()));
    }
    let thought = strip_thought_label(before).or(thinking).map(Cow::Borrowed);
    Some(TextReply::Calls(TextCalls { thought, calls, kept: trimmed, has_more: false }))
}

/// A native call that was written down: a name and arguments, and nothing beside them.
fn is_native(value: &Value) -> bool {
    let Some(members) = value.as_object().filter(|members| members.len() == 2) else { return false };
    let has_name = members.get("name").and_then(Value::as_str).is_some_and(action::is_name);
    let is_object = |arguments: &Value| match arguments {
        Value::String(text) => text.trim_start().starts_with('{'),
        other => other.is_object(),
    };
    has_name && ["arguments", "parameters"].iter().any(|key| members.get(*key).is_some_and(is_object))
}

/// What stands before a call, without the label that some models write all the same.
fn strip_thought_label(before: &str) -> Option<&str> {
    let before = before.trim();
    let said = before.strip_prefix("Thought:").unwrap_or(before).trim();
    (!said.is_empty()).then_some(said)
}

struct ReplyMarkupElement<'t> {
    before: &'t str,
    name: &'static str,
    inside: &'t str,
    behind: &'t str,
}

fn find_markup_element(text: &str) -> Option<ReplyMarkupElement<'_>> {
    const NAMES: [&str; 5] = ["tool_call", "tool_response", "tool", "observation", "final_answer"];
    for (open, _) in text.match_indices('<') {
        let found = NAMES.iter().find_map(|name| {
            let body = text[open + 1..].strip_prefix(name)?.strip_prefix('>')?;
            Some((*name, body))
        });
        if let Some((name, body)) = found {
            // A stop sequence may have taken the closing mark.
            let (inside, behind) = body.split_once(&format!("</{name}>")).unwrap_or((body, ""));
            return Some(ReplyMarkupElement { before: &text[..open], name, inside, behind });
        }
    }
    None
}

fn input_element(text: &str) -> (&str, &str) {
    match text.trim_start().strip_prefix("<tool_input>") {
        Some(body) => body.split_once("</tool_input>").unwrap_or((body, "")),
        None => ("", text),
    }
}
