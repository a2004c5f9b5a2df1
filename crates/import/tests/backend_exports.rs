//! Reads the fixtures of tracing backends, assembles their spans and compares the trajectories with the gold beside
//! each fixture. `GRADUS_READ_EXPORT=FILE cargo test -p gradus-import --test backend_exports print_export --
//! --nocapture` prints what a file gives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradus_core::assemble::TrajectoryAssembler;
use gradus_core::span::{Span, SpanEvent, SpanId, SpanStatus, TraceId};
use gradus_core::trajectory::{RecordedAnnotation, Trajectory};
use gradus_import::{DOCUMENT_FORMATS, ImportSink, ImportedTurn, SESSION_FORMATS, UNREADABLE_FORMATS, read_csv_table};
use serde_json::{Map, Value as Json, json};

/// Folders of fixtures that this test reads.
const FORMATS: [&str; 9] =
    ["langsmith", "langfuse", "mlflow", "braintrust", "openai-agents", "jaeger", "zipkin", "phoenix", "responses"];

#[derive(Default)]
struct SpanCollector {
    spans: Vec<Span<'static>>,
    turns: Vec<Trajectory>,
    annotations: Vec<(TraceId, Option<SpanId>, RecordedAnnotation)>,
    bad: Vec<String>,
}

impl ImportSink for SpanCollector {
    fn add_span(&mut self, span: &Span<'_>) {
        let own = |text: &Cow<'_, str>| Cow::Owned(text.to_string());
        let events = span.events.iter().map(|event| SpanEvent {
            name: own(&event.name),
            time_ns: event.time_ns,
            attributes: event.attributes.clone().into_owned(),
            body: event.body.clone().map(gradus_core::span::AttributeValue::into_owned),
        });
        self.spans.push(Span {
            name: own(&span.name),
            status: SpanStatus { code: span.status.code, message: own(&span.status.message) },
            attributes: span.attributes.clone().into_owned(),
            events: events.collect(),
            scope: own(&span.scope),
            resource: span.resource.clone(),
            ..*span
        });
    }

    fn add_annotation(&mut self, trace_id: TraceId, span_id: Option<SpanId>, annotation: RecordedAnnotation) {
        self.annotations.push((trace_id, span_id, annotation));
    }

    fn add_turn(&mut self, turn: ImportedTurn) {
        self.turns.push(turn.trajectory);
    }

    fn report_bad_record(&mut self, reason: &str) {
        self.bad.push(reason.to_owned());
    }
}

/// Reads a file as the reading pipeline does: a session, a table, or documents one by one.
fn read_export(path: &Path) -> SpanCollector {
    let mut sink = SpanCollector::default();
    #[cfg(feature = "parquet")]
    if path.extension().is_some_and(|extension| extension == "parquet") {
        let file = std::fs::File::open(path).expect("a readable file");
        if let Err(error) = gradus_import::read_parquet_table(file, &mut sink) {
            sink.bad.push(error.reason);
        }
        return sink;
    }
    let text = std::fs::read_to_string(path).expect("a readable file");
    if path.extension().is_some_and(|extension| extension == "csv") {
        if let Err(error) = read_csv_table(&mut text.as_bytes(), &mut sink) {
            sink.bad.push(error.reason);
        }
        return sink;
    }
    let records: Vec<Json> = match serde_json::from_str(&text) {
        Ok(Json::Array(items)) => items,
        Ok(object) => vec![object],
        Err(_) => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
    };
    let head = &records[..records.len().min(20)];
    if let Some(format) = SESSION_FORMATS.iter().find(|format| (format.matches)(head)) {
        let mut reader = (format.open)();
        records.iter().for_each(|record| reader.read_record(record.to_string().as_bytes(), &mut sink));
        reader.finish(&mut sink);
        return sink;
    }
    for record in records {
        let Json::Object(object) = record else { continue };
        match DOCUMENT_FORMATS.iter().find(|format| (format.matches)(&object)) {
            Some(format) => {
                if let Err(error) = (format.read)(object, &mut sink) {
                    sink.bad.push(format!("{}: {error}", format.name));
                }
            }
            None => sink.bad.push(format!("unknown: {:?}", object.keys().collect::<Vec<_>>())),
        }
    }
    sink
}

/// The trajectories of all traces, in order of time, with their annotations.
fn assemble_export(sink: &SpanCollector) -> Vec<Trajectory> {
    let mut traces: BTreeMap<TraceId, Vec<Span<'static>>> = BTreeMap::new();
    for span in &sink.spans {
        traces.entry(span.trace_id).or_default().push(span.clone());
    }
    let mut trajectories = sink.turns.clone();
    for (trace_id, spans) in traces {
        let mut output = TrajectoryAssembler::default().assemble(&spans).trajectories;
        let annotations = sink.annotations.iter().filter(|(trace, ..)| *trace == trace_id);
        if let Some(first) = output.first_mut() {
            first.annotations.extend(annotations.map(|(_, _, annotation)| annotation.clone()));
        }
        trajectories.extend(output);
    }
    trajectories.sort_by(|a, b| a.start.cmp(&b.start));
    trajectories
}

/// A trajectory in the form of the gold files.
fn gold_form(trajectory: &Trajectory) -> Json {
    let steps: Vec<Json> = trajectory
        .steps
        .iter()
        .map(|step| {
            json!({
                "thought": step.thought, "tool": step.tool, "arguments": step.arguments,
                "observation": step.observation, "is_error": step.is_error, "is_denied": step.is_denied,
            })
        })
        .collect();
    json!({
        "query": trajectory.query, "answer": trajectory.final_answer, "session_id": trajectory.session_id,
        "turn_index": trajectory.turn_index, "model": trajectory.model, "agent": trajectory.agent, "steps": steps,
        "tokens": {"prompt": trajectory.tokens.prompt, "completion": trajectory.tokens.completion},
        "cost_usd": trajectory.cost_usd, "annotations": trajectory.annotations,
    })
}

/// What differs from the gold, key by key. Keys that the gold does not have are not compared.
fn differences(gold: &Map<String, Json>, read: &Json) -> Vec<String> {
    let mut found = Vec::new();
    for (key, expected) in gold.iter().filter(|(key, _)| *key != "parent" && *key != "turn_index") {
        let value = &read[key.as_str()];
        let same = match (expected.as_f64(), value.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            _ => expected == value,
        };
        if !same {
            found.push(format!("{key}: expected {expected}, read {value}"));
        }
    }
    found
}

#[test]
fn fixtures_of_backends_are_read_exactly() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/imports");
    let (mut failures, mut count) = (Vec::new(), 0);
    for format in FORMATS {
        let Ok(folder) = std::fs::read_dir(root.join(format)) else { continue };
        for path in folder.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let gold_path = path.with_extension("gold.json");
            if path.to_string_lossy().ends_with(".gold.json") || !gold_path.exists() {
                continue;
            }
            count += 1;
            let gold = std::fs::read_to_string(&gold_path).expect("a gold file");
            let gold: Vec<Map<String, Json>> = serde_json::from_str(&gold).expect("a list of trajectories");
            let sink = read_export(&path);
            let trajectories = assemble_export(&sink);
            let name = path.display();
            failures.extend(sink.bad.iter().map(|reason| format!("{name}: {reason}")));
            if trajectories.len() != gold.len() {
                failures.push(format!("{name}: {} trajectories, expected {}", trajectories.len(), gold.len()));
            }
            for (index, (gold, read)) in gold.iter().zip(&trajectories).enumerate() {
                let found = differences(gold, &gold_form(read));
                failures.extend(found.into_iter().map(|what| format!("{name}[{index}] {what}")));
            }
        }
    }
    assert!(failures.is_empty(), "of {count} fixtures:\n{}", failures.join("\n"));
}

/// The paths of all values in a JSON value, as JSON pointers.
fn list_pointers(value: &Json, path: &str, pointers: &mut Vec<String>) {
    pointers.push(path.to_owned());
    match value {
        Json::Object(object) => object.iter().for_each(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            list_pointers(value, &format!("{path}/{key}"), pointers);
        }),
        Json::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| list_pointers(item, &format!("{path}/{at}"), pointers))
        }
        _ => {}
    }
}

/// Every value of every fixture is replaced by values of other types. Readers may report that; they may not panic.
#[test]
fn values_of_wrong_types_do_no_harm() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/imports");
    let deep = (0..100).fold(json!("end"), |inner, _| json!([inner]));
    let hostile = [json!(null), json!(-1e308), json!("0"), json!({"": [[]]}), deep];
    let mut count = 0;
    for format in FORMATS {
        let Ok(folder) = std::fs::read_dir(root.join(format)) else { continue };
        for path in folder.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if path.to_string_lossy().ends_with(".gold.json") || path.extension().is_some_and(|end| end == "csv") {
                continue;
            }
            let records: Vec<Json> = match serde_json::from_str(&text) {
                Ok(Json::Array(items)) => items,
                Ok(object) => vec![object],
                Err(_) => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            };
            for record in records {
                let mut pointers = Vec::new();
                list_pointers(&record, "", &mut pointers);
                for pointer in pointers.iter().filter(|pointer| !pointer.is_empty()) {
                    let mut changed = record.clone();
                    for value in &hostile {
                        if let Some(place) = changed.pointer_mut(pointer) {
                            *place = value.clone();
                        }
                        read_any_way(&changed);
                        count += 1;
                    }
                }
            }
        }
    }
    assert!(count > 10_000, "the fixtures are not there: {count}");
}

/// Reads a record as a document and as the record of each session format.
fn read_any_way(record: &Json) {
    let mut sink = SpanCollector::default();
    if let Json::Object(object) = record {
        for format in DOCUMENT_FORMATS.iter().filter(|format| (format.matches)(object)) {
            (format.read)(object.clone(), &mut sink).ok();
        }
    }
    let records = std::slice::from_ref(record);
    for format in SESSION_FORMATS.iter().filter(|format| (format.matches)(records)) {
        let mut reader = (format.open)();
        reader.read_record(record.to_string().as_bytes(), &mut sink);
        reader.finish(&mut sink);
    }
}

/// A record is of one format only, whatever the order of the table is.
#[test]
fn one_format_matches_each_record() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/imports");
    for format in FORMATS {
        let Ok(folder) = std::fs::read_dir(root.join(format)) else { continue };
        for path in folder.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if path.to_string_lossy().ends_with(".gold.json") || format == "responses" {
                continue;
            }
            let records: Vec<Json> = match serde_json::from_str(&text) {
                Ok(Json::Array(items)) => items,
                Ok(object) => vec![object],
                Err(_) => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            };
            for object in records.iter().filter_map(Json::as_object) {
                let names = DOCUMENT_FORMATS.iter().filter(|format| (format.matches)(object)).map(|format| format.name);
                let names: Vec<&str> = names.collect();
                assert_eq!(names.len(), 1, "{}: {names:?}", path.display());
                let unreadable = UNREADABLE_FORMATS.iter().find(|format| (format.matches)(object));
                assert!(unreadable.is_none(), "{}: {unreadable:?}", path.display());
            }
        }
    }
}

/// Runs that are each other's parents.
#[test]
fn cycles_of_parents_end() {
    let run = |id: &str, parent: &str| {
        let run = json!({
            "id": id, "trace_id": "t", "parent_run_id": parent, "run_type": "tool", "name": "look", "inputs": {"a": 1},
            "outputs": {"output": "b"}, "start_time": "2026-01-01T00:00:00Z",
        });
        run.as_object().cloned().unwrap_or_default()
    };
    let mut sink = SpanCollector::default();
    for (id, parent) in [("a", "b"), ("b", "a"), ("c", "c"), ("d", "nowhere")] {
        let object = run(id, parent);
        let format = DOCUMENT_FORMATS.iter().find(|format| (format.matches)(&object)).expect("a run");
        (format.read)(object, &mut sink).expect("a readable run");
    }
    assert_eq!(sink.spans.len(), 4);
    let steps: usize = assemble_export(&sink).iter().map(|trajectory| trajectory.steps.len()).sum();
    assert!(steps <= 4);
}
