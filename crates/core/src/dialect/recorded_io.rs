//! Conventions that record the kind of an operation, and its input and output as one JSON value each: Langfuse,
//! MLflow, Haystack, Mastra, Genkit, VoltAgent.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use serde_json::Value as Json;

use crate::bounded_json;
use crate::message::{ChatMessage, MessageRole, messages_from_json};
use crate::span::{AttributeValue, Span};

use super::wrapped::{unwrap_arguments, unwrap_result};
use super::{
    NormalizedSpan, OperationKind, fill_if_empty, read_json_attribute, read_offered_tools, read_text_attribute,
    text_or_json,
};

/// The keys of one convention.
struct IoConvention {
    kind: &'static str,
    input: &'static str,
    output: &'static str,
    model: &'static str,
    tools: &'static str,
    usage: &'static str,
}

const CONVENTIONS: [IoConvention; 7] = [
    IoConvention {
        kind: "langfuse.observation.type",
        input: "langfuse.observation.input",
        output: "langfuse.observation.output",
        model: "langfuse.observation.model.name",
        tools: "",
        usage: "langfuse.observation.usage_details",
    },
    IoConvention {
        kind: "mlflow.spanType",
        input: "mlflow.spanInputs",
        output: "mlflow.spanOutputs",
        model: "mlflow.llm.model",
        tools: "mlflow.chat.tools",
        usage: "mlflow.chat.tokenUsage",
    },
    IoConvention {
        kind: "haystack.component.type",
        input: "haystack.component.input",
        output: "haystack.component.output",
        model: "",
        tools: "",
        usage: "",
    },
    IoConvention {
        kind: "haystack.agent.max_steps",
        input: "haystack.agent.input",
        output: "haystack.agent.output",
        model: "",
        tools: "haystack.agent.tools",
        usage: "",
    },
    IoConvention { kind: "mastra.span.type", input: "input", output: "output", model: "modelId", tools: "", usage: "" },
    IoConvention {
        kind: "genkit:metadata:subtype",
        input: "genkit:input",
        output: "genkit:output",
        model: "genkit:name",
        tools: "",
        usage: "",
    },
    IoConvention { kind: VOLTAGENT_KIND, input: "input", output: "output", model: "", tools: "", usage: "" },
];

/// VoltAgent writes on every span what its agent is, and what the span is only on those within: `span.type`.
const VOLTAGENT_KIND: &str = "entity.type";

/// Whether a key shows that a span follows one of these conventions. Compared for every attribute, so only by prefix.
pub(super) fn is_recorded_io_key(key: &str) -> bool {
    ["langfuse.observation.", "mlflow.span", "haystack.", "mastra.span.type", "genkit:metadata:", VOLTAGENT_KIND]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// Reads a span of the first convention whose kind it states.
pub(super) fn read_recorded_io<'s>(span: &'s Span<'_>, facts: &mut NormalizedSpan<'s>) {
    let value = |key: &str| span.attributes.get(key).filter(|_| !key.is_empty());
    let Some((convention, kind)) =
        CONVENTIONS.iter().find_map(|convention| Some((convention, value(convention.kind)?)))
    else {
        return;
    };
    let within = value("span.type").filter(|_| convention.kind == VOLTAGENT_KIND).and_then(AttributeValue::as_str);
    let is_of_memory = within == Some("memory");
    if facts.kind == OperationKind::Other {
        // Its span of a model call records no reply, and stands for a whole run.
        facts.kind = match within {
            Some("tool") => OperationKind::Tool,
            Some(_) => OperationKind::Other,
            None => parse_kind(convention, kind),
        };
    }
    let session = if convention.kind == VOLTAGENT_KIND { "conversation.id" } else { "langfuse.session.id" };
    fill_if_empty(&mut facts.session, value(session).and_then(read_text_attribute));
    if convention.kind == VOLTAGENT_KIND {
        fill_if_empty(&mut facts.tool.call_id, value("tool.call.id").and_then(read_text_attribute));
    }
    let (input, output) = (value(convention.input), value(convention.output));
    match facts.kind {
        OperationKind::Model => {
            fill_if_empty(&mut facts.model, value(convention.model).and_then(read_unquoted));
            if let Some(tools) = value(convention.tools) {
                facts.offered_tools.push(read_offered_tools(tools));
            }
            facts.add_input(input.map(read_request).unwrap_or_default());
            facts.add_output(output.map(read_reply).unwrap_or_default());
            if convention.output == "genkit:output"
                && let Some(raw) =
                    output.and_then(read_json_attribute).and_then(|mut json| json.get_mut("raw").map(std::mem::take))
            {
                // Its plugins leave out the text beside calls; the provider's reply has it.
                facts.add_output(messages_from_json(raw));
            }
            read_usage(value(convention.usage), facts);
        }
        OperationKind::Tool => {
            if facts.tool.name.is_none() {
                facts.tool.name = Some(Cow::Borrowed(span.name.as_ref()));
            }
            fill_if_empty(&mut facts.tool.call_id, value("tool_call_id").and_then(read_unquoted));
            if facts.tool.arguments.is_none() {
                facts.tool.arguments = input.and_then(text_or_json).and_then(unwrap_arguments);
            }
            if value("langfuse.observation.level").and_then(AttributeValue::as_str) == Some("ERROR") {
                facts.tool.is_error = true;
                facts.tool.failure = value("langfuse.observation.status_message").and_then(read_text_attribute);
            }
            if let Some(AttributeValue::Str(text)) = output.filter(|_| facts.tool.result.is_none()) {
                let result = unwrap_result(text);
                facts.tool.is_error |= result.is_error;
                fill_if_empty(&mut facts.tool.call_id, result.call_id.map(Cow::Owned));
                facts.tool.result = Some(result.text);
            }
        }
        // What VoltAgent stores in its memory and reads from it is no request and no answer of the run.
        OperationKind::Other if is_of_memory => {
            if value("memory.operation").and_then(AttributeValue::as_str) == Some("write") {
                facts.stored_message = input;
            }
        }
        OperationKind::Agent | OperationKind::Other => {
            fill_if_empty(&mut facts.input_text, input.and_then(text_or_json));
            fill_if_empty(&mut facts.output_text, output.and_then(text_or_json));
        }
    }
}

/// A reply of the model inside of a message that VoltAgent stores: what it said, and the ids of the calls behind that.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct StoredReply {
    pub text: String,
    pub calls: Vec<String>,
}

/// The replies of a stored message of the assistant that say something before their calls. The message holds the parts of
/// the whole run so far: text, calls with their results, and `step-start` between some replies.
///
/// Calls of replies without words follow those before without a mark, so only the first call surely belongs to the words.
pub(crate) fn read_stored_replies(value: &AttributeValue<'_>) -> Vec<StoredReply> {
    let json = read_json_attribute(value).unwrap_or_default();
    let message = json.get("message").filter(|message| message.get("role").is_some_and(|role| role == "assistant"));
    let parts = message.and_then(|message| message.get("parts")).and_then(Json::as_array);
    let mut replies: Vec<StoredReply> = vec![StoredReply::default()];
    for part in parts.into_iter().flatten() {
        let text = |key: &str| part.get(key).and_then(Json::as_str).unwrap_or_default();
        let (kind, call_id) = (text("type"), text("toolCallId"));
        let is_open = replies.last().is_some_and(|reply| reply.calls.is_empty());
        match kind {
            "step-start" => replies.push(StoredReply::default()),
            "text" if !text("text").trim().is_empty() => {
                if !is_open {
                    replies.push(StoredReply::default());
                }
                if let Some(reply) = replies.last_mut() {
                    if !reply.text.is_empty() {
                        reply.text.push('\n');
                    }
                    reply.text.push_str(text("text").trim());
                }
            }
            _ if !call_id.is_empty() && (kind.starts_with("tool-") || kind == "dynamic-tool") => {
                if let Some(reply) = replies.last_mut() {
                    reply.calls.push(call_id.to_owned());
                }
            }
            _ => {}
        }
    }
    replies.retain(|reply| !reply.text.is_empty() && !reply.calls.is_empty());
    replies
}

/// Kinds of observations, span types and components. Others are structure.
fn parse_kind(convention: &IoConvention, value: &AttributeValue<'_>) -> OperationKind {
    if convention.kind == "haystack.agent.max_steps" {
        return OperationKind::Agent;
    }
    let name = value.as_str().unwrap_or_default().trim_matches('"');
    match name.to_ascii_lowercase().as_str() {
        "generation" | "chat_model" | "llm" | "model_step" | "model" => OperationKind::Model,
        "tool" | "tool_call" | "mcp_tool_call" => OperationKind::Tool,
        "agent" | "agent_run" | "flow" => OperationKind::Agent,
        component if component.ends_with("generator") => OperationKind::Model,
        _ => OperationKind::Other,
    }
}

/// A text that may be JSON-encoded.
fn read_unquoted<'s>(value: &'s AttributeValue<'_>) -> Option<Cow<'s, str>> {
    let text = value.as_str()?;
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Some(Cow::Borrowed(text)).filter(|text| !text.is_empty() && *text != "null")
}

/// The messages of a request: a list, or what was sent to the provider.
fn read_request(value: &AttributeValue<'_>) -> Vec<ChatMessage<'static>> {
    let mut json = read_json_attribute(value).unwrap_or_default();
    assign_result_roles(&mut json);
    let body = json.get("body").filter(|body| body.get("messages").is_some()).cloned();
    let mut messages = messages_from_json(body.unwrap_or(json));
    // Langfuse lists the tools on offer behind the messages.
    messages.retain(|message| {
        message.role != MessageRole::Tool || message.tool_results().any(|result| !is_tool_definition(&result.content))
    });
    messages
}

/// Gives results the role of a tool and the id of their call. Langfuse's handler for LangChain in JavaScript writes the name
/// of the tool as the role, and no id.
fn assign_result_roles(request: &mut Json) {
    let messages = match request {
        Json::Object(request) => request.get_mut("messages").and_then(Json::as_array_mut),
        Json::Array(messages) => Some(messages),
        _ => None,
    };
    // The ids of the calls that no result has answered yet, by tool.
    let mut open: HashMap<String, VecDeque<Json>> = HashMap::new();
    for message in messages.into_iter().flatten().filter_map(Json::as_object_mut) {
        let role = message.get("role").and_then(Json::as_str).unwrap_or_default();
        if let Some(id) = open.get_mut(role).and_then(VecDeque::pop_front) {
            let name = role.to_owned();
            message.insert("role".to_owned(), Json::from("tool"));
            message.entry("name").or_insert(Json::from(name));
            message.entry("tool_call_id").or_insert(id);
        } else if role == "assistant"
            && let Some(calls) = message.get("tool_calls").and_then(Json::as_array)
        {
            for call in calls {
                let name = call.get("function").unwrap_or(call).get("name").and_then(Json::as_str).unwrap_or_default();
                // A tool that is named like a role cannot be distinguished from the role.
                if !["", "user", "human", "system", "developer", "assistant", "ai", "model", "tool", "function"]
                    .contains(&name)
                {
                    let ids = open.entry(name.to_owned()).or_default();
                    ids.push_back(call.get("id").cloned().unwrap_or_default());
                }
            }
        }
    }
}

/// Whether the text of a tool message is the definition of a function.
fn is_tool_definition(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && text.contains("\"parameters\"")
        && bounded_json::parse_bounded_json(text)
            .is_some_and(|json| json.get("function").is_some_and(|function| function.get("name").is_some()))
}

/// The messages of a reply.
fn read_reply(value: &AttributeValue<'_>) -> Vec<ChatMessage<'static>> {
    let mut messages = match read_json_attribute(value) {
        Some(json) => messages_from_json(json),
        None => value
            .as_str()
            .map(|text| ChatMessage::from_text(MessageRole::Assistant, text.to_owned()))
            .into_iter()
            .collect(),
    };
    messages.iter_mut().for_each(|message| message.role = MessageRole::Assistant);
    messages.retain(|message| !message.is_empty());
    messages
}

fn read_usage(value: Option<&AttributeValue<'_>>, facts: &mut NormalizedSpan<'_>) {
    let Some(usage) = value.and_then(read_json_attribute) else { return };
    let count = |keys: [&str; 2]| keys.iter().find_map(|key| usage.get(*key)?.as_u64());
    fill_if_empty(&mut facts.prompt_tokens, count(["input", "input_tokens"]));
    fill_if_empty(&mut facts.completion_tokens, count(["output", "output_tokens"]));
}
