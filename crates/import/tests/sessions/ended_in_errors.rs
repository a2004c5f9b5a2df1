//! Turns that end in an error of the API or of the program, and what looks like one.

use gradus_core::trajectory::{DefectKind, Trajectory};
use serde_json::{Value as Json, json};

use super::{claude_line, claude_request, read_lines};

fn read_trajectories(lines: &[Json]) -> Vec<Trajectory> {
    read_lines(lines).into_iter().map(|turn| turn.trajectory).collect()
}

fn failure(turn: &Trajectory) -> Option<&str> {
    let found = turn.defects.iter().find(|defect| defect.kind == DefectKind::RunFailed);
    assert_eq!(found.is_some(), turn.is_error);
    found.map(|defect| defect.detail.as_str())
}

fn said(number: u32) -> Json {
    let message = json!({"id": format!("msg_{number}"), "role": "assistant", "content": "Done."});
    claude_line(number, "assistant", &json!({"message": message}))
}

fn api_error(number: u32) -> Json {
    let error = json!({"status": 529, "error": {"type": "error", "error": {"message": "too many requests"}}});
    claude_line(number, "system", &json!({"subtype": "api_error", "error": error, "retryAttempt": 1, "maxRetries": 10}))
}

#[test]
fn a_turn_without_an_answer_ends_in_the_error_of_the_api() {
    let turns = read_trajectories(&[
        claude_request(1, "fix it"),
        api_error(2),
        api_error(3),
        claude_request(4, "go on"),
        said(5),
    ]);
    let expected = Some("the request to the API failed: 529 too many requests");
    assert_eq!((failure(&turns[0]), failure(&turns[1])), (expected, None));
    let socket = claude_line(2, "system", &json!({"subtype": "api_error", "error": {"cause": {"code": "ECONNRESET"}}}));
    let turns = read_trajectories(&[claude_request(1, "fix it"), socket]);
    assert_eq!(failure(&turns[0]), Some("the request to the API failed: ECONNRESET"));
    let turns =
        read_trajectories(&[claude_request(1, "fix it"), claude_line(2, "system", &json!({"subtype": "api_error"}))]);
    assert_eq!(failure(&turns[0]), Some("the request to the API failed"));
}

#[test]
fn a_request_that_is_repeated_or_stopped_is_no_end() {
    let stopped = claude_request(3, "[Request interrupted by user]");
    for lines in [
        vec![claude_request(1, "fix it"), api_error(2), said(3)],
        vec![claude_request(1, "fix it"), said(2), api_error(3)],
        vec![claude_request(1, "fix it"), api_error(2), stopped],
    ] {
        let turns = read_trajectories(&lines);
        assert_eq!((turns.len(), failure(&turns[0])), (1, None), "{lines:?}");
    }
}

fn gemini(fields: &[Json]) -> Vec<Json> {
    let head = json!({"type": "init", "timestamp": "2026-03-04T08:00:00Z", "session_id": "s", "model": "m"});
    let mut lines = vec![head, json!({"type": "message", "role": "user", "content": "fix it"})];
    lines.extend(fields.iter().cloned());
    lines
}

#[test]
fn a_run_of_gemini_ends_in_its_last_error() {
    let error = json!({"type": "error", "severity": "error", "message": "Maximum session turns exceeded"});
    let result = json!({"type": "result", "status": "error", "error": {"type": "Error", "message": "bad request"}});
    let text = json!({"type": "message", "role": "assistant", "content": "Done.", "delta": true});
    let failures = |lines: &[Json]| failure(&read_trajectories(&gemini(lines))[0]).map(str::to_owned);
    assert_eq!(failures(std::slice::from_ref(&error)).as_deref(), Some("Maximum session turns exceeded"));
    assert_eq!(failures(&[error.clone(), result]).as_deref(), Some("bad request"));
    assert_eq!(failures(&[error, text, json!({"type": "result", "status": "success"})]), None);
}

#[test]
fn an_error_of_the_prompt_editor_ends_no_run() {
    let message = |kind: &str, text: &str| json!({"id": text, "timestamp": "2026-02-01T00:00:00Z", "type": kind, "content": text});
    let failure_after = |error: &str| {
        let head = json!({"sessionId": "s", "projectHash": "h"});
        let turns = read_trajectories(&[head, message("user", "fix it"), message("error", error)]);
        failure(&turns[0]).map(str::to_owned)
    };
    assert_eq!(failure_after("[useTextBuffer] external editor error"), None);
    assert!(failure_after("[API Error: quota exceeded]").is_some());
}

#[test]
fn context_of_gemini_is_no_request() {
    let message =
        |text: &str| json!({"id": text, "timestamp": "2026-02-01T00:00:00Z", "type": "user", "content": text});
    let head = json!({"sessionId": "s", "projectHash": "h"});
    let context = message("<session_context>\nToday is Wednesday.\n</session_context>\n");
    assert_eq!(read_trajectories(&[head.clone(), context.clone()]), []);
    let quoted = "<session_context>a</session_context> means what? <session_context>b</session_context>";
    let turns = read_trajectories(&[head, context, message(quoted)]);
    assert_eq!(turns.iter().map(|turn| turn.query.as_deref()).collect::<Vec<_>>(), [Some(quoted)]);
}
