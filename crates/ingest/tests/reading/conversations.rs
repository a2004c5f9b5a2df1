//! Conversations: turns of a document, of our own lines, and chats that have no steps.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::{DefectKind, Trajectory};
use gradus_ingest::{FilesOnly, InputSource, RecordIntake, SourceLimits};
use serde_json::{Value as Json, json};

/// Reads one file with this content. The error is the message for the user.
fn read_text(content: &str) -> Result<Vec<Trajectory>, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    let path = file.path().to_owned();
    let mut found = Vec::new();
    read_into(&mut found, &[path])?;
    Ok(found)
}

fn read_files(paths: &[PathBuf]) -> Vec<Trajectory> {
    let mut found = Vec::new();
    read_into(&mut found, paths).unwrap();
    found
}

fn read_into(found: &mut Vec<Trajectory>, paths: &[PathBuf]) -> Result<(), String> {
    let mut sink = |_, trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
    for path in paths {
        let source = InputSource::File { path: path.clone(), name: "input".to_owned() };
        gradus_ingest::read_input_source(&source, &FilesOnly, &mut intake).map_err(|error| error.to_string())?;
    }
    intake.finish().unwrap();
    Ok(())
}

fn read_lines(lines: &[Json]) -> Vec<Trajectory> {
    let lines: Vec<String> = lines.iter().map(Json::to_string).collect();
    read_text(&lines.join("\n")).unwrap()
}

fn two_turns() -> Json {
    json!([
        {"role": "user", "content": "Find the ship."}, {"role": "assistant", "content": "Berth 7."},
        {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Berth 8."},
    ])
}

#[test]
fn turns_of_a_list_without_an_id_are_linked() {
    let turns = read_lines(&[two_turns()]);
    let first = &turns[0].trajectory_id;
    assert_eq!(turns[1].previous_trajectory_id.as_ref(), Some(first));
    assert_eq!(turns[0].previous_trajectory_id, None);
    assert!(turns.iter().all(|turn| turn.session_id.as_ref() == Some(first)));
    // The same list again is another conversation.
    let turns = read_lines(&[two_turns(), two_turns()]);
    assert_ne!(turns[1].session_id, turns[2].session_id);
    assert_eq!(turns[2].previous_trajectory_id, None);
}

#[test]
fn a_list_with_an_id_keeps_it() {
    let turns = read_lines(&[json!({"id": "talk", "messages": two_turns()})]);
    let ids: Vec<_> = turns.iter().map(|turn| (turn.trajectory_id.as_str(), turn.session_id.as_deref())).collect();
    assert_eq!(ids, [("talk", Some("talk")), ("talk-2", Some("talk"))]);
}

#[test]
fn lines_of_our_own_keep_the_conversation() {
    let turns = read_lines(&[json!({"id": "talk", "messages": two_turns()})]);
    let lines: Vec<Json> = turns.iter().map(|turn| serde_json::to_value(turn).unwrap()).collect();
    assert_eq!(read_lines(&lines), turns);
}

#[test]
fn a_line_that_names_a_missing_turn_is_reported() {
    let turns = read_lines(&[json!({"id": "talk", "messages": two_turns()})]);
    let read = read_lines(&[serde_json::to_value(&turns[1]).unwrap()]);
    assert!(read[0].earlier_turns.is_empty());
    assert!(read[0].defects.iter().any(|defect| defect.kind == DefectKind::MissingTurn), "{:?}", read[0].defects);
    assert_eq!(read[0].previous_trajectory_id.as_deref(), Some("talk"));
}

#[test]
fn a_circle_of_lines_ends() {
    let mut turns = read_lines(&[json!({"id": "talk", "messages": two_turns()})]);
    turns[0].previous_trajectory_id = Some("talk-2".to_owned());
    let lines: Vec<Json> = turns.iter().map(|turn| serde_json::to_value(turn).unwrap()).collect();
    let read = read_lines(&lines);
    assert_eq!((read[0].earlier_turns.len(), read[1].earlier_turns.len()), (0, 1));
    assert_eq!(read[0].defects.last().unwrap().kind, DefectKind::MissingTurn);
}

#[test]
fn requests_of_a_traced_conversation_are_linked() {
    for capture in ["plain-openai-oi", "plain-openai-traceloop", "langgraph-react", "vercel-ai"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(capture);
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder.join("s23_multi_turn")).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
        let turns = read_files(&paths);
        let linked: Vec<_> = turns.iter().map(|turn| (turn.turn_index, turn.earlier_turns.len())).collect();
        assert_eq!(linked, [(Some(1), 0), (Some(2), 1), (Some(3), 2)], "{capture}");
        for pair in turns.windows(2) {
            // Traces of a plain client are read as one group; others are linked by their session id only.
            if capture.starts_with("plain") {
                assert_eq!(pair[1].previous_trajectory_id.as_ref(), Some(&pair[0].trajectory_id), "{capture}");
            }
            assert_eq!(pair[1].earlier_turns.last().unwrap().query, pair[0].query, "{capture}");
            assert_eq!(pair[1].system_prompt.as_deref(), Some("You are a GitHub assistant."), "{capture}");
        }
    }
}

#[test]
fn a_chat_of_several_agents_is_reported() {
    let chat = json!([
        {"role": "human", "content": "Find the tower."},
        {"role": "Planner (thought)", "content": "The searcher shall look."},
        {"role": "Searcher", "content": "It is in the north."},
    ]);
    let named = json!([
        {"role": "user", "content": "Find the tower."},
        {"role": "assistant", "name": "Planner", "content": "The searcher shall look."},
        {"role": "assistant", "name": "Searcher", "content": "It is in the north."},
    ]);
    for history in [chat, named] {
        let read = read_lines(&[json!({"history": history, "question": "Where?"})]);
        assert!(read.iter().all(|run| run.steps.is_empty()));
        let reported = |run: &Trajectory| run.defects.iter().any(|d| d.kind == DefectKind::ChatWithoutToolCalls);
        assert!(read.iter().all(reported), "{read:?}");
    }
    // One agent with a name is no chat.
    let read = read_lines(&[json!([{"role": "user", "name": "Ann", "content": "Hi"},
        {"role": "assistant", "name": "Bot", "content": "Hello"}])]);
    assert!(read[0].defects.is_empty(), "{:?}", read[0].defects);
}

#[test]
fn records_that_are_not_read_have_a_reason() {
    let entry = json!({"agent": "Searcher", "content": "It is in the north."});
    let who_when = json!({"question": "Where?", "history": [entry]});
    let mast = json!({"mas_name": "ChatDev", "trace": {"trajectory": "a long text"}, "mast_annotation": {}});
    let hyper = json!({"trace": {"trajectory": "HyperAgent_demo-1 - INFO - Initialized"}, "mas_name": "HyperAgent"});
    let lines = json!({"trajectory": ["HyperAgent_demo-1 - INFO - Initialized", "Thought: look"]});
    for (record, reason) in
        [(who_when, "several agents"), (mast, "several agents"), (hyper, "HyperAgent log"), (lines, "HyperAgent log")]
    {
        for text in [record.to_string(), serde_json::to_string_pretty(&record).unwrap()] {
            let error = read_text(&text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
    let log = "2025-03-01 10:00:00.000 | INFO     | app.agent.base:run:140 - Executing step 1/20\nThought: look\n";
    assert!(read_text(log).unwrap_err().contains("OpenManus log"));
}

/// A trace of an agent that answers one turn of a session. The model calls are not recorded, so nothing but the session
/// tells that there were turns before.
fn traced_turn(number: u64, session: &str, query: &str, answer: &str) -> Json {
    let start_ns = 1_790_000_000_000_000_000 + number * 60_000_000_000;
    let attributes: Vec<Json> = [
        ("openinference.span.kind", "AGENT"),
        ("session.id", session),
        ("input.value", query),
        ("output.value", answer),
    ]
    .iter()
    .map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}))
    .collect();
    json!({"resourceSpans": [{"scopeSpans": [{"spans": [{
        "traceId": format!("{:032x}", number + 1), "spanId": format!("{:016x}", number + 1), "name": "agent",
        "startTimeUnixNano": start_ns.to_string(), "endTimeUnixNano": (start_ns + 1_000_000_000).to_string(),
        "attributes": attributes,
    }]}]}]})
}

#[test]
fn traces_of_one_session_are_turns_whatever_order_they_came_in() {
    let lines = [
        traced_turn(0, "talk", "Which orders has Ann?", "Order 1003."),
        traced_turn(1, "other", "Hello?", "Hello."),
        traced_turn(2, "talk", "Refund it.", "Refunded."),
        traced_turn(3, "talk", "Thanks.", "You are welcome."),
    ];
    let turns = read_lines(&lines);
    assert_eq!(turns[2].previous_trajectory_id.as_ref(), Some(&turns[0].trajectory_id));
    assert_eq!(turns[3].previous_trajectory_id.as_ref(), Some(&turns[2].trajectory_id));
    assert_eq!((turns[2].turn_index, turns[3].turn_index), (Some(2), Some(3)));
    let before: Vec<_> = turns[3].earlier_turns.iter().map(|turn| turn.answer.as_deref()).collect();
    assert_eq!(before, [Some("Order 1003."), Some("Refunded.")]);
    assert!(turns[1].previous_trajectory_id.is_none() && turns[1].earlier_turns.is_empty());
    let mut reversed = lines;
    reversed.reverse();
    assert_eq!(read_lines(&reversed), turns);
}
