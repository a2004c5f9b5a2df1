//! MLflow traces: `info` and `data` with spans, in the schemas of versions 2 and 3, and single spans. All attributes
//! are JSON-encoded texts.

use std::borrow::Cow;
use std::collections::HashSet;

use gradus_core::span::{AttributeList, AttributeValue, SpanEvent, SpanId, TraceId};
use gradus_core::trajectory::RecordedAnnotation;
use serde_json::{Map, Value as Json};

use super::span_record::{
    ReportedUsage, SpanRecord, SpanRecordKind, count_under, number_under, read_provider_usage, read_time_ns,
    span_id_from_text, take_field, text_under, trace_id_from_text,
};
use crate::base64_text::decode_base64_id;
use crate::import_sink::{ImportError, ImportSink};

/// Attributes that only spans of MLflow have.
const MLFLOW_ATTRIBUTES: [&str; 4] =
    ["mlflow.traceRequestId", "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"];

/// Whether an object is a span of MLflow.
pub(crate) fn matches_span(object: &Map<String, Json>) -> bool {
    let attributes = object.get("attributes").and_then(Json::as_object);
    let has_id = object.contains_key("span_id") || object.contains_key("context");
    has_id && attributes.is_some_and(|attributes| MLFLOW_ATTRIBUTES.iter().any(|key| attributes.contains_key(*key)))
}

/// Whether an object is a trace: `{"info": {...}, "data": {"spans": [...]}}`.
pub(crate) fn matches_trace(object: &Map<String, Json>) -> bool {
    let Some(info) = object.get("info").and_then(Json::as_object) else { return false };
    let spans = object.get("data").and_then(|data| data.get("spans")).and_then(Json::as_array);
    let marks = [
        "trace_id",
        "request_id",
        "experiment_id",
        "trace_location",
        "trace_metadata",
        "request_metadata",
        "execution_time_ms",
        "execution_duration_ms",
    ];
    spans.is_some() && marks.iter().filter(|key| info.contains_key(**key)).count() >= 2
}

/// Whether an object is the data of a trace, as artifact stores have it in `traces.json`.
pub(crate) fn matches_trace_data(object: &Map<String, Json>) -> bool {
    let first = object.get("spans").and_then(Json::as_array).and_then(|spans| spans.first());
    first.and_then(Json::as_object).is_some_and(matches_span)
}

/// Reads the data of a trace without its info.
pub(crate) fn read_trace_data(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    read_trace_parts(&Json::Null, Json::Object(object), sink)
}

/// Reads a trace with its spans and its assessments.
pub(crate) fn read_trace(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let info = take_field(&mut object, &["info"]);
    read_trace_parts(&info, take_field(&mut object, &["data"]), sink)
}

fn read_trace_parts(info: &Json, mut data: Json, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let Some(Json::Array(spans)) = data.get_mut("spans").map(Json::take) else {
        return Err(ImportError::new("`data.spans` is no list"));
    };
    let metadata = info.get("trace_metadata").or_else(|| info.get("request_metadata")).unwrap_or(&Json::Null);
    let session = metadata.get("mlflow.trace.session").and_then(Json::as_str);
    let mut trace_id = None;
    let repeated = find_repeated_names(&spans);
    for span in spans {
        match span {
            Json::Object(mut span) => {
                if let Some(stem) = span_name(&span).and_then(|name| repeated_stem(name, &repeated)) {
                    let stem = Json::from(stem);
                    span.insert("name".to_owned(), stem);
                }
                match add_mlflow_span(span, session, sink) {
                    Ok(read) => drop(trace_id.get_or_insert(read)),
                    Err(error) => sink.report_bad_record(&error.reason),
                }
            }
            _ => sink.report_bad_record("an element of `data.spans` is no span"),
        }
    }
    let Some(trace_id) = trace_id else {
        return Err(ImportError::new("an MLflow trace without spans: its content was not exported"));
    };
    for assessment in info.get("assessments").and_then(Json::as_array).into_iter().flatten() {
        add_assessment(assessment, trace_id, sink);
    }
    Ok(())
}

/// Reads one span. A number that MLflow added to its name cannot be distinguished from the name itself.
pub(crate) fn read_span(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    add_mlflow_span(object, None, sink).map(drop)
}

/// Adds a span. Returns the id of its trace.
fn add_mlflow_span(
    mut record: Map<String, Json>,
    session: Option<&str>,
    sink: &mut dyn ImportSink,
) -> Result<TraceId, ImportError> {
    let ids = SpanIds::from_record(&record).ok_or_else(|| ImportError::new("an MLflow span without ids"))?;
    let name = text_under(&record, &["name"]).unwrap_or_default().to_owned();
    let mut span = SpanRecord::new(ids.trace, ids.span, &name);
    span.set_parent(ids.parent);
    let start = take_field(&mut record, &["start_time_unix_nano", "start_time", "start_time_ns"]);
    let end = take_field(&mut record, &["end_time_unix_nano", "end_time", "end_time_ns"]);
    span.set_times(Some(&start), Some(&end));
    set_status(&record, &mut span);
    let mut attributes = match record.remove("attributes") {
        Some(Json::Object(attributes)) => attributes,
        _ => Map::new(),
    };
    let kind = text_attribute(&attributes, "mlflow.spanType").unwrap_or_default();
    let input = take_attribute(&mut attributes, "mlflow.spanInputs");
    let output = take_attribute(&mut attributes, "mlflow.spanOutputs");
    if ids.parent.is_none() {
        span.set_text("session.id", session.unwrap_or_default());
    }
    match kind.as_str() {
        "LLM" | "CHAT_MODEL" => {
            span.set_kind(SpanRecordKind::Model);
            set_model_call(&mut attributes, input, output, &mut span);
        }
        "TOOL" => {
            span.set_kind(SpanRecordKind::Tool);
            span.set_tool_content(&name, unwrap_tool_input(input), output);
        }
        "AGENT" => {
            span.set_kind(SpanRecordKind::Agent);
            span.set_chain_content(input, output);
        }
        _ => {
            span.set_kind(SpanRecordKind::Chain);
            span.set_chain_content(input, output);
        }
    }
    // Spans that came over OTLP keep the attributes of their own convention.
    for (key, value) in attributes {
        const CONVENTIONS: [&str; 6] = ["gen_ai.", "llm.", "tool.", "ai.", "traceloop.", "agent."];
        if CONVENTIONS.iter().any(|prefix| key.starts_with(prefix)) {
            span.push_attribute(Cow::Owned(key), decode_attribute(value));
        }
    }
    add_events(&record, &mut span);
    span.add_to(sink);
    Ok(ids.trace)
}

fn span_name(record: &Map<String, Json>) -> Option<&str> {
    record.get("name")?.as_str()
}

/// Finds the names that MLflow numbered in all spans of a trace: `get_weather_1`, `get_weather_2`. Newer versions do
/// not change names, so a number counts as added only if there are a first and a second one and none without a
/// number.
fn find_repeated_names(spans: &[Json]) -> HashSet<String> {
    let names: HashSet<&str> = spans.iter().filter_map(|span| span_name(span.as_object()?)).collect();
    let stems = names.iter().filter_map(|name| name.strip_suffix("_1"));
    let is_numbered = |stem: &&str| !names.contains(*stem) && names.contains(format!("{stem}_2").as_str());
    stems.filter(is_numbered).map(str::to_owned).collect()
}

/// Returns the name without the number that MLflow added; `None` if it added none.
fn repeated_stem(name: &str, repeated: &HashSet<String>) -> Option<String> {
    let (stem, number) = name.rsplit_once('_')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && repeated.contains(stem)).then(|| stem.to_owned())
}

/// Returns the arguments of a tool. A tool of LangChain has one printed dictionary; a decorated function has them by
/// name.
fn unwrap_tool_input(input: Json) -> Json {
    match input {
        Json::Object(mut object) if object.len() == 1 && object.get("kwargs").is_some_and(Json::is_object) => {
            object.remove("kwargs").unwrap_or_default()
        }
        other => other,
    }
}

/// Sets the content of a model call. `mlflow.chat.messages` of MLflow 2 has request and reply in one list.
fn set_model_call(attributes: &mut Map<String, Json>, input: Json, output: Json, span: &mut SpanRecord) {
    let model = text_attribute(attributes, "mlflow.llm.model")
        .or_else(|| input.get("model").and_then(Json::as_str).map(str::to_owned))
        .or_else(|| text_attribute(attributes, "model"))
        .or_else(|| output.get("model").and_then(Json::as_str).map(str::to_owned));
    span.set_text("llm.model_name", model.as_deref().unwrap_or_default());
    let tools = take_attribute(attributes, "mlflow.chat.tools");
    let tools = if tools.is_array() { tools } else { input.get("tools").cloned().unwrap_or_default() };
    span.set_content("llm.tools", tools);
    let usage = take_attribute(attributes, "mlflow.chat.tokenUsage");
    let cost = take_attribute(attributes, "mlflow.llm.cost");
    let mut reported = match usage.is_object() {
        true => read_token_usage(&usage),
        false => output.get("usage").map(read_provider_usage).unwrap_or_default(),
    };
    reported.cost_usd = number_under(&cost, &["total_cost"]);
    span.set_usage(reported);
    let has_messages = |content: &Json| content.is_object() || content.is_array();
    match take_attribute(attributes, "mlflow.chat.messages") {
        Json::Array(mut messages) if !has_messages(&input) || !has_messages(&output) => {
            let is_reply = |message: &Json| message.get("role").is_some_and(|role| role == "assistant");
            let reply = messages.pop_if(|last| is_reply(last)).unwrap_or_default();
            span.set_model_content(Json::Array(messages), if reply.is_null() { output } else { reply });
        }
        _ => span.set_model_content(input, output),
    }
}

/// Reads token counts, which MLflow normalises for all providers: cached tokens are part of the input.
fn read_token_usage(usage: &Json) -> ReportedUsage {
    ReportedUsage {
        prompt: count_under(usage, &["input_tokens"]),
        completion: count_under(usage, &["output_tokens"]),
        cached_prompt: count_under(usage, &["cache_read_input_tokens"]),
        cost_usd: None,
    }
}

/// Removes an attribute and decodes it. A text that is not JSON is itself the value.
fn take_attribute(attributes: &mut Map<String, Json>, key: &str) -> Json {
    match attributes.remove(key) {
        Some(Json::String(text)) => gradus_core::bounded_json::parse_bounded_json(&text).unwrap_or(Json::String(text)),
        Some(other) => other,
        None => Json::Null,
    }
}

/// Decodes an attribute of another convention. Only texts and numbers were encoded by MLflow: the conventions
/// themselves have lists and objects as JSON text.
fn decode_attribute(value: Json) -> AttributeValue<'static> {
    match value {
        Json::String(text) => match serde_json::from_str::<Json>(&text) {
            Ok(decoded @ (Json::String(_) | Json::Number(_) | Json::Bool(_))) => AttributeValue::from_json(decoded),
            _ => AttributeValue::Str(Cow::Owned(text)),
        },
        other => AttributeValue::from_json(other),
    }
}

/// Returns the text of an attribute, decoded.
fn text_attribute(attributes: &Map<String, Json>, key: &str) -> Option<String> {
    let text = attributes.get(key)?.as_str()?;
    let decoded = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
    (!decoded.is_empty()).then_some(decoded)
}

/// The ids of a span: hexadecimal in `context` (version 2), Base64 or `tr-` with hexadecimal digits (version 3).
struct SpanIds {
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
}

impl SpanIds {
    fn from_record(record: &Map<String, Json>) -> Option<SpanIds> {
        let context = record.get("context").and_then(Json::as_object).unwrap_or(record);
        let trace = text_under(context, &["trace_id", "request_id"])?;
        let span = read_span_id(text_under(context, &["span_id"])?)?;
        let parent = text_under(record, &["parent_span_id", "parent_id"]).and_then(read_span_id);
        Some(SpanIds { trace: read_trace_id(trace), span, parent })
    }
}

fn read_trace_id(text: &str) -> TraceId {
    // `trace:/<location>/<hex>` is the form of version 4.
    let hex = text.rsplit('/').next().unwrap_or(text);
    let hex = hex.strip_prefix("tr-").or_else(|| hex.strip_prefix("0x")).unwrap_or(hex);
    match decode_base64_id::<16>(text) {
        Some(bytes) => TraceId(u128::from_be_bytes(bytes)),
        None => trace_id_from_text(hex),
    }
}

fn read_span_id(text: &str) -> Option<SpanId> {
    match decode_base64_id::<8>(text) {
        Some(bytes) => SpanId(u64::from_be_bytes(bytes)).non_zero(),
        None => span_id_from_text(text.strip_prefix("0x").unwrap_or(text)),
    }
}

/// Sets the status: `status` with `code` (version 3), or `status_code` (version 2).
fn set_status(record: &Map<String, Json>, span: &mut SpanRecord) {
    let status = record.get("status").and_then(Json::as_object);
    let code = status.and_then(|status| text_under(status, &["code"])).or_else(|| text_under(record, &["status_code"]));
    if code.is_some_and(|code| code.ends_with("ERROR")) {
        let message = status.and_then(|status| text_under(status, &["message"]));
        span.set_error(message.or_else(|| text_under(record, &["status_message"])).unwrap_or_default());
    }
}

fn add_events(record: &Map<String, Json>, span: &mut SpanRecord) {
    for event in record.get("events").and_then(Json::as_array).into_iter().flatten() {
        let time = event.get("time_unix_nano").or_else(|| event.get("timestamp"));
        let attributes = event.get("attributes").and_then(Json::as_object).into_iter().flatten();
        let attributes =
            attributes.map(|(key, value)| (Cow::Owned(key.clone()), AttributeValue::from_json(value.clone())));
        span.add_event(SpanEvent {
            name: Cow::Owned(event.get("name").and_then(Json::as_str).unwrap_or_default().to_owned()),
            time_ns: time.map_or(0, read_time_ns),
            attributes: AttributeList(attributes.collect()),
            body: None,
        });
    }
}

/// Adds feedback of people, code or judges. Expectations are not verdicts on the run and are skipped.
fn add_assessment(assessment: &Json, trace: TraceId, sink: &mut dyn ImportSink) {
    let text = |key: &str| assessment.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
    if assessment.get("expectation").is_some() && assessment.get("feedback").is_none() {
        return;
    }
    let Some(name) = text("assessment_name").or_else(|| text("name")) else {
        return sink.report_bad_record("an MLflow assessment without a name");
    };
    let feedback = assessment.get("feedback").unwrap_or(&Json::Null);
    let (score, label) = match feedback.get("value") {
        Some(Json::Bool(passed)) => (Some(f64::from(u8::from(*passed))), None),
        Some(Json::Number(number)) => (number.as_f64(), None),
        Some(Json::String(label)) => (None, Some(label.clone())),
        _ => (None, None),
    };
    let annotator = match assessment.pointer("/source/source_type").and_then(Json::as_str).unwrap_or_default() {
        "HUMAN" => Some("human".to_owned()),
        "LLM_JUDGE" | "AI_JUDGE" => Some("model".to_owned()),
        "CODE" => Some("code".to_owned()),
        _ => None,
    };
    let annotation = RecordedAnnotation {
        name: name.to_owned(),
        step_index: None,
        label,
        score,
        explanation: text("rationale").map(str::to_owned),
        annotator,
    };
    if annotation.score.is_some() || annotation.label.is_some() {
        sink.add_annotation(trace, text("span_id").and_then(read_span_id), annotation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_of_all_versions_are_the_same() {
        let id = TraceId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(read_trace_id("ASNFZ4mrze8BI0VniavN7w=="), id);
        assert_eq!(read_trace_id("tr-0123456789abcdef0123456789abcdef"), id);
        assert_eq!(read_trace_id("0x123456789abcdef0123456789abcdef"), id);
        assert_eq!(read_span_id("ASNFZ4mrze8="), Some(SpanId(0x0123_4567_89ab_cdef)));
        assert_eq!(read_span_id("0x123456789abcdef"), Some(SpanId(0x0123_4567_89ab_cdef)));
        assert_eq!(read_span_id(""), None);
    }

    #[test]
    fn the_number_of_a_repeated_name_is_not_part_of_the_tool() {
        let spans = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let repeated = find_repeated_names(&spans(&["get_weather_1", "get_weather_2", "search_1", "lookup_2"]));
        assert_eq!(repeated_stem("get_weather_2", &repeated).as_deref(), Some("get_weather"));
        assert_eq!(repeated_stem("search_1", &repeated), None);
        assert_eq!(repeated_stem("lookup_2", &repeated), None);
    }
}
