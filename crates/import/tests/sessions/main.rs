//! The readers of sessions: with fixtures of every format, and with records as real sessions have them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod codex_rollouts;
mod compactions;
mod ended_in_errors;
mod fixtures;
mod lost_records;
mod record_order;
mod repeated_call_ids;
mod unrequested_runs;

use gradus_core::span::Span;
use gradus_import::{ImportSink, ImportedTurn, SESSION_FORMATS};
use serde_json::{Value as Json, json};

/// What a reader gave.
#[derive(Default)]
struct TurnList {
    turns: Vec<ImportedTurn>,
    bad_records: Vec<String>,
    unrequested_runs: usize,
}

impl ImportSink for TurnList {
    fn add_span(&mut self, _span: &Span<'_>) {}

    fn add_turn(&mut self, turn: ImportedTurn) {
        self.turns.push(turn);
    }

    fn count_unrequested_run(&mut self) {
        self.unrequested_runs += 1;
    }

    fn report_bad_record(&mut self, reason: &str) {
        self.bad_records.push(reason.to_owned());
    }
}

/// The turns of a session with these records, none of which may be bad.
fn read_lines(lines: &[Json]) -> Vec<ImportedTurn> {
    read_session(lines).turns
}

/// What a session with these records gives. None of them may be bad.
fn read_session(lines: &[Json]) -> TurnList {
    let format = SESSION_FORMATS.iter().find(|format| (format.matches)(lines)).unwrap();
    let mut found = TurnList::default();
    let mut reader = (format.open)();
    for line in lines {
        reader.read_record(line.to_string().as_bytes(), &mut found);
    }
    reader.finish(&mut found);
    assert!(found.bad_records.is_empty(), "{:?}", found.bad_records);
    found
}

/// A line of a Claude Code session.
fn claude_line(number: u32, kind: &str, fields: &Json) -> Json {
    let mut line = json!({
        "type": kind, "sessionId": "s", "cwd": "/p", "version": "2.1.0", "isSidechain": false,
        "uuid": format!("u{number}"), "parentUuid": format!("u{}", number - 1), "timestamp": "2026-02-01T00:00:00Z",
    });
    for (key, value) in fields.as_object().unwrap() {
        line[key] = value.clone();
    }
    line
}

/// A request of the user in such a session.
fn claude_request(number: u32, text: &str) -> Json {
    claude_line(number, "user", &json!({"message": {"role": "user", "content": text}}))
}
