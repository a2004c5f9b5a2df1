//! What stands behind `Action:`: a tool's name, or a whole call in one of the forms that models use.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::literal;
use super::TextCall;

#[derive(Debug, PartialEq)]
pub(super) enum TextAction<'t> {
    /// The input stands somewhere else, or nowhere.
    Name(&'t str),
    Calls(Vec<TextCall<'t>>),
    /// No tool is named.
    Nothing,
}

/// `has_input`: an `Action Input:` stands behind.
pub(super) fn parse_text_action(action: &str, has_input: bool) -> TextAction<'_> {
    let action = action.trim();
    let body = strip_code_fence(action);
    if body.starts_with(['{', '['])
        && let Some((value, _)) = literal::at_start(body)
        && let Some(calls) = calls_in(value)
    {
        return TextAction::Calls(calls);
    }
    if let Some(call) = parse_backticked_call(action).or_else(|| broken_object(body)) {
        return TextAction::Calls(vec![call]);
    }
    let line = action.lines().next().unwrap_or_default();
    if has_input {
        let name = clean_tool_name(line);
        return if name.is_empty() { TextAction::Nothing } else { TextAction::Name(name) };
    }
    let call = parse_one_line_call(action)
        .or_else(|| before_object(action))
        .or_else(|| in_brackets(action))
        .or_else(|| in_parentheses(line))
        .or_else(|| in_parentheses(action));
    match (call, clean_tool_name(line)) {
        (Some(call), _) => TextAction::Calls(vec![call]),
        (None, name) if is_name(name) && !is_nothing(name) => TextAction::Name(name),
        _ => TextAction::Nothing,
    }
}

/// What is inside a code fence or back-ticks, if the text begins with them; up to the value's end, if it is one.
pub(super) fn extract_action_input(text: &str) -> &str {
    let text = strip_code_fence(text.trim());
    let ticked = text.strip_prefix('`').map(str::trim_start).filter(|inside| inside.starts_with(['{', '[']));
    let text = ticked.map_or(text, |inside| inside.trim_end_matches('`').trim_end());
    if !text.starts_with(['{', '[']) {
        return text;
    }
    // What follows the value is talk.
    literal::at_start(text).map_or(text, |(_, rest)| text[..text.len() - rest.len()].trim_end())
}

/// The answer that a finishing action gives: its text, or its only argument.
pub(super) fn extract_final_answer(input: &str) -> Cow<'_, str> {
    match literal::parse_literal(input) {
        Some(Value::String(text)) => Cow::Owned(text),
        Some(Value::Object(object)) if object.len() < 2 => {
            Cow::Owned(object.into_iter().next().map(|(_, value)| json_to_text(value)).unwrap_or_default())
        }
        _ => Cow::Borrowed(input),
    }
}

pub(super) fn is_nothing(name: &str) -> bool {
    ["", "none", "n/a", "no action", "nothing", "-", "null"].iter().any(|nothing| name.eq_ignore_ascii_case(nothing))
}

pub(super) fn is_answer(name: &str) -> bool {
    ["final answer", "final_answer", "finalanswer", "finish"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// `{"action": "tool", "action_input": {..}}` under the names that prompts give it; a list of them is several calls.
pub(super) fn calls_in(value: Value) -> Option<Vec<TextCall<'static>>> {
    match value {
        Value::Array(items) if !items.is_empty() => items.into_iter().map(call_in).collect(),
        object => Some(vec![call_in(object)?]),
    }
}

fn call_in(value: Value) -> Option<TextCall<'static>> {
    const NAMES: [&str; 5] = ["action", "tool", "tool_name", "name", "function"];
    const INPUTS: [&str; 6] = ["action_input", "tool_input", "arguments", "input", "parameters", "args"];
    let Value::Object(mut object) = value else { return None };
    let name = NAMES.iter().find_map(|key| object.remove(*key))?.as_str()?.to_owned();
    let input = match INPUTS.iter().find_map(|key| object.remove(*key)) {
        Some(Value::String(text)) => extract_action_input(&text).to_owned(),
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_string(),
    };
    Some(TextCall { name: name.into(), input: input.into() })
}

/// `{"action": "tool", "action_input": {..` that is broken: the tool can be told what is wrong with its input.
fn broken_object(body: &str) -> Option<TextCall<'_>> {
    let body = body.strip_prefix('{')?;
    let behind = |key: &str| {
        let (_, behind) = body.split_once(key)?;
        Some(behind.trim_start().strip_prefix(':')?.trim_start())
    };
    let (name, _) = behind("\"action\"")?.strip_prefix('"')?.split_once('"')?;
    let input = behind("\"action_input\"").unwrap_or_default().trim_end();
    Some(build_text_call(name, input.strip_suffix('}').unwrap_or(input).trim_end()))
}

/// `` `tool` with `{..}` ``
fn parse_backticked_call(action: &str) -> Option<TextCall<'_>> {
    let (name, behind) = action.lines().next()?.strip_prefix('`')?.split_once("` with `")?;
    let written = behind.trim_end().strip_suffix('`')?;
    is_name(name).then(|| build_text_call(name, extract_action_input(written)))
}

/// `tool Action Input: {..}`, all on one line.
fn parse_one_line_call(action: &str) -> Option<TextCall<'_>> {
    const LABEL: &str = "action input:";
    // A name is short, so no more has to be looked at.
    let head = &action.as_bytes()[..action.len().min(256)];
    let at = head.windows(LABEL.len()).position(|part| part.eq_ignore_ascii_case(LABEL.as_bytes()))?;
    let name = clean_tool_name(action.get(..at)?);
    let written = action.get(at + LABEL.len()..)?;
    (is_name(name) && !is_nothing(name)).then(|| build_text_call(name, extract_action_input(written)))
}

/// `tool {..}`, also with the object below, or in a fence there.
fn before_object(action: &str) -> Option<TextCall<'_>> {
    let before = action[..action.find('{')?].trim_end();
    let line = before.lines().next()?;
    let between = before[line.len()..].trim();
    let is_fence = between.strip_prefix("```").is_some_and(|word| word.chars().all(char::is_alphanumeric));
    let name = clean_tool_name(line);
    let fits = (between.is_empty() || is_fence) && is_name(name) && !is_nothing(name);
    fits.then(|| build_text_call(name, extract_action_input(&action[before.len() - between.len()..])))
}

/// `tool[..]`
fn in_brackets(action: &str) -> Option<TextCall<'_>> {
    let (before, behind) = action.split_once('[')?;
    let name = clean_tool_name(before);
    let inside = behind[..behind.rfind(']')?].trim();
    is_name(name).then(|| build_text_call(name, inside))
}

/// `tool({..})`, `tool(path="a", ref="b")`, `tool()`
fn in_parentheses(action: &str) -> Option<TextCall<'_>> {
    let action = action.trim().trim_matches(['`', '*']).trim();
    let (name, behind) = action.split_once('(')?;
    let inside = behind.strip_suffix(')')?;
    if !is_name(name) {
        return None;
    }
    let input = match parse_keyword_arguments(inside) {
        Some(arguments) if !arguments.is_empty() => Cow::Owned(Value::Object(arguments).to_string()),
        // One object, or something that is told to be none.
        _ => Cow::Borrowed(inside.trim()),
    };
    Some(TextCall { name: name.into(), input })
}

/// `path="a", ref="b"`: all of them with their names.
fn parse_keyword_arguments(inside: &str) -> Option<Map<String, Value>> {
    let mut arguments = Map::new();
    let mut rest = inside.trim();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=')?;
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let (value, behind) = literal::at_start(behind)?;
        arguments.insert(name.to_owned(), value);
        rest = behind.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(behind) => behind.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(arguments)
}

pub(super) fn build_text_call<'t>(name: &'t str, input: &'t str) -> TextCall<'t> {
    TextCall { name: Cow::Borrowed(name), input: Cow::Borrowed(input) }
}

/// A name without what models put around it: quotes, stars, `tool.`, `tool:`, `tool()`.
fn clean_tool_name(written: &str) -> &str {
    let name = strip_decoration(written);
    let bare = name.strip_suffix("()").unwrap_or(name);
    let bare = strip_decoration(bare.trim_end_matches(['.', ':']));
    if is_name(bare) { bare } else { name }
}

fn strip_decoration(text: &str) -> &str {
    text.trim().trim_matches(|c: char| matches!(c, '*' | '`' | '"' | '\'')).trim()
}

/// One word, as tools are called.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'))
}

fn json_to_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// What is inside a code fence, if the text begins with one.
fn strip_code_fence(text: &str) -> &str {
    let Some(fenced) = text.strip_prefix("```") else { return text };
    // The language stands behind the fence: `json`, or nothing.
    let word = fenced.find(|c: char| !c.is_alphanumeric()).unwrap_or(fenced.len());
    let body = &fenced[word..];
    let body = if body.starts_with(['\n', '\r', ' ', '{', '[']) { body } else { fenced };
    body.rfind("```").map_or(body, |end| &body[..end]).trim()
}
