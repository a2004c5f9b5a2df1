//! Live grading: what comes over the wire gives the trajectories and verdicts that the same records give in a file, and
//! models are asked once, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Server, eventually, fixture, json_lines};
use crate::pages::page;
use crate::spans::{SECOND_NS, Visit, export, trace_id};

/// All trajectories that a server has, by their ids, and all verdicts on them.
fn found(server: &Server) -> (BTreeMap<String, Json>, Vec<Json>) {
    let (mut trajectories, mut outcomes) = (BTreeMap::new(), BTreeMap::new());
    let mut cursor = String::new();
    loop {
        let page = server.json(&format!("/api/v1/traces?limit=100{cursor}"));
        for trace in page["items"].as_array().unwrap() {
            let detail = server.trace(trace["trace_id"].as_str().unwrap());
            assert_eq!(detail["is_open"], false);
            for trajectory in detail["trajectories"].as_array().unwrap() {
                let id = trajectory["trajectory_id"].as_str().unwrap().to_owned();
                let before = trajectories.insert(id, trajectory.clone());
                assert!(before.is_none_or(|before| before == *trajectory), "one trajectory, two stories");
            }
            for outcome in detail["outcomes"].as_array().unwrap() {
                outcomes.insert(outcome_key(outcome), outcome.clone());
            }
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (trajectories, outcomes.into_values().collect()),
        }
    }
}

fn outcome_key(outcome: &Json) -> (String, String, u64) {
    let text = |name: &str| outcome[name].as_str().unwrap().to_owned();
    (text("trajectory_id"), text("evaluator"), outcome["step_index"].as_u64().unwrap_or(0))
}

#[test]
fn captures_give_what_their_files_give() {
    let steps = compare(&[
        "llamaindex-react",
        "langgraph-react",
        "plain-openai-oi",
        "openai-agents-responses",
        "agent-framework-events",
        "google-adk",
        "vercel-ai-openinference",
        "crewai-text-traceloop",
        "plain-openai-responses-chained-nosession",
    ]);
    assert!(steps > 50, "{steps} steps: the fixtures are not there");
}

/// Calls whose messages travel as log records are tied to each other by what those say.
#[test]
fn captures_with_messages_in_log_records_give_what_their_files_give() {
    assert!(compare(&["plain-openai-v2", "plain-openai-v2-latest"]) > 5);
}

/// Returns the number of steps that were compared.
fn compare(names: &[&str]) -> usize {
    let mut steps = 0;
    for name in names {
        let lab = Lab::new();
        let folder = fixture(name).display().to_string();
        let read = lab.run(&["traces", &folder, "--format", "jsonl"]).exits_with(0);
        let wanted: BTreeMap<String, Json> = json_lines(read.out.as_bytes())
            .into_iter()
            .map(|trajectory| (trajectory["trajectory_id"].as_str().unwrap().to_owned(), trajectory))
            .collect();
        lab.run(&["eval", &folder, "--judge", "offline", "--jsonl", "out.jsonl"]).exits_with(0);
        let mut judged = lab.lines("out.jsonl");
        judged.sort_by_key(outcome_key);
        let server = lab.serve();
        send_folder(&server, name);
        server.assembled();
        let (trajectories, mut outcomes) = found(&server);
        for (id, wanted) in &wanted {
            let got = trajectories.get(id);
            assert_eq!(got, Some(wanted), "{name}: {id}");
        }
        assert_eq!(trajectories.len(), wanted.len(), "{name}");
        for line in judged.iter_mut().chain(&mut outcomes) {
            line["run_id"] = Json::Null;
        }
        // The server knows it by the rules that it judges by; a file has the scale in its run.
        for line in &mut outcomes {
            let is_below = line["score"].as_f64().is_some_and(|score| score < 1.0);
            assert_eq!(line.as_object_mut().unwrap().remove("is_wrong"), Some(Json::Bool(is_below)), "{name}: {line}");
        }
        // Both lead to the spans of an outcome.
        for line in &judged {
            assert!(line["trace_id"].is_string() && line["span_ids"].is_array(), "{name}: {line}");
        }
        assert_eq!(outcomes, judged, "{name}");
        steps += wanted.values().map(|one| one["steps"].as_array().unwrap().len()).sum::<usize>();
        // What goes out again gives the same once more.
        let projects = server.json("/api/v1/projects");
        for (number, project) in projects["items"].as_array().unwrap().iter().enumerate() {
            let path = format!("/api/v1/projects/{}/otlp", project["name"].as_str().unwrap());
            std::fs::write(lab.path(&format!("again-{number}.bin")), server.get(&path).body).unwrap();
        }
        if let [_] = projects["items"].as_array().unwrap().as_slice() {
            let again = lab.run(&["traces", "again-0.bin", "--format", "jsonl"]).exits_with(0);
            assert_eq!(json_lines(again.out.as_bytes()).len(), wanted.len(), "{name}");
        }
    }
    steps
}

pub(crate) fn send_folder(server: &Server, name: &str) {
    for scenario in std::fs::read_dir(fixture(name)).unwrap() {
        let mut files: Vec<_> = std::fs::read_dir(scenario.unwrap().path()).unwrap().collect();
        files.sort_by_key(|file| file.as_ref().unwrap().file_name());
        for file in files {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "bin") {
                continue;
            }
            let is_log = path.file_name().unwrap().to_string_lossy().starts_with("logs");
            let bytes = std::fs::read(&path).unwrap();
            let mut request = server.request("POST", if is_log { "/v1/logs" } else { "/v1/traces" });
            if bytes.starts_with(&[0x1f, 0x8b]) {
                request = request.header("content-encoding", "gzip");
            }
            let kind = if bytes[0] == b'{' { "application/json" } else { "application/x-protobuf" };
            let reply = request.header("content-type", kind).body(&bytes).send();
            assert_eq!(reply.status, 200, "{}: {}", path.display(), reply.text());
        }
    }
}

#[test]
fn late_spans_cause_grading_anew() {
    let lab = Lab::new();
    let server = lab.serve();
    let visit = Visit::new(9);
    // The root comes first, and has ended: the trace looks complete.
    server.export(&export("p", vec![visit.root()]));
    server.assembled();
    server.export(&export("p", vec![visit.model_call(), visit.tool_call()]));
    server.assembled();
    let trace = server.trace(&trace_id(9));
    assert_eq!(trace["trajectories"][0]["steps"].as_array().unwrap().len(), 1);
    let before = trace["outcomes"].as_array().unwrap().len();
    assert!(before > 0);
    let mut late = Visit { tool: "delete_file".to_owned(), ..visit.clone() };
    late.thought = "Now I delete it.".to_owned();
    let mut spans = vec![late.model_call(), late.tool_call()];
    for (span, number) in spans.iter_mut().zip([4_u64, 5]) {
        span.span_id = (9_u64 << 8 | number).to_be_bytes().to_vec();
        span.start_time_unix_nano += SECOND_NS / 10;
        span.end_time_unix_nano += SECOND_NS / 10;
    }
    server.export(&export("p", spans));
    server.assembled();
    let trace = server.trace(&trace_id(9));
    let steps = trace["trajectories"][0]["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| &step["tool"]).collect::<Vec<_>>(), ["read_file", "delete_file"]);
    let outcomes = trace["outcomes"].as_array().unwrap();
    assert!(outcomes.len() > before);
    let is_invalid = |outcome: &&Json| outcome["evaluator"] == "call_validity" && outcome["step_index"] == 2;
    assert!(outcomes.iter().any(|outcome| is_invalid(&outcome)), "the late step is judged: {outcomes:?}");
    // Sums count every step once.
    let metrics = server.json("/api/v1/metrics?evaluator=call_validity");
    let point = &metrics["items"][0];
    let all = ["scored", "failed", "not_applicable"].map(|name| point[name].as_i64().unwrap());
    assert_eq!((all.iter().sum::<i64>(), &point["trajectories"]), (2, &json!(1)));
}

fn endpoint(script: impl Fn(&Incoming<'_>) -> Answer + Send + Sync + 'static) -> Endpoint {
    Endpoint::start(Arc::new(script)).unwrap()
}

/// One question a step, asked of a model.
fn rule(url: &str, more: &str) -> String {
    format!(
        "[judge]\nconcurrency = 2\n[[rule]]\nname = \"r\"\njudge = \"gpt-4o\"\nbase_url = \"{url}\"\n\
         evaluators = [\"thought_to_tool\", \"call_validity\"]\n{more}"
    )
}

fn model_outcomes(server: &Server) -> Vec<Json> {
    let (_, outcomes) = found(server);
    outcomes.into_iter().filter(|outcome| outcome["evaluator"] == "thought_to_tool").collect()
}

fn send_visits(server: &Server, numbers: impl Iterator<Item = u128>) {
    for number in numbers {
        server.export(&Visit::new(number).export("p"));
    }
}

#[test]
fn a_model_is_asked_once_and_its_cost_is_counted() {
    let lab = Lab::new();
    let endpoint =
        endpoint(|incoming| incoming.verdict(if incoming.contains("file 3.md") { "incorrect" } else { "correct" }));
    lab.configure("", &rule(&endpoint.url(), ""));
    let server = lab.serve();
    send_visits(&server, 1..=20);
    server.graded();
    let outcomes = model_outcomes(&server);
    assert_eq!((outcomes.len(), endpoint.received()), (20, 20));
    let wrong: Vec<&Json> = outcomes.iter().filter(|outcome| outcome["score"] == 0.0).collect();
    assert_eq!(wrong.len(), 1, "{outcomes:?}");
    assert_eq!((&wrong[0]["judge"], &wrong[0]["run_id"]), (&json!("openai:gpt-4o"), &json!("live-r")));
    assert_eq!(server.metric("gradus_judge_calls_total"), Some(20.0));
    let cost = server.metric("gradus_judge_cost_usd_total").unwrap();
    assert!((cost - 20.0 * 0.0014).abs() < 1e-6, "{cost}");
    assert_eq!(server.json("/api/v1/traces?label=thought_to_tool=incorrect")["items"].as_array().unwrap().len(), 1);
    // The same spans again, and a version that changes the trajectory and no question.
    send_visits(&server, 1..=20);
    let mut visit = Visit::new(3).root();
    visit.end_time_unix_nano += 5 * SECOND_NS;
    server.export(&export("p", vec![visit]));
    server.graded();
    assert_eq!(endpoint.received(), 20);
    let again = model_outcomes(&server);
    assert_eq!(again.len(), 20);
    assert_eq!(again.iter().filter(|outcome| outcome["score"] == 0.0).count(), 1);
    server.stop();
    // A restart has nothing to ask, either; nor has `gradus eval` of the same trajectories in the same folder.
    let server = lab.serve();
    server.graded();
    assert_eq!((model_outcomes(&server).len(), endpoint.received()), (20, 20));
    send_visits(&server, 21..=22);
    server.graded();
    assert_eq!((model_outcomes(&server).len(), endpoint.received()), (22, 22));
}

#[test]
fn a_killed_server_goes_on_with_what_was_pending() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(60)));
    lab.configure("", &rule(&endpoint.url(), ""));
    let mut server = lab.serve();
    send_visits(&server, 1..=40);
    let mut kills = 0;
    for wanted in [6, 14, 23] {
        eventually("some are asked", || (endpoint.received() >= wanted).then_some(()));
        server.kill();
        kills += 1;
        server = lab.serve();
    }
    server.graded();
    let outcomes = model_outcomes(&server);
    assert_eq!(outcomes.len(), 40);
    assert!(outcomes.iter().all(|outcome| outcome["outcome"] == "scored"), "{outcomes:?}");
    // Only what was in flight when it died is asked again.
    assert!(endpoint.received() <= 40 + 2 * kills, "{} calls", endpoint.received());
    assert_eq!(server.stop().0, Some(0));
    lab.run(&["store", "check"]).exits_with(0);
}

#[test]
fn an_orderly_end_waits_for_what_was_asked() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(80)));
    lab.configure("", &rule(&endpoint.url(), ""));
    let server = lab.serve();
    send_visits(&server, 1..=20);
    eventually("some are asked", || (endpoint.received() >= 5).then_some(()));
    assert_eq!(server.stop().0, Some(0));
    assert!(endpoint.received() < 20, "it ended in the middle");
    let server = lab.serve();
    server.graded();
    assert_eq!((model_outcomes(&server).len(), endpoint.received()), (20, 20));
}

#[test]
fn a_share_is_judged_and_every_error() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct"));
    lab.configure("", &rule(&endpoint.url(), "sample = 0.0"));
    let server = lab.serve();
    send_visits(&server, 1..=10);
    for number in [11, 12] {
        server.export(&Visit { is_error: true, ..Visit::new(number) }.export("p"));
    }
    server.graded();
    let judged: Vec<Json> = model_outcomes(&server);
    assert_eq!((judged.len(), endpoint.received()), (2, 2));
    server.stop();
    lab.configure("", &rule(&endpoint.url(), "sample = 0.5\nerrors = false"));
    let server = lab.serve();
    for number in 101..=160 {
        server.export(&Visit { is_error: number > 150, ..Visit::new(number) }.export("p"));
    }
    server.graded();
    let asked = endpoint.received() - 2;
    assert!((15..=45).contains(&asked), "{asked} of 60");
    let all = server.json("/api/v1/projects")["items"][0]["trajectories"].as_i64().unwrap();
    assert_eq!(all, 72, "those that are not judged are kept all the same");
}

#[test]
fn a_days_budget_ends_the_asking() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct"));
    // A question costs $0.0014, and could cost thirty times that: nothing is asked that could go over the budget.
    lab.configure("", &rule(&endpoint.url(), "daily_budget_usd = 0.06"));
    let server = lab.serve();
    send_visits(&server, 1..=30);
    eventually("it is told", || server.log().contains("budget exhausted").then_some(()));
    server.assembled();
    let asked = endpoint.received();
    assert!((2..=25).contains(&asked), "{asked}");
    let shown = page(&server, "/server");
    assert!(shown.contains("paused since") && shown.contains("healthy</span>"), "{shown}");
    assert!(page(&server, "/?project=p").contains("Judging is paused"));
    let waiting = server.metric("gradus_trajectories_ungraded").unwrap();
    assert!(waiting >= 5.0, "{waiting}");
    // What rules can say is said of all.
    let metrics = server.json("/api/v1/metrics?evaluator=call_validity");
    assert_eq!(metrics["items"][0]["scored"], 30, "{metrics}");
    server.stop();
    // A restart does not make money.
    let server = lab.serve();
    eventually("it is told again", || server.log().contains("budget exhausted").then_some(()));
    assert!(endpoint.received() <= asked + 1, "{} after {asked}", endpoint.received());
    // Who gives more has the rest judged.
    lab.configure("", &rule(&endpoint.url(), "daily_budget_usd = 10.0"));
    server.signal(Signal::HUP);
    server.graded();
    assert_eq!((model_outcomes(&server).len(), endpoint.received()), (30, 30));
    assert!(!page(&server, "/server").contains("paused since"));
}

/// An endpoint that does not say what it used: the most that a question can have cost counts, over restarts, too.
#[test]
fn a_days_budget_holds_where_no_usage_is_reported() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| match incoming.verdict("correct") {
        Answer::Reply { status, headers, body } => {
            let mut body: Json = serde_json::from_str(&body).unwrap();
            body.as_object_mut().unwrap().remove("usage").unwrap();
            Answer::Reply { status, headers, body: body.to_string() }
        }
        other => other,
    });
    lab.configure("", &rule(&endpoint.url(), "daily_budget_usd = 0.3"));
    let mut asked = 0;
    for round in 0..3 {
        let server = lab.serve();
        send_visits(&server, round * 30 + 1..=round * 30 + 30);
        eventually("it is told", || server.log().contains("budget exhausted").then_some(()));
        server.assembled();
        if round == 0 {
            asked = endpoint.received();
            assert!((2..=25).contains(&asked), "{asked}");
        }
        assert_eq!(endpoint.received(), asked, "a restart does not make money");
        assert_eq!(server.stop().0, Some(0));
    }
}

/// A store that takes nothing for a while loses no verdict, and forgets no money.
#[test]
fn a_store_that_takes_nothing_loses_no_verdict_and_no_cost() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(300)));
    lab.configure("", &rule(&endpoint.url(), ""));
    let server = lab.serve();
    send_visits(&server, 1..=12);
    eventually("some are asked", || (endpoint.received() >= 3).then_some(()));
    // The store waits for five seconds and then gives up on what it was given.
    let sql = lab.sql();
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();
    eventually("it is told", || server.log().contains("failed to store verdicts").then_some(()));
    sql.execute_batch("ROLLBACK").unwrap();
    server.graded();
    assert_eq!((model_outcomes(&server).len(), endpoint.received()), (12, 12));
    let spend = "SELECT sum(calls), sum(cost_usd) FROM spend";
    let (calls, cost): (i64, f64) = sql.query_row(spend, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert!(calls == 12 && (cost - 12.0 * 0.0014).abs() < 1e-6, "{calls} calls, ${cost}");
}

#[test]
fn a_dead_endpoint_stops_nothing_else() {
    let lab = Lab::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    lab.configure("", &rule(&format!("http://127.0.0.1:{port}/v1"), ""));
    let server = lab.serve();
    send_visits(&server, 1..=10);
    eventually("the judge is dead", || server.log().contains("the judge is unavailable").then_some(()));
    send_visits(&server, 11..=20);
    server.assembled();
    let metrics = server.json("/api/v1/metrics?evaluator=call_validity");
    assert_eq!(metrics["items"][0]["scored"], 20, "{metrics}");
    assert_eq!(server.get("/readyz").status, 200);
    let shown = page(&server, "/server");
    assert!(shown.contains("failing since") && shown.contains("needs attention"), "{shown}");
    let endpoint = Endpoint::start_on(port, Arc::new(|incoming| incoming.verdict("correct"))).unwrap();
    server.graded();
    let outcomes = model_outcomes(&server);
    assert_eq!((outcomes.len(), endpoint.received()), (20, 20));
    assert!(outcomes.iter().all(|outcome| outcome["outcome"] == "scored"), "{outcomes:?}");
    assert!(page(&server, "/server").contains("healthy</span>"));
}

#[test]
fn what_nobody_knows_the_price_of_is_not_free() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct"));
    lab.configure("", &rule(&endpoint.url(), "").replace("gpt-4o", "openai:mystery"));
    let server = lab.serve();
    send_visits(&server, 1..=3);
    server.graded();
    for path in ["/server", "/?project=p", "/?range=all"] {
        let shown = page(&server, path);
        assert!(shown.contains("price not known (3 calls)"), "{path}: {shown}");
    }
    assert_eq!(server.metric("gradus_judge_unpriced_calls_total"), Some(3.0));
    assert_eq!(server.metric("gradus_judge_cost_usd_total"), Some(0.0));
}

/// Rules that come and go: what waits is judged by the rule that its project has now.
#[test]
fn what_waits_follows_the_rules() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct"));
    let with = |project: &str, more: &str| {
        rule(&endpoint.url(), more)
            .replace("name = \"r\"", &format!("project = \"{project}\""))
            .replace("[judge]\nconcurrency = 2\n", "")
    };
    // No money: everything waits.
    lab.configure("", &with("*", "daily_budget_usd = 0.0"));
    let server = lab.serve();
    send_visits(&server, 1..=5);
    for number in 6..=8 {
        server.export(&Visit::new(number).export("other"));
    }
    server.assembled();
    assert_eq!(server.metric("gradus_trajectories_ungraded"), Some(8.0));
    // One above it that takes a project, and none for the rest.
    lab.configure("", &with("p", ""));
    server.signal(Signal::HUP);
    server.graded();
    assert_eq!((model_outcomes(&server).len(), endpoint.received()), (5, 5));
}

#[test]
fn rules_that_cannot_be_told_apart_are_refused() {
    let lab = Lab::new();
    let twice = "[[rule]]\nproject = \"shop-*\"\n[[rule]]\nproject = \"shop-*\"\nsample = 0.5\n";
    lab.configure("", twice);
    let ran = lab.serve_in_vain(&[]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("two rules are called \"shop-*\""), "{}", ran.err);
    let alert = "[[alert]]\nname = \"a\"\nwhen = \"error_rate > 0.1 over 1h\"\n";
    lab.configure("", &alert.repeat(2));
    let ran = lab.serve_in_vain(&[]);
    assert!(ran.err.contains("two alerts are called \"a\"") && ran.err.lines().count() == 1, "{}", ran.err);
    lab.configure("", "[[alert]]\nname = \"a\"\nwhen = \"sequence_optimality < 0.5 over 1h, at least 9 steps\"\n");
    let ran = lab.serve_in_vain(&[]);
    assert!(ran.err.contains("a number of trajectories") && ran.err.lines().count() == 1, "{}", ran.err);
}

/// A judge that is gone for longer than anybody asks again: its questions wait.
#[test]
fn an_outage_costs_no_question_its_answer() {
    let lab = Lab::new();
    let is_down = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switch = Arc::clone(&is_down);
    let endpoint = endpoint(move |incoming| match switch.load(std::sync::atomic::Ordering::Relaxed) {
        // Not worth asking again at once, so that an outage takes little time here.
        true => Answer::status(503, "{}").with_header("retry-after", "0"),
        false => incoming.verdict("correct"),
    });
    lab.configure("", &rule(&endpoint.url(), ""));
    let server = lab.serve();
    send_visits(&server, 1..=1);
    server.graded();
    is_down.store(true, std::sync::atomic::Ordering::Relaxed);
    send_visits(&server, 2..=4);
    let sql = lab.sql();
    // Five times as long as it takes to use up all attempts; hours pass at once.
    for round in 1..=5 {
        eventually("all were asked in vain", || {
            let count = "SELECT count(*) FROM ungraded WHERE delays >= ?";
            (sql.query_row(count, [round], |row| row.get::<_, i64>(0)).unwrap() == 3).then_some(())
        });
        let used: i64 = sql.query_row("SELECT sum(attempts) FROM ungraded", [], |row| row.get(0)).unwrap();
        assert_eq!(used, 0);
        sql.execute("UPDATE ungraded SET not_before_ns = 0", []).unwrap();
    }
    is_down.store(false, std::sync::atomic::Ordering::Relaxed);
    sql.execute("UPDATE ungraded SET not_before_ns = 0", []).unwrap();
    server.graded();
    let outcomes = model_outcomes(&server);
    assert_eq!(outcomes.len(), 4);
    assert!(outcomes.iter().all(|outcome| outcome["outcome"] == "scored"), "{outcomes:?}");
}

/// One trace that cannot be read keeps nobody else from being graded, and is graded itself when it can be and someone
/// asks for it.
#[test]
fn an_unreadable_trace_is_quarantined() {
    let lab = Lab::new();
    // Nothing is complete yet when it stops.
    lab.write("gradus.toml", "[serve]\nquiet_s = 600\n");
    let server = lab.serve();
    send_visits(&server, 1..=6);
    server.stop();
    let body = damage(&lab, 1, &[0; 40]);
    lab.configure("", "");
    let server = lab.serve();
    eventually("all others are assembled", || (server.metric("gradus_traces_due")? == 0.0).then_some(()));
    let scored = server.json("/api/v1/metrics?evaluator=call_validity")["items"][0]["scored"].clone();
    assert_eq!(scored, 5);
    assert_eq!(server.metric("gradus_traces_quarantined"), Some(1.0));
    assert_eq!(server.metric(r#"gradus_assembly_setbacks_total{reason="unreadable"}"#), Some(2.0));
    eventually("the log says so", || server.log().contains("is quarantined").then_some(()));
    send_visits(&server, 11..=13);
    eventually("what comes is graded", || {
        let metrics = server.json("/api/v1/metrics?evaluator=call_validity");
        (metrics["items"][0]["scored"] == 8).then_some(())
    });
    damage(&lab, 1, &body);
    // As the page's form sends it.
    let retry = server.request("POST", "/server/retry").header("content-type", "application/x-www-form-urlencoded");
    let retry = retry.header("origin", &format!("http://{}", server.http));
    assert_eq!(retry.body(format!("trace={}", trace_id(1)).as_bytes()).send().status, 303);
    server.assembled();
    assert_eq!(server.metric("gradus_traces_quarantined"), Some(0.0));
    assert_eq!(server.trace(&trace_id(1))["trajectories"].as_array().unwrap().len(), 1);
}

/// Puts something else in the place of a block of a trace; returns what was there.
fn damage(lab: &Lab, trace: u128, body: &[u8]) -> Vec<u8> {
    let sql = lab.sql();
    let id = trace.to_be_bytes();
    let block: i64 = sql
        .query_row(
            "SELECT max(block.no) FROM block JOIN trace ON trace.no = block.trace WHERE trace_id = ?",
            [&id[..]],
            |row| row.get(0),
        )
        .unwrap();
    let before = sql.query_row("SELECT body FROM block WHERE no = ?", [block], |row| row.get(0)).unwrap();
    assert_eq!(sql.execute("UPDATE block SET body = ? WHERE no = ?", (body, block)).unwrap(), 1);
    before
}

/// New settings do not ask what the old ones have asked already.
#[test]
fn reading_the_settings_again_asks_nothing_twice() {
    let lab = Lab::new();
    let endpoint = endpoint(|incoming| incoming.verdict("correct").after(Duration::from_millis(100)));
    lab.configure("", &rule(&endpoint.url(), ""));
    let server = lab.serve();
    send_visits(&server, 1..=20);
    for asked in [4, 8, 12] {
        eventually("some are asked", || (endpoint.received() >= asked).then_some(()));
        server.signal(Signal::HUP);
    }
    server.graded();
    assert_eq!((model_outcomes(&server).len(), endpoint.received()), (20, 20));
}
