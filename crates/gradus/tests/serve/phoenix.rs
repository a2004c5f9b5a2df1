//! What Phoenix's clients ask, asked by hand: the forms of answers, pages, and everything that can be wrong with a
//! question. `tests/peers/phoenix_clients.py` asks with the real clients.

use base64::Engine as _;
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Reply, Request, Server, eventually, fixture};
use crate::spans::{SECOND_NS, Visit, now_ns, trace_id};

fn post(server: &Server, path: &str, body: &Json) -> Reply {
    server.request("POST", path).json(body).send()
}

/// A data frame's rows and its schema.
fn frame(server: &Server, body: &Json) -> (Vec<Json>, Json) {
    let request = server.request("POST", "/v1/spans?project_name=p").header("accept", "application/json");
    let reply = request.json(body).send();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let kind = reply.header("content-type").unwrap().to_owned();
    let boundary = kind.strip_prefix("multipart/mixed; boundary=").unwrap();
    let text = reply.text();
    let part = text.split(&format!("--{boundary}")).nth(1).unwrap();
    let json = part.split_once("\r\n\r\n").unwrap().1.trim();
    let table: Json = serde_json::from_str(json).unwrap();
    (table["data"].as_array().unwrap().clone(), table["schema"].clone())
}

fn span_id(trace: u64, number: u64) -> String {
    format!("{:016x}", trace << 8 | number)
}

fn said(span: &str, name: &str, label: &str) -> Json {
    json!({"data": [{"span_id": span, "name": name, "annotator_kind": "LLM", "result": {"label": label, "score": 1}}]})
}

fn evaluations() -> Vec<u8> {
    let text = include_str!("../../../server/src/phoenix/arrow/evaluations.base64");
    let text: String = text.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn log_evaluations(server: &Server, body: &[u8]) -> Reply {
    let request = server.request("POST", "/v1/evaluations").header("content-type", "application/x-pandas-arrow");
    request.body(body).send()
}

#[test]
fn it_says_which_phoenix_it_speaks() {
    let lab = Lab::new();
    let server = lab.serve();
    let reply = server.get("/arize_phoenix_version");
    assert_eq!((reply.status, reply.text().split('.').count()), (200, 3));
    assert_eq!(server.get("/v1/projects").header("x-phoenix-server-version"), Some(reply.text().as_str()));
    for path in ["/v1/datasets", "/v1/prompts/x", "/v1/experiments/1/runs"] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.text().lines().count()), (501, 1), "{path}: {}", reply.text());
    }
    assert_eq!(server.get("/v1/nothing").status, 404);
}

#[test]
fn a_second_port_is_where_clients_look() {
    let lab = Lab::new();
    let server = lab.serve_with(&["--phoenix-port", "0"]);
    let listening = eventually("it says where it listens", || {
        server.log().lines().find(|line| line.contains("listening")).map(str::to_owned)
    });
    let event: Json = serde_json::from_str(&listening).unwrap();
    let address = event["phoenix"].as_str().unwrap().parse().unwrap();
    assert_eq!(Request::new(address, "GET", "/arize_phoenix_version").send().status, 200);
    let sent = Request::new(address, "POST", "/v1/traces").header("content-type", "application/x-protobuf");
    assert_eq!(sent.body(&Visit::new(1).export("p")).send().status, 200);
    assert_eq!(server.json("/v1/projects/p/spans")["data"].as_array().unwrap().len(), 3);
}

#[test]
fn projects_are_made_described_and_removed() {
    let lab = Lab::new();
    let server = lab.serve();
    let names = |path: &str| -> Vec<String> {
        let list = server.json(path);
        list["data"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("/v1/projects"), ["default"]);
    let made = post(&server, "/v1/projects", &json!({"name": "shop", "description": "d"}));
    assert_eq!(made.status, 200, "{}", made.text());
    let id = made.json()["data"]["id"].as_str().unwrap().to_owned();
    assert_eq!(post(&server, "/v1/projects", &json!({"name": "shop"})).status, 409);
    assert_eq!(post(&server, "/v1/projects", &json!({"name": " "})).status, 422);
    assert_eq!(server.json(&format!("/v1/projects/{id}")), made.json());
    assert_eq!(server.json("/v1/projects/shop"), made.json());
    let changed = server.request("PUT", "/v1/projects/shop").json(&json!({"description": "e"})).send();
    assert_eq!(changed.json()["data"]["description"], "e");
    let page = server.json("/v1/projects?limit=1");
    assert_eq!(page["data"][0]["name"], "shop");
    let next = page["next_cursor"].as_str().unwrap();
    assert_eq!(names(&format!("/v1/projects?limit=1&cursor={next}")), ["default"]);
    assert_eq!(names("/v1/projects?name_contains=SHO"), ["shop"]);
    for trace in 1..=120 {
        server.export(&Visit::new(trace).export("shop"));
    }
    server.assembled();
    assert_eq!(post(&server, "/v1/span_annotations?sync=true", &said(&span_id(1, 2), "a", "x")).status, 200);
    assert_eq!(server.request("DELETE", "/v1/projects/default").send().status, 403);
    assert_eq!(server.request("DELETE", "/v1/projects/shop").send().status, 204);
    assert_eq!(names("/v1/projects"), ["default"]);
    assert_eq!(server.get("/v1/projects/shop/spans").status, 404);
    assert_eq!(server.get(&format!("/api/v1/traces/{}", trace_id(1))).status, 404);
    // Nothing of it is left that a check would stumble over, and its name can be used again.
    server.export(&Visit::new(1).export("shop"));
    assert_eq!(server.json("/v1/projects/shop/spans")["data"].as_array().unwrap().len(), 3);
    let (code, _) = server.stop();
    assert_eq!(code, Some(0));
    lab.run(&["store", "check"]).exits_with(0);
}

#[test]
fn spans_come_page_by_page_without_gaps() {
    let lab = Lab::new();
    let server = lab.serve();
    let now = now_ns();
    for trace in 1..=20 {
        server.export(&Visit { start_ns: now - trace as u64 * SECOND_NS, ..Visit::new(trace) }.export("p"));
    }
    for (order, first) in [("desc", span_id(1, 3)), ("asc", span_id(20, 1))] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.json(&format!("/v1/projects/p/spans?limit=7&order={order}{cursor}"));
            let spans = page["data"].as_array().unwrap();
            assert!(spans.len() <= 7);
            found.extend(spans.iter().map(|span| span["context"]["span_id"].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!((found.len(), &found[0]), (60, &first), "{order}");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 60, "{order}");
    }
    let ids = |query: &str| {
        server.json(&format!("/v1/projects/p/spans?limit=1000&{query}"))["data"].as_array().unwrap().len()
    };
    assert_eq!(ids("span_kind=llm"), 20);
    assert_eq!(ids("span_kind=LLM&span_kind=TOOL&name=read_file"), 20);
    assert_eq!(ids("parent_id=null"), 20);
    assert_eq!(ids(&format!("parent_id={}", span_id(4, 1))), 2);
    assert_eq!(ids(&format!("trace_id={}&trace_id={}", trace_id(3), trace_id(4))), 6);
    assert_eq!(ids(&format!("span_id={}", span_id(3, 2))), 1);
    assert_eq!(ids("attribute=llm.model_name:gpt-4o&status_code=UNSET"), 20);
    for wrong in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "order=up",
        "sort=name",
        "cursor=x",
        "span_kind=FISH",
        "status_code=FINE",
        "attribute=x",
        "attribute=x:[1]",
        "start_time=soon",
    ] {
        let reply = server.get(&format!("/v1/projects/p/spans?{wrong}"));
        assert_eq!((reply.status, reply.text().lines().count()), (422, 1), "{wrong}: {}", reply.text());
    }
    assert_eq!(server.get("/v1/projects/nobody/spans").status, 404);
    assert_eq!(server.get("/v1/projects/UHJvamVjdDo5OTk=/spans").status, 404);
}

#[test]
fn queries_give_tables() {
    let lab = Lab::new();
    let server = lab.serve();
    for trace in 1..=5 {
        server.export(&Visit::new(trace).export("p"));
    }
    let (rows, schema) = frame(&server, &json!({"queries": [{}]}));
    assert_eq!(rows.len(), 15);
    assert_eq!(schema["primaryKey"], json!(["0_context.span_id"]));
    let names: Vec<&str> =
        schema["fields"].as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["0_context.span_id", "1_name", "2_span_kind"]);
    assert!(names.iter().any(|name| name.ends_with("_attributes.llm.output_messages")), "{names:?}");
    let query = json!({"select": {"q": {"key": "input.value"}}, "filter": {"condition": "span_kind == 'AGENT'"}});
    let (rows, _) = frame(&server, &json!({"queries": [query.clone()], "limit": 2}));
    assert_eq!(rows.len(), 2);
    assert!(rows[0]["1_q"].as_str().unwrap().contains("demo repository"), "{rows:?}");
    let exploded = json!({"explode": {"key": "llm.input_messages", "kwargs": {"role": "message.role"}}});
    let (rows, schema) = frame(&server, &json!({"queries": [exploded]}));
    assert_eq!((rows.len(), &rows[0]["1_position"], &rows[0]["2_role"]), (5, &json!(0), &json!("user")));
    assert_eq!(schema["primaryKey"], json!(["0_context.span_id", "1_position"]));
    let (rows, _) = frame(&server, &json!({"queries": [{}], "root_spans_only": true}));
    assert_eq!(rows.len(), 5);
    let (rows, schema) =
        frame(&server, &json!({"queries": [query], "project_name": "ignored", "start_time": "2100-01-01T00:00:00Z"}));
    assert_eq!((rows.len(), schema["fields"].as_array().unwrap().len()), (0, 2));
    // Older clients read the same from Arrow.
    let arrow = server.request("POST", "/v1/spans?project-name=p").json(&json!({"queries": [{}]})).send();
    assert_eq!((arrow.status, arrow.header("content-type")), (200, Some("application/x-pandas-arrow")));
    assert_eq!(arrow.body[..4], [0xff; 4]);
    assert!(arrow.body.ends_with(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    let unknown = server.request("POST", "/v1/spans?project_name=nobody").header("accept", "application/json");
    assert_eq!(unknown.json(&json!({"queries": [{}]})).send().status, 200);
}

#[test]
fn wrong_queries_are_refused_in_one_line() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&Visit::new(1).export("p"));
    let refused = |body: &[u8]| {
        let reply = server.request("POST", "/v1/spans?project_name=p").header("content-type", "application/json");
        let reply = reply.body(body).send();
        assert_eq!((reply.status, reply.text().lines().count()), (422, 1), "{}", reply.text());
        reply.text()
    };
    refused(b"{");
    refused(b"[]");
    refused(b"{\"queries\": 1}");
    refused(&json!({"queries": [{}], "start_time": "soon"}).to_string().into_bytes());
    for condition in
        ["span_kind ==", "name.upper() == 'X'", "__import__('os')", &"(".repeat(5000), &"not ".repeat(20_000)]
    {
        let text = refused(&json!({"queries": [{"filter": {"condition": condition}}]}).to_string().into_bytes());
        assert!(text.starts_with("Invalid query: ") && text.len() < 500, "{text}");
    }
    let text = refused(&json!({"queries": [{"select": {"x": {"key": "f(x)"}}}]}).to_string().into_bytes());
    assert!(text.contains("cannot be selected"), "{text}");
    assert_eq!(post(&server, "/v1/spans", &json!({"queries": []})).status, 404);
    assert_eq!(server.get("/healthz").status, 200);
}

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

#[test]
fn requests_and_what_waits_for_spans_have_bounds() {
    let lab = Lab::new();
    let server = lab.serve();
    let rows = |from: usize, count: usize| {
        let row = |number: usize| json!({"span_id": format!("{:016x}", number + 1), "name": "n", "annotator_kind": "CODE", "result": {"score": 1}});
        json!({"data": (from..from + count).map(row).collect::<Vec<Json>>()})
    };
    let reply = post(&server, "/v1/span_annotations", &rows(0, 100_001));
    assert_eq!((reply.status, reply.text().lines().count()), (413, 1), "{}", reply.text());
    assert_eq!(post(&server, "/v1/span_annotations", &rows(0, 60_000)).status, 200);
    let reply = post(&server, "/v1/span_annotations", &rows(60_000, 40_001));
    assert_eq!((reply.status, reply.text().lines().count()), (507, 1), "{}", reply.text());
    assert_eq!(post(&server, "/v1/span_annotations", &rows(60_000, 40_000)).status, 200);
    let missing = post(&server, "/v1/span_annotations?sync=true", &rows(0, 50_000));
    assert_eq!((missing.status, missing.text().matches(", ").count()), (404, 49_999));
}

#[test]
fn traces_are_listed_with_their_spans_within_a_time_range() {
    let lab = Lab::new();
    let server = lab.serve();
    let first = now_ns() - 1000 * SECOND_NS;
    for number in 1..=30_u64 {
        let visit = Visit { start_ns: first + number * SECOND_NS, ..Visit::new(u128::from(number)) };
        server.export(&visit.export("p"));
    }
    let time = |number: u64| {
        let time = jiff::Timestamp::from_nanosecond(i128::from(first + number * SECOND_NS)).unwrap();
        time.to_string()
    };
    for order in ["desc", "asc"] {
        // The root begins a moment after its second.
        let range = format!("order={order}&start_time={}&end_time={}", time(10), time(20));
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.json(&format!("/v1/projects/p/traces?{range}&include_spans=true&limit=4{cursor}"));
            for trace in page["data"].as_array().unwrap() {
                assert_eq!(trace["spans"].as_array().unwrap().len(), 3);
                found.push(u64::from_str_radix(trace["trace_id"].as_str().unwrap(), 16).unwrap());
            }
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={}", next.replace('=', "%3D"));
        }
        let mut wanted: Vec<u64> = (10..20).collect();
        if order == "desc" {
            wanted.reverse();
        }
        assert_eq!(found, wanted, "{order}");
    }
    // By how long they took: the root of each ends a second after it began, but for some.
    for (number, more_s) in [(3_u64, 5_u64), (17, 9), (25, 7)] {
        let visit = Visit { start_ns: first + number * SECOND_NS, ..Visit::new(u128::from(number)) };
        let mut late = visit.model_call();
        late.span_id = (number << 8 | 99).to_be_bytes().to_vec();
        late.end_time_unix_nano = visit.start_ns + more_s * SECOND_NS;
        server.export(&crate::spans::export("p", vec![late]));
    }
    let ids = |path: &str| {
        let page = server.json(path);
        let id = |trace: &Json| u64::from_str_radix(trace["trace_id"].as_str().unwrap(), 16).unwrap();
        let ids: Vec<u64> = page["data"].as_array().unwrap().iter().map(id).collect();
        (ids, page["next_cursor"].as_str().map(|next| next.replace('=', "%3D")))
    };
    let path = "/v1/projects/p/traces?sort=latency_ms&limit=2";
    let (page, next) = ids(path);
    assert_eq!(page, [17, 25]);
    let (page, _) = ids(&format!("{path}&include_spans=true&cursor={}", next.unwrap()));
    assert_eq!(page, [3, 30], "of those that took as long, the latest first");
    let (page, _) = ids(&format!("{path}&order=asc&min_latency_ms=4000"));
    assert_eq!(page, [3, 25]);
    assert_eq!(server.get("/v1/projects/p/traces?sort=latency_ms&cursor=x").status, 422);
    let plain = server.json("/v1/projects/p/traces?limit=1");
    assert!(plain["data"][0]["spans"].is_null() && plain["data"][0]["token_count_total"].is_number());
}

#[test]
fn older_clients_log_evaluations_as_arrow() {
    let lab = Lab::new();
    let server = lab.serve();
    let recorded = evaluations();
    let reply = log_evaluations(&server, &recorded);
    assert_eq!((reply.status, reply.body.len()), (200, 0), "{}", reply.text());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &recorded).unwrap();
    let zipped = server.request("POST", "/v1/evaluations").header("content-type", "application/x-pandas-arrow");
    let zipped = zipped.header("content-encoding", "gzip").body(&packed.finish().unwrap()).send();
    assert_eq!(zipped.status, 200, "{}", zipped.text());
    let mut spans = Visit::new(1).spans();
    for (span, id) in spans.iter_mut().zip([0xa1_u64, 0xa2, 0xa3]) {
        span.span_id = id.to_be_bytes().to_vec();
    }
    server.export(&crate::spans::export("p", spans));
    let list = server.json(
        "/v1/projects/p/span_annotations?span_ids=00000000000000a1&span_ids=00000000000000a2&span_ids=00000000000000a3",
    );
    let mut shown: Vec<(String, Json)> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["span_id"].as_str().unwrap().to_owned(), one["result"].clone()))
        .collect();
    shown.sort_by(|a, b| a.0.cmp(&b.0));
    let results: Vec<Json> = shown.into_iter().map(|(_, result)| result).collect();
    assert_eq!(
        results,
        [
            json!({"label": "correct", "score": 1.0, "explanation": "fits"}),
            json!({"label": "incorrect", "score": 0.25, "explanation": "ärgerlich"}),
            json!({"label": null, "score": null, "explanation": null}),
        ]
    );
    for length in [0, 3, 8, 100, recorded.len() / 2] {
        let reply = log_evaluations(&server, &recorded[..length]);
        assert_eq!((reply.status, reply.text().lines().count()), (422, 1), "{length}: {}", reply.text());
    }
    let reply = server.request("POST", "/v1/evaluations").json(&json!({})).send();
    assert_eq!(reply.status, 415, "{}", reply.text());
}

#[test]
fn spans_that_are_written_are_all_there_or_none() {
    let lab = Lab::new();
    let server = lab.serve();
    let span = |id: u64, start: &str| {
        json!({"name": "s", "context": {"trace_id": trace_id(9), "span_id": format!("{id:016x}")},
        "span_kind": "LLM", "start_time": start, "end_time": "2026-01-01T12:00:03Z", "status_code": "OK",
        "attributes": {"llm.model_name": "m", "llm.output_messages.0.message.content": "hi"}})
    };
    let start = "2026-01-01T12:00:00Z";
    let made = post(&server, "/v1/projects/new/spans", &json!({"data": [span(1, start), span(2, start)]}));
    assert_eq!((made.status, made.json()), (202, json!({"total_received": 2, "total_queued": 2})));
    let again = post(&server, "/v1/projects/new/spans", &json!({"data": [span(2, start), span(3, start)]}));
    assert_eq!((again.status, &again.json()["total_duplicates"]), (400, &json!(1)), "{}", again.text());
    let naive =
        post(&server, "/v1/projects/new/spans", &json!({"data": [span(3, start), span(4, "2026-01-01T12:00:00")]}));
    assert_eq!((naive.status, &naive.json()["detail"][0]["loc"]), (422, &json!(["body", "data", 1, "start_time"])));
    let listed = server.json("/v1/projects/new/spans?order=asc");
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    assert_eq!(listed["data"][0]["attributes"]["llm.output_messages.0.message.content"], "hi");
    assert_eq!(server.request("DELETE", &format!("/v1/traces/{}", trace_id(9))).send().status, 204);
    assert_eq!(server.request("DELETE", &format!("/v1/traces/{}", trace_id(9))).send().status, 404);
    assert_eq!(server.json("/v1/projects/new/spans")["data"], json!([]));
}

#[test]
fn bodies_are_bounded() {
    let lab = Lab::with("max_request_mb = 1\nmax_memory_mb = 4", "");
    let server = lab.serve();
    let large = json!({"data": [{"span_id": span_id(1, 2), "name": "a", "annotator_kind": "LLM",
        "result": {"explanation": "x".repeat(1 << 20)}}]});
    for path in ["/v1/span_annotations", "/v1/spans", "/v1/projects/p/spans"] {
        assert_eq!(post(&server, path, &large).status, 413, "{path}");
    }
    assert_eq!(log_evaluations(&server, &vec![0; 2 << 20]).status, 413);
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn keys_and_their_scopes() {
    let lab = Lab::with("require_key = true", "");
    let key = |name: &str, scopes: &str| {
        lab.run(&["keys", "add", name, "--scopes", scopes]).exits_with(0).out.trim().to_owned()
    };
    let (sends, reads, all) = (key("sends", "ingest"), key("reads", "read"), key("all", "admin"));
    let server = lab.serve();
    let status = |key: &str, method: &str, path: &str| {
        let request = server.request(method, path).header("authorization", &format!("Bearer {key}"));
        request.json(&json!({"queries": [{}], "data": [], "name": "n"})).send().status
    };
    let nobody = server.get("/v1/projects");
    assert_eq!((nobody.status, nobody.text().as_str()), (401, "Invalid token"));
    assert_eq!(server.get("/arize_phoenix_version").status, 200);
    assert_eq!(status("wrong", "GET", "/v1/projects"), 401);
    assert_eq!((status(&reads, "GET", "/v1/projects"), status(&sends, "GET", "/v1/projects")), (200, 403));
    assert_eq!((status(&reads, "POST", "/v1/spans"), status(&sends, "POST", "/v1/spans")), (200, 403));
    for path in ["/v1/span_annotations", "/v1/trace_annotations", "/v1/projects"] {
        assert_eq!((status(&sends, "POST", path), status(&reads, "POST", path)).1, 403, "{path}");
        assert_ne!(status(&sends, "POST", path), 403, "{path}");
    }
    for (method, path) in [("DELETE", "/v1/projects/n"), ("PUT", "/v1/projects/n"), ("DELETE", "/v1/traces/1")] {
        assert_eq!((status(&sends, method, path), status(&reads, method, path)), (403, 403), "{method} {path}");
    }
    assert_eq!(status(&all, "DELETE", "/v1/projects/n"), 204);
}
