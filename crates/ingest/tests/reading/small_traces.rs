//! The smallest traces of an agent that looks for a ship, for tests of conventions.

#![allow(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use std::io::Write;

use gradus_core::trajectory::Trajectory;
use gradus_ingest::{FilesOnly, InputSource, RecordIntake, SourceLimits};
use serde_json::{Value as Json, json};

/// A span: trace, own number, number of the parent (0: none), name, start and end in seconds, attributes.
pub(crate) fn span(trace: u64, id: u64, parent: u64, name: &str, (start, end): (u64, u64), attributes: Json) -> Json {
    let value = |value: &Json| match value {
        Json::String(text) => json!({"stringValue": text}),
        Json::Number(number) => json!({"intValue": number.to_string()}),
        other => json!({"stringValue": other.to_string()}),
    };
    let attributes: Vec<Json> = attributes
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, content)| json!({"key": key, "value": value(content)}))
        .collect();
    let at = |seconds: u64| (1_790_000_000_000_000_000 + seconds * 1_000_000_000).to_string();
    json!({"traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": name, "attributes": attributes,
        "parentSpanId": if parent == 0 { String::new() } else { format!("{parent:016x}") },
        "startTimeUnixNano": at(start), "endTimeUnixNano": at(end)})
}

pub(crate) fn read(spans: &[Json]) -> Vec<Trajectory> {
    read_in_scope("", spans)
}

/// Reads spans that an instrumentation of this name made.
pub(crate) fn read_in_scope(scope: &str, spans: &[Json]) -> Vec<Trajectory> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let export = json!({"resourceSpans": [{"scopeSpans": [{"scope": {"name": scope}, "spans": spans}]}]});
    file.write_all(export.to_string().as_bytes()).unwrap();
    let mut found = Vec::new();
    let mut sink = |_, trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
    let source = InputSource::File { path: file.path().to_owned(), name: "input".to_owned() };
    gradus_ingest::read_input_source(&source, &FilesOnly, &mut intake).unwrap();
    intake.finish().unwrap();
    found
}

/// The only trajectory of a trace.
pub(crate) fn read_one(spans: &[Json]) -> Trajectory {
    let mut found = read(spans);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

/// Tool, thought and result of each step.
pub(crate) fn steps(trajectory: &Trajectory) -> Vec<(&str, Option<&str>, Option<&str>)> {
    trajectory
        .steps
        .iter()
        .map(|step| (step.tool.as_str(), step.thought.as_deref(), step.observation.as_deref()))
        .collect()
}

pub(crate) const FIND_SHIP: (&str, Option<&str>, Option<&str>) = ("find_ship", Some("I will look."), Some("berth 7"));

/// A model call by the GenAI conventions.
pub(crate) fn chat(trace: u64, id: u64, parent: u64, times: (u64, u64), input: Json, output: Json) -> Json {
    let attributes = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": input,
        "gen_ai.output.messages": output});
    span(trace, id, parent, "chat m", times, attributes)
}

pub(crate) fn agent() -> Json {
    span(1, 1, 0, "agent", (0, 9), json!({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}))
}

pub(crate) fn user() -> Json {
    json!({"role": "user", "parts": [{"type": "text", "content": "Where is the ship?"}]})
}

pub(crate) fn reply(text: Option<&str>, id: Option<&str>) -> Json {
    let mut parts: Vec<Json> = text.iter().map(|text| json!({"type": "text", "content": text})).collect();
    parts.push(json!({"type": "tool_call", "id": id, "name": "find_ship", "arguments": {"name": "Anna"}}));
    json!({"role": "assistant", "parts": parts})
}

pub(crate) fn result(id: Option<&str>) -> Json {
    json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": "berth 7"}]})
}

pub(crate) fn answer() -> Json {
    json!({"role": "assistant", "parts": [{"type": "text", "content": "At berth 7."}]})
}

pub(crate) fn assert_found(trajectory: &Trajectory) {
    assert_eq!(steps(trajectory), [FIND_SHIP], "{trajectory:#?}");
    assert_eq!(trajectory.final_answer.as_deref(), Some("At berth 7."), "{trajectory:#?}");
}
