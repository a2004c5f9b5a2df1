//! Outcomes over OTLP: what a backend gets, and what it may say to it.

use std::sync::{Arc, Mutex};

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;
use serde_json::json;

use crate::lab::{FOUR_EVALUATORS, Lab, Ran, span_id, traces_of};

type Received = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

fn backend(answer: impl Fn(&Incoming<'_>) -> Answer + Send + Sync + 'static) -> (Endpoint, Received) {
    let received = Received::default();
    let shared = Arc::clone(&received);
    let endpoint = Endpoint::start(Arc::new(move |incoming: &Incoming<'_>| {
        shared.lock().unwrap().push((incoming.what().to_owned(), incoming.body.to_vec()));
        answer(incoming)
    }));
    (endpoint.unwrap(), received)
}

/// Two trajectories of one step each: eight outcomes.
fn grade(lab: &Lab, backend: &Endpoint) -> Ran {
    grade_with(lab, backend, &FOUR_EVALUATORS)
}

fn grade_with(lab: &Lab, backend: &Endpoint, more: &[&str]) -> Ran {
    lab.write("spans.json", &json!({"data": traces_of(2)}).to_string());
    let url = backend.origin();
    let arguments = ["eval", "spans.json", "--judge", "offline", "--jsonl", "out.jsonl", "--log-to-otlp", &url];
    lab.run(&[arguments.as_slice(), more].concat())
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|pair| pair.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::DoubleValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn verdicts_travel_as_linked_spans_and_as_events() {
    let (backend, received) = backend(|_| Answer::ok(String::new()));
    let lab = Lab::new();
    // The whole default set: nine outcomes of each trajectory.
    grade_with(&lab, &backend, &[]).exits_with(0).says("gradus: 18 outcomes were sent to http://127.0.0.1:");
    let first = std::mem::take(&mut *received.lock().unwrap());
    let kinds: Vec<&str> = first.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(kinds, ["POST /v1/traces", "POST /v1/traces", "POST /v1/logs"], "the first one is a greeting");
    let request = ExportTraceServiceRequest::decode(first[1].1.as_slice()).unwrap();
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.len(), 18);
    for span in spans {
        assert_eq!(text(&span.attributes, "openinference.span.kind").as_deref(), Some("EVALUATOR"));
        assert_eq!((span.links.len(), span.trace_id.len(), span.span_id.len()), (1, 16, 8));
        assert_ne!(span.trace_id, span.links[0].trace_id);
    }
    let name = |span: &opentelemetry_proto::tonic::trace::v1::Span| {
        text(&span.attributes, "evaluations.0.evaluation.name").unwrap()
    };
    let whole = spans.iter().find(|span| name(span).contains("Sequence")).unwrap();
    let target: String = whole.links[0].span_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(target == span_id(0, 0) || target == span_id(1, 0), "{target}");
    let outcome = std::fs::read_to_string(lab.path("out.jsonl")).unwrap();
    let outcomes: Vec<serde_json::Value> = outcome.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let labels = |key: &str, all: Vec<&[KeyValue]>| {
        let mut labels: Vec<String> = all.into_iter().filter_map(|attributes| text(attributes, key)).collect();
        labels.sort();
        labels
    };
    let mut wanted: Vec<String> =
        outcomes.iter().filter_map(|line| line["label"].as_str().map(str::to_owned)).collect();
    wanted.sort();
    assert_eq!(wanted, ["answered", "answered", "optimal", "optimal"]);
    let of_spans = spans.iter().map(|span| span.attributes.as_slice()).collect();
    assert_eq!(labels("evaluations.0.evaluation.label", of_spans), wanted);
    let logs = ExportLogsServiceRequest::decode(first[2].1.as_slice()).unwrap();
    let logs = &logs.resource_logs[0].scope_logs[0].log_records;
    assert_eq!(logs.len(), 18);
    assert!(logs.iter().all(|log| log.event_name == "gen_ai.evaluation.result"));
    let of_logs = logs.iter().map(|log| log.attributes.as_slice()).collect();
    assert_eq!(labels("gen_ai.evaluation.score.label", of_logs), wanted);
    let linked: Vec<_> = spans.iter().map(|span| (&span.links[0].trace_id, &span.links[0].span_id)).collect();
    let named: Vec<_> = logs.iter().map(|log| (&log.trace_id, &log.span_id)).collect();
    assert_eq!(linked, named);
    // An abstention has its reason, and neither label nor score.
    let first_query = outcomes.iter().find(|line| line["evaluator"] == "query_to_thought").unwrap();
    assert_eq!(first_query["outcome"], "abstained");
    let reason = first_query["reason"].as_str().unwrap();
    let abstained: Vec<_> = spans.iter().filter(|span| name(span) == "Query to thought").collect();
    assert_eq!(abstained.len(), 2);
    for span in abstained {
        let value = |key: &str| text(&span.attributes, &format!("evaluations.0.evaluation.{key}"));
        assert_eq!((value("label"), value("score"), value("explanation").as_deref()), (None, None, Some(reason)));
    }
    let abstained: Vec<_> = logs
        .iter()
        .filter(|log| text(&log.attributes, "gen_ai.evaluation.name").unwrap() == "Query to thought")
        .collect();
    assert_eq!(abstained.len(), 2);
    for log in abstained {
        let value = |key: &str| text(&log.attributes, &format!("gen_ai.evaluation.{key}"));
        assert_eq!((value("score.label"), value("score.value")), (None, None));
        assert_eq!(value("explanation").as_deref(), Some(reason));
        assert_eq!(text(&log.attributes, "gradus.outcome").as_deref(), Some("abstained"));
    }
    // The same run again is the same bytes, so nothing becomes more of it.
    lab.run(&["report", "--log-to-otlp", &backend.origin()]).exits_with(0);
    assert_eq!(*received.lock().unwrap(), first);
}

#[test]
fn a_backend_may_take_spans_only_or_a_part_or_nothing() {
    let is_log = |incoming: &Incoming<'_>| incoming.what().ends_with("/v1/logs");
    let (spans_only, _) = backend(move |incoming| match is_log(incoming) {
        true => Answer::status(404, "Not Found"),
        false => Answer::ok(String::new()),
    });
    grade(&Lab::new(), &spans_only).exits_with(0).says("as spans only: it takes no log records");
    // partial_success { rejected: 3, error_message: "too old" }
    let partial = "\u{a}\u{b}\u{8}\u{3}\u{12}\u{7}too old";
    let (a_part, _) = backend(move |incoming| match incoming.body.is_empty() || is_log(incoming) {
        true => Answer::ok(String::new()),
        false => Answer::ok(partial.to_owned()),
    });
    grade(&Lab::new(), &a_part).exits_with(5).says("not taken over OTLP: 3 spans: too old");
    for (status, says) in [
        (401, "headers go into OTEL_EXPORTER_OTLP_HEADERS"),
        (404, "nothing receives OTLP there (404)"),
        (400, "it did not take what was sent (400: no)"),
        (503, "it did not take what was sent (503: no)"),
    ] {
        let (refusing, received) = backend(move |_| Answer::status(status, "no"));
        grade(&Lab::new(), &refusing).exits_with(2).says(says);
        assert!(received.lock().unwrap().iter().all(|(_, body)| body.is_empty()), "nothing was sent");
        let (later, _) = backend(move |incoming| match incoming.body.is_empty() {
            true => Answer::ok(String::new()),
            false => Answer::status(status, "no"),
        });
        let lab = Lab::new();
        grade(&lab, &later).exits_with(5).says(says).says("gradus: 8 outcomes could not be written");
        assert_eq!(lab.of_run("unwritten_otlp.jsonl").len(), 8);
    }
    Lab::new().run(&["eval", "x", "--log-to-otlp", "localhost:4318"]).exits_with(2).says("http://HOST:4318");
}

#[test]
fn a_backend_that_refuses_log_records_gets_all_spans() {
    for status in [400, 403, 405, 415] {
        let (spans_only, received) = backend(move |incoming| match incoming.what().ends_with("/v1/logs") {
            true => Answer::status(status, "no logs"),
            false => Answer::ok(String::new()),
        });
        let ran = grade(&Lab::new(), &spans_only).exits_with(0).says("gradus: 8 outcomes were sent to ");
        ran.says(&format!(", as spans only: it takes no log records ({status}"));
        let kinds: Vec<String> = received.lock().unwrap().iter().map(|(what, _)| what.clone()).collect();
        assert_eq!(kinds, ["POST /v1/traces", "POST /v1/traces", "POST /v1/logs"]);
    }
}

#[test]
fn what_is_rejected_is_counted_once_and_a_warning_is_none() {
    // partial_success { rejected: 3, error_message: "too old" }, of spans and of events.
    let partial = "\u{a}\u{b}\u{8}\u{3}\u{12}\u{7}too old";
    let (a_part, _) = backend(move |incoming| match incoming.body.is_empty() {
        true => Answer::ok(String::new()),
        false => Answer::ok(partial.to_owned()),
    });
    let ran = grade(&Lab::new(), &a_part).exits_with(5).says("gradus: 5 outcomes were sent to ");
    ran.says("3 spans: too old").says("3 events: too old").says("gradus: 3 outcomes could not be written");
    // More than there were, by a backend that cannot count: 100 of 8.
    let (too_many, _) = backend(move |incoming| match incoming.body.is_empty() {
        true => Answer::ok(String::new()),
        false => Answer::ok("\u{a}\u{2}\u{8}\u{64}".to_owned()),
    });
    let ran = grade(&Lab::new(), &too_many).exits_with(5).says("gradus: 0 outcomes were sent to ");
    ran.says("gradus: 8 outcomes could not be written");
    // partial_success { error_message: "use gzip" }
    let (warning, _) = backend(|incoming| match incoming.body.is_empty() {
        true => Answer::ok(String::new()),
        false => Answer::ok("\u{a}\u{a}\u{12}\u{8}use gzip".to_owned()),
    });
    let ran =
        grade(&Lab::new(), &warning).exits_with(0).says("gradus: 8 outcomes were sent to ").says("says: use gzip");
    assert!(!ran.err.contains("could not be written"), "{}", ran.err);
}

#[test]
fn each_destination_keeps_its_own_list_and_an_interrupt_stops_both() {
    let phoenix = crate::lab::Phoenix::with_fault(traces_of(3), |incoming| {
        let is_write = incoming.what().starts_with("POST");
        is_write.then(|| Answer::status(200, "{}").after(std::time::Duration::from_secs(60)))
    });
    let (backend, received) = backend(|_| Answer::ok(String::new()));
    let lab = Lab::new();
    lab.write("gradus.toml", "[phoenix]\nabstentions = true\n");
    let (source, url) = (phoenix.source(), backend.origin());
    let arguments = ["eval", &source, "--judge", "offline", "--log-to-phoenix", "--log-to-otlp", &url];
    let mut command = lab.command(&[arguments.as_slice(), &FOUR_EVALUATORS].concat());
    let child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while phoenix.asked("POST") == 0 && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    // Nothing but the greeting went out after that.
    assert!(received.lock().unwrap().iter().all(|(_, body)| body.is_empty()));
    let counts = || ["phoenix", "otlp"].map(|to| lab.of_run(&format!("unwritten_{to}.jsonl")).len());
    assert_eq!(counts(), [12, 12]);
    lab.run(&["report", "--log-to-otlp", &url]).exits_with(0);
    assert_eq!(counts(), [12, 0], "what Phoenix lacks is still listed");
}

#[test]
fn headers_are_sent_along() {
    let (backend, _) = backend(|incoming| match incoming.header("x-key") {
        Some("k 1") => Answer::ok(String::new()),
        _ => Answer::status(401, "who?"),
    });
    let lab = Lab::new();
    lab.write("spans.json", &json!({"data": traces_of(1)}).to_string());
    let url = backend.origin();
    let arguments = ["eval", "spans.json", "--judge", "offline", "--log-to-otlp", &url];
    lab.run_with(&[("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k%201")], &arguments).exits_with(0);
    lab.run(&arguments).exits_with(2).says("401");
}
