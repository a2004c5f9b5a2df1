//! Reads the fixtures of sessions with their own readers and compares what they give with the gold beside them. The
//! whole pipeline is tested with the same files in `crates/ingest`.

use std::fs;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::TrajectoryStep;
use gradus_import::{DOCUMENT_FORMATS, ImportedTurn, SESSION_FORMATS};
use serde_json::{Value as Json, json};

use super::TurnList;

const FORMATS: &[(&str, &[&str])] = &[
    ("claude-code", &["Claude Code session"]),
    ("claude-stream", &["Claude Code stream JSON"]),
    ("codex-rollout", &["Codex rollout"]),
    ("codex-exec", &["codex exec --json"]),
    ("gemini-cli", &["Gemini CLI session"]),
    ("gemini-stream", &["Gemini CLI stream JSON"]),
    ("cursor-stream", &["Cursor stream JSON"]),
    ("opencode", &["OpenCode JSON output", "OpenCode export"]),
    ("copilot-cli", &["Copilot CLI session"]),
    ("qwen-code", &["Qwen Code session"]),
    ("pi", &["pi session"]),
    ("kimi", &["Kimi Code session"]),
    ("cursor-transcript", &["Cursor transcript"]),
    ("goose", &["goose session"]),
    ("codebuddy", &["CodeBuddy session"]),
];

fn fixture_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/imports").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.to_string_lossy().ends_with(".gold.json"));
    files.sort();
    files
}

/// The name of the format and what is read.
fn read_file(path: &Path) -> (&'static str, TurnList) {
    let mut found = TurnList::default();
    let text = fs::read_to_string(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "json") {
        let Json::Object(object) = serde_json::from_str(&text).unwrap() else { panic!("not an object") };
        let formats: Vec<_> = DOCUMENT_FORMATS.iter().filter(|format| (format.matches)(&object)).collect();
        assert_eq!(formats.len(), 1, "{}", path.display());
        (formats[0].read)(object, &mut found).unwrap();
        return (formats[0].name, found);
    }
    let first: Vec<Json> = text.lines().take(20).filter_map(|line| serde_json::from_str(line).ok()).collect();
    let formats: Vec<_> = SESSION_FORMATS.iter().filter(|format| (format.matches)(&first)).collect();
    let names: Vec<_> = formats.iter().map(|format| format.name).collect();
    assert_eq!(names.len(), 1, "{} is taken for {names:?}", path.display());
    let mut reader = (formats[0].open)();
    for line in text.lines() {
        reader.read_record(line.as_bytes(), &mut found);
    }
    reader.finish(&mut found);
    (formats[0].name, found)
}

fn step_json(step: &TrajectoryStep) -> Json {
    json!({
        "thought": step.thought, "tool": step.tool, "arguments": step.arguments, "observation": step.observation,
        "is_error": step.is_error, "is_denied": step.is_denied,
    })
}

/// The turn in the form of the gold.
fn turn_json(turn: &ImportedTurn, turns: &[ImportedTurn]) -> Json {
    let trajectory = &turn.trajectory;
    let parent = turns.iter().find_map(|other| {
        let start = other.subagents.iter().find(|start| Some(&start.key) == turn.started_as.as_ref())?;
        Some(json!({"trajectory_id": other.trajectory.trajectory_id, "step": start.step_index}))
    });
    json!({
        "query": trajectory.query,
        "answer": trajectory.final_answer,
        "session_id": trajectory.session_id,
        "turn_index": trajectory.turn_index,
        "model": trajectory.model,
        "agent": trajectory.agent,
        "cost_usd": trajectory.cost_usd,
        "tokens": {"prompt": trajectory.tokens.prompt, "completion": trajectory.tokens.completion},
        "parent": parent,
        "steps": trajectory.steps.iter().map(step_json).collect::<Vec<_>>(),
    })
}

#[test]
fn fixtures_are_read_as_their_gold() {
    for (folder, names) in FORMATS {
        let files = fixture_files(folder);
        assert!(files.len() >= 2, "{folder}");
        for path in files {
            let (name, found) = read_file(&path);
            assert!(names.contains(&name), "{} is taken for {name}", path.display());
            let gold: Vec<Json> = serde_json::from_slice(&fs::read(path.with_extension("gold.json")).unwrap()).unwrap();
            let read: Vec<Json> = found.turns.iter().map(|turn| turn_json(turn, &found.turns)).collect();
            assert_eq!(read.len(), gold.len(), "{}: {read:#?}", path.display());
            for (read, gold) in read.iter().zip(&gold) {
                for (key, expected) in gold.as_object().unwrap() {
                    let query = &gold["query"];
                    assert_eq!(&read[key], expected, "{} {query} {key}: {:?}", path.display(), found.bad_records);
                }
            }
        }
    }
}

/// Hostile and broken lines are reported or ignored; they never stop a reader.
#[test]
fn broken_records_do_not_stop_a_reader() {
    let deep = format!("{}1{}", "[".repeat(2000), "]".repeat(2000));
    let deep_line = format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","input":{deep}}}]}}}}"#);
    let broken = ["", "null", "[]", "7", "{", "{\"type\":", "{\"type\":7,\"message\":[]}", &deep_line];
    for (folder, _) in FORMATS {
        for path in fixture_files(folder) {
            if path.extension().is_none_or(|extension| extension != "jsonl") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let first: Vec<Json> = text.lines().take(20).filter_map(|line| serde_json::from_str(line).ok()).collect();
            let format = SESSION_FORMATS.iter().find(|format| (format.matches)(&first)).unwrap();
            let mut found = TurnList::default();
            let mut reader = (format.open)();
            for line in text.lines() {
                for broken in broken {
                    reader.read_record(broken.as_bytes(), &mut found);
                }
                // Each line cut at many places, and with values of other types.
                for end in (0..line.len()).step_by(7).filter(|end| line.is_char_boundary(*end)) {
                    reader.read_record(&line.as_bytes()[..end], &mut found);
                }
                for replaced in [line.replace(":\"", ":[\"x\"],\"y\":\""), line.replace(":{", ":null,\"z\":{")] {
                    reader.read_record(replaced.as_bytes(), &mut found);
                }
                reader.read_record(line.as_bytes(), &mut found);
            }
            reader.finish(&mut found);
            assert!(!found.bad_records.is_empty());
        }
    }
}
