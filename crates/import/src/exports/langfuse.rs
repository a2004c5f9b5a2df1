//! Langfuse: a trace with its observations, as the API, the SDKs and the download button write it, and observations by
//! themselves, as lists and tables have them. Names are in camel case (API) or in snake case (Python SDK).

use std::collections::HashMap;

use gradus_core::span::{SpanId, TraceId};
use gradus_core::trajectory::RecordedAnnotation;
use serde_json::{Map, Value as Json};

use super::langfuse_attributes::RecordedAttributes;
use super::span_record::{
    ReportedUsage, SpanRecord, SpanRecordKind, count_under, decode_json_text, number_under, report_failure,
    span_id_from_text, strip_span_name_prefix, take_field, text_under, trace_id_from_text,
};
use crate::import_sink::{ImportError, ImportSink};

/// The types of observations, by Langfuse's schema.
const OBSERVATION_TYPES: [&str; 10] =
    ["SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"];

/// Fields of an observation. Two of them prove it, in addition to its type.
const OBSERVATION_FIELDS: [&str; 16] = [
    "parentObservationId",
    "parent_observation_id",
    "statusMessage",
    "status_message",
    "level",
    "usageDetails",
    "usage_details",
    "modelParameters",
    "model_parameters",
    "completionStartTime",
    "completion_start_time",
    "costDetails",
    "cost_details",
    "promptId",
    "calculatedTotalCost",
    "startTime",
];

/// Whether an object is an observation.
pub(crate) fn matches_observation(object: &Map<String, Json>) -> bool {
    text_under(object, &["traceId", "trace_id"]).is_some() && looks_like_observation(object)
}

/// Whether an object is an observation. It need not repeat the id of its trace.
fn looks_like_observation(object: &Map<String, Json>) -> bool {
    let kind = object.get("type").and_then(Json::as_str).unwrap_or_default();
    OBSERVATION_TYPES.contains(&kind)
        && text_under(object, &["id"]).is_some()
        && OBSERVATION_FIELDS.iter().filter(|key| object.contains_key(**key)).count() >= 2
}

/// Whether an object is a trace with its observations in it: `{"id", "observations": [...]}` or, as the user interface
/// downloads it, `{"trace": {...}, "observations": [...]}`.
pub(crate) fn matches_trace(object: &Map<String, Json>) -> bool {
    let inner = object.get("trace").and_then(Json::as_object).unwrap_or(object);
    let is_first = |list: &Vec<Json>| list.first().and_then(Json::as_object).is_some_and(looks_like_observation);
    text_under(inner, &["id"]).is_some() && object.get("observations").and_then(Json::as_array).is_some_and(is_first)
}

/// Whether an object is a dump of several traces: `{"traces": [...], "observations": [...]}`.
pub(crate) fn matches_dump(object: &Map<String, Json>) -> bool {
    let is_first = |list: &Vec<Json>| list.first().and_then(Json::as_object).is_some_and(matches_observation);
    object.get("traces").is_some_and(Json::is_array)
        && object.get("observations").and_then(Json::as_array).is_some_and(is_first)
}

/// Reads a dump of several traces, each with its observations and scores.
pub(crate) fn read_dump(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut take_list = |key: &str| match object.remove(key) {
        Some(Json::Array(items)) => items,
        _ => Vec::new(),
    };
    let (traces, observations, scores) = (take_list("traces"), take_list("observations"), take_list("scores"));
    let mut parts: HashMap<String, SharedTraceFields> = HashMap::new();
    for trace in traces {
        let id = trace.get("id").and_then(Json::as_str).map(str::to_owned);
        match (trace, id) {
            (Json::Object(trace), Some(id)) => {
                parts.insert(id, add_trace_span(trace, sink)?);
            }
            _ => sink.report_bad_record("an element of `traces` is no Langfuse trace"),
        }
    }
    for observation in observations {
        match observation {
            Json::Object(observation) if matches_observation(&observation) => {
                let trace = text_under(&observation, &["traceId", "trace_id"]).unwrap_or_default().to_owned();
                let read = match parts.get(&trace) {
                    Some(part) => add_observation_span(observation, part, sink),
                    None => read_observation(observation, sink),
                };
                report_failure(read, sink);
            }
            _ => sink.report_bad_record("an element of `observations` is no Langfuse observation"),
        }
    }
    for score in &scores {
        let trace = score.get("traceId").or_else(|| score.get("trace_id")).and_then(Json::as_str).unwrap_or_default();
        add_score(score, trace_id_from_text(trace), sink);
    }
    Ok(())
}

/// Whether an object is a trace as lists have it: with the ids of its observations only, or with none.
pub(super) fn matches_bare_trace(object: &Map<String, Json>) -> bool {
    let list = object.get("observations").and_then(Json::as_array);
    let has_only_ids = list.is_some_and(|list| list.iter().all(Json::is_string));
    let marks = ["htmlPath", "html_path", "sessionId", "session_id", "userId", "user_id", "totalCost", "projectId"];
    has_only_ids
        && text_under(object, &["id"]).is_some()
        && object.contains_key("timestamp")
        && marks.iter().filter(|key| object.contains_key(**key)).count() >= 2
}

/// Reads one observation.
pub(crate) fn read_observation(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let trace = text_under(&object, &["traceId", "trace_id"]).map(trace_id_from_text).unwrap_or_default();
    add_observation_span(object, &SharedTraceFields { trace, ..SharedTraceFields::default() }, sink)
}

/// Reads a trace with its observations. The trace is the root span: it has the request and the answer.
pub(crate) fn read_trace(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let observations = take_field(&mut object, &["observations"]);
    let scores = take_field(&mut object, &["scores"]);
    let mut trace = match object.remove("trace") {
        Some(Json::Object(inner)) => inner,
        _ => object,
    };
    let scores = if scores.is_null() { take_field(&mut trace, &["scores"]) } else { scores };
    let part = add_trace_span(trace, sink)?;
    if let Json::Array(observations) = observations {
        for observation in observations {
            match observation {
                Json::Object(observation) if text_under(&observation, &["id"]).is_some() => {
                    let read = add_observation_span(observation, &part, sink);
                    report_failure(read, sink);
                }
                _ => sink.report_bad_record("an element of `observations` is no Langfuse observation"),
            }
        }
    }
    if let Json::Array(scores) = scores {
        for score in &scores {
            add_score(score, part.trace, sink);
        }
    }
    Ok(())
}

/// Adds the span of a trace itself. Returns what its observations share.
fn add_trace_span(mut trace: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<SharedTraceFields, ImportError> {
    let id = text_under(&trace, &["id"]).ok_or_else(|| ImportError::new("the trace has no id"))?.to_owned();
    let trace_id = trace_id_from_text(&id);
    // Observations may have the same id as their trace.
    let root_id = SpanId(gradus_core::stable_digest(format!("trace {id}").as_bytes()) as u64);
    let session = text_under(&trace, &["sessionId", "session_id"]).map(str::to_owned);
    let mut root = SpanRecord::new(trace_id, root_id, text_under(&trace, &["name"]).unwrap_or("trace"));
    root.set_kind(SpanRecordKind::Chain);
    root.set_times(trace.get("timestamp"), None);
    root.set_text("session.id", session.as_deref().unwrap_or_default());
    let input = decode_content(take_field(&mut trace, &["input"]));
    let output = decode_content(take_field(&mut trace, &["output"]));
    root.set_chain_content(input, output);
    root.add_to(sink);
    Ok(SharedTraceFields { trace: trace_id, root: Some(root_id), session })
}

/// Fields that an observation shares with the others of its trace.
#[derive(Debug, Default)]
struct SharedTraceFields {
    trace: TraceId,
    /// The span of the trace itself, if it is recorded.
    root: Option<SpanId>,
    session: Option<String>,
}

fn add_observation_span(
    mut record: Map<String, Json>,
    part: &SharedTraceFields,
    sink: &mut dyn ImportSink,
) -> Result<(), ImportError> {
    let id = text_under(&record, &["id"]).and_then(span_id_from_text);
    let id = id.ok_or_else(|| ImportError::new("an observation without an id"))?;
    let name = text_under(&record, &["name"]).unwrap_or_default().to_owned();
    let mut span = SpanRecord::new(part.trace, id, &name);
    let parent = text_under(&record, &["parentObservationId", "parent_observation_id"]).and_then(span_id_from_text);
    span.set_parent(parent.or(part.root));
    let start = take_field(&mut record, &["startTime", "start_time"]);
    let end = take_field(&mut record, &["endTime", "end_time"]);
    span.set_times(Some(&start), (!end.is_null()).then_some(&end));
    if record.get("level").is_some_and(|level| level == "ERROR") {
        span.set_error(text_under(&record, &["statusMessage", "status_message"]).unwrap_or_default());
    }
    let metadata = decode_json_text(take_field(&mut record, &["metadata"]));
    let session = part.session.as_deref().or_else(|| text_under(&record, &["sessionId", "session_id"]));
    let session = session.or_else(|| metadata.get("langfuse_session_id").and_then(Json::as_str));
    span.set_text("session.id", session.unwrap_or_default());
    let input = decode_content(take_field(&mut record, &["input"]));
    let output = decode_content(take_field(&mut record, &["output"]));
    let recorded = RecordedAttributes::from_metadata(metadata);
    let tool = recorded.text(&["gen_ai.tool.name", "tool.name"]).map(str::to_owned);
    if recorded.is_nameless_tool() && record.get("type").is_none_or(|kind| kind != "TOOL") {
        sink.report_bad_record(&format!("the span `{name}` is the run of a tool without the tool's name"));
    }
    match record.get("type").and_then(Json::as_str).unwrap_or_default() {
        "GENERATION" => {
            span.set_kind(SpanRecordKind::Model);
            span.set_text("llm.model_name", text_under(&record, &["model", "providedModelName"]).unwrap_or_default());
            let (input, tools) = split_offered_tools(input);
            span.set_content("llm.tools", tools);
            span.set_usage(read_observation_usage(&record));
            let input = if recorded.has_messages("input") { Json::Null } else { input };
            span.set_model_content(input, if recorded.has_messages("output") { Json::Null } else { output });
        }
        "TOOL" => {
            span.set_kind(SpanRecordKind::Tool);
            span.set_tool_content(tool.as_deref().unwrap_or(strip_span_name_prefix(&name)), input, output);
        }
        // Before Langfuse had a type for tools, their runs were plain spans.
        "SPAN" if !input.is_null() && (tool.is_some() || is_tool_message(&output)) => {
            span.set_kind(SpanRecordKind::Tool);
            span.set_tool_content(tool.as_deref().unwrap_or(&name), input, output);
        }
        "AGENT" => {
            span.set_kind(SpanRecordKind::Agent);
            span.set_text(
                "agent.name",
                recorded.text(&["gen_ai.agent.name", "agent_name"]).unwrap_or(strip_span_name_prefix(&name)),
            );
            span.set_chain_content(input, output);
        }
        _ => {
            span.set_kind(SpanRecordKind::Chain);
            span.set_chain_content(input, output);
        }
    }
    recorded.add_to(&mut span);
    span.add_to(sink);
    Ok(())
}

/// Decodes input or output of a trace or an observation. Integrations over OTLP write it as JSON text, sometimes
/// twice.
fn decode_content(content: Json) -> Json {
    let inner = match &content {
        Json::String(text) if text.starts_with('"') => serde_json::from_str::<String>(text).ok(),
        _ => None,
    };
    decode_json_text(inner.map_or(content, Json::String))
}

/// Whether a span returned LangChain's message of a tool, which only a run of a tool does.
fn is_tool_message(output: &Json) -> bool {
    let class = output.get("id").and_then(Json::as_array).and_then(|path| path.last()?.as_str());
    let is_plain = output.get("type").is_some_and(|kind| kind == "tool") && output.get("tool_call_id").is_some();
    is_plain || class == Some("ToolMessage")
}

/// Separates the available tools from the messages. Langfuse's LangChain handler appends each definition as a message
/// of the role `tool`, which is not a result.
fn split_offered_tools(input: Json) -> (Json, Json) {
    let is_definition = |message: &Json| {
        message.get("role").is_some_and(|role| role == "tool")
            && message.pointer("/content/type").is_some_and(|kind| kind == "function")
            && message.pointer("/content/function/name").is_some()
    };
    match input {
        Json::Array(items) if items.iter().any(is_definition) => {
            let (definitions, messages): (Vec<Json>, Vec<Json>) = items.into_iter().partition(is_definition);
            let definitions = definitions.into_iter().map(|mut message| message["content"].take()).collect();
            (Json::Array(messages), Json::Array(definitions))
        }
        Json::Object(object) if object.get("tools").is_some_and(Json::is_array) => {
            let tools = object.get("tools").cloned().unwrap_or_default();
            (Json::Object(object), tools)
        }
        other => (other, Json::Null),
    }
}

/// Reads tokens and cost of a generation. `usageDetails` has one entry for each kind of tokens, and `input` excludes
/// cached ones, so all kinds of input are added.
fn read_observation_usage(record: &Map<String, Json>) -> ReportedUsage {
    let field = |names: &[&str]| {
        let value = names.iter().find_map(|name| record.get(*name).filter(|value| !value.is_null())).cloned();
        decode_json_text(value.unwrap_or_default())
    };
    let details = field(&["usageDetails", "usage_details"]);
    let sum_of = |is_wanted: fn(&str) -> bool| {
        let entries = details.as_object()?.iter().filter(|(name, _)| is_wanted(name));
        entries.filter_map(|(_, count)| count.as_u64()).reduce(u64::saturating_add)
    };
    let whole = Json::Object(record.clone());
    let usage = field(&["usage"]);
    let older = |names: &[&str], flat: &[&str]| count_under(&usage, names).or_else(|| count_under(&whole, flat));
    ReportedUsage {
        prompt: sum_of(|name| name.contains("input")).or_else(|| {
            older(&["input", "promptTokens", "prompt_tokens"], &["promptTokens", "prompt_tokens", "inputUsage"])
        }),
        completion: sum_of(|name| name.contains("output")).or_else(|| {
            let flat = ["completionTokens", "completion_tokens", "outputUsage"];
            older(&["output", "completionTokens", "completion_tokens"], &flat)
        }),
        cached_prompt: sum_of(|name| name.contains("cache") && !name.contains("creation") && !name.contains("write")),
        cost_usd: number_under(&field(&["costDetails", "cost_details"]), &["total"]).or_else(|| {
            number_under(&whole, &["calculatedTotalCost", "calculated_total_cost", "totalCost", "total_cost"])
        }),
    }
}

/// Adds a score of a trace or of one of its observations.
fn add_score(score: &Json, trace: TraceId, sink: &mut dyn ImportSink) {
    let text = |names: &[&str]| score.as_object().and_then(|score| text_under(score, names));
    let Some(name) = text(&["name"]) else {
        return sink.report_bad_record("a Langfuse score without a name");
    };
    let value = match score.get("value") {
        Some(Json::Bool(passed)) => Some(f64::from(u8::from(*passed))),
        _ => number_under(score, &["value"]),
    };
    let label = text(&["stringValue", "string_value"]).or_else(|| text(&["value"]));
    let annotator = match text(&["source"]).unwrap_or_default() {
        "ANNOTATION" => Some("human".to_owned()),
        "EVAL" => Some("model".to_owned()),
        _ => None,
    };
    let annotation = RecordedAnnotation {
        name: name.to_owned(),
        step_index: None,
        label: label.map(str::to_owned),
        score: value,
        explanation: text(&["comment"]).map(str::to_owned),
        annotator,
    };
    let observation = text(&["observationId", "observation_id"]).and_then(span_id_from_text);
    sink.add_annotation(trace, observation, annotation);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn definitions_of_tools_are_no_results() {
        let definition = json!({"type": "function", "function": {"name": "search", "parameters": {}}});
        let input = json!([{"role": "user", "content": "hi"}, {"role": "tool", "content": definition}]);
        let (messages, tools) = split_offered_tools(input);
        assert_eq!(messages, json!([{"role": "user", "content": "hi"}]));
        assert_eq!(tools, json!([definition]));
    }

    #[test]
    fn all_kinds_of_input_are_the_prompt() {
        let record = json!({"usageDetails": {"input": 10, "input_cached_tokens": 90, "output": 5, "total": 105}});
        let Json::Object(record) = record else { panic!() };
        let usage = read_observation_usage(&record);
        assert_eq!((usage.prompt, usage.cached_prompt, usage.completion), (Some(100), Some(90), Some(5)));
        let Json::Object(record) = json!({"usage": {"input": 7, "output": 2, "unit": "TOKENS"}}) else { panic!() };
        let usage = read_observation_usage(&record);
        assert_eq!((usage.prompt, usage.completion), (Some(7), Some(2)));
    }
}
