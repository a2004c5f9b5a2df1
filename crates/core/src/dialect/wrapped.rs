//! Envelopes that frameworks put around a tool's arguments, a tool's result or a model's reply when they write them
//! into one text. Recognised by shape, because instrumentations do not state which one they used.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::bounded_json;
use crate::literal;
use crate::message::{ArgumentsText, ChatMessage, MessageRole, messages_from_json, result_text};

/// A tool's result without its envelope.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UnwrappedResult<'s> {
    pub text: Cow<'s, str>,
    pub call_id: Option<String>,
    pub is_error: bool,
}

/// Maximum number of envelopes that are removed from one text. Frameworks encode or wrap at most twice. Each further
/// level of a hostile text would cost a pass over the whole text.
const MAX_WRAPPED_DEPTH: usize = 4;

/// Removes all known envelopes from a tool's result. Any other text is returned as it is, borrowed.
pub(crate) fn unwrap_result(text: &str) -> UnwrappedResult<'_> {
    // The text may be JSON-encoded once more. Only the innermost text is kept in memory.
    let Some(mut inner) = decode_text(text) else { return unwrap_envelope(text) };
    for _ in 1..MAX_WRAPPED_DEPTH {
        match decode_text(&inner) {
            Some(decoded) => inner = decoded,
            None => break,
        }
    }
    let UnwrappedResult { text, call_id, is_error } = unwrap_envelope(&inner);
    let taken_out = match text {
        Cow::Borrowed(whole) if whole.len() == inner.len() => None,
        text => Some(text.into_owned()),
    };
    UnwrappedResult { text: Cow::Owned(taken_out.unwrap_or(inner)), call_id, is_error }
}

/// Decodes a JSON string; `None` for any other JSON and for text that is not JSON.
fn decode_text(text: &str) -> Option<String> {
    let trimmed = text.trim_start();
    trimmed.starts_with('"').then(|| serde_json::from_str(trimmed).ok()).flatten()
}

/// Removes one envelope.
fn unwrap_envelope(text: &str) -> UnwrappedResult<'_> {
    let plain = UnwrappedResult { text: Cow::Borrowed(text), ..UnwrappedResult::default() };
    let trimmed = text.trim_start();
    match trimmed.as_bytes().first() {
        Some(b'{') if !may_be_envelope(trimmed) => plain,
        Some(b'{') => match bounded_json::parse_bounded_json(trimmed) {
            Some(Json::Object(object)) => unwrap_object(object, text, 0),
            _ => plain,
        },
        // `[true, {"name", "role", "content"}]`: AG2's pair of success and message.
        Some(b'[') if trimmed.starts_with("[true,") || trimmed.starts_with("[false,") => {
            match bounded_json::parse_bounded_json(trimmed).and_then(success_and_message) {
                Some((ok, mut message)) if message.contains_key("content") => UnwrappedResult {
                    text: Cow::Owned(result_text(message.remove("content").unwrap_or_default())),
                    call_id: message.get("tool_call_id").and_then(Json::as_str).map(str::to_owned),
                    is_error: !ok,
                },
                _ => plain,
            }
        }
        // Text parts: `[{"type": "text", "text"}]`, also `input_text` and `output_text`.
        Some(b'[')
            if trimmed.starts_with("[{\"text\"")
                || trimmed.starts_with("[{\"type\"") && trimmed.contains("\"text\"") =>
        {
            match bounded_json::parse_bounded_json(trimmed) {
                Some(json) => UnwrappedResult { text: Cow::Owned(result_text(json)), ..UnwrappedResult::default() },
                None => plain,
            }
        }
        Some(b'c') => unwrap_printed_message(trimmed).unwrap_or(plain),
        _ => plain,
    }
}

/// LangChain's ToolMessage as Python prints it: `content='…' name='search' tool_call_id='call_1'`. Taken only with the id
/// behind the content, which no tool returns.
fn unwrap_printed_message(text: &str) -> Option<UnwrappedResult<'static>> {
    const ID: &str = " tool_call_id='";
    let literal = text.strip_prefix("content=").filter(|literal| literal.contains(ID))?;
    let (content, fields) = literal::parse_prefix(literal)?;
    let (call_id, _) = fields[fields.find(ID)? + ID.len()..].split_once('\'')?;
    Some(UnwrappedResult {
        text: Cow::Owned(result_text(content)),
        call_id: Some(call_id.to_owned()),
        is_error: fields.contains(" status='error'"),
    })
}

/// AG2's pair of success and message.
fn success_and_message(json: Json) -> Option<(bool, Map<String, Json>)> {
    let Json::Array(pair) = json else { return None };
    match <[Json; 2]>::try_from(pair) {
        Ok([Json::Bool(ok), Json::Object(message)]) => Some((ok, message)),
        _ => None,
    }
}

/// Whether a result begins like an envelope. Parsing JSON costs more than everything else about a result, so other
/// results are not parsed.
fn may_be_envelope(text: &str) -> bool {
    // The keys with which the envelopes below begin.
    const FIRST_KEYS: [&str; 14] = [
        "blocks",
        "content",
        "type",
        "id",
        "name",
        "result",
        "response",
        "output",
        "error",
        "tool_call_id",
        "tool_name",
        "message",
        "isError",
        "lc",
    ];
    let inside = text[1..].trim_start();
    let Some(key) = inside.strip_prefix('"') else { return false };
    FIRST_KEYS.iter().any(|first| key.strip_prefix(first).is_some_and(|rest| rest.starts_with('"')))
}

/// Removes the envelope of an object. Each branch is one framework's form; the order matters, because later forms are
/// less specific.
fn unwrap_object<'s>(mut object: Map<String, Json>, text: &'s str, depth: usize) -> UnwrappedResult<'s> {
    let owned = |json: Json, call_id: Option<String>, is_error: bool| {
        let inner = result_text(json);
        UnwrappedResult { text: Cow::Owned(inner), call_id, is_error }
    };
    let plain = UnwrappedResult { text: Cow::Borrowed(text), ..UnwrappedResult::default() };
    let text_of = |object: &Map<String, Json>, key: &str| object.get(key).and_then(Json::as_str).map(str::to_owned);
    let flagged = object.get("is_error").or_else(|| object.get("isError")).is_some_and(|flag| flag == true);
    // LlamaIndex's ToolCallResult: {"tool_name", "tool_kwargs", "tool_id", "tool_output": {..}}.
    if depth + 1 < MAX_WRAPPED_DEPTH
        && object.contains_key("tool_kwargs")
        && let Some(Json::Object(inner)) = object.get_mut("tool_output")
    {
        let inner = std::mem::take(inner);
        let written = Json::Object(inner.clone()).to_string();
        let UnwrappedResult { text, is_error, .. } = unwrap_object(inner, &written, depth + 1);
        return UnwrappedResult { text: Cow::Owned(text.into_owned()), call_id: text_of(&object, "tool_id"), is_error };
    }
    // LlamaIndex's ToolOutput: {"blocks": [{"text"}], "tool_name", "raw_input", ...}, earlier {"content", "tool_name", ...}.
    if object.contains_key("tool_name") && object.contains_key("raw_input") {
        if let Some(blocks) = object.remove("blocks") {
            return owned(blocks, None, flagged);
        }
        if let Some(content) = object.remove("content") {
            return owned(content, None, flagged);
        }
    }
    // LangChain's ToolMessage: {"type": "tool", "data": {"content", "tool_call_id", "status"}}.
    if object.get("type").is_some_and(|kind| kind == "tool" || kind == "ToolMessage") || object.contains_key("lc") {
        let data = object.get_mut("data");
        let mut message = match data {
            Some(Json::Object(data)) => std::mem::take(data),
            _ => match object.remove("kwargs") {
                Some(Json::Object(kwargs)) => kwargs,
                _ => object.clone(),
            },
        };
        if let Some(content) = message.remove("content") {
            let failed = message.get("status").is_some_and(|status| status == "error");
            return owned(content, text_of(&message, "tool_call_id"), failed || flagged);
        }
        return plain;
    }
    // Gemini: {"id", "name", "response": {"result"}}.
    if object.contains_key("response") && object.contains_key("name") {
        let id = text_of(&object, "id");
        let failed = object["response"].get("error").is_some();
        return owned(object.remove("response").unwrap_or_default(), id, failed);
    }
    // MCP: {"content": [{"type": "text", "text"}], "isError"}.
    if object.contains_key("isError") && object.contains_key("content") {
        return owned(object.remove("content").unwrap_or_default(), None, flagged);
    }
    // A tool message: {"role": "tool", "content", "tool_call_id"}.
    if object.contains_key("content")
        && (object.contains_key("tool_call_id") || object.get("role").is_some_and(|r| r == "tool"))
    {
        let id = text_of(&object, "tool_call_id");
        return owned(object.remove("content").unwrap_or_default(), id, flagged);
    }
    // MCP's text part, and Vercel's {"type": "text", "value"}.
    if object.get("type").is_some_and(|kind| kind == "text" || kind == "error-text" || kind == "json")
        && object.len() <= 4
    {
        let failed = object["type"] == "error-text";
        for key in ["text", "value"] {
            if let Some(inner) = object.remove(key) {
                return owned(inner, None, failed);
            }
        }
    }
    // `{"result": "text"}`: the return value of a function that must return an object.
    if object.len() == 1 {
        for key in ["result", "output"] {
            match object.get(key) {
                Some(Json::String(inner)) => {
                    if let Some(message) = unwrap_printed_message(inner) {
                        return message;
                    }
                    return UnwrappedResult { text: Cow::Owned(inner.clone()), ..UnwrappedResult::default() };
                }
                Some(_) if key == "result" => {
                    return owned(object.remove(key).unwrap_or_default(), None, false);
                }
                _ => {}
            }
        }
    }
    // `{"output": ...}`: LangChain's callback, alone or beside its keyword arguments. It may contain a whole
    // ToolMessage.
    if object.contains_key("output") && object.keys().all(|key| key == "output" || key == "kwargs") {
        return match object.remove("output") {
            Some(Json::Object(inner)) if depth + 1 < MAX_WRAPPED_DEPTH => {
                let written = Json::Object(inner.clone()).to_string();
                let UnwrappedResult { text, call_id, is_error } = unwrap_object(inner, &written, depth + 1);
                UnwrappedResult { text: Cow::Owned(text.into_owned()), call_id, is_error }
            }
            Some(inner) => owned(inner, None, false),
            None => plain,
        };
    }
    plain
}

/// Removes all known envelopes from a tool's arguments. `None` for blank text.
pub(crate) fn unwrap_arguments(text: Cow<'_, str>) -> Option<ArgumentsText<'_>> {
    unwrap_arguments_within(text, MAX_WRAPPED_DEPTH)
}

/// Removes one envelope, and then the next one for as long as levels are left.
fn unwrap_arguments_within(text: Cow<'_, str>, levels_left: usize) -> Option<ArgumentsText<'_>> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return None;
    }
    if !trimmed.starts_with('{') {
        return Some(ArgumentsText::Text(text));
    }
    let Some(Json::Object(mut object)) = bounded_json::parse_bounded_json(trimmed) else {
        return match literal::parse_lenient_json(trimmed) {
            Some(json) => Some(ArgumentsText::from(json)),
            None => Some(ArgumentsText::Text(text)),
        };
    };
    let only = |keys: &[&str], object: &Map<String, Json>| object.keys().all(|key| keys.contains(&key.as_str()));
    // {"kwargs": {...}} (LlamaIndex), {"args": [], "sanitize_inputs_outputs": .., "kwargs": {...}} (smolagents).
    if object.contains_key("kwargs") && only(&["args", "kwargs", "sanitize_inputs_outputs", "ctx"], &object) {
        let args = object.remove("args").and_then(|args| args.as_array().cloned()).unwrap_or_default();
        let mut kwargs = match object.remove("kwargs") {
            Some(Json::Object(kwargs)) => kwargs,
            _ => Map::new(),
        };
        if kwargs.is_empty() && args.len() == 1 && args[0].is_object() {
            return args.into_iter().next().map(ArgumentsText::from);
        }
        if !args.is_empty() {
            kwargs.insert("args".to_owned(), Json::Array(args));
        }
        return Some(ArgumentsText::from(Json::Object(kwargs)));
    }
    // {"input_str": "{'a': 1}", "inputs": {"a": 1}, "tags": ...}: LangChain's callback, as OpenLLMetry writes it.
    if let Some(input) = object.get("input_str").and_then(Json::as_str).map(str::to_owned) {
        return match object.remove("inputs") {
            Some(inputs @ Json::Object(_)) => Some(ArgumentsText::from(inputs)),
            _ if levels_left == 0 => Some(ArgumentsText::Text(Cow::Owned(input))),
            _ => {
                // The outer text is freed before the inner one is read.
                drop((object, text));
                unwrap_arguments_within(Cow::Owned(input), levels_left - 1)
            }
        };
    }
    // {"input": {...}, "options": ...} (BeeAI).
    if object.get("input").is_some_and(Json::is_object) && only(&["input", "options"], &object) {
        return object.remove("input").map(ArgumentsText::from);
    }
    // {"arguments": "<JSON>", "name"} (AG2), {"name", "args", "id", "type"} (LangChain's tool call).
    for key in ["arguments", "args"] {
        if object.contains_key(key)
            && object.contains_key("name")
            && only(&["id", "name", "type", "arguments", "args"], &object)
        {
            return match object.remove(key) {
                Some(Json::String(text)) => Some(ArgumentsText::Text(Cow::Owned(text))),
                Some(json) => Some(ArgumentsText::from(json)),
                None => None,
            };
        }
    }
    Some(ArgumentsText::from(Json::Object(object)))
}

/// Whether a text is the JSON schema of arguments instead of arguments: instrumentations use one attribute for both.
pub(crate) fn is_schema(text: &str) -> bool {
    let trimmed = text.trim_start();
    if !trimmed.starts_with('{') {
        return false;
    }
    // Most schemas begin like this, and need not be parsed then.
    if trimmed.starts_with("{\"properties\": {") || trimmed.starts_with("{\"type\": \"object\"") {
        return true;
    }
    let Some(Json::Object(object)) = bounded_json::parse_bounded_json(trimmed) else { return false };
    if object.get("properties").is_some_and(Json::is_object) || object.get("type").is_some_and(|kind| kind == "object")
    {
        return true;
    }
    // smolagents' form of a schema: `{"repo": {"type": "string", "description": ...}}`.
    !object.is_empty()
        && object.values().all(|value| value.get("type").is_some_and(|kind| kind.is_string() || kind.is_array()))
}

/// Reads messages from a text of unknown form: a structured request or reply, otherwise the text itself as one message.
pub(crate) fn messages_in_text(text: &str, role: MessageRole) -> Vec<ChatMessage<'static>> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Vec::new();
    }
    if trimmed.starts_with(['{', '['])
        && let Some(json) = bounded_json::parse_bounded_json(trimmed)
    {
        let mut messages = messages_from_json(json);
        messages.retain(|message| !message.is_empty() && !looks_like_repr(&message.joined_text()));
        // A request that is an object without messages contains the parameters of some function. A reply may be JSON.
        if !messages.is_empty() || role == MessageRole::User {
            return messages;
        }
    }
    // LlamaIndex prints a reply as "assistant: text".
    let text = trimmed.strip_prefix("assistant: ").unwrap_or(text);
    vec![ChatMessage::from_text(role, text.to_owned())]
}

/// Whether a text is Python's `repr` of an object, `StopEvent(result=AgentOutput(...` or `<object at 0x..>`, which no
/// model wrote.
pub(crate) fn looks_like_repr(text: &str) -> bool {
    let text = text.trim_start();
    let name = text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'.').count();
    (name > 0 && text.as_bytes()[0].is_ascii_uppercase() && text[name..].starts_with('(') && text.contains('='))
        || (text.starts_with('<') && (text.contains(" at 0x") || text.contains(" object>")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that is JSON-encoded `levels` times. The escapes are such that a level adds a constant to the text.
    fn encoded(text: &str, levels: usize) -> String {
        let escape = |text: &str| text.replace('\\', "\\u005c").replace('"', "\\u0022");
        (0..levels).fold(text.to_owned(), |text, _| format!("\"{}\"", escape(&text)))
    }

    #[test]
    fn texts_are_decoded_a_few_times_only() {
        for levels in 0..=MAX_WRAPPED_DEPTH {
            assert_eq!(unwrap_result(&encoded("x", levels)).text, "x", "{levels}");
        }
        assert_eq!(unwrap_result(&encoded("x", 40)).text, encoded("x", 40 - MAX_WRAPPED_DEPTH));
        assert_eq!(unwrap_result(&encoded(r#"{"result": "x"}"#, 2)).text, "x");
        assert_eq!(unwrap_result("\"open").text, "\"open");
    }

    #[test]
    fn objects_in_objects_are_unwrapped_a_few_times_only() {
        let nested = |levels: usize| r#"{"output":"#.repeat(levels) + r#"{"a":1}"# + &r#","kwargs":{}}"#.repeat(levels);
        assert_eq!(unwrap_result(&nested(2)).text, r#"{"a":1}"#);
        let text = unwrap_result(&nested(100)).text.into_owned();
        assert!(text.matches("output").count() >= 90, "{text}");
    }

    #[test]
    fn arguments_in_arguments_are_unwrapped_a_few_times_only() {
        let wrap = |text: &str| serde_json::json!({"input_str": text}).to_string();
        let twice = wrap(&wrap(r#"{"a":1}"#));
        assert_eq!(unwrap_arguments(twice.into()), Some(ArgumentsText::Json(r#"{"a":1}"#.into())));
        let deep = (0..12).fold("x".to_owned(), |text, _| wrap(&text));
        let Some(ArgumentsText::Text(left)) = unwrap_arguments(deep.into()) else { panic!() };
        assert!(left.matches("input_str").count() > 4, "{left}");
    }
}
