//! How far a judge of live traffic can be trusted: blind random samples, corrected numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gradus_test_endpoint::{Endpoint, Incoming};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::lab::{Lab, Reply, Server, eventually, json_lines};
use crate::pages::{page, post};
use crate::spans::Visit;

const VISITS: u128 = 40;
/// What the scripted judge says of every case.
const EXPLANATION: &str = "The call does what the thought sets out to do";

/// The number of the file that a question is about.
fn file_number(incoming: &Incoming<'_>) -> u32 {
    let text = String::from_utf8_lossy(incoming.body);
    let at = text.rfind("I will read file ").unwrap() + "I will read file ".len();
    text[at..].split('.').next().unwrap().parse().unwrap()
}

fn is_right(number: u32) -> bool {
    number.is_multiple_of(2)
}

/// A judge that calls 40 % of the wrong ones right.
fn lenient_judge() -> Endpoint {
    Endpoint::start(Arc::new(|incoming: &Incoming<'_>| {
        let number = file_number(incoming);
        incoming.verdict(if is_right(number) || number % 10 < 4 { "correct" } else { "incorrect" })
    }))
    .unwrap()
}

fn rule(judge: &Endpoint) -> String {
    format!("[[rule]]\njudge = \"gpt-4o\"\nevaluators = [\"thought_to_tool\"]\nbase_url = \"{}\"\n", judge.url())
}

/// The value of a hidden field of the label form.
fn field(page: &str, name: &str) -> String {
    let page = page.split("action=\"/labels\"").nth(1).unwrap_or(page);
    let at = page.find(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name} in {page}"));
    let value = page[at..].split('"').nth(3).unwrap();
    value.replace("&#38;", "&")
}

/// Sends the label form of a page.
fn label(server: &Server, page: &str, label: &str) -> Reply {
    let fields: Vec<String> = ["trajectory", "step", "evaluator", "seen", "back", "draw"]
        .map(|name| format!("{name}={}", utf8_percent_encode(&field(page, name), NON_ALPHANUMERIC)))
        .into();
    post(server, "/labels", &format!("{}&label={label}&author=ann", fields.join("&")))
}

/// Labels the case that the page shows as it is, and gives the page that follows.
fn label_truly(server: &Server, text: &str) -> String {
    let at = text.find("I will read file ").unwrap() + "I will read file ".len();
    let number: u32 = text[at..].split('.').next().unwrap().parse().unwrap();
    let reply = label(server, text, if is_right(number) { "correct" } else { "incorrect" });
    assert_eq!(reply.status, 303, "{}", reply.text());
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let next = reply.header("location").unwrap().to_owned();
    server.request("GET", &next).header("accept", "text/html").header("cookie", &cookie).send().text()
}

/// The first rule that matches a project grades it; a later one for all projects does not make two judges of it.
#[test]
fn a_later_rule_does_not_stop_a_sample() {
    let judge = lenient_judge();
    let others = "[[rule]]\nname = \"others\"\njudge = \"offline\"\nevaluators = [\"thought_to_tool\"]\n";
    let lab = Lab::with("", &format!("{}project = \"shop\"\n{others}", rule(&judge)));
    let server = lab.serve();
    for trace in 1..=4 {
        server.export(&Visit::new(trace).export("shop"));
    }
    eventually("a sample of the model's verdicts", || {
        let text = page(&server, "/review?which=sample&evaluator=thought_to_tool&project=shop");
        text.contains("Random sample of 4 verdicts").then_some(())
    });
}

#[test]
fn a_blind_sample_of_live_traffic_calibrates_its_judge() {
    let judge = lenient_judge();
    let lab = Lab::with("", &rule(&judge));
    let server = lab.serve();
    for trace in 1..=VISITS {
        server.export(&Visit::new(trace).export("shop"));
    }
    // The sample ends before the present second, so that everybody draws from the same verdicts.
    let first = eventually("all verdicts in the sample", || {
        let text = page(&server, "/review?which=sample&evaluator=thought_to_tool");
        text.contains(&format!("Random sample of {VISITS} verdicts")).then_some(text)
    });
    for hidden in [EXPLANATION, "review-verdict pass", "review-verdict fail", "data-key=\"y\"", "in its trace"] {
        assert!(!first.contains(hidden), "{hidden:?} in {first}");
    }
    assert_eq!(field(&first, "seen"), "");
    assert!(page(&server, "/").contains("uncalibrated"), "a model judged, and nobody has checked it");
    // Who cannot decide says so, and sees the verdict as well.
    let reply = label(&server, &first, "undecided");
    assert_eq!(reply.status, 303, "{}", reply.text());
    let forged =
        label(&server, &first.replace("name=\"draw\" value=\"uniform", "name=\"draw\" value=\"active"), "correct");
    assert_eq!(forged.status, 400, "{}", forged.text());
    let mut text = label_truly(&server, &first);
    assert!(text.contains("data-revealed") && text.contains("You said") && text.contains(EXPLANATION), "{text}");
    assert!(text.contains("You have labelled 1."), "{text}");
    for labelled in 2..=VISITS {
        text = label_truly(&server, &text);
        assert!(text.contains(&format!("You have labelled {labelled}.")), "{text}");
    }
    assert!(text.contains("Nothing is left to look at"), "{text}");

    let exported = server.get("/labels").body;
    let lines = json_lines(&exported);
    assert_eq!(lines.len(), VISITS as usize);
    for line in &lines {
        let sample = &line["sample"];
        assert_eq!(
            (&sample["sampling"], &sample["population"]["judged"]),
            (&"uniform".into(), &(VISITS as u64).into())
        );
        let position = sample["position"].as_u64().unwrap();
        let probability = (position + 1) as f64 / VISITS as f64;
        assert!((sample["probability"].as_f64().unwrap() - probability).abs() < 1e-12, "{sample}");
        // The first one was labelled twice, and its verdict had been shown.
        assert_eq!(sample["is_blind"], position != 0, "{sample}");
    }
    assert!(server.get("/labels?format=csv").text().starts_with("project,trace_id"));

    lab.write("labels.jsonl", &String::from_utf8(exported).unwrap());
    let ran =
        lab.run(&["judge", "calibrate", "-e", "thought_to_tool", "--review-sample", "labels.jsonl"]).exits_with(0);
    assert!(ran.out.contains("openai:gpt-4o on thought_to_tool: 39 labelled cases of 39 trajectories"), "{}", ran.out);
    drop(server);

    // The same traffic is the population that the labels were drawn from.
    lab.configure("calibration = [\"calibration.json\"]", &rule(&judge));
    let server = lab.serve();
    let text = page(&server, "/");
    // 20 or 19 of 39: which one was shown twice depends on the draw.
    let is_corrected = ["corrected 51.3 %", "corrected 48.7 %"].iter().any(|share| text.contains(share));
    assert!(is_corrected && text.contains("39 labels of 39 trajectories)"), "{text}");
    // More of it is not.
    for trace in VISITS + 1..VISITS + 11 {
        server.export(&Visit::new(trace).export("shop"));
    }
    eventually("another population", || {
        server.graded();
        page(&server, "/?range=24h").contains("(Rogan-Gladen, 39 labels").then_some(())
    });
    drop(server);
    let other = rule(&judge).replace("gpt-4o", "gpt-4.1");
    lab.configure("calibration = [\"calibration.json\"]", &other);
    let server = lab.serve();
    assert!(page(&server, "/").contains("uncalibrated: it is of the judge openai:gpt-4o, not openai:gpt-4.1"));
    lab.write("calibration.json", "{}");
    let ran = lab.serve_in_vain(&[]).exits_with(2);
    assert!(ran.err.contains("serve.calibration: calibration.json: no calibration"), "{}", ran.err);
}

#[test]
fn a_judge_that_answers_differently_is_noticed() {
    let has_moved = Arc::new(AtomicBool::new(false));
    let now_moved = Arc::clone(&has_moved);
    let judge = Endpoint::start(Arc::new(move |incoming: &Incoming<'_>| {
        let says_right = is_right(file_number(incoming)) || now_moved.load(Ordering::Relaxed);
        incoming.verdict(if says_right { "correct" } else { "incorrect" })
    }))
    .unwrap();
    let alert = "[[alert]]\nname = \"judge\"\nwhen = \"judge_drift over 1d\"\n";
    let lab = Lab::with("anchors = 20\nanchor_every = \"1s\"", &(rule(&judge) + alert));
    let server = lab.serve();
    for trace in 1..=VISITS {
        server.export(&Visit::new(trace).export("shop"));
    }
    let labels = "rule=\"default\",evaluator=\"thought_to_tool\",judge=\"openai:gpt-4o\"";
    let gauge = |name: &str| server.metric(&format!("gradus_{name}{{{labels}}}"));
    eventually("two rounds of the same judge", || (gauge("judge_anchor_rounds")? >= 2.0).then_some(()));
    assert_eq!((gauge("judge_anchor_changed_share"), gauge("judge_drift")), (Some(0.0), Some(0.0)));
    let alerts = || server.json("/api/v1/alerts");
    assert_eq!(alerts()["events"].as_array().unwrap().len(), 0);
    assert!(page(&server, "/server").contains("0 of 20 answers changed (0 of 20 when they were first repeated)"));
    has_moved.store(true, Ordering::Relaxed);
    let event = eventually("the alert", || alerts()["events"].get(0).cloned());
    assert_eq!((&event["kind"], &event["notice"]["subject"]), (&"fired".into(), &"judge_drift".into()));
    let told = event["notice"]["unseen"][0].as_str().unwrap();
    assert!(told.starts_with("thought_to_tool by openai:gpt-4o: ") && told.contains("of 20 answers changed"), "{told}");
    assert!(page(&server, "/server").contains("<span class=\"error-word\">moved</span>"));
    assert_eq!(gauge("judge_drift"), Some(1.0));
    has_moved.store(false, Ordering::Relaxed);
    eventually("it is over", || (alerts()["events"][0]["kind"] == "resolved").then_some(()));
    // Anchors are charged to the rule and nothing of them is a verdict.
    let count = "SELECT count(*) FROM outcome WHERE evaluator = 'thought_to_tool' AND kind = 0";
    assert_eq!(lab.sql().query_row(count, [], |row| row.get(0)), Ok(VISITS as i64));
}
