//! What is read, and what of it.

use gradus_test_endpoint::Answer;

use crate::lab::{Lab, Phoenix, traces_of};

const LIST: [&str; 3] = ["traces", "--format", "jsonl"];

#[test]
fn reads_all_pages_of_a_project() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(600)));
    let ran = lab.run(&[LIST.as_slice(), &[&phoenix.source()]].concat()).exits_with(0);
    let found = ran.lines();
    assert_eq!(found.len(), 600);
    assert!(found.iter().all(|one| one["project"] == "shop" && one["final_answer"] == "12 lamps."));
    let step = &found[0]["steps"][0];
    assert_eq!((&step["tool"], &step["observation"]), (&"get_stock".into(), &"12".into()));
    assert_eq!(step["span_ids"].as_array().unwrap().len(), 2);
    // 2,400 spans: a hundred, four hundred, a thousand, the rest.
    assert_eq!(phoenix.asked("GET /v1/projects/P1/spans"), 4);
    assert!(!lab.path(".gradus/reads").read_dir().is_ok_and(|mut reads| reads.next().is_some()));
}

/// Large answers take a while on a busy machine.
fn patient() -> Lab {
    let lab = Lab::new();
    lab.write("gradus.toml", "[phoenix]\nretry_s = 0.2\ntimeout_s = 60\n");
    lab
}

#[test]
fn a_page_that_is_too_long_is_asked_for_by_halves() {
    let phoenix = Phoenix::with_fault(traces_of(60), |incoming| {
        let is_many = incoming.what().ends_with("/spans?limit=100") || incoming.what().ends_with("=50");
        let page = || Answer::ok(format!("{{\"data\":[],\"x\":\"{}\"}}", "x".repeat(33 << 20)));
        is_many.then(page)
    });
    let ran = patient().run(&[LIST.as_slice(), &[&phoenix.source()]].concat()).exits_with(0);
    assert_eq!((ran.lines().len(), ran.err.as_str()), (60, ""));
    let asked = phoenix.stored.lock().unwrap().asked.clone();
    let limits: Vec<&str> = asked.iter().filter_map(|what| what.split_once("limit=")).map(|(_, it)| it).collect();
    assert_eq!(&limits[1..5], ["100", "50", "25", "100&cursor=25"], "{limits:?}");
}

#[test]
fn one_span_that_is_too_long_is_told() {
    let page = format!("{{\"data\":[],\"x\":\"{}\"}}", "x".repeat(129 << 20));
    let phoenix = Phoenix::with_fault(traces_of(1), move |incoming| {
        let limit = incoming.what().split_once("/spans?limit=").map(|(_, limit)| limit);
        limit.map(|limit| Answer::ok(page[..if limit == "1" { page.len() } else { 33 << 20 }].to_owned()))
    });
    let ran = patient().run(&[LIST.as_slice(), &[&phoenix.source()]].concat()).exits_with(2);
    let ran = ran.says("an answer to the smallest question is over 128 MB");
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn a_phoenix_can_be_named_in_every_way() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(2)));
    let origin = phoenix.origin();
    let endpoint = ("PHOENIX_COLLECTOR_ENDPOINT", format!("{origin}/v1/traces"));
    let endpoint = [(endpoint.0, endpoint.1.as_str())];
    let by_flag = lab.run(&[LIST.as_slice(), &["--phoenix", &origin, "--project", "shop"]].concat());
    let by_environment = lab.run_with(&endpoint, &[LIST.as_slice(), &["--project", "shop"]].concat());
    let without_project = phoenix.source().replace("/shop", "");
    let filled_in = lab.run_with(&[("PHOENIX_PROJECT_NAME", "shop")], &[LIST.as_slice(), &[&without_project]].concat());
    let by_source = lab.run(&[LIST.as_slice(), &[&phoenix.source()]].concat()).exits_with(0);
    let alone = [endpoint[0], ("PHOENIX_PROJECT_NAME", "shop")];
    let by_environment_alone = lab.run_with(&alone, &LIST);
    for ran in [by_flag, by_environment, by_environment_alone, filled_in] {
        assert_eq!(ran.exits_with(0).out, by_source.out);
    }
    lab.run(&["traces", "--project", "shop"]).exits_with(2).says("--phoenix URL");
    for command in [["traces"].as_slice(), &["eval", "--judge", "offline"]] {
        let ran = lab.run(command).exits_with(2).says("no source: give a file, a folder or phoenix://");
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    lab.run(&["traces", "x.json", "--project", "shop"]).exits_with(2).says("--project");
    let source = phoenix.source();
    lab.run(&["traces", &source, "--project", "default"])
        .exits_with(2)
        .says("names the project \"shop\" already; leave one of them out");
    lab.run(&["traces", "--phoenix", &source, "--project", "default"]).exits_with(2).says("leave one of them out");
    lab.run(&["traces", &source, "--project", "shop"]).exits_with(0);
    // In the environment it is only a default.
    lab.run_with(&[("PHOENIX_PROJECT_NAME", "default")], &["traces", &source]).exits_with(0);
    lab.run(&["traces", "phoenix://key@h/p"]).exits_with(2).says("PHOENIX_API_KEY");
    let ran = lab.run(&["traces", &phoenix.source().replace("shop", "shp")]).exits_with(2);
    ran.says("there is no project \"shp\"; there are shop, default");
}

#[test]
fn without_a_project_all_are_read() {
    let phoenix = Phoenix::with_fault(traces_of(4), |incoming| {
        let list = r#"{"data":[{"id":"P0","name":"default"}],"next_cursor":"a b"}"#;
        let rest = r#"{"data":[{"id":"P1","name":"shop"}],"next_cursor":null}"#;
        match incoming.what() {
            "GET /v1/projects?limit=100" => Some(Answer::ok(list.to_owned())),
            "GET /v1/projects?limit=100&cursor=a%20b" => Some(Answer::ok(rest.to_owned())),
            _ => None,
        }
    });
    let source = phoenix.source().replace("/shop", "");
    let ran = Lab::new().run(&[LIST.as_slice(), &[&source]].concat()).exits_with(0);
    let mut projects: Vec<String> = ran.lines().iter().map(|one| one["project"].to_string()).collect();
    projects.sort();
    // A trace belongs to the project that it was found in first.
    assert_eq!(projects, ["\"default\"", "\"default\"", "\"shop\"", "\"shop\""]);
}

#[test]
fn a_key_and_headers_are_sent_and_never_shown() {
    let phoenix = Phoenix::with_fault(traces_of(1), |incoming| {
        let has_key = incoming.header("authorization") == Some("Bearer k-secret");
        let has_team = incoming.header("x-team") == Some("a b");
        (!has_key || !has_team).then(|| Answer::status(401, "Invalid token"))
    });
    let lab = Lab::new();
    let source = phoenix.source();
    let headers = ("PHOENIX_CLIENT_HEADERS", "x-team=a%20b");
    lab.run_with(&[("PHOENIX_API_KEY", "k-secret"), headers], &["traces", &source]).exits_with(0);
    let ran = lab.run_with(&[headers], &["traces", &source]).exits_with(2);
    ran.says("Phoenix wants a key: set PHOENIX_API_KEY");
    let ran = lab.run_with(&[("PHOENIX_API_KEY", "k-wrong")], &["traces", &source]).exits_with(2);
    let ran = ran.says("Phoenix refused the key in PHOENIX_API_KEY (Invalid token)");
    assert!(!ran.err.contains("k-wrong"));
}

/// The ids of what is listed.
fn ids(ran: &crate::lab::Ran) -> Vec<String> {
    ran.lines().iter().map(|one| one["trajectory_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_time_range_means_the_same_for_phoenix_and_for_a_file() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(28)));
    let spans = serde_json::json!({"data": traces_of(28)});
    lab.write("spans.json", &spans.to_string());
    let source = phoenix.source();
    for (which, count) in [
        (vec!["--from", "2026-03-10", "--to", "2026-03-20"], 10),
        (vec!["--from", "2026-03-10T10:00:00Z", "--to", "2026-03-11T10:00:00Z"], 1),
        // Only the beginning counts: the model's calls are within, the agent's begin is not.
        (vec!["--from", "2026-03-10T10:00:01Z", "--to", "2026-03-11"], 0),
        (vec!["--root-name", "agent 1"], 14),
        (vec!["--root-name", "agent 1", "--root-name", "agent 0", "--from", "2026-03-27"], 2),
        (vec!["--root-name", "ChatCompletion"], 0),
        (vec!["--from", "1h"], 0),
    ] {
        let code = if count == 0 { 4 } else { 0 };
        let from_phoenix = lab.run(&[LIST.as_slice(), &[&source], &which].concat()).exits_with(code);
        let from_file = lab.run(&[LIST.as_slice(), &["spans.json"], &which].concat()).exits_with(code);
        let from_phoenix = ids(&from_phoenix);
        assert_eq!((from_phoenix.len(), &from_phoenix), (count, &ids(&from_file)), "{which:?}");
    }
    lab.run(&["traces", &source, "--from", "soon"]).exits_with(2).says("--from \"soon\": write a time as");
    let ran = lab.run(&["traces", "spans.json", "--from", "2026-04-01"]).exits_with(4);
    ran.says("none of 28 traces and documents is what --from asks for");
}

#[test]
fn a_choice_that_leaves_nothing_is_named() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(28)));
    lab.write("spans.json", &serde_json::json!({"data": traces_of(28)}).to_string());
    let source = phoenix.source();
    let nothing = "span_kind == 'RETRIEVER'";
    for (which, of_phoenix, of_file) in [
        (
            vec!["--where", nothing],
            "none of 28 traces and documents is what --where asks for",
            "none of 28 traces and documents is what --where asks for",
        ),
        (
            vec!["--from", "2026-04-01"],
            "nothing there is what --from asks for",
            "none of 28 traces and documents is what --from asks for",
        ),
        (
            vec!["--to", "2026-03-02", "--root-name", "nobody"],
            "nothing there is what --to and --root-name ask for",
            "none of 28 traces and documents is what --to and --root-name ask for",
        ),
        (
            vec!["--from", "2026-03-27", "--where", nothing],
            "none of 2 traces and documents is what --from and --where ask for",
            "is what --from and --where ask for",
        ),
    ] {
        for (source, says) in [(source.as_str(), of_phoenix), ("spans.json", of_file)] {
            lab.run(&[&["traces", source], which.as_slice()].concat()).exits_with(4).says(says);
            let eval = ["eval", source, "--judge", "offline"];
            lab.run(&[eval.as_slice(), which.as_slice()].concat()).exits_with(4).says(says);
        }
    }
    // One trace is wanted, and calls nothing.
    let mut spans = traces_of(2);
    spans.retain(|span| span["context"]["trace_id"] != trace_id(0) || span["parent_id"].is_null());
    (spans[0]["span_kind"], spans[0]["attributes"]) = ("CHAIN".into(), serde_json::json!({}));
    lab.write("some.json", &serde_json::json!({"data": spans}).to_string());
    let ran = lab.run(&["traces", "some.json", "--root-name", "agent 0"]).exits_with(4);
    ran.says("1 traces and documents are not what --root-name asks for, and the others call no model and no tool");
}

fn trace_id(number: usize) -> String {
    format!("{:032x}", 0xabc0_0000 + number)
}

#[test]
fn only_the_wanted_traces_travel() {
    let (lab, phoenix) = (Lab::new(), Phoenix::start(traces_of(28)));
    let which = ["--from", "2026-03-10", "--to", "2026-03-12"];
    lab.run(&[LIST.as_slice(), &[&phoenix.source()], &which].concat()).exits_with(0);
    let stored = phoenix.stored.lock().unwrap();
    let lists: Vec<&String> = stored.asked.iter().filter(|what| what.contains("/spans?")).collect();
    assert_eq!(lists.len(), 1, "{lists:?}");
    assert_eq!(lists[0].matches("trace_id=").count(), 2);
}

#[test]
fn a_phoenix_that_cannot_list_traces_is_asked_for_roots() {
    let phoenix = Phoenix::with_fault(traces_of(28), |incoming| {
        let is_new = incoming.what().contains("/traces?");
        is_new.then(|| Answer::status(404, "Not Found"))
    });
    let lab = Lab::new();
    let ran = lab.run(&[LIST.as_slice(), &[&phoenix.source(), "--from", "2026-03-20"]].concat()).exits_with(0);
    assert_eq!(ids(&ran).len(), 9);
}
