//! The OpenInference semantic conventions: `openinference.span.kind`, flattened message lists, `tool.*`, `input.value`
//! and `output.value`. Future AGI's traceAI writes the same below `gen_ai.`.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::message::{
    ArgumentsText, ChatMessage, MessagePart, MessageRole, PRINTED_MESSAGE, ToolCall, ToolResult, messages_from_json,
    result_text,
};
use crate::span::{AttributeValue, Span};
use crate::{bounded_json, literal};

use super::wrapped::{is_schema, unwrap_arguments, unwrap_result};
use super::{
    NormalizedSpan, OperationKind, fill_if_empty, read_argument_attribute, read_json_attribute, read_offered_tools,
    read_text_attribute, text_or_json,
};

/// Reads a span by the OpenInference conventions, in one pass over its attributes.
pub(super) fn read_openinference_span<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let mut input = MessageTable::default();
    let mut output = MessageTable::default();
    let mut parameters = None;
    let mut is_tool_run = false;
    let mut output_value = None;
    for (key, value) in span.attributes.iter() {
        if let Some(rest) = key.strip_prefix("llm.") {
            if let Some(rest) = rest.strip_prefix("input_messages") {
                input.add_attribute(rest, value);
            } else if let Some(rest) = rest.strip_prefix("output_messages") {
                output.add_attribute(rest, value);
            } else {
                read_llm_attribute(rest, value, facts, &mut input, &mut output);
            }
            continue;
        }
        if let Some(rest) = key.strip_prefix("gen_ai.") {
            if let Some(rest) = rest.strip_prefix("input.messages").filter(|rest| rest.starts_with('.')) {
                input.add_attribute(rest, value);
            } else if let Some(rest) = rest.strip_prefix("output.messages").filter(|rest| rest.starts_with('.')) {
                output.add_attribute(rest, value);
            } else if rest == "span.kind" {
                facts.kind = parse_span_kind(value);
            } else if rest == "tool.name" {
                fill_if_empty(&mut facts.tool.name, read_text_attribute(value));
            }
            continue;
        }
        match key {
            "openinference.span.kind" => facts.kind = parse_span_kind(value),
            "input.value" => fill_if_empty(&mut facts.input_text, text_or_json(value)),
            "output.value" => {
                output_value = Some(value);
                fill_if_empty(&mut facts.output_text, text_or_json(value));
            }
            "session.id" => fill_if_empty(&mut facts.session, read_text_attribute(value)),
            "agent.name" => fill_if_empty(&mut facts.agent, read_text_attribute(value)),
            "agent.version" => fill_if_empty(&mut facts.agent_version, read_text_attribute(value)),
            "tool.name" | "tool_call.function.name" => fill_if_empty(&mut facts.tool.name, read_text_attribute(value)),
            "tool.description" => fill_if_empty(&mut facts.tool.description, read_text_attribute(value)),
            "tool.json_schema" => fill_if_empty(&mut facts.tool.schema, text_or_json(value)),
            "tool.parameters" => parameters = text_or_json(value),
            "tool.id" | "tool_call.id" => fill_if_empty(&mut facts.tool.call_id, read_text_attribute(value)),
            "tool.status" => {
                is_tool_run = true;
                facts.tool.is_error |= value.as_str() == Some("error");
            }
            "tool.arguments" => {
                is_tool_run = true;
                fill_if_empty(&mut facts.tool.arguments, read_argument_attribute(value));
            }
            "tool.result" => {
                is_tool_run = true;
                fill_if_empty(&mut facts.output_text, text_or_json(value));
            }
            "tool_call.function.arguments" => fill_if_empty(&mut facts.tool.arguments, read_argument_attribute(value)),
            "metadata" => fill_if_empty(&mut facts.session, read_thread_id(value)),
            // CrewAI records the tasks of a crew. The description of the first one is the request.
            "crew_tasks" => fill_if_empty(&mut facts.query, read_first_task_description(value)),
            _ => {}
        }
    }
    // Strands' first versions and OpenLLMetry for LlamaIndex record a tool's run like this, without a kind.
    if is_tool_run && facts.kind == OperationKind::Other && facts.tool.name.is_some() {
        facts.kind = OperationKind::Tool;
    }
    // Haystack's Agent is a chain like any other component: only its messages show its model calls.
    if matches!(facts.kind, OperationKind::Other | OperationKind::Agent)
        && output_value.and_then(AttributeValue::as_str).is_some_and(is_haystack_run)
    {
        facts.kind = OperationKind::Agent;
        facts.run_messages = output_value;
    }
    // OpenInference is read first, so there is nothing to merge with.
    facts.input = input.into_messages();
    facts.output = output.into_messages();
    match facts.kind {
        OperationKind::Tool => {
            if facts.tool.name.is_none() {
                facts.tool.name = function_name_from_span(span).map(Cow::Borrowed);
                facts.tool.is_named_by_span = true;
            }
            read_tool(parameters, facts);
        }
        OperationKind::Model => {
            fill_printed_results(facts);
            if let Some(Cow::Borrowed(text)) = facts.output_text {
                add_automatic_calls(text, facts);
                fill_if_empty(&mut facts.response_id, response_id(text).map(Cow::Borrowed));
                facts.add_output(read_invalid_calls(text));
                facts.add_output(read_streamed_calls(text, &facts.output));
            }
        }
        _ => {}
    }
}

/// Whether an output is that of Haystack's Agent: all messages of a run and the last one again, printed by Python.
fn is_haystack_run(output: &str) -> bool {
    let printed =
        output.strip_prefix("{\"messages\": [\"").is_some_and(|messages| messages.starts_with(PRINTED_MESSAGE));
    printed && output.contains("\"last_message\": \"")
}

/// Haystack's instrumentation leaves the results out of the messages. The request contains them as Python prints it:
/// `ToolCallResult(result='…', origin=ToolCall(tool_name='search', …, id='call_1'), error=False)`.
fn fill_printed_results(facts: &mut NormalizedSpan<'_>) {
    const RESULT: &str = "ToolCallResult(result=";
    let is_empty = |message: &ChatMessage<'_>| {
        message.role == MessageRole::Tool && message.tool_results().all(|result| result.content.is_empty())
    };
    if !facts.input.iter().any(is_empty) {
        return;
    }
    let printed = facts.input_text.as_deref().filter(|text| text.contains(RESULT));
    let Some(request) = printed.and_then(bounded_json::parse_bounded_json) else { return };
    let messages = request.get("messages").and_then(|messages| messages.as_array()).into_iter().flatten();
    let printed = messages.filter_map(|message| message.as_str()).flat_map(|text| text.split(RESULT).skip(1));
    let results = printed.filter_map(|text| {
        let (content, fields) = literal::parse_prefix(text)?;
        let is_error = fields.contains("error=True");
        // The calls are recorded without ids, so the results are matched by their order.
        Some(ToolResult { id: None, name: None, content: Cow::Owned(result_text(content)), is_error })
    });
    for (message, result) in facts.input.iter_mut().filter(|message| is_empty(message)).zip(results) {
        message.parts = vec![MessagePart::ToolResult(result)];
    }
}

/// Gemini's SDK can call functions by itself. The span of such a call has the first request and the last reply; what lies
/// between them is a history inside of the recorded response.
fn add_automatic_calls(response: &str, facts: &mut NormalizedSpan<'_>) {
    const KEY: &str = "automatic_function_calling_history";
    if !response.contains(KEY) {
        return;
    }
    let history = bounded_json::parse_bounded_json(response).and_then(|mut json| json.get_mut(KEY).map(std::mem::take));
    let messages = history.map(messages_from_json).unwrap_or_default();
    if messages.iter().any(ChatMessage::has_tool_calls) {
        facts.input.retain(|message| message.role == MessageRole::System);
        facts.input.extend(messages);
    }
}

/// The name of the function, from a span name such as `get_balance.__call__`, for tool spans without `tool.name`.
fn function_name_from_span<'s>(span: &'s Span<'_>) -> Option<&'s str> {
    let name = span.name.split('.').next()?;
    let is_identifier = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    is_identifier.then_some(name)
}

/// Reads one attribute below `llm.` that is not a message.
fn read_llm_attribute<'s>(
    key: &'s str,
    value: &'s AttributeValue<'_>,
    facts: &mut NormalizedSpan<'s>,
    input: &mut MessageTable<'s>,
    output: &mut MessageTable<'s>,
) {
    match key {
        "model_name" | "response.model_name" => fill_if_empty(&mut facts.model, read_text_attribute(value)),
        "request.model_name" => fill_if_empty(&mut facts.model, read_text_attribute(value)),
        "token_count.prompt" => fill_if_empty(&mut facts.prompt_tokens, value.as_u64()),
        "token_count.completion" => fill_if_empty(&mut facts.completion_tokens, value.as_u64()),
        "token_count.prompt_details.cache_read" => fill_if_empty(&mut facts.cached_prompt_tokens, value.as_u64()),
        "invocation_parameters" => fill_if_empty(&mut facts.previous_response_id, previous_response(value)),
        "cost.total" => fill_if_empty(&mut facts.cost_usd, value.as_f64()),
        "tools" => facts.offered_tools.push(read_offered_tools(value)),
        _ => {
            if let Some(rest) = key.strip_prefix("tools.") {
                if rest.ends_with(".tool.json_schema") {
                    facts.offered_tools.push(read_offered_tools(value));
                }
            } else if let Some(rest) = key.strip_prefix("prompts.") {
                if let Some((index, "prompt.text")) = split_index(rest) {
                    input.entries.push((index, "message.content", value));
                }
            } else if let Some(rest) = key.strip_prefix("choices.")
                && let Some((index, "completion.text")) = split_index(rest)
            {
                output.entries.push((index, "message.content", value));
                output.role = MessageRole::Assistant;
            }
        }
    }
}

/// Chains, retrievers, embeddings, guardrails and the rest are structure, not steps.
fn parse_span_kind(value: &AttributeValue<'_>) -> OperationKind {
    match value.as_str().unwrap_or_default() {
        "LLM" => OperationKind::Model,
        "TOOL" => OperationKind::Tool,
        "AGENT" => OperationKind::Agent,
        _ => OperationKind::Other,
    }
}

/// The reply that this one continues. Looked for as text first, because parsing the parameters of every call is slow.
fn previous_response<'s>(value: &'s AttributeValue<'_>) -> Option<Cow<'s, str>> {
    let parameters = value.as_str().filter(|text| text.contains("previous_response_id"))?;
    let parameters = bounded_json::parse_bounded_json(parameters)?;
    parameters.get("previous_response_id")?.as_str().map(|id| Cow::Owned(id.to_owned()))
}

/// The id at the beginning of a recorded response: `{"id":"resp_..."`.
fn response_id(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("{\"id\":\"").or_else(|| text.strip_prefix("{\"id\": \""))?;
    rest.split_once('"').map(|(id, _)| id).filter(|id| !id.is_empty())
}

/// Calls whose arguments were not JSON. LangChain drops them from the message and keeps them in the raw output.
fn read_invalid_calls(text: &str) -> Vec<ChatMessage<'static>> {
    if !text.contains("\"invalid_tool_calls\": [{") {
        return Vec::new();
    }
    bounded_json::parse_bounded_json(text).map(messages_from_json).unwrap_or_default()
}

/// Calls that only the recorded response of Gemini's SDK has, if its reply was streamed.
fn read_streamed_calls(text: &str, output: &[ChatMessage<'_>]) -> Vec<ChatMessage<'static>> {
    if output.iter().any(ChatMessage::has_tool_calls)
        || !text.starts_with("{\"candidates\"")
        || !text.contains("\"function_call\"")
    {
        return Vec::new();
    }
    let mut messages = bounded_json::parse_bounded_json(text).map(messages_from_json).unwrap_or_default();
    messages.retain(ChatMessage::has_tool_calls);
    messages
}

/// LangGraph's thread id, which it puts into `metadata`.
fn read_thread_id<'s>(value: &'s AttributeValue<'_>) -> Option<Cow<'s, str>> {
    let metadata = value.as_str().filter(|text| text.contains("thread_id"))?;
    let metadata = bounded_json::parse_bounded_json(metadata)?;
    metadata.get("thread_id")?.as_str().map(|id| Cow::Owned(id.to_owned()))
}

/// The description of CrewAI's first task.
fn read_first_task_description<'s>(value: &'s AttributeValue<'_>) -> Option<Cow<'s, str>> {
    let description = read_json_attribute(value)?.get(0)?.get("description")?.as_str()?.to_owned();
    Some(Cow::Owned(description))
}

/// Completes a tool run: arguments and schema from `tool.parameters` or the input, the result from the output.
fn read_tool<'s>(parameters: Option<Cow<'s, str>>, facts: &mut NormalizedSpan<'s>) {
    let from_input = facts.input_text.clone().and_then(unwrap_arguments);
    match parameters {
        Some(text) if is_schema(&text) => fill_if_empty(&mut facts.tool.schema, Some(text)),
        // These are the arguments, unless the input says more: `{"repo": "str"}` only names types.
        Some(text) if from_input.is_none() => fill_if_empty(&mut facts.tool.arguments, Some(ArgumentsText::Text(text))),
        _ => {}
    }
    fill_if_empty(&mut facts.tool.arguments, from_input);
    if let Some(text) = &facts.output_text {
        let result = match text {
            Cow::Borrowed(text) => unwrap_result(text),
            Cow::Owned(text) => {
                let result = unwrap_result(text);
                super::UnwrappedResult { text: Cow::Owned(result.text.into_owned()), ..result }
            }
        };
        facts.tool.is_error |= result.is_error;
        fill_if_empty(&mut facts.tool.call_id, result.call_id.map(Cow::Owned));
        facts.tool.result = Some(result.text);
    }
}

/// A flattened list of messages: `llm.input_messages.<i>.message.<field>`.
#[derive(Default)]
struct MessageTable<'s> {
    entries: Vec<(usize, &'s str, &'s AttributeValue<'s>)>,
    /// Messages that were recorded with structure, under the key without an index.
    structured: Vec<ChatMessage<'s>>,
    role: MessageRole,
}

impl<'s> MessageTable<'s> {
    /// Adds one attribute below `llm.input_messages` or `llm.output_messages`.
    fn add_attribute(&mut self, rest: &'s str, value: &'s AttributeValue<'_>) {
        match rest.strip_prefix('.').map(split_index) {
            Some(Some((index, field))) => self.entries.push((index, field, value)),
            None if rest.is_empty() => {
                self.structured = read_json_attribute(value).map(messages_from_json).unwrap_or_default()
            }
            _ => {}
        }
    }

    /// The messages by index. Indices come from a trace, so they are sorted and never used to allocate.
    fn into_messages(mut self) -> Vec<ChatMessage<'s>> {
        if self.entries.is_empty() {
            return self.structured;
        }
        // Exporters keep the order, and sorting a sorted list costs one pass. Stable, so fields keep their order.
        self.entries.sort_by_key(|(index, _, _)| *index);
        self.entries
            .chunk_by(|a, b| a.0 == b.0)
            .map(|fields| build_openinference_message(fields, self.role))
            .filter(|m| !m.is_empty())
            .collect()
    }
}

/// `3.message.role` becomes 3 and `message.role`.
fn split_index(key: &str) -> Option<(usize, &str)> {
    let (index, rest) = key.split_once('.').unwrap_or((key, ""));
    Some((index.parse().ok()?, rest))
}

/// Builds one message from its flattened fields.
fn build_openinference_message<'s>(
    fields: &[(usize, &'s str, &'s AttributeValue<'s>)],
    default_role: MessageRole,
) -> ChatMessage<'s> {
    let mut message = ChatMessage::new(default_role);
    let mut parts: Vec<(usize, &'s str, &'s AttributeValue<'s>)> = Vec::new();
    let mut calls: Vec<(usize, &'s str, &'s AttributeValue<'s>)> = Vec::new();
    let (mut content, mut thought, mut call_id, mut name) = (None, None, None, None);
    let mut legacy_call = ToolCall::default();
    let mut results = Vec::new();
    for &(_, field, value) in fields {
        let field = field.strip_prefix("message.").unwrap_or(field);
        match field {
            "role" => message.role = MessageRole::parse(value.as_str().unwrap_or_default()),
            "content" => content = text_or_json(value),
            "name" => name = read_text_attribute(value),
            "tool_call_id" => call_id = read_text_attribute(value),
            "thought" | "reasoning_content" | "reasoning" => thought = read_text_attribute(value),
            "function_call_name" => legacy_call.name = read_text_attribute(value).unwrap_or_default(),
            "function_call_arguments_json" => legacy_call.arguments = read_argument_attribute(value),
            _ => {
                if let Some(rest) = field.strip_prefix("contents.") {
                    parts.extend(split_index(rest).map(|(index, rest)| (index, rest, value)));
                } else if let Some(rest) = field.strip_prefix("tool_calls.") {
                    calls.extend(split_index(rest).map(|(index, rest)| (index, rest, value)));
                } else if field.starts_with("function.") {
                    // AutoGen writes each result of a tool message as one JSON text.
                    results.extend(
                        read_json_attribute(value)
                            .and_then(crate::message::message_from_json)
                            .map(|result| result.parts),
                    );
                }
            }
        }
    }
    message.parts.extend(thought.map(MessagePart::Reasoning));
    let plain = content.is_some();
    message.parts.extend(content.map(MessagePart::Text));
    parts.sort_by_key(|(index, _, _)| *index);
    for fields in parts.chunk_by(|a, b| a.0 == b.0) {
        add_content_part(fields, plain, &mut message, &mut calls);
    }
    calls.sort_by_key(|(index, _, _)| *index);
    let mut known = KnownCalls::default();
    for fields in calls.chunk_by(|a, b| a.0 == b.0) {
        known.push_call(tool_call(fields), &mut message);
    }
    if !legacy_call.name.is_empty() {
        known.push_call(legacy_call, &mut message);
    }
    message.parts.extend(results.into_iter().flatten());
    // Anthropic sends results in messages of the user, and its instrumentation for JavaScript writes them so.
    if message.role == MessageRole::User && call_id.is_some() {
        message.role = MessageRole::Tool;
    }
    if message.role == MessageRole::Tool {
        fold_into_result(&mut message, call_id, name);
    }
    message
}

/// The ids of the calls of a message. A call may stand among the contents and among the calls. The few calls of an
/// ordinary message are searched faster than hashed.
#[derive(Default)]
struct KnownCalls<'s> {
    pushed: usize,
    ids: HashSet<Cow<'s, str>>,
}

impl<'s> KnownCalls<'s> {
    /// Number of calls up to which a linear search is faster than hashing.
    const MAX_SEARCHED: usize = 16;

    /// Adds a call unless one with the same id is there. Calls without a name are dropped.
    fn push_call(&mut self, call: ToolCall<'s>, message: &mut ChatMessage<'s>) {
        if call.name.is_empty() {
            return;
        }
        if let Some(id) = &call.id {
            if self.pushed >= Self::MAX_SEARCHED && self.ids.is_empty() {
                self.ids.extend(message.tool_calls().filter_map(|call| call.id.clone()));
            }
            let is_known = match self.pushed < Self::MAX_SEARCHED {
                true => message.tool_calls().any(|other| other.id.as_ref() == Some(id)),
                false => !self.ids.insert(id.clone()),
            };
            if is_known {
                return;
            }
        }
        self.pushed += 1;
        message.parts.push(MessagePart::ToolCall(call));
    }
}

/// One entry of `message.contents`. Its text is skipped if `message.content` has the text already.
fn add_content_part<'s>(
    fields: &[(usize, &'s str, &'s AttributeValue<'s>)],
    plain: bool,
    message: &mut ChatMessage<'s>,
    calls: &mut Vec<(usize, &'s str, &'s AttributeValue<'s>)>,
) {
    let (mut kind, mut body) = ("text", None);
    for &(index, field, value) in fields {
        match field {
            "message_content.type" => kind = value.as_str().unwrap_or_default(),
            "message_content.text" | "message_content.reasoning" => body = read_text_attribute(value),
            // Calls among the contents come after those with a list of their own.
            _ if field.starts_with("tool_call.") => calls.push((index.saturating_add(1_000_000), field, value)),
            _ => {}
        }
    }
    match (kind, body) {
        ("reasoning" | "thinking", Some(body)) => message.parts.push(MessagePart::Reasoning(body)),
        (_, Some(body)) if !plain => message.parts.push(MessagePart::Text(body)),
        _ => {}
    }
}

/// A call from its flattened fields.
fn tool_call<'s>(fields: &[(usize, &'s str, &'s AttributeValue<'s>)]) -> ToolCall<'s> {
    let mut call = ToolCall::default();
    for &(_, field, value) in fields {
        match field.strip_prefix("tool_call.").unwrap_or(field) {
            "id" => call.id = read_text_attribute(value),
            "function.name" | "name" => call.name = read_text_attribute(value).unwrap_or_default(),
            "function.arguments" | "arguments" => call.arguments = read_argument_attribute(value),
            _ => {}
        }
    }
    call
}

/// A message with the role of a tool is a result.
fn fold_into_result<'s>(message: &mut ChatMessage<'s>, id: Option<Cow<'s, str>>, name: Option<Cow<'s, str>>) {
    if message.parts.iter().any(|part| !matches!(part, MessagePart::Text(_))) {
        return;
    }
    let content = match message.parts.as_mut_slice() {
        [MessagePart::Text(text)] => std::mem::take(text),
        _ => Cow::Owned(message.joined_text().into_owned()),
    };
    message.parts = vec![MessagePart::ToolResult(ToolResult { id, name, content, is_error: false })];
}
