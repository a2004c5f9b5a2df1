//! Subagents that Claude Code starts for itself: to have prompts cached, or to guess what the user may type next. They
//! answer no request of anybody.

use serde_json::{Value as Json, json};

use super::{claude_line, claude_request, read_session};

/// A request to a subagent in a file of its own.
fn subagent_request(number: u32, text: &str) -> Json {
    in_subagent(claude_request(number, text))
}

fn subagent_reply(number: u32, text: &str) -> Json {
    let message = json!({"id": format!("msg_{number}"), "role": "assistant", "content": text});
    in_subagent(claude_line(number, "assistant", &json!({"message": message})))
}

fn in_subagent(mut line: Json) -> Json {
    line["isSidechain"] = true.into();
    line["agentId"] = "a1".into();
    line
}

/// The requests that are read, and the number of runs that are left out.
fn read_requests(lines: &[Json]) -> (Vec<String>, usize) {
    let found = read_session(lines);
    let requests = found.turns.iter().map(|turn| turn.trajectory.query.clone().unwrap_or_default());
    (requests.collect(), found.unrequested_runs)
}

#[test]
fn a_run_that_warms_a_cache_is_left_out_and_counted() {
    let lines = [subagent_request(1, "Warmup"), subagent_reply(2, "I am ready to explore the code.")];
    assert_eq!(read_requests(&lines), (Vec::new(), 1));
    // A file in which nobody replied yet.
    assert_eq!(read_requests(&lines[..1]), (Vec::new(), 1));
}

#[test]
fn other_requests_stay() {
    let both = [
        subagent_request(1, "Warmup"),
        subagent_reply(2, "Ready."),
        subagent_request(3, "Find the tests"),
        subagent_reply(4, "In src."),
    ];
    assert_eq!(read_requests(&both), (vec!["Find the tests".to_owned()], 1));
    let longer = [subagent_request(1, "Warmup the server"), subagent_reply(2, "Done.")];
    assert_eq!(read_requests(&longer), (vec!["Warmup the server".to_owned()], 0));
    let later = [
        subagent_request(1, "Find the tests"),
        subagent_reply(2, "In src."),
        subagent_request(3, "Warmup"),
        subagent_reply(4, "Ready."),
    ];
    assert_eq!(read_requests(&later), (vec!["Find the tests".to_owned(), "Warmup".to_owned()], 0));
    let reply = json!({"message": {"id": "m", "role": "assistant", "content": "Hello."}});
    let of_user = [claude_request(1, "Warmup"), claude_line(2, "assistant", &reply)];
    assert_eq!(read_requests(&of_user), (vec!["Warmup".to_owned()], 0));
}

#[test]
fn a_run_that_guesses_the_next_request_is_left_out_and_counted() {
    const GUESS: &str = "[SUGGESTION MODE: Guess what the user types next.]";
    let lines = [subagent_request(1, GUESS), subagent_reply(2, "run the tests")];
    assert_eq!(read_requests(&lines), (Vec::new(), 1));
    // The copied reply before it belongs to another conversation.
    let mut copied = [subagent_reply(1, "All is done."), subagent_request(2, GUESS), subagent_reply(3, "push it")];
    for line in &mut copied {
        line["agentId"] = "aprompt_suggestion-1f".into();
    }
    assert_eq!(read_requests(&copied), (Vec::new(), 1));
    let reply = json!({"message": {"id": "m", "role": "assistant", "content": "Hello."}});
    let of_user = [claude_request(1, GUESS), claude_line(2, "assistant", &reply)];
    assert_eq!(read_requests(&of_user), (vec![GUESS.to_owned()], 0));
    let later = [subagent_request(1, "Find the tests"), subagent_reply(2, "In src."), subagent_request(3, GUESS)];
    assert_eq!(read_requests(&later), (vec!["Find the tests".to_owned()], 1));
}
