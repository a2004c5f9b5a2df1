//! An agent at work: what it shows, what it may do, with whom it can talk.

use std::io::Write as _;
use std::process::Stdio;

use gradus_test_endpoint::Answer;
use serde_json::json;

use crate::lab::{Lab, Reply, answer, call, model, model_with};
use crate::place::Ran;

#[test]
fn steps_are_shown_and_the_answer_is_on_standard_output() {
    let lab = Lab::new("w1");
    let model = model(vec![
        call("I look.\u{1b}[2J", "get_me", json!({})),
        call("I look closer.", "get_repo", json!({"owner": "octo", "repo": "none"})),
        answer("You are octo."),
    ]);
    let ran = lab.ask(&model, &["Who am I?"]).exits_with(0);
    assert_eq!(ran.out, "You are octo.\n");
    for shown in [
        "scripted works on: Who am I?",
        "Step 1\n  Thought: I look.\\u{1b}[2J\n  Action: get_me\n  Action Input: {}\n  Observation: {\"login\":\"octo\"",
        "Step 2\n  Thought: I look closer.",
        "Observation (error): {\"error\":\"Not Found\"",
        "2 calls and 3 replies for this request; 330 tokens in the whole session",
    ] {
        assert!(ran.err.contains(shown), "{shown:?} is not in {}", ran.err);
    }
    assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
    let quiet = lab.ask(&model, &["Who am I?", "--quiet"]).exits_with(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("You are octo.\n", ""));
}

#[test]
fn a_thought_is_shown_once_for_each_reply_that_has_it() {
    let lab = Lab::new("w1");
    let both = Reply { thought: "I look.", calls: vec![("get_me", json!({})), ("get_me", json!({}))] };
    let model = model(vec![both, call("I look.", "get_me", json!({})), answer("You are octo.")]);
    let ran = lab.ask(&model, &["Who am I?"]).exits_with(0);
    assert_eq!(ran.err.matches("Thought: I look.").count(), 2, "{}", ran.err);
    assert!(ran.err.contains("Step 3\n  Thought: I look."), "{}", ran.err);
}

#[test]
fn a_request_can_come_from_standard_input() {
    let lab = Lab::new("w0");
    let model = model_with(vec![answer("Hello.")], |incoming| {
        (!incoming.contains("Say hello, please.")).then(|| Answer::status(400, "{}"))
    });
    let mut child = lab
        .agent(&model, &["--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Say hello, please.\n").unwrap();
    assert_eq!(Ran::from_output(child.wait_with_output().unwrap()).exits_with(0).out, "Hello.\n");
}

#[test]
fn a_conversation_goes_on_line_by_line() {
    let lab = Lab::new("w1");
    let model = model(vec![
        call("I look.", "get_me", json!({})),
        answer("You are octo."),
        call("I star it.", "star_repo", json!({"owner": "octo", "repo": "demo"})),
        answer("Starred."),
    ]);
    let mut child = lab
        .agent(&model, &["--chat", "--quiet", "--session", "s.json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Who am I?\n\nStar demo.\n/quit\nnever\n").unwrap();
    let ran = Ran::from_output(child.wait_with_output().unwrap()).exits_with(0);
    assert_eq!(ran.out, "You are octo.\nStarred.\n");
}

#[test]
fn what_is_destructive_needs_somebody_who_allows_it() {
    let script =
        || vec![call("I delete it.", "delete_repo", json!({"owner": "octo", "repo": "demo"})), answer("I tried.")];
    let has_demo = |lab: &Lab| !lab.github.world().lock().unwrap().state().repositories.is_empty();
    let lab = Lab::new("w1");
    let ran = lab.ask(&model(script()), &["Delete demo."]).exits_with(0);
    assert!(
        ran.err.contains("there is nobody here who could allow it (the user can, with --allow-destructive)"),
        "{}",
        ran.err
    );
    let step = "Step 1\n  Thought: I delete it.\n  Action: delete_repo\n";
    assert!(ran.err.contains(step) && !ran.err.contains("Step 2"), "a step begins once: {}", ran.err);
    assert!(has_demo(&lab));
    let ran = lab.ask(&model(script()), &["Delete demo.", "--allow-destructive", "--read-only"]).exits_with(0);
    assert!(ran.err.contains("Observation (error)"), "{}", ran.err);
    assert!(has_demo(&lab));
    lab.ask(&model(script()), &["Delete demo.", "--allow-destructive"]).exits_with(0);
    assert!(!has_demo(&lab));
}

#[test]
fn an_endpoint_that_takes_no_stop_sequences_is_learned() {
    let lab = Lab::new("w1");
    let model = model_with(vec![call("I look.", "get_me", json!({})), answer("You are octo.")], |incoming| {
        let message = r#"{"error":{"message":"Unsupported parameter: 'stop' is not supported with this model."}}"#;
        incoming.contains("\"stop\":").then(|| Answer::status(400, message))
    });
    let ran = lab.ask(&model, &["Who am I?", "--react", "text"]).exits_with(0);
    assert_eq!(ran.out, "You are octo.\n");
    // Refused once, and asked twice.
    assert_eq!(model.received(), 3);
}

#[test]
fn anthropics_wire_form_works_as_well() {
    let lab = Lab::new("w1");
    let model = model(vec![
        call("I look.", "get_me", json!({})),
        call("I star it.", "star_repo", json!({"owner": "octo", "repo": "demo"})),
        answer("Starred."),
    ]);
    let (url, github) = (model.origin(), lab.github.url());
    let arguments = [
        "agent",
        "Star demo.",
        "--provider",
        "anthropic",
        "--model",
        "claude",
        "--base-url",
        &url,
        "--github-url",
        &github,
        "--api-key-env",
        "MY_KEY",
        "--json",
    ];
    let mut command = lab.command(&arguments);
    command.env("GITHUB_TOKEN", crate::lab::TOKEN).env("MY_KEY", "k").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    let ran = Ran::from_output(command.output().unwrap()).exits_with(0);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["answer"], "Starred.");
    assert_eq!(report["steps"][1]["tool"], "star_repo");
    assert_eq!(report["steps"][1]["is_error"], false, "{report:#}");
}

#[test]
fn a_run_without_an_answer_is_no_success() {
    let lab = Lab::new("w1");
    let forever: Vec<_> = (0..9).map(|_| call("Again.", "get_me", json!({}))).collect();
    let ran = lab.ask(&model(forever), &["Who am I?", "--max-steps", "4"]).exits_with(1);
    assert!(ran.out.is_empty() && ran.err.contains("the limit of steps is reached"), "{}", ran.err);
    let forever: Vec<_> = (0..9).map(|_| call("Again.", "get_me", json!({}))).collect();
    let ran = lab.ask(&model(forever.clone()), &["Who am I?", "--max-calls", "2"]).exits_with(1);
    assert!(ran.err.contains("Stopped: the limit of calls is reached"), "{}", ran.err);
    let ran = lab.ask(&model(forever), &["Who am I?", "--max-calls", "2", "--quiet"]).exits_with(1);
    assert!(ran.err.contains("no answer: the limit of calls is reached"), "{}", ran.err);
    let refuses = model_with(Vec::new(), |_| Some(Answer::status(401, r#"{"error":{"message":"bad key"}}"#)));
    let ran = lab.ask(&refuses, &["Who am I?", "--quiet"]).exits_with(1);
    assert!(ran.err.contains("no answer: HTTP 401: bad key"), "{}", ran.err);
}

#[test]
fn an_unusable_reply_is_shown_and_is_no_answer() {
    let lab = Lab::new("w1");
    let model = model_with(Vec::new(), |_| {
        let message = json!({"role": "assistant", "content": "\nWell,\u{1b}[2J let me see.\nAnd so on."});
        Some(Answer::ok(json!({"choices": [{"message": message, "finish_reason": "stop"}]}).to_string()))
    });
    let ran = lab.ask(&model, &["Who am I?", "--react", "text", "--trace-file", "t.bin"]).exits_with(1);
    let shown = "The reply could not be used: it has neither an Action nor a Final Answer\n  It begins: Well,\\u{1b}[2J let me see.\n";
    assert_eq!(ran.err.matches(shown).count(), 3, "{}", ran.err);
    let read = lab.run(&["traces", "t.bin", "--format", "jsonl"]).exits_with(0);
    let trajectory: serde_json::Value = serde_json::from_str(read.out.trim()).unwrap();
    assert_eq!((&trajectory["final_answer"], &trajectory["is_error"]), (&json!(null), &json!(true)));
    assert_eq!(trajectory["steps"], json!([]));
}

#[test]
fn one_refusal_of_a_long_conversation_does_not_end_the_run_with_all_tools() {
    let lab = Lab::new("w1");
    let put = |text: &'static str| json!({"owner": "octo", "repo": "demo", "path": "long.txt", "message": "m", "content": text});
    let long: &'static str = "a long line of text\n".repeat(200).leak();
    let read = || call("I read it.", "read_file", json!({"owner": "octo", "repo": "demo", "path": "long.txt"}));
    let script = vec![call("I write it.", "commit_file", put(long)), read(), read(), answer("It is long.")];
    let refused = std::sync::atomic::AtomicBool::new(false);
    let model = model_with(script, move |incoming| {
        let asked: serde_json::Value = serde_json::from_slice(incoming.body).unwrap();
        let is_late = asked["messages"].as_array().unwrap().len() > 7;
        let message = r#"{"error":{"code":"context_length_exceeded","message":"This model's maximum context length is 16384 tokens."}}"#;
        (is_late && !refused.swap(true, std::sync::atomic::Ordering::Relaxed)).then(|| Answer::status(400, message))
    });
    let ran = lab.ask(&model, &["How long is it?", "--allow-destructive"]).exits_with(0);
    assert_eq!((ran.out.as_str(), model.received()), ("It is long.\n", 5), "{}", ran.err);
    let ran = lab.ask(&model, &["How long is it?", "--context-tokens", "16000"]).exits_with(1);
    assert!(ran.err.contains("tokens of it and cannot be shortened: --tools offers fewer"), "{}", ran.err);
    assert_eq!(model.received(), 5, "nothing was asked");
}

/// A server that speaks just enough of the protocol.
const MCP_SERVER: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"clock","version":"1"}}}\n' "$id" ;;
    *'"method":"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"tell_time","description":"Tells the time.","inputSchema":{"type":"object","properties":{"zone":{"type":"string"}}},"annotations":{"readOnlyHint":true}}]}}\n' "$id" ;;
    *'"method":"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"It is noon."}]}}\n' "$id" ;;
  esac
done
"#;

#[test]
fn tools_of_an_mcp_server_can_be_used_beside_githubs() {
    let lab = Lab::new("w1");
    lab.write("server.sh", MCP_SERVER);
    let model = model(vec![
        call("I ask the clock.", "tell_time", json!({"zone": "UTC"})),
        call("I look who I am.", "get_me", json!({})),
        answer("It is noon, octo."),
    ]);
    let ran = lab.ask(&model, &["What time is it?", "--mcp", "sh server.sh", "--read-only"]).exits_with(0);
    assert!(ran.err.contains("Observation: It is noon."), "{}", ran.err);
    assert!(ran.err.contains("\"login\":\"octo\""), "{}", ran.err);
    assert_eq!(ran.out, "It is noon, octo.\n");
}
