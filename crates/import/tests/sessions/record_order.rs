//! Orders of records that real sessions have: results of a turn that the user interrupted by writing on, results before
//! their calls, and token counts before or after the items that they count.

#![allow(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use gradus_core::trajectory::{DefectKind, Trajectory};
use serde_json::{Value as Json, json};

use super::read_lines;

fn read_trajectories(lines: &[Json]) -> Vec<Trajectory> {
    read_lines(lines).into_iter().map(|turn| turn.trajectory).collect()
}

/// A line of a Claude Code session.
fn line(number: u32, kind: &str, message: &Json) -> Json {
    json!({
        "type": kind, "sessionId": "s", "cwd": "/p", "version": "2.1.0", "isSidechain": false, "message": message,
        "uuid": format!("u{number}"), "parentUuid": format!("u{}", number - 1), "timestamp": "2026-02-01T00:00:00Z",
    })
}

fn asked(number: u32, text: &str) -> Json {
    line(number, "user", &json!({"role": "user", "content": text}))
}

fn replied(number: u32, block: &Json) -> Json {
    line(number, "assistant", &json!({"id": format!("msg_{number}"), "role": "assistant", "content": [block]}))
}

fn called(number: u32, id: &str) -> Json {
    replied(number, &json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}))
}

fn returned(number: u32, id: &str, text: Option<&str>) -> Json {
    let mut blocks = vec![json!({"type": "tool_result", "tool_use_id": id, "content": format!("of {id}")})];
    blocks.extend(text.map(|text| json!({"type": "text", "text": text})));
    line(number, "user", &json!({"role": "user", "content": blocks}))
}

fn said(number: u32, text: &str) -> Json {
    replied(number, &json!({"type": "text", "text": text}))
}

fn results(turn: &Trajectory) -> Vec<Option<&str>> {
    turn.steps.iter().map(|step| step.observation.as_deref()).collect()
}

fn has_defect(turn: &Trajectory, kind: DefectKind) -> bool {
    turn.defects.iter().any(|defect| defect.kind == kind)
}

#[test]
fn results_reach_calls_of_a_turn_that_ended() {
    let feedback = [
        asked(1, "fix both"),
        called(2, "a"),
        called(3, "b"),
        returned(4, "a", Some("and test it")),
        returned(5, "b", None),
        said(6, "OK."),
    ];
    let turns = read_trajectories(&feedback);
    assert_eq!(results(&turns[0]), [Some("of a"), Some("of b")]);
    assert!(!has_defect(&turns[1], DefectKind::ToolRunOutsideSteps));
    let typed = [
        asked(1, "run the tests"),
        called(2, "a"),
        asked(3, "are you stuck?"),
        said(4, "No."),
        returned(5, "a", None),
        said(6, "Done."),
    ];
    let turns = read_trajectories(&typed);
    assert_eq!(results(&turns[0]), [Some("of a")]);
    let reason = turns[0].defects.iter().find(|defect| defect.kind == DefectKind::MissingAnswer).unwrap();
    assert_eq!(reason.detail, "the user wrote again before there was an answer");
    assert!(!has_defect(&turns[1], DefectKind::MissingAnswer));
}

#[test]
fn a_result_can_stand_before_its_call() {
    let turns = read_trajectories(&[asked(1, "look"), returned(2, "a", None), called(3, "a"), said(4, "Done.")]);
    assert_eq!(results(&turns[0]), [Some("of a")]);
    assert!(!has_defect(&turns[0], DefectKind::ToolRunOutsideSteps));
    let turns = read_trajectories(&[asked(1, "look"), returned(2, "a", None), said(4, "Done.")]);
    assert!(has_defect(&turns[0], DefectKind::ToolRunOutsideSteps), "its call never comes");
}

fn codex(kind: &str, payload: Json) -> Json {
    json!({"timestamp": "2025-09-25T00:00:00Z", "type": kind, "payload": payload})
}

fn counted(total: u64, last: u64) -> Json {
    let tokens = |count: u64| json!({"input_tokens": count, "cached_input_tokens": 0, "output_tokens": 0});
    let info = json!({"total_token_usage": tokens(total), "last_token_usage": tokens(last)});
    codex("event_msg", json!({"type": "token_count", "info": info}))
}

fn codex_call(id: &str) -> [Json; 2] {
    let call = json!({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": id});
    let output = json!({"type": "function_call_output", "call_id": id, "output": "a"});
    [codex("response_item", call), codex("response_item", output)]
}

fn codex_start() -> Vec<Json> {
    let meta = json!({"id": "01997ea4-a70d-7da3-8c20-c736db82a7c5", "cwd": "/p", "cli_version": "0.40.0"});
    vec![codex("session_meta", meta), codex("event_msg", json!({"type": "user_message", "message": "list"}))]
}

fn codex_answer() -> Json {
    let content = json!([{"type": "output_text", "text": "Done."}]);
    codex("response_item", json!({"type": "message", "role": "assistant", "content": content}))
}

#[test]
fn codex_counts_tokens_before_or_after_the_items() {
    let mut lines = codex_start();
    lines.push(counted(100, 100));
    lines.extend(codex_call("a"));
    lines.push(counted(300, 200));
    lines.extend(codex_call("b"));
    lines.push(codex("event_msg", json!({"type": "agent_message", "message": "Done."})));
    lines.push(counted(700, 400));
    lines.push(codex_answer());
    let turns = read_trajectories(&lines);
    let steps: Vec<u64> = turns[0].steps.iter().map(|step| step.tokens.prompt).collect();
    assert_eq!((steps, turns[0].tokens.prompt), (vec![100, 200], 700));
    assert_eq!(turns[0].final_answer.as_deref(), Some("Done."));

    let mut lines = codex_start();
    lines.extend(codex_call("a"));
    lines.push(counted(100, 100));
    lines.push(codex("response_item", json!({"type": "reasoning", "summary": []})));
    // The same report again.
    lines.push(counted(100, 100));
    lines.push(codex_answer());
    lines.push(counted(300, 200));
    let turns = read_trajectories(&lines);
    assert_eq!((turns[0].steps[0].tokens.prompt, turns[0].tokens.prompt), (100, 300));
}
