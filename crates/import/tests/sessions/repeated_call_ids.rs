//! Ids of calls repeat: some providers count them anew with each reply, and redaction replaces them by one word. No
//! call may be lost or get the result of another.

use gradus_core::trajectory::TrajectoryStep;
use gradus_import::{DOCUMENT_FORMATS, ImportedTurn};
use serde_json::{Value as Json, json};

use super::{TurnList, read_lines};

/// The arguments of each step and its result.
fn results(steps: &[TrajectoryStep]) -> Vec<(String, Option<&str>)> {
    let arguments = |step: &TrajectoryStep| step.arguments.as_ref().unwrap()["command"].as_str().unwrap().to_owned();
    steps.iter().map(|step| (arguments(step), step.observation.as_deref())).collect()
}

fn expect_two(turns: &[ImportedTurn]) {
    assert_eq!(turns.len(), 1);
    let expected = [("ls".to_owned(), Some("a.txt")), ("cat a.txt".to_owned(), Some("hello"))];
    assert_eq!(results(&turns[0].trajectory.steps), expected);
}

fn opencode_part(part: &str, command: &str, output: Option<&str>) -> Json {
    let status = if output.is_some() { "completed" } else { "running" };
    json!({
        "id": part, "sessionID": "ses_1", "messageID": "msg_1", "type": "tool", "callID": "call_0", "tool": "bash",
        "state": {"status": status, "input": {"command": command}, "output": output, "metadata": {"exit": 0}},
    })
}

#[test]
fn opencode_exports_list_each_call_once() {
    let message = |role: &str, parts: Json| json!({"info": {"id": "msg_1", "sessionID": "ses_1", "role": role, "time": {"created": 1}}, "parts": parts});
    let calls = [opencode_part("prt_1", "ls", Some("a.txt")), opencode_part("prt_2", "cat a.txt", Some("hello"))];
    let document = json!({
        "info": {"id": "ses_1", "time": {"created": 1}},
        "messages": [
            message("user", json!([{"id": "prt_0", "type": "text", "text": "look around"}])),
            message("assistant", json!([calls[0]])),
            message("assistant", json!([calls[1]])),
        ],
    });
    let Json::Object(object) = document else { unreachable!() };
    let format = DOCUMENT_FORMATS.iter().find(|format| (format.matches)(&object)).unwrap();
    let mut found = TurnList::default();
    (format.read)(object, &mut found).unwrap();
    expect_two(&found.turns);
}

#[test]
fn opencode_events_repeat_a_part_while_it_runs() {
    let event = |part: Json| json!({"type": "tool_use", "timestamp": 1, "sessionID": "ses_1", "part": part});
    expect_two(&read_lines(&[
        event(opencode_part("prt_1", "ls", None)),
        event(opencode_part("prt_1", "ls", Some("a.txt"))),
        event(opencode_part("prt_2", "cat a.txt", None)),
        event(opencode_part("prt_2", "cat a.txt", Some("hello"))),
    ]));
}

#[test]
fn copilot_pi_cursor_and_codex_reuse_ids() {
    let request = |command: &str| json!({"toolCallId": "call_0", "name": "bash", "arguments": {"command": command}});
    let event = |kind: &str, data: Json| json!({"type": kind, "id": "e", "data": data});
    let message =
        |command: &str| event("assistant.message", json!({"content": "", "toolRequests": [request(command)]}));
    let start = || event("tool.execution_start", json!({"toolCallId": "call_0", "toolName": "bash"}));
    let complete = |output: &str| {
        event(
            "tool.execution_complete",
            json!({"toolCallId": "call_0", "success": true, "result": {"content": output}}),
        )
    };
    let user = event("user.message", json!({"content": "look around"}));
    expect_two(&read_lines(&[
        user.clone(),
        message("ls"),
        start(),
        complete("a.txt"),
        message("cat a.txt"),
        start(),
        complete("hello"),
    ]));
    let both =
        event("assistant.message", json!({"content": "", "toolRequests": [request("ls"), request("cat a.txt")]}));
    expect_two(&read_lines(&[user, both, start(), complete("a.txt"), start(), complete("hello")]));

    let start = |command: &str| json!({"type": "tool_execution_start", "toolCallId": "call_0", "toolName": "bash", "args": {"command": command}});
    let end = |output: &str| json!({"type": "tool_execution_end", "toolCallId": "call_0", "result": output});
    let session = json!({"type": "session", "version": 3, "id": "s", "cwd": "/p"});
    expect_two(&read_lines(&[session, start("ls"), end("a.txt"), start("cat a.txt"), end("hello")]));

    let call = |subtype: &str, command: &str, result: Json| {
        let call = json!({"shellToolCall": {"args": {"command": command}, "result": result}});
        json!({"type": "tool_call", "subtype": subtype, "call_id": "call_0", "tool_call": call, "session_id": "s"})
    };
    let done = |output: &str| json!({"success": {"content": output}});
    expect_two(&read_lines(&[
        call("started", "ls", Json::Null),
        call("completed", "ls", done("a.txt")),
        call("completed", "ls", done("a.txt")),
        call("started", "cat a.txt", Json::Null),
        call("completed", "cat a.txt", done("hello")),
    ]));

    let item = |kind: &str, command: &str, output: &str| {
        let item = json!({"id": "item_0", "type": "command_execution", "command": command,
            "aggregated_output": output, "status": "completed"});
        json!({"type": kind, "item": item})
    };
    expect_two(&read_lines(&[
        json!({"type": "thread.started", "thread_id": "t"}),
        item("item.started", "ls", ""),
        item("item.completed", "ls", "a.txt"),
        item("item.started", "cat a.txt", ""),
        item("item.completed", "cat a.txt", "hello"),
    ]));
}
