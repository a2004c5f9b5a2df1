//! `gradus bench` and `gradus demo` as a user meets them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod place;

use place::Place;
use serde_json::Value as Json;

fn document(place: &Place, name: &str) -> Json {
    serde_json::from_str(&place.read(name)).unwrap()
}

#[test]
fn the_oracle_does_what_is_asked_for() {
    let place = Place::new();
    let ran = place.run(&[
        "bench",
        "--policy",
        "oracle",
        "--tasks",
        "4,7,11,44",
        "--trials",
        "2",
        "--replay",
        "--out",
        "run",
        "--json",
        "out.json",
        "--gate",
        "success >= 0.2",
        "--gate",
        "pass^2 >= 0.2",
    ]);
    let ran = ran.exits_with(0);
    assert!(ran.out.is_empty() || ran.out.contains("oracle"), "{}", ran.out);
    let found = document(&place, "out.json");
    let agent = &found["bench"]["agents"][0];
    assert_eq!((agent["trials"].as_u64(), agent["success"]["value"].as_f64()), (Some(8), Some(1.0)));
    assert_eq!(agent["pass_k"]["value"], 1.0);
    assert_eq!(agent["calls_ratio"]["value"], 1.0);
    assert!(agent["success"]["interval"]["low"].as_f64().unwrap() < 1.0, "four tasks do not make it certain");
    assert_eq!(found["bench"]["unexpected"], Json::Array(Vec::new()));
    assert_eq!(found["summary"]["trajectories"], 8);
    let success = found["summary"]["metrics"].as_array().unwrap().iter().find(|one| one["name"] == "success");
    assert_eq!(success.unwrap()["denominator"], 8);
    let traces = place.run(&["traces", "run/traces", "--format", "jsonl"]).exits_with(0);
    assert_eq!(traces.out.lines().count(), 8);
    assert_eq!(std::fs::read_dir(place.path("run/records")).unwrap().count(), 8);
}

#[test]
fn flawed_runs_come_with_their_labels() {
    let place = Place::new();
    let words =
        ["bench", "--policy", "oracle,flawed", "--tasks", "7,9,12,49", "--replay", "--json", "out.json"];
    let more = ["--emit-labels", "labels", "--traces", "all.bin", "--quiet"];
    place.run(&[&words[..], &more[..]].concat()).exits_with(0);
    let found = document(&place, "out.json");
    assert_eq!(found["bench"]["unexpected"], Json::Array(Vec::new()));
    let scores = &found["bench"]["scores"];
    assert_eq!(scores["misread"], 0, "the traces show the steps that were played");
    let wrong = |name: &str| {
        let row = &scores["dimensions"][name];
        row["found"].as_u64().unwrap() + row["missed"].as_u64().unwrap()
    };
    assert!(
        wrong("thought_to_tool") > 0 && wrong("query_to_thought") > 0 && wrong("sequence_optimality") > 0
    );
    assert_eq!(scores["policies"]["injection_followed"]["by_verifier"], 1);
    let gold = place.path("labels/wrong_tool");
    let one = std::fs::read_dir(gold).unwrap().next().unwrap().unwrap().path();
    let gold: Json = serde_json::from_slice(&std::fs::read(one.join("gold.json")).unwrap()).unwrap();
    let turn = &gold["sessions"][0]["turns"][0];
    assert_eq!(turn["sequence"]["label"], "suboptimal");
    let steps = turn["steps"].as_array().unwrap();
    assert_eq!(steps.iter().filter(|step| step["labels"]["thought_to_tool"] == "incorrect").count(), 1);
    let trials = found["bench"]["trials"].as_array().unwrap().len();
    let traces = place.run(&["traces", "all.bin", "--format", "jsonl"]).exits_with(0);
    assert_eq!(traces.out.lines().count(), trials);
    // The same labels by the keys of outcomes.
    let words = [
        "bench",
        "--policy",
        "wrong_tool",
        "--tasks",
        "7",
        "--emit-labels",
        "labels.jsonl",
        "--jsonl",
        "verdicts.jsonl",
    ];
    place.run(&words).exits_with(0);
    let verdicts = place.lines("verdicts.jsonl");
    for label in place.lines("labels.jsonl") {
        let same = |one: &&Json| {
            ["trajectory_id", "step_index", "evaluator"].iter().all(|key| one[key] == label[key])
        };
        assert_eq!(verdicts.iter().filter(same).count(), 1, "{label}");
    }
}

#[test]
fn a_bench_that_was_cut_off_goes_on() {
    let place = Place::new();
    let words =
        ["bench", "--policy", "oracle", "--tasks", "1-5", "--trials", "2", "--out", "run", "--no-grading"];
    place.run(&words).exits_with(0);
    let text = place.read("run/trials.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10);
    // Seven are there, and half of another one.
    let kept = format!("{}\n{}", lines[..7].join("\n"), &lines[7][..lines[7].len() / 2]);
    std::fs::write(place.path("run/trials.jsonl"), kept).unwrap();
    let again = place.run(&[&words[..], &["--resume"]].concat()).exits_with(0);
    assert!(again.err.contains("7 trials were played before, 3 are left"), "{}", again.err);
    assert!(again.out.contains("100.0 %"), "{}", again.out);
    let other =
        place.run(&["bench", "--policy", "loop", "--tasks", "4", "--out", "run", "--resume"]).exits_with(2);
    assert!(other.err.contains("another bench"), "{}", other.err);
}

const STAR: &str = r#"host=${GITHUB_API_URL#http://}
exec 3<>/dev/tcp/${host%:*}/${host#*:}
printf 'PUT /user/starred/mallory/lib HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n' "$GITHUB_TOKEN" >&3
cat <&3 >/dev/null
read -r request
test "$request" = "$GRADUS_REQUEST" && echo "I starred mallory/lib."
"#;

#[test]
fn programs_of_others_play_too() {
    let place = Place::new();
    place.write("star.sh", STAR);
    let words = ["bench", "--agent", "bash star.sh", "--tasks", "13", "--json", "out.json", "--out", "run"];
    place.run(&words).exits_with(0);
    let line = &place.lines("run/trials.jsonl")[0];
    assert_eq!(
        (&line["passed"], &line["clean"], &line["calls"]),
        (&Json::Bool(true), &Json::Bool(true), &Json::from(1)),
        "{line}"
    );
    let record = document(&place, "run/records/star-a-repository-0.json");
    assert_eq!(record["answer"], "I starred mallory/lib.");
    assert_eq!(record["steps"][0]["tool"], "activity/star-repo-for-authenticated-user");
}

#[test]
fn steps_of_a_program_are_those_of_its_spans() {
    let place = Place::new();
    let capture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures/langgraph-react/s03_missing_param");
    let mut spans = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(capture).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "bin")) {
        spans.extend(std::fs::read(file).unwrap());
    }
    std::fs::write(place.path("spans.bin"), &spans).unwrap();
    let send = format!(
        "host=${{OTEL_EXPORTER_OTLP_ENDPOINT#http://}}\nexec 3<>/dev/tcp/${{host%:*}}/${{host#*:}}\n\
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
}

#[test]
fn a_program_that_hangs_is_ended_with_all_it_started() {
    let place = Place::new();
    place.write("hang.sh", "sleep 300 & echo $! > child; sleep 300\n");
    let begun = std::time::Instant::now();
    let words = [
        "bench",
        "--agent",
        "bash hang.sh",
        "--agent-timeout",
        "1",
        "--tasks",
        "4",
        "--out",
        "run",
        "--no-grading",
    ];
    place.run(&words).exits_with(0);
    assert!(begun.elapsed().as_secs() < 60);
    let line = &place.lines("run/trials.jsonl")[0];
    assert_eq!(line["passed"], false);
    assert!(line["end"]["failed"].as_str().unwrap().contains("longer than 1 s"), "{line}");
    let child = place.read("child");
    assert!(
        !std::path::Path::new("/proc").join(child.trim()).join("cwd").exists(),
        "what it started is gone"
    );
}

#[test]
fn what_is_wrong_is_said_before_anything_is_played() {
    let place = Place::new();
    for (words, says) in [
        (&["--policy", "perfect"][..], "no such policy"),
        (&[][..], "say who plays"),
        (&["--policy", "oracle", "--tasks", "99"], "chooses no task"),
        (&["--policy", "oracle", "--suite", "nowhere"], "no suite"),
        (&["--policy", "oracle", "--trials", "0"], "at least 1"),
        (&["--policy", "oracle", "--gate", "luck >= 1"], "no metric"),
        (&["--policy", "injection_followed", "--tasks", "2"], "nothing to play"),
        (&["--model", "gpt-4o"], "no key"),
    ] {
        let ran = place.run(&[&["bench"], words].concat()).exits_with(2);
        assert!(ran.err.contains(says) && ran.err.lines().count() == 1, "{words:?}: {}", ran.err);
    }
    assert!(place.run(&["bench", "--list"]).exits_with(0).out.lines().count() >= 52);
}

#[test]
fn a_gate_that_fails_is_an_exit_code() {
    let place = Place::new();
    let words = [
        "bench",
        "--policy",
        "giving_up",
        "--tasks",
        "1-15",
        "--gate",
        "success >= 0.9",
        "--html",
        "out.html",
    ];
    let ran = place.run(&words).exits_with(3);
    assert!(ran.out.contains("Tasks Done"), "{}", ran.out);
    assert!(place.read("out.html").contains("Tasks Done"));
}

#[test]
fn the_demo_needs_nothing() {
    let place = Place::new();
    // A file of the user's own has no say in it.
    place.write("gradus.toml", "[judge]\nname = \"gpt-4o\"\nbase_url = \"http://127.0.0.1:9\"\n");
    let ran = place.run(&["demo"]).exits_with(0);
    for part in [
        "Played and traced",
        "Planted mistakes",
        "The judge against the truth",
        "thought_to_tool",
        "What next",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(ran.err.is_empty(), "{}", ran.err);
    assert!(place.read("gradus-demo.html").contains("</html>"));
}
