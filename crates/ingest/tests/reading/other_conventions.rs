//! Conventions and habits of instrumentations that differ from the usual ones: how a reply and its repetition are
//! written, spans inside of model spans, vendors' own attributes. Each trace is the smallest that shows one of them.

#![allow(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use gradus_core::trajectory::DefectKind;
use serde_json::{Value as Json, json};

use crate::small_traces::{
    FIND_SHIP, agent, answer, assert_found, chat, read, read_one, reply, result, span, steps, user,
};

#[test]
fn a_call_that_the_history_names_by_another_id_is_the_same_call() {
    for (in_reply, in_history) in [(Some("call_1"), Some("fc_1")), (None, Some("call_1"))] {
        let spans = [
            agent(),
            chat(1, 2, 1, (1, 2), json!([user()]), json!([reply(Some("I will look."), in_reply)])),
            chat(
                1,
                3,
                1,
                (3, 4),
                json!([user(), reply(Some("I will look."), in_history), result(in_history)]),
                json!([answer()]),
            ),
        ];
        assert_found(&read_one(&spans));
    }
}

#[test]
fn two_calls_alike_are_two_where_the_history_shows_both() {
    // The reply of the second call is lost, and its id is unknown.
    let history = json!([
        user(),
        reply(Some("I will look."), Some("call_1")),
        result(Some("call_1")),
        reply(Some("Once more."), Some("call_2")),
        result(Some("call_2"))
    ]);
    let first = chat(1, 2, 1, (1, 2), json!([user()]), json!([reply(Some("I will look."), Some("call_1"))]));
    let read = read_one(&[agent(), first, chat(1, 3, 1, (5, 6), history, json!([answer()]))]);
    assert_eq!(steps(&read), [FIND_SHIP, ("find_ship", Some("Once more."), Some("berth 7"))]);
}

#[test]
fn a_thought_that_only_the_history_has_is_kept() {
    let spans = [
        agent(),
        chat(1, 2, 1, (1, 2), json!([user()]), json!([reply(None, Some("c"))])),
        chat(
            1,
            3,
            1,
            (3, 4),
            json!([user(), reply(Some("I will look."), Some("c")), result(Some("c"))]),
            json!([answer()]),
        ),
    ];
    assert_found(&read_one(&spans));
}

#[test]
fn a_single_call_with_its_history_has_its_answer() {
    let input = json!([user(), reply(Some("I will look."), Some("c")), result(Some("c"))]);
    assert_found(&read_one(&[chat(1, 2, 0, (1, 2), input, json!([answer()]))]));
}

/// Two calls of a plain client, each in a trace of its own.
fn plain_client(first_reply: Json, repeated: &[Json]) -> Vec<Json> {
    let input: Vec<Json> = [user()].into_iter().chain(repeated.iter().cloned()).collect();
    vec![
        chat(1, 2, 0, (1, 2), json!([user()]), json!([first_reply])),
        chat(2, 3, 0, (3, 4), json!(input), json!([answer()])),
    ]
}

#[test]
fn calls_of_a_plain_client_are_linked_by_what_the_history_has_of_the_reply() {
    let words = json!({"role": "assistant", "parts": [{"type": "text", "content": "I will look."}]});
    let named = json!({"role": "tool", "name": "find_ship", "content": "berth 7"});
    let said = Some("I will look.");
    for (first, repeated) in [
        // The reply has no ids, and the history has them.
        (reply(said, None), vec![reply(said, Some("c")), result(Some("c"))]),
        // The history has the words without the calls.
        (reply(said, Some("c")), vec![words, result(Some("c"))]),
        // The history has nothing of the reply but the results.
        (reply(said, Some("c")), vec![named]),
    ] {
        let read = read(&plain_client(first.clone(), &repeated));
        assert_eq!(read.len(), 1, "{first} {repeated:?} {read:#?}");
        assert_found(&read[0]);
    }
}

#[test]
fn conversations_that_cannot_be_told_apart_are_not_linked() {
    let named = json!({"role": "tool", "name": "find_ship", "content": "berth 7"});
    let mut spans = plain_client(reply(None, Some("c1")), &[named]);
    spans.push(chat(3, 4, 0, (1, 2), json!([user()]), json!([reply(None, Some("c2"))])));
    assert_eq!(read(&spans).len(), 3, "the call may continue either of two");
}

#[test]
fn tools_inside_of_a_model_span_ran_before_its_reply() {
    let tool = json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find_ship",
        "gen_ai.tool.call.arguments": {"name": "Anna"}, "gen_ai.tool.call.result": "berth 7"});
    let spans = [
        agent(),
        chat(1, 2, 1, (1, 6), json!([user()]), json!([answer()])),
        span(1, 3, 2, "execute_tool find_ship", (2, 3), tool),
    ];
    let read = read_one(&spans);
    assert_eq!(steps(&read), [("find_ship", None, Some("berth 7"))]);
    assert_eq!(read.final_answer.as_deref(), Some("At berth 7."));
}

#[test]
fn a_model_span_around_model_spans_is_a_loop() {
    let llm = |input: &str, output: &str| json!({"openinference.span.kind": "LLM", "input.value": input, "output.value": output});
    let body = |messages: Json| json!({"body": {"messages": messages}}).to_string();
    let asked = json!({"role": "user", "content": "Where is the ship?"});
    let called = json!({"text": "I will look.", "toolCalls": [{"toolCallId": "c", "toolName": "find_ship", "args": {"name": "Anna"}}]});
    let whole = json!({"openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where is the ship?",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "At berth 7."});
    let tool = json!({"openinference.span.kind": "TOOL", "tool.name": "find_ship", "input.value": {"name": "Anna"},
        "output.value": "berth 7"});
    let piece = json!({"openinference.span.kind": "LLM", "output.value": {"text": "I will look."}});
    let spans = [
        span(1, 1, 0, "agent", (0, 9), json!({"openinference.span.kind": "AGENT"})),
        span(1, 2, 1, "chat", (1, 8), whole),
        span(1, 3, 2, "step 0", (2, 5), llm(&body(json!([asked])), &called.to_string())),
        span(1, 4, 3, "chunk", (2, 2), piece),
        span(1, 5, 3, "find_ship", (3, 4), tool),
        span(1, 6, 2, "step 1", (6, 7), llm(&body(json!([asked])), &json!({"text": "At berth 7."}).to_string())),
    ];
    assert_found(&read_one(&spans));
}

#[test]
fn a_structure_that_is_not_understood_is_no_thought() {
    let model = json!({"openinference.span.kind": "LLM", "output.value": {"sdk_http_response": {"headers": {"a": "b"}}},
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where is the ship?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find_ship"});
    assert_eq!(steps(&read_one(&[span(1, 1, 0, "call", (1, 2), model)])), [("find_ship", None, None)]);
}

#[test]
fn integrations_of_logfire_are_read() {
    let events = |events: Json| {
        json!({"logfire.msg": "m", "gen_ai.system": "openai", "gen_ai.request.model": "m", "gen_ai.operation.name": "chat",
            "events": events})
    };
    let asked = json!({"event.name": "gen_ai.user.message", "role": "user", "content": "Where is the ship?"});
    let said = json!({"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "I will look."});
    let called = json!({"event.name": "gen_ai.assistant.message", "role": "assistant", "tool_calls": [
        {"id": "c", "function": {"name": "find_ship", "arguments": {"name": "Anna"}}}]});
    let seen = json!({"event.name": "gen_ai.tool.message", "role": "tool", "id": "c", "tool_call_id": "c", "content": "berth 7"});
    let done = json!({"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "At berth 7."});
    let spans = [
        span(1, 1, 0, "run", (0, 9), json!({"logfire.msg": "run", "agent_name": "a"})),
        span(1, 2, 1, "first", (1, 2), events(json!([asked, said, called]))),
        span(1, 3, 1, "second", (3, 4), events(json!([asked, said, called, seen, done]))),
    ];
    assert_found(&read_one(&spans));
    // Without events: lists of messages, and tools with input and output.
    let chat = |input: Json, output: Json| json!({"logfire.msg": "m", "gen_ai.system": "openai", "gen_ai.request.model": "m", "input": input, "output": output});
    let asked = json!({"role": "user", "content": "Where is the ship?"});
    let called = json!({"role": "assistant", "content": "I will look.", "tool_calls": [
        {"id": "c", "function": {"name": "find_ship", "arguments": {"name": "Anna"}}}]});
    let tool = json!({"logfire.msg": "f", "gen_ai.system": "openai", "name": "find_ship", "input": {"name": "Anna"}, "output": "berth 7"});
    let done = json!({"role": "assistant", "content": "At berth 7."});
    let spans = [
        span(1, 1, 0, "run", (0, 9), json!({"logfire.msg": "run", "agent_name": "a"})),
        span(1, 2, 1, "first", (1, 2), chat(json!([asked]), json!([called]))),
        span(1, 3, 1, "Function: find_ship", (3, 4), tool),
        span(1, 4, 1, "second", (5, 6), chat(json!([asked]), json!([done]))),
    ];
    assert_found(&read_one(&spans));
}

#[test]
fn vendors_that_record_input_and_output_are_read() {
    let asked = json!({"role": "user", "content": "Where is the ship?"});
    let called = json!({"role": "assistant", "content": "I will look.", "tool_calls": [
        {"name": "find_ship", "args": {"name": "Anna"}, "id": "c", "type": "tool_call"}]});
    let definition =
        json!({"role": "tool", "content": {"type": "function", "function": {"name": "find_ship", "parameters": {}}}});
    let seen =
        json!({"content": "berth 7", "type": "tool", "name": "find_ship", "tool_call_id": "c", "status": "success"});
    let done = json!({"role": "assistant", "content": "At berth 7."});
    let keys = |[kind, input, output]: [&'static str; 3]| {
        move |a: Json, b: Json, c: Json| {
            let mut attributes = serde_json::Map::new();
            for (key, value) in [(kind, a), (input, b), (output, c)] {
                attributes.insert(key.to_owned(), value);
            }
            Json::Object(attributes)
        }
    };
    let langfuse = keys(["langfuse.observation.type", "langfuse.observation.input", "langfuse.observation.output"]);
    let mlflow = keys(["mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"]);
    let quoted = |name: &str| json!(format!("\"{name}\""));
    for [agent, first, tool, second] in [
        [
            langfuse(json!("agent"), json!({"messages": [asked]}), json!({})),
            langfuse(json!("generation"), json!([asked, definition]), called.clone()),
            langfuse(json!("tool"), json!({"name": "Anna"}), seen.clone()),
            langfuse(json!("generation"), json!([asked, called, seen]), done.clone()),
        ],
        [
            mlflow(quoted("AGENT"), json!({"messages": [asked]}), json!({})),
            mlflow(quoted("CHAT_MODEL"), json!({"messages": [asked]}), json!({"choices": [{"message": called}]})),
            mlflow(quoted("TOOL"), json!({"name": "Anna"}), seen.clone()),
            mlflow(
                quoted("CHAT_MODEL"),
                json!({"messages": [asked, called, seen]}),
                json!({"choices": [{"message": done}]}),
            ),
        ],
    ] {
        let spans = [
            span(1, 1, 0, "agent", (0, 9), agent),
            span(1, 2, 1, "first", (1, 2), first),
            span(1, 3, 1, "find_ship", (3, 4), tool),
            span(1, 4, 1, "second", (5, 6), second),
        ];
        assert_found(&read_one(&spans));
    }
}

#[test]
fn a_reply_whose_calls_only_the_history_has_is_continued() {
    let words = json!({"role": "assistant", "parts": [{"type": "text", "content": "I will look."}]});
    let spans = plain_client(words.clone(), &[reply(Some("I will look."), None), result(None)]);
    assert_found(&read_one(&spans));
    // LiteLLM has calls, and the call of a result, beside the parts.
    let mut beside = words.clone();
    beside["tool_calls"] =
        json!([{"id": "c", "type": "function", "function": {"name": "find_ship", "arguments": "{}"}}]);
    let text = json!([{"type": "text", "content": "berth 7"}]);
    let returned = json!({"role": "tool", "parts": text, "tool_call_id": "c"});
    assert_found(&read_one(&plain_client(words, &[beside, returned])));
}

#[test]
fn a_response_that_python_printed_is_an_answer() {
    let printed = "{'id': 'r', 'error': None, 'object': 'response', 'output': [{'content': [{'annotations': [], \
        'text': 'At berth 7.', 'type': 'output_text'}], 'role': 'assistant', 'type': 'message'}], 'tools': []}";
    let input = json!([user(), reply(Some("I will look."), Some("c")), result(Some("c"))]);
    let said = json!([{"role": "assistant", "parts": [{"type": "text", "content": printed}]}]);
    assert_found(&read_one(&[chat(1, 2, 0, (1, 2), input, said)]));
}

#[test]
fn genkit_and_voltagent_are_read() {
    let part = |role: &str, content: Json| json!({"role": role, "content": content});
    let asked = part("user", json!([{"text": "Where is the ship?"}]));
    let called = json!([{"text": "I will look."},
        {"toolRequest": {"name": "find_ship", "ref": "c", "input": {"name": "Anna"}}}]);
    let seen = part("tool", json!([{"toolResponse": {"name": "find_ship", "ref": "c", "output": "berth 7"}}]));
    let genkit = |kind: &str, input: Json, output: Json| json!({"genkit:metadata:subtype": kind, "genkit:input": input, "genkit:output": output});
    let model = |input: Json, content: Json| {
        genkit("model", json!({"messages": input}), json!({"message": part("model", content)}))
    };
    let spans = [
        span(1, 1, 0, "agent", (0, 9), genkit("flow", json!("Where is the ship?"), json!("At berth 7."))),
        span(1, 2, 1, "m", (1, 2), model(json!([asked]), called.clone())),
        span(1, 3, 1, "find_ship", (3, 4), genkit("tool", json!({"name": "Anna"}), json!("\"berth 7\""))),
        span(
            1,
            4,
            1,
            "m",
            (5, 6),
            model(json!([asked, part("model", called), seen]), json!([{"text": "At berth 7."}])),
        ),
    ];
    assert_found(&read_one(&spans));

    // The reply of the model, and with it the thought, is not recorded.
    let of_agent = |more: Json| {
        let mut attributes = json!({"entity.type": "agent", "conversation.id": "s"});
        attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        attributes
    };
    let tool = json!({"span.type": "tool", "tool.name": "find_ship", "tool.call.id": "c", "input": {"name": "Anna"},
        "output": "berth 7"});
    let read = read_one(&[
        span(1, 1, 0, "agent", (0, 9), of_agent(json!({"input": "Where is the ship?", "output": "At berth 7."}))),
        span(1, 2, 1, "memory.read", (1, 2), of_agent(json!({"span.type": "memory", "input": "q", "output": "[]"}))),
        span(1, 3, 1, "tool.execution:find_ship", (3, 4), of_agent(tool)),
    ]);
    assert_eq!(steps(&read), [("find_ship", None, Some("berth 7"))]);
    assert_eq!((read.query.as_deref(), read.session_id.as_deref()), (Some("Where is the ship?"), Some("s")));
    assert_eq!(read.final_answer.as_deref(), Some("At berth 7."));
}

#[test]
fn a_result_in_a_message_of_the_user_is_a_result() {
    let model = |id: u64, times: (u64, u64), more: Json| {
        let mut attributes = json!({"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "Where is the ship?"});
        attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        span(1, id, 1, "Anthropic Messages", times, attributes)
    };
    let called = |message: &str| {
        json!({format!("{message}.role"): "assistant", format!("{message}.content"): "I will look.",
            format!("{message}.tool_calls.0.tool_call.id"): "c",
            format!("{message}.tool_calls.0.tool_call.function.name"): "find_ship",
            format!("{message}.tool_calls.0.tool_call.function.arguments"): "{\"name\": \"Anna\"}"})
    };
    let mut second = called("llm.input_messages.1.message");
    let answered = json!({"llm.input_messages.2.message.role": "user", "llm.input_messages.2.message.tool_call_id": "c",
        "llm.input_messages.2.message.content": "berth 7", "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "At berth 7."});
    second.as_object_mut().unwrap().extend(answered.as_object().unwrap().clone());
    let agent = span(1, 1, 0, "agent", (0, 9), json!({"openinference.span.kind": "AGENT"}));
    assert_found(&read_one(&[
        agent,
        model(2, (1, 2), called("llm.output_messages.0.message")),
        model(3, (3, 4), second),
    ]));
}

#[test]
fn haystack_is_read_by_itself_and_by_its_instrumentation() {
    let part = |role: &str, content: Json| json!({"role": role, "content": [content]});
    let asked = part("user", json!({"text": "Where is the ship?"}));
    let call = json!({"tool_name": "find_ship", "arguments": {"name": "Anna"}, "id": "c"});
    let called = json!({"role": "assistant", "content": [{"text": "I will look."}, {"tool_call": call}]});
    let seen = part("tool", json!({"tool_call_result": {"result": "berth 7", "origin": call, "error": false}}));
    let generator = |input: Json, output: Json| {
        json!({"haystack.component.type": "OpenAIChatGenerator",
        "haystack.component.input": {"messages": input}, "haystack.component.output": {"replies": [output]}})
    };
    let run = json!({"haystack.agent.max_steps": 100, "haystack.agent.input": {"messages": [asked]}});
    let done = part("assistant", json!({"text": "At berth 7."}));
    let spans = [
        span(1, 1, 0, "haystack.agent.run", (0, 9), run),
        span(1, 2, 1, "haystack.component.run", (1, 2), generator(json!([asked]), called.clone())),
        span(1, 3, 1, "haystack.component.run", (5, 6), generator(json!([asked, called, seen]), done)),
    ];
    assert_found(&read_one(&spans));
    // The instrumentation leaves the results out of the messages.
    let model = |printed: &str, rest: Json| {
        let mut attributes = json!({"openinference.span.kind": "LLM", "input.value": {"messages": [printed]},
            "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where is the ship?"});
        attributes.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        attributes
    };
    let first = model(
        "ChatMessage(...)",
        json!({"llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "I will look.",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find_ship",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": {"name": "Anna"}}),
    );
    let printed = "ChatMessage(_content=[ToolCallResult(result='berth 7', origin=ToolCall(tool_name='find_ship', id='c'), error=False)])";
    let second = model(
        printed,
        json!({"llm.input_messages.1.message.role": "assistant",
        "llm.input_messages.1.message.content": "I will look.",
        "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "find_ship",
        "llm.input_messages.2.message.role": "tool", "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "At berth 7."}),
    );
    let run = json!({"openinference.span.kind": "AGENT"});
    let spans =
        [span(1, 1, 0, "agent", (0, 9), run), span(1, 2, 1, "a", (1, 2), first), span(1, 3, 1, "b", (5, 6), second)];
    assert_found(&read_one(&spans));
}

#[test]
fn a_tool_of_an_unknown_operation_is_a_tool() {
    let tool = json!({"gen_ai.operation.name": "tool.execute", "gen_ai.tool.name": "find_ship",
        "gen_ai.tool.input": {"name": "Anna"}, "gen_ai.tool.output": "berth 7"});
    let read = read_one(&[agent(), span(1, 2, 1, "tool.execute find_ship", (1, 2), tool)]);
    assert_eq!(steps(&read), [("find_ship", None, Some("berth 7"))]);
}

#[test]
fn calls_that_geminis_sdk_made_by_itself_are_steps() {
    let history = json!([
        {"role": "user", "parts": [{"text": "Where is the ship?"}]},
        {"role": "model", "parts": [{"text": "I will look."}, {"function_call": {"id": "c", "name": "find_ship", "args": {"name": "Anna"}}}]},
        {"role": "user", "parts": [{"function_response": {"id": "c", "name": "find_ship", "response": {"result": "berth 7"}}}]},
    ]);
    let call = json!({"openinference.span.kind": "LLM", "output.value": {"automatic_function_calling_history": history},
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where is the ship?",
        "llm.output_messages.0.message.role": "model", "llm.output_messages.0.message.content": "At berth 7."});
    assert_found(&read_one(&[span(1, 1, 0, "GenerateContent", (1, 9), call)]));
}

#[test]
fn results_are_freed_from_what_surrounds_them() {
    let tool = |id: &str, result: &str| {
        json!({"openinference.span.kind": "TOOL", "tool.name": "find_ship",
        "tool_call.id": id, "input.value": {"name": id}, "output.value": result, "tool.status": "error"})
    };
    let model = json!({"openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where are they?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find_ship",
        "llm.output_messages.0.message.tool_calls.1.tool_call.id": "c2",
        "llm.output_messages.0.message.tool_calls.1.tool_call.function.name": "find_ship"});
    // Both results in one message, under the id of the last call.
    let last = json!({"openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where are they?",
        "llm.input_messages.1.message.role": "tool", "llm.input_messages.1.message.tool_call_id": "c2",
        "llm.input_messages.1.message.content": "berth 7 berth 8",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "There."});
    let printed = "content='berth 7' name='find_ship' tool_call_id='c1'";
    let spans = [
        span(1, 1, 0, "agent", (0, 9), json!({"openinference.span.kind": "AGENT"})),
        span(1, 2, 1, "a", (1, 2), model),
        span(1, 3, 1, "find_ship", (3, 4), tool("c1", printed)),
        span(1, 4, 1, "find_ship", (4, 5), tool("c2", "berth 8")),
        span(1, 5, 1, "b", (6, 7), last),
    ];
    let read = read_one(&spans);
    assert_eq!(steps(&read), [("find_ship", None, Some("berth 7")), ("find_ship", None, Some("berth 8"))]);
    assert!(read.steps.iter().all(|step| step.is_error), "the status of the tool says so");
}

#[test]
fn a_span_below_a_tool_that_names_none_is_part_of_it() {
    let model = chat(1, 2, 1, (1, 2), json!([user()]), json!([reply(Some("I will look."), Some("c"))]));
    let tool = json!({"openinference.span.kind": "TOOL", "tool.name": "find_ship", "output.value": "berth 7"});
    let spans = [
        agent(),
        model,
        span(1, 3, 1, "find_ship", (3, 5), tool),
        span(1, 4, 3, "error", (4, 4), json!({"openinference.span.kind": "TOOL", "output.value": "timeout"})),
        chat(1, 5, 1, (6, 7), json!([user()]), json!([answer()])),
    ];
    assert_found(&read_one(&spans));
}

#[test]
fn a_reply_that_was_not_recorded_is_reported() {
    let first = chat(1, 2, 1, (1, 2), json!([user()]), json!([reply(Some("I will look."), Some("c"))]));
    let input = json!([user(), reply(Some("I will look."), Some("c")), result(Some("c"))]);
    let last = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": input});
    let read = read_one(&[agent(), first, span(1, 3, 1, "chat m", (3, 4), last)]);
    assert_eq!((steps(&read), read.final_answer.as_deref()), (vec![FIND_SHIP], None));
    assert!(read.defects.iter().any(|defect| defect.kind == DefectKind::MissingReply), "{:?}", read.defects);
}

#[test]
fn a_failed_run_quotes_its_error() {
    let read = |status: Json, events: Json| {
        let mut root = agent();
        root["status"] = status;
        root["events"] = events;
        let model = chat(1, 2, 1, (1, 2), json!([user()]), json!([reply(Some("I will look."), Some("c"))]));
        let read = read_one(&[root, model]);
        assert!(read.is_error);
        read.defects.into_iter().find(|defect| defect.kind == DefectKind::RunFailed).unwrap().detail
    };
    let message = [json!({"key": "exception.message", "value": {"stringValue": "no answer in 60 s"}})];
    let exception = json!([{"name": "exception", "timeUnixNano": "1790000000000000000", "attributes": message}]);
    let timeout = json!({"code": 2, "message": "TimeoutError: no answer in 60 s"});
    assert_eq!(read(timeout, exception.clone()), "the run ended in an error: TimeoutError: no answer in 60 s");
    assert_eq!(read(json!({"code": 2}), exception), "the run ended in an error: no answer in 60 s");
    assert_eq!(read(json!({"code": 2}), json!([])), "the run ended in an error");
    let long = read(json!({"code": 2, "message": "x".repeat(5_000)}), json!([]));
    assert!(long.ends_with('…') && long.len() < 250, "{long}");
}
