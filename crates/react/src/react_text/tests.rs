//! The reader on the texts that break readers.

use serde_json::json;

use super::TextDefect;
use super::read_react_transcript;

type Row = (Option<String>, String, String, Option<String>);

/// Thought, tool, raw input and observation of each step.
fn rows(text: &str) -> Vec<Row> {
    let steps = read_react_transcript(text).steps.into_iter();
    let owned = |text: Option<std::borrow::Cow<'_, str>>| text.map(std::borrow::Cow::into_owned);
    steps.map(|s| (owned(s.thought), s.tool.into_owned(), s.input.raw.into_owned(), owned(s.observation))).collect()
}

fn row(thought: &str, tool: &str, input: &str, observation: &str) -> Row {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    (some(thought), tool.to_owned(), input.to_owned(), some(observation))
}

fn kinds(text: &str) -> Vec<TextDefect> {
    read_react_transcript(text).defects.into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn llamaindex_style() {
    let text = "Thought: I look.\nAction: find\nAction Input: {\"q\": \"x\"}\nObservation: none\nThought: Done.\nAnswer: There is none.";
    assert_eq!(rows(text), vec![row("I look.", "find", "{\"q\": \"x\"}", "none")]);
    let transcript = read_react_transcript(text);
    assert_eq!(transcript.answer.as_deref(), Some("There is none."));
    assert_eq!(transcript.last_thought.as_deref(), Some("Done."));
}

#[test]
fn langchain_style_with_plain_input() {
    let text = "Question: who?\nThought: I need to search for NBA\nAction: Search \nAction Input: NBA\nObservation: a league\nThought: I now know\nFinal Answer:\na league";
    assert_eq!(rows(text), vec![row("I need to search for NBA", "Search", "NBA", "a league")]);
    let transcript = read_react_transcript(text);
    assert_eq!((transcript.question.as_deref(), transcript.answer.as_deref()), (Some("who?"), Some("a league")));
}

#[test]
fn structured_chat_style() {
    let text = "Thought: I look.\nAction:\n```json\n{\"action\": \"find\", \"action_input\": {\"q\": \"Action: x\"}}\n```\nObservation: none";
    assert_eq!(rows(text), vec![row("I look.", "find", "{\"q\":\"Action: x\"}", "none")]);
    let answer = "Action:\n```\n{\"action\": \"Final Answer\", \"action_input\": \"42\"}\n```";
    assert_eq!(read_react_transcript(answer).answer.as_deref(), Some("42"));
    assert_eq!(rows(answer), vec![]);
}

#[test]
fn numbered_style() {
    let text = "Question: q\nThought 1: a\nAction 1: Search[x]\nObservation 1: found\nThought: not a label here\nAction 9: nor this\nThought 2: b\nAction 2: Finish[y]\nObservation 2: ok";
    assert_eq!(rows(text)[0].3.as_deref(), Some("found\nThought: not a label here"));
    let transcript = read_react_transcript(
        "Thought 1: a\nAction 1: Search[x]\nObservation 1: found\nThought 2: b\nAction 2: Finish[y]",
    );
    assert_eq!(transcript.steps.len(), 1);
    assert_eq!(transcript.answer.as_deref(), Some("y"));
}

#[test]
fn crewai_style_with_python_dict_and_fence() {
    let text = "Thought: I look.\nAction: find\nAction Input: ```json\n{'q': 'x', 'deep': {'a': [1, None]}}\n```\nObservation: none";
    let step = &read_react_transcript(text).steps[0];
    assert_eq!(step.input.json, Some(json!({"q": "x", "deep": {"a": [1, null]}})));
}

#[test]
fn markdown_dress() {
    let text = "**Thought:** I look.\n**Action:** `find`\n**Action Input:** {}\n**Observation:** none";
    assert_eq!(rows(text), vec![row("I look.", "find", "{}", "none")]);
}

#[test]
fn labels_inside_a_thought_are_text() {
    // In the middle of a line, and at the beginning of one.
    let text = "Thought: The docs say Action: is followed by Observation: lines.\nAction: find\nAction Input: {}";
    assert_eq!(rows(text), vec![row("The docs say Action: is followed by Observation: lines.", "find", "{}", "")]);
    let text =
        "Thought: I plan:\nAction: listing pull requests is the way\nso I do it.\nAction: list\nAction Input: {}";
    assert_eq!(rows(text)[0].1, "list");
    assert!(rows(text)[0].0.as_deref().unwrap().starts_with("I plan:\nAction: listing pull requests"));
    let text = "Thought: Then I write\nFinal Answer: but not yet.\nAction: find\nAction Input: {}";
    assert_eq!(rows(text)[0].1, "find");
    assert_eq!(read_react_transcript(text).answer, None);
    let text = "Thought: I expect\nObservation: something\nAction: find\nAction Input: {}";
    assert_eq!(rows(text), vec![row("I expect\nObservation: something", "find", "{}", "")]);
}

#[test]
fn labels_inside_arguments_are_text() {
    let input = "{\"body\": \"Thought: no\\n\", \"code\": \"```\\nAction: x\\n```\",\n\"more\": \"\nObservation: no\nAction: no\"}";
    let text = format!("Thought: I write.\nAction: write\nAction Input: {input}\nObservation: ok");
    assert_eq!(rows(&text), vec![row("I write.", "write", input, "ok")]);
}

#[test]
fn multi_line_thoughts_stay_whole() {
    let text = "Thought: First:\n\n- one\n- two\n\nThen go.\nAction: go\nAction Input: {}";
    assert_eq!(rows(text)[0].0.as_deref(), Some("First:\n\n- one\n- two\n\nThen go."));
}

#[test]
fn missing_parts_are_told() {
    assert_eq!(rows("Action: go\nAction Input: {}"), vec![row("", "go", "{}", "")]);
    assert_eq!(rows("Thought:\nAction: go\nAction Input: {}"), vec![row("", "go", "{}", "")]);
    assert_eq!(kinds("Thought: I go\nThought: go\nAction Input: {}"), vec![TextDefect::MissingToolName]);
    assert_eq!(kinds("Thought: I go\nAction: go\nAction Input: {\"a\": \"cut"), vec![TextDefect::MalformedArguments]);
    assert_eq!(kinds("Thought: x\nAction: search Final Answer:\nAction Input: y"), vec![TextDefect::UnusualToolName]);
    assert_eq!(
        read_react_transcript("Thought: I go\nAction: go\nAction Input: {\"a\": \"cut").steps[0].input.json,
        None
    );
}

#[test]
fn malformed_blobs_still_name_their_tool() {
    let text =
        "Thought: I open it.\nAction:\n```json\n{\n \"action\": \"open\",\n \"action_input\": {\"a\": \"cut\n}\n```";
    assert_eq!(rows(text), vec![row("I open it.", "open", "{\"a\": \"cut", "")]);
}

#[test]
fn hidden_reasoning_is_the_thought_where_no_other_is() {
    assert_eq!(rows("<think>I look.</think>\nAction: find\nAction Input: {}")[0].0.as_deref(), Some("I look."));
    assert_eq!(
        rows("<think>I look.</think>\nThought:\nAction: find\nAction Input: {}")[0].0.as_deref(),
        Some("I look.")
    );
}

#[test]
fn text_before_the_first_label_is_the_thought_where_no_other_is() {
    assert_eq!(rows("I will look.\nAction: find\nAction Input: {}")[0].0.as_deref(), Some("I will look."));
}

#[test]
fn a_model_that_writes_its_own_observation_shows() {
    let text = "Thought: a\nAction: find\nAction Input: {}\nObservation: made up\nThought: b\nAnswer: c";
    assert_eq!(rows(text)[0].3.as_deref(), Some("made up"));
}

#[test]
fn thinking_by_a_tool_is_a_step_with_itself_as_thought() {
    let text = "Action: think[this one fits]\nObservation: OK.\n\nAction: click[Buy Now]\nObservation: done";
    assert_eq!(
        rows(text),
        vec![row("this one fits", "think", "this one fits", "OK."), row("", "click", "Buy Now", "done")]
    );
}

#[test]
fn dspy_style() {
    let text = "[[ ## next_thought ## ]]\nI look.\n\n[[ ## next_tool_name ## ]]\nfind\n\n[[ ## next_tool_args ## ]]\n{\"q\": 1}\n\n[[ ## completed ## ]]";
    assert_eq!(rows(text), vec![row("I look.", "find", "{\"q\": 1}", "")]);
}

#[test]
fn a_text_without_labels_is_no_react() {
    assert!(!read_react_transcript("Just an answer.").is_react);
    assert!(!read_react_transcript("").is_react);
}

#[test]
fn several_questions_are_several_runs() {
    let text = "Question: a?\nThought: x\nAction: find\nAction Input: {}\nObservation: none\nThought: y\nFinal Answer: no\n\nQuestion: b?\nThought: z\nFinal Answer: yes\n";
    let runs = super::split_runs(text);
    assert_eq!(runs.len(), 2);
    assert_eq!(read_react_transcript(runs[0]).answer.as_deref(), Some("no"));
    assert_eq!(read_react_transcript(runs[1]).question.as_deref(), Some("b?"));
    assert_eq!(super::split_runs("Thought: x\nAnswer: y"), vec!["Thought: x\nAnswer: y"]);
}

#[test]
fn several_numbered_runs_are_told_apart() {
    let text = "Question: a?\nThought 1: x\nAction 1: Finish[A1]\nObservation 1: done\n\nQuestion: b?\nThought 1: y\nAction 1: Search[z]\nObservation 1: Question: no\nThought 2: w\nAction 2: Finish[B1]\n";
    let runs = super::split_runs(text);
    let answers: Vec<_> =
        runs.iter().map(|run| read_react_transcript(run).answer.map(std::borrow::Cow::into_owned)).collect();
    assert_eq!(answers, [Some("A1".to_owned()), Some("B1".to_owned())]);
}

#[test]
fn smolagents_style() {
    let text = "Task: How many issues?\nThought: I list them.\nCode:\n```py\nissues = list_issues(repo='o/a')\nprint(\"Action: x\")\n```<end_code>\nObservation: Execution logs: 12\nThought: Done.\n<code>\nfinal_answer('12 issues')\n</code>\n";
    assert_eq!(rows(text), vec![row("I list them.", "list_issues", "repo='o/a'", "Execution logs: 12")]);
    let transcript = read_react_transcript(text);
    assert_eq!(
        (transcript.question.as_deref(), transcript.answer.as_deref()),
        (Some("How many issues?"), Some("12 issues"))
    );
    assert_eq!(transcript.steps[0].input.json, Some(json!({"repo": "o/a"})));
    let text = "Thought: I compute.\nCode:\n```py\nx = 1 + 1\nprint(x)\n```\nObservation: 2\n";
    assert_eq!(rows(text)[0].1, "python_interpreter");
}

#[test]
fn fences_hide_labels() {
    let text = "Thought: done\nFinal Answer: Use this:\n```\nThought: t\nAction: do_thing\nAction Input: {}\n```\nThat is all.";
    assert_eq!(rows(text), vec![]);
    assert!(read_react_transcript(text).answer.as_deref().unwrap().ends_with("That is all."));
    let text = "```\nThought: a\nAction: find\nAction Input: {}\n```";
    assert_eq!(rows(text)[0].1, "find");
}

#[test]
fn an_answer_right_behind_an_observation_is_read() {
    let text = "Thought: a\nAction: find\nAction Input: {}\nObservation: none\nAnswer: There is none.";
    assert_eq!(read_react_transcript(text).answer.as_deref(), Some("There is none."));
}

#[test]
fn calls_without_an_action_label_are_read() {
    for text in [
        "I look.\n{\"action\": \"find\", \"action_input\": {\"q\": 1}}",
        "<think>I look.</think>\n```json\n{\"action\": \"find\", \"action_input\": {\"q\": 1}}\n```",
        "Thought: I look.\n```json\n{\"action\": \"find\", \"action_input\": {'q': 1}}\n```",
        "Thought: I look.\n<tool_call>{\"name\": \"find\", \"arguments\": {\"q\": 1}}</tool_call>",
        "<think>I look.</think>\n{\"name\": \"find\", \"arguments\": {\"q\": 1}}",
        "<think>I look.</think>\n```json\n{\"name\": \"find\", \"parameters\": {\"q\": 1}}\n```",
    ] {
        assert_eq!(rows(text), vec![row("I look.", "find", "{\"q\":1}", "")], "{text}");
    }
    let answer = read_react_transcript("{\"action\": \"Final Answer\", \"action_input\": \"42\"}");
    assert_eq!((answer.steps.len(), answer.answer.as_deref()), (0, Some("42")));
    // What only looks like it is an answer in JSON, or an example in one.
    for text in [
        "{\"action\": \"find\", \"why\": \"because\"}",
        "{\"action\": {\"kind\": 1}, \"action_input\": {}}",
        "{\"name\": \"find\", \"arguments\": {}, \"stars\": 3}",
        "{\"name\": \"find\", \"arguments\": \"a, b\"}",
        "The signature is\n{\"name\": \"find\", \"arguments\": {}}",
        "It wrote:\n```json\n{\"action\": \"find\", \"action_input\": {}}\n```\nand then stopped.",
    ] {
        assert!(!read_react_transcript(text).is_react, "{text}");
    }
}

#[test]
fn answers_of_finishing_actions_are_plain_texts() {
    for text in [
        "Action: finish({\"answer\": \"ok\"})",
        "Action: finish(answer=\"ok\")",
        "Action: finish(\"ok\")",
        "Action: Finish[ok]",
        "Action: Final Answer\nAction Input: \"ok\"",
        "Action: finish.\nAction Input: {\"answer\": \"ok\"}",
    ] {
        assert_eq!(read_react_transcript(text).answer.as_deref(), Some("ok"), "{text}");
    }
}

/// A thought in two pieces has to be copied for each call beside the first.
#[test]
fn a_thought_in_pieces_is_not_copied_without_end() {
    let piece = "t".repeat(1_500);
    let calls = vec![r#"{"tool": "a"}"#; 20_000].join(",");
    let text = format!("Thought: {piece}\nThought: {piece}\nAction: [{calls}]");
    let steps = read_react_transcript(&text).steps;
    let copied: usize = steps.iter().filter_map(|step| step.thought.as_deref()).map(str::len).sum();
    assert!(steps.len() == 20_000 && copied > 100_000 && copied < 2 << 20, "{} steps, {copied}", steps.len());
}
