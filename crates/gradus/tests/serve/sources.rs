//! Projects of a store and of a running server as sources of `gradus traces` and `gradus eval`.

use serde_json::Value as Json;

use crate::lab::{Lab, Server, fixture, json_lines};
use crate::live::send_folder;

const CAPTURE: &str = "llamaindex-react";

fn trajectories(lab: &Lab, source: &str) -> Vec<Json> {
    let mut found = json_lines(lab.run(&["traces", source, "--format", "jsonl"]).exits_with(0).out.as_bytes());
    found.sort_by_key(|one| one["trajectory_id"].to_string());
    found
}

/// Sends every request of a capture.
fn send_capture(lab: &Lab) -> Server {
    let server = lab.serve();
    send_folder(&server, CAPTURE);
    server
}

#[test]
fn a_store_and_a_server_give_what_the_files_give() {
    let lab = Lab::new();
    let server = send_capture(&lab);
    let from_files = trajectories(&lab, fixture(CAPTURE).to_str().unwrap());
    let project = from_files[0]["project"].as_str().unwrap().to_owned();
    let base = format!("gradus://{}", server.http);
    for source in [
        format!("{base}/{project}"),
        base.clone(),
        format!("store:{project}"),
        "store:".to_owned(),
        ".gradus/gradus.db".to_owned(),
    ] {
        assert_eq!(trajectories(&lab, &source), from_files, "{source}");
    }
    // A time range means the same for all of them.
    let mut starts: Vec<&str> = from_files.iter().map(|one| one["start"].as_str().unwrap()).collect();
    starts.sort_unstable();
    let middle = starts[starts.len() / 2];
    let later = |source: &str| {
        let ran = lab.run(&["traces", source, "--format", "jsonl", "--from", middle]).exits_with(0);
        json_lines(ran.out.as_bytes()).len()
    };
    let wanted = starts.iter().filter(|start| **start >= middle).count();
    for source in [fixture(CAPTURE).to_str().unwrap(), &base, "store:"] {
        assert_eq!(later(source), wanted, "{source}");
    }
    // So does a condition on spans.
    let tool = from_files
        .iter()
        .flat_map(|one| one["steps"].as_array().unwrap())
        .find_map(|step| step["tool"].as_str())
        .unwrap();
    let condition = format!("span_kind == 'TOOL' and tool.name == '{tool}'");
    let uses = |one: &&Json| one["steps"].as_array().unwrap().iter().any(|step| step["tool"] == tool);
    let wanted = from_files.iter().filter(uses).count();
    assert!(wanted > 0 && wanted < from_files.len(), "{wanted} of {}", from_files.len());
    for source in [fixture(CAPTURE).to_str().unwrap(), &base, "store:"] {
        let ran = lab.run(&["traces", source, "--format", "jsonl", "--where", &condition]).exits_with(0);
        assert_eq!(json_lines(ran.out.as_bytes()).len(), wanted, "{source}");
    }
    let ran = lab.run(&["traces", "store:", "--where", "name.startswith('x')"]).exits_with(2);
    assert!(ran.err.contains("--where") && ran.err.trim().lines().count() == 1, "{}", ran.err);
    // The store may be elsewhere.
    std::fs::create_dir(lab.path("elsewhere")).unwrap();
    std::fs::write(lab.path("settings.toml"), "state_dir = \".gradus\"\n").unwrap();
    let all = |arguments: &[&str]| {
        let mut command = lab.command(&[&["traces", "store:", "--format", "jsonl"], arguments].concat());
        let ran = crate::lab::Ran::from_output(command.current_dir(lab.path("elsewhere")).output().unwrap());
        (ran.code, ran.out.lines().count())
    };
    assert_eq!(all(&["--state-dir", "../.gradus"]), (Some(0), from_files.len()));
    assert_eq!(all(&[]), (Some(2), 0));
    // A run over the server's project, kept where the server looks.
    lab.run(&["eval", &base, "--judge", "offline", "--quiet"]).exits_with(0);
    let runs = server.json("/api/v1/runs");
    let run = runs["items"].as_array().unwrap().iter().find(|run| run["is_live"] == false).unwrap().clone();
    assert_eq!(run["sources"][0], base.as_str());
    let summary = server.json(&format!("/api/v1/runs/{}", run["run_id"].as_str().unwrap()));
    assert_eq!(summary["trajectories"], from_files.len());
}

#[test]
fn a_store_is_named_by_option_or_variable_whatever_the_state_folder_is() {
    let lab = Lab::new();
    drop(send_capture(&lab));
    std::fs::create_dir(lab.path("elsewhere")).unwrap();
    let store = format!("sqlite:{}", lab.path(".gradus").display());
    let ran = |arguments: &[&str], variable: Option<&str>| {
        let mut command = lab.command(arguments);
        command.current_dir(lab.path("elsewhere"));
        if let Some(address) = variable {
            command.env("GRADUS_STORE", address);
        }
        crate::lab::Ran::from_output(command.output().unwrap())
    };
    let mut commands = vec![
        vec!["traces", "store:", "--state-dir", "own"],
        vec!["eval", "store:", "--judge", "offline", "--quiet", "--state-dir", "own"],
    ];
    if cfg!(feature = "parquet") {
        commands.push(vec!["store", "archive", "archive"]);
    }
    for command in commands {
        ran(&command, None).exits_with(2);
        let bad = ran(&[&command[..], &["--store", "mysql://db/shop"]].concat(), Some(&store)).exits_with(2);
        assert!(bad.err.contains("postgres://USER@HOST:PORT/DATABASE"), "{}", bad.err);
        ran(&command, Some(&store)).exits_with(0);
        let _ = std::fs::remove_dir_all(lab.path("elsewhere/archive"));
        ran(&[&command[..], &["--store", &store]].concat(), Some("sqlite:nowhere")).exits_with(0);
        let _ = std::fs::remove_dir_all(lab.path("elsewhere/archive"));
    }
    if cfg!(feature = "parquet") {
        let named = ["store", "archive", "archive", "--data", "nowhere"];
        let wins = ran(&named, Some(&store)).exits_with(2);
        assert!(wins.err.contains("nowhere"), "{}", wins.err);
    }
}

#[test]
fn what_is_not_there_is_told_in_a_line() {
    let lab = Lab::new();
    let told = |source: &str, wanted: &str| {
        let ran = lab.run(&["traces", source]).exits_with(2);
        assert!(ran.err.lines().count() == 1 && ran.err.contains(wanted), "{source}: {}", ran.err);
    };
    told("store:shop", "gradus serve");
    told("gradus://127.0.0.1:9/shop", "nothing answers there");
    told("gradus:///shop", "gradus://HOST:PORT/PROJECT");
    let server = send_capture(&lab);
    told("store:shop", "there is no project \"shop\"");
    told(&format!("gradus://{}/shop", server.http), "there is no project \"shop\"");
}

#[test]
fn a_key_is_taken_from_the_environment() {
    let lab = Lab::with("require_key = true", "");
    let key = lab.run(&["keys", "add", "reader", "--scopes", "ingest,read"]).exits_with(0).out;
    let server = lab.serve();
    let source = format!("gradus://{}", server.http);
    let ran = lab.run(&["traces", &source]).exits_with(2);
    assert!(ran.err.contains("GRADUS_API_KEY"), "{}", ran.err);
    let mut command = lab.command(&["traces", &source]);
    let output = command.env("GRADUS_API_KEY", key.trim()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("it holds no project yet"), "{said}");
}

/// What the server has judged, by evaluation.
fn judged(server: &Server) -> Json {
    server.json("/api/v1/metrics")["items"].take()
}

/// Verdicts that come back over OTLP are spans and log records of the same traces, and no work of an agent.
#[test]
fn verdicts_that_are_sent_to_the_server_are_not_graded() {
    let lab = Lab::new();
    let server = lab.serve();
    for capture in [CAPTURE, "plain-openai-oi", "plain-openai-v2"] {
        send_folder(&server, capture);
    }
    server.graded();
    let base = format!("gradus://{}", server.http);
    let before = trajectories(&lab, &base);
    let count = || {
        server.json("/api/v1/projects")["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["spans"].as_u64().unwrap())
            .sum::<u64>()
    };
    let (spans, graded) = (count(), judged(&server));
    assert!(!graded.as_array().unwrap().is_empty());
    let otlp = format!("http://{}", server.http);
    let arguments = ["eval", &base, "--judge", "offline", "--quiet", "--jsonl", "out.jsonl", "--log-to-otlp", &otlp];
    let ran = lab.run(&arguments).exits_with(0);
    let outcomes = lab.lines("out.jsonl").len() as u64;
    assert!(ran.err.contains(&format!("{outcomes} outcomes were sent to {otlp}")), "{}", ran.err);
    server.graded();
    assert_eq!(count(), spans + outcomes);
    assert_eq!(trajectories(&lab, &base), before);
    assert_eq!(judged(&server), graded, "the server's own verdicts");
    // Sent again, nothing is more.
    lab.run(&["report", "--log-to-otlp", &otlp]).exits_with(0);
    server.graded();
    assert_eq!((count(), trajectories(&lab, &base)), (spans + outcomes, before));
}
