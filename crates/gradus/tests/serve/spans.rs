//! What agents send.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message as _;
use serde_json::json;

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

fn text(text: &str) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) }
}

pub(crate) fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(text(value)), ..KeyValue::default() }
}

pub(crate) fn attributes(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
    pairs.iter().map(|(key, value)| attribute(key, value)).collect()
}

/// A span that ended a second ago.
pub(crate) fn span(trace: u128, id: u64, name: &str) -> Span {
    let now = now_ns();
    Span {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        name: name.to_owned(),
        start_time_unix_nano: now - 2 * SECOND_NS,
        end_time_unix_nano: now - SECOND_NS,
        ..Span::default()
    }
}

fn resource(project: &str) -> Resource {
    Resource { attributes: attributes(&[("openinference.project.name", project)]), ..Resource::default() }
}

pub(crate) fn request(project: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let spans = ResourceSpans { resource: Some(resource(project)), scope_spans, ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}

pub(crate) fn export(project: &str, spans: Vec<Span>) -> Vec<u8> {
    request(project, spans).encode_to_vec()
}

/// A log record of a span.
pub(crate) fn log(project: &str, trace: u128, id: u64, event: &str, body: &str) -> Vec<u8> {
    let record = LogRecord {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        time_unix_nano: now_ns() - SECOND_NS,
        event_name: event.to_owned(),
        attributes: attributes(&[("event.name", event)]),
        body: Some(text(body)),
        ..LogRecord::default()
    };
    let scope_logs = vec![ScopeLogs { log_records: vec![record], ..ScopeLogs::default() }];
    let logs = ResourceLogs { resource: Some(resource(project)), scope_logs, ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![logs] }.encode_to_vec()
}

pub(crate) fn trace_id(trace: u128) -> String {
    format!("{trace:032x}")
}

fn gone() -> Status {
    Status { code: 2, message: "it is gone".to_owned() }
}

/// Outcomes of a [`Visit`] with the default evaluators: five of its step and four of the whole trajectory.
pub(crate) const VISIT_OUTCOME_COUNT: usize = 9;

/// An agent that is asked for a file, reads it with a tool, and answers: a trajectory of one step.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) trace: u128,
    pub(crate) agent: String,
    pub(crate) model: String,
    pub(crate) tool: String,
    /// What the model says before it calls the tool.
    pub(crate) thought: String,
    pub(crate) query: String,
    pub(crate) arguments: String,
    pub(crate) is_error: bool,
    pub(crate) start_ns: u64,
}

impl Visit {
    pub(crate) fn new(trace: u128) -> Visit {
        Visit {
            trace,
            agent: "librarian".to_owned(),
            model: "gpt-4o".to_owned(),
            tool: "read_file".to_owned(),
            thought: format!("I will read file {trace}.md in the demo repository."),
            query: format!("Show me file {trace} of the demo repository"),
            arguments: json!({"path": format!("{trace}.md")}).to_string(),
            is_error: false,
            start_ns: now_ns() - 3 * SECOND_NS,
        }
    }

    fn span(&self, number: u64, name: &str, kind: &str, pairs: &[(&str, &str)]) -> Span {
        let id = (self.trace as u64) << 8 | number;
        let mut span = span(self.trace, id, name);
        if number > 1 {
            span.parent_span_id = ((self.trace as u64) << 8 | 1).to_be_bytes().to_vec();
        }
        span.start_time_unix_nano = self.start_ns + number * 1_000_000;
        span.end_time_unix_nano = self.start_ns + if number == 1 { SECOND_NS } else { number * 2_000_000 };
        span.attributes = attributes(&[("openinference.span.kind", kind)]);
        span.attributes.extend(attributes(pairs));
        span
    }

    pub(crate) fn root(&self) -> Span {
        let mut span = self.span(
            1,
            &self.agent,
            "AGENT",
            &[("agent.name", &self.agent), ("input.value", &self.query), ("output.value", "Here it is.")],
        );
        span.status = self.is_error.then(gone);
        span
    }

    pub(crate) fn model_call(&self) -> Span {
        let schema = json!({"type": "function", "function": {"name": "read_file",
            "description": "Reads a file of a repository.", "parameters": {"type": "object",
            "properties": {"path": {"type": "string"}}, "required": ["path"]}}})
        .to_string();
        self.span(
            2,
            "ChatCompletion",
            "LLM",
            &[
                ("llm.model_name", &self.model),
                ("llm.input_messages.0.message.role", "user"),
                ("llm.input_messages.0.message.content", &self.query),
                ("llm.output_messages.0.message.role", "assistant"),
                ("llm.output_messages.0.message.content", &self.thought),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.id", "call_1"),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", &self.tool),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments", &self.arguments),
                ("llm.tools.0.tool.json_schema", &schema),
            ],
        )
    }

    pub(crate) fn tool_call(&self) -> Span {
        let mut span = self.span(
            3,
            &self.tool,
            "TOOL",
            &[("tool.name", &self.tool), ("input.value", &self.arguments), ("output.value", "# text")],
        );
        span.status = self.is_error.then(gone);
        span
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        vec![self.model_call(), self.tool_call(), self.root()]
    }

    pub(crate) fn export(&self, project: &str) -> Vec<u8> {
        export(project, self.spans())
    }
}
