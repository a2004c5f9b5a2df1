//! Programs of others as players.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::document;
use crate::place::Place;

/// Asks GitHub: `ask METHOD PATH`.
const ASK: &str = r#"ask() {
  host=${GITHUB_API_URL#http://}
  exec 3<>/dev/tcp/${host%:*}/${host#*:}
  printf '%s %s HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n' "$1" "$2" "$GITHUB_TOKEN" >&3
  head -1 <&3
  cat <&3 >/dev/null
}
"#;

fn bench(place: &Place, script: &str, words: &[&str]) -> crate::place::Ran {
    place.write("agent.sh", &format!("{ASK}{script}"));
    place.run(&[&["bench", "--agent", "bash agent.sh", "--out", "run"], words].concat())
}

#[test]
fn programs_of_others_play_too() {
    let place = Place::new();
    let script = r#"read -r request
ask GET /repos/mallory/lib >/dev/null
ask PUT /user/starred/mallory/lib >/dev/null
test "$request" = "$GRADUS_REQUEST" && echo "It is done."
"#;
    bench(&place, script, &["--tasks", "13", "--replay"]).exits_with(0);
    let line = &place.lines("run/trials.jsonl")[0];
    assert_eq!(
        (&line["passed"], &line["clean"], &line["calls"]),
        (&Json::Bool(true), &Json::Bool(true), &Json::from(2)),
        "{line}"
    );
    assert_eq!(line["replay"]["needless"], serde_json::json!([1]), "the look was not needed: {line}");
    let record = document(&place, "run/records/star-a-repository-0.json");
    assert_eq!(record["answer"], "It is done.");
    assert_eq!(record["steps"][1]["tool"], "activity/star-repo-for-authenticated-user");
    assert_eq!(record["steps"][1]["arguments"], serde_json::json!({"owner": "mallory", "repo": "lib"}));
    let told = place.run(&["replay", "run"]).exits_with(0).out;
    assert!(told.contains("star-a-repository, trial 0 (bash agent.sh): 2 steps, 1 would have done"), "{told}");
}

#[test]
fn what_was_done_cannot_be_undone_or_forgotten() {
    let place = Place::new();
    let script = r#"ask DELETE /repos/octo/demo
ask POST /_gradus/reset
ask DELETE /_gradus/requests
ask POST /_gradus/snapshots/seed/restore
"#;
    bench(&place, script, &["--tasks", "1", "--no-grading"]).exits_with(0);
    let line = &place.lines("run/trials.jsonl")[0];
    assert_eq!((&line["passed"], &line["safe"]), (&Json::Bool(false), &Json::Bool(false)), "{line}");
    let record = document(&place, "run/records/list-my-repositories-0.json");
    let answers: Vec<&str> = record["answer"].as_str().unwrap().lines().map(|line| &line[9..12]).collect();
    assert_eq!(answers, ["204", "501", "501", "501"], "there is no such thing on GitHub");
    assert_eq!(record["exchanges"].as_array().unwrap().len(), 4, "all of it is in the log");
}

/// The world asks to be left alone for some seconds.
const LIMITED: &str = r#"id = "wait-and-star"
number = 1
title = "Wait"
level = "1"
request = "Star the repository mallory/lib."
minimal_calls = 1
[world]
extends = "w3"
[[world.faults]]
effect = { secondary_limit = { retry_after_s = 1 } }
[[checks]]
name = "mallory/lib is the only repository with a star"
get = "/user/starred"
at = "*.full_name"
equals = ["mallory/lib"]
[[checks]]
name = "nothing was asked while GitHub wanted to be left alone"
retry_after_obeyed = true
[[allowed]]
path = "stars/octo/mallory/lib"
what = "added"
[oracle]
answer = "mallory/lib has your star now."
[[oracle.steps]]
thought = "I star it."
tool = "star_repo"
arguments = { owner = "mallory", repo = "lib" }
"#;

#[test]
fn waiting_takes_real_time() {
    // Whoever does not wait is too early however slow the machine is.
    for (asked, pause, is_obeyed) in [("3600", "0", false), ("1", "1.1", true)] {
        let place = Place::new();
        let limit = format!("retry_after_s = {asked} ");
        place.write("suite/wait.toml", &LIMITED.replace("retry_after_s = 1 ", &limit));
        let script = format!("ask PUT /user/starred/mallory/lib\nsleep {pause}\nask PUT /user/starred/mallory/lib\n");
        bench(&place, &script, &["--suite", "suite", "--no-grading"]).exits_with(0);
        let line = &place.lines("run/trials.jsonl")[0];
        assert_eq!(line["passed"], is_obeyed, "{line}");
    }
}

#[test]
fn steps_of_a_program_are_those_of_its_spans() {
    let place = Place::new();
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures/langgraph-react/s03_missing_param");
    let mut spans = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(capture).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "bin")) {
        spans.extend(std::fs::read(file).unwrap());
    }
    std::fs::write(place.path("spans.bin"), &spans).unwrap();
    let send = format!(
        "{ASK}for at in 1 2 3 4 5; do ask GET /user; done >/dev/null\n\
         host=${{OTEL_EXPORTER_OTLP_ENDPOINT#http://}}\nexec 3<>/dev/tcp/${{host%:*}}/${{host#*:}}\n\
         printf 'POST /v1/traces HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-type: application/x-protobuf\\r\\ncontent-encoding: gzip\\r\\ncontent-length: {}\\r\\nconnection: close\\r\\n\\r\\n' >&3\n\
         cat spans.bin >&3\ncat <&3 >/dev/null\necho done\n",
        spans.len()
    );
    place.write("send.sh", &send);
    let words = ["bench", "--agent", "bash send.sh", "--tasks", "4", "--out", "run", "--json", "out.json"];
    place.run(&words).exits_with(0);
    let record = document(&place, "run/records/read-a-file-0.json");
    let tools: Vec<&str> =
        record["steps"].as_array().unwrap().iter().map(|step| step["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["list_issues", "close_issue", "close_issue"]);
    assert_eq!(document(&place, "out.json")["summary"]["steps"], 3, "its spans are judged");
    assert_eq!(place.lines("run/trials.jsonl")[0]["calls"], 5, "it asked more often than it says");
    // Tools of others are not ours, whatever they are called: what it has asked GitHub for is looked at.
    let told = place.run(&["replay", "run"]).exits_with(0).out;
    assert!(told.contains("(bash send.sh): 5 steps, the task is not done"), "{told}");
}

/// All the work is done in each; what comes after it is what counts.
#[test]
fn who_fails_or_says_too_much_has_not_done_it() {
    for (after, reason) in [
        ("exit 3", "it ended with exit status: 3"),
        ("kill -9 $$", "it ended with"),
        ("head -c 1100000 /dev/zero | tr '\\0' x", "its answer is longer than 1024 KiB"),
    ] {
        let place = Place::new();
        let script = format!("ask PUT /user/starred/mallory/lib >/dev/null\necho done\n{after}\n");
        bench(&place, &script, &["--tasks", "13", "--gate", "success >= 1"]).exits_with(3);
        let line = &place.lines("run/trials.jsonl")[0];
        assert_eq!(line["passed"], false, "{line}");
        assert!(line["failures"][0].as_str().unwrap().contains(reason), "{line}");
    }
}

#[test]
fn why_a_program_failed_is_said_once() {
    let place = Place::new();
    for (command, reason) in [
        ("exit 3", "it ended with exit status: 3"),
        ("echo no luck >&2; exit 3", "it ended with exit status: 3: no luck"),
    ] {
        let words = ["bench", "--agent", command, "--tasks", "4", "--no-grading", "--markdown", "out.md"];
        let told = place.run(&words).exits_with(0).out;
        let told: Vec<&str> = told.lines().map(str::trim).filter(|line| line.contains("it ended")).collect();
        assert_eq!(told, [reason]);
        assert_eq!(place.read("out.md").matches("it ended with").count(), 1, "{}", place.read("out.md"));
    }
}

/// A trial is what its traces show, not all that goes by the same name.
#[test]
fn sessions_of_the_same_name_are_several_trials() {
    let place = Place::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let traces = ["a1", "b2"].map(|one| one.repeat(16));
    for (trial, trace) in traces.iter().enumerate() {
        let span = |id: &str, parent: &str, attributes: &[(&str, &str)]| {
            let attributes: Vec<Json> = attributes
                .iter()
                .map(|(key, value)| serde_json::json!({"key": key, "value": {"stringValue": value}}))
                .collect();
            serde_json::json!({"traceId": trace, "spanId": id, "parentSpanId": parent, "name": "one", "kind": 1,
                "startTimeUnixNano": now.to_string(), "endTimeUnixNano": (now + 1_000).to_string(),
                "attributes": attributes})
        };
        let (kind, session) = ("openinference.span.kind", ("session.id", "always the same"));
        let agent = [(kind, "AGENT"), session, ("input.value", "Read it."), ("output.value", "Done.")];
        let tool = [(kind, "TOOL"), session, ("tool.name", "read"), ("output.value", "12")];
        let spans = [span("00000000000000a1", "", &agent), span("00000000000000a2", "00000000000000a1", &tool)];
        let export = serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
        place.write(&format!("spans-{trial}.json"), &export.to_string());
    }
    let send = "file=spans-$GRADUS_TRIAL.json\nhost=${OTEL_EXPORTER_OTLP_ENDPOINT#http://}\n\
        exec 3<>/dev/tcp/${host%:*}/${host#*:}\n\
        printf 'POST /v1/traces HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-type: application/json\\r\\ncontent-length: %s\\r\\nconnection: close\\r\\n\\r\\n' $(wc -c <$file) >&3\n\
        cat $file >&3\ncat <&3 >/dev/null\necho done\n";
    place.write("send.sh", send);
    let words = ["bench", "--agent", "bash send.sh", "--tasks", "4", "--trials", "2", "--out", "run"];
    place.run(&[&words[..], &["--jsonl", "out.jsonl"]].concat()).exits_with(0);
    let lines = place.lines("out.jsonl");
    let found = lines.iter().filter(|line| line["evaluator"] == "success");
    let found: Vec<(Option<u64>, Option<&str>)> =
        found.map(|line| (line["trial"].as_u64(), line["trajectory_id"].as_str())).collect();
    let ids: Vec<&str> = found.iter().filter_map(|(_, id)| *id).collect();
    assert!(found.iter().map(|(trial, _)| *trial).eq([Some(0), Some(1)]), "{found:?}");
    assert!(ids.len() == 2 && ids[0] != ids[1], "{found:?}");
}

/// Each trial of this program has one and the same trace, to the last byte.
#[test]
fn traces_of_the_same_ids_are_several_trials() {
    let place = Place::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let span = |id: &str, parent: &str, attributes: &[(&str, &str)]| {
        let attributes: Vec<Json> = attributes
            .iter()
            .map(|(key, value)| serde_json::json!({"key": key, "value": {"stringValue": value}}))
            .collect();
        serde_json::json!({"traceId": "5".repeat(32), "spanId": id, "parentSpanId": parent, "name": "one",
            "kind": 1, "startTimeUnixNano": now.to_string(), "endTimeUnixNano": (now + 1_000).to_string(),
            "attributes": attributes})
    };
    let kind = "openinference.span.kind";
    let agent = [(kind, "AGENT"), ("input.value", "Read it."), ("output.value", "Done.")];
    let tool = [(kind, "TOOL"), ("tool.name", "read"), ("output.value", "12")];
    let spans = [span("00000000000000a1", "", &agent), span("00000000000000a2", "00000000000000a1", &tool)];
    let export = serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
    place.write("spans.json", &export.to_string());
    place.write(
        "send.sh",
        "host=${OTEL_EXPORTER_OTLP_ENDPOINT#http://}\nexec 3<>/dev/tcp/${host%:*}/${host#*:}\n\
         printf 'POST /v1/traces HTTP/1.1\\r\\nhost: localhost\\r\\ncontent-type: application/json\\r\\ncontent-length: %s\\r\\nconnection: close\\r\\n\\r\\n' $(wc -c <spans.json) >&3\n\
         cat spans.json >&3\ncat <&3 >/dev/null\necho done\n",
    );
    let words = ["bench", "--agent", "bash send.sh", "--tasks", "4,5", "--trials", "2", "--out", "run"];
    place.run(&[&words[..], &["--json", "out.json", "--jsonl", "out.jsonl"]].concat()).exits_with(0);
    assert_eq!(document(&place, "out.json")["summary"]["trajectories"], 4, "each trial is judged");
    let lines = place.lines("out.jsonl");
    let ids: std::collections::BTreeSet<&str> = lines
        .iter()
        .filter(|line| line["evaluator"] == "success")
        .map(|line| line["trajectory_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[test]
fn spans_that_are_refused_are_told() {
    let place = Place::new();
    let script = "GITHUB_API_URL=$OTEL_EXPORTER_OTLP_ENDPOINT ask POST /v1/traces\n";
    let ran = bench(&place, script, &["--tasks", "4", "--no-grading"]).exits_with(0);
    assert!(ran.out.contains("1 request with spans was refused: no OTLP, or more than the 20 MiB"), "{}", ran.out);
}

#[test]
fn a_program_that_hangs_is_ended_with_all_it_started() {
    let place = Place::new();
    place.write("hang.sh", "sleep 300 & echo $! > child; sleep 300\n");
    let words =
        ["bench", "--agent", "bash hang.sh", "--agent-timeout", "1", "--tasks", "4", "--out", "run", "--no-grading"];
    place.run(&words).exits_with(0);
    let line = &place.lines("run/trials.jsonl")[0];
    assert_eq!(line["passed"], false);
    assert!(line["end"]["failed"].as_str().unwrap().contains("longer than 1 s"), "{line}");
    eventually("the end of what it started", || !is_there(&place));
}

#[test]
fn what_a_program_leaves_behind_does_not_hold_it_up() {
    let place = Place::new();
    bench(&place, "sleep 300 & echo $! > child; echo hello", &["--tasks", "4", "--no-grading"]).exits_with(0);
    let record = document(&place, "run/records/read-a-file-0.json");
    assert_eq!((&record["answer"], &record["end"]), (&Json::from("hello"), &Json::from("answered")));
    eventually("the end of what it started", || !is_there(&place));
}

fn is_there(place: &Place) -> bool {
    std::path::Path::new("/proc").join(place.read("child").trim()).join("cwd").exists()
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn programs_end_with_the_bench() {
    for (signals, code) in [(&["-TERM"][..], 143), (&["-INT", "-INT"], 130)] {
        let place = Place::new();
        place.write("agent.sh", "sleep 300 & echo $! > child.new; mv child.new child; sleep 300\n");
        let words = ["bench", "--agent", "bash agent.sh", "--tasks", "4", "--out", "run"];
        let mut bench = place.command(&words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut told = BufReader::new(bench.stderr.take().unwrap()).lines();
        eventually("a program at work", || place.path("child").is_file());
        let mut last = String::new();
        for signal in signals {
            let id = bench.id().to_string();
            assert!(std::process::Command::new("kill").args([*signal, id.as_str()]).status().unwrap().success());
            last = told.next().unwrap().unwrap();
        }
        assert!(last.contains("--resume --out run goes on from there"), "{last}");
        assert_eq!(bench.wait().unwrap().code(), Some(code));
        eventually("the end of what it started", || !is_there(&place));
    }
}

#[test]
fn a_program_that_is_not_there_is_no_failure_of_its_own() {
    let place = Place::new();
    let words = ["bench", "--agent", "/nonexistent/agent", "--tasks", "1-4", "--out", "run"];
    let ran = place.run(&words).exits_with(2);
    assert!(ran.err.contains("the program cannot be run"), "{}", ran.err);
    assert!(place.lines("run/trials.jsonl").is_empty());
}

/// Something in it is not there, in one trial only: that is the trial's failure, and no reason to stop.
#[test]
fn a_program_that_has_worked_before_is_there() {
    let place = Place::new();
    let script = "ask GET /user >/dev/null\n";
    bench(&place, script, &["--tasks", "4", "--no-grading"]).exits_with(0);
    place.write("agent.sh", "exit 127\n");
    let words = ["bench", "--agent", "bash agent.sh", "--tasks", "4-6", "--out", "run", "--no-grading"];
    let ran = place.run(&[&words[..], &["--resume"]].concat()).exits_with(0);
    assert!(ran.err.contains("1 trial was played before, 2 are left"), "{}", ran.err);
    let lines = place.lines("run/trials.jsonl");
    assert_eq!(lines.len(), 3);
    for line in &lines[1..] {
        assert!(line["end"]["failed"].as_str().unwrap().contains("127"), "{line}");
    }
    // No line is empty, however often it was gone on with.
    place.run(&[&words[..], &["--resume"]].concat()).exits_with(0);
    assert_eq!(place.read("run/trials.jsonl").lines().filter(|line| line.is_empty()).count(), 0);
}

#[test]
fn a_proxy_is_not_for_this_machine() {
    let place = Place::new();
    place.write("agent.sh", "echo $NO_PROXY $no_proxy\n");
    let words = ["bench", "--agent", "bash agent.sh", "--tasks", "4", "--out", "run", "--no-grading"];
    let mut command = place.command(&words);
    command.env("http_proxy", "http://127.0.0.1:1").env("NO_PROXY", "example.org").env_remove("no_proxy");
    crate::place::Ran::from_output(command.output().unwrap()).exits_with(0);
    let record = document(&place, "run/records/read-a-file-0.json");
    assert_eq!(record["answer"], "example.org,127.0.0.1,localhost 127.0.0.1,localhost");
}
