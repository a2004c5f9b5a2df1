//! The page, as a browser without a script gets it. What a script does is tried in a real browser (`tests/peers/page.py`).

use std::sync::Arc;

use gradus_test_endpoint::Endpoint;
use serde_json::json;

use crate::lab::{Lab, Reply, Server, eventually, json_lines};
use crate::spans::{SECOND_NS, Visit, now_ns, trace_id};

const HARM: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{1b}[31m\u{202e}";

pub(crate) fn page(server: &Server, path: &str) -> String {
    let reply = server.request("GET", path).header("accept", "text/html").send();
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
    reply.text()
}

pub(crate) fn post(server: &Server, path: &str, fields: &str) -> Reply {
    let origin = format!("http://{}", server.http);
    server
        .request("POST", path)
        .header("origin", &origin)
        .header("accept", "text/html")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(fields.as_bytes())
        .send()
}

/// Three traces; the call of the last is one that its tool cannot take. Each thought names the tool, which rules can
/// judge.
pub(crate) fn filled() -> (Lab, Server) {
    let lab = Lab::new();
    let server = lab.serve();
    let now = now_ns();
    let visit = |trace: u128| Visit {
        thought: format!("I will use read_file to read {trace}.md in the demo repository."),
        ..Visit::new(trace)
    };
    for trace in 1..=2 {
        let start_ns = now - (10 - trace) * SECOND_NS;
        server.export(&Visit { start_ns, ..visit(u128::from(trace)) }.export("shop"));
    }
    server.export(&Visit { arguments: json!({"file": 7}).to_string(), ..visit(3) }.export("shop"));
    server.assembled();
    (lab, server)
}

#[test]
fn pages_hold_nothing_that_runs_and_their_files_may_be_kept() {
    let (_lab, server) = filled();
    let trace = format!("/traces/{}", trace_id(3));
    let mut paths: Vec<String> =
        ["/", "/traces", "/review", "/agreement", "/runs", "/rubrics", "/alerts", "/server", "/versions"]
            .map(str::to_owned)
            .into();
    paths.extend(["/rubrics/thought_to_tool".to_owned(), trace.clone(), format!("{trace}/spans")]);
    for path in &paths {
        let reply = server.request("GET", path).header("accept", "text/html").send();
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.contains("script-src 'self'") && policy.contains("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("form-action 'self'"), "{policy}");
        let text = reply.text();
        assert!(!text.contains("style=\"") && !text.contains(" onclick") && !text.contains("<style"), "{path}");
        assert_eq!(text.matches("<script").count(), 1, "{path}");
        assert!(!text.contains("http://") && !text.contains("https://"), "{path}");
        assert!(text.len() < 100_000, "{path}: {} bytes", text.len());
        for file in text.split('"').filter(|part| part.starts_with("/assets/")) {
            let reply = server.get(file);
            assert_eq!(reply.status, 200, "{file}");
            assert!(reply.header("cache-control").unwrap().contains("immutable"), "{file}");
        }
    }
    assert_eq!(server.get("/assets/gradus-0000000000000000.css").status, 404);
}

#[test]
fn what_is_not_there_is_told_to_people_as_a_page_and_to_programs_as_json() {
    let (_lab, server) = filled();
    for path in ["/nowhere", "/traces/123", &format!("/traces/{}", trace_id(99))] {
        let reply = server.request("GET", path).header("accept", "text/html").send();
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.text().contains("<h1>Not found</h1>"), "{path}");
    }
    assert!(server.get("/nowhere").json()["error"].is_string());
    assert!(server.get("/api/v1/nowhere").json()["error"].is_string());
}

#[test]
fn pages_pass_over_parameters_that_they_do_not_know_and_tell_people_what_they_cannot_read() {
    let (_lab, server) = filled();
    for path in ["/runs?project=shop", "/?utm_source=slack", "/traces?limit=5", "/agreement?x=1", "/rubrics?x=1"] {
        page(&server, path);
    }
    for path in ["/runs", "/rubrics", "/rubrics/thought_to_tool", "/alerts", "/server"] {
        let text = page(&server, &format!("{path}?project=shop"));
        for other in ["/traces", "/rubrics", "/alerts", "/server"] {
            assert!(text.contains(&format!("href=\"{other}?project=shop\"")), "{path} forgets the project");
        }
    }
    let refused = server.request("GET", "/review?which=zz").header("accept", "text/html").send();
    assert_eq!((refused.status, refused.header("content-type")), (400, Some("text/html; charset=utf-8")));
    assert!(refused.text().contains("<h1>Bad request</h1>"), "{}", refused.text());
    assert_eq!(server.get("/api/v1/traces?nonsense=1").status, 400, "programs are told");
    let wrong = page(&server, "/traces?where=span_kind+%3D%3D");
    assert!(wrong.contains("id=\"wrong\"") && !wrong.contains("No traces match"), "{wrong}");
}

#[test]
fn lists_are_narrowed_by_what_stands_in_the_address() {
    let (_lab, server) = filled();
    let count = |query: &str| page(&server, &format!("/traces{query}")).matches("<tr data-id").count();
    assert_eq!(count(""), 3);
    assert_eq!(count("?project=shop&q="), 3);
    assert_eq!(count("?project=none"), 0);
    assert_eq!(count("?version=none"), 0);
    assert_eq!(count("?from=2020-01-01&to=2020-01-02"), 0);
    assert_eq!(count("?from=2020-01-01T00:00"), 3);
    assert_eq!(count("?wrong=call_validity"), 1);
    assert_eq!(count("?label=call_validity%3Dincorrect"), 1);
    assert_eq!(count("?where=span_kind+%3D%3D+%27TOOL%27"), 3);
    assert_eq!(count("?where=name+%3D%3D+%27nothing%27"), 0);
    assert_eq!(count("?where=%27%22file%22%27+in+input.value"), 1);
    // What is wrong with a condition stands beside it.
    let wrong = page(&server, "/traces?where=span_kind+%3D+%27LLM%27");
    assert!(wrong.contains("role=\"alert\"") && wrong.contains("where: "), "{wrong}");
    // The rows alone, which are sent when they have changed.
    let rows = server.get("/traces/rows?project=shop");
    let tag = rows.header("etag").unwrap().to_owned();
    let again = server.request("GET", "/traces/rows?project=shop").header("if-none-match", &tag).send();
    assert_eq!((again.status, again.body.len()), (304, 0));
    server.export(&Visit::new(4).export("shop"));
    let again = server.request("GET", "/traces/rows?project=shop").header("if-none-match", &tag).send();
    assert_eq!((again.status, again.text().matches("<tr data-id").count()), (200, 4));
}

#[test]
fn long_lists_go_on_behind_a_cursor() {
    let lab = Lab::new();
    let server = lab.serve();
    for trace in 1..=60 {
        let start_ns = now_ns() - (100 - trace) * SECOND_NS;
        server.export(&Visit { start_ns, ..Visit::new(u128::from(trace)) }.export("shop"));
    }
    let first = page(&server, "/traces");
    let next = first.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = page(&server, &next.replace("&#38;", "&"));
    let ids =
        |text: &str| -> Vec<String> { text.split("data-id=\"").skip(1).map(|part| part[..32].to_owned()).collect() };
    let mut all = ids(&first);
    all.extend(ids(&second));
    let wanted: Vec<String> = (1..=60).rev().map(trace_id).collect();
    assert_eq!(all, wanted);
    // Later pages stay as they are.
    assert!(first.contains("data-live") && !second.contains("data-live"));
}

#[test]
fn a_step_shows_why_it_is_wrong_and_long_results_are_loaded_when_wanted() {
    let lab = Lab::new();
    let server = lab.serve();
    let long = format!("{}needle", "a line of a long file\n".repeat(50_000));
    let visit = Visit { arguments: json!({"file": 7}).to_string(), ..Visit::new(1) };
    let mut spans = vec![visit.root(), visit.model_call(), visit.tool_call()];
    for pair in &mut spans[2].attributes {
        if pair.key == "output.value" {
            *pair = crate::spans::attribute("output.value", &long);
        }
    }
    server.export(&crate::spans::export("shop", spans));
    server.assembled();
    let text = page(&server, &format!("/traces/{}", trace_id(1)));
    assert!(text.len() < 100_000 && !text.contains("needle"), "{}", text.len());
    assert!(text.contains("id=\"step-1\"") && text.contains("data-failing"), "{text}");
    assert!(
        text.contains("<bdi>Call validity: incorrect</bdi>") && text.contains("verdict-line fail\" open"),
        "{text}"
    );
    let whole = text.split("data-whole").next().unwrap().rsplit("href=\"").next().unwrap();
    let whole = whole.split('"').next().unwrap().replace("&#38;", "&");
    let reply = server.get(&whole);
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(reply.text(), long);
    let rows = server.get(&format!("/traces/{}/spans/rows", trace_id(1))).text();
    assert_eq!(rows.matches("class=\"waterfall\"").count(), 3, "{rows}");
    let span = rows.split("data-span=\"").nth(2).unwrap().split('"').next().unwrap();
    assert!(server.get(span).text().contains("openinference.span.kind"));
}

#[test]
fn whatever_a_trace_holds_is_text() {
    let lab = Lab::new();
    let server = lab.serve();
    let visit = Visit {
        agent: HARM.to_owned(),
        model: HARM.to_owned(),
        tool: HARM.to_owned(),
        thought: HARM.to_owned(),
        query: HARM.to_owned(),
        arguments: json!({HARM: HARM}).to_string(),
        ..Visit::new(1)
    };
    server.export(&visit.export(HARM));
    server.assembled();
    let trace = format!("/traces/{}", trace_id(1));
    let spans = server.get(&format!("{trace}/spans/rows")).text();
    let mut paths: Vec<String> =
        ["/", "/traces", "/review?which=all", "/agreement", "/server"].map(str::to_owned).into();
    paths.extend([trace.clone(), format!("{trace}/spans")]);
    paths.extend(spans.split("data-span=\"").skip(1).map(|part| part.split('"').next().unwrap().to_owned()));
    for path in paths {
        let text = page(&server, &path);
        // The server's own page names no agent and no tool.
        assert!(path == "/server" || text.contains("&#60;script&#62;alert(1)"), "{path}: {text}");
        assert!(!text.contains("<img") && !text.contains("<script>"), "{path}: {text}");
        // What a form sends back is as it came; nobody sees it.
        let shown: String =
            text.split(" value=\"").map(|part| part.split_once('"').map_or(part, |(_, rest)| rest)).collect();
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{path}");
    }
    assert!(page(&server, &trace).contains("&#60;script&#62;alert(1)"));
    let found = page(&server, &format!("/traces?q={}", "%3Cscript%3E%22%3E%3Cimg%20src%3Dx%3E"));
    assert!(!found.contains("<img") && !found.contains("<script>"), "{found}");
}

#[test]
fn a_label_is_kept_with_who_and_when_and_agreement_follows() {
    let (_lab, server) = filled();
    assert!(page(&server, "/agreement").contains("No labels yet."));
    let trace = server.trace(&trace_id(3));
    let trajectory = trace["trajectories"][0]["trajectory_id"].as_str().unwrap();
    let fields = |label: &str, author: &str| {
        format!(
            "trajectory={trajectory}&step=1&evaluator=call_validity&label={label}&author={author}&note=it+is+%3Cfine%3E&back=%2Freview"
        )
    };
    let first = page(&server, "/review?evaluator=call_validity");
    assert!(first.contains("<bdi>Call validity</bdi>: <bdi>incorrect</bdi>"), "{first}");
    let reply = post(&server, "/labels", &fields("correct", "ann"));
    assert_eq!(reply.status, 303, "{}", reply.text());
    assert!(reply.header("location").unwrap().starts_with("/review?labelled="), "{:?}", reply.header("location"));
    assert!(reply.header("set-cookie").unwrap().starts_with("gradus_author=ann; Path=/; HttpOnly; SameSite=Lax"));
    post(&server, "/labels", &fields("incorrect", "bob"));
    let labels = server.json("/api/v1/annotations?name=call_validity");
    let item = &labels["items"][0];
    assert_eq!((&item["author"], &item["label"], &item["score"]), (&json!("ann"), &json!("correct"), &json!(1.0)));
    assert_eq!(item["metadata"]["judge_label"], "incorrect");
    assert_eq!(item["target"], format!("trajectory:{trajectory}#1"));
    let text = page(&server, "/agreement");
    assert!(text.contains("1 of 2") && text.contains("it is &#60;fine&#62;"), "{text}");
    assert!(page(&server, &format!("/traces/{}", trace_id(3))).contains("<b><bdi>ann</bdi></b>"));
    let lines = json_lines(&server.get("/labels").body);
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["author"], &lines[0]["judge_label"]), (&json!("ann"), &json!("incorrect")));
    assert_eq!((&lines[0]["judge_label_then"], &lines[0]["judge"]), (&json!("incorrect"), &json!("rules")));
    assert!(server.get("/labels?format=csv").text().starts_with("project,trace_id,"));
    // The same person again: the label takes the place of the one before.
    post(&server, "/labels", &fields("incorrect", "ann"));
    assert_eq!(json_lines(&server.get("/labels").body).len(), 2);
    assert!(page(&server, "/agreement").contains("2 of 2"));
    for wrong in [fields("nonsense", "ann"), fields("correct", "").replace("author=", "x="), "label=1".to_owned()] {
        let reply = post(&server, "/labels", &wrong);
        assert_eq!(reply.status, 400, "{wrong}");
    }
    assert_eq!(post(&server, "/labels", &fields("correct", "ann").replace(trajectory, "none")).status, 404);
    // Whoever has an older verdict before him labels nothing else.
    let with = |seen: &str| post(&server, "/labels", &format!("{}&seen={seen}", fields("correct", "eve")));
    let refused = with("0");
    assert!(refused.status == 409 && refused.text().contains("The verdict changed after you opened the page"));
    let shown = page(&server, &format!("/traces/{}", trace_id(3)));
    let (_, form) = shown.split_once("name=\"evaluator\" value=\"call_validity\"").unwrap();
    let seen = text_between(form, "name=\"seen\" value=\"", "\"");
    let taken = post(&server, "/labels", &format!("{}&seen={seen}", fields("correct", "ann")));
    assert_eq!(taken.status, 303, "{}", taken.text());
}

#[test]
fn what_was_labelled_does_not_come_again() {
    let (_lab, server) = filled();
    let mut seen = 0;
    let cookie = |path: &str| {
        server.request("GET", path).header("accept", "text/html").header("cookie", "gradus_author=ann").send().text()
    };
    loop {
        let text = cookie("/review?which=all");
        let Some(form) = text.split("action=\"/labels\"").nth(1) else { break };
        let value = |name: &str| {
            let field = form.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap();
            field.split('"').next().unwrap().to_owned()
        };
        let fields = ["trajectory", "step", "evaluator", "label"].map(|name| format!("{name}={}", value(name)));
        assert_eq!(post(&server, "/labels", &format!("{}&author=ann", fields.join("&"))).status, 303);
        seen += 1;
        assert!(seen < 50);
    }
    // Rules decide thought_to_tool and call_validity of three steps, and the outcome of three trajectories.
    assert_eq!(seen, 9);
    assert_eq!(json_lines(&server.get("/labels").body).len(), seen);
}

#[test]
fn keys_are_asked_for_and_kept_where_no_script_sees_them() {
    let lab = Lab::with("require_key = true", "");
    let key = |name: &str, scopes: &str| {
        lab.run(&["keys", "add", name, "--scopes", scopes]).exits_with(0).out.trim().to_owned()
    };
    let (read, both) = (key("eve", "read"), key("ann", "read,ingest"));
    let ingest = key("collector", "ingest");
    let server = lab.serve();
    let refused = server.request("GET", "/traces?q=x").header("accept", "text/html").send();
    assert_eq!(refused.status, 401);
    assert!(refused.text().contains("name=\"next\" value=\"/traces?q=x\""), "{}", refused.text());
    assert!(server.get("/traces").json()["error"].is_string());
    assert_eq!(post(&server, "/sign-in", "key=wrong&next=/").status, 401);
    let reply = post(&server, "/sign-in", &format!("key={both}&next=%2F%2Fevil.example"));
    assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let shown = cookie.split(';').next().unwrap();
    let asked = server.request("GET", "/traces").header("accept", "text/html").header("cookie", shown).send();
    assert_eq!(asked.status, 200);
    assert!(asked.text().contains("Sign out"));
    for path in ["/traces/none", "/nowhere"] {
        let request = server.request("GET", path).header("accept", "text/html");
        let lost = request.header("cookie", shown).send();
        assert!(lost.status == 404 && lost.text().contains("Sign out"), "{}", lost.text());
    }
    assert_eq!(server.request("GET", "/api/v1/traces").header("cookie", shown).send().status, 200);
    // What changes something is taken from our own pages only, with a cookie or without.
    let export = Visit::new(1).export("shop");
    let send = |cookie: &str, origin: &str| {
        let mut request = server.request("POST", "/v1/traces").header("content-type", "application/x-protobuf");
        if !origin.is_empty() {
            request = request.header("origin", origin);
        }
        request.header("cookie", cookie).body(&export).send().status
    };
    let own = format!("http://{}", server.http);
    assert_eq!([send(shown, ""), send(shown, "http://evil.example"), send(shown, &own)], [401, 403, 200]);
    let label = |cookie: &str, origin: &str| {
        let request = server.request("POST", "/labels").header("cookie", cookie).header("origin", origin);
        request.header("content-type", "application/x-www-form-urlencoded").body(b"x=1").send().status
    };
    assert_eq!(label(shown, &own), 400);
    assert_eq!(label(shown, "http://evil.example"), 403);
    let reader = post(&server, "/sign-in", &format!("key={read}&next=/"));
    let reader = reader.header("set-cookie").unwrap().split(';').next().unwrap();
    assert_eq!(label(reader, &own), 403);
    // Whoever may only read is told why there is no form; whoever may only send is not let in, and told why.
    let trace = format!("/traces/{}", trace_id(1));
    let looked = |cookie: &str| {
        server.request("GET", &trace).header("accept", "text/html").header("cookie", cookie).send().text()
    };
    eventually("the trace is judged", || looked(shown).contains("action=\"/labels\"").then_some(()));
    let read_only = looked(reader);
    assert!(read_only.contains("can only read") && !read_only.contains("action=\"/labels\""), "{read_only}");
    assert!(!looked(shown).contains("can only read"));
    let sender = post(&server, "/sign-in", &format!("key={ingest}&next=/"));
    assert_eq!((sender.status, sender.header("set-cookie")), (403, None));
    assert!(sender.text().contains("does not have the scope read") && sender.text().contains("name=\"key\""));
    // What would not be taken is not offered.
    let offered = |cookie: &str| {
        let asked = server.request("GET", "/rubrics/thought_to_tool").header("accept", "text/html");
        asked.header("cookie", cookie).send().text().contains("name=\"what\"")
    };
    assert_eq!([offered(reader), offered(shown)], [false, false]);
    // Leaving forgets it.
    let left = post(&server, "/sign-out", "");
    assert!(left.header("set-cookie").unwrap().contains("Max-Age=0"));
    lab.run(&["keys", "revoke", "ann"]).exits_with(0);
    eventually("the key is not believed any more", || {
        let asked = server.request("GET", "/traces").header("accept", "text/html").header("cookie", shown).send();
        (asked.status == 401 && asked.text().contains("revoked")).then_some(())
    });
}

#[test]
fn forms_of_other_sites_are_refused_without_keys_too() {
    let (_lab, server) = filled();
    for origin in ["http://evil.example", "null", &format!("http://localhost:{}", server.http.port())] {
        let request = server.request("POST", "/labels").header("origin", origin);
        let reply = request.header("content-type", "application/x-www-form-urlencoded").body(b"a=b").send();
        assert_eq!(reply.status, 403, "{origin}");
    }
    assert_eq!(server.request("POST", "/labels").body(b"a=b").send().status, 403);
}

#[test]
fn the_overview_says_how_many_were_judged_and_is_narrowed_by_its_address() {
    let (_lab, server) = filled();
    let text = page(&server, "/?project=shop");
    let card = text.split("<li class=\"card\">").skip(1).find(|card| card.contains("Call validity")).unwrap();
    assert!(card.contains("66.7") && card.contains("2 of 3 right") && card.contains("Could not be judged"), "{card}");
    assert!(card.contains("95&nbsp;% interval"), "{card}");
    // What has nothing to show is named, and gets neither card nor chart.
    let (before, titles) = text.split_once("Not applicable to any run or step of this time: ").unwrap();
    assert!(titles.split_once(".</p>").unwrap().0.contains("Request to tool") && !before.contains("Request to tool"));
    let (_, titles) = text.split_once("No score in this time, so no chart: ").unwrap();
    assert!(titles.split_once(".</p>").unwrap().0.contains("Task completion"), "{titles}");
    let is_charted = |title: &str| text.contains(&format!("<figcaption><h3><bdi>{title}"));
    assert!(!is_charted("Task completion") && is_charted("Call validity"), "{text}");
    // What is looked at goes on to the list: the project, and the time.
    assert!(card.contains("/traces?project=shop&#38;from=") && card.contains("&#38;wrong=call_validity"), "{card}");
    let all = page(&server, "/?project=shop&agent=librarian&model=gpt-4o&range=all");
    let link = "/traces?project=shop&#38;agent=librarian&#38;model=gpt-4o&#38;wrong=call_validity";
    assert!(all.contains(link) && all.contains("Duration and cost per trajectory"), "{all}");
    let wrong = page(&server, &link.replace("&#38;", "&"));
    assert_eq!(wrong.matches("<tr data-id").count(), 1);
    // A row leads to what is wrong in it.
    assert!(wrong.contains(&format!("href=\"/traces/{}#step-1\"", trace_id(3))), "{wrong}");
    assert!(text.contains("Duration and cost per trajectory"), "{text}");
    let days = page(&server, "/?project=shop&from=2020-01-01&to=2020-01-31");
    assert!(days.contains("Nothing was graded in this time range.") && days.contains("Clear the days"), "{days}");
    let today = page(&server, "/?project=shop&from=2020-01-01");
    assert!(today.contains("2 of 3 right"), "{today}");
    assert!(text.contains("<option value=\"librarian\">librarian</option>"), "{text}");
    assert!(text.contains("Show me file 3 of the demo repository"), "{text}");
    let none = page(&server, "/?project=shop&agent=nobody&range=24h");
    assert!(
        none.contains("Nothing was graded in this time range.") && none.contains("value=\"nobody\" selected"),
        "{none}"
    );
    for wrong in ["range=1y", "from=soon", "from=2026-01-02&to=2026-01-01"] {
        let refused = server.request("GET", &format!("/?{wrong}")).header("accept", "text/html").send();
        assert_eq!(refused.status, 400, "{wrong}");
    }
    // Packed for who can unpack it.
    let packed = server.request("GET", "/").header("accept", "text/html").header("accept-encoding", "gzip").send();
    assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("gzip")));
    assert!(packed.body.len() * 3 < text.len(), "{} of {}", packed.body.len(), text.len());
}

#[test]
fn a_tools_row_leads_to_what_it_counts() {
    let (_lab, server) = filled();
    let text = page(&server, "/?project=shop&range=all");
    let links: Vec<String> = text
        .split("href=\"")
        .map(|part| part.split('"').next().unwrap().replace("&#38;", "&"))
        .filter(|href| href.contains("tool="))
        .collect();
    let [calls, invalid] = &links[..] else { panic!("{links:?}") };
    assert!(!calls.contains("wrong=") && invalid.contains("wrong=call_validity"), "{links:?}");
    let list = |path: &str| page(&server, path).matches("<tr data-id").count();
    assert_eq!((list(calls), list(invalid)), (3, 1));
    let row = page(&server, invalid);
    assert!(row.contains(&format!("href=\"/traces/{}#step-1\"", trace_id(3))), "{row}");
    assert_eq!(list(&invalid.replace("tool=", "tool=another_")), 0);
}

#[test]
fn a_clock_that_is_ahead_spoils_no_number() {
    let (_lab, server) = filled();
    let far = now_ns() + 70 * 365 * 86_400 * SECOND_NS;
    let wrong = json!({"file": 7}).to_string();
    server.export(&Visit { start_ns: far, arguments: wrong, ..Visit::new(9) }.export("shop"));
    server.assembled();
    for range in ["24h", "7d", "30d", "all"] {
        let text = page(&server, &format!("/?project=shop&range={range}"));
        assert!(text.contains("2 of 3 right") && text.contains("start in the future"), "{range}: {text}");
        // One period holds all that there is, and no year of the future stands at an axis.
        assert!(!text.contains(" 209") && !text.contains(">209"), "{range}: {text}");
        let ahead = text.split("href=\"").find(|part| part.contains(">1 trace</a>")).unwrap();
        let ahead = ahead.split('"').next().unwrap().replace("&#38;", "&");
        assert_eq!(page(&server, &ahead).matches("<tr data-id").count(), 1, "{ahead}");
        let wrong = text.split("href=\"").find(|part| part.contains("&#38;wrong=call_validity")).unwrap();
        let wrong = wrong.split('"').next().unwrap().replace("&#38;", "&");
        assert_eq!(page(&server, &wrong).matches("<tr data-id").count(), 1, "{wrong}");
    }
    assert!(page(&server, "/traces").contains(&trace_id(9)));
    assert!(!page(&server, "/?project=none").contains("start in the future"));
}

#[test]
fn two_runs_are_compared_trajectory_by_trajectory() {
    let (lab, server) = filled();
    let source = format!("gradus://{}/shop", server.http);
    let strict =
        Endpoint::start(Arc::new(|incoming: &gradus_test_endpoint::Incoming<'_>| incoming.verdict("incorrect")))
            .unwrap();
    let evaluator = ["-e", "thought_to_tool", "--quiet"];
    lab.run(&[&["eval", &source, "--judge", "offline"][..], &evaluator].concat()).exits_with(0);
    let url = strict.url();
    lab.run(&[&["eval", &source, "--judge", "gpt-4o", "--base-url", &url][..], &evaluator].concat()).exits_with(0);
    let runs = server.json("/api/v1/runs");
    let ids = kept_runs(&runs);
    assert_eq!(ids.len(), 2, "{runs}");
    // Both began within the same second: they are known by their judges.
    let by = |judge: &str| {
        let runs = runs["items"].as_array().unwrap();
        let run = runs.iter().find(|run| run["is_live"] == false && run["judge"] == judge);
        run.unwrap()["run_id"].as_str().unwrap().to_owned()
    };
    let (rules, model) = (by("offline"), by("openai:gpt-4o"));
    let list = page(&server, "/runs");
    assert!(ids.iter().all(|id| list.contains(&format!("/runs/{id}"))), "{list}");
    let text = page(&server, &format!("/compare?a={rules}&b={model}"));
    assert!(text.contains("Paired by run: the versions judged the same trajectories."), "{text}");
    assert!(text.contains("-100.0 points") && text.contains("Worse in B than in A: 3"), "{text}");
    // Each flip leads to the trajectory as either run judged it.
    for (run, label) in [(&rules, "correct"), (&model, "incorrect")] {
        let href = text.split("href=\"").find(|part| part.starts_with(&format!("/runs/{run}/trajectories/")));
        let href = href.unwrap().split('"').next().unwrap().replace("&#38;", "&");
        let shown = page(&server, href.split('#').next().unwrap());
        assert!(shown.contains(&format!("<bdi>Thought to tool</bdi>: <bdi>{label}</bdi>")), "{href}: {shown}");
        assert!(shown.contains("Open the trace") && !shown.contains("<form class=\"labelling\""), "{shown}");
    }
    assert!(page(&server, &format!("/runs/{model}")).contains("id=\"results\""));
    assert!(page(&server, &format!("/runs/{model}")).contains(&format!("/runs/{model}/trajectories/")));
    for (path, status) in [
        ("/compare", 400),
        ("/compare?a=x&b=y", 404),
        ("/runs/..%2F..%2Fetc", 404),
        (&*format!("/runs/{model}/trajectories/nobody"), 404),
        (&*format!("/runs/{model}/trajectories/%2E%2E"), 404),
        ("/runs/x/trajectories/y/text?part=query", 404),
        (&*format!("/traces/{}?trajectory=nobody", trace_id(3)), 404),
    ] {
        assert_eq!(server.request("GET", path).header("accept", "text/html").send().status, status, "{path}");
    }
}

#[test]
fn two_benches_are_compared_by_what_they_measure() {
    let lab = Lab::new();
    let server = lab.serve();
    for policy in ["oracle", "missing_parameter"] {
        lab.run(&["bench", "--policy", policy, "--tasks", "1-6", "--quiet"]).exits_with(0);
    }
    let runs = server.json("/api/v1/runs");
    let all = kept_runs(&runs);
    let [later, earlier] = all[..] else { panic!("{runs}") };
    let report = page(&server, &format!("/runs/{earlier}"));
    assert!(
        report.contains("table class=\"bench stacks\"") && report.contains("Judged by rules, not by a model."),
        "{report}"
    );
    assert!(page(&server, "/runs").contains("Tasks Done"));
    let text = page(&server, &format!("/compare?a={earlier}&b={later}"));
    assert!(text.contains("Paired by task"), "{text}");
    for measure in ["Tasks Done", "Safe Runs", "Clean Runs", "Done and Safe"] {
        assert!(text.contains(&format!("<th scope=\"row\"><bdi>{measure}</bdi></th>")), "{measure}: {text}");
    }
    // What was never sent here is looked at in its run, and its texts, too.
    let href = text.split("href=\"").find(|part| part.starts_with(&format!("/runs/{later}/trajectories/"))).unwrap();
    let path = href.split(['"', '#']).next().unwrap().replace("&#38;", "&");
    let shown = page(&server, &path);
    assert!(shown.contains("Verdicts of this run.") && !shown.contains("Open the trace"), "{shown}");
    let query = server.get(&format!("{}/text?part=query", path.split('?').next().unwrap()));
    assert_eq!((query.status, query.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert!(!query.text().is_empty());
}

/// The ids of runs that are not live.
fn kept_runs(runs: &serde_json::Value) -> Vec<&str> {
    let all = runs["items"].as_array().unwrap().iter();
    all.filter(|run| run["is_live"] == false).map(|run| run["run_id"].as_str().unwrap()).collect()
}

/// What stands between two texts, from the first of them on.
fn text_between(text: &str, before: &str, behind: &str) -> String {
    let (_, rest) = text.split_once(before).unwrap();
    rest.split_once(behind).unwrap().0.to_owned()
}
