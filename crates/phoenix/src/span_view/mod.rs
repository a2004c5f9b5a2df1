//! A span as Arize Phoenix stores and lists it: kind, nested attributes, flat attributes, times, events.
//!
//! Phoenix changes spans when it receives them: dotted keys become trees, some texts become JSON, `gen_ai.*` attributes
//! get OpenInference equivalents, and times lose their nanoseconds. Its clients and its filter language see the changed
//! span, so both are answered from here. Everything is computed on demand, since most filters are decided by a name or
//! a kind.

mod flat;
mod frame;
mod gen_ai;
mod gen_ai_messages;
mod python;
mod span_outline;
mod synthesized;
mod time;
mod token_totals;
mod unflatten;

use std::cell::OnceCell;
use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

use gradus_core::bounded_json;
use gradus_core::span::{AttributeValue, Span, SpanEvent, StatusCode};

pub use span_outline::AttributeLookup;
pub use time::{format_iso_time, nanos_to_micros};
pub use token_totals::cumulative_tokens;

/// The attribute of the span kind in the OpenInference convention.
const KIND_KEY: &str = "openinference.span.kind";

/// Attributes whose text Phoenix parses as JSON. The match is by suffix, so that prefixes such as message indexes do
/// not matter.
const JSON_TEXTS: [&str; 4] = ["document.metadata", "llm.prompt_template.variables", "metadata", "tool.parameters"];

/// Token counts that Phoenix converts to integers: prompt, completion, total, in this order.
const TOKEN_COUNTS: [&str; 3] = ["llm.token_count.prompt", "llm.token_count.completion", "llm.token_count.total"];

/// Messages have indexes in their keys, so synthesised and recorded messages of one list must not be mixed.
const MESSAGE_LISTS: [&str; 2] = ["llm.input_messages.", "llm.output_messages."];

/// A view of a span with cached results. Not `Sync`: each thread makes its own.
#[derive(Debug)]
pub struct PhoenixSpan<'a> {
    span: &'a Span<'a>,
    kind: OnceCell<SpanKind>,
    attributes: OnceCell<Map<String, Json>>,
}

/// The span kinds of Phoenix. Any other value is `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpanKind {
    Tool,
    Chain,
    Llm,
    Prompt,
    Retriever,
    Embedding,
    Agent,
    Reranker,
    Evaluator,
    Guardrail,
    Decision,
    Unknown,
}

impl<'a> PhoenixSpan<'a> {
    pub fn new(span: &'a Span<'a>) -> PhoenixSpan<'a> {
        PhoenixSpan { span, kind: OnceCell::new(), attributes: OnceCell::new() }
    }

    /// The span as it was received.
    pub fn span(&self) -> &'a Span<'a> {
        self.span
    }

    /// The kind for filters and token sums. Read from the recorded keys where the tree could not give another result.
    pub fn kind(&self) -> SpanKind {
        *self.kind.get_or_init(|| kind_from_recorded_keys(self.span).unwrap_or_else(|| self.recorded_kind()))
    }

    /// The kind as listings print it: the recorded value, so that `llm` stays `llm`.
    pub fn listed_kind(&self) -> String {
        match look_up_path(self.attributes(), KIND_KEY) {
            Some(Json::String(kind)) => kind.clone(),
            Some(Json::Null) | None => SpanKind::Unknown.as_str().to_owned(),
            Some(other) => python::format_python_str(other),
        }
    }

    /// Attributes as a tree, built on first use.
    pub fn attributes(&self) -> &Map<String, Json> {
        self.attributes.get_or_init(|| build_attribute_tree(self.span))
    }

    /// Attributes as `GET /v1/projects/P/spans` lists them: dotted keys with indexes, without the kind.
    pub fn flat_attributes(&self) -> Map<String, Json> {
        let mut flat = flat::flatten_attributes(self.attributes());
        flat.shift_remove(KIND_KEY);
        flat
    }

    /// The value at a dotted path, if it can be known without building the tree.
    pub fn peek_attribute(&self, path: &str) -> AttributeLookup<'a> {
        // An existing tree is faster.
        if self.attributes.get().is_some() {
            AttributeLookup::Unknown
        } else {
            span_outline::peek_span_attribute(self.span, path)
        }
    }

    /// Attributes as columns of a pandas data frame, without the prefix `attributes.`.
    pub fn frame_attributes(&self) -> Map<String, Json> {
        frame::build_frame_columns(self.attributes())
    }

    /// In Phoenix's spelling.
    pub fn status_code(&self) -> &'static str {
        match self.span.status.code {
            StatusCode::Unset => "UNSET",
            StatusCode::Ok => "OK",
            StatusCode::Error => "ERROR",
        }
    }

    /// Microseconds since 1970, the precision of Phoenix.
    pub fn start_us(&self) -> i64 {
        nanos_to_micros(self.span.start_ns)
    }

    pub fn end_us(&self) -> i64 {
        nanos_to_micros(self.span.end_ns)
    }

    /// From the rounded times, as Phoenix computes it.
    pub fn latency_ms(&self) -> f64 {
        (self.end_us() - self.start_us()) as f64 / 1000.0
    }

    /// Prompt and completion tokens of a model call; none for other kinds. Phoenix sums them over descendants.
    pub fn own_tokens(&self) -> Option<(i64, i64)> {
        let count = |key| look_up_path(self.attributes(), key).and_then(python::parse_python_int).unwrap_or(0);
        (self.kind() == SpanKind::Llm).then(|| (count(TOKEN_COUNTS[0]), count(TOKEN_COUNTS[1])))
    }

    /// Events as listings print them. Log records, which we attach as events with a body, are unknown to Phoenix.
    pub fn events(&self) -> Vec<Json> {
        self.span.events.iter().filter(|event| event.body.is_none()).map(event_to_listing).collect()
    }

    /// The span as `GET /v1/projects/P/spans` lists it, except for the row id, which belongs to the store.
    pub fn to_listing_json(&self) -> Json {
        json!({
            "name": self.span.name,
            "context": {"trace_id": self.span.trace_id.to_string(), "span_id": self.span.span_id.to_string()},
            "span_kind": self.listed_kind(),
            "parent_id": self.span.parent_id.map(|id| id.to_string()),
            "start_time": format_iso_time(self.start_us()),
            "end_time": format_iso_time(self.end_us()),
            "status_code": self.status_code(),
            "status_message": self.span.status.message,
            "attributes": self.flat_attributes(),
            "events": self.events(),
        })
    }

    /// From the tree, for spans whose keys are unusual.
    fn recorded_kind(&self) -> SpanKind {
        look_up_path(self.attributes(), KIND_KEY).and_then(Json::as_str).map_or(SpanKind::Unknown, SpanKind::parse)
    }
}

impl SpanKind {
    /// In the order of Phoenix's enumeration.
    pub const ALL: [SpanKind; 12] = [
        SpanKind::Tool,
        SpanKind::Chain,
        SpanKind::Llm,
        SpanKind::Prompt,
        SpanKind::Retriever,
        SpanKind::Embedding,
        SpanKind::Agent,
        SpanKind::Reranker,
        SpanKind::Evaluator,
        SpanKind::Guardrail,
        SpanKind::Decision,
        SpanKind::Unknown,
    ];

    /// Ignores case; unknown names give `Unknown`.
    pub fn parse(text: &str) -> SpanKind {
        let known = SpanKind::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(text));
        known.unwrap_or(SpanKind::Unknown)
    }

    /// In capitals, as Phoenix stores kinds.
    pub fn as_str(self) -> &'static str {
        match self {
            SpanKind::Tool => "TOOL",
            SpanKind::Chain => "CHAIN",
            SpanKind::Llm => "LLM",
            SpanKind::Prompt => "PROMPT",
            SpanKind::Retriever => "RETRIEVER",
            SpanKind::Embedding => "EMBEDDING",
            SpanKind::Agent => "AGENT",
            SpanKind::Reranker => "RERANKER",
            SpanKind::Evaluator => "EVALUATOR",
            SpanKind::Guardrail => "GUARDRAIL",
            SpanKind::Decision => "DECISION",
            SpanKind::Unknown => "UNKNOWN",
        }
    }
}

/// The value at a dotted path. Goes through objects only, never through lists.
pub fn look_up_path<'j>(attributes: &'j Map<String, Json>, path: &str) -> Option<&'j Json> {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    match (attributes.get(first)?, rest) {
        (value, None) => Some(value),
        (Json::Object(below), Some(rest)) => look_up_path(below, rest),
        _ => None,
    }
}

/// Returns the kind from the recorded keys alone; none if only the tree can decide, as with duplicate or padded keys.
fn kind_from_recorded_keys(span: &Span<'_>) -> Option<SpanKind> {
    let mut recorded = None;
    for (key, value) in span.attributes.iter() {
        if !key.trim_start_matches(|c: char| c == '.' || c.is_whitespace()).starts_with("openinference") {
            continue;
        }
        match value {
            AttributeValue::Str(kind) if key == KIND_KEY && recorded.is_none() => recorded = Some(kind),
            _ => return None,
        }
    }
    match recorded {
        Some(kind) => Some(SpanKind::parse(kind)),
        None => Some(gen_ai::infer_kind(&gen_ai::GenAiAttributes::from_span(span)).unwrap_or(SpanKind::Unknown)),
    }
}

/// Builds the tree: synthesised attributes first, then recorded ones, which override them.
fn build_attribute_tree(span: &Span<'_>) -> Map<String, Json> {
    let synthesized = gen_ai::synthesize_attributes(span);
    let mut tree = unflatten::AttributeTree::default();
    let recorded = &span.attributes.0;
    // A recorded key wins over a synthesised one, and a recorded message list over a synthesised list as a whole.
    if !synthesized.is_empty() {
        let occupied = MESSAGE_LISTS.map(|list| recorded.iter().any(|(key, _)| key.starts_with(list)).then_some(list));
        let recorded_keys: HashSet<&str> = recorded.iter().map(|(key, _)| key.as_ref()).collect();
        for (key, value) in synthesized {
            let own_list = occupied.iter().flatten().any(|list| key.starts_with(list));
            if !own_list && !recorded_keys.contains(key.as_str()) {
                tree.insert(&key, value);
            }
        }
    }
    for (key, value) in recorded {
        tree.insert(key, stored_value(key, value));
    }
    let mut attributes = tree.into_map();
    // Phoenix serialises an input that is not a text, with Python's JSON formatting, and sets its MIME type.
    if let Some(Json::Object(input)) = attributes.get_mut("input")
        && let Some(value) = input.get("value").filter(|value| !value.is_string() && python::is_python_truthy(value))
    {
        let text = python::dump_python_json(value, python::NonAsciiEscaping::Ascii);
        input.insert("value".to_owned(), Json::String(text));
        input.insert("mime_type".to_owned(), Json::from("application/json"));
    }
    attributes
}

/// A recorded value as it enters the tree: some texts are parsed as JSON, token counts become integers.
fn stored_value(key: &str, value: &AttributeValue<'_>) -> Json {
    if let AttributeValue::Str(text) = value
        && JSON_TEXTS.iter().any(|name| key.ends_with(name))
        && let Some(json) = bounded_json::parse_bounded_json(text)
    {
        return json;
    }
    let json = value.to_json();
    if TOKEN_COUNTS.contains(&key)
        && let Some(count) = python::parse_python_int(&json)
    {
        return Json::from(count);
    }
    json
}

/// Of an exception event Phoenix keeps the attributes of the convention, and adds an empty message if it has none.
/// Other events keep all attributes.
fn event_to_listing(event: &SpanEvent<'_>) -> Json {
    let kept = ["exception.type", "exception.message", "exception.escaped", "exception.stacktrace"];
    let mut attributes = Map::new();
    if event.name == "exception" {
        for key in kept {
            let value =
                event.attributes.get(key).filter(|value| **value != AttributeValue::Null).map(AttributeValue::to_json);
            match (key, value) {
                ("exception.message", None) => attributes.insert(key.to_owned(), Json::from("")),
                (_, Some(value)) => attributes.insert(key.to_owned(), value),
                _ => None,
            };
        }
    } else {
        attributes.extend(event.attributes.iter().map(|(key, value)| (key.to_owned(), value.to_json())));
    }
    json!({"name": event.name, "timestamp": format_iso_time(nanos_to_micros(event.time_ns)), "attributes": attributes})
}

#[cfg(test)]
mod tests;
