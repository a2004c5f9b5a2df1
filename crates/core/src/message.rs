//! A chat message independent of providers, and the reading of the many JSON shapes of messages: OpenAI chat messages
//! and Responses items, Anthropic blocks, parts of the GenAI semantic conventions, Gemini contents, Vercel AI parts and
//! LangChain's serialised objects.

mod printed;

use gradus_react::result_text::plain_text;
pub use gradus_react::result_text::result_text;
use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value as Json};

pub(crate) use printed::PRINTED_MESSAGE;

/// The author of a message. An unknown role counts as the user: its text must not be taken for what the agent said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageRole {
    System,
    #[default]
    User,
    Assistant,
    Tool,
}

/// One message of a conversation, as a list of parts in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatMessage<'a> {
    pub role: MessageRole,
    pub parts: Vec<MessagePart<'a>>,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum MessagePart<'a> {
    Text(Cow<'a, str>),
    /// Reasoning that the provider keeps apart from the text, such as Anthropic's thinking blocks.
    Reasoning(Cow<'a, str>),
    ToolCall(ToolCall<'a>),
    ToolResult(ToolResult<'a>),
}

/// A tool call that a model asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall<'a> {
    /// The id by which results refer to the call. Not every provider has ids.
    pub id: Option<Cow<'a, str>>,
    /// Empty if the model named no tool.
    pub name: Cow<'a, str>,
    /// `None` if there were none, which is different from an empty object.
    pub arguments: Option<ArgumentsText<'a>>,
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResult<'a> {
    pub id: Option<Cow<'a, str>>,
    pub name: Option<Cow<'a, str>>,
    pub content: Cow<'a, str>,
    pub is_error: bool,
}

/// Arguments as they were recorded. Both variants are text: a parsed tree takes up to 90 times its size, and every
/// request repeats the calls of the requests before it.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentsText<'a> {
    /// The model's own text, JSON or not.
    Text(Cow<'a, str>),
    /// Arguments that were recorded as a structure, as well-formed JSON.
    Json(Cow<'a, str>),
}

impl From<Json> for ArgumentsText<'_> {
    fn from(json: Json) -> Self {
        ArgumentsText::Json(Cow::Owned(json.to_string()))
    }
}

impl MessageRole {
    /// Recognises the roles of OpenAI, Anthropic, Gemini, LangChain and smolagents, and LangChain's class names.
    pub fn parse(name: &str) -> MessageRole {
        match name {
            "system" | "developer" => MessageRole::System,
            "assistant" | "model" | "ai" | "AIMessage" | "AIMessageChunk" | "tool-call" | "tool_call" => {
                MessageRole::Assistant
            }
            "tool" | "function" | "tool-response" | "tool_response" | "ToolMessage" | "FunctionMessage" => {
                MessageRole::Tool
            }
            "SystemMessage" => MessageRole::System,
            // `assistant-subagent-7`: nobody's request.
            name if name.starts_with("assistant-") => MessageRole::Assistant,
            _ => MessageRole::User,
        }
    }
}

impl<'a> ChatMessage<'a> {
    pub fn new(role: MessageRole) -> Self {
        ChatMessage { role, parts: Vec::new() }
    }

    /// A message with one text part, as plain transcripts and string contents give.
    pub fn from_text(role: MessageRole, text: impl Into<Cow<'a, str>>) -> Self {
        ChatMessage { role, parts: vec![MessagePart::Text(text.into())] }
    }

    /// Whether it has no parts at all, as a reply that was not recorded.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// All text parts, joined by line feeds. Borrowed if there is only one.
    pub fn joined_text(&self) -> Cow<'_, str> {
        join_lines(self.parts.iter().filter_map(|part| match part {
            MessagePart::Text(text) => Some(text.as_ref()),
            _ => None,
        }))
    }

    /// All reasoning parts, joined by line feeds.
    pub fn joined_reasoning(&self) -> Cow<'_, str> {
        join_lines(self.parts.iter().filter_map(|part| match part {
            MessagePart::Reasoning(text) => Some(text.as_ref()),
            _ => None,
        }))
    }

    /// In the order of the reply, which is the order in which frameworks run them.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall<'a>> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Results of tools. In Anthropic's format they are parts of a message of the user.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult<'a>> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    pub fn has_tool_calls(&self) -> bool {
        self.tool_calls().next().is_some()
    }
}

/// Joins texts by line feeds. Borrows if there is only one, which is the usual case.
fn join_lines<'t>(mut texts: impl Iterator<Item = &'t str>) -> Cow<'t, str> {
    let Some(first) = texts.next() else { return Cow::Borrowed("") };
    let mut all = Cow::Borrowed(first);
    for text in texts {
        let joined = all.to_mut();
        joined.push('\n');
        joined.push_str(text);
    }
    all
}

/// Reads a list of messages: a JSON array, or an object that contains one under any of the usual keys. Elements that
/// are no messages are left out. The caller has bounded the size of the JSON.
pub fn messages_from_json(json: Json) -> Vec<ChatMessage<'static>> {
    match json {
        Json::Array(items) => {
            // LangChain records a batch, a list of lists. Agents use batches of one.
            if let [Json::Array(_)] = items.as_slice() {
                return items.into_iter().next().map(messages_from_json).unwrap_or_default();
            }
            items
                .into_iter()
                .flat_map(|item| {
                    if is_response(&item) {
                        messages_from_json(item)
                    } else {
                        message_from_json(item).into_iter().collect()
                    }
                })
                .collect()
        }
        Json::Object(mut object) => {
            // smolagents records the arguments of its call of a model.
            if let Some(Json::Array(args)) = object.get_mut("args")
                && let Some(list @ Json::Array(_)) = args.first_mut()
            {
                return messages_from_json(std::mem::take(list));
            }
            for key in
                ["messages", "contents", "input", "output", "choices", "generations", "replies", "candidates", "body"]
            {
                if matches!(object.get(key), Some(Json::Array(_) | Json::Object(_))) {
                    let list = object.remove(key).unwrap_or_default();
                    let mut messages = Vec::new();
                    // A reply has no system prompt beside it.
                    if key != "output" && key != "choices" {
                        messages.extend(take_system_prompt(&mut object));
                    }
                    messages.extend(messages_from_json(list));
                    return messages;
                }
            }
            message_from_json(Json::Object(object)).into_iter().collect()
        }
        Json::String(text) => vec![ChatMessage::from_text(MessageRole::User, text)],
        _ => Vec::new(),
    }
}

/// Whether a value is a response of OpenAI's Responses API. The instrumentation of the OpenAI Agents SDK records a reply as
/// a list of one.
fn is_response(json: &Json) -> bool {
    json.get("object").is_some_and(|kind| kind == "response") && json.get("output").is_some_and(Json::is_array)
}

/// The system prompt in a field next to the messages (Anthropic, OpenAI Responses) or in the configuration (Gemini).
fn take_system_prompt(object: &mut Map<String, Json>) -> Option<ChatMessage<'static>> {
    let system = object.remove("system").or_else(|| object.remove("instructions")).or_else(|| {
        let config = object.get_mut("config")?.as_object_mut()?;
        config.remove("system_instruction")
    })?;
    let text = plain_text(system)?;
    Some(ChatMessage::from_text(MessageRole::System, text))
}

/// Reads one message in any of the known shapes; `None` if it is not a message.
pub fn message_from_json(json: Json) -> Option<ChatMessage<'static>> {
    let mut object = match json {
        Json::Object(object) => object,
        // LangChain's short form: `["user", "text"]`.
        Json::Array(pair) => match <[Json; 2]>::try_from(pair) {
            Ok([Json::String(role), Json::String(text)]) => {
                return Some(ChatMessage::from_text(MessageRole::parse(&role), text));
            }
            _ => return None,
        },
        Json::String(text) => {
            let printed = printed::parse_printed_message(&text);
            return Some(printed.unwrap_or_else(|| ChatMessage::from_text(MessageRole::User, text)));
        }
        _ => return None,
    };
    // Gemini's content inside of an event, whose own role is always that of the user.
    if let Some(Json::Object(inner)) = object.get_mut("content")
        && inner.get("parts").is_some_and(Json::is_array)
        && inner.contains_key("role")
    {
        return message_from_json(Json::Object(std::mem::take(inner)));
    }
    // Wrappers: OpenAI's `choices[].message`, LangChain's `kwargs` and `data`. The role may stand outside.
    for wrapper in ["message", "kwargs", "data"] {
        if let Some(Json::Object(inner)) = object.get_mut(wrapper) {
            let mut inner = std::mem::take(inner);
            if !inner.contains_key("role")
                && let Some(role) = role_name(&object)
            {
                inner.insert("role".to_owned(), Json::String(role));
            }
            return message_from_json(Json::Object(inner));
        }
    }
    let role = role_name(&object).map(|name| MessageRole::parse(&name));
    let mut reader = PartReader { parts: Vec::new(), role, call_ids: HashSet::new() };
    reader.read_object(&mut object);
    // Neither a role nor content: some other object of the format.
    if reader.parts.is_empty() && role.is_none() {
        return None;
    }
    let role = role.unwrap_or_else(|| reader.implied_role());
    Some(ChatMessage { role, parts: reader.parts })
}

/// The role of a message as it is written, from wherever the format keeps it.
fn role_name(object: &Map<String, Json>) -> Option<String> {
    let text = |key: &str| object.get(key).and_then(Json::as_str);
    if let Some(role) = text("role").or_else(|| text("message.role")) {
        return Some(role.to_owned());
    }
    // The role is in the event name (early pydantic-ai) or in the class name (LangChain).
    if let Some(event) = text("event.name").and_then(|name| name.strip_prefix("gen_ai.")) {
        return Some(event.strip_suffix(".message").unwrap_or("assistant").to_owned());
    }
    match text("type") {
        Some(kind @ ("human" | "ai" | "system" | "tool" | "AIMessageChunk" | "function")) => Some(kind.to_owned()),
        _ => object.get("id")?.as_array()?.last()?.as_str().filter(|name| name.ends_with("Message")).map(str::to_owned),
    }
}

/// Collects the parts of one message. A call can be recorded twice in a message; its id is used once.
struct PartReader {
    parts: Vec<MessagePart<'static>>,
    role: Option<MessageRole>,
    call_ids: HashSet<String>,
}

impl PartReader {
    /// Reads one message object. Order matters: an item of OpenAI's Responses API is a whole message in itself;
    /// otherwise reasoning comes before content, and content before calls.
    fn read_object(&mut self, object: &mut Map<String, Json>) {
        if self.read_item(object) {
            return;
        }
        let tool_call_id =
            first_text_of_keys(object, &["tool_call_id", "toolCallId", "call_id", "message.tool_call_id"]);
        // LlamaIndex keeps the id of the call among the provider's own fields.
        let tool_call_id = tool_call_id.or_else(|| match object.get_mut("additional_kwargs") {
            Some(Json::Object(kwargs)) if self.role == Some(MessageRole::Tool) => {
                first_text_of_keys(kwargs, &["tool_call_id"])
            }
            _ => None,
        });
        for key in ["reasoning_content", "reasoning", "thinking", "thought"] {
            if let Some(text) = object.remove(key).and_then(plain_text).filter(|text| !text.trim().is_empty()) {
                self.parts.push(MessagePart::Reasoning(Cow::Owned(text)));
            }
        }
        let name = first_text_of_keys(object, &["name"]).map(Cow::Owned);
        let is_error = object.get("status").is_some_and(|status| status == "error")
            || object.get("is_error").is_some_and(|flag| flag == true);
        let before = self.parts.len();
        for key in ["content", "parts", "contents", "text", "message.content"] {
            if let Some(content) = object.remove(key) {
                // A tool may return any JSON value, not only text and lists of parts.
                match content {
                    Json::Object(_) | Json::Number(_) | Json::Bool(_) if self.role == Some(MessageRole::Tool) => {
                        self.parts.push(MessagePart::Text(Cow::Owned(result_text(content))));
                    }
                    Json::Array(items) if self.role == Some(MessageRole::Tool) && items.iter().any(is_record) => {
                        self.parts.push(MessagePart::Text(Cow::Owned(Json::Array(items).to_string())));
                    }
                    content => self.read_content(content),
                }
            }
        }
        // LlamaIndex's parts. Its earlier versions have the text besides.
        if self.parts.len() == before
            && let Some(blocks @ Json::Array(_)) = object.remove("blocks")
        {
            self.read_content(blocks);
        }
        if self.role == Some(MessageRole::Tool) || tool_call_id.is_some() {
            self.fold_into_result(before, tool_call_id.map(Cow::Owned), name, is_error);
        }
        self.tool_calls(object);
    }

    /// Turns the parts since `before` into one result: a tool message is a result, however its content was written.
    fn fold_into_result(
        &mut self,
        before: usize,
        id: Option<Cow<'static, str>>,
        name: Option<Cow<'static, str>>,
        is_error: bool,
    ) {
        if self.parts[before..].iter().any(|part| matches!(part, MessagePart::ToolResult(_) | MessagePart::ToolCall(_)))
        {
            return;
        }
        let texts = ChatMessage { role: MessageRole::Tool, parts: self.parts.split_off(before) };
        let content = Cow::Owned(texts.joined_text().into_owned());
        self.parts.push(MessagePart::ToolResult(ToolResult { id, name, content, is_error }));
    }

    /// Reads the content of a message: a text, a part, or a list of parts. Empty texts are dropped. Recursion is
    /// bounded by the depth of the JSON.
    fn read_content(&mut self, content: Json) {
        match content {
            Json::String(text) if text.is_empty() => {}
            Json::String(text) => self.parts.push(MessagePart::Text(Cow::Owned(text))),
            Json::Array(items) => items.into_iter().for_each(|item| self.read_content(item)),
            Json::Object(object) => self.read_content_object(object),
            _ => {}
        }
    }

    /// Reads an object among the content: a typed part, otherwise anything with a text in it.
    fn read_content_object(&mut self, mut object: Map<String, Json>) {
        if !self.read_item(&mut object) {
            self.push_untyped_object(object);
        }
    }

    /// Reads one typed part or one item of OpenAI's Responses API. False if the object is neither. The keys without a
    /// type are those of Gemini (`functionCall`) and of Bedrock's Converse API (`toolUse`, `reasoningContent`).
    fn read_item(&mut self, object: &mut Map<String, Json>) -> bool {
        for key in ["function_call", "functionCall"] {
            if !object.contains_key("role")
                && let Some(Json::Object(mut call)) = object.remove(key)
            {
                return self.read_call(&mut call);
            }
        }
        for key in ["function_response", "functionResponse"] {
            if let Some(Json::Object(mut response)) = object.remove(key) {
                return self.read_result(&mut response);
            }
        }
        if let Some(reasoning) = object.remove("reasoningContent") {
            let text = reasoning.get("reasoningText").cloned().unwrap_or(reasoning);
            self.parts.extend(plain_text(text).map(|text| MessagePart::Reasoning(Cow::Owned(text))));
            return true;
        }
        // The third and fourth are Haystack's, the last two Genkit's.
        for (key, is_call) in [
            ("toolUse", true),
            ("toolResult", false),
            ("tool_call", true),
            ("tool_call_result", false),
            ("toolRequest", true),
            ("toolResponse", false),
        ] {
            if let Some(Json::Object(mut inner)) = object.remove(key) {
                return if is_call { self.read_call(&mut inner) } else { self.read_result(&mut inner) };
            }
        }
        let kind = object.get("type").or_else(|| object.get("block_type"));
        let kind = kind.and_then(Json::as_str).unwrap_or_default().to_owned();
        match kind.as_str() {
            "tool_call" | "tool-call" | "tool_use" | "function_call" | "server_tool_call" | "server_tool_use" => {
                self.read_call(object)
            }
            "function" if object.contains_key("function") => self.read_call(object),
            "tool_call_response"
            | "tool-result"
            | "tool_result"
            | "function_call_output"
            | "tool-error"
            | "server_tool_call_response" => self.read_result(object),
            "reasoning" | "thinking" | "redacted_thinking" => self.read_reasoning(object),
            "text" | "output_text" | "input_text" | "refusal" => {
                let text = ["text", "content", "refusal", "value"].iter().find_map(|key| object.remove(*key));
                if let Some(text) = text.and_then(plain_text).filter(|text| !text.is_empty()) {
                    if let Some(response) = parse_printed_response(&text) {
                        self.parts.extend(messages_from_json(response).into_iter().flat_map(|message| message.parts));
                        return true;
                    }
                    let thought = object.get("thought").is_some_and(|flag| flag == true);
                    let text = Cow::Owned(text);
                    self.parts.push(if thought { MessagePart::Reasoning(text) } else { MessagePart::Text(text) });
                }
                true
            }
            // With calls beside it, the text is a whole reply.
            "" if object.contains_key("text")
                && !["role", "toolCalls", "tool_calls"].iter().any(|key| object.contains_key(*key)) =>
            {
                let thought = object.get("thought").is_some_and(|flag| flag == true);
                if let Some(text) = object.remove("text").and_then(plain_text).filter(|text| !text.is_empty()) {
                    let text = Cow::Owned(text);
                    self.parts.push(if thought { MessagePart::Reasoning(text) } else { MessagePart::Text(text) });
                }
                true
            }
            _ => false,
        }
    }

    /// The text of an object of unknown type. Images and other media have none, and are dropped.
    fn push_untyped_object(&mut self, mut object: Map<String, Json>) {
        for key in ["text", "content", "value"] {
            if let Some(text) = object.remove(key).and_then(plain_text).filter(|text| !text.is_empty()) {
                self.parts.push(MessagePart::Text(Cow::Owned(text)));
                return;
            }
        }
    }

    /// Reasoning is under different keys: `thinking` (Anthropic), `summary` (OpenAI Responses), `text` (Vercel).
    fn read_reasoning(&mut self, object: &mut Map<String, Json>) -> bool {
        for key in ["content", "text", "thinking", "reasoning", "summary"] {
            if let Some(text) = object.remove(key).and_then(plain_text).filter(|text| !text.trim().is_empty()) {
                self.parts.push(MessagePart::Reasoning(Cow::Owned(text)));
                break;
            }
        }
        true
    }

    /// Reads the calls in fields next to the content, as in OpenAI's chat format and in LangChain's objects.
    fn tool_calls(&mut self, object: &mut Map<String, Json>) {
        let nested = object.get_mut("additional_kwargs").and_then(|kwargs| {
            let kwargs = kwargs.as_object_mut()?;
            kwargs.remove("tool_calls")
        });
        // LangChain repeats the calls in `additional_kwargs`. If their JSON was malformed, they are only there.
        let own = object.remove("tool_calls").filter(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty()));
        for list in
            [own.or(nested), object.remove("invalid_tool_calls"), object.remove("toolCalls")].into_iter().flatten()
        {
            for call in list.as_array().into_iter().flatten() {
                if let Json::Object(call) = call {
                    self.read_call(&mut call.clone());
                }
            }
        }
        if let Some(Json::Object(mut call)) = object.remove("function_call") {
            self.read_call(&mut call);
        }
    }

    /// Reads a tool call in any shape. False if it has neither a name nor arguments, so that the caller can try
    /// something else. A model may leave the name empty; such a call is kept, and reported by assembly.
    fn read_call(&mut self, object: &mut Map<String, Json>) -> bool {
        let keys = ["call_id", "toolCallId", "tool_call_id", "toolUseId", "id", "ref"];
        let id: Option<Cow<'static, str>> = first_text_of_keys(object, &keys).map(Cow::Owned);
        if let Some(Json::Object(inner)) = object.get_mut("function") {
            *object = std::mem::take(inner);
        }
        let name = first_text_of_keys(object, &["name", "toolName", "tool_name"]);
        let keys = ["arguments", "args", "input", "parameters", "tool_kwargs"];
        let arguments = keys.iter().find_map(|key| object.remove(*key));
        let arguments = arguments.filter(|json| !json.is_null()).map(|json| match json {
            Json::String(text) => ArgumentsText::Text(Cow::Owned(text)),
            json => ArgumentsText::from(json),
        });
        if name.is_none() && arguments.is_none() {
            return false;
        }
        let name = name.unwrap_or_default();
        // Some formats list a call among the content and again in a field of its own.
        let new = id.as_deref().is_none_or(|id: &str| self.call_ids.insert(id.to_owned()));
        if new {
            self.parts.push(MessagePart::ToolCall(ToolCall { id, name: Cow::Owned(name), arguments }));
        }
        true
    }

    /// Reads a tool result. Errors are marked by `is_error`, `status` or the type, depending on the provider.
    fn read_result(&mut self, object: &mut Map<String, Json>) -> bool {
        let keys = ["tool_use_id", "call_id", "toolCallId", "tool_call_id", "toolUseId", "id", "ref"];
        // Haystack repeats the call inside of its result.
        let mut origin = object.remove("origin").and_then(|origin| origin.as_object().cloned());
        let mut text = |keys: &[&str]| {
            first_text_of_keys(object, keys).or_else(|| first_text_of_keys(origin.as_mut()?, keys)).map(Cow::Owned)
        };
        let (id, name) = (text(&keys), text(&["name", "toolName", "tool_name"]));
        let mut is_error =
            ["is_error", "isError", "error"].iter().any(|key| object.get(*key) == Some(&Json::Bool(true)))
                || object.get("status").is_some_and(|status| status == "error")
                || object.get("type").is_some_and(|kind| kind == "tool-error");
        let keys = ["response", "result", "output", "content", "error"];
        let content = keys.iter().find_map(|key| object.remove(*key).filter(|value| !value.is_null()));
        let content = content.unwrap_or_default();
        if let Some(kind) = content.get("type").and_then(Json::as_str) {
            is_error |= kind.starts_with("error");
        }
        // Gemini's SDK reports a function that failed in place of its result.
        is_error |= content.as_object().is_some_and(|object| object.len() == 1 && object.contains_key("error"));
        let content = Cow::Owned(result_text(content));
        self.parts.push(MessagePart::ToolResult(ToolResult { id, name, content, is_error }));
        true
    }

    /// The role of a message that states none, from its first part.
    fn implied_role(&self) -> MessageRole {
        match self.parts.first() {
            Some(MessagePart::ToolResult(_)) => MessageRole::Tool,
            Some(MessagePart::ToolCall(_) | MessagePart::Reasoning(_)) => MessageRole::Assistant,
            _ => MessageRole::User,
        }
    }
}

/// Whether an item of a tool's result is a value of its own: an object that is no part of a message.
fn is_record(item: &Json) -> bool {
    const PART_KEYS: [&str; 8] =
        ["type", "text", "content", "parts", "toolResult", "functionResponse", "function_response", "tool_call_result"];
    item.as_object().is_some_and(|object| !PART_KEYS.iter().any(|key| object.contains_key(*key)))
}

/// The first of these keys with a text that is not empty.
fn first_text_of_keys(object: &mut Map<String, Json>, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| match object.get(*key) {
        Some(Json::String(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    })
}

/// Whether a text is a response of OpenAI's Responses API that Python printed as a dictionary, as the instrumentation of
/// the OpenAI Agents SDK does with streamed replies.
pub(crate) fn is_printed_response(text: &str) -> bool {
    text.starts_with("{'") && text.contains("'object': 'response'")
}

fn parse_printed_response(text: &str) -> Option<Json> {
    let response = is_printed_response(text).then(|| crate::literal::parse_lenient_json(text)).flatten()?;
    is_response(&response).then_some(response)
}
