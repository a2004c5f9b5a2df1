//! Traps of the logs of harnesses that are too small or too hostile for a fixture.

use std::io::{Cursor, Write};

use gradus_core::span::Span;
use gradus_core::trajectory::{DefectKind, Trajectory};
use serde_json::{Map, Value as Json, json};

use super::inspect_archive::{ArchiveLimits, read_inspect_archive};
use crate::format_list::SESSION_FORMATS;
use crate::format_list::{DOCUMENT_FORMATS, UNREADABLE_FORMATS};
use crate::import_sink::{ImportError, ImportSink, ImportedTurn};

#[derive(Default)]
struct TurnCollector {
    turns: Vec<Trajectory>,
    reports: Vec<String>,
}

impl ImportSink for TurnCollector {
    fn add_span(&mut self, _span: &Span<'_>) {}

    fn add_turn(&mut self, turn: ImportedTurn) {
        self.turns.push(turn.trajectory);
    }

    fn report_bad_record(&mut self, reason: &str) {
        self.reports.push(reason.to_owned());
    }
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

/// Reads a document with the format that takes it.
fn read_document(json: Json) -> (TurnCollector, Result<(), ImportError>) {
    let object = object(json);
    let format = DOCUMENT_FORMATS.iter().find(|format| (format.matches)(&object)).expect("a format takes it");
    let mut sink = TurnCollector::default();
    let result = (format.read)(object, &mut sink);
    (sink, result)
}

fn tools_of(turn: &Trajectory) -> Vec<(&str, Option<&str>)> {
    turn.steps.iter().map(|step| (&*step.tool, step.observation.as_deref())).collect()
}

#[test]
fn ordinary_chats_are_not_taken() {
    let messages = json!([
        { "role": "system", "content": "Help." },
        { "role": "user", "content": "Hi", "name": "ann" },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": "1", "function": { "name": "f" } }] },
        { "role": "tool", "tool_call_id": "1", "content": "ok" },
    ]);
    for document in [
        json!({ "messages": messages.clone() }),
        json!({ "id": "1", "model": "m", "messages": messages.clone(), "metadata": {} }),
        json!({ "history": messages.clone() }),
        json!({ "task_id": 1, "messages": messages.clone() }),
        json!({ "trajectory": [{ "action": 3, "observation": [0.5], "reward": 1 }], "info": {} }),
        json!({ "version": 1, "status": "ok", "samples": [] }),
        json!({ "schema_version": "1.0", "steps": [] }),
    ] {
        let object = object(document);
        let taken = DOCUMENT_FORMATS.iter().find(|format| (format.matches)(&object)).map(|format| format.name);
        assert_eq!(taken, None, "{:?}", object.keys());
    }
    let records = messages.as_array().expect("a list");
    let taken = SESSION_FORMATS.iter().find(|format| (format.matches)(records)).map(|format| format.name);
    assert_eq!(taken, None);
}

#[test]
fn files_of_run_folders_are_named() {
    for (document, name) in [
        (
            json!({ "task_name": "t", "trial_name": "t__1", "trial_uri": "file:", "agent_info": {}, "config": {} }),
            "Harbor trial result",
        ),
        (json!({ "n_total_trials": 3, "stats": {}, "started_at": "2026-01-01" }), "Harbor job result"),
        (
            json!({ "task": {}, "trial_name": "t", "trials_dir": "trials", "agent": {}, "environment": {} }),
            "Harbor configuration",
        ),
        (
            json!({ "id": 4, "timestamp": "2026", "source": "agent", "action": "run", "args": {} }),
            "OpenHands event file",
        ),
    ] {
        let object = object(document);
        let found = UNREADABLE_FORMATS.iter().find(|format| (format.matches)(&object)).map(|format| format.name);
        assert_eq!(found, Some(name));
    }
}

#[test]
fn runs_without_a_conversation_are_errors() {
    let log = json!({
        "suite_name": "s", "pipeline_name": "p", "user_task_id": "u", "injection_task_id": null, "messages": []
    });
    let (sink, result) = read_document(log);
    assert!(result.is_err() && sink.turns.is_empty());
    let (_, result) = read_document(json!({ "schema_version": "ATIF-v1.8", "agent": 5, "steps": [] }));
    assert!(result.is_err());
    let failed = json!({ "task_id": 1, "reward": 0.0, "info": { "error": "e" }, "traj": [], "trial": 0 });
    assert!(read_document(failed).1.is_err());
    let header = json!({ "version": 2, "status": "started", "eval": { "task": "t", "model": "m" }, "plan": {} });
    assert!(read_document(header).1.is_err());
}

#[test]
fn wrong_types_are_reported_and_do_not_stop_reading() {
    let (sink, result) = read_document(json!({
        "schema_version": "ATIF-v9.9", "session_id": 7, "agent": "x", "final_metrics": [], "extra": { "reward": "NaN" },
        "steps": [
            3, null, { "source": "robot" }, { "source": "user", "message": { "a": 1 } },
            { "source": "agent", "message": 4, "tool_calls": [
                { "tool_call_id": "1" }, "x", { "tool_call_id": "2", "function_name": "f", "arguments": "{" }
            ], "metrics": { "prompt_tokens": -1, "completion_tokens": 1e300, "cost_usd": "free" },
              "observation": { "results": [{ "source_call_id": "9", "content": "lost" }, 5, { "content": 7 }] } },
            { "source": "agent", "message": "end" }
        ]
    }));
    assert!(result.is_ok());
    assert_eq!(tools_of(&sink.turns[0]), [("f", Some("7"))]);
    assert!(sink.turns[0].defects.iter().any(|defect| defect.kind == DefectKind::MalformedArguments));
    assert!(sink.reports.iter().any(|report| report.contains("answers no call")), "{:?}", sink.reports);
    assert!(sink.reports.iter().any(|report| report.contains("function_name")));
}

#[test]
fn results_without_ids_stay_with_their_own_step() {
    let call = |id: &str| json!([{ "tool_call_id": id, "function_name": "f", "arguments": {} }]);
    let (sink, _) = read_document(json!({
        "schema_version": "ATIF-v1.0", "session_id": "s", "agent": { "name": "a" },
        "steps": [
            { "source": "user", "message": "go" },
            { "source": "agent", "message": "one", "tool_calls": call("1") },
            { "source": "agent", "message": "two", "tool_calls": call("2"),
              "observation": { "results": [{ "content": "second" }] } },
        ]
    }));
    assert_eq!(tools_of(&sink.turns[0]), [("f", None), ("f", Some("second"))]);
}

#[test]
fn steps_of_sidechains_are_sessions_of_their_own() {
    let (sink, _) = read_document(json!({
        "schema_version": "ATIF-v1.7", "session_id": "s", "agent": { "name": "claude-code" },
        "steps": [
            { "source": "user", "message": "go" },
            { "source": "user", "message": "explore", "extra": { "is_sidechain": true, "agent_id": "a1" } },
            { "source": "agent", "message": "sub", "extra": { "is_sidechain": true, "agent_id": "a1" },
              "tool_calls": [{ "tool_call_id": "1", "function_name": "Grep", "arguments": {} }],
              "observation": { "results": [{ "source_call_id": "1", "content": "x" }] } },
            { "source": "agent", "message": "done" },
        ]
    }));
    let found: Vec<_> = sink.turns.iter().map(|turn| (&*turn.trajectory_id, turn.steps.len())).collect();
    assert_eq!(found, [("s", 0), ("s/a1", 1)]);
}

#[test]
fn chats_of_agents_without_calls_have_a_defect() {
    let say = |name: &str, text: &str| json!({ "role": "user", "name": name, "content": text });
    let (sink, _) = read_document(json!({
        "problem_statement": "p",
        "trajectory": [say("Boss", "Add."), say("A", "It is 2."), say("B", "I agree.")]
    }));
    assert_eq!(sink.turns[0].final_answer.as_deref(), Some("I agree."));
    assert!(sink.turns[0].defects.iter().any(|defect| defect.kind == DefectKind::ChatWithoutToolCalls));
}

/// A zip archive of deflated files, as small as the format allows.
fn write_archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(content).expect("writes to memory");
        let packed = encoder.finish().expect("writes to memory");
        let offset = archive.len() as u32;
        let lengths = [packed.len() as u32, content.len() as u32].map(u32::to_le_bytes).concat();
        let name_length = (name.len() as u16).to_le_bytes();
        archive.extend([b"PK\x03\x04", &[20, 0, 0, 0, 8, 0][..], &[0; 8], &lengths, &name_length, &[0; 2]].concat());
        archive.extend([name.as_bytes(), &packed].concat());
        directory.extend([b"PK\x01\x02", &[20, 0, 20, 0, 0, 0, 8, 0][..], &[0; 8], &lengths, &name_length].concat());
        directory.extend([&[0; 12][..], &offset.to_le_bytes(), name.as_bytes()].concat());
    }
    let count = (files.len() as u16).to_le_bytes();
    let place = [directory.len() as u32, archive.len() as u32].map(u32::to_le_bytes).concat();
    archive.extend([&directory[..], b"PK\x05\x06", &[0; 4], &count, &count, &place, &[0; 2]].concat());
    archive
}

const HEADER: &[u8] = br#"{"version":2,"eval":{"task":"t","model":"m","run_id":"r"}}"#;
const SAMPLE: &[u8] = br#"{"id":1,"epoch":1,"messages":[{"role":"user","content":"hi"}]}"#;

#[test]
fn archives_are_bounded() {
    let bomb = vec![b' '; 4 << 20];
    let archive = write_archive(&[("samples/1.json", SAMPLE), ("samples/2.json", &bomb), ("header.json", HEADER)]);
    assert!(archive.len() < 8 << 10, "the bomb is small while it is packed");
    let limits = ArchiveLimits { max_entry_bytes: 1 << 20, ..ArchiveLimits::default() };
    let mut sink = TurnCollector::default();
    read_inspect_archive(Cursor::new(&archive), limits, &mut sink).expect("the archive is read");
    assert_eq!((sink.turns.len(), sink.reports.len()), (1, 1));
    assert!(sink.reports[0].contains("exceeds the limit of 1048576 bytes"), "{:?}", sink.reports);
    let limits = ArchiveLimits { max_entries: 2, ..ArchiveLimits::default() };
    assert!(read_inspect_archive(Cursor::new(&archive), limits, &mut TurnCollector::default()).is_err());
}

#[test]
fn a_damaged_entry_of_the_directory_is_an_error() {
    let archive = write_archive(&[("samples/1.json", SAMPLE), ("header.json", HEADER), ("samples/2.json", SAMPLE)]);
    let last_entry = archive.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").expect("a directory");
    let mut damaged = archive.clone();
    damaged[last_entry] ^= 0xFF;
    let mut sink = TurnCollector::default();
    let error = read_inspect_archive(Cursor::new(&damaged), ArchiveLimits::default(), &mut sink).expect_err("damaged");
    assert_eq!(error.reason, "zip archive: central directory is damaged: 2 of 3 entries are readable");
    assert!(sink.turns.is_empty());
    // One of two versions of a sample: Inspect appends to its archives.
    let appended = write_archive(&[("samples/1.json", b"{"), ("header.json", HEADER), ("samples/1.json", SAMPLE)]);
    read_inspect_archive(Cursor::new(&appended), ArchiveLimits::default(), &mut sink).expect("the archive is read");
    assert_eq!((sink.turns.len(), sink.reports.len()), (1, 0));
}

#[test]
fn damaged_archives_are_errors_and_never_panic() {
    let archive = write_archive(&[("samples/1.json", SAMPLE), ("header.json", HEADER)]);
    for length in 0..archive.len() {
        let cut = Cursor::new(&archive[..length]);
        assert!(read_inspect_archive(cut, ArchiveLimits::default(), &mut TurnCollector::default()).is_err());
    }
    for position in 0..archive.len() {
        let mut damaged = archive.clone();
        damaged[position] ^= 0xFF;
        // Whatever the result is: it must return.
        read_inspect_archive(Cursor::new(&damaged), ArchiveLimits::default(), &mut TurnCollector::default()).ok();
    }
    let other = write_archive(&[("word/document.xml", b"<w/>")]);
    assert!(
        read_inspect_archive(Cursor::new(&other), ArchiveLimits::default(), &mut TurnCollector::default()).is_err()
    );
}
