//! Records that cannot be read: the turns whose calls or answer may have stood in them say so.

#![allow(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use gradus_core::trajectory::{DefectKind, Trajectory};
use gradus_import::SESSION_FORMATS;
use serde_json::{Value as Json, json};

use super::TurnList;

/// The turns of a session of the format that its first line proves. The other lines may be anything.
fn read_damaged(lines: &[&str]) -> Vec<Trajectory> {
    let first: Vec<Json> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let format = SESSION_FORMATS.iter().find(|format| (format.matches)(&first)).unwrap();
    let mut found = TurnList::default();
    let mut reader = (format.open)();
    for line in lines {
        reader.read_record(line.as_bytes(), &mut found);
    }
    reader.finish(&mut found);
    assert_eq!(found.bad_records.len(), 1, "{:?}", found.bad_records);
    found.turns.into_iter().map(|turn| turn.trajectory).collect()
}

fn lost(turns: &[Trajectory]) -> Vec<usize> {
    let count =
        |turn: &Trajectory| turn.defects.iter().filter(|defect| defect.kind == DefectKind::UnreadableRecord).count();
    turns.iter().map(count).collect()
}

fn claude_line(number: u32, kind: &str, content: &str) -> String {
    let message = json!({"id": format!("msg_{number}"), "role": kind, "content": content});
    json!({
        "type": kind, "sessionId": "s", "cwd": "/p", "version": "2.1.0", "isSidechain": false, "message": message,
        "uuid": format!("u{number}"), "parentUuid": format!("u{}", number - 1), "timestamp": "2026-02-01T00:00:00Z",
    })
    .to_string()
}

#[test]
fn the_turn_of_a_damaged_line_and_the_next_one_are_marked() {
    let asked = |number| claude_line(number, "user", "go on");
    let said = |number| claude_line(number, "assistant", "done");
    let damaged = said(4).replace("\"msg_4\"", "[GONE]");
    let lines = [asked(1), said(2), asked(3), damaged, asked(5), said(6), asked(7), said(8)];
    let turns = read_damaged(&lines.each_ref().map(String::as_str));
    let answers: Vec<_> = turns.iter().map(|turn| turn.final_answer.as_deref()).collect();
    // The two requests around the damaged line look like one.
    assert_eq!(answers, [Some("done"), Some("done"), Some("done")]);
    assert_eq!(lost(&turns), [0, 1, 1]);
}

#[test]
fn a_damaged_line_before_the_first_request_marks_it() {
    let lines = ["{\"type\":\"user\",", &claude_line(2, "user", "go on"), &claude_line(3, "assistant", "done")];
    assert_eq!(lost(&read_damaged(&lines)), [1]);
}

#[test]
fn messages_that_are_held_are_marked_in_their_order() {
    let message = |number: u32, kind: &str| {
        json!({"id": format!("m{number}"), "timestamp": "2026-02-01T00:00:00Z", "type": kind, "content": "text"})
            .to_string()
    };
    let head = json!({"sessionId": "s", "projectHash": "h"}).to_string();
    let lines = [head, message(1, "user"), message(2, "gemini"), message(3, "user"), "{\"id\":".to_owned()];
    assert_eq!(lost(&read_damaged(&lines.each_ref().map(String::as_str))), [0, 1]);
}

#[test]
fn an_item_of_an_unknown_kind_may_be_a_call() {
    let event = |item: Json| json!({"type": "item.completed", "item": item}).to_string();
    let lines = [
        json!({"type": "thread.started", "thread_id": "t"}).to_string(),
        json!({"type": "turn.started"}).to_string(),
        event(json!({"id": "item_0", "type": "agent_message", "text": "I look."})),
        event(json!({"id": "item_1", "type": "new_tool_call", "tool_name": "look"})),
    ];
    assert_eq!(lost(&read_damaged(&lines.each_ref().map(String::as_str))), [1]);
}

#[test]
fn the_copy_of_a_subagent_lacks_its_last_reply() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/imports/claude-code");
    let text = std::fs::read_to_string(format!("{folder}/subagents_in_progress.jsonl")).unwrap();
    let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let turns = super::read_lines(&lines);
    let is_open = |turn: &Trajectory| turn.defects.iter().any(|defect| defect.kind == DefectKind::MissingReply);
    let found: Vec<_> = turns.iter().map(|turn| (turn.is_copy, is_open(&turn.trajectory))).collect();
    assert_eq!(found, [(false, false), (true, true), (true, true)]);
    assert_eq!(turns[0].subagents.len(), 2, "the results name the subagents again");
}
