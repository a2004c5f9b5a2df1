//! OpenInference attributes that Phoenix derives from `gen_ai.*`, the OpenTelemetry GenAI semantic conventions, when it
//! receives a span. The mapping follows Phoenix's own, including its omissions.

use crate::span_view::synthesized::{SynthesizedAttributes, insert_attribute};
use serde_json::{Map, Value as Json};

use super::gen_ai_messages::{parse_documents, parse_messages, parse_system_message, parse_tool_schemas};
use super::python::{NonAsciiEscaping, dump_python_json, format_python_float, format_python_str, is_python_truthy};
use super::{KIND_KEY, SpanKind};
use gradus_core::bounded_json;
use gradus_core::span::{AttributeValue, Span};

const JSON_MIME_TYPE: &str = "application/json";

/// Request attributes of the GenAI convention and the parameter names of the chat completion API.
const REQUEST_PARAMETERS: [(&str, &str); 9] = [
    ("gen_ai.request.temperature", "temperature"),
    ("gen_ai.request.top_p", "top_p"),
    ("gen_ai.request.top_k", "top_k"),
    ("gen_ai.request.max_tokens", "max_tokens"),
    ("gen_ai.request.frequency_penalty", "frequency_penalty"),
    ("gen_ai.request.presence_penalty", "presence_penalty"),
    ("gen_ai.request.seed", "seed"),
    ("gen_ai.request.stream", "stream"),
    ("gen_ai.request.choice.count", "n"),
];

/// Usage attributes and their OpenInference counterparts. The first two are also summed to a total.
const TOKEN_ATTRIBUTES: [(&str, &str); 4] = [
    ("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
    ("gen_ai.usage.output_tokens", "llm.token_count.completion"),
    ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    ("gen_ai.usage.cache_creation.input_tokens", "llm.token_count.prompt_details.cache_write"),
];

/// The `gen_ai.*` attributes of a span. They are few, so that linear lookups are fine even if a span has hundreds of
/// others.
pub(super) struct GenAiAttributes<'s>(Vec<(&'s str, &'s AttributeValue<'s>)>);

/// All derived attributes, before recorded ones take precedence. Empty for a span without `gen_ai.*`.
pub(super) fn synthesize_attributes(span: &Span<'_>) -> SynthesizedAttributes {
    let recorded = GenAiAttributes::from_span(span);
    let mut out = Map::new();
    if recorded.0.is_empty() {
        return out;
    }
    let kind = infer_kind(&recorded);
    if let Some(kind) = kind {
        insert_attribute(&mut out, KIND_KEY, kind.as_str());
    }
    map_provider_and_session(&recorded, &mut out);
    map_request(&recorded, kind, &mut out);
    map_token_usage(&recorded, &mut out);
    map_conversation(&recorded, &mut out);
    map_response(&recorded, &mut out);
    map_tools(&recorded, kind, &mut out);
    if kind == Some(SpanKind::Retriever) {
        map_retrieval(&recorded, &mut out);
    }
    out
}

/// The kind by the operation name, or without one by which attributes are present. None if nothing indicates a kind.
pub(super) fn infer_kind(recorded: &GenAiAttributes<'_>) -> Option<SpanKind> {
    if let Some(operation) = recorded.get_text("gen_ai.operation.name") {
        return match operation.as_str() {
            "chat" | "text_completion" | "generate_content" => Some(SpanKind::Llm),
            "embeddings" => Some(SpanKind::Embedding),
            "execute_tool" => Some(SpanKind::Tool),
            "retrieval" => Some(SpanKind::Retriever),
            "invoke_agent" | "create_agent" => Some(SpanKind::Agent),
            _ => None,
        };
    }
    let any = |keys: &[&str]| keys.iter().any(|key| recorded.get(key).is_some_and(is_true));
    if any(&["gen_ai.tool.call.id", "gen_ai.tool.name"]) {
        Some(SpanKind::Tool)
    } else if any(&["gen_ai.retrieval.documents", "gen_ai.retrieval.query.text"]) {
        Some(SpanKind::Retriever)
    } else if recorded.get("gen_ai.embeddings.dimension.count").is_some() {
        Some(SpanKind::Embedding)
    } else if any(&["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.request.model"]) {
        Some(SpanKind::Llm)
    } else {
        None
    }
}

impl<'s> GenAiAttributes<'s> {
    /// Keeps the order of the span, in which later duplicates win.
    pub(super) fn from_span(span: &'s Span<'_>) -> GenAiAttributes<'s> {
        GenAiAttributes(span.attributes.iter().filter(|(key, _)| key.starts_with("gen_ai.")).collect())
    }

    /// The last value of a key, as duplicates override each other; none for null.
    fn get(&self, key: &str) -> Option<&'s AttributeValue<'s>> {
        let last = self.0.iter().rev().find(|(name, _)| *name == key)?.1;
        (*last != AttributeValue::Null).then_some(last)
    }

    /// The value as Python's `str` prints it.
    fn get_text(&self, key: &str) -> Option<String> {
        self.get(key).map(as_text)
    }

    /// The value as a text that is not empty.
    fn non_empty(&self, key: &str) -> Option<String> {
        self.get_text(key).filter(|text| !text.is_empty())
    }

    /// The value if it is a text, which should hold JSON.
    fn json_text(&self, key: &str) -> Option<&'s str> {
        self.get(key).and_then(AttributeValue::as_str)
    }

    /// A text, or a list of values as texts.
    fn get_texts(&self, key: &str) -> Vec<String> {
        match self.get(key) {
            Some(AttributeValue::Str(text)) => vec![text.to_string()],
            Some(AttributeValue::Array(items)) => items.iter().map(as_text).collect(),
            _ => Vec::new(),
        }
    }

    /// An integer, a double without a fraction, or a text of an integer.
    fn get_count(&self, key: &str) -> Option<i64> {
        match self.get(key)? {
            AttributeValue::Int(number) => Some(*number),
            AttributeValue::Double(number) if number.fract() == 0.0 => Some(*number as i64),
            AttributeValue::Str(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
}

/// Provider names differ between the conventions. `gen_ai.system` is the name before version 1.37 of the convention.
fn map_provider_and_session(recorded: &GenAiAttributes<'_>, out: &mut SynthesizedAttributes) {
    // OpenInference separates the provider that hosts a model from the system that made it.
    let name = recorded.get_text("gen_ai.provider.name");
    // The name of the attribute before the convention's 1.37.
    if let Some(name) = name.or_else(|| recorded.get_text("gen_ai.system").map(|name| name.to_lowercase())) {
        let (provider, system) = match name.as_str() {
            same @ ("openai" | "anthropic" | "cohere") => (Some(same), Some(same)),
            "mistral_ai" => (Some("mistralai"), Some("mistralai")),
            same @ ("deepseek" | "groq" | "perplexity") => (Some(same), None),
            "x_ai" => (Some("xai"), None),
            "azure.ai.openai" => (Some("azure"), Some("openai")),
            "azure.ai.inference" => (Some("azure"), None),
            "aws.bedrock" => (Some("aws"), None),
            "gcp.vertex_ai" => (Some("google"), Some("vertexai")),
            "gcp.gen_ai" | "gcp.gemini" => (Some("google"), None),
            other => (None, Some(other)),
        };
        provider.into_iter().for_each(|provider| insert_attribute(out, "llm.provider", provider));
        system.into_iter().for_each(|system| insert_attribute(out, "llm.system", system));
    }
    if let Some(conversation) = recorded.non_empty("gen_ai.conversation.id") {
        insert_attribute(out, "session.id", conversation);
    }
}

/// Model name and parameters; embeddings have attributes of their own in OpenInference.
fn map_request(recorded: &GenAiAttributes<'_>, kind: Option<SpanKind>, out: &mut SynthesizedAttributes) {
    let embeds = kind == Some(SpanKind::Embedding);
    if let Some(model) = recorded.non_empty("gen_ai.request.model") {
        insert_attribute(out, if embeds { "embedding.model_name" } else { "llm.model_name" }, model);
    }
    let mut parameters = Map::new();
    for (key, name) in REQUEST_PARAMETERS {
        if let Some(value) = recorded.get(key) {
            parameters.insert(name.to_owned(), value.to_json());
        }
    }
    let stop = recorded.get_texts("gen_ai.request.stop_sequences");
    if !stop.is_empty() {
        parameters.insert("stop".to_owned(), Json::from(stop));
    }
    let mut formats = recorded.get_texts("gen_ai.request.encoding_formats");
    // One format is a text and several are a list, as Phoenix writes them.
    match formats.len() {
        0 => {}
        1 => insert_attribute(&mut parameters, "encoding_format", formats.remove(0)),
        _ => insert_attribute(&mut parameters, "encoding_formats", formats),
    }
    match recorded.get_text("gen_ai.output.type").as_deref() {
        Some("json") => insert_attribute(&mut parameters, "response_format", make_json_object("type", "json_object")),
        Some("text") => insert_attribute(&mut parameters, "response_format", make_json_object("type", "text")),
        _ => {}
    }
    if !parameters.is_empty() {
        let key = if embeds { "embedding.invocation_parameters" } else { "llm.invocation_parameters" };
        insert_attribute(out, key, dump_python_json(&Json::Object(parameters), NonAsciiEscaping::AsNeeded));
    }
}

/// Token counts. The total is only derived if both parts are known.
fn map_token_usage(recorded: &GenAiAttributes<'_>, out: &mut SynthesizedAttributes) {
    for (theirs, ours) in TOKEN_ATTRIBUTES {
        if let Some(count) = recorded.get_count(theirs) {
            insert_attribute(out, ours, count);
        }
    }
    if let (Some(input), Some(output)) =
        (recorded.get_count(TOKEN_ATTRIBUTES[0].0), recorded.get_count(TOKEN_ATTRIBUTES[1].0))
    {
        insert_attribute(out, "llm.token_count.total", input.saturating_add(output));
    }
}

/// The system prompt is separate in the GenAI convention, and the first message in OpenInference.
fn map_conversation(recorded: &GenAiAttributes<'_>, out: &mut SynthesizedAttributes) {
    let system = recorded.json_text("gen_ai.system_instructions").and_then(parse_system_message);
    let asked = recorded.json_text("gen_ai.input.messages").and_then(|text| parse_messages(text, false));
    let input = system.into_iter().chain(asked.into_iter().flatten());
    for (index, message) in input.enumerate() {
        message.write(&format!("llm.input_messages.{index}"), out);
    }
    let replies = recorded.json_text("gen_ai.output.messages").and_then(|text| parse_messages(text, true));
    for (index, message) in replies.into_iter().flatten().enumerate() {
        message.write(&format!("llm.output_messages.{index}"), out);
    }
}

/// Finish reasons, and id and model of the response as a JSON output.
fn map_response(recorded: &GenAiAttributes<'_>, out: &mut SynthesizedAttributes) {
    let mut reasons = recorded.get_texts("gen_ai.response.finish_reasons");
    match reasons.len() {
        0 => {}
        1 => insert_attribute(out, "llm.finish_reason", reasons.remove(0)),
        _ => insert_attribute(out, "llm.finish_reason", reasons),
    }
    let mut payload = Map::new();
    for (key, name) in [("gen_ai.response.id", "id"), ("gen_ai.response.model", "model")] {
        if let Some(value) = recorded.non_empty(key) {
            insert_attribute(&mut payload, name, value);
        }
    }
    if !payload.is_empty() {
        insert_attribute(out, "output.value", dump_python_json(&Json::Object(payload), NonAsciiEscaping::AsNeeded));
        insert_attribute(out, "output.mime_type", JSON_MIME_TYPE);
    }
}

/// Tool definitions of any span; name, arguments and result of tool spans.
fn map_tools(recorded: &GenAiAttributes<'_>, kind: Option<SpanKind>, out: &mut SynthesizedAttributes) {
    let schemas = recorded.json_text("gen_ai.tool.definitions").and_then(parse_tool_schemas);
    for (index, schema) in schemas.into_iter().flatten().enumerate() {
        insert_attribute(
            out,
            &format!("llm.tools.{index}.tool.json_schema"),
            dump_python_json(&schema, NonAsciiEscaping::AsNeeded),
        );
    }
    if kind != Some(SpanKind::Tool) {
        return;
    }
    let texts = [
        ("gen_ai.tool.name", "tool.name"),
        ("gen_ai.tool.description", "tool.description"),
        ("gen_ai.tool.call.id", "tool.id"),
    ];
    for (theirs, ours) in texts {
        if let Some(text) = recorded.non_empty(theirs) {
            insert_attribute(out, ours, text);
        }
    }
    if let Some(arguments) = recorded.get("gen_ai.tool.call.arguments") {
        // Phoenix writes them as JSON and reads that again, since `tool.parameters` is one of its JSON texts.
        insert_attribute(out, "tool.parameters", read_json(arguments));
    }
    if let Some(result) = recorded.get("gen_ai.tool.call.result") {
        // Only structured results get a JSON MIME type.
        if matches!(read_json(result), Json::Object(_) | Json::Array(_)) {
            insert_attribute(out, "output.mime_type", JSON_MIME_TYPE);
        }
        insert_attribute(out, "output.value", as_string(result));
    }
}

/// Query and documents of a retriever.
fn map_retrieval(recorded: &GenAiAttributes<'_>, out: &mut SynthesizedAttributes) {
    if let Some(query) = recorded.non_empty("gen_ai.retrieval.query.text") {
        insert_attribute(out, "input.value", query);
        insert_attribute(out, "input.mime_type", "text/plain");
    }
    let found = recorded.json_text("gen_ai.retrieval.documents").and_then(parse_documents);
    for (index, document) in found.into_iter().flatten().enumerate() {
        for (key, value) in document {
            insert_attribute(out, &format!("retrieval.documents.{index}.{key}"), value);
        }
    }
}

fn make_json_object(key: &str, value: &str) -> Json {
    let mut object = Map::new();
    insert_attribute(&mut object, key, value);
    Json::Object(object)
}

/// A text is parsed where it is JSON and stays a text otherwise.
fn read_json(value: &AttributeValue<'_>) -> Json {
    match value {
        AttributeValue::Str(text) => {
            bounded_json::parse_bounded_json(text).unwrap_or_else(|| Json::String(text.to_string()))
        }
        other => other.to_json(),
    }
}

fn as_string(value: &AttributeValue<'_>) -> String {
    match value {
        AttributeValue::Str(text) => text.to_string(),
        other => dump_python_json(&other.to_json(), NonAsciiEscaping::AsNeeded),
    }
}

/// Python's `str`, with its notation of floats.
fn as_text(value: &AttributeValue<'_>) -> String {
    match value {
        AttributeValue::Str(text) => text.to_string(),
        AttributeValue::Double(number) => format_python_float(*number),
        other => format_python_str(&other.to_json()),
    }
}

/// Python's truth value.
fn is_true(value: &AttributeValue<'_>) -> bool {
    match value {
        AttributeValue::Str(text) => !text.is_empty(),
        other => is_python_truthy(&other.to_json()),
    }
}
