//! What the agent carries out and what our extractor reads in its trace are the same, in every form in which a model may
//! write its action.

use std::path::Path;
use std::sync::Arc;

use gradus_github_agent::agent::RunStep;
use gradus_github_agent::agent::{
    AgentDriver, AgentRunRecorder, AgentRunSettings, AgentState, AgentStateMachine, ChatModel, RealClock,
    RefusingConfirmer, ToolCallMode,
};
use gradus_github_agent::tools::{AgentTool, BoxFuture, CallObservation, ToolEffect, ToolSet};
use gradus_github_agent::trace::{AgentTracer, TraceIdGenerator, TracerSettings};
use gradus_llm::{ChatReply, ChatRequest, ChatToolCall, ChatToolDefinition, FinishReason, ModelCallFailure};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::place::Place;

/// Says one thing first, and then that it is done.
struct Once {
    reply: ChatReply,
}

fn reply(text: &str, calls: Vec<ChatToolCall>) -> ChatReply {
    ChatReply { text: text.to_owned(), calls, usage: None, stop: FinishReason::Done }
}

impl ChatModel for Once {
    fn name(&self) -> &str {
        "scripted"
    }

    fn ask<'a>(&'a self, chat: &'a ChatRequest<'a>) -> BoxFuture<'a, Result<ChatReply, ModelCallFailure>> {
        let first = chat.messages.len() == 1;
        let done = || reply(if chat.tools.is_empty() { "Final Answer: done" } else { "done" }, Vec::new());
        let said = if first { self.reply.clone() } else { done() };
        Box::pin(std::future::ready(Ok(said)))
    }
}

struct Echo(Vec<AgentTool>);

impl ToolSet for Echo {
    fn tools(&self) -> &[AgentTool] {
        &self.0
    }

    fn call<'c>(&'c self, name: &'c str, arguments: &'c Json) -> BoxFuture<'c, CallObservation> {
        let text = format!("{name} was given {arguments}");
        Box::pin(std::future::ready(CallObservation { text, is_error: false, retry_after: None }))
    }
}

fn echo() -> Echo {
    let definition = ChatToolDefinition {
        name: "read".into(),
        description: "Reads a file.".into(),
        parameters: Arc::new(json!({"type": "object"})),
    };
    Echo(vec![AgentTool { definition, effect: ToolEffect::Read }])
}

/// What an agent did when the model said this, and its answer; its spans go to `traces`.
async fn play(
    session: &str,
    form: ToolCallMode,
    said: &ChatReply,
    traces: &AgentTracer,
) -> (Vec<RunStep>, Option<String>) {
    let (tools, model) = (echo(), Once { reply: said.clone() });
    let settings = AgentRunSettings { form, ..AgentRunSettings::default() };
    let mut machine = AgentStateMachine::new(settings, &tools, AgentState::new(session, form));
    let (mut recorder, mut spans) = (AgentRunRecorder::new(|| 0), traces.observer());
    let mut driver = AgentDriver {
        model: &model,
        tools: &tools,
        clock: &RealClock,
        confirm: &RefusingConfirmer,
        observers: vec![&mut recorder, &mut spans],
        session_store: None,
    };
    let (_, answer) = driver.run_request(&mut machine, "Read it.").await.unwrap();
    (recorder.steps().to_vec(), answer)
}

/// Plays all, and compares what was done with what is read back. `counts` says whether a call must have been made.
fn assert_read_back(form: ToolCallMode, replies: &[ChatReply], counts: bool) {
    let place = Place::new();
    let traces =
        AgentTracer::new(&TracerSettings { service: "s", project: "p", ids: TraceIdGenerator::from_seed("forms") });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let did: Vec<_> = replies
        .iter()
        .enumerate()
        .map(|(number, said)| runtime.block_on(play(&number.to_string(), form, said, &traces)))
        .collect();
    std::fs::write(Path::new(&place.path("forms.bin")), traces.take_otlp()).unwrap();
    let read = place.run(&["traces", "forms.bin", "--format", "jsonl"]).exits_with(0);
    let read: Vec<Json> = read.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), replies.len());
    let mut differences = Vec::new();
    for trajectory in read {
        let number: usize = trajectory["session_id"].as_str().unwrap().parse().unwrap();
        let (steps, answer) = &did[number];
        let did: Vec<Json> =
            steps.iter().map(|step| json!([step.thought, step.tool, step.arguments, step.observation])).collect();
        // What is no object is refused as it was written.
        let arguments = |at: usize| match steps.get(at) {
            Some(step) if step.arguments.is_string() => "arguments_raw",
            _ => "arguments",
        };
        let read = trajectory["steps"].as_array().unwrap().iter().enumerate();
        let read: Vec<Json> = read
            .map(|(at, step)| json!(["thought", "tool", arguments(at), "observation"].map(|part| step[part].clone())))
            .collect();
        let is_taken = !counts || !steps.is_empty() && !steps[0].is_error;
        if !is_taken || did != read || trajectory["final_answer"] != json!(answer) {
            let said = &replies[number].text;
            differences
                .push(format!("{said:?}\n  did:  {did:?} {answer:?}\n  read: {read:?} {}", trajectory["final_answer"]));
        }
    }
    let count = differences.len();
    differences.truncate(20);
    assert!(differences.is_empty(), "{count} differ:\n{}", differences.join("\n"));
}

/// Labels as models dress them up.
const LABELS: [fn(&str) -> String; 7] = [
    |word| format!("{word}:"),
    |word| format!("**{word}:**"),
    |word| format!("**{word}**:"),
    |word| format!("{word} 1:"),
    |word| format!("### {word}:"),
    |word| format!("  {}:", word.to_lowercase()),
    |word| format!("{}:", word.to_lowercase().replace(' ', "_")),
];

/// The action and its input; `[I]` stands for the input's label.
const ACTIONS: [&str; 37] = [
    "read\n[I] {}",
    "`read`\n[I] {}",
    "\"read\"\n[I] {}",
    "**read**\n[I] {}",
    "read\n[I]\n{}",
    "read\n[I]\n```json\n{}\n```",
    "read\n[I] ```{}```",
    "read\n[I] `{}`",
    "read\n[I] {}, along those lines.",
    "read\n\n[I] {}\n",
    "read Action Input: {}",
    "read {}",
    "read\n{}",
    "read\n```json\n{}\n```",
    "read({})",
    "`read({})`",
    "read(\n{}\n)",
    "read[{}]",
    "{\"action\": \"read\", \"action_input\": {}}",
    "\n```json\n{\"action\": \"read\", \"action_input\": {}}\n```",
    "\n```\n{\"action\": \"read\",\n \"action_input\": {}\n}\n```",
    "{\"name\": \"read\", \"arguments\": {}}",
    "{\"tool\": \"read\", \"input\": {}}",
    "{\"tool_name\": \"read\", \"parameters\": {}}",
    "{\"action\": \"read\", \"args\": {}}",
    "{\"tool\": \"read\", \"tool_input\": {}}",
    "none\n[T] Or rather:\n[A] read\n[I] {}",
    "read\n[I] {}\nObservation: made up\nThought: nice\nFinal Answer: no",
    "read\n[I] {}\n[A] read\n[I] {\"a\": 2}",
    "read.\n[I] {}",
    "`read`.\n[I] {}",
    "read()\n[I] {}",
    "read: {}",
    "{\"action_input\": {}, \"action\": \"read\"}",
    "[{\"action\": \"read\", \"action_input\": {}}, {\"action\": \"read\", \"action_input\": {\"a\": 2}}]",
    "`read` with `{}`",
    "read\n[I] ```json{}```",
];

const ARGUMENTS: [&str; 4] = [
    "{\"a\": 1}",
    "{\"path\": \"a [b](c)\", \"deep\": {\"list\": [1, null, \"x\"]}}",
    "{\"content\": \"Final Answer: no\\nAction: other\\nAction Input: {}\"}",
    "{\"q\": \"it's `so`: \\\"yes\\\"\"}",
];

/// What stands around it all; `[X]` stands for it.
const AROUND: [&str; 7] = [
    "[T] I look.\n[A] [X]",
    "[T]\nI look\nat it.\n\n[A] [X]",
    "I look.\n\n[A] [X]",
    "[A] [X]",
    "<think>\nAction: other\n</think>\n[T] I look.\n[A] [X]",
    "<think>I look.</think>\n[A] [X]",
    "```\n[T] I look.\n[A] [X]\n```",
];

#[test]
fn actions_are_read_back_as_they_were_carried_out_in_every_form() {
    let mut replies = Vec::new();
    for label in LABELS {
        for action in ACTIONS {
            for (number, around) in AROUND.iter().enumerate() {
                // A fence in a fence has no end that anybody could know.
                if around.starts_with("```") && action.contains("```") {
                    continue;
                }
                let arguments = ARGUMENTS[(replies.len() + number) % ARGUMENTS.len()];
                let text = around
                    .replace("[X]", &action.replace("{}", arguments))
                    .replace("[T]", &label("Thought"))
                    .replace("[A]", &label("Action"))
                    .replace("[I]", &label("Action Input"));
                replies.push(reply(&text, Vec::new()));
            }
        }
    }
    for none in ["Action: read", "Action: read\nAction Input:", "Action: read()", "Action: read\nAction Input: null"] {
        replies.push(reply(&format!("Thought: I look.\n{none}"), Vec::new()));
    }
    assert_read_back(ToolCallMode::Text, &replies, true);
}

fn replies(texts: &[&str]) -> Vec<ChatReply> {
    texts.iter().map(|text| reply(text, Vec::new())).collect()
}

#[test]
fn arguments_that_are_nearly_json_are_carried_out_as_they_are_read() {
    let texts = [
        "Thought: I look.\nAction: read\nAction Input: {\"a\": 1,}",
        "Thought: I look.\nAction: read\nAction Input: {'a': 'it\\'s', 'b': None, 'c': [True, (1, 2)],}",
        "Thought: I look.\nAction: read\nAction Input: {\"a\": 1} # the first one",
        "Thought: I look.\nAction: read\nAction Input: {\"content\": \"one\nAction: two\nFinal Answer: three\"}",
        "Thought: I look.\nAction: read\nAction Input: \"{\\\"a\\\": 1}\"",
        "Thought: I look.\nAction: read\nAction Input: '{\"a\": 1}'",
        "Thought: I look.\nAction: read\nAction Input: {1: \"a\"}",
        "Thought: I look.\nAction: read\nAction Input: {\"a\": \"\\ud83d\\u0041\"}",
        "Thought: I look.\nAction: read\nAction Input: {\"id\": 18446744073709551615} and so on",
        "Thought: I look.\nAction: read\nAction Input: {\"zero\": -0} and so on",
        "Thought: I look.\nAction: read(owner=\"octo\", number=3, deep={'a': [1]})",
        "Thought: I look.\nAction: `read(owner='octo')`",
        "Thought: I look.\nAction: read({'owner': 'octo',})",
        "Thought: I look.\nAction: read {'owner': 'octo'}",
        "Thought: I look.\nAction:\n```json\n{'action': 'read', 'action_input': {'owner': 'octo',}}\n```",
    ];
    assert_read_back(ToolCallMode::Text, &replies(&texts), true);
    let call = |arguments: &str| {
        vec![ChatToolCall { id: "a".to_owned(), name: "read".to_owned(), arguments: arguments.to_owned() }]
    };
    let native = ["{\"a\": 1,}", "{'a': None}"].map(|arguments| reply("I look.", call(arguments)));
    assert_read_back(ToolCallMode::Native, &native, true);
}

#[test]
fn calls_without_labels_are_read_back_as_they_were_carried_out() {
    let texts = [
        "{\"action\": \"read\", \"action_input\": {\"a\": 1}}",
        "I look.\n{\"action\": \"read\",\n \"action_input\": {\"a\": 1}}\n",
        "I look.\n\n```json\n{\"action\": \"read\", \"action_input\": {\"a\": 1}}\n```",
        "Thought: I look.\n```\n{\"action\": \"read\", \"action_input\": {\"a\": 1}}\n```",
        "<think>I look.</think>{\"action\": \"read\", \"action_input\": {\"a\": 1}}",
        "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call>",
        "I look.\n<tool_call>\n{\"name\": \"read\", \"arguments\": {'a': 1}}\n",
        "Thought: I look.\n<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call>",
        "I look.\n<tool>read</tool><tool_input>{\"a\": 1}</tool_input>",
        "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call>\n<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 2}}</tool_call>",
        "I look.\n<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call>\nThen:\n<tool_call>{\"name\": \"read\"}</tool_call>",
        "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call><tool_response>made up</tool_response><final_answer>no</final_answer>",
    ];
    assert_read_back(ToolCallMode::Text, &replies(&texts), true);
}

#[test]
fn native_calls_that_are_written_as_text_are_read_back_as_they_were_carried_out() {
    let texts = [
        "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call>",
        "I look.\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1}}</tool_call>\n<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 2}}</tool_call>",
        "<tool_call>{\"name\": \"read\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
        "Thought: I look.\nAction: read\nAction Input: {\"a\": 1}",
        "Thought: I look.\nAction: read\nAction Input: {\"a\": 1}\nObservation: made up\nFinal Answer: no",
        "{\"name\": \"read\", \"arguments\": {\"a\": 1}}",
        "```json\n{\"name\": \"read\", \"arguments\": {\"a\": 1}}\n```",
        "<think>I look.</think>\n{\"name\": \"read\", \"parameters\": {\"a\": 1}}",
        "{\"name\": \"read\", \"arguments\": \"{\\\"a\\\": 1}\"}",
        "I look.\n{\"action\": \"read\", \"action_input\": {\"a\": 1}}",
    ];
    assert_read_back(ToolCallMode::Native, &replies(&texts), true);
    assert_read_back(ToolCallMode::Text, &replies(&texts), true);
    let unknown = ["<tool_call>{\"name\": \"reed\", \"arguments\": {\"a\": 1}}</tool_call>"];
    assert_read_back(ToolCallMode::Native, &replies(&unknown), false);
    let answers = ["<think>Hm.</think>\n\nIt is 42.", "It is 42."];
    assert_read_back(ToolCallMode::Native, &replies(&answers), false);
}

#[test]
fn whoever_goes_on_to_act_behind_an_answer_was_not_done() {
    let texts = [
        "Thought: I look.\nFinal Answer: not yet\nAction: read\nAction Input: {\"a\": 1}",
        "Final Answer: not yet\n\nAction: read\nAction Input: {\"a\": 1}",
        "Thought: I look.\n\nAnswer: not yet\nThought: so\nAction: read\nAction Input: {\"a\": 1}",
        "Thought: I look.\nAction: read\nAction Input: {\"a\": 1}\nFinal Answer: done before it was seen",
        "Thought: I look.\nAction: read({\"a\": 1})\nFinal Answer: done before it was seen",
        "Thought: I look.\nAction: other\nAction: read\nAction Input: {\"a\": 1}",
        "Thought: I look.\nAction: looking is the way\nto go.\nAction: read\nAction Input: {\"a\": 1}",
        "Thought: I expect\nObservation: nothing\nAction: read\nAction Input: {\"a\": 1}",
    ];
    assert_read_back(ToolCallMode::Text, &replies(&texts), true);
}

#[test]
fn what_is_refused_is_read_back_as_it_was_refused() {
    let texts = [
        "Thought: I look.\nAction: read(\"octo\")",
        "Thought: I look.\nAction: read(\"octo\", page=2)",
        "Thought: I look.\nAction: read[octo/demo]",
        "Thought: I look.\nAction: read\nAction Input: octo/demo",
        "Thought: I look.\nAction: read\nAction Input: [1, 2]",
        "Thought: I look.\nAction: read\nAction Input: {\"a\": }",
        "Thought: I look.\nAction: {\"action\": \"read\", \"action_input\": {\"a\": }}",
        // Neither an action nor an answer: no step, whoever reads it.
        "Thought: I look.\nAction: read the file",
        "Thought: I look.\nAction: {\"name\": \"read\", \"arguments\": {\"a\": }}",
        "Thought: I look.\nAction: none",
        "Thought: I look.\nAction: finish",
        "Thought: I look.\nAction Input: {\"a\": 1}",
    ];
    assert_read_back(ToolCallMode::Text, &replies(&texts), false);
}

/// What replies are made of, in any order: whatever comes of it, both readers make the same of it.
const PARTS: [&str; 12] = [
    "Thought: I look.",
    "Action: read",
    "Action: read({\"a\": 2})",
    "Action: none",
    "Action Input: {\"a\": 1}",
    "Observation: made up",
    "Final Answer: it is so",
    "Answer: it is so",
    "Some words",
    "```",
    "{\"action\": \"read\", \"action_input\": {\"a\": 3}}",
    "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 4}}</tool_call>",
];

#[test]
fn parts_in_any_order_mean_the_same_to_both() {
    let mut texts: Vec<String> = PARTS.iter().map(|part| (*part).to_owned()).collect();
    let mut last = texts.clone();
    for _ in 0..2 {
        last = last.iter().flat_map(|text| PARTS.map(|part| format!("{text}\n{part}"))).collect();
        texts.extend(last.iter().cloned());
    }
    // Of longer ones some, always the same.
    let mut random = fastrand::Rng::with_seed(6);
    texts.extend((0..2_000).map(|_| {
        let parts: Vec<&str> = (0..random.usize(4..8)).map(|_| PARTS[random.usize(..PARTS.len())]).collect();
        parts.join("\n")
    }));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_read_back(ToolCallMode::Text, &replies(&texts), false);
}

#[test]
fn names_that_no_tool_has_are_read_back_as_they_were_answered() {
    let replies: Vec<_> = ["???", "reed", "functions.read"]
        .iter()
        .map(|name| reply(&format!("Thought: I look.\nAction: {name}\nAction Input: {{}}"), Vec::new()))
        .collect();
    assert_read_back(ToolCallMode::Text, &replies, false);
}

#[test]
fn answers_are_read_back_as_they_were_given() {
    let texts = [
        "Thought: t\nFinal Answer: 42",
        "**Final Answer:** 42",
        "Thought: t\nFinal answer: 42\nObservation: made up",
        "FINAL_ANSWER: 42",
        "Thought: t\nAnswer: 42",
        "Thought: t\nAction: Final Answer\nAction Input: 42",
        "Thought: t\nAction: finish\nAction Input: 42",
        "Thought: t\nAction: None\nFinal Answer: 42",
        "Thought: t\nAction: {\"action\": \"Final Answer\", \"action_input\": \"42\"}",
        "Thought: t\nAction: finish({\"answer\": \"42\"})",
        "Thought: t\nAction: finish(answer=\"42\")",
        "Thought: t\nAction: finish(\"42\")",
        "Thought: t\nAction: Finish[42]",
        "Thought: t\nAction: Final Answer\nAction Input: \"42\"",
        "Thought: t\nFinal Answer: 42\nAction: read",
        "Thought: t\nAction: none\nAnswer: 42",
        "{\"action\": \"Final Answer\", \"action_input\": \"42\"}",
        "I know it.\n<final_answer>42</final_answer>",
        "<think>Hm.</think>Answer: 42",
    ];
    assert_read_back(ToolCallMode::Text, &replies(&texts), false);
}

#[test]
fn native_calls_are_read_back_with_the_thought_before_them() {
    let call = |arguments: &str| {
        vec![ChatToolCall { id: "a".to_owned(), name: "read".to_owned(), arguments: arguments.to_owned() }]
    };
    let mut replies: Vec<_> =
        ["I look.", "Thought: I look.", "<think>Hm.</think>I look.", "<think>I look.</think>", ""]
            .iter()
            .map(|text| reply(text, call("{\"a\": 1}")))
            .collect();
    replies.extend(["", "{}", "null", "\"{\\\"a\\\": 1}\""].map(|arguments| reply("I look.", call(arguments))));
    assert_read_back(ToolCallMode::Native, &replies, true);
}

/// A text in quotes, with every escape that there is, right or wrong.
fn quoted() -> impl Strategy<Value = String> {
    let escape = prop::sample::select(vec![
        "\\n",
        "\\t",
        "\\\\",
        "\\/",
        "\\\"",
        "\\'",
        "\\u00e9",
        "\\x41",
        "\\U0001f41b",
        "\\ud83d\\udc1b",
        "\\ud83d",
        "\\udc1b",
        "\\ud83d\\u0041",
        "\\ud83d\\ud83d",
        "\\ud83d\\ue000",
        "\\u+041",
        "\\u12",
        "\\d",
        "\n",
    ]);
    let part = prop_oneof![3 => "[a-z0-9 é🐛,:{}()\\[\\]#/*.-]{0,6}", 2 => escape.prop_map(str::to_owned)];
    let parts = prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat());
    (parts, prop::sample::select(vec!["\"", "'", "\"\"\"", "'''"]))
        .prop_map(|(parts, quote)| format!("{quote}{parts}{quote}"))
}

fn plain() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "true",
        "True",
        "None",
        "null",
        "undefined",
        "-0",
        "+5",
        ".5",
        "5.",
        "1e5",
        "1_000",
        "1e999",
        "0x10",
        "nan",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775808",
        "-9223372036854775809",
        "007",
    ]);
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| json!(number).to_string()),
        odd.prop_map(str::to_owned),
    ]
}

/// Objects as models write them, in JSON, in Python, and in something between the two.
fn written_object() -> impl Strategy<Value = String> {
    let comma = || prop::sample::select(vec!["", ",", ", ", " /* so */", ", # so\n", " // so\n"]);
    let value = prop_oneof![2 => quoted(), 2 => plain()].prop_recursive(3, 16, 4, move |inner| {
        let items = prop::collection::vec(inner.clone(), 0..4).prop_map(|items| items.join(", "));
        let list = (items, comma(), any::<bool>()).prop_map(|(items, comma, is_tuple)| {
            if is_tuple { format!("({items}{comma})") } else { format!("[{items}{comma}]") }
        });
        prop_oneof![list, object_of(inner, comma())]
    });
    object_of(value, comma())
}

fn object_of(
    value: impl Strategy<Value = String>,
    comma: impl Strategy<Value = &'static str>,
) -> impl Strategy<Value = String> {
    let key = prop_oneof![4 => "\"[a-z]{1,3}\"", 2 => quoted(), 1 => plain()];
    let fields = prop::collection::vec((key, value), 0..4);
    (fields, comma).prop_map(|(fields, comma)| {
        let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
        format!("{{{}{comma}}}", fields.join(", "))
    })
}

/// Where the object, `[X]`, can stand.
const PLACES: [&str; 5] = [
    "Action: read\nAction Input: [X]",
    "Action: read\nAction Input: [X] and so on",
    "Action: read({\"x\": [X]})",
    "Action: read(x=[X], y=1)",
    "Action: {\"action\": \"read\", \"action_input\": [X]}",
];

proptest! {
    // Each case starts our program, and holds many replies.
    #![proptest_config(ProptestConfig {
        cases: 12,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn whatever_object_is_written_means_the_same_to_both(
        objects in prop::collection::vec((written_object(), prop::sample::select(PLACES.to_vec())), 1..120),
    ) {
        let text = |(object, place): &(String, &str)| reply(&place.replace("[X]", object), Vec::new());
        assert_read_back(ToolCallMode::Text, &objects.iter().map(text).collect::<Vec<_>>(), false);
        let native = |(object, _): &(String, &str)| {
            let call = ChatToolCall { id: "a".to_owned(), name: "read".to_owned(), arguments: object.clone() };
            reply("I look.", vec![call])
        };
        assert_read_back(ToolCallMode::Native, &objects.iter().map(native).collect::<Vec<_>>(), false);
    }
}
