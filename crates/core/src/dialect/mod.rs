//! Dialects: attribute conventions, one file each, read into neutral terms.
//!
//! A span can have several dialects at once, for example an instrumentation on top of the framework's own spans. Each
//! dialect fills in what the ones before it left empty. One pass over the keys finds which dialects are present.

mod adk;
mod genai;
mod genai_messages;
mod langtrace;
mod litellm;
mod llamaindex;
mod logfire;
mod mastra;
mod openinference;
mod openlit;
mod recorded_io;
mod traceloop;
mod vercel;
mod wrapped;

use std::borrow::Cow;

use crate::bounded_json;
use crate::message::{ArgumentsText, ChatMessage, MessagePart, MessageRole, messages_from_json};
use crate::span::{AttributeValue, Span};

pub(crate) use recorded_io::{StoredReply, read_stored_replies};
use wrapped::UnwrappedResult;
pub(crate) use wrapped::{looks_like_repr, unwrap_result};

/// The operation that a span records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperationKind {
    /// A call of a model.
    Model,
    /// A run of a tool.
    Tool,
    /// An agent, a workflow or a step of one.
    Agent,
    /// Chains, parsers, prompts, HTTP: structure around the work.
    #[default]
    Other,
}

/// A span in neutral terms. Texts are borrowed from the span. Everything is optional: each convention records other
/// parts.
#[derive(Clone, Debug, Default)]
pub struct NormalizedSpan<'s> {
    pub kind: OperationKind,
    /// Messages of the request of a model call: the whole conversation so far, in order.
    pub input: Vec<ChatMessage<'s>>,
    /// The reply. Usually one message.
    pub output: Vec<ChatMessage<'s>>,
    /// Input and output as one text, not interpreted: `input.value` and the like.
    pub input_text: Option<Cow<'s, str>>,
    pub output_text: Option<Cow<'s, str>>,
    pub tool: RecordedToolRun<'s>,
    /// Tool definitions as recorded. Every call has the same ones, so they are parsed once per trajectory.
    pub offered_tools: Vec<OfferedTools<'s>>,
    pub model: Option<Cow<'s, str>>,
    pub agent: Option<Cow<'s, str>>,
    pub agent_version: Option<Cow<'s, str>>,
    pub session: Option<Cow<'s, str>>,
    /// All messages of a run on its span, not parsed. Its model calls usually have them, too.
    pub run_messages: Option<&'s AttributeValue<'s>>,
    /// A message that the framework stored in its memory, not parsed.
    pub stored_message: Option<&'s AttributeValue<'s>>,
    /// The reply ended because it asks for tools, whether its calls are recorded or not.
    pub asks_for_tools: bool,
    /// The user's request, where a convention states it directly.
    pub query: Option<Cow<'s, str>>,
    /// The final answer, where a convention states it directly.
    pub answer: Option<Cow<'s, str>>,
    /// Id of the reply, and of the reply that this call continues, where the service stores the conversation (OpenAI
    /// Responses).
    pub response_id: Option<Cow<'s, str>>,
    pub previous_response_id: Option<Cow<'s, str>>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    /// Of the prompt's tokens, those that the provider had cached.
    pub cached_prompt_tokens: Option<u64>,
    /// In US dollars, as the instrumentation computed it.
    pub cost_usd: Option<f64>,
}

/// What the span of a tool says about its run.
#[derive(Clone, Debug, Default)]
pub struct RecordedToolRun<'s> {
    pub name: Option<Cow<'s, str>>,
    /// No attribute states the name: it is that of the span.
    pub is_named_by_span: bool,
    pub call_id: Option<Cow<'s, str>>,
    pub arguments: Option<ArgumentsText<'s>>,
    pub result: Option<Cow<'s, str>>,
    /// How the tool failed, where a convention states it beside the result. What the model saw counts more.
    pub failure: Option<Cow<'s, str>>,
    /// Whether the tool failed, by its status or by the form of its result.
    pub is_error: bool,
    /// What the model said before the call, where the framework stores it apart from the call.
    pub thought: Option<String>,
    pub description: Option<Cow<'s, str>>,
    pub schema: Option<Cow<'s, str>>,
}

/// The form in which tool definitions were recorded.
#[derive(Clone, Debug)]
pub enum OfferedTools<'s> {
    /// One definition or a list of them, as JSON text.
    Json(&'s str),
    /// The same as an attribute with structure.
    Value(&'s AttributeValue<'s>),
    /// One function in three attributes. Its parameters are JSON text.
    Function { name: &'s str, description: Option<&'s str>, parameters: Option<&'s str> },
}

/// Reads a span with every dialect that it uses. The order is part of the result: the first dialect with a value wins,
/// and the more specific ones come first.
pub fn normalize_span<'s>(span: &'s Span<'_>) -> NormalizedSpan<'s> {
    let mut facts = NormalizedSpan::default();
    let spoken = DetectedDialects::from_span(span);
    if spoken.openinference {
        openinference::read_openinference_span(span, &mut facts);
    }
    if spoken.vercel {
        vercel::read_vercel_span(span, &mut facts);
    }
    if spoken.adk {
        adk::read_adk_span(span, &mut facts);
    }
    if spoken.logfire {
        logfire::read_logfire_span(span, &mut facts);
    }
    if spoken.mastra {
        mastra::read_mastra_span(span, &mut facts);
    }
    if spoken.langtrace {
        langtrace::read_langtrace_span(span, &mut facts);
    }
    if spoken.genai && span.scope.starts_with("openlit") {
        openlit::read_openlit_span(span, &mut facts);
    }
    if spoken.genai {
        genai::read_genai_span(span, &mut facts);
    }
    if span.scope.starts_with(llamaindex::SCOPE) {
        llamaindex::read_llamaindex_span(span, &mut facts);
    }
    if span.scope == litellm::SCOPE {
        litellm::read_litellm_span(span, &mut facts);
    }
    if spoken.recorded_io {
        recorded_io::read_recorded_io(span, &mut facts);
    }
    if spoken.traceloop {
        traceloop::read_traceloop_span(span, &mut facts);
    }
    facts.apply_dialect_fallbacks(span);
    facts
}

/// The messages on the span of a run, as JSON or printed by Python.
pub(crate) fn read_run_messages(value: &AttributeValue<'_>) -> Vec<ChatMessage<'static>> {
    match value.as_str() {
        Some(text) if langtrace::is_printed_tasks(text) => langtrace::read_task_messages(text),
        _ => read_json_attribute(value).map(messages_from_json).unwrap_or_default(),
    }
}

/// The dialects whose keys occur on a span.
#[derive(Default)]
struct DetectedDialects {
    openinference: bool,
    genai: bool,
    traceloop: bool,
    vercel: bool,
    adk: bool,
    logfire: bool,
    mastra: bool,
    langtrace: bool,
    recorded_io: bool,
}

impl DetectedDialects {
    /// Looks at the first byte of each key before it compares prefixes: this runs for every attribute of every span.
    fn from_span(span: &Span<'_>) -> DetectedDialects {
        let mut spoken = DetectedDialects::default();
        for (key, _) in span.attributes.iter() {
            match key.as_bytes().first() {
                Some(b'g') if key.starts_with("gen_ai.prompt.") || key.starts_with("gen_ai.completion.") => {
                    spoken.traceloop = true;
                    spoken.genai = true;
                }
                Some(b'g') if key == "gen_ai.span.kind" => {
                    spoken.openinference = true;
                    spoken.genai = true;
                }
                Some(b'g') if key.starts_with("gen_ai.") => spoken.genai = true,
                Some(b'g') if key.starts_with("gcp.vertex.agent.") => spoken.adk = true,
                Some(b'a') if key.starts_with("ai.") => spoken.vercel = true,
                Some(b't') if key.starts_with("traceloop.") => spoken.traceloop = true,
                Some(b't') if matches!(key, "tool_arguments" | "tool_response") => spoken.logfire = true,
                Some(b'p') if key.starts_with("pydantic_ai.") => spoken.logfire = true,
                Some(b'l') if matches!(key, "llm.request.type") => spoken.traceloop = true,
                Some(b'l') if key.starts_with("logfire.") => spoken.logfire = true,
                Some(b'c') if key == langtrace::CREW_KEY => spoken.langtrace = true,
                Some(b'l') if key == langtrace::TASK_KEY => spoken.langtrace = true,
                Some(b'l') if key.starts_with("llm.") => spoken.openinference = true,
                Some(b'm') if key.starts_with("mcp.") => spoken.genai = true,
                Some(b'm') if key.starts_with("mastra.") => {
                    spoken.mastra = true;
                    spoken.recorded_io |= recorded_io::is_recorded_io_key(key);
                }
                Some(b'l' | b'h' | b'm' | b'g' | b'e') if recorded_io::is_recorded_io_key(key) => {
                    spoken.recorded_io = true
                }
                _ => match key {
                    "openinference.span.kind" | "input.value" | "output.value" | "session.id" | "tool.name" => {
                        spoken.openinference = true;
                    }
                    "all_messages_events" | "events" | "final_result" | "agent_name" => spoken.logfire = true,
                    _ => {}
                },
            }
        }
        spoken.genai |= span.events.iter().any(|event| event.name.starts_with("gen_ai."));
        spoken
    }
}

impl<'s> NormalizedSpan<'s> {
    /// Whether the span contains messages to or from a model.
    pub fn has_content(&self) -> bool {
        !self.input.is_empty() || !self.output.is_empty()
    }

    /// Adds messages as the reply of the model. If another dialect gave a reply already, only missing text or missing
    /// calls are added to it: two dialects describe the same reply.
    fn add_output(&mut self, messages: Vec<ChatMessage<'s>>) {
        if self.output.is_empty() {
            self.output = messages;
            return;
        }
        let said = |parts: &[ChatMessage<'_>]| {
            parts
                .iter()
                .flat_map(|message| &message.parts)
                .any(|part| matches!(part, MessagePart::Text(_) | MessagePart::Reasoning(_)))
        };
        let called = |messages: &[ChatMessage<'_>]| messages.iter().any(ChatMessage::has_tool_calls);
        if !said(&self.output) {
            let texts = messages.iter().flat_map(|message| &message.parts);
            let texts: Vec<MessagePart<'s>> = texts
                .filter(|part| matches!(part, MessagePart::Text(_) | MessagePart::Reasoning(_)))
                .cloned()
                .collect();
            self.output[0].parts.splice(0..0, texts);
        }
        if !called(&self.output) && called(&messages) {
            let calls = messages.into_iter().flat_map(|message| message.parts);
            self.output[0].parts.extend(calls.filter(|part| matches!(part, MessagePart::ToolCall(_))));
        }
    }

    /// The first dialect with messages wins. Two lists of the same request are not merged.
    fn add_input(&mut self, messages: Vec<ChatMessage<'s>>) {
        if self.input.is_empty() {
            self.input = messages;
        }
    }

    /// Applies what no dialect decides alone: errors of the span, and the kind of spans that state none.
    fn apply_dialect_fallbacks(&mut self, span: &'s Span<'_>) {
        if self.kind == OperationKind::Tool {
            self.tool.is_error |= span.is_error();
            if self.tool.result.is_none() && span.is_error() {
                let message = span.exception_message().or(Some(span.status.message.as_ref())).map(without_stack);
                self.tool.result = message.filter(|message| !message.is_empty()).map(Cow::Borrowed);
            }
        }
        // A span with a reply and tokens is a model call, whatever its name is.
        if self.kind == OperationKind::Other && !self.output.is_empty() && self.prompt_tokens.is_some() {
            self.kind = OperationKind::Model;
        }
    }

    /// Reads messages from the plain texts of a model call. Some instrumentations have no message list and put request
    /// and reply into one text each; others put the thought there and nowhere else.
    ///
    /// Must be called only when no other span of the same call has the messages.
    pub(crate) fn read_free_text(&mut self) {
        if self.kind != OperationKind::Model {
            return;
        }
        let thoughtless = self.output.iter().all(|message| {
            message.parts.iter().all(|part| matches!(part, MessagePart::ToolCall(_) | MessagePart::ToolResult(_)))
        });
        // A text that begins like a request is not a reply: LlamaIndex records the preparation of a call as a call.
        let reply = self.output_text.clone().filter(|text| !text.starts_with("{\"messages\""));
        if thoughtless && let Some(text) = reply {
            let mut messages = wrapped::messages_in_text(&text, MessageRole::Assistant);
            if !self.output.is_empty() {
                // Plain text beside tool calls may be anything. Only the words of a structured reply are used, and not a
                // structure that is not understood.
                messages.retain(|message| {
                    message.role == MessageRole::Assistant
                        && text.trim_start().starts_with(['{', '['])
                        && message.joined_text().len() < text.trim().len()
                });
            }
            for message in &mut messages {
                message.role = MessageRole::Assistant;
            }
            self.add_output(messages);
        }
        // Without a reply, the request is not used either.
        if self.input.is_empty()
            && !self.output.is_empty()
            && let Some(text) = &self.input_text
        {
            let messages = wrapped::messages_in_text(text, MessageRole::User);
            self.input = messages;
        }
    }
}

/// An error message without the stack that JavaScript's instrumentations put behind it, and without its repetition in front
/// of the stack: `no such ship\n\nError: no such ship\n    at find (file.js:1:2)`.
fn without_stack(message: &str) -> &str {
    // Messages of more paragraphs are not compared with their repetition, because that takes time.
    const MAX_PARAGRAPHS: usize = 8;
    let Some((text, stack)) = message.split_once("\n    at ") else { return message };
    let first_line = stack.lines().next().unwrap_or_default();
    if !first_line.contains(':') || !first_line.ends_with(|end: char| end == ')' || end.is_ascii_digit()) {
        return message;
    }
    let mut paragraphs = text.match_indices("\n\n").take(MAX_PARAGRAPHS).map(|(end, _)| end);
    let end = paragraphs.find(|end| *end > 0 && text[end + 2..].ends_with(&text[..*end]));
    &text[..end.unwrap_or(text.len())]
}

/// Tool definitions as text or with structure.
fn read_offered_tools<'s>(value: &'s AttributeValue<'_>) -> OfferedTools<'s> {
    match value {
        AttributeValue::Str(text) => OfferedTools::Json(text),
        other => OfferedTools::Value(other),
    }
}

/// A text that is not empty, borrowed.
fn read_text_attribute<'s>(value: &'s AttributeValue<'_>) -> Option<Cow<'s, str>> {
    match value {
        AttributeValue::Str(text) if !text.is_empty() => Some(Cow::Borrowed(text.as_ref())),
        _ => None,
    }
}

/// A text, or a value with structure as JSON.
fn text_or_json<'s>(value: &'s AttributeValue<'_>) -> Option<Cow<'s, str>> {
    match value {
        AttributeValue::Str(_) => read_text_attribute(value),
        AttributeValue::Null => None,
        other => Some(Cow::Owned(other.to_json().to_string())),
    }
}

/// The JSON of a value: parsed within the node budget if it is text.
fn read_json_attribute(value: &AttributeValue<'_>) -> Option<serde_json::Value> {
    match value {
        AttributeValue::Str(text) => bounded_json::parse_bounded_json(text),
        AttributeValue::Null => None,
        other => Some(other.to_json()),
    }
}

/// Arguments as recorded; `None` for an empty text.
fn read_argument_attribute<'s>(value: &'s AttributeValue<'_>) -> Option<ArgumentsText<'s>> {
    match value {
        AttributeValue::Str(text) if text.is_empty() => None,
        AttributeValue::Str(text) => Some(ArgumentsText::Text(Cow::Borrowed(text.as_ref()))),
        AttributeValue::Null => None,
        other => Some(ArgumentsText::from(other.to_json())),
    }
}

/// Whether a reason, or one of a list of them, says that the model asks for tools.
fn is_tool_reason(value: &AttributeValue<'_>) -> bool {
    let text = text_or_json(value).unwrap_or_default();
    ["tool_calls", "tool_call", "tool_use", "function_call"].contains(&text.trim_matches(['[', ']', '"']))
}

/// Sets a field that no earlier dialect has set.
fn fill_if_empty<T>(place: &mut Option<T>, value: Option<T>) {
    if place.is_none() {
        *place = value;
    }
}
