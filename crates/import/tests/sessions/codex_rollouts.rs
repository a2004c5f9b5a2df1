//! Rollouts of earlier versions of Codex: texts that are written twice, and failures that only their results show.

use gradus_core::trajectory::Trajectory;
use serde_json::{Value as Json, json};

use super::read_lines;

fn record(kind: &str, payload: &Json) -> Json {
    json!({"timestamp": "2025-08-01T00:00:00.000Z", "type": kind, "payload": payload})
}

fn item(payload: &Json) -> Json {
    record("response_item", payload)
}

fn said_event(text: &str) -> Json {
    record("event_msg", &json!({"type": "agent_message", "message": text}))
}

fn said_item(text: &str) -> Json {
    let content = json!([{"type": "output_text", "text": text}]);
    item(&json!({"type": "message", "role": "assistant", "content": content}))
}

fn reasoning_item() -> Json {
    item(&json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}))
}

fn tokens_event(total: u64, last: u64) -> Json {
    let usage = |count: u64| json!({"input_tokens": count, "output_tokens": count});
    let info = json!({"total_token_usage": usage(total), "last_token_usage": usage(last)});
    record("event_msg", &json!({"type": "token_count", "info": info}))
}

fn call(tool: &str, arguments: &Json) -> Json {
    let arguments = arguments.to_string();
    item(&json!({"type": "function_call", "name": tool, "arguments": arguments, "call_id": "c"}))
}

fn result(output: &Json) -> Json {
    item(&json!({"type": "function_call_output", "call_id": "c", "output": output}))
}

/// The turn of a session with one request.
fn read_turn(lines: &[Json]) -> Trajectory {
    let meta = json!({"id": "01997ea4-a70d-7da3-8c20-c736db82a7c5", "cwd": "/p", "cli_version": "0.30.0"});
    let mut all = vec![record("session_meta", &meta)];
    all.push(record("event_msg", &json!({"type": "user_message", "message": "look around"})));
    all.extend(lines.iter().cloned());
    let mut turns = read_lines(&all);
    assert_eq!(turns.len(), 1);
    turns.remove(0).trajectory
}

#[test]
fn a_text_whose_item_comes_behind_the_tokens_counts_once() {
    let reasoning = record("event_msg", &json!({"type": "agent_reasoning", "text": "**Answering**"}));
    let turn = read_turn(&[
        call("shell", &json!({"command": ["ls"]})),
        tokens_event(10, 10),
        result(&json!("a.txt")),
        said_event("There is one file."),
        tokens_event(15, 5),
        reasoning,
        said_item("There is one file."),
    ]);
    assert_eq!(turn.final_answer.as_deref(), Some("There is one file."));
    assert_eq!(turn.tokens.completion, 15);
}

#[test]
fn a_text_whose_item_comes_behind_the_reasoning_is_the_thought_once() {
    let turn = read_turn(&[
        said_event("I look."),
        said_event("Then I answer."),
        reasoning_item(),
        said_item("I look."),
        said_item("Then I answer."),
        call("shell", &json!({"command": ["ls"]})),
        result(&json!("a.txt")),
        said_event("I look."),
        reasoning_item(),
        said_item("I look."),
    ]);
    assert_eq!(turn.steps[0].thought.as_deref(), Some("I look.\nThen I answer."));
    assert_eq!(turn.final_answer.as_deref(), Some("I look."), "said again after the result");
}

#[test]
fn failures_that_only_results_show_are_errors() {
    let list = json!({"command": ["ls"]});
    let patch = json!({"command": ["apply_patch", "*** Begin Patch\n*** Update File: a.txt\n*** End Patch"]});
    let exit = |code: u32| json!({"output": "a.txt", "metadata": {"exit_code": code}}).to_string();
    let has_failed = |call: Json, output: Json| read_turn(&[call, result(&output)]).steps[0].is_error;
    assert!(has_failed(call("shell", &list), json!("failed in sandbox MacosSeatbelt with execution error: timeout")));
    assert!(has_failed(call("shell", &list), json!(exit(1))));
    assert!(has_failed(call("shell", &list), json!({"content": exit(1)})));
    assert!(has_failed(call("shell", &patch), json!("error: a.txt is not there")));
    assert!(has_failed(call("apply_patch", &json!({"input": "x"})), json!("error: invalid patch")));
    assert!(!has_failed(call("shell", &list), json!(exit(0))));
    assert!(!has_failed(call("shell", &list), json!("error: a program said so")));
}

#[test]
fn a_text_that_is_said_again_stays() {
    let turn = read_turn(&[
        said_event("Again."),
        said_item("Again."),
        call("shell", &json!({"command": ["ls"]})),
        result(&json!("a.txt")),
        said_item("Again."),
    ]);
    assert_eq!((turn.steps[0].thought.as_deref(), turn.final_answer.as_deref()), (Some("Again."), Some("Again.")));
}
