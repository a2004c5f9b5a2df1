//! Readers that ask for too much: senders and other readers do not notice them, and what nobody waits for ends.

use std::net::TcpStream;

use serde_json::json;

use crate::lab::{Lab, Request, Server, eventually};
use crate::spans::{attributes, export, span};

/// Texts that take a while to search.
fn fill(server: &Server) {
    let text = "ab".repeat(50_000);
    for id in 1..=60u64 {
        let mut one = span(u128::from(id), id, "step");
        one.attributes = attributes(&[("input.value", &text)]);
        server.export(&export("p", vec![one]));
    }
}

/// As many conditions as a filter may have, and none that holds.
fn costly_filter() -> String {
    (0..95).map(|n| format!("'z{n}' in input.value")).collect::<Vec<_>>().join(" or ")
}

fn costly(server: &Server) -> Request {
    let query = json!({"queries": [{"filter": {"condition": costly_filter()}}]});
    server.request("POST", "/v1/spans?project_name=p").json(&query)
}

fn leave(clients: Vec<TcpStream>) {
    for client in clients {
        let _ = client.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn while_readers_keep_all_threads_busy_spans_are_stored_and_others_are_answered() {
    let lab = Lab::with("require_key = true", "");
    let key = |name: &str, scopes: &str| {
        let ran = lab.run(&["keys", "add", name, "--scopes", scopes]).exits_with(0);
        format!("Bearer {}", ran.out.trim())
    };
    let (sender, greedy, modest) = (key("s", "ingest"), key("g", "read"), key("m", "read"));
    let server = lab.serve();
    let post = |id: u64, text: &str| {
        let mut one = span(u128::from(id), id, "step");
        one.attributes = attributes(&[("input.value", text)]);
        let request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        request.header("authorization", &sender).body(&export("p", vec![one])).send().status
    };
    let text = "ab".repeat(50_000);
    assert!((1..=60).all(|id| post(id, &text) == 200));
    let clients: Vec<TcpStream> = (0..40)
        .map(|_| {
            let request = costly(&server).header("authorization", &greedy);
            let length = json!({"queries": [{"filter": {"condition": costly_filter()}}]}).to_string().len();
            request.begin(length)
        })
        .collect();
    let metric = |name: &str| {
        let reply = server.request("GET", "/metrics").header("authorization", &modest).send();
        let text = reply.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.and_then(|number| number.trim().parse::<f64>().ok()).unwrap()
    };
    eventually("they run and wait", || {
        (metric("gradus_queries_under_way") >= 2.0 && metric("gradus_queries_waiting") > 20.0).then_some(())
    });
    let done = metric("gradus_queries_done");
    for id in 101..=120 {
        assert_eq!(post(id, "short"), 200);
        assert_eq!(server.get("/healthz").status, 200);
    }
    // Another reader has his turn before all of theirs.
    let asked = server.request("GET", "/api/v1/projects").header("authorization", &modest).send();
    assert_eq!(asked.status, 200, "{}", asked.text());
    let page = server.request("GET", "/traces").header("authorization", &modest);
    assert_eq!(page.header("accept", "text/html").send().status, 200);
    assert!(metric("gradus_queries_waiting") > 0.0, "theirs still wait");
    // A query is counted after its answer was handed over.
    eventually("both are counted", || (metric("gradus_queries_done") >= done + 2.0).then_some(()));
    leave(clients);
    eventually("nothing goes on", || {
        (metric("gradus_queries_under_way") == 0.0 && metric("gradus_queries_waiting") == 0.0).then_some(())
    });
    assert!(metric("gradus_queries_cancelled") >= 2.0);
}

#[test]
fn a_query_that_takes_too_long_is_stopped_with_one_line() {
    let lab = Lab::with("query_timeout_s = 0.05\ndownload_timeout_s = 0.05", "");
    let server = lab.serve();
    fill(&server);
    server.assembled();
    // An answer that was begun cannot become an error: it is cut off, and the client sees that.
    let mut cut = Vec::new();
    eventually("a download is stopped", || {
        cut.push(costly(&server).try_send().map(|reply| reply.status));
        (server.metric("gradus_queries_timed_out")? > 0.0).then_some(())
    });
    assert!(cut.contains(&None), "{cut:?}");
    let filter =
        percent_encoding::utf8_percent_encode(&costly_filter(), percent_encoding::NON_ALPHANUMERIC).to_string();
    let stopped = server.metric("gradus_queries_timed_out").unwrap();
    let page = server.request("GET", &format!("/traces?project=p&where={filter}"));
    let page = page.header("accept", "text/html");
    let reply = eventually("a page is stopped", || Some(page.send()).filter(|reply| reply.status == 422));
    assert!(reply.text().contains("serve.query_timeout_s"), "{}", reply.text());
    eventually("it is counted", || (server.metric("gradus_queries_timed_out")? > stopped).then_some(()));
    // The next one is as good as any.
    eventually("others are answered", || (server.get("/api/v1/traces").status == 200).then_some(()));
}

#[test]
fn filters_and_searches_that_ask_for_too_much_are_refused() {
    let lab = Lab::new();
    let server = lab.serve();
    server.export(&export("p", vec![span(1, 1, "first")]));
    let ask = |filter: &str| {
        let query = json!({"queries": [{"filter": {"condition": filter}}]});
        server.request("POST", "/v1/spans?project_name=p").header("accept", "application/json").json(&query).send()
    };
    let conditions = |many: usize, between: &str| {
        (0..many).map(|n| format!("'z{n}' in input.value")).collect::<Vec<_>>().join(between)
    };
    let refused = [
        conditions(400, " or "),
        conditions(400, " and "),
        format!("{}name == 'x'{}", "(".repeat(600), ")".repeat(600)),
        format!("{}(name == 'x')", "not ".repeat(300)),
        format!("name in [{}]", "'a' + 'b', ".repeat(2_000)),
        format!("latency_ms > {}1", "1 + ".repeat(2_000)),
        format!("name == '{}'", "x".repeat(300_000)),
        format!("attributes{} == 1", "['a']".repeat(1_000)),
    ];
    for filter in refused {
        let reply = ask(&filter);
        assert_eq!(reply.status, 422, "{}", &filter[..60]);
        assert!(reply.text().lines().count() == 1 && reply.text().len() < 400, "{}", reply.text());
    }
    // What is long but no work is taken.
    let ids: Vec<String> = (0..10_000).map(|n| format!("'{n:016x}'")).collect();
    for filter in [format!("span_id in [{}]", ids.join(",")), conditions(20, " or "), "name == 'first'".to_owned()] {
        assert_eq!(ask(&filter).status, 200, "{}", &filter[..15]);
    }
    let bomb: Vec<String> = ('a'..='t').map(|letter| format!("{letter}*")).collect();
    let long: Vec<String> = ('a'..='t').map(|letter| format!("abc{letter}*")).collect();
    for text in [bomb.join("%20"), long.join("%20"), "a*".to_owned()] {
        let reply = server.get(&format!("/api/v1/traces?q={text}"));
        assert_eq!(reply.status, 400, "{text}");
        assert!(reply.error().contains("star"), "{}", reply.error());
    }
    assert_eq!(server.get("/api/v1/traces?q=first*").status, 200);
}

#[test]
fn a_stop_does_not_wait_for_queries() {
    let lab = Lab::new();
    let server = lab.serve();
    fill(&server);
    let length = json!({"queries": [{"filter": {"condition": costly_filter()}}]}).to_string().len();
    let clients: Vec<TcpStream> = (0..12).map(|_| costly(&server).begin(length)).collect();
    eventually("they run", || (server.metric("gradus_queries_under_way")? >= 2.0).then_some(()));
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("all acknowledged data is stored"), "{log}");
    leave(clients);
}
