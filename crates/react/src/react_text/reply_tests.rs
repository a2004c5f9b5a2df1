//! Replies as models write them.

use serde_json::json;

use super::reply::*;

fn calls(text: &str) -> TextCalls<'_> {
    match read_text_reply(text) {
        TextReply::Calls(calls) => calls,
        other => panic!("{text}: {other:?}"),
    }
}

/// The only one.
fn call(text: &str) -> TextCall<'_> {
    let mut calls = calls(text).calls;
    assert_eq!(calls.len(), 1, "{text}");
    calls.remove(0)
}

#[test]
fn reads_the_plain_form() {
    let text = "Thought: I look.\nAction: read_file\nAction Input: {\"path\": \"a\"}";
    assert_eq!(
        calls(text),
        TextCalls {
            thought: Some("I look.".into()),
            calls: vec![TextCall { name: "read_file".into(), input: "{\"path\": \"a\"}".into() }],
            reply_prefix: text,
            has_more: false
        }
    );
}

#[test]
fn reads_actions_as_models_write_them() {
    for text in [
        "**Thought:** t\n**Action:** `read`\n**Action Input:** {\"a\": 1}",
        "Thought 1: t\nAction 1: read\nAction Input 1: {\"a\": 1}\n",
        "Thought: t\nAction: read\nAction Input:\n```json\n{\"a\": 1}\n```\n",
        "Thought: t\nAction: read\nAction Input: ```{\"a\": 1}```",
        "Thought: t\nAction: read\nAction Input: `{\"a\": 1}`",
        "Thought: t\nAction: read Action Input: {\"a\": 1}",
        "Thought: t\nAction: read\n{\"a\": 1}",
        "Thought: t\nAction: read({\"a\": 1})",
        "Thought: t\nAction:\n```json\n{\"action\": \"read\", \"action_input\": {\"a\": 1}}\n```",
        "Thought: t\nAction: {\"name\": \"read\", \"arguments\": {\"a\": 1}}",
        "thought: t\naction: read\naction_input: {\"a\": 1}",
        "t\n\nAction: read\nAction Input: {\"a\": 1}\nObservation: {\"made\": \"up\"}\nThought: nice\nFinal Answer: x",
        "Thought: t\nAction: read\nAction Input: {\"a\": 1}, along those lines.",
        "<think>\nAction: other\n</think>\nThought: t\nAction: read\nAction Input: {\"a\": 1}",
        "```\nThought: t\nAction: read\nAction Input: {\"a\": 1}\n```",
        "Thought: t\nAction: none\nThought: but\nAction: read\nAction Input: {\"a\": 1}",
        "Thought: t\nAction: {\"tool\": \"read\", \"tool_input\": {\"a\": 1}}",
        "Thought: t\nAction: read.\nAction Input: {\"a\": 1}",
        "Thought: t\nAction: `read`.\nAction Input: {'a': 1,}",
        "Thought: t\nAction: read()\nAction Input: {\"a\": 1}",
        "Thought: t\nAction: read(a=1)",
        "Thought: t\nAction: {\"action_input\": {\"a\": 1}, \"action\": \"read\"}",
        "t\n<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call>",
        "Thought: t\n<tool>read</tool><tool_input>{\"a\": 1}</tool_input>",
        "t\n```json\n{\"action\": \"read\", \"action_input\": {\"a\": 1}}\n```",
        "<think>t</think>{\"action\": \"read\", \"action_input\": {\"a\": 1}}",
        "Thought: to be\nFinal Answer: not yet\nAction: read\nAction Input: {\"a\": 1}",
        "Thought: t\nAction: other\nAction: read\nAction Input: {\"a\": 1}",
    ] {
        let read = calls(text);
        assert_eq!(&*call(text).name, "read", "{text}");
        let input = crate::lenient_json::parse_lenient_json(&call(text).input);
        assert_eq!(input, Some(json!({"a": 1})), "{text}");
        assert!(read.thought.is_some_and(|thought| thought.starts_with('t')), "{text}");
        assert!(!read.reply_prefix.contains("Observation"), "{text}");
    }
    for (text, input) in [
        ("Action: get_me", ""),
        ("Action: get_me\nAction Input:", ""),
        ("Action: get_me()", ""),
        ("Action: get_me\nAction Input: octo/demo", "octo/demo"),
        ("Action: get_me(\"octo\")", "\"octo\""),
        ("Action: {\"action\": \"get_me\", \"action_input\": {\"a\": }", "{\"a\":"),
    ] {
        assert_eq!((&*call(text).name, &*call(text).input), ("get_me", input), "{text}");
    }
}

#[test]
fn calls_that_are_written_as_one_action_are_all_made() {
    for text in [
        "Action: [{\"action\": \"a\"}, {\"action\": \"b\"}]",
        "t\n<tool_call>{\"name\": \"a\"}</tool_call>\n<tool_call>{\"name\": \"b\"}</tool_call>",
    ] {
        let names: Vec<_> = calls(text).calls.into_iter().map(|call| call.name).collect();
        assert_eq!((names, calls(text).has_more), (vec!["a".into(), "b".into()], false), "{text}");
    }
    let text = "<tool_call>{\"name\": \"a\"}</tool_call>\nThen\n<tool_call>{\"name\": \"b\"}</tool_call>";
    assert_eq!((&*call(text).name, calls(text).has_more), ("a", true));
    assert_eq!(calls(text).reply_prefix, "<tool_call>{\"name\": \"a\"}</tool_call>");
}

#[test]
fn takes_the_first_of_several_actions() {
    let text = "Thought: both\nAction: a\nAction Input: {}\nAction: b\nAction Input: {\"x\": 1}";
    let first = calls(text);
    assert_eq!((&*first.calls[0].name, first.has_more), ("a", true));
    assert_eq!(first.reply_prefix, "Thought: both\nAction: a\nAction Input: {}");
}

#[test]
fn labels_in_fences_and_files_are_text() {
    let text = "Thought: t\nAction: write\nAction Input: {\"content\": \"Final Answer: no\\nAction: x\"}";
    assert_eq!(call(text).name, "write");
    let text = "Action: write\nAction Input: {\"content\": \"one\nFinal Answer: no\nAction: x\"}";
    assert_eq!(call(text).name, "write");
    let text = "Action: write({\"content\": \"Action Input: no\"})";
    assert_eq!((&*call(text).name, &*call(text).input), ("write", "{\"content\": \"Action Input: no\"}"));
    let text = "Thought: I would do\n```\nAction: x\n```\nFinal Answer: no";
    assert_eq!(read_text_reply(text), TextReply::Answer("no".into()));
}

#[test]
fn reads_answers_as_models_write_them() {
    for text in [
        "Thought: t\nFinal Answer: 42",
        "**Final Answer:** 42",
        "Thought: t\nFinal answer: 42\nObservation: made up",
        "FINAL_ANSWER: 42",
        "Thought: t\nAnswer: 42",
        "Thought: t\nAction: Final Answer\nAction Input: 42",
        "Thought: t\nAction: None\nFinal Answer: 42",
        "Thought: t\nAction: {\"action\": \"Final Answer\", \"action_input\": \"42\"}",
        "Thought: t\nAction: finish({\"answer\": \"42\"})",
        "Thought: t\nAction: finish(answer=\"42\")",
        "Thought: t\nAction: finish(\"42\")",
        "Thought: t\nAction: Finish[42]",
        "{\"action\": \"Final Answer\", \"action_input\": \"42\"}",
        "t\n<final_answer>42</final_answer>",
    ] {
        assert_eq!(read_text_reply(text), TextReply::Answer("42".into()), "{text}");
    }
    let long = "Final Answer: one\n\nAction: not a label here\n- two\nThought: nice";
    assert!(matches!(read_text_reply(long), TextReply::Answer(answer) if answer.ends_with("two")));
    let later = "Answer: I must look first.\nAction: look\nAction Input: {}";
    assert_eq!(call(later).name, "look");
}

#[test]
fn says_what_is_missing() {
    for (text, reason) in [
        ("", "empty"),
        (" \n", "empty"),
        ("<think>hm</think>", "empty"),
        ("I shall read the file.", "neither"),
        ("Thought: I shall read the file.", "neither"),
        ("Thought: t\nAction:\nAction Input: {}", "names no tool"),
        ("Thought: t\nAction Input: {}", "without an Action"),
        ("Thought: t\nFinal Answer:  ", "is empty"),
        ("Action: none", "neither"),
        ("Action: finish", "is empty"),
        ("Action: finish({})", "is empty"),
        ("{\"action\": \"read\"}", "neither"),
    ] {
        assert!(
            matches!(read_text_reply(text), TextReply::Unreadable(found) if found.contains(reason)),
            "{text}: {:?}",
            read_text_reply(text)
        );
    }
}

#[test]
fn long_texts_are_read_in_linear_time() {
    for part in [
        "Answer: x\n",
        "Thought: x\n",
        "Action: none\n",
        "```\n",
        "Action Input: {\n",
        "\"action\":",
        "[{",
        "Action Input: {\"\n",
        "<tool>",
        "<tool_call>{\"name\": \"a\"}</tool_call>",
        "{'a': ",
    ] {
        let text = part.repeat(400_000 / part.len());
        let begun = std::time::Instant::now();
        let _ = read_text_reply(&text);
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{part}");
        let _ = read_text_reply(&format!("Action: {text}"));
        let _ = read_text_reply(&format!("{text}\nAction: a"));
        assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{part}");
    }
}
