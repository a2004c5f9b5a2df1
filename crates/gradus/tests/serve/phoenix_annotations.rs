//! Annotations through Phoenix's routes: those of people and programs, and verdicts as annotations.

use serde_json::{Value as Json, json};

use crate::lab::{Lab, Server, eventually, fixture};
use crate::phoenix::{frame, post, said, span_id};
use crate::spans::{Visit, trace_id};

#[test]
fn annotations_are_replaced_whole_and_read_back() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    let (span, path) = (span_id(1, 2), "/v1/span_annotations?sync=true");
    let first = post(
        &server,
        path,
        &json!({"data": [{"span_id": span, "name": "a", "annotator_kind": "LLM",
        "result": {"label": "x", "score": 1, "explanation": "why"}, "metadata": {"m": 1}}]}),
    );
    assert_eq!(first.status, 200, "{}", first.text());
    let second = post(&server, path, &said(&span, "a", "y"));
    assert_eq!(first.json(), second.json(), "the same annotation");
    let list = server.json(&format!("/v1/projects/p/span_annotations?span_ids={span}"));
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    let shown = &list["data"][0];
    assert_eq!(shown["result"], json!({"label": "y", "score": 1.0, "explanation": null}));
    assert_eq!((&shown["metadata"], &shown["span_id"], &shown["identifier"]), (&json!({}), &json!(span), &json!("")));
    let of_trace = json!({"data": [{"trace_id": trace_id(1), "name": "t", "annotator_kind": "CODE"}]});
    assert_eq!(post(&server, "/v1/trace_annotations?sync=true", &of_trace).status, 200);
    let traces = server.json(&format!("/v1/projects/p/trace_annotations?trace_ids={}", trace_id(1)));
    assert_eq!(traces["data"][0]["result"]["label"], Json::Null);
    let note = |text: &str| post(&server, "/v1/span_notes", &json!({"data": {"span_id": span, "note": text}})).status;
    assert_eq!((note("one"), note("two"), note(" ")), (200, 200, 422));
    let all = server.json(&format!("/v1/projects/p/span_annotations?span_ids={span}&limit=2"));
    assert_eq!(all["data"].as_array().unwrap().len(), 2);
    let next = all["next_cursor"].as_str().unwrap();
    let rest = server.json(&format!("/v1/projects/p/span_annotations?span_ids={span}&limit=2&cursor={next}"));
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["next_cursor"]), (1, &Json::Null));
    let missing = post(&server, path, &said("ffffffffffffffff", "a", "x"));
    assert_eq!((missing.status, missing.text().as_str()), (404, "Spans with IDs ffffffffffffffff do not exist."));
    for (body, status) in [
        (said(&span, "note", "x"), 400),
        (json!({"data": [{"span_id": span, "name": "a", "annotator_kind": "FISH"}]}), 422),
        (json!({"data": [{"name": "a", "annotator_kind": "LLM"}]}), 422),
        (json!({"data": {}}), 422),
        (json!([]), 422),
    ] {
        assert_eq!(post(&server, path, &body).status, status, "{body}");
    }
    assert_eq!(server.get("/v1/projects/p/span_annotations").status, 422);
    assert_eq!(server.get("/v1/projects/p/span_annotations?span_ids=ffffffffffffffff").status, 404);
}

/// What was acknowledged is not lost, also when it is about something that has not come yet.
#[test]
fn annotations_wait_for_their_spans() {
    let lab = Lab::new();
    let server = lab.serve();
    let span = span_id(7, 2);
    let early = post(&server, "/v1/span_annotations", &said(&span, "early", "x"));
    assert_eq!((early.status, early.json()), (200, json!({"data": []})));
    server.kill();
    let server = lab.serve();
    server.export(&Visit::new(7).export("p"));
    let list = server.json(&format!("/v1/projects/p/span_annotations?span_ids={span}"));
    assert_eq!(list["data"][0]["name"], "early");
    let condition = json!({"filter": {"condition": "annotations['early'].label == 'x'"}});
    assert_eq!(frame(&server, &json!({"queries": [condition]})).0.len(), 1);
    // With the next look at what is to be kept, the trace knows it, too.
    let server = {
        server.stop();
        lab.serve()
    };
    eventually("the annotation is with its trace", || {
        let trace = server.trace(&trace_id(7));
        trace["annotations"].as_array().is_some_and(|all| all.len() == 1).then_some(())
    });
}

#[test]
fn sessions_are_listed_and_annotated() {
    let lab = Lab::new();
    let server = lab.serve();
    let about = |name: &str| json!({"data": [{"session_id": name, "name": "goal", "annotator_kind": "CODE", "result": {"label": "met"}}]});
    assert_eq!(post(&server, "/v1/session_annotations", &about("talk:1")).status, 200, "before it is there");
    for trace in [1, 2] {
        let mut spans = Visit::new(trace).spans();
        for span in &mut spans {
            span.attributes.extend(crate::spans::attributes(&[("session.id", "talk:1")]));
        }
        server.export(&crate::spans::export("p", spans));
    }
    server.assembled();
    let list = server.json("/v1/projects/p/sessions");
    let session = &list["data"][0];
    assert_eq!((&session["session_id"], session["traces"].as_array().unwrap().len()), (&json!("talk:1"), 2));
    let id = session["id"].as_str().unwrap();
    assert_eq!(server.json(&format!("/v1/sessions/{id}")), server.json("/v1/sessions/talk:1"));
    let traces = server.json(&format!("/v1/projects/p/traces?session_identifier={id}&include_spans=true"));
    assert_eq!(traces["data"].as_array().unwrap().len(), 2);
    assert_eq!(traces["data"][0]["spans"].as_array().unwrap().len(), 3);
    let shown = server.json(&format!("/v1/projects/p/session_annotations?session_ids={id}"));
    assert_eq!((&shown["data"][0]["name"], &shown["data"][0]["session_id"]), (&json!("goal"), &json!("talk:1")));
    // The id and the name are one and the same session.
    assert_eq!(post(&server, "/v1/session_annotations?sync=true", &about(id)).status, 200);
    let shown = server.json("/v1/projects/p/session_annotations?session_ids=talk:1");
    assert_eq!(shown["data"].as_array().unwrap().len(), 1);
    assert_eq!(post(&server, "/v1/session_annotations?sync=true", &about("nobody")).status, 404);
    assert_eq!(server.get("/v1/sessions/nobody").status, 404);
    assert_eq!(server.get("/v1/projects/p/traces?filter=error_count%3E0").status, 501);
}

#[test]
fn verdicts_are_annotations_for_whoever_asks_by_name() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    server.assembled();
    let path = format!("/v1/projects/p/span_annotations?span_ids={}&span_ids={}", span_id(1, 1), span_id(1, 2));
    assert_eq!(server.json(&path)["data"], json!([]), "a list of everything shows what was logged");
    let named = server.json(&format!("{path}&include_annotation_names=call_validity"));
    let shown = &named["data"][0];
    assert_eq!((&shown["name"], &shown["identifier"]), (&json!("Call validity"), &json!("gradus")));
    let by_shown_name = server.json(&format!("{path}&include_annotation_names=Call%20validity"));
    assert_eq!(named, by_shown_name);
    assert_eq!((&shown["annotator_kind"], &shown["span_id"]), (&json!("CODE"), &json!(span_id(1, 2))));
    let all = server.json(&format!("{path}&identifier=gradus"));
    assert!(all["data"].as_array().unwrap().len() > 1, "{all}");
    let label = shown["result"]["label"].as_str().unwrap();
    let condition = json!({"filter": {"condition": format!("annotations['call_validity'].label == '{label}'")}});
    assert_eq!(frame(&server, &json!({"queries": [condition]})).0.len(), 1);
}

/// What all annotations on these spans say, without what belongs to the place where they are kept.
fn said_of(server: &Server, spans: &[String]) -> Vec<Json> {
    let ids: String = spans.iter().map(|id| format!("span_ids={id}&")).collect();
    let identifiers: String = (1..9).map(|number| format!("identifier=gradus:{number}&")).collect();
    let path = format!("/v1/projects/p/span_annotations?{ids}{identifiers}identifier=gradus&limit=1000");
    let mut rows = server.json(&path)["data"].as_array().unwrap().clone();
    for row in &mut rows {
        for key in ["id", "created_at", "updated_at"] {
            row.as_object_mut().unwrap().remove(key);
        }
        row["metadata"]["run_id"] = Json::Null;
    }
    rows.sort_by_key(|row| format!("{} {} {}", row["span_id"], row["name"], row["identifier"]));
    rows
}

#[test]
fn verdicts_are_shown_as_they_are_written_to_phoenix() {
    let names = "[phoenix]\nabstentions = true\n[phoenix.names]\nquery_to_thought = \"Understood?\"\n";
    let lab = Lab::with("", names);
    let server = lab.serve();
    // Several calls in one reply, a run that went wrong, and a call that violates its schema.
    for scenario in ["s10_parallel", "s07_error_recovery", "s03_missing_param"] {
        let folder = fixture("openai-agents-chat").join(scenario);
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "bin") {
                let body = std::fs::read(path).unwrap();
                let request = server.request("POST", "/v1/traces").header("x-project-name", "p");
                let mut request = request.header("content-type", "application/x-protobuf");
                if body.starts_with(&[0x1f, 0x8b]) {
                    request = request.header("content-encoding", "gzip");
                }
                assert_eq!(request.body(&body).send().status, 200);
            }
        }
    }
    server.assembled();
    let projects = server.json("/v1/projects");
    let project = projects["data"].as_array().unwrap().iter().find(|one| one["name"] != "default").unwrap();
    assert_eq!(project["name"], "p");
    let listed = server.json("/v1/projects/p/spans?limit=1000");
    let spans: Vec<String> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| span["context"]["span_id"].as_str().unwrap().to_owned())
        .collect();
    let ours = said_of(&server, &spans);
    let count = |key: &str, value: &str| ours.iter().filter(|row| row[key] == value).count();
    assert!(count("identifier", "gradus:2") > 0 && count("name", "Understood?") > 0, "{ours:?}");
    assert!(ours.iter().any(|row| row["metadata"]["evidence"].is_array()));
    let origin = format!("http://{}", server.http);
    let arguments = ["eval", "--phoenix", &origin, "--project", "p", "--judge", "offline", "--log-to-phoenix"];
    lab.run(&[arguments.as_slice(), &["--state-dir", "elsewhere"]].concat()).exits_with(0);
    // What was logged stands for ours now, and says the same.
    let logged = said_of(&server, &spans);
    assert_eq!(logged, ours);
    let without_names =
        server.json(&format!("/v1/projects/p/span_annotations?span_ids={}&limit=1000", spans.join("&span_ids=")));
    assert_eq!(without_names["data"].as_array().unwrap().len(), ours.len(), "all of them are rows");
}

#[test]
fn verdicts_on_trajectories_go_on_traces_if_the_settings_say_so() {
    let lab = Lab::with("", "[phoenix]\ntrajectory_target = \"trace\"\n");
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    server.assembled();
    let id = trace_id(1);
    let path = format!("/v1/projects/p/trace_annotations?trace_ids={id}&identifier=gradus");
    let rows = server.json(&path)["data"].as_array().unwrap().clone();
    assert!(rows.iter().all(|row| row["trace_id"] == json!(id)), "{rows:?}");
    let mut names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    // Rules cannot decide the other two here, and abstentions are no annotations.
    assert_eq!(names, ["Error recovery", "Outcome"]);
    // The only one of them that rules decide here.
    let shown = rows.iter().find(|row| row["name"] == "Outcome").unwrap();
    let label = shown["result"]["label"].as_str().unwrap();
    assert_eq!(label, "answered");
    let condition = format!("trace_annotations['outcome'].label == '{label}' and span_kind == 'AGENT'");
    let query = json!({"queries": [{"filter": {"condition": condition}}]});
    assert_eq!(frame(&server, &query).0.len(), 1);
}
