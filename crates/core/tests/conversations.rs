//! The conversation around a request: earlier turns, system prompt, the thought before the answer.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use gradus_core::assemble::{assemble_messages, assemble_transcript};
use gradus_core::message::messages_from_json;
use gradus_core::trajectory::{DefectKind, EarlierTurn, Trajectory};
use serde_json::{Value as Json, json};

fn read(messages: Json) -> Vec<Trajectory> {
    assemble_messages(&messages_from_json(messages), &[])
}

fn call(id: &str, name: &str, arguments: &str) -> Json {
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]})
}

fn has_defect(trajectory: &Trajectory, kind: DefectKind) -> bool {
    trajectory.defects.iter().any(|defect| defect.kind == kind)
}

#[test]
fn turns_know_the_conversation_before_them() {
    let turns = read(json!([
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "user", "content": "Find the ship."},
        call("c1", "find_ship", r#"{"name": "Anna"}"#),
        {"role": "tool", "tool_call_id": "c1", "content": "berth 7"},
        {"role": "assistant", "content": "She lies at berth 7."},
        {"role": "developer", "content": "The harbour closes at six."},
        {"role": "user", "content": "Move her."},
        {"role": "assistant", "content": "Where to?"},
    ]));
    assert_eq!(turns.iter().map(|turn| turn.turn_index).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(turns[0].system_prompt.as_deref(), Some("Speak like a pirate."));
    assert_eq!(turns[1].system_prompt.as_deref(), Some("Speak like a pirate.\n\nThe harbour closes at six."));
    assert!(turns[0].earlier_turns.is_empty());
    let [earlier] = turns[1].earlier_turns.as_slice() else { panic!("{turns:?}") };
    assert_eq!(earlier.query.as_deref(), Some("Find the ship."));
    assert_eq!(earlier.answer.as_deref(), Some("She lies at berth 7."));
    let [call] = earlier.calls.as_slice() else { panic!("{earlier:?}") };
    assert_eq!((call.tool.as_str(), call.observation.as_deref()), ("find_ship", Some("berth 7")));
}

#[test]
fn a_list_without_a_user_has_no_turns() {
    let turns = read(json!([{"role": "assistant", "content": "Anyone there?"}]));
    assert_eq!(turns[0].turn_index, None);
}

#[test]
fn ten_thousand_turns_share_their_texts() {
    let count = 10_000;
    let exchange = |number: usize| {
        [
            json!({"role": "user", "content": format!("question {number}")}),
            json!({"role": "assistant", "content": format!("answer {number}")}),
        ]
    };
    let system = [json!({"role": "system", "content": "Answer."})];
    let turns = read(system.into_iter().chain((0..count).flat_map(exchange)).collect());
    assert_eq!(turns.len(), count);
    let last = &turns[count - 1];
    assert_eq!(last.turn_index, Some(count as u32));
    assert_eq!(last.earlier_turns.len(), EarlierTurn::MAX_TURNS);
    assert_eq!(last.earlier_turns[0].query, Some(format!("question {}", count - 1 - EarlierTurn::MAX_TURNS)));
    // One copy of each turn, and one of the prompt.
    let middle = &turns[5_000].earlier_turns[EarlierTurn::MAX_TURNS - 1];
    assert_eq!(Arc::strong_count(middle), EarlierTurn::MAX_TURNS);
    assert!(Arc::ptr_eq(middle, &turns[5_001].earlier_turns[EarlierTurn::MAX_TURNS - 2]));
    let prompt = turns[0].system_prompt.as_ref().unwrap();
    assert!(turns.iter().all(|turn| Arc::ptr_eq(turn.system_prompt.as_ref().unwrap(), prompt)));
}

#[test]
fn a_huge_system_prompt_is_cut_and_reported() {
    let turns = read(json!([
        {"role": "system", "content": "é".repeat(5 << 19)},
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Again?"},
        {"role": "assistant", "content": "Again."},
    ]));
    for turn in &turns {
        assert_eq!(turn.system_prompt.as_ref().unwrap().len(), 256 << 10);
        assert!(has_defect(turn, DefectKind::TooLarge), "{:?}", turn.defects);
    }
    assert!(Arc::ptr_eq(turns[0].system_prompt.as_ref().unwrap(), turns[1].system_prompt.as_ref().unwrap()));
}

#[test]
fn prompts_that_change_in_every_turn_stay_within_the_budget() {
    let exchange = |number: usize| {
        [
            json!({"role": "system", "content": format!("{number} {}", "x".repeat(1_000))}),
            json!({"role": "user", "content": "Next?"}),
            json!({"role": "assistant", "content": "Done."}),
        ]
    };
    let turns = read((0..2_000).flat_map(exchange).collect());
    let mut prompts: Vec<&Arc<str>> = turns.iter().filter_map(|turn| turn.system_prompt.as_ref()).collect();
    prompts.dedup_by(|a, b| Arc::ptr_eq(a, b));
    let bytes: usize = prompts.iter().map(|prompt| prompt.len()).sum();
    assert!(bytes <= 33 << 20, "{bytes}");
}

#[test]
fn the_thought_before_the_answer_is_kept() {
    let question = json!({"role": "user", "content": "How many?"});
    for (name, reply) in [
        ("reasoning_content", json!({"role": "assistant", "reasoning_content": "I count.", "content": "Four."})),
        (
            "thinking block",
            json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I count."}, {"type": "text", "text": "Four."}]}),
        ),
        ("think tag", json!({"role": "assistant", "content": "<think>I count.</think>Four."})),
        ("ReAct", json!({"role": "assistant", "content": "Thought: I count.\nFinal Answer: Four."})),
    ] {
        let turns = read(json!([question, reply]));
        assert_eq!(turns[0].final_thought.as_deref(), Some("I count."), "{name}");
        assert_eq!(turns[0].final_answer.as_deref(), Some("Four."), "{name}");
    }
    let transcript = assemble_transcript("Question: How many?\nThought: I count.\nFinal Answer: Four.");
    assert_eq!(transcript[0].final_thought.as_deref(), Some("I count."));
}

#[test]
fn the_answer_is_not_its_own_thought() {
    for reply in [
        json!({"role": "assistant", "reasoning_content": "Four.", "content": ""}),
        json!({"role": "assistant", "content": "Four."}),
        json!({"role": "assistant", "reasoning_content": "Four.", "content": "Four."}),
    ] {
        let turns = read(json!([{"role": "user", "content": "How many?"}, reply]));
        assert_eq!((turns[0].final_thought.as_deref(), turns[0].final_answer.as_deref()), (None, Some("Four.")));
    }
}

#[test]
fn an_action_that_never_ran_is_no_step() {
    let written = "I will look it up.\nAction:\n```json\n{\"action\": \"find_ship\", \"action_input\": {\"name\": \"Berta\"}}\n```";
    let messages = json!([
        {"role": "user", "content": "Find both ships."},
        call("c1", "find_ship", r#"{"name": "Anna"}"#),
        {"role": "tool", "tool_call_id": "c1", "content": "berth 7"},
        {"role": "assistant", "content": written},
    ]);
    let turns = read(messages);
    assert_eq!(turns[0].steps.len(), 1);
    assert_eq!(turns[0].final_answer.as_deref(), Some(written));
    assert!(has_defect(&turns[0], DefectKind::ActionNeverRan) && !has_defect(&turns[0], DefectKind::MissingAnswer));
    // The tools were sent with the request, and the only action is text.
    let tools = gradus_core::assemble::tool_definitions(
        r#"[{"type": "function", "function": {"name": "find_ship", "parameters": {}}}]"#,
    );
    let messages = json!([{"role": "user", "content": "Find it."}, {"role": "assistant", "content": written}]);
    let turns = assemble_messages(&messages_from_json(messages.clone()), &tools);
    assert_eq!((turns[0].steps.len(), turns[0].final_answer.as_deref()), (0, Some(written)));
    // An agent that acts by text was cut off behind its action.
    let turns = read(messages);
    assert_eq!((turns[0].steps.len(), turns[0].final_answer.as_deref()), (1, None));
}

#[test]
fn text_actions_that_run_beside_declared_tools_are_steps() {
    let tools = gradus_core::assemble::tool_definitions(
        r#"[{"type": "function", "function": {"name": "find_ship", "parameters": {}}}]"#,
    );
    let messages = messages_from_json(json!([
        {"role": "user", "content": "Find both ships."},
        {"role": "assistant", "content": "Thought: Anna first.\nAction: find_ship\nAction Input: {\"name\": \"Anna\"}"},
        {"role": "user", "content": "Observation: berth 7"},
        {"role": "assistant", "content": "Thought: now Berta.\nAction: find_ship\nAction Input: {\"name\": \"Berta\"}"},
    ]));
    let turns = assemble_messages(&messages, &tools);
    assert_eq!(turns[0].steps.len(), 2);
    assert!(!has_defect(&turns[0], DefectKind::ActionNeverRan));
}

#[test]
fn a_call_without_a_tool_name_is_reported() {
    let turns = read(json!([{"role": "user", "content": "Find it."}, call("c1", "", r#"{"name": "Anna"}"#)]));
    assert!(turns[0].steps.is_empty());
    let defect = turns[0].defects.iter().find(|defect| defect.kind == DefectKind::MissingToolName).unwrap();
    assert!(defect.detail.contains("Anna"), "{defect:?}");
}

#[test]
fn the_text_of_a_skill_is_no_request() {
    let load = |id: &str| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Skill", "input": {}}]});
    let result =
        |id: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"}]});
    let text = json!({"role": "user", "content": "Base directory for this skill: /skills/review\n\nRead all of it."});
    let answer = json!({"role": "assistant", "content": "Reviewed."});
    let request = json!({"role": "user", "content": "Review it."});
    let turns = read(json!([request, load("a"), result("a"), text, text, answer, text, answer]));
    let found: Vec<_> = turns.iter().map(|turn| (turn.query.as_deref(), turn.final_answer.as_deref())).collect();
    // A user can send such a text, too.
    let pasted = text["content"].as_str();
    assert_eq!(found, [(Some("Review it."), Some("Reviewed.")), (pasted, Some("Reviewed."))]);
    let read_file =
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "Read", "input": {}}]});
    assert_eq!(read(json!([request, read_file, result("b"), text, answer])).len(), 2);
}
