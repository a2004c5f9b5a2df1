//! Requests and replies of models as backends record them, in forms that the dialects do not read: requests that are
//! one text, replies of Gemini, and calls that the service ran itself within one reply.

use serde_json::{Map, Value as Json, json};

/// Calls of OpenAI's own tools, which are items of a response with their results in them.
pub(super) const HOSTED_ITEMS: [&str; 5] =
    ["web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "image_generation_call"];

/// A call that the service ran itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostedCall {
    pub id: Option<String>,
    pub name: String,
    pub arguments: Option<Json>,
    /// `None` if the service does not return it, as for searches.
    pub result: Option<Json>,
    pub is_error: bool,
}

impl HostedCall {
    /// Reads a call in an item of a response; `None` for other items.
    pub(super) fn from_item(item: &Json) -> Option<HostedCall> {
        let kind = item.get("type")?.as_str().filter(|kind| HOSTED_ITEMS.contains(kind))?;
        let arguments = match kind {
            "mcp_call" => item.get("arguments").cloned(),
            "web_search_call" => item.get("action").cloned(),
            "code_interpreter_call" => item.get("code").map(|code| json!({"code": code})),
            "file_search_call" => item.get("queries").map(|queries| json!({"queries": queries})),
            _ => None,
        };
        let error = item.get("error").filter(|error| !error.is_null());
        let mut results = ["output", "results", "outputs"].iter().filter_map(|key| item.get(*key));
        let result = error.or_else(|| results.find(|result| !result.is_null()));
        Some(HostedCall {
            id: item.get("id").and_then(Json::as_str).map(str::to_owned),
            name: item.get("name").and_then(Json::as_str).unwrap_or_else(|| kind.trim_end_matches("_call")).to_owned(),
            arguments: arguments.filter(|arguments| !arguments.is_null()),
            result: result.cloned(),
            is_error: error.is_some() || item.get("status").is_some_and(|status| status == "failed"),
        })
    }
}

/// Converts a request whose messages are one text, with separate instructions, to a list of messages.
pub(super) fn normalize_request(mut request: Json) -> Json {
    restore_result_texts(&mut request);
    let Json::Object(object) = &request else { return request };
    let is_list = |key: &str| object.get(key).is_some_and(|list| list.is_array() || list.is_object());
    if ["messages", "contents", "input"].iter().any(|key| is_list(key)) {
        return request;
    }
    let text = |keys: &[&str]| keys.iter().find_map(|key| object.get(*key)?.as_str().filter(|text| !text.is_empty()));
    let Some(query) = text(&["input", "contents", "prompt"]) else { return request };
    let system = text(&["instructions", "system"]).map(|system| json!({"role": "system", "content": system}));
    Json::Array(system.into_iter().chain([json!({"role": "user", "content": query})]).collect())
}

/// Returns the messages of a reply. Gemini has them in `candidates`.
pub(super) fn normalize_reply(mut reply: Json) -> Json {
    match reply.get_mut("candidates").map(Json::take) {
        Some(Json::Array(candidates)) => {
            let contents = candidates.into_iter().filter_map(|mut each| each.get_mut("content").map(Json::take));
            Json::Array(contents.collect())
        }
        _ => reply,
    }
}

/// A part of a reply: what the model wrote until the service ran calls for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReplySegment {
    pub items: Vec<Json>,
    pub calls: Vec<HostedCall>,
}

impl ReplySegment {
    /// Returns the items with the hosted calls as function calls.
    pub(super) fn items_with_calls(&self) -> Vec<Json> {
        let calls = self.calls.iter().map(|call| {
            let mut item = Map::new();
            item.insert("type".to_owned(), json!("function_call"));
            item.insert("call_id".to_owned(), json!(call.id));
            item.insert("name".to_owned(), json!(call.name));
            item.extend(call.arguments.clone().map(|arguments| ("arguments".to_owned(), arguments)));
            Json::Object(item)
        });
        self.items.iter().cloned().chain(calls).collect()
    }

    /// Returns the results as the model saw them.
    pub(super) fn results(&self) -> impl Iterator<Item = Json> {
        self.calls.iter().filter_map(|call| {
            let result = call.result.as_ref()?;
            Some(json!({"type": "function_call_output", "call_id": call.id, "output": result}))
        })
    }
}

/// Maximum number of segments of one reply, since each repeats the request. The rest belongs to the last one.
const MAX_REPLY_SEGMENTS: usize = 32;

/// Splits a reply of the Responses API after the calls that the service ran. `None` if there are none.
pub(super) fn split_hosted_calls(reply: &Json) -> Option<Vec<ReplySegment>> {
    let items = match reply {
        Json::Object(object) => object.get("output"),
        other => Some(other),
    };
    let mut segments = vec![ReplySegment::default()];
    for item in items?.as_array()? {
        let call = HostedCall::from_item(item);
        if call.is_none()
            && segments.len() < MAX_REPLY_SEGMENTS
            && segments.last().is_some_and(|segment| !segment.calls.is_empty())
        {
            segments.push(ReplySegment::default());
        }
        let segment = segments.last_mut()?;
        match call {
            Some(call) => segment.calls.push(call),
            None => segment.items.push(item.clone()),
        }
    }
    segments.iter().any(|segment| !segment.calls.is_empty()).then_some(segments)
}

/// Returns the messages of a request as a list; `None` if it has none.
pub(super) fn list_messages(request: &Json) -> Option<Vec<Json>> {
    match request {
        Json::Array(messages) => Some(messages.clone()),
        Json::Object(object) => ["messages", "input"].iter().find_map(|key| object.get(*key)?.as_array()).cloned(),
        _ => None,
    }
}

/// Returns the parts of a result of an MCP tool, which are in `content`. The model sees the parts.
pub(super) fn unwrap_tool_result(mut result: Json) -> Json {
    let Some(object) = result.as_object_mut().filter(|object| object.len() == 1) else { return result };
    let is_part = |part: &Json| part.get("type").is_some_and(|kind| kind == "text") && part.get("text").is_some();
    match object.get_mut("content") {
        Some(Json::Array(parts)) if !parts.is_empty() && parts.iter().all(is_part) => {
            Json::Array(std::mem::take(parts))
        }
        _ => result,
    }
}

/// Restores results of tools that backends have parsed. A list of anything but parts of a message becomes JSON text
/// again, because the model saw text.
fn restore_result_texts(messages: &mut Json) {
    let list = match messages {
        Json::Object(object) => object.get_mut("messages"),
        other => Some(other),
    };
    let is_part =
        |item: &Json| item.is_string() || item.get("type").is_some_and(Json::is_string) || item.get("text").is_some();
    for message in list.and_then(Json::as_array_mut).into_iter().flatten() {
        let is_result = ["role", "type"].iter().any(|key| message.get(*key).is_some_and(|role| role == "tool"));
        if is_result
            && let Some(content) = message.get_mut("content")
            && content.as_array().is_some_and(|items| !items.iter().all(is_part))
        {
            *content = Json::String(content.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_text_are_messages() {
        let request = normalize_request(json!({"input": "hi", "instructions": "be brief", "model": "m"}));
        assert_eq!(request, json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]));
        let unchanged = json!({"messages": [{"role": "user", "content": "hi"}], "prompt": "x"});
        assert_eq!(normalize_request(unchanged.clone()), unchanged);
    }

    #[test]
    fn replies_of_gemini_are_messages() {
        let content = json!({"role": "model", "parts": [{"text": "yes"}]});
        assert_eq!(normalize_reply(json!({"candidates": [{"content": content}, {}]})), json!([content]));
    }

    #[test]
    fn replies_are_split_behind_hosted_calls() {
        let item = json!({"type": "mcp_call", "id": "1", "name": "look", "arguments": "{}", "error": "no"});
        let message = json!({"type": "message"});
        let segments = split_hosted_calls(&json!({"output": [item, message]})).expect("segments");
        assert_eq!(segments.len(), 2);
        assert!(segments[0].calls[0].is_error);
        assert_eq!(segments[1].items, std::slice::from_ref(&message));
        assert_eq!(split_hosted_calls(&json!([message])), None);
    }
}
