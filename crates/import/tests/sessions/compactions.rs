//! Sessions whose context was compacted: the step behind a compaction is marked, and the copy of the conversation that
//! the summary is made of is left out.

use gradus_core::trajectory::{DefectKind, Trajectory, TrajectoryStep};
use gradus_import::{SESSION_FORMATS, read_first_records};
use serde_json::{Value as Json, json};

use super::{claude_line, claude_request, read_lines};

/// Which steps of the turns are marked.
fn marked_steps(lines: &[Json]) -> Vec<Vec<bool>> {
    let marks = |steps: &[TrajectoryStep]| steps.iter().map(|step| step.after_compaction).collect();
    read_lines(lines).iter().map(|turn| marks(&turn.trajectory.steps)).collect()
}

/// A reply with one call for each path, and their results.
fn read_files(number: u32, paths: &[&str]) -> Vec<Json> {
    let id = |path: &str| format!("{number}-{path}");
    let call = |path: &&str| json!({"type": "tool_use", "id": id(path), "name": "Read", "input": {"file_path": path}});
    let calls: Vec<Json> = paths.iter().map(call).collect();
    let result = |path: &&str| json!({"type": "tool_result", "tool_use_id": id(path), "content": "x = 1"});
    let results: Vec<Json> = paths.iter().map(result).collect();
    let reply = json!({"id": format!("msg_{number}"), "role": "assistant", "content": calls});
    vec![
        claude_line(number, "assistant", &json!({"message": reply})),
        claude_line(number + 1, "user", &json!({"message": {"role": "user", "content": results}})),
    ]
}

#[test]
fn the_step_behind_a_compaction_is_marked() {
    let summary = json!({"isCompactSummary": true, "message": {"role": "user", "content": "The story so far."}});
    let signs = [
        claude_line(4, "system", &json!({"subtype": "compact_boundary", "content": "Conversation compacted"})),
        claude_line(4, "system", &json!({"subtype": "microcompact_boundary", "content": "Context microcompacted"})),
        claude_line(4, "user", &summary),
    ];
    for sign in signs {
        let mut lines = vec![claude_request(1, "fix it")];
        lines.extend(read_files(2, &["a.py"]));
        lines.push(sign.clone());
        lines.extend(read_files(5, &["a.py", "b.py"]));
        lines.extend(read_files(7, &["a.py"]));
        assert_eq!(marked_steps(&lines), [[false, true, false, false]], "{sign}");
    }
    let other = claude_line(4, "system", &json!({"subtype": "turn_duration"}));
    let mut lines = vec![claude_request(1, "fix it")];
    lines.extend(read_files(2, &["a.py"]));
    // Between two turns.
    lines.extend([
        other,
        claude_line(5, "system", &json!({"subtype": "compact_boundary"})),
        claude_request(6, "go on"),
    ]);
    lines.extend(read_files(7, &["a.py"]));
    assert_eq!(marked_steps(&lines), [[false], [true]]);
}

#[test]
fn later_turns_begin_with_a_summary_too() {
    let summary = json!({"isCompactSummary": true, "message": {"role": "user", "content": "The story so far."}});
    let mut lines = vec![claude_request(1, "fix it")];
    lines.extend(read_files(2, &["a.py"]));
    lines.push(claude_line(4, "user", &summary));
    lines.extend(read_files(5, &["b.py"]));
    lines.push(claude_request(7, "go on"));
    lines.extend(read_files(8, &["a.py"]));
    lines.extend(read_files(10, &["b.py"]));
    lines.push(claude_request(12, "and now the tests"));
    lines.extend(read_files(13, &["a.py"]));
    assert_eq!(marked_steps(&lines), [vec![false, true], vec![true, false], vec![true]]);
    assert_eq!(turns_without_context(&lines), [false, false, false], "the record has what was summarized");
}

/// Whether each turn lacks the conversation before it.
fn turns_without_context(lines: &[Json]) -> Vec<bool> {
    let is_missing = |turn: &Trajectory| turn.defects.iter().any(|defect| defect.kind == DefectKind::MissingTurn);
    read_lines(lines).iter().map(|turn| is_missing(&turn.trajectory)).collect()
}

#[test]
fn a_session_that_begins_with_a_summary_lacks_its_context_in_every_turn() {
    let text = "This session is being continued from a previous conversation that ran out of context. The summary:";
    let message = json!({"role": "user", "content": text});
    for summary in [json!({"isCompactSummary": true, "message": message}), json!({"message": message})] {
        let mut lines = vec![claude_line(1, "user", &summary), claude_request(2, "go on")];
        lines.extend(read_files(3, &["a.py"]));
        lines.push(claude_request(5, "and now the tests"));
        lines.extend(read_files(6, &["b.py"]));
        assert_eq!(marked_steps(&lines), [[true], [true]], "{summary}");
        assert_eq!(turns_without_context(&lines), [true, true], "{summary}");
    }
}

#[test]
fn an_agent_that_continues_another_file_lacks_its_context() {
    let in_agent = |mut line: Json| {
        line["isSidechain"] = true.into();
        line["agentId"] = "a1".into();
        line
    };
    // The first line follows `u0`, which is in the file of the session.
    let mut lines = vec![claude_request(1, "fix it")];
    lines.extend(read_files(2, &["a.py"]));
    lines.push(claude_request(4, "go on"));
    lines.extend(read_files(5, &["b.py"]));
    let mut lines: Vec<Json> = lines.into_iter().map(in_agent).collect();
    assert_eq!(turns_without_context(&lines), [true, true]);
    lines[0]["parentUuid"] = Json::Null;
    assert_eq!(turns_without_context(&lines), [false, false]);
    // A notice, which is not read, comes before the request.
    lines[0]["parentUuid"] = "u0".into();
    lines.insert(0, in_agent(claude_line(1, "progress", &json!({"uuid": "u0", "parentUuid": null}))));
    assert_eq!(turns_without_context(&lines), [false, false]);
}

#[test]
fn compactions_of_codex_are_marked() {
    let record =
        |kind: &str, payload: &Json| json!({"timestamp": "2026-02-01T00:00:00Z", "type": kind, "payload": payload});
    let item = |payload: &Json| record("response_item", payload);
    let read = |id: &str| {
        let call = json!({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": id});
        [item(&call), item(&json!({"type": "function_call_output", "call_id": id, "output": "a"}))]
    };
    let signs = [
        record("compacted", &json!({"message": "The story so far."})),
        record("event_msg", &json!({"type": "context_compacted"})),
        item(&json!({"type": "compaction", "encrypted_content": "x"})),
    ];
    for sign in signs {
        let meta = json!({"id": "01997ea4-a70d-7da3-8c20-c736db82a7c5", "cwd": "/p", "cli_version": "0.90.0"});
        let mut lines = vec![record("session_meta", &meta)];
        lines.push(record("event_msg", &json!({"type": "user_message", "message": "list"})));
        lines.extend(read("1"));
        lines.push(sign.clone());
        lines.extend(read("2"));
        lines.extend(read("3"));
        assert_eq!(marked_steps(&lines), [[false, true, false]], "{sign}");
    }
}

#[test]
fn the_copy_that_a_summary_is_made_of_is_left_out() {
    let copied = |agent_id: &str| {
        let mut lines = vec![claude_request(1, "fix it")];
        lines.extend(read_files(2, &["a.py"]));
        for line in &mut lines {
            line["isSidechain"] = true.into();
            line["agentId"] = agent_id.into();
        }
        read_lines(&lines).len()
    };
    assert_eq!((copied("acompact-1f2e3d"), copied("a1f2e3d")), (0, 1));
}

/// The first bytes of a session can end inside of its first message, in front of the ids.
#[test]
fn a_session_is_recognised_by_a_message_that_is_cut() {
    let bookkeeping = json!({"type": "mode", "mode": "normal"}).to_string();
    let cut = r#"{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"a long re"#;
    let name = |head: &str| {
        let records = read_first_records(head.as_bytes());
        SESSION_FORMATS.iter().find(|format| (format.matches)(&records)).map(|format| format.name)
    };
    assert_eq!(name(&[&*bookkeeping; 4].join("\n")), None);
    let head = format!("{}\n{cut}", [&*bookkeeping; 4].join("\n"));
    assert_eq!(name(&head), Some("Claude Code session"));
    assert_eq!(name(&head.replace("\"isSidechain\":false,", "")), None, "another tool may have such lines");
}
