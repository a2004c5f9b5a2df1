//! Reads the text after `Action:` and `Action Input:`.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::TextDefect;
use crate::bounded_json::{MAX_JSON_NODES, count_nodes};
use crate::lenient_json;

use super::strip_decoration;

/// An action's arguments as written, and as read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActionInput<'t> {
    pub raw: Cow<'t, str>,
    /// `None` when the text looks like JSON and is not.
    pub json: Option<Json>,
    pub defect: Option<TextDefect>,
}

/// Limits how many values of a text's inputs are kept as JSON: one text may hold many small inputs.
#[derive(Debug, Default)]
pub(super) struct InputBudget {
    nodes_kept: usize,
}

impl InputBudget {
    /// Returns the input, without its JSON if that exceeds the budget; its text stays.
    pub(super) fn drop_excess_json<'t>(&mut self, mut input: ActionInput<'t>) -> ActionInput<'t> {
        self.nodes_kept += input.json.as_ref().map_or(0, count_nodes);
        if self.nodes_kept > MAX_JSON_NODES {
            input.json = None;
        }
        input
    }
}

/// Reads the text after `Action Input:`.
pub fn read_input(text: &str) -> ActionInput<'_> {
    let raw = strip_backticks(strip_code_fence(text.trim()));
    let input = |json, defect| ActionInput { raw: Cow::Borrowed(raw), json, defect };
    if raw.is_empty() {
        return input(None, None);
    }
    if !raw.starts_with(['{', '[']) {
        // A quoted text is a text; anything else is taken as it stands.
        return match lenient_json::parse_lenient_json(raw) {
            // Arguments that were encoded twice.
            Some(Json::String(text)) if text.trim_start().starts_with('{') => {
                let inner = lenient_json::parse_lenient_json(&text).filter(Json::is_object);
                input(inner.or(Some(Json::String(text))), None)
            }
            Some(json) => input(Some(json), None),
            None => input(Some(Json::String(raw.to_owned())), None),
        };
    }
    if let Some(json) = lenient_json::parse_lenient_json(raw) {
        return input(Some(json), None);
    }
    match lenient_json::parse_prefix(raw) {
        // Text behind the arguments ("..., along those lines.") does not spoil them.
        Some((json, _)) => input(Some(json), Some(TextDefect::TextAfterArguments)),
        None => input(None, Some(TextDefect::MalformedArguments)),
    }
}

/// The forms of the text after one `Action:` label.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ActionForm<'t> {
    /// `Action: tool`, with the input after its own label.
    Name(&'t str),
    /// `Action: tool[input]` or a JSON object: complete in itself.
    Complete(Vec<(Cow<'t, str>, ActionInput<'t>)>),
    /// Nothing that names a tool.
    Unreadable,
}

/// Reads the text after `Action:`; `has_input` says that an `Action Input:` follows.
pub(super) fn read_action(text: &str, has_input: bool) -> ActionForm<'_> {
    let text = text.trim();
    let body = strip_code_fence(text);
    if body.starts_with(['{', '['])
        && let Some(json) =
            lenient_json::parse_lenient_json(body).or_else(|| lenient_json::parse_prefix(body).map(|(json, _)| json))
        && let Some(calls) = read_json_calls(json)
    {
        return ActionForm::Complete(calls);
    }
    if let Some(call) = parse_langchain_call(text) {
        return ActionForm::Complete(vec![call]);
    }
    if let Some(call) = parse_broken_call(body) {
        return ActionForm::Complete(vec![call]);
    }
    // The language of a fence is no tool name; the content of the fence may be.
    let text = match text.strip_prefix("```") {
        Some(language) if language.chars().all(char::is_alphanumeric) => "",
        Some(_) => body,
        None => text,
    };
    let first_line = text.lines().next().unwrap_or_default();
    if has_input {
        return match bare_name(first_line) {
            "" => ActionForm::Unreadable,
            name => ActionForm::Name(name),
        };
    }
    let read = parse_labeled_call(text)
        .or_else(|| parse_object_call(text))
        .or_else(|| parse_bracketed_call(text))
        .or_else(|| parse_python_call(first_line))
        .or_else(|| parse_python_call(text));
    if let Some((name, input)) = read {
        return ActionForm::Complete(vec![(Cow::Borrowed(name), input)]);
    }
    match bare_name(first_line) {
        name if is_tool_name(name) && !is_no_tool_name(name) => ActionForm::Name(name),
        _ => ActionForm::Unreadable,
    }
}

/// "`tool` with `{'a': 1}`": how LangChain prints a native call.
fn parse_langchain_call(text: &str) -> Option<(Cow<'_, str>, ActionInput<'_>)> {
    let (name, rest) = text.lines().next()?.strip_prefix('`')?.split_once("` with `")?;
    let raw = rest.trim_end().strip_suffix('`')?;
    is_tool_name(name).then(|| (Cow::Borrowed(name), read_input(raw)))
}

/// `{"action": "name", "action_input": ...` whose JSON is broken: the name can still be read.
fn parse_broken_call(body: &str) -> Option<(Cow<'_, str>, ActionInput<'_>)> {
    if !body.starts_with('{') {
        return None;
    }
    let value_of = |key: &str| {
        let rest = body[body.find(key)? + key.len()..].trim_start().strip_prefix(':')?;
        Some(rest.trim_start())
    };
    let name = value_of("\"action\"")?.strip_prefix('"')?.split_once('"')?.0;
    let raw = value_of("\"action_input\"").unwrap_or_default().trim_end();
    let raw = raw.strip_suffix('}').unwrap_or(raw).trim_end();
    let defect = Some(TextDefect::MalformedArguments);
    Some((Cow::Borrowed(name), ActionInput { raw: Cow::Borrowed(raw), json: None, defect }))
}

/// A name without its decoration, and without what ends a sentence or makes a call of it: `tool.`, `tool:`, `tool()`.
fn bare_name(text: &str) -> &str {
    let name = strip_decoration(text);
    let bare = name.strip_suffix("()").unwrap_or(name);
    let bare = strip_decoration(bare.trim_end_matches(['.', ':']));
    if is_tool_name(bare) { bare } else { name }
}

/// A name that a tool can have: one word.
pub(super) fn is_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'))
}

/// Whether the name is one of those that models write when they want no tool.
pub(super) fn is_no_tool_name(name: &str) -> bool {
    ["none", "n/a", "null", "nothing", "no action", "-"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// `tool Action Input: {..}`: the label of the input is within the line of the action.
fn parse_labeled_call(text: &str) -> Option<(&str, ActionInput<'_>)> {
    const LABEL: &[u8] = b"action input:";
    // A name and a label are short, so no more has to be looked at.
    let head = &text.as_bytes()[..text.len().min(256)];
    let at = head.windows(LABEL.len()).position(|words| words.eq_ignore_ascii_case(LABEL))?;
    let name = bare_name(text.get(..at)?);
    let input = text.get(at + LABEL.len()..)?;
    (is_tool_name(name) && !is_no_tool_name(name)).then(|| (name, read_input(input)))
}

/// `tool {..}`, also with the object on the lines below, or in a fence there.
fn parse_object_call(text: &str) -> Option<(&str, ActionInput<'_>)> {
    let open = text.find('{')?;
    let before = text[..open].trim_end();
    let name = before.lines().next()?;
    // Only a fence may be between the name and the object.
    let fence = before[name.len()..].trim();
    let is_fence = fence.strip_prefix("```").is_some_and(|language| language.chars().all(char::is_alphanumeric));
    let name = bare_name(name);
    if !(fence.is_empty() || is_fence) || !is_tool_name(name) || is_no_tool_name(name) {
        return None;
    }
    Some((name, read_input(text[before.len() - fence.len()..].trim_start())))
}

/// `Search[some text]`: the name, and the text up to the last bracket of the action.
fn parse_bracketed_call(text: &str) -> Option<(&str, ActionInput<'_>)> {
    let open = text.find('[')?;
    let name = bare_name(&text[..open]);
    if !is_tool_name(name) {
        return None;
    }
    let rest = &text[open + 1..];
    // A bracket that never closes is an action cut off: no environment takes it.
    let argument = rest[..rest.rfind(']')?].trim();
    let object = argument.starts_with('{').then(|| lenient_json::parse_lenient_json(argument)).flatten();
    let json = Some(object.unwrap_or_else(|| Json::String(argument.to_owned())));
    Some((name, ActionInput { raw: Cow::Borrowed(argument), json, defect: None }))
}

/// `search("text", page=2)`, `search({..})`: a call in the manner of Python.
fn parse_python_call(line: &str) -> Option<(&str, ActionInput<'_>)> {
    let line = line.trim().trim_matches(['`', '*']).trim();
    let open = line.find('(')?;
    let name = &line[..open];
    if !is_tool_name(name) || !line.ends_with(')') {
        return None;
    }
    let raw = &line[open + 1..line.len() - 1];
    let json = super::code::read_arguments(raw).map(unwrap_named_arguments);
    let defect = json.is_none().then_some(TextDefect::MalformedArguments);
    Some((name, ActionInput { raw: Cow::Borrowed(raw), json, defect }))
}

/// One object in the parentheses holds the arguments by name.
fn unwrap_named_arguments(arguments: Json) -> Json {
    let is_alone = arguments.as_object().is_some_and(|object| object.len() == 1);
    match arguments.get("args").and_then(Json::as_array).map(Vec::as_slice) {
        Some([only @ Json::Object(_)]) if is_alone => only.clone(),
        _ => arguments,
    }
}

/// `{"action": ..., "action_input": ...}` without a label at the end of the text, bare or in a fence: returns the
/// text before it and the call. A text that is nothing but `{"name": ..., "arguments": {..}}` is a call as well.
pub(super) fn parse_ending_call(text: &str) -> Option<(&str, Cow<'static, str>, ActionInput<'static>)> {
    let text = text.trim();
    let at = match text.starts_with('{') {
        true => 0,
        false => text.find("```").or_else(|| text.find("\n{").map(|at| at + 1))?,
    };
    let (before, body) = text.split_at(at);
    let body = body.trim_start_matches('`').trim_start_matches(char::is_alphanumeric).trim_start();
    if !body.starts_with('{') {
        return None;
    }
    let (json, rest) = lenient_json::parse_prefix(body)?;
    // Objects with other names for the two are usually no calls.
    let is_call = json.get("action").is_some_and(Json::is_string) && json.get("action_input").is_some()
        || before.is_empty() && is_named_call(&json);
    if !is_call || !rest.trim().trim_matches('`').is_empty() {
        return None;
    }
    let (name, input) = read_json_call(json)?;
    Some((before, name, input))
}

/// Whether an object is `{"name": ..., "arguments": {..}}` and nothing more: a native call that a model wrote as
/// text.
fn is_named_call(json: &Json) -> bool {
    let Json::Object(object) = json else { return false };
    let arguments = object.get("arguments").or_else(|| object.get("parameters"));
    object.len() == 2
        && object.get("name").and_then(Json::as_str).is_some_and(is_tool_name)
        && arguments.is_some_and(|arguments| match arguments {
            Json::String(text) => text.trim_start().starts_with('{'),
            other => other.is_object(),
        })
}

/// `{"action": ..., "action_input": ...}`, under the names that prompts use, alone or in a list.
fn read_json_calls(json: Json) -> Option<Vec<(Cow<'static, str>, ActionInput<'static>)>> {
    let objects = match json {
        Json::Array(items) if !items.is_empty() => items,
        object @ Json::Object(_) => vec![object],
        _ => return None,
    };
    objects.into_iter().map(read_json_call).collect()
}

fn read_json_call(json: Json) -> Option<(Cow<'static, str>, ActionInput<'static>)> {
    let Json::Object(mut object) = json else { return None };
    let name = ["action", "tool", "tool_name", "name", "function"].iter().find_map(|key| object.remove(*key))?;
    let name = name.as_str()?.to_owned();
    let keys = ["action_input", "tool_input", "arguments", "input", "parameters", "args"];
    let input = keys.iter().find_map(|key| object.remove(*key)).unwrap_or(Json::Null);
    Some((Cow::Owned(name), input_from_json(input)))
}

/// Reads arguments from an object; they may be JSON encoded as a text.
pub(super) fn input_from_json(input: Json) -> ActionInput<'static> {
    match input {
        Json::String(text) => {
            let read = read_input(&text);
            let (json, defect) = (read.json, read.defect);
            ActionInput { raw: Cow::Owned(text), json, defect }
        }
        Json::Null => ActionInput::default(),
        json => ActionInput { raw: Cow::Owned(json.to_string()), json: Some(json), defect: None },
    }
}

/// `` `{..}` ``: arguments between back-ticks.
fn strip_backticks(text: &str) -> &str {
    match text.strip_prefix('`').map(str::trim_start) {
        Some(inside) if inside.starts_with(['{', '[']) => inside.trim_end_matches('`').trim_end(),
        _ => text,
    }
}

/// The inside of a code fence, if the text is one; the text itself otherwise.
pub(super) fn strip_code_fence(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("```") else { return text };
    let body = match rest.find('\n') {
        Some(end) if rest[..end].chars().all(|c| c.is_alphanumeric() || c == ' ' || c == '\r') => &rest[end + 1..],
        // The language, and the value right behind it.
        _ => match rest.trim_start_matches(char::is_alphanumeric) {
            value if value.starts_with([' ', '{', '[']) => value,
            _ => rest,
        },
    };
    body.rfind("```").map_or(body, |end| &body[..end]).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inputs_are_read_in_every_form() {
        for (text, want) in [
            (r#"{"a": 1}"#, Some(json!({"a": 1}))),
            ("{'a': None}", Some(json!({"a": null}))),
            ("```json\n{\"a\": 1}\n```", Some(json!({"a": 1}))),
            ("`{\"a\": \"`x`\"}`", Some(json!({"a": "`x`"}))),
            ("NBA", Some(json!("NBA"))),
            ("\"NBA\"", Some(json!("NBA"))),
            (r#""{\"a\": 1}""#, Some(json!({"a": 1}))),
            ("```json{\"a\": 1}```", Some(json!({"a": 1}))),
            ("", None),
            (r#"{"a": "cut of"#, None),
        ] {
            assert_eq!(read_input(text).json, want, "{text}");
        }
        assert_eq!(read_input(r#"{"a": "#).defect, Some(TextDefect::MalformedArguments));
        assert_eq!(read_input("{'a': 1}, along those lines.").defect, Some(TextDefect::TextAfterArguments));
    }

    #[test]
    fn actions_are_read_in_every_form() {
        let name = |text| match read_action(text, false) {
            ActionForm::Complete(calls) => {
                calls.into_iter().map(|(name, input)| (name.into_owned(), input.raw.into_owned())).collect()
            }
            ActionForm::Name(name) => vec![(name.to_owned(), String::new())],
            ActionForm::Unreadable => vec![],
        };
        let one = |name: &str, raw: &str| vec![(name.to_owned(), raw.to_owned())];
        assert_eq!(name("Search[Stronger Together (book)]"), one("Search", "Stronger Together (book)"));
        assert_eq!(name("click[20\"x20\"]"), one("click", "20\"x20\""));
        assert_eq!(name("think[an open end"), vec![]);
        assert_eq!(name("reset"), one("reset", ""));
        assert_eq!(name("`reset`"), one("reset", ""));
        for text in ["reset.", "`reset`.", "reset:", "reset()"] {
            assert_eq!(name(text), one("reset", ""), "{text}");
            assert_eq!(read_action(text, true), ActionForm::Name("reset"), "{text}");
        }
        assert_eq!(name("find: {\"q\": 1}"), one("find", "{\"q\": 1}"));
        assert_eq!(name("```\n{\"action\": \"find\", \"action_input\": {\"q\": 1}}\n```"), one("find", "{\"q\":1}"));
        assert_eq!(name("find(q=1)"), one("find", "q=1"));
        for text in ["find({\"q\": 1})", "find(\n{\"q\": 1}\n)", "`find({\"q\": 1})`", "find[{\"q\": 1}]"] {
            let ActionForm::Complete(calls) = read_action(text, false) else { panic!("{text}") };
            assert_eq!((&*calls[0].0, &calls[0].1.json), ("find", &Some(json!({"q": 1}))), "{text}");
        }
        for text in [
            "find {\"q\": 1}",
            "`find`\n{\"q\": 1}",
            "find\n```json\n{\"q\": 1}\n```",
            "find Action Input: {\"q\": 1}",
            "find\nAction Input: {\"q\": 1}",
        ] {
            assert_eq!(name(text), one("find", "{\"q\": 1}"), "{text}");
        }
        let ActionForm::Complete(calls) = read_action("find({\"q\": 1}, 2)", false) else { panic!() };
        assert_eq!(calls[0].1.json, Some(json!({"args": [{"q": 1}, 2]})));
        let ActionForm::Complete(calls) = read_action("find({\"q\": 1}, page=2)", false) else { panic!() };
        assert_eq!(calls[0].1.json, Some(json!({"page": 2, "args": [{"q": 1}]})));
        assert_eq!(name("```\nfind\n{\"q\": 1}\n```"), one("find", "{\"q\": 1}"));
        assert_eq!(name("I should think about it"), vec![]);
        assert_eq!(name("None"), vec![]);
    }

    #[test]
    fn the_language_of_a_fence_is_no_tool() {
        for text in [
            "```json\n{\"customer\": 7}\n```",
            "```json\n{\"customer\": 7",
            "```json",
            "```json\n```",
            "```python\n```",
        ] {
            for has_input in [false, true] {
                let form = read_action(text, has_input);
                let named = match &form {
                    ActionForm::Name(name) => vec![*name],
                    ActionForm::Complete(calls) => calls.iter().map(|(name, _)| name.as_ref()).collect(),
                    ActionForm::Unreadable => vec![],
                };
                assert!(!named.contains(&"json") && !named.contains(&"python"), "{text:?}: {form:?}");
            }
        }
        assert_eq!(read_action("```\nfind\n```", true), ActionForm::Name("find"));
    }
}
