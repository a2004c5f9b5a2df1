//! What Phoenix's clients ask, asked by hand: the forms of answers, pages, and everything that can be wrong with a
//! question. `tests/peers/phoenix_clients.py` asks with the real clients.

use base64::Engine as _;
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Reply, Request, Server, eventually};
use crate::spans::{SECOND_NS, Visit, now_ns, trace_id};

pub(crate) fn post(server: &Server, path: &str, body: &Json) -> Reply {
    server.request("POST", path).json(body).send()
}

/// A data frame's rows and its schema.
pub(crate) fn frame(server: &Server, body: &Json) -> (Vec<Json>, Json) {
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

pub(crate) fn span_id(trace: u64, number: u64) -> String {
    format!("{:016x}", trace << 8 | number)
}

pub(crate) fn said(span: &str, name: &str, label: &str) -> Json {
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
