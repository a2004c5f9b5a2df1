//! One clear line, the right exit code, nothing lost.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use gradus_test_endpoint::Answer;

use crate::lab::{Lab, Ran, case_of, endpoint, eval, kind_endpoint};

/// The only line on standard error, apart from that a run was taken up.
fn only_line(ran: &Ran) -> &str {
    let lines: Vec<&str> = ran.err.lines().filter(|line| !line.contains("taking up run")).collect();
    assert_eq!(lines.len(), 1, "{}", ran.err);
    lines[0]
}

#[test]
fn a_wrong_key() {
    static IS_VALID: AtomicBool = AtomicBool::new(false);
    let lab = Lab::with_cases(60);
    let endpoint = endpoint(|incoming| {
        if incoming.number < 25 || IS_VALID.load(Ordering::Relaxed) {
            return incoming.verdict("correct");
        }
        Answer::status(401, "{\"error\":{\"message\":\"Incorrect API key provided\",\"code\":\"invalid_api_key\"}}")
    });
    let ran = lab.run_at(&endpoint, &eval(&["--concurrency", "1"])).exits_with(2);
    let line = only_line(&ran);
    assert!(line.contains("refused the key (HTTP 401: Incorrect API key provided (invalid_api_key))"), "{line}");
    assert!(line.contains("set OPENAI_API_KEY") && line.contains("what was judged is kept"), "{line}");
    assert!(!ran.err.contains("sk-test") && !ran.out.contains("sk-test"));
    assert_eq!(lab.lines("out.jsonl").len(), 25, "partial results are there");
    assert!(ran.out.contains("This run is incomplete"), "{}", ran.out);
    // Steps that were not asked about are neither right nor wrong.
    let ran = lab.run(&["report"]).exits_with(0);
    assert!(ran.out.contains("(25 of 25"), "{}", ran.out);
    // And the run is taken up with a right one.
    IS_VALID.store(true, Ordering::Relaxed);
    lab.run_at(&endpoint, &eval(&["--concurrency", "1"])).exits_with(0);
    assert_eq!((lab.lines("out.jsonl").len(), endpoint.received()), (60, 61));
}

#[test]
fn a_model_that_is_not_there() {
    let lab = Lab::with_cases(5);
    let endpoint = endpoint(|_| Answer::status(404, "{\"error\":{\"message\":\"The model `gpt-9` does not exist\"}}"));
    let ran = lab.run_at(&endpoint, &eval(&["--judge", "gpt-9"])).exits_with(2);
    let line = only_line(&ran);
    assert!(line.contains("has no model \"gpt-9\"") && line.contains("choose one with --judge"), "{line}");
}

#[test]
fn an_endpoint_that_nobody_answers_at() {
    let lab = Lab::with_cases(5);
    let gone = kind_endpoint();
    let url = gone.url();
    drop(gone);
    let ran = lab.run(&eval(&["--base-url", &url, "--judge", "m"])).exits_with(1);
    let line = only_line(&ran);
    assert!(line.contains("cannot reach http://127.0.0.1:") && line.contains("is it running"), "{line}");
}

#[test]
fn an_endpoint_that_dies_on_the_way() {
    let lab = Lab::with_cases(500);
    let endpoint = endpoint(|incoming| {
        if case_of(incoming) < 100 {
            incoming.verdict("correct")
        } else {
            Answer::status(503, "{\"detail\":\"broken\"}")
        }
    });
    let ran = lab.run_at(&endpoint, &eval(&["--concurrency", "4", "--retries", "0"])).exits_with(1);
    assert!(only_line(&ran).contains("the judge stopped answering (HTTP 503: broken)"), "{}", ran.err);
    assert!(endpoint.received() < 170, "{}", endpoint.received());
}

#[test]
fn settings_that_make_no_sense() {
    let lab = Lab::with_cases(1);
    lab.write("bad.toml", "[judge]\nmodell = \"x\"\n");
    for (arguments, expected) in [
        (&["--judge", "gpt-4o"][..], "no key for openai: set OPENAI_API_KEY"),
        (&["--evaluators", "thought"], "there is no evaluation \"thought\"; there are query_to_thought,"),
        (&["--gate", "thought_to_tool"], "is no gate"),
        (&["--gate", "speed > 3"], "there is no metric \"speed\""),
        (&["--config", "bad.toml"], "bad.toml, line 2: unknown field `modell`"),
        (&["--config", "none.toml"], "none.toml: "),
        (&["--tools", "none.json"], "none.json: "),
        (&["--base-url", "localhost:80", "--judge", "m"], "is no http or https address"),
        (&["--base-url", "http://h", "--judge", "m", "--context-tokens", "10"], "--context-tokens 10"),
        (&["--base-url", "http://h", "--judge", "m", "--concurrency", "0"], "--concurrency: give at least 1"),
        (&["--html", "no/such/folder/x.html"], "cannot be written"),
        (&["--json", "-", "--jsonl", "-"], "only one output can go to standard output"),
    ] {
        let mut all = vec!["eval", "cases.jsonl"];
        all.extend(arguments);
        let ran = lab.run(&all).exits_with(2);
        assert!(ran.err.lines().last().unwrap().contains(expected), "{arguments:?}: {}", ran.err);
        assert!(!lab.path(".gradus").exists(), "{arguments:?} left something behind");
    }
}

#[test]
fn sources_that_cannot_be_read() {
    let lab = Lab::with_cases(3);
    lab.write("empty.jsonl", "");
    lab.run(&["eval", "missing.bin"]).exits_with(2);
    let ran = lab.run(&["eval", "cases.jsonl", "missing.bin", "--judge", "offline"]).exits_with(2);
    assert!(ran.out.contains("3 trajectories"), "the others are judged: {}", ran.out);
    let run_count = || lab.path(".gradus/runs").read_dir().unwrap().count();
    let before = run_count();
    lab.write("none.json", "{\"resourceSpans\":[]}");
    lab.run(&["eval", "none.json", "--judge", "offline"]).exits_with(4);
    assert_eq!(run_count(), before, "a run about nothing is not kept");
}

#[test]
fn without_a_key_the_judge_is_offline_and_says_so() {
    let lab = Lab::with_cases(3);
    let ran = lab.run(&["eval", "cases.jsonl"]).exits_with(0);
    assert!(ran.err.contains("judging with `offline`, which is rules and no model"), "{}", ran.err);
    assert!(ran.out.contains("judge offline (rules, not a model)"), "{}", ran.out);
}

/// In a file system of 300 KB, made for this process alone.
#[test]
fn a_full_disk() {
    let lab = Lab::with_cases(2_000);
    let small = lab.path("small");
    std::fs::create_dir(&small).unwrap();
    let endpoint = kind_endpoint();
    let script = format!("mount -t tmpfs -o size=300k tmpfs '{}' && exec \"$0\" \"$@\"", small.display());
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_gradus")]);
    command.args(eval(&["--state-dir", "small/state"])).current_dir(lab.path(""));
    command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", "k");
    let probe =
        Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("SKIPPED: a small file system needs user namespaces (unshare), which are not allowed here");
        return;
    }
    let ran = Ran::from_output(command.output().unwrap()).exits_with(1);
    let line = only_line(&ran);
    assert!(line.contains("No space left on device") && line.contains("--state-dir"), "{line}");
}

#[test]
fn a_state_folder_that_cannot_be_written() {
    let lab = Lab::with_cases(1);
    lab.write("file", "");
    let ran = lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--state-dir", "file/state"]).exits_with(1);
    assert!(only_line(&ran).contains("--state-dir"), "{}", ran.err);
}

/// A folder from elsewhere gets neither the user's key nor the prompts, until the user trusts its settings.
#[test]
fn a_found_settings_file_gets_no_key_and_no_prompts() {
    let lab = Lab::with_cases(1);
    let endpoint = endpoint(|incoming| incoming.verdict("correct"));
    let settings = format!("[judge]\nname = \"m\"\nbase_url = \"{}\"\n", endpoint.url());
    lab.write("gradus.toml", &settings);
    for key in [None, Some("sk-test")] {
        let mut command = lab.command(&eval(&[]));
        command.envs(key.map(|key| ("OPENAI_API_KEY", key)));
        let ran = Ran::from_output(command.output().unwrap()).exits_with(2);
        let line = only_line(&ran);
        for part in ["judge.name", "judge.base_url (sends data to an address)", "`gradus trust`"] {
            assert!(line.contains(part) && !line.contains("sk-test"), "{line}");
        }
    }
    assert_eq!(endpoint.received(), 0);
    lab.run(&["trust", "--yes"]).exits_with(0);
    lab.run(&eval(&[])).exits_with(0);
    assert!(endpoint.received() > 0);
}

/// Questions that cannot be answered for reasons of their own do not make the endpoint a dead one.
#[test]
fn many_refusals_in_a_row() {
    let lab = Lab::with_cases(150);
    let endpoint = endpoint(|incoming| {
        if case_of(incoming) < 10 {
            return incoming.verdict("correct");
        }
        Answer::ok("{\"choices\":[{\"message\":{\"content\":null,\"refusal\":\"I cannot judge that.\"}}]}".to_owned())
    });
    lab.run_at(&endpoint, &eval(&["--ask-again", "0", "--concurrency", "1"])).exits_with(0);
    let failed = lab.lines("out.jsonl").iter().filter(|line| line["outcome"] == "failed").count();
    assert_eq!(failed, 140);
}

/// A run in which nothing was answered is no success, however small it is.
#[test]
fn an_endpoint_that_answers_nothing_of_use() {
    let lab = Lab::with_cases(3);
    for (answer, expected) in [
        (Answer::ok("<html>please log in</html>".to_owned()), "not a model's answer"),
        (
            Answer::ok("{\"error\":{\"message\":\"You have no credits\"}}".to_owned()),
            "it reports an error (You have no credits)",
        ),
        (
            Answer::status(307, "").with_header("location", "http://elsewhere.example/"),
            "it sends us to http://elsewhere.example/",
        ),
        (Answer::status(500, "oops"), "HTTP 500: oops"),
    ] {
        let endpoint = endpoint(move |_| answer.clone());
        let ran = lab.run_at(&endpoint, &eval(&["--retries", "0"])).exits_with(1);
        let last = ran.err.lines().last().unwrap();
        assert!(last.contains("the judge answered none of the questions") && last.contains(expected), "{}", ran.err);
    }
}

#[test]
fn an_endpoint_that_never_answers_is_not_waited_for() {
    let lab = Lab::with_cases(3);
    let endpoint = endpoint(|_| Answer::SlowLoris);
    let ran = lab.run_at(&endpoint, &eval(&["--timeout", "0.3"])).exits_with(1);
    assert!(ran.err.contains("no answer within 0.3 s (tried 2 times)"), "{}", ran.err);
}

#[test]
fn an_endpoint_that_asks_for_a_day() {
    let lab = Lab::with_cases(3);
    let endpoint = endpoint(|_| Answer::status(429, "{}").with_header("retry-after", "86400"));
    let ran = lab.run_at(&endpoint, &eval(&[])).exits_with(2);
    assert!(only_line(&ran).contains("asks to be left alone for 86400 s"), "{}", ran.err);
}

#[test]
fn a_source_is_not_overwritten() {
    let lab = Lab::with_cases(2);
    let before = lab.read("cases.jsonl");
    let ran = lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--json", "./cases.jsonl"]).exits_with(2);
    assert!(only_line(&ran).contains("it is a source"), "{}", ran.err);
    assert_eq!(lab.read("cases.jsonl"), before);
    lab.run(&["eval", "cases.jsonl", "--judge", "offline", "--json", "a", "--html", "./a"]).exits_with(2);
}
