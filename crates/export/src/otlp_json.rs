//! Trajectories as OTLP traces with OpenInference attributes: an agent span, and below it a model span for each reply
//! and a tool span for each call. For backends that take only traces. Spans without recorded times follow each other in
//! steps of a microsecond from the start of the request.

use std::io::{self, Write};

use gradus_core::stable_digest;
use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use crate::chat_form::{ArgumentForm, ChatForm, ChatShape, result_message, tool_schemas};
use crate::graded_runs::{GradedRuns, split_replies};

/// Writes one export request for each trajectory, as a line of OTLP JSON. Returns their number.
pub fn write_otlp_rows(runs: &GradedRuns, out: &mut dyn Write) -> io::Result<u64> {
    let mut rows = 0;
    for run in runs.iter() {
        let spans = TraceBuilder::new(&run.trajectory).build_spans();
        let service = run.trajectory.agent.as_deref().unwrap_or("agent");
        let request = json!({"resourceSpans": [{
            "resource": {"attributes": attributes(&[("service.name", json!(service))])},
            "scopeSpans": [{"scope": {"name": "gradus.export"}, "spans": spans}],
        }]});
        writeln!(out, "{request}")?;
        rows += 1;
    }
    Ok(rows)
}

const MICROSECOND: u64 = 1_000;

/// Reads a recorded time in nanoseconds; `None` if the text is not a time.
fn read_time(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<Timestamp>().ok()?.as_nanosecond()).ok()
}

struct TraceBuilder<'t> {
    trajectory: &'t Trajectory,
    trace_id: String,
    start_ns: u64,
    /// The time of the next span, in nanoseconds.
    clock: u64,
    spans: Vec<Json>,
}

impl<'t> TraceBuilder<'t> {
    fn new(trajectory: &'t Trajectory) -> Self {
        let digest = stable_digest(trajectory.trajectory_id.as_bytes());
        let start_ns = trajectory.start.as_deref().and_then(read_time).unwrap_or(MICROSECOND);
        TraceBuilder { trajectory, trace_id: format!("{digest:032x}"), start_ns, clock: start_ns, spans: Vec::new() }
    }

    fn build_spans(mut self) -> Vec<Json> {
        let trajectory = self.trajectory;
        let root = self.span_id(0);
        // The messages that are new in the request of the next reply. Real requests repeat the whole conversation, and
        // with it the square of its size.
        let form = ChatForm { shape: ChatShape::OpenAi, arguments: ArgumentForm::Text };
        let mut request = prepend_system_message(trajectory, form.messages_before(trajectory, 0));
        for reply in split_replies(&trajectory.steps) {
            let first = reply.first().map_or(1, |step| step.index);
            self.add_model_span(&root, &request, &form.reply_message(reply, true), first);
            for step in reply {
                self.add_tool_span(&root, step);
            }
            request = reply.iter().map(result_message).collect();
        }
        if let Some(answer) = &trajectory.final_answer {
            let number = trajectory.steps.last().map_or(1, |step| step.index + 1);
            self.add_model_span(&root, &request, &json!({"role": "assistant", "content": answer}), number);
        }
        let mut values = vec![("openinference.span.kind", json!("AGENT"))];
        values.extend(trajectory.query.as_ref().map(|query| ("input.value", json!(query))));
        values.extend(trajectory.final_answer.as_ref().map(|answer| ("output.value", json!(answer))));
        values.extend(trajectory.session_id.as_ref().map(|session| ("session.id", json!(session))));
        let status = if trajectory.is_error { json!({"code": 2}) } else { json!({}) };
        let end = trajectory.end.as_deref().and_then(read_time).unwrap_or(0).max(self.clock);
        let root_span = json!({
            "traceId": self.trace_id, "spanId": root, "name": trajectory.agent.as_deref().unwrap_or("agent"), "kind": 1,
            "startTimeUnixNano": self.start_ns.to_string(), "endTimeUnixNano": end.to_string(), "attributes": attributes(&values), "status": status,
        });
        self.spans.insert(0, root_span);
        self.spans
    }

    fn add_model_span(&mut self, parent: &str, request: &[Json], reply: &Json, number: u32) {
        let mut values = vec![("openinference.span.kind", json!("LLM"))];
        let mut lists = message_attributes("llm.input_messages", request);
        lists.extend(message_attributes("llm.output_messages", std::slice::from_ref(reply)));
        values.extend(self.trajectory.model.as_ref().map(|model| ("llm.model_name", json!(model))));
        if let Some(tools) = tool_schemas(self.trajectory) {
            let schema =
                |(number, tool): (usize, &Json)| (format!("llm.tools.{number}.tool.json_schema"), tool.to_string());
            lists.extend(tools.iter().enumerate().map(schema).map(|(key, text)| (key, json!(text))));
        }
        let all = values.iter().map(|(key, value)| (*key, value.clone()));
        let all: Vec<(&str, Json)> =
            all.chain(lists.iter().map(|(key, value)| (key.as_str(), value.clone()))).collect();
        self.push_span(parent, u64::from(number) * 2, "llm", &all, false);
    }

    fn add_tool_span(&mut self, parent: &str, step: &TrajectoryStep) {
        let mut values = vec![("openinference.span.kind", json!("TOOL")), ("tool.name", json!(step.tool))];
        values.extend(step.arguments_text().map(|text| ("input.value", json!(text))));
        values.extend(step.observation.as_ref().map(|text| ("output.value", json!(text))));
        values.extend(step.tool_call_id.as_ref().map(|id| ("tool_call.id", json!(id))));
        // Calls that ran at the same time must not begin before a span that was written.
        self.clock = step.start.as_deref().and_then(read_time).unwrap_or(0).max(self.clock);
        self.push_span(parent, u64::from(step.index) * 2 + 1, &step.tool, &values, step.is_error);
        if let (Some(end), Some(span)) = (step.end.as_deref().and_then(read_time), self.spans.last_mut()) {
            self.clock = end.max(self.clock);
            span["endTimeUnixNano"] = json!(self.clock.to_string());
        }
    }

    fn push_span(&mut self, parent: &str, number: u64, name: &str, values: &[(&str, Json)], is_error: bool) {
        let (start, end) = (self.clock, self.clock + MICROSECOND);
        self.clock = end;
        let status = if is_error { json!({"code": 2}) } else { json!({}) };
        self.spans.push(json!({
            "traceId": self.trace_id, "spanId": self.span_id(number), "parentSpanId": parent, "name": name, "kind": 1,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(), "attributes": attributes(values),
            "status": status,
        }));
    }

    fn span_id(&self, number: u64) -> String {
        let digest = stable_digest(format!("{}/{number}", self.trace_id).as_bytes()) as u64;
        format!("{:016x}", digest.max(1))
    }
}

fn prepend_system_message(trajectory: &Trajectory, mut messages: Vec<Json>) -> Vec<Json> {
    if let Some(system) = ChatForm::system_message(trajectory) {
        messages.insert(0, system);
    }
    messages
}

/// Messages as OpenInference flattens them.
fn message_attributes(prefix: &str, messages: &[Json]) -> Vec<(String, Json)> {
    let mut found = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        let key = |name: &str| format!("{prefix}.{number}.message.{name}");
        found.push((key("role"), message["role"].clone()));
        found.push((key("content"), message["content"].clone()));
        if message["tool_call_id"].is_string() {
            found.push((key("tool_call_id"), message["tool_call_id"].clone()));
        }
        for (at, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let key = |name: &str| format!("{prefix}.{number}.message.tool_calls.{at}.tool_call.{name}");
            found.push((key("id"), call["id"].clone()));
            found.push((key("function.name"), call["function"]["name"].clone()));
            found.push((key("function.arguments"), call["function"]["arguments"].clone()));
        }
    }
    found
}

fn attributes(values: &[(&str, Json)]) -> Vec<Json> {
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": text(value)}})).collect()
}
