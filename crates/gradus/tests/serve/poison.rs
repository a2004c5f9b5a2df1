//! Traces that are small on the wire and would be large or slow once they are assembled: the server outlives them, grades
//! everybody else, and what cannot be assembled is quarantined.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use crate::lab::{Lab, Server, eventually};
use crate::spans::{VISIT_OUTCOME_COUNT, Visit, attributes, export, log, span, trace_id};

const MAX_MEMORY_MIB: f64 = 512.0;

fn send_packed(server: &Server, path: &str, body: &[u8]) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).unwrap();
    let request = server.request("POST", path).header("content-type", "application/x-protobuf");
    let reply = request.header("content-encoding", "gzip").body(&encoder.finish().unwrap()).send();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Texts that would be far larger as a tree than they are as text.
fn dense_texts() -> Vec<(&'static str, String)> {
    const BYTES: usize = 3_000_000;
    let filled = |piece: &str| piece.repeat(BYTES / piece.len());
    let nested = format!("[{}[0]]", filled("[0],"));
    let in_string = serde_json::to_string(&nested).unwrap();
    vec![
        ("lists in a list", nested.clone()),
        ("objects in a list", format!("[{}{{}}]", filled("{},"))),
        ("fields", format!("{{{}\"z\":0}}", filled("\"a\":[0],"))),
        ("messages", format!("{{\"messages\":[{}{{}}]}}", filled("{\"role\":\"user\"},"))),
        ("calls", format!("[{{\"role\":\"assistant\",\"tool_calls\":[{}{{}}]}}]", filled("{\"name\":\"a\"},"))),
        ("a list as arguments", format!("{{\"name\":\"a\",\"arguments\":{nested}}}")),
        ("JSON in a string", in_string.clone()),
        ("JSON in a string in an object", format!("{{\"input_str\":{in_string}}}")),
        ("a Python list", format!("[{}(0,)]", filled("(0,),"))),
        ("actions", filled("Thought: t\nAction: a\nAction Input: [0,0,0]\nObservation: o\n")),
        (
            "parallel actions",
            format!("Thought: {}\nAction: [{}{{}}]", "t".repeat(9_000), filled("{\"name\":\"a\",\"args\":{}},")),
        ),
        ("markup", filled("<tool>a</tool><tool_input>[0]</tool_input>")),
    ]
}

/// Where dialects look for JSON.
const KEYS: [(&str, &str); 14] = [
    ("LLM", "input.value"),
    ("LLM", "output.value"),
    ("LLM", "llm.invocation_parameters"),
    ("LLM", "llm.tools.0.tool.json_schema"),
    ("LLM", "metadata"),
    ("TOOL", "input.value"),
    ("TOOL", "output.value"),
    ("TOOL", "tool.parameters"),
    ("AGENT", "input.value"),
    ("", "gen_ai.input.messages"),
    ("", "gen_ai.tool.definitions"),
    ("", "gcp.vertex.agent.llm_request"),
    ("", "ai.prompt.messages"),
    ("", "traceloop.entity.input"),
];

#[test]
fn dense_texts_in_any_attribute_are_outlived() {
    // This is about memory: on a busy machine a page may take longer than a query may.
    let lab = Lab::with("query_timeout_s = 120", "");
    let server = lab.serve();
    let mut trace = 0;
    for (number, (_, text)) in dense_texts().iter().enumerate() {
        // Every text somewhere, every place with some text: all with all would take minutes.
        for (kind, key) in KEYS.iter().skip(number % 3).step_by(3) {
            trace += 1;
            let mut one = span(trace, 1, "dense");
            one.attributes = attributes(&[("openinference.span.kind", *kind), (*key, text)]);
            one.attributes.retain(|attribute| attribute.key != "openinference.span.kind" || !kind.is_empty());
            send_packed(&server, "/v1/traces", &export("dense", vec![one]));
        }
    }
    trace += 1;
    server.export(&export("dense", vec![span(trace, 1, "a call")]));
    let body = log("dense", trace, 1, "gen_ai.user.message", &dense_texts()[0].1);
    send_packed(&server, "/v1/logs", &body);
    let good = Visit::new(1_000_000);
    server.export(&export("good", good.spans()));
    eventually("everything is assembled", || (server.metric("gradus_traces_due")? == 0.0).then_some(()));
    assert_eq!(server.metric("gradus_traces_quarantined"), Some(0.0));
    assert_eq!(server.trace(&trace_id(1_000_000))["outcomes"].as_array().unwrap().len(), VISIT_OUTCOME_COUNT);
    for trace in 1..=trace {
        assert_eq!(server.get(&format!("/api/v1/traces/{}", trace_id(trace))).status, 200);
    }
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_MEMORY_MIB, "{peak} MiB");
}

/// Spans of tools that have nothing around them, hang below one root, or below each other.
fn large_trace(trace: u128, shape: &str, spans: u64) -> Vec<Span> {
    let kind = if shape == "chain of agents" { "AGENT" } else { "TOOL" };
    let mut root = span(trace, 1, "root");
    root.attributes = attributes(&[("openinference.span.kind", "AGENT"), ("input.value", "do it")]);
    let mut all = vec![root.clone()];
    for id in 2..=spans {
        let mut one = Span { start_time_unix_nano: root.start_time_unix_nano + id, ..span(trace, id, "t") };
        one.attributes = attributes(&[("openinference.span.kind", kind), ("tool.name", "t")]);
        let parent = match shape {
            "roots" => None,
            "star" => Some(1),
            _ => Some(id - 1),
        };
        one.parent_span_id = parent.map(|id: u64| id.to_be_bytes().to_vec()).unwrap_or_default();
        all.push(one);
    }
    if shape == "roots" {
        all.remove(0);
    }
    all
}

#[test]
fn a_large_trace_keeps_nobody_waiting_and_is_graded_as_far_as_it_is_read() {
    let lab = Lab::new();
    let server = lab.serve();
    for (trace, shape, spans) in
        [(1, "roots", 6_000), (2, "star", 52_000), (3, "chain", 12_000), (4, "chain of agents", 12_000)]
    {
        send_packed(&server, "/v1/traces", &export("large", large_trace(trace, shape, spans)));
    }
    server.export(&export("good", Visit::new(1_000_000).spans()));
    eventually("others are graded", || {
        (server.trace(&trace_id(1_000_000))["outcomes"].as_array()?.len() == VISIT_OUTCOME_COUNT).then_some(())
    });
    eventually("the large ones are assembled", || (server.metric("gradus_traces_due")? == 0.0).then_some(()));
    assert_eq!(server.metric("gradus_traces_quarantined"), Some(0.0));
    // On a busy machine the time of a query may be over first.
    let star = eventually("the large one is shown", || {
        let reply = server.get(&format!("/api/v1/traces/{}", trace_id(2)));
        assert!([200, 422, 503].contains(&reply.status), "{}", reply.text());
        (reply.status == 200).then(|| reply.json())
    });
    assert_eq!(star["trajectories"][0]["steps"].as_array().unwrap().len(), 10_000);
    let defects = star["trajectories"][0]["defects"].as_array().unwrap();
    assert!(defects.iter().any(|defect| defect["kind"] == "too_large"), "{:?}", defects.last());
    let peak = server.peak_memory_mib();
    assert!(peak < MAX_MEMORY_MIB, "{peak} MiB");
}

#[test]
fn a_stop_does_not_wait_for_what_is_being_assembled_and_blames_nobody() {
    let lab = Lab::new();
    let server = lab.serve();
    for trace in 1..=6 {
        send_packed(&server, "/v1/traces", &export("large", large_trace(trace, "star", 20_000)));
    }
    eventually("one is being assembled", || {
        let started = "SELECT count(*) FROM due WHERE is_started > 0";
        let started: i64 = lab.sql().query_row(started, [], |row| row.get(0)).unwrap();
        (started > 0).then_some(())
    });
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    let started = "SELECT count(*) FROM due WHERE is_started > 0 OR attempts > 0";
    let started: i64 = lab.sql().query_row(started, [], |row| row.get(0)).unwrap();
    assert_eq!(started, 0);
    let server = lab.serve();
    eventually("all are assembled", || (server.metric("gradus_traces_due")? == 0.0).then_some(()));
}

/// A process that ends while it assembles leaves its attempts unfinished; that is all the next one knows.
#[test]
fn a_trace_that_ends_the_server_twice_is_quarantined_and_can_be_retried() {
    let lab = Lab::with("quiet_s = 600", "");
    lab.write("gradus.toml", "[serve]\nquiet_s = 600\n");
    let server = lab.serve();
    server.export(&export("shop", Visit::new(1).spans()));
    server.export(&export("shop", Visit::new(2).spans()));
    server.stop();
    let set = |sql: &str| lab.sql().execute(sql, []).unwrap();
    let poison = "story = (SELECT min(story) FROM due)";
    assert_eq!(set(&format!("UPDATE due SET is_started = 2, attempts = 1 WHERE {poison}")), 1);
    assert_eq!(set(&format!("UPDATE due SET is_started = 1 WHERE NOT {poison}")), 1);
    lab.configure("", "");
    let server = lab.serve();
    eventually("the other is tried again", || {
        (server.trace(&trace_id(2))["outcomes"].as_array()?.len() == VISIT_OUTCOME_COUNT).then_some(())
    });
    assert_eq!(server.metric("gradus_traces_quarantined"), Some(1.0));
    assert!(server.log().contains("ended while assembling traces"), "{}", server.log());
    let list = server.json("/api/v1/quarantine");
    assert_eq!(list["items"][0]["trace_id"], trace_id(1));
    assert_eq!(list["items"][0]["attempts"], 2);
    let detail = server.trace(&trace_id(1));
    assert_eq!(detail["trajectories"], json!([]));
    assert!(detail["quarantine_reason"].as_str().unwrap().contains("the server ended"), "{detail}");
    let page = server.get("/server").text();
    assert!(page.contains("Quarantined traces") && page.contains(&trace_id(1)), "{page}");
    assert!(server.get(&format!("/traces/{}", trace_id(1))).text().contains("This trace is quarantined"));
    let retry = |path: &str| server.request("POST", path).header("content-type", "application/json").send();
    assert_eq!(retry(&format!("/api/v1/quarantine/{}/retry", trace_id(2))).status, 404);
    assert_eq!(retry(&format!("/api/v1/quarantine/{}/retry", trace_id(1))).status, 200);
    eventually("it is graded after all", || {
        (server.trace(&trace_id(1))["outcomes"].as_array()?.len() == VISIT_OUTCOME_COUNT).then_some(())
    });
    assert_eq!(server.metric("gradus_traces_quarantined"), Some(0.0));
}
