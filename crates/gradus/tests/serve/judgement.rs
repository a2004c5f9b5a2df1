//! What people say of verdicts and what that is worth: labels, agreement, runs beside each other, rubrics that are tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gradus_test_endpoint::{Endpoint, Incoming};
use serde_json::json;

use crate::lab::{Lab, Server, eventually, json_lines};
use crate::pages::{filled, page, post};
use crate::spans::{Visit, trace_id};

fn trajectory(server: &Server, trace: u128) -> String {
    server.trace(&trace_id(trace))["trajectories"][0]["trajectory_id"].as_str().unwrap().to_owned()
}

/// Signs in; what the browser is to keep.
fn sign_in(server: &Server, key: &str) -> String {
    let reply = post(server, "/sign-in", &format!("key={key}&next=/"));
    assert_eq!(reply.status, 303, "{}", reply.text());
    reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

#[test]
fn labels_without_number_are_counted_in_one_go_and_all_of_them_are_exported() {
    let (_lab, server) = filled();
    let target = format!("trajectory:{}#1", trajectory(&server, 3));
    for part in 0..2 {
        let items: Vec<_> = (0..1_000)
            .map(|at| {
                let name = format!("{part}-{at}");
                json!({"target": target, "name": "call_validity", "identifier": name, "author": name, "label": name})
            })
            .collect();
        let reply = server.request("POST", "/api/v1/annotations").json(&json!({"items": items})).send();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for path in ["/agreement", "/review"] {
        let text = page(&server, path);
        assert!(text.len() < 100_000 && text.contains("0 of 2,000"), "{path}: {}", text.len());
    }
    assert!(page(&server, "/agreement").contains("<th scope=\"row\"><bdi>other</bdi></th>"));
    let lines = json_lines(&server.get("/labels?project=shop").body);
    assert_eq!((lines.len(), &lines[1_999]["label"]), (2_000, &json!("1-999")));
    assert_eq!(server.get("/labels?format=csv").text().lines().count(), 2_001);
}

#[test]
fn a_judge_that_only_said_one_thing_has_a_share_of_agreement_and_no_kappa() {
    let (_lab, server) = filled();
    let label = |trace: u128, label: &str| {
        let fields = format!(
            "trajectory={}&step=1&evaluator=call_validity&label={label}&author=ann&back=/",
            trajectory(&server, trace)
        );
        assert_eq!(post(&server, "/labels", &fields).status, 303);
    };
    label(3, "incorrect");
    let text = page(&server, "/agreement");
    assert!(text.contains("only one label has been used") && text.contains("1 of 1"), "{text}");
    label(1, "correct");
    assert!(page(&server, "/review").contains("data-kappa"), "both gave both labels");
    // Right ones come, too, unless somebody wants it otherwise.
    let forms = |path: &str| {
        let text = page(&server, path);
        text.matches("review-verdict ok").count() + 10 * text.matches("review-verdict fail").count()
    };
    assert_eq!(forms("/review?evaluator=call_validity&after="), 10);
    let skip = page(&server, "/review?evaluator=call_validity");
    let next = skip.split("data-skip").next().unwrap().rsplit("href=\"").next().unwrap();
    assert_eq!(forms(&next.split('"').next().unwrap().replace("&#38;", "&")), 1);
    assert_eq!(forms("/review?evaluator=call_validity&which=wrong"), 10);
    assert!(skip.contains("The tool cannot take this call."), "{skip}");
    let refused = server.request("GET", "/review?which=some").header("accept", "text/html").send();
    assert_eq!(refused.status, 400);
}

#[test]
fn what_could_not_be_judged_can_be_labelled() {
    let nonsense = Endpoint::start(Arc::new(|incoming: &Incoming<'_>| incoming.verdict("no label at all"))).unwrap();
    let rule = format!(
        "[[rule]]\njudge = \"gpt-4o\"\nevaluators = [\"thought_to_tool\"]\nbase_url = \"{}\"\n",
        nonsense.url()
    );
    let lab = Lab::with("", &rule);
    let server = lab.serve();
    server.export(&Visit::new(1).export("shop"));
    let text = eventually("a judge that cannot judge", || {
        let text = page(&server, "/review?which=failed");
        text.contains("could not be judged</bdi>").then_some(text)
    });
    assert!(text.contains("It is <bdi>correct</bdi>") && !text.contains("data-key=\"y\""), "{text}");
    // Keys are those that the hint names, and the form's first button gives no label.
    assert!(text.contains("data-key=\"2\">It is <bdi>incorrect</bdi>") && !text.contains("data-key=\"x\""), "{text}");
    assert!(text.contains("<kbd>1</kbd> to <kbd>2</kbd> label it"), "{text}");
    assert!(text.find("<button disabled hidden>") < text.find("name=\"label\""), "{text}");
    let fields = format!(
        "trajectory={}&step=1&evaluator=thought_to_tool&label=correct&author=ann&back=/",
        trajectory(&server, 1)
    );
    assert_eq!(post(&server, "/labels", &fields).status, 303);
    let lines = json_lines(&server.get("/labels").body);
    assert_eq!((&lines[0]["label"], &lines[0]["judge_label"]), (&json!("correct"), &json!(null)));
}

#[test]
fn a_name_that_redaction_takes_out_is_refused() {
    let lab = Lab::with("redact = [{ builtin = [\"emails\"] }]", "");
    let server = lab.serve();
    server.export(&Visit::new(1).export("shop"));
    server.assembled();
    let fields = |author: &str| {
        let id = trajectory(&server, 1);
        format!("trajectory={id}&step=1&evaluator=call_validity&label=correct&author={author}&back=/")
    };
    let refused = post(&server, "/labels", &fields("ann%40example.com"));
    assert!(refused.status == 400 && refused.text().contains("redaction"), "{}", refused.text());
    assert_eq!(refused.header("set-cookie"), None);
    assert_eq!(post(&server, "/labels", &fields("ann")).status, 303);
}

#[test]
fn a_key_that_may_only_label_is_shown_no_verdict() {
    let lab = Lab::with("require_key = true", "");
    let key = |name: &str, scopes: &str| {
        lab.run(&["keys", "add", name, "--scopes", scopes]).exits_with(0).out.trim().to_owned()
    };
    let (ann, bot) = (key("ann", "read,ingest"), key("bot", "ingest"));
    let server = lab.serve();
    let bearer = |request: crate::lab::Request, key: &str| request.header("authorization", &format!("Bearer {key}"));
    let sent = bearer(server.request("POST", "/v1/traces"), &ann).header("content-type", "application/x-protobuf");
    assert_eq!(sent.body(&Visit::new(1).export("shop")).send().status, 200);
    let id = eventually("the trajectory", || {
        let trace = bearer(server.request("GET", &format!("/api/v1/traces/{}", trace_id(1))), &ann).send().json();
        trace["outcomes"][0]["trajectory_id"].as_str().map(str::to_owned)
    });
    let send = |path: &str, fields: &str| {
        let origin = format!("http://{}", server.http);
        let request = bearer(server.request("POST", path), &bot).header("origin", &origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded").header("accept", "text/html");
        request.body(fields.as_bytes()).send()
    };
    let back = "/review?evaluator=call_validity";
    // Longer than what an address takes, so that undoing responds with a page.
    let note = "typed ".repeat(400);
    let fields = |more: &str| {
        format!("trajectory={id}&step=1&evaluator=call_validity&label=correct&note={note}&author=bot&back={back}{more}")
    };
    let tool = "read_file";
    assert!(bearer(server.request("GET", &format!("/traces/{}", trace_id(1))), &ann).send().text().contains(tool));
    let refused = send("/labels", &fields("&seen=00"));
    let text = refused.text();
    assert!(
        refused.status == 409 && text.contains("typed typed") && !text.contains(tool),
        "{}: {text}",
        refused.status
    );
    assert_eq!(send("/labels", &fields("")).status, 303);
    let stored = bearer(server.request("GET", "/api/v1/annotations?name=call_validity"), &ann).send().json();
    let (number, updated) = (&stored["items"][0]["id"], stored["items"][0]["updated"].as_str().unwrap());
    let updated = updated.parse::<jiff::Timestamp>().unwrap().as_nanosecond();
    let undone = send("/labels/undo", &format!("number={number}&updated={updated}&back={back}"));
    let text = undone.text();
    assert!(undone.status == 403 && text.contains("typed typed") && !text.contains(tool), "{}: {text}", undone.status);
    assert!(text.contains("The label was undone"), "{text}");
}

#[test]
fn with_keys_a_label_is_the_keys_whatever_name_it_gives() {
    let lab = Lab::with("require_key = true", "");
    let key =
        |name: &str| lab.run(&["keys", "add", name, "--scopes", "read,ingest"]).exits_with(0).out.trim().to_owned();
    let (ann, eve) = (key("ann"), key("eve"));
    let server = lab.serve();
    let export = Visit::new(1).export("shop");
    let bearer = |request: crate::lab::Request, key: &str| request.header("authorization", &format!("Bearer {key}"));
    let sent = bearer(server.request("POST", "/v1/traces"), &ann).header("content-type", "application/x-protobuf");
    assert_eq!(sent.body(&export).send().status, 200);
    let id = eventually("the trajectory", || {
        let trace = bearer(server.request("GET", &format!("/api/v1/traces/{}", trace_id(1))), &ann).send().json();
        // When it is complete, it is judged.
        trace["outcomes"][0]["trajectory_id"].as_str().map(str::to_owned)
    });
    let label = |cookie: &str, label: &str| {
        let origin = format!("http://{}", server.http);
        let request = server.request("POST", "/labels").header("cookie", cookie).header("origin", &origin);
        let fields = format!("trajectory={id}&step=1&evaluator=call_validity&label={label}&author=ann&back=/");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(fields.as_bytes()).send().status
    };
    let sessions = [sign_in(&server, &ann), sign_in(&server, &eve)];
    assert_eq!([label(&sessions[0], "correct"), label(&sessions[1], "incorrect")], [303, 303]);
    let say = |more: serde_json::Value| {
        let mut item = json!({"target": format!("trajectory:{id}#1"), "name": "call_validity", "label": "incorrect"});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = server.request("POST", "/api/v1/annotations");
        bearer(request, &eve).json(&json!({"items": [item]})).send()
    };
    // Whoever is counted, shown and exported is whose key it was.
    let look = |path: &str| {
        let request = server.request("GET", path).header("accept", "text/html");
        request.header("cookie", &sessions[0]).send().text()
    };
    let agreement = look("/agreement");
    assert!(agreement.contains("2 people") && agreement.contains("ann (key eve)"), "{agreement}");
    let trace = look(&format!("/traces/{}", trace_id(1)));
    assert!(trace.contains("ann (key eve)") && trace.contains("action=\"/labels\""), "{trace}");
    let exported = look("/labels");
    assert!(exported.contains("\"identifier\":\"ann\"") && exported.contains("\"identifier\":\"eve\""), "{exported}");
    let csv = look("/labels?format=csv");
    assert!(csv.contains(",author,identifier,") && csv.contains(",ann,eve,"), "{csv}");
    assert_eq!(say(json!({"author": "ann"})).status, 200);
    assert_eq!(say(json!({"identifier": "second look"})).status, 200);
    let forged = say(json!({"identifier": "ann"}));
    assert!(forged.status == 403 && forged.error().contains("another key"), "{}", forged.text());
    // Nor through Phoenix's routes, nor under a name that only looks the same.
    for name in ["ann", "Ann ", "an\u{200b}n"] {
        let row = json!({"trace_id": trace_id(1), "name": "call_validity", "annotator_kind": "HUMAN", "identifier": name,
            "result": {"label": "incorrect"}});
        let request = server.request("POST", "/v1/trace_annotations?sync=true");
        let forged = bearer(request, &eve).json(&json!({"data": [row]})).send();
        assert!(forged.status == 403 && forged.text().contains("another key"), "{name:?}: {}", forged.text());
    }
    let all = bearer(server.request("GET", "/api/v1/annotations"), &ann).send().json();
    let mut labels: Vec<_> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["identifier"].as_str().unwrap(), one["label"].as_str().unwrap()))
        .collect();
    labels.sort_unstable();
    assert_eq!(labels, [("ann", "correct"), ("eve", "incorrect"), ("second look", "incorrect")]);
    // Whatever names a client gives, the key that it used is told.
    let said = json!({"identifier": "third", "author": "ann", "metadata": {"gradus_key": "ann", "why": 1}});
    assert_eq!(say(said).status, 200);
    let all = bearer(server.request("GET", "/api/v1/annotations"), &ann).send().json();
    let third = all["items"].as_array().unwrap().iter().find(|one| one["identifier"] == "third").unwrap();
    assert_eq!((&third["author"], &third["key"]), (&json!("ann"), &json!("eve")));
    assert_eq!(third["metadata"], json!({"why": 1}));
    let exported: Vec<serde_json::Value> =
        look("/labels").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let key = |identifier: &str| {
        exported.iter().find(|one| one["identifier"] == identifier).unwrap()["key"].as_str().unwrap().to_owned()
    };
    assert_eq!([key("third"), key("ann"), key("eve")], ["eve", "ann", "eve"]);
    assert!(look("/labels?format=csv").contains(",ann,third,eve,"));
    assert!(look(&format!("/traces/{}", trace_id(1))).contains("ann (third, key eve)"));
}

#[test]
fn whoever_signs_in_shows_no_key_and_guessing_is_not_for_free() {
    let lab = Lab::with("require_key = true\nrequests_per_second = 2", "");
    let key = lab.run(&["keys", "add", "ann", "--scopes", "read"]).exits_with(0).out.trim().to_owned();
    let server = lab.serve();
    assert_eq!(post(&server, "/sign-in", "key=gradus_wrong").status, 401);
    let cookie = sign_in(&server, &key);
    assert!(cookie.starts_with("gradus_session=") && !cookie.contains(&key[7..]), "{cookie}");
    let looks =
        |cookie: &str| server.request("GET", "/alerts").header("accept", "text/html").header("cookie", cookie).send();
    assert_eq!(looks(&cookie).status, 200);
    // A key is no session.
    assert_eq!(looks(&format!("gradus_session={key}")).status, 401);
    let origin = format!("http://{}", server.http);
    let leave = server.request("POST", "/sign-out").header("cookie", &cookie).header("origin", &origin);
    assert_eq!(leave.send().status, 303);
    eventually("the session is over", || (looks(&cookie).status == 401).then_some(()));
    let tried: Vec<u16> = (0..20).map(|_| post(&server, "/sign-in", "key=gradus_wrong").status).collect();
    assert!(tried.contains(&429), "{tried:?}");
    let (_, log) = server.stop();
    let told = log.lines().find(|line| line.contains("request refused")).unwrap();
    assert!(told.contains("/sign-in") && !told.contains("gradus_wrong"), "{told}");
}

#[test]
fn whoever_has_to_sign_in_again_goes_back_to_where_he_was() {
    let lab = Lab::with("require_key = true", "");
    lab.run(&["keys", "add", "ann", "--scopes", "read"]).exits_with(0);
    let server = lab.serve();
    let from = format!("http://{}/review?project=shop", server.http);
    let origin = format!("http://{}", server.http);
    let request = server.request("POST", "/labels").header("origin", &origin).header("referer", &from);
    let reply = request.header("accept", "text/html").body(b"label=x").send();
    assert_eq!(reply.status, 401);
    assert!(reply.text().contains("name=\"next\" value=\"/review?project=shop\""), "{}", reply.text());
}

#[test]
fn tasks_that_were_run_again_are_compared_with_themselves() {
    let lab = Lab::new();
    let server = lab.serve();
    // Two trials of each of two tasks in either project; the second task goes wrong in the second.
    for (project, first) in [("v1", 10), ("v2", 20)] {
        for trial in 0..4 {
            let task = trial % 2;
            let wrong = project == "v2" && task == 1;
            let arguments = if wrong { json!({"file": 7}) } else { json!({"path": "x.md"}) };
            let query = format!("{} task {task}", "The same long beginning. ".repeat(20));
            let visit = Visit { query, arguments: arguments.to_string(), ..Visit::new(first + trial) };
            server.export(&visit.export(project));
        }
    }
    server.assembled();
    let run = |project: &str| {
        let source = format!("gradus://{}/{project}", server.http);
        let gate = ["--gate", "call_validity >= 0.9"];
        let ran = lab.run(&[&["eval", &source, "--judge", "offline", "--quiet"][..], &gate].concat());
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.err);
        let runs = server.json("/api/v1/runs");
        let known = runs["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|run| run["is_live"] == false && run["sources"].to_string().contains(&format!("/{project}")));
        known.unwrap()["run_id"].as_str().unwrap().to_owned()
    };
    let (old, new) = (run("v1"), run("v2"));
    let text = page(&server, &format!("/compare?a={old}&b={new}"));
    assert!(text.contains("Paired by task"), "{text}");
    let row = text.split("<tr>").find(|row| row.contains("Call validity")).unwrap();
    assert!(row.contains("-50.0 points") && row.contains("2 tasks"), "{row}");
    assert!(row.contains("INCONCLUSIVE"), "two tasks prove nothing: {row}");
    let compared = server.json(&format!("/api/v1/compare?a={old}&b={new}"));
    assert_eq!((&compared["pairing"], &compared["flips"][0]["worse_count"]), (&json!("task"), &json!(1)), "{compared}");
    assert_eq!(server.get("/api/v1/compare?a=x").status, 400);
    assert_eq!(server.get("/api/v1/compare?a=x&b=y").status, 404);
    let worse = text.split("id=\"h-worse\"").nth(1).unwrap().split("id=\"h-better\"").next().unwrap();
    let changed = worse.split("<tr>").find(|row| row.contains("Call validity")).unwrap();
    for trace in [11, 21] {
        let (one, other) = (trace_id(trace), trace_id(trace + 2));
        assert!(changed.contains(&one) || changed.contains(&other), "a link to either side: {changed}");
    }
    // A run's report has what it had to meet, and leads to its trajectories.
    let report = page(&server, &format!("/runs/{new}"));
    assert!(report.contains("call_validity &#62;= 0.9") && report.contains("badge fail"), "{report}");
    assert!(report.contains("/trajectories/"), "{report}");
    // Runs that have nothing in common are not said to have no changes.
    server.export(&Visit::new(30).export("v3"));
    server.assembled();
    let other = run("v3");
    let text = page(&server, &format!("/compare?a={old}&b={other}"));
    assert!(text.contains("Not paired") && text.contains("changed tasks cannot be listed"), "{text}");
    assert_eq!(page(&server, &format!("/runs?before={other}")).matches(&format!("/runs/{other}\"")).count(), 0);
}

/// A server with a rule that has a model for `judged-*`, and one without for the rest; how often the model was asked.
fn with_judge(more: &str) -> (Lab, Server, Endpoint, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let endpoint = Endpoint::start(Arc::new(move |incoming: &Incoming<'_>| {
        count.fetch_add(1, Ordering::Relaxed);
        incoming.verdict("incorrect")
    }))
    .unwrap();
    let rule = format!(
        "[[rule]]\nproject = \"judged-*\"\njudge = \"gpt-4o\"\nsample = 0.0\nbase_url = \"{}\"\n{more}\n[[rule]]\nname = \"rest\"\n",
        endpoint.url()
    );
    let lab = Lab::with("", &rule);
    let server = lab.serve();
    server.export(&Visit::new(1).export("judged-shop"));
    server.export(&Visit::new(2).export("secret"));
    server.assembled();
    (lab, server, endpoint, asked)
}

/// Tries the rubric, and looks at what came of it.
fn tried(server: &Server, id: &str, what: &str) -> String {
    let fields = format!("trajectory={id}&step=1&{what}");
    let reply = post(server, "/rubrics/thought_to_tool", &fields);
    assert_eq!(reply.status, 303, "{}", reply.text());
    reply.header("location").unwrap().split('#').next().unwrap().to_owned()
}

#[test]
fn a_rubric_is_tried_with_the_projects_own_judge_and_paid_by_its_rule() {
    let (_lab, server, _endpoint, asked) = with_judge("");
    let before = server.trace(&trace_id(1));
    let id = trajectory(&server, 1);
    let shown = page(&server, &format!("/rubrics/thought_to_tool?trajectory={id}&step=1"));
    assert!(shown.contains("I will read file 1.md") && shown.contains("Ask <bdi>openai:gpt-4o"), "{shown}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    let spent = || {
        let text = page(&server, "/server");
        text.split("<tr>").find(|row| row.contains("judged-*")).unwrap().to_owned()
    };
    let unspent = spent();
    let address = tried(&server, &id, "what=ask");
    // However often it is looked at.
    for _ in 0..2 {
        let text = page(&server, &address);
        assert!(text.contains("<bdi>incorrect</bdi>") && text.contains(" · not stored"), "{text}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
    assert_ne!(spent(), unspent);
    assert_eq!(server.trace(&trace_id(1))["outcomes"], before["outcomes"]);
    // What is of another project does not go to this one's provider: there, rules judge.
    let other = trajectory(&server, 2);
    let text = page(&server, &tried(&server, &other, "what=ask"));
    assert!(text.contains("by <bdi>rules</bdi>") && text.contains("free"), "{text}");
    let text = page(&server, &tried(&server, &other, "what=ask&text=nonsense"));
    assert!(text.contains("Invalid rubric"), "{text}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let wrong = page(&server, &format!("/rubrics/thought_to_tool?trajectory={id}&step=9"));
    assert!(wrong.contains("has no step 9"), "{wrong}");
    assert_eq!(server.request("GET", "/rubrics/none").header("accept", "text/html").send().status, 404);
}

const GRADED: &str = "+++\nname = \"helpful\"\ntitle = \"Helpful\"\nabout = \"How helpful is the step?\"\napplies_to = \"step\"\n\
                      requires = [\"thought\"]\n\n[labels]\ngood = 5\nfair = 3\nbad = 1\n+++\nIs the thought \"good\", \"fair\" or \"bad\"?\n\n\
                      {thought}\n";

#[test]
fn a_rubric_with_a_scale_of_its_own_has_an_interval_and_can_give_alarm() {
    let asked = AtomicUsize::new(0);
    let endpoint = Endpoint::start(Arc::new(move |incoming: &Incoming<'_>| {
        let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        incoming.verdict(if is_first { "good" } else { "fair" })
    }))
    .unwrap();
    let settings = |threshold: &str| {
        format!(
            "[eval]\nrubrics = [\"helpful.md\"]\n[[rule]]\njudge = \"gpt-4o\"\nbase_url = \"{}\"\n\
             evaluators = [\"helpful\"]\n[[alert]]\nname = \"help\"\nwhen = \"helpful < {threshold} over 1h\"\n",
            endpoint.url()
        )
    };
    let lab = Lab::with("", &settings("7"));
    lab.write("helpful.md", GRADED);
    let refused = lab.try_serve(&[]).err().unwrap();
    assert!(refused.contains("write a score from 1 to 5"), "{refused}");
    lab.configure("", &settings("4.5"));
    let server = lab.serve();
    for trace in 1..=4 {
        server.export(&Visit::new(trace).export("shop"));
    }
    let card = eventually("all are judged", || {
        let text = page(&server, "/?project=shop");
        let card = text.split("<li class=\"card\">").skip(1).find(|card| card.contains("Helpful"))?.to_owned();
        card.contains("mean score of 4 judged").then_some(card)
    });
    assert!(card.contains("3.50") && !card.contains("No interval"), "{card}");
    // As `gradus eval` says it of the same verdicts.
    let point = server.json("/api/v1/metrics?evaluator=helpful")["items"][0].clone();
    let clusters = [5.0, 3.0, 3.0, 3.0].map(|sum| gradus_stats::interval::ScoreCluster { count: 1.0, sum });
    let interval = gradus_stats::interval::clustered_interval(&clusters, 1.0, 5.0).unwrap();
    let near = |name: &str, wanted: f64| assert!((point[name].as_f64().unwrap() - wanted).abs() < 1e-9, "{point}");
    near("low", interval.low);
    near("high", interval.high);
    let shown = format!("{:.2}\u{a0}–\u{a0}{:.2}", interval.low, interval.high);
    assert!(card.contains(&shown), "{shown}: {card}");
    // Four trajectories prove nothing about the mean.
    let text = eventually("the alert is measured", || {
        Some(page(&server, "/alerts")).filter(|text| text.contains("which may be chance"))
    });
    assert!(!text.contains("</svg>firing"), "{text}");
    for trace in 5..=24 {
        server.export(&Visit::new(trace).export("shop"));
    }
    eventually("it fires", || page(&server, "/alerts").contains("</svg>firing").then_some(()));
    assert!(page(&server, "/alerts").contains("helpful &#60; 4.5 over 1h"));
}

#[test]
fn a_trial_holds_to_the_rules_budget() {
    let (_lab, server, _endpoint, asked) = with_judge("daily_budget_usd = 0.0");
    let text = page(&server, &tried(&server, &trajectory(&server, 1), "what=ask"));
    assert!(text.contains("today&#39;s budget"), "{text}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_rubric_is_changed_for_a_trial_and_loaded_down() {
    let (_lab, server, _endpoint, asked) = with_judge("");
    let id = trajectory(&server, 1);
    let text = page(&server, &format!("/rubrics/thought_to_tool?trajectory={id}&step=1"));
    let source = text.split("<textarea").nth(1).unwrap().split_once('>').unwrap().1.split("</textarea").next().unwrap();
    let source = source.replace("&#34;", "\"").replace("&#39;", "'").replace("&#60;", "<").replace("&#62;", ">");
    let changed = format!("{}\n\nAnd be kind, <b>always</b>.\n", source.replace("&#38;", "&").trim_end());
    let encoded: String = changed.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let shown = page(&server, &tried(&server, &id, &format!("what=show&text={encoded}")));
    let prompt = shown.split("System prompt").nth(1).unwrap();
    assert!(prompt.contains("And be kind, &#60;b&#62;always"), "{shown}");
    page(&server, &tried(&server, &id, &format!("what=ask&text={encoded}")));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let file = post(&server, "/rubrics/thought_to_tool", &format!("what=load&text={encoded}"));
    assert_eq!((file.status, file.text()), (200, changed));
    assert_eq!(file.header("content-disposition"), Some("attachment; filename=thought_to_tool.md"));
    // The server's own is as it was.
    assert!(!page(&server, "/rubrics/thought_to_tool").contains("And be kind"));
    assert!(page(&server, "/rubrics/thought_to_tool?trial=gone").contains("This trial has expired"));
}
