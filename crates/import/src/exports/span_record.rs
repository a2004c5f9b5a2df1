//! Builds spans from the records of tracing backends.
//!
//! The records of all backends are converted to the OpenInference conventions, whose attributes hold messages, inputs
//! and outputs of any shape as JSON text. The dialects and the assembler of `gradus-core` do the rest.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::span::{AttributeValue, Span, SpanEvent, SpanId, SpanResource, SpanStatus, StatusCode, TraceId};
use jiff::Timestamp;
use serde_json::{Map, Value as Json};

use super::model_content::{
    HostedCall, ReplySegment, list_messages, normalize_reply, normalize_request, split_hosted_calls, unwrap_tool_result,
};
use crate::import_sink::{ImportError, ImportSink};

/// The kind of an operation, as OpenInference names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SpanRecordKind {
    Model,
    Tool,
    Agent,
    /// Chains, retrievers, guardrails: structure around the work.
    #[default]
    Chain,
}

/// Tokens that a backend reports for one model call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReportedUsage {
    /// All tokens of the input, cached ones included.
    pub prompt: Option<u64>,
    pub completion: Option<u64>,
    pub cached_prompt: Option<u64>,
    pub cost_usd: Option<f64>,
}

/// A span while it is built.
#[derive(Debug, Default)]
pub(crate) struct SpanRecord {
    span: Span<'static>,
    /// The rest of a reply after calls that the service ran, with the request as messages.
    hosted: Option<(Vec<Json>, Vec<ReplySegment>)>,
}

impl SpanRecord {
    pub(crate) fn new(trace_id: TraceId, span_id: SpanId, name: &str) -> SpanRecord {
        let span = Span { trace_id, span_id, name: Cow::Owned(name.to_owned()), ..Span::default() };
        SpanRecord { span, hosted: None }
    }

    pub(crate) fn set_parent(&mut self, parent_id: Option<SpanId>) {
        // A span that is its own parent would be a cycle of one.
        self.span.parent_id = parent_id.filter(|parent| *parent != self.span.span_id);
    }

    pub(crate) fn set_times(&mut self, start: Option<&Json>, end: Option<&Json>) {
        self.span.start_ns = start.map_or(0, read_time_ns);
        self.span.end_ns = end.map_or(self.span.start_ns, read_time_ns);
    }

    pub(crate) fn set_time_range_ns(&mut self, start_ns: u64, end_ns: u64) {
        (self.span.start_ns, self.span.end_ns) = (start_ns, end_ns);
    }

    pub(crate) fn set_kind(&mut self, kind: SpanRecordKind) {
        let name = match kind {
            SpanRecordKind::Model => "LLM",
            SpanRecordKind::Tool => "TOOL",
            SpanRecordKind::Agent => "AGENT",
            SpanRecordKind::Chain => "CHAIN",
        };
        self.set_text("openinference.span.kind", name);
    }

    /// Marks the span as failed. An empty message is allowed.
    pub(crate) fn set_error(&mut self, message: &str) {
        self.span.status = SpanStatus { code: StatusCode::Error, message: Cow::Owned(message.to_owned()) };
    }

    /// Sets the resource of the span: the name of the project or service.
    pub(crate) fn set_project(&mut self, project: Option<&str>) {
        if let Some(project) = project.filter(|name| !name.is_empty()) {
            let value = AttributeValue::Str(Cow::Owned(project.to_owned()));
            let attributes = vec![(Cow::Borrowed("service.name"), value)];
            let attributes = gradus_core::span::AttributeList(attributes);
            self.span.resource = Arc::new(SpanResource { attributes });
        }
    }

    pub(crate) fn set_resource(&mut self, resource: Arc<SpanResource>) {
        self.span.resource = resource;
    }

    pub(crate) fn set_scope(&mut self, scope: &str) {
        self.span.scope = Cow::Owned(scope.to_owned());
    }

    pub(crate) fn add_event(&mut self, event: SpanEvent<'static>) {
        self.span.events.push(event);
    }

    /// Sets an attribute to a text. Empty texts are left out.
    pub(crate) fn set_text(&mut self, key: &'static str, text: &str) {
        if !text.is_empty() {
            self.push_attribute(Cow::Borrowed(key), AttributeValue::Str(Cow::Owned(text.to_owned())));
        }
    }

    pub(crate) fn push_attribute(&mut self, key: Cow<'static, str>, value: AttributeValue<'static>) {
        self.span.attributes.0.push((key, value));
    }

    /// Sets an attribute to a text, or to any other value as JSON text. Null is left out.
    pub(crate) fn set_content(&mut self, key: &'static str, content: Json) {
        let text = match content {
            Json::Null => return,
            Json::String(text) => text,
            other => other.to_string(),
        };
        self.push_attribute(Cow::Borrowed(key), AttributeValue::Str(Cow::Owned(text)));
    }

    /// Sets the request and the reply of a model call. Structured content holds messages; a plain text is the prompt or
    /// the reply itself.
    pub(crate) fn set_model_content(&mut self, input: Json, output: Json) {
        let (input, output) = (normalize_request(decode_json_text(input)), normalize_reply(decode_json_text(output)));
        if let (Some(messages), Some(segments)) = (list_messages(&input), split_hosted_calls(&output)) {
            self.hosted = Some((messages, segments));
            return;
        }
        for (messages_key, text_key, content) in
            [("llm.input_messages", "input.value", input), ("llm.output_messages", "output.value", output)]
        {
            let key = if content.is_object() || content.is_array() { messages_key } else { text_key };
            self.set_content(key, content);
        }
    }

    /// Sets the arguments and the result of a tool run.
    pub(crate) fn set_tool_content(&mut self, tool_name: &str, input: Json, output: Json) {
        self.set_text("tool.name", tool_name);
        self.set_content("input.value", input);
        self.set_content("output.value", unwrap_tool_result(output));
    }

    /// Sets the input and output of an agent or a chain.
    pub(crate) fn set_chain_content(&mut self, input: Json, output: Json) {
        self.set_content("input.value", input);
        self.set_content("output.value", output);
    }

    pub(crate) fn set_usage(&mut self, usage: ReportedUsage) {
        let counts = [
            ("llm.token_count.prompt", usage.prompt),
            ("llm.token_count.completion", usage.completion),
            ("llm.token_count.prompt_details.cache_read", usage.cached_prompt),
        ];
        for (key, count) in counts {
            if let Some(count) = count.and_then(|count| i64::try_from(count).ok()) {
                self.push_attribute(Cow::Borrowed(key), AttributeValue::Int(count));
            }
        }
        if let Some(cost) = usage.cost_usd.filter(|cost| cost.is_finite()) {
            self.push_attribute(Cow::Borrowed("llm.cost.total"), AttributeValue::Double(cost));
        }
    }

    /// Hands the span to the sink. A reply with calls that the service ran becomes several spans: the call of the
    /// model and the run of each tool, as they would be if the agent had run them.
    pub(crate) fn add_to(mut self, sink: &mut dyn ImportSink) {
        let Some((mut messages, segments)) = self.hosted.take() else {
            return sink.add_span(&self.span);
        };
        let base = self.span;
        for (number, segment) in segments.iter().enumerate() {
            let mut part = SpanRecord { span: base.clone(), hosted: None };
            part.span.start_ns = base.start_ns.saturating_add(2 * number as u64);
            if number > 0 {
                part.span.span_id = derive_span_id(base.span_id, "reply", number);
                // Tokens are those of the whole reply.
                part.span
                    .attributes
                    .0
                    .retain(|(key, _)| !key.starts_with("llm.token_count") && key != "llm.cost.total");
            }
            part.set_content("llm.input_messages", Json::Array(messages.clone()));
            part.set_content("llm.output_messages", Json::Array(segment.items_with_calls()));
            sink.add_span(&part.span);
            for (place, call) in segment.calls.iter().enumerate() {
                let id = derive_span_id(base.span_id, &format!("call {number}"), place);
                sink.add_span(&hosted_call_span(&part.span, id, call));
            }
            messages.extend(segment.items_with_calls());
            messages.extend(segment.results());
        }
    }
}

/// Returns a span for the run of a tool by the service.
fn hosted_call_span(reply: &Span<'_>, span_id: SpanId, call: &HostedCall) -> Span<'static> {
    let mut span = SpanRecord::new(reply.trace_id, span_id, &call.name);
    span.set_parent(reply.parent_id);
    span.set_time_range_ns(reply.start_ns.saturating_add(1), reply.start_ns.saturating_add(1));
    span.set_kind(SpanRecordKind::Tool);
    span.set_tool_content(
        &call.name,
        call.arguments.clone().unwrap_or_default(),
        call.result.clone().unwrap_or_default(),
    );
    span.set_text("tool_call.id", call.id.as_deref().unwrap_or_default());
    if call.is_error {
        span.set_error("");
    }
    span.span
}

/// Returns an id for a span that is a part of another.
fn derive_span_id(base: SpanId, part: &str, number: usize) -> SpanId {
    SpanId(gradus_core::stable_digest(format!("{base} {part} {number}").as_bytes()) as u64)
}

/// Returns the id of a trace. UUIDs and other texts are hashed, so that they stay distinct.
pub(crate) fn trace_id_from_text(text: &str) -> TraceId {
    match TraceId::parse(text) {
        TraceId(0) if !text.is_empty() => TraceId(gradus_core::stable_digest(text.as_bytes())),
        id => id,
    }
}

/// Returns the id of a span; `None` for an empty text. A text such as `0` is an id like any other, although it parses
/// as zero.
pub(crate) fn span_id_from_text(text: &str) -> Option<SpanId> {
    match SpanId::parse(text) {
        SpanId(0) if text.is_empty() => None,
        SpanId(0) => Some(SpanId(gradus_core::stable_digest(text.as_bytes()) as u64)),
        id => Some(id),
    }
}

/// Reads a time as nanoseconds since the Unix epoch: RFC 3339 text, with or without a zone, or a number in seconds,
/// milliseconds, microseconds or nanoseconds, detected by its size. 0 for anything else.
pub(crate) fn read_time_ns(value: &Json) -> u64 {
    match value {
        Json::String(text) => match text.parse::<i64>() {
            Ok(number) => scale_to_ns(number),
            Err(_) => crate::timestamps::normalize_timestamp_text(text)
                .and_then(|text| text.parse::<Timestamp>().ok())
                .and_then(|at| u64::try_from(at.as_nanosecond()).ok())
                .unwrap_or_default(),
        },
        Json::Number(number) => match number.as_i64() {
            Some(number) => scale_to_ns(number),
            None => {
                let mut seconds = number.as_f64().unwrap_or_default();
                while seconds.is_finite() && seconds >= 1e11 {
                    seconds /= 1e3;
                }
                // Saturates for numbers that no clock shows.
                (seconds * 1e9) as u64
            }
        },
        _ => 0,
    }
}

/// Converts an integer in one of the units of Unix time to nanoseconds, exactly.
fn scale_to_ns(number: i64) -> u64 {
    let Ok(number) = u64::try_from(number) else { return 0 };
    // A time after 1973 and before 5138 in one of these units.
    let factor = match number {
        0..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    number.saturating_mul(factor)
}

/// Decodes a text that contains a JSON object or list. Other values are returned as they are.
pub(crate) fn decode_json_text(value: Json) -> Json {
    match value {
        Json::String(text) if text.trim_start().starts_with(['{', '[']) => {
            gradus_core::bounded_json::parse_bounded_json(&text).unwrap_or(Json::String(text))
        }
        other => other,
    }
}

/// Returns the name of an agent or a tool, without the prefix that conventions add in the name of a span.
pub(crate) fn strip_span_name_prefix(name: &str) -> &str {
    const PREFIXES: [&str; 4] = ["execute_tool ", "running tool: ", "invoke_agent ", "agent_run "];
    let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let inner = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(rest)
}

/// Reports a record of a list that could not be read. The others are read.
pub(crate) fn report_failure(read: Result<(), ImportError>, sink: &mut dyn ImportSink) {
    if let Err(error) = read {
        sink.report_bad_record(&error.reason);
    }
}

/// Takes a field out of a record, under the first of these names that has a value.
pub(crate) fn take_field(record: &mut Map<String, Json>, names: &[&str]) -> Json {
    names.iter().find_map(|name| record.remove(*name).filter(|value| !value.is_null())).unwrap_or_default()
}

/// Returns the text of a field, under the first of these names that has one.
pub(crate) fn text_under<'r>(record: &'r Map<String, Json>, names: &[&str]) -> Option<&'r str> {
    names.iter().find_map(|name| record.get(*name)?.as_str().filter(|text| !text.is_empty()))
}

/// Returns a count under the first of these names that has one. Some exporters write counts as text or as floats.
pub(crate) fn count_under(record: &Json, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| AttributeValue::from_json(record.get(*name)?.clone()).as_u64())
}

/// Returns a number under the first of these names that has one.
pub(crate) fn number_under(record: &Json, names: &[&str]) -> Option<f64> {
    names.iter().find_map(|name| AttributeValue::from_json(record.get(*name)?.clone()).as_f64())
}

/// Reads tokens in the fields of OpenAI (`prompt_tokens`) and Anthropic (`input_tokens`), which LangChain and others
/// repeat. Anthropic does not count cached tokens in `input_tokens`.
pub(crate) fn read_provider_usage(usage: &Json) -> ReportedUsage {
    let prompt = count_under(usage, &["prompt_tokens", "input_tokens", "promptTokens", "inputTokens"]);
    let completion = count_under(usage, &["completion_tokens", "output_tokens", "completionTokens", "outputTokens"]);
    let details = ["prompt_tokens_details", "input_tokens_details", "input_token_details"]
        .iter()
        .find_map(|key| count_under(usage.get(*key)?, &["cached_tokens", "cache_read"]));
    let apart = count_under(usage, &["cache_read_input_tokens"]);
    let written = count_under(usage, &["cache_creation_input_tokens"]);
    let prompt = prompt.map(|count| count.saturating_add(apart.unwrap_or(0)).saturating_add(written.unwrap_or(0)));
    ReportedUsage { prompt, completion, cached_prompt: details.or(apart), cost_usd: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_in_all_units_are_exact() {
        for value in [
            json!(1_794_916_800),
            json!(1_794_916_800_000_u64),
            json!(1_794_916_800_000_000_u64),
            json!(1_794_916_800_000_000_000_u64),
            json!("1794916800000"),
            json!("2026-11-17T12:00:00"),
            json!("2026-11-17 12:00:00+00:00"),
        ] {
            assert_eq!(read_time_ns(&value), 1_794_916_800_000_000_000, "{value}");
        }
        for hostile in [json!(-1), json!(1e300), json!("soon"), json!([]), json!(u64::MAX)] {
            let _ = read_time_ns(&hostile);
        }
    }

    #[test]
    fn an_id_of_zeros_is_an_id() {
        assert_ne!(span_id_from_text("0").map(|id| id.0), Some(0));
        assert_eq!(span_id_from_text(""), None);
        assert_ne!(trace_id_from_text("00"), TraceId::default());
    }

    #[test]
    fn cached_tokens_of_anthropic_are_part_of_the_prompt() {
        let usage = json!({"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5});
        let read = read_provider_usage(&usage);
        assert_eq!((read.prompt, read.cached_prompt, read.completion), (Some(100), Some(90), Some(5)));
        let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 90}});
        let read = read_provider_usage(&usage);
        assert_eq!((read.prompt, read.cached_prompt), (Some(100), Some(90)));
    }
}
