//! The same span twice is one span, and the later version of it counts.

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Server};
use crate::spans::{Visit, attributes, export, log, now_ns, span, trace_id};

fn value(server: &Server, id: u64) -> Json {
    let spans = server.spans("p");
    let mut found = spans.iter().filter(|span| span["span_id"] == format!("{id:016x}"));
    let one = found.next().unwrap();
    assert!(found.next().is_none(), "it is there twice");
    one["attributes"]["v"].clone()
}

#[test]
fn the_same_span_is_stored_once() {
    let lab = Lab::new();
    let server = lab.serve();
    let body = Visit::new(1).export("p");
    for _ in 0..3 {
        server.export(&body);
    }
    // Also twice in one request, and together with a new one.
    let one = span(2, 5, "s");
    server.export(&export("p", vec![one.clone(), one.clone(), span(2, 6, "s")]));
    server.export(&export("p", vec![one, span(2, 7, "s")]));
    server.assembled();
    assert_eq!(server.spans("p").len(), 6);
    let traces = server.json("/api/v1/traces");
    let mut counts: Vec<i64> =
        traces["items"].as_array().unwrap().iter().map(|trace| trace["spans"].as_i64().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [3, 3]);
    let metric =
        |result: &str| server.metric(&format!(r#"gradus_ingest_records_total{{signal="span",result="{result}"}}"#));
    assert_eq!((metric("new"), metric("repeated"), metric("replaced")), (Some(6.0), Some(7.0), None));
    // Log records have no ids: a request that comes again is known as a whole.
    let said = log("p", 1, 1 << 8 | 2, "gen_ai.choice", "said");
    server.post_logs(&said);
    server.post_logs(&said);
    let bytes = server.get("/api/v1/projects/p/otlp").body;
    assert_eq!(bytes.windows(4).filter(|window| *window == b"said").count(), 1);
    server.stop();
    lab.run(&["store", "check"]).exits_with(0);
}

#[test]
fn a_later_version_wins() {
    let lab = Lab::new();
    let server = lab.serve();
    let version = |text: &str| {
        let mut one = span(1, 5, text);
        one.attributes = attributes(&[("v", text)]);
        one
    };
    server.export(&export("p", vec![version("first"), span(1, 6, "other")]));
    server.export(&export("p", vec![version("second")]));
    assert_eq!((value(&server, 5), server.spans("p").len()), (json!("second"), 2));
    // In one request, the one that stands later.
    server.export(&export("p", vec![version("third"), version("fourth")]));
    assert_eq!(value(&server, 5), json!("fourth"));
    // An error that is gone is no error.
    let mut failed = version("failed");
    failed.status = Some(opentelemetry_proto::tonic::trace::v1::Status { code: 2, message: String::new() });
    server.export(&export("p", vec![failed]));
    assert_eq!(server.json("/api/v1/traces?error=true")["items"].as_array().unwrap().len(), 1);
    server.export(&export("p", vec![version("well")]));
    assert_eq!(server.json(&format!("/api/v1/traces/{}", trace_id(1)))["trace"]["errors"], 0);
    server.kill();
    let server = lab.serve();
    assert_eq!(value(&server, 5), json!("well"));
    server.stop();
    lab.run(&["store", "check"]).exits_with(0);
    // It lasts through being put together, too.
    lab.run(&["store", "compact"]).exits_with(0);
    assert_eq!(value(&lab.serve(), 5), json!("well"));
}

#[test]
fn a_trajectory_follows_the_version_that_counts() {
    let lab = Lab::new();
    let server = lab.serve();
    let visit = Visit::new(8);
    let answer = |text: &str, end_ns: u64| {
        let mut root = visit.root();
        root.attributes.retain(|attribute| attribute.key != "output.value");
        root.attributes.extend(attributes(&[("output.value", text)]));
        root.end_time_unix_nano = end_ns;
        export("p", vec![root])
    };
    // Some senders tell of a span when it begins.
    server.export(&answer("nothing yet", 0));
    server.export(&export("p", vec![visit.model_call(), visit.tool_call()]));
    server.export(&answer("Here it is.", now_ns()));
    server.assembled();
    let told = || server.trace(&trace_id(8))["trajectories"][0]["final_answer"].clone();
    assert_eq!(told(), "Here it is.");
    server.export(&answer("Here it really is.", now_ns()));
    server.assembled();
    assert_eq!(told(), "Here it really is.");
    // One that still runs does not undo one that has ended.
    server.export(&answer("running", 0));
    server.assembled();
    assert_eq!(told(), "Here it really is.");
    assert_eq!(server.json("/api/v1/projects")["items"][0]["trajectories"], 1);
}
