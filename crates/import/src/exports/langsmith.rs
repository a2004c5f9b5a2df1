//! LangSmith runs, as its API, SDKs and exports write them: one object a run, flat with `parent_run_id` or
//! `dotted_order`, or with the children nested in `child_runs`.

use gradus_core::literal;
use gradus_core::span::{SpanId, TraceId};
use gradus_core::trajectory::RecordedAnnotation;
use serde_json::{Map, Value as Json};

use super::span_record::{
    ReportedUsage, SpanRecord, SpanRecordKind, count_under, decode_json_text, number_under, read_provider_usage,
    report_failure, span_id_from_text, take_field, text_under, trace_id_from_text,
};
use crate::import_sink::{ImportError, ImportSink};

/// The types of runs, by LangSmith's schema.
const RUN_TYPES: [&str; 8] = ["tool", "chain", "llm", "retriever", "embedding", "prompt", "parser", "agent"];

/// Fields that only runs of LangSmith have.
const DISTINCTIVE_FIELDS: [&str; 8] = [
    "dotted_order",
    "parent_run_id",
    "child_runs",
    "child_run_ids",
    "session_name",
    "reference_example_id",
    "app_path",
    "serialized",
];

/// Whether an object is a run.
pub(crate) fn matches_run(object: &Map<String, Json>) -> bool {
    let run_type = object.get("run_type").and_then(Json::as_str).unwrap_or_default();
    RUN_TYPES.contains(&run_type)
        && object.contains_key("inputs")
        && text_under(object, &["id", "run_id"]).is_some()
        && (DISTINCTIVE_FIELDS.iter().any(|key| object.contains_key(*key))
            || ["trace_id", "start_time"].iter().all(|key| object.contains_key(*key)))
}

/// Whether an object is a page of runs, as the API returns it, or a trace with its runs.
pub(crate) fn matches_run_list(object: &Map<String, Json>) -> bool {
    let first = object.get("runs").and_then(Json::as_array).and_then(|runs| runs.first());
    first.and_then(Json::as_object).is_some_and(matches_run)
}

/// Reads the runs of a page.
pub(crate) fn read_run_list(mut object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let Json::Array(runs) = take_field(&mut object, &["runs"]) else {
        return Err(ImportError::new("`runs` is no list"));
    };
    for run in runs {
        match run {
            Json::Object(run) if matches_run(&run) => {
                let read = read_run(run, sink);
                report_failure(read, sink);
            }
            _ => sink.report_bad_record("an element of `runs` is no LangSmith run"),
        }
    }
    Ok(())
}

/// Reads a run with all runs below it. Iterative, because the nesting can be as deep as JSON allows.
pub(crate) fn read_run(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut waiting: Vec<(Map<String, Json>, Option<RunIds>)> = vec![(object, None)];
    while let Some((mut run, above)) = waiting.pop() {
        let children = take_field(&mut run, &["child_runs"]);
        let Some(ids) = RunIds::from_run(&run, above.as_ref()) else {
            sink.report_bad_record("a LangSmith run without an id");
            continue;
        };
        add_run_span(run, &ids, sink);
        if let Json::Array(children) = children {
            for child in children.into_iter().rev() {
                match child {
                    Json::Object(child) => waiting.push((child, Some(ids))),
                    _ => sink.report_bad_record("an element of `child_runs` is no run"),
                }
            }
        }
    }
    Ok(())
}

/// The position of a run in its trace.
#[derive(Clone, Copy, Debug)]
struct RunIds {
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
}

impl RunIds {
    /// Reads trace and parent, from their fields or from `dotted_order`: `<time>Z<root id>.….<time>Z<run id>`. Nested
    /// runs need neither.
    fn from_run(run: &Map<String, Json>, above: Option<&RunIds>) -> Option<RunIds> {
        let id = text_under(run, &["id", "run_id"])?;
        let span = span_id_from_text(id)?;
        let order = text_under(run, &["dotted_order"]).unwrap_or_default();
        let mut path = order.rsplit('.').map(order_segment_id);
        path.next();
        let parent = text_under(run, &["parent_run_id"]).or(path.next().flatten()).and_then(span_id_from_text);
        let parent = parent.or(above.map(|above| above.span));
        let root = order.split('.').next().and_then(order_segment_id);
        let trace = text_under(run, &["trace_id"]).or(root).map(trace_id_from_text);
        // A root run has the id of its trace.
        let trace = trace.or(above.map(|above| above.trace)).unwrap_or_else(|| trace_id_from_text(id));
        Some(RunIds { trace, span, parent })
    }
}

/// Returns the id in a segment of a dotted order: what follows the time, which ends in `Z`.
fn order_segment_id(segment: &str) -> Option<&str> {
    segment.split_once('Z').map(|(_, id)| id).filter(|id| !id.is_empty())
}

fn add_run_span(mut run: Map<String, Json>, ids: &RunIds, sink: &mut dyn ImportSink) {
    let name = text_under(&run, &["name"]).unwrap_or_default().to_owned();
    let mut span = SpanRecord::new(ids.trace, ids.span, &name);
    span.set_parent(ids.parent);
    span.set_times(run.get("start_time"), run.get("end_time"));
    span.set_project(text_under(&run, &["session_name", "project_name"]));
    if let Some(error) = text_under(&run, &["error"]) {
        span.set_error(error);
    }
    let extra = decode_json_text(take_field(&mut run, &["extra"]));
    let metadata = extra.get("metadata").cloned().unwrap_or_default();
    // The keys by which LangSmith itself finds the thread of a run.
    for key in ["session_id", "conversation_id", "thread_id"] {
        if let Some(session) = metadata.get(key).and_then(Json::as_str) {
            span.set_text("session.id", session);
            break;
        }
    }
    if let Some(agent) = metadata.get("lc_agent_name").and_then(Json::as_str) {
        span.set_text("agent.name", agent);
    }
    let run_type = text_under(&run, &["run_type"]).unwrap_or_default().to_owned();
    let inputs = decode_json_text(take_field(&mut run, &["inputs"]));
    let outputs = decode_json_text(take_field(&mut run, &["outputs"]));
    match run_type.as_str() {
        "llm" => {
            span.set_kind(SpanRecordKind::Model);
            let parameters = extra.get("invocation_params").cloned().unwrap_or_default();
            let model = ["ls_model_name"].iter().find_map(|key| metadata.get(*key)?.as_str());
            let model = model.or_else(|| {
                let named = |record: &'_ Json| ["model", "model_name"].into_iter().find(|key| record[*key].is_string());
                named(&parameters).and_then(|key| parameters[key].as_str()).or_else(|| inputs.get("model")?.as_str())
            });
            span.set_text("llm.model_name", model.unwrap_or_default());
            let tools =
                [&parameters, &inputs].into_iter().find_map(|place| place.get("tools").filter(|t| t.is_array()));
            span.set_content("llm.tools", tools.cloned().unwrap_or_default());
            span.set_usage(read_run_usage(&Json::Object(run.clone()), &metadata, &outputs));
            span.set_model_content(unwrap_prompt(inputs), outputs);
        }
        "tool" => {
            span.set_kind(SpanRecordKind::Tool);
            span.set_tool_content(&name, unwrap_tool_inputs(inputs), unwrap_tool_outputs(outputs));
        }
        "agent" => {
            span.set_kind(SpanRecordKind::Agent);
            span.set_chain_content(inputs, outputs);
        }
        _ => {
            span.set_kind(SpanRecordKind::Chain);
            span.set_chain_content(inputs, outputs);
        }
    }
    span.add_to(sink);
    add_feedback(&run, ids, sink);
}

/// Reads the tokens of a model call. The fields of the run are the server's own count; runs that were never sent to a
/// server have what the model reported.
fn read_run_usage(run: &Json, metadata: &Json, outputs: &Json) -> ReportedUsage {
    let mut usage = ReportedUsage {
        prompt: count_under(run, &["prompt_tokens"]),
        completion: count_under(run, &["completion_tokens"]),
        cached_prompt: run.get("prompt_token_details").and_then(|details| count_under(details, &["cache_read"])),
        cost_usd: number_under(run, &["total_cost"]),
    };
    let generation = outputs.pointer("/generations/0/0/message").or_else(|| outputs.pointer("/generations/0/message"));
    let message = generation.map(|message| message.get("kwargs").unwrap_or(message));
    let reported = [
        message.and_then(|message| message.get("usage_metadata")),
        outputs.get("usage_metadata"),
        metadata.get("usage_metadata"),
        outputs.get("usage"),
        outputs.pointer("/llm_output/token_usage"),
        outputs.pointer("/llm_output/usage"),
    ];
    for place in reported.into_iter().flatten() {
        // LangChain's `usage_metadata` counts cached tokens within the input already.
        let read = read_provider_usage(place);
        usage.prompt = usage.prompt.filter(|count| *count > 0).or(read.prompt);
        usage.completion = usage.completion.filter(|count| *count > 0).or(read.completion);
        usage.cached_prompt = usage.cached_prompt.or(read.cached_prompt);
    }
    usage
}

/// Returns the prompt of a completion request: `{"prompts": ["…"]}`. Agents use batches of one.
fn unwrap_prompt(inputs: Json) -> Json {
    match inputs.get("prompts").and_then(Json::as_array).map(Vec::as_slice) {
        Some([Json::String(prompt)]) => Json::String(prompt.clone()),
        _ => inputs,
    }
}

/// Returns the arguments of a tool, which LangChain's tracer records as one text: `{"input": "{'city': 'Paris'}"}`.
fn unwrap_tool_inputs(inputs: Json) -> Json {
    match inputs {
        Json::Object(mut object) if object.len() == 1 => match object.remove("input") {
            Some(Json::String(text)) if text.trim_start().starts_with('{') => {
                match literal::parse_lenient_json(&text) {
                    Some(arguments) => arguments,
                    None => Json::String(text),
                }
            }
            Some(arguments @ Json::Object(_)) => arguments,
            Some(other) => {
                object.insert("input".to_owned(), other);
                Json::Object(object)
            }
            None => Json::Object(object),
        },
        other => other,
    }
}

/// Returns the output of a tool. Older tracers record the printed form of a tool message: `content='…' name='…'
/// tool_call_id='…'`.
fn unwrap_tool_outputs(outputs: Json) -> Json {
    let printed = outputs.get("output").and_then(Json::as_str).and_then(parse_printed_message);
    printed.unwrap_or(outputs)
}

/// Reads the printed form of LangChain's tool message. `None` for any other text.
fn parse_printed_message(text: &str) -> Option<Json> {
    let (content, rest) = literal::parse_prefix(text.strip_prefix("content=")?)?;
    let mut message = Map::new();
    message.insert("type".to_owned(), Json::from("tool"));
    message.insert("content".to_owned(), content);
    let mut rest = rest.trim_start();
    while let Some((key, value)) = rest.split_once('=') {
        let Some((value, behind)) = literal::parse_prefix(value) else { break };
        message.insert(key.trim().to_owned(), value);
        rest = behind.trim_start();
    }
    message.get("tool_call_id").is_some_and(Json::is_string).then_some(Json::Object(message))
}

/// Adds feedback. `feedback_stats` has the average of each kind, `feedback` the entries, if an export includes them.
fn add_feedback(run: &Map<String, Json>, ids: &RunIds, sink: &mut dyn ImportSink) {
    // Tables have it as JSON text.
    let stats = decode_json_text(run.get("feedback_stats").cloned().unwrap_or_default());
    for (name, stats) in stats.as_object().into_iter().flatten() {
        let values = stats.get("values").and_then(Json::as_object);
        let label = values.filter(|values| values.len() == 1).and_then(|values| values.keys().next().cloned());
        let score = number_under(stats, &["avg"]);
        if score.is_some() || label.is_some() {
            let annotation = RecordedAnnotation { name: name.clone(), label, score, ..RecordedAnnotation::default() };
            sink.add_annotation(ids.trace, Some(ids.span), annotation);
        }
    }
    for entry in run.get("feedback").and_then(Json::as_array).into_iter().flatten() {
        let Some(name) = entry.get("key").and_then(Json::as_str) else { continue };
        let score = match entry.get("score") {
            Some(Json::Bool(passed)) => Some(f64::from(u8::from(*passed))),
            _ => number_under(entry, &["score"]),
        };
        let label = entry.get("value").and_then(Json::as_str).map(str::to_owned);
        let source = entry.pointer("/feedback_source/type").and_then(Json::as_str).unwrap_or_default();
        let annotator = match source {
            "app" => Some("human".to_owned()),
            "model" => Some("model".to_owned()),
            _ => None,
        };
        let explanation = entry.get("comment").and_then(Json::as_str).map(str::to_owned);
        if score.is_some() || label.is_some() {
            let name = name.to_owned();
            let annotation = RecordedAnnotation { name, step_index: None, label, score, explanation, annotator };
            sink.add_annotation(ids.trace, Some(ids.span), annotation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn printed_tool_messages_are_read() {
        let printed = r#"content='It\'s 12 °C' name='get_weather' tool_call_id='call_1' status='error'"#;
        let message = parse_printed_message(printed).expect("a tool message");
        assert_eq!(message["content"], "It's 12 °C");
        assert_eq!(message["status"], "error");
        assert_eq!(parse_printed_message("content=5"), None);
        assert_eq!(parse_printed_message("the text"), None);
    }

    #[test]
    fn the_dotted_order_tells_parent_and_trace() {
        let order = "20260216T013518573255Zroot.20260216T013518600000Zmid.20260216T013519000000Zleaf";
        let Json::Object(run) = json!({"id": "leaf", "dotted_order": order}) else { panic!() };
        let ids = RunIds::from_run(&run, None).expect("ids");
        assert_eq!(ids.parent, span_id_from_text("mid"));
        assert_eq!(ids.trace, trace_id_from_text("root"));
        let Json::Object(run) = json!({"id": "root", "dotted_order": "20260216T013518573255Zroot"}) else { panic!() };
        assert_eq!(RunIds::from_run(&run, None).expect("ids").parent, None);
    }
}
