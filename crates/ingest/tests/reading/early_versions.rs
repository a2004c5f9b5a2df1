//! Early versions of instrumentations, and vendors with habits of their own: where they keep messages, calls and results.

use gradus_core::trajectory::DefectKind;
use serde_json::{Value as Json, json};

use crate::small_traces::{
    FIND_SHIP, agent, answer, assert_found, chat, read, read_in_scope, read_one, reply, result, span, steps, user,
};

/// Attributes of two objects in one.
fn joined(mut first: Json, second: &Json) -> Json {
    first.as_object_mut().unwrap().extend(second.as_object().unwrap().clone());
    first
}

#[test]
fn openlit_wrote_the_request_as_one_text() {
    let model = |prompt: &str, more: Json| {
        let fixed = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.prompt": prompt});
        joined(fixed, &more)
    };
    let first = json!({"gen_ai.completion": "I will look.", "gen_ai.tool.name": "find_ship, find_ship",
        "gen_ai.tool.call.id": "c1, c2", "gen_ai.tool.args": "{\"name\": \"Anna\"}, {'name': 'Ida'}"});
    let asked = "system: You know the harbour.\nuser: Where are the ships?";
    let seen = format!("{asked}\nassistant: I will look.\ntool: berth 7,\nat noon\ntool: berth 8");
    let spans = [
        span(1, 1, 0, "chat m", (1, 2), model(asked, first)),
        span(2, 2, 0, "chat m", (3, 4), model(&seen, json!({"gen_ai.completion": "Both are there."}))),
    ];
    let found = read_in_scope("openlit.otel.tracing", &spans);
    assert_eq!(found.len(), 1, "{found:#?}");
    let said = Some("I will look.");
    assert_eq!(
        steps(&found[0]),
        [("find_ship", said, Some("berth 7,\nat noon")), ("find_ship", said, Some("berth 8"))]
    );
    assert_eq!(found[0].steps[1].arguments, Some(json!({"name": "Ida"})));
    assert_eq!(found[0].query.as_deref(), Some("Where are the ships?"));
    assert_eq!(found[0].final_answer.as_deref(), Some("Both are there."));
    // What others write into this attribute is not split.
    assert_eq!(read(&spans[..1])[0].query.as_deref(), Some(asked));
}

#[test]
fn openlit_printed_the_items_of_a_request() {
    let items = "user: [{'role': 'user', 'content': 'Where is the ship?'}, {'type': 'message', 'role': 'assistant', \
        'content': [{'type': 'output_text', 'text': 'I will look.'}]}, {'type': 'function_call', 'call_id': 'c', \
        'name': 'find_ship', 'arguments': '{\"name\": \"Anna\"}'}, {'type': 'function_call_output', 'call_id': 'c', \
        'output': 'berth 7'}]";
    let model = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.completion": "At berth 7.",
        "gen_ai.prompt": format!("user: Where is the ship?\nassistant: \n{items}")});
    let found = read_in_scope("openlit", &[span(1, 1, 0, "chat m", (1, 2), model)]);
    assert_found(&found[0]);
}

#[test]
fn azure_writes_each_message_into_one_attribute_of_an_event() {
    let event = |name: &str, content: Json| {
        json!({"name": name, "attributes": [{"key": "gen_ai.event.content",
            "value": {"stringValue": content.to_string()}}]})
    };
    let call = json!([{"id": "c", "type": "function",
        "function": {"name": "find_ship", "arguments": "{\"name\": \"Anna\"}"}}]);
    let asked = event("gen_ai.user.message", json!({"role": "user", "content": "Where is the ship?"}));
    let first = event("gen_ai.choice", json!({"message": {"content": "I will look.", "tool_calls": call}}));
    let repeated =
        event("gen_ai.assistant.message", json!({"role": "assistant", "content": "I will look.", "tool_calls": call}));
    let seen = event("gen_ai.tool.message", json!({"role": "tool", "tool_call_id": "c", "content": "berth 7"}));
    let last = event("gen_ai.choice", json!({"message": {"content": "At berth 7."}}));
    let model = |trace: u64, times: (u64, u64), events: Json| {
        let attributes = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"});
        joined(span(trace, trace, 0, "chat m", times, attributes), &json!({"events": events}))
    };
    assert_found(&read_one(&[
        model(1, (1, 2), json!([asked, first])),
        model(2, (3, 4), json!([asked, repeated, seen, last])),
    ]));
}

#[test]
fn trace_ai_writes_openinference_below_another_prefix() {
    let call = |message: &str| {
        json!({format!("{message}.role"): "assistant", format!("{message}.content"): "I will look.",
            format!("{message}.tool_calls.0.tool_call.id"): "c",
            format!("{message}.tool_calls.0.tool_call.function.name"): "find_ship",
            format!("{message}.tool_calls.0.tool_call.function.arguments"): "{\"name\": \"Anna\"}"})
    };
    let fixed = json!({"gen_ai.span.kind": "LLM", "input.value": "You know the harbour.",
        "gen_ai.input.messages.0.message.role": "user",
        "gen_ai.input.messages.0.message.content": "Where is the ship?"});
    let first = joined(fixed.clone(), &call("gen_ai.output.messages.0.message"));
    let rest = json!({"gen_ai.input.messages.2.message.role": "tool",
        "gen_ai.input.messages.2.message.tool_call_id": "c", "gen_ai.input.messages.2.message.content": "berth 7",
        "gen_ai.output.messages.0.message.role": "assistant",
        "gen_ai.output.messages.0.message.content": "At berth 7."});
    let second = joined(joined(fixed, &call("gen_ai.input.messages.1.message")), &rest);
    assert_found(&read_one(&[
        span(1, 1, 0, "ChatCompletion", (1, 2), first),
        span(2, 2, 0, "ChatCompletion", (3, 4), second),
    ]));
}

#[test]
fn strands_named_no_operations() {
    let asked = json!({"role": "user", "content": [{"text": "Where is the ship?"}]});
    let called = json!([{"text": "I will look."},
        {"toolUse": {"toolUseId": "c", "name": "find_ship", "input": {"name": "Anna"}}}]);
    let seen = json!({"role": "user", "content": [{"toolResult": {"toolUseId": "c", "status": "success",
        "content": [{"text": "berth 7"}]}}]});
    let model = |input: Json, output: Json| {
        json!({"gen_ai.system": "strands-agents", "gen_ai.request.model": "m", "gen_ai.prompt": input,
            "gen_ai.completion": output})
    };
    let agent = json!({"gen_ai.system": "strands-agents", "gen_ai.request.model": "m", "gen_ai.agent.name": "a",
        "gen_ai.agent.tools": ["find_ship"], "gen_ai.prompt": "Where is the ship?",
        "gen_ai.completion": "At berth 7.\n"});
    let tool = json!({"tool.name": "find_ship", "tool.id": "c", "tool.parameters": {"name": "Anna"},
        "tool.result": [{"text": "berth 7"}], "tool.status": "success"});
    let repeated = json!([asked, {"role": "assistant", "content": called}, seen]);
    let read = read_one(&[
        span(1, 1, 0, "Strands Agent", (0, 9), agent),
        span(1, 2, 1, "Model invoke", (1, 2), model(json!([asked]), called)),
        span(1, 3, 1, "Tool: find_ship", (3, 4), tool),
        span(1, 4, 1, "Model invoke", (5, 6), model(repeated, json!([{"text": "At berth 7."}]))),
    ]);
    assert_found(&read);
    assert_eq!(read.steps[0].span_ids.len(), 2, "the tool's span belongs to the step");
}

#[test]
fn pydantic_ai_may_record_messages_on_the_run_only() {
    let call = json!([{"id": "c", "type": "function",
        "function": {"name": "find_ship", "arguments": {"name": "Anna"}}}]);
    let earlier = json!([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Ahoy."}]);
    let all = json!([{"role": "user", "content": "Where is the ship?", "event.name": "gen_ai.user.message"},
        {"role": "assistant", "content": "I will look.", "tool_calls": call},
        {"role": "tool", "id": "c", "name": "find_ship", "content": "berth 7"},
        {"role": "assistant", "content": "At berth 7."}]);
    let all: Vec<Json> = [earlier, all].iter().flat_map(|list| list.as_array().unwrap().clone()).collect();
    let run = json!({"agent_name": "a", "all_messages_events": all, "final_result": "At berth 7."});
    let model = json!({"gen_ai.operation.name": "chat", "gen_ai.system": "x", "gen_ai.request.model": "m"});
    let tool = json!({"gen_ai.tool.name": "find_ship", "gen_ai.tool.call.id": "c", "tool_arguments": {"name": "Anna"}});
    let spans = [
        span(1, 1, 0, "agent run", (0, 9), run),
        span(1, 2, 1, "chat m", (1, 2), model.clone()),
        span(1, 3, 1, "running tool", (3, 4), tool),
        span(1, 4, 1, "chat m", (5, 6), model),
    ];
    let read = read_one(&spans);
    assert_found(&read);
    assert_eq!(read.query.as_deref(), Some("Where is the ship?"));
}

#[test]
fn a_result_that_is_a_list_of_objects_is_kept() {
    let message = |role: &str, content: Json| json!({"role": role, "content": content});
    let called = json!({"role": "assistant", "content": "I will look.", "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "find_ship", "arguments": "{}"}}]});
    let seen = joined(message("tool", json!([{"berth": 7}, {"berth": 8}])), &json!({"tool_call_id": "c"}));
    let input = json!([message("user", json!("Where is the ship?")), called, seen]);
    let read = read_one(&[chat(1, 1, 0, (1, 2), input, json!([message("assistant", json!("At berth 7."))]))]);
    assert_eq!(read.steps[0].observation.as_deref(), Some(r#"[{"berth":7},{"berth":8}]"#));

    // Agent Framework shows each item as a text; the tool's span has what it returned.
    let result = json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": "c",
        "response": "[\"{\\\"berth\\\": 7}\"]"}]});
    let tool = json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find_ship",
        "gen_ai.tool.call.id": "c", "gen_ai.tool.call.result": "[{\"berth\": 7}]"});
    let asked = reply(Some("I will look."), Some("c"));
    let read = read_one(&[
        agent(),
        chat(1, 2, 1, (1, 2), json!([user()]), json!([asked])),
        span(1, 3, 1, "execute_tool find_ship", (3, 4), tool),
        chat(1, 4, 1, (5, 6), json!([user(), asked, result]), json!([answer()])),
    ]);
    assert_eq!(read.steps[0].observation.as_deref(), Some("[{\"berth\": 7}]"));
}

#[test]
fn a_reply_that_asks_for_tools_is_no_answer() {
    let attributes = json!({"llm.request.type": "chat", "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "I will look.", "gen_ai.completion.0.finish_reason": "tool_calls"});
    let read = read_one(&[span(1, 1, 0, "mistralai.chat", (1, 2), attributes)]);
    assert_eq!(read.final_answer, None);
    assert!(read.defects.iter().any(|defect| defect.kind == DefectKind::MissingToolName), "{:?}", read.defects);
}

#[test]
fn a_reply_may_be_a_list_of_one_response() {
    let response = json!([{"id": "r", "object": "response", "tools": [], "output": [{"type": "message",
        "role": "assistant", "content": [{"type": "output_text", "text": "At berth 7."}]}]}]);
    let model = json!({"openinference.span.kind": "LLM", "output.value": response,
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where is the ship?"});
    assert_eq!(read_one(&[span(1, 1, 0, "generation", (1, 2), model)]).final_answer.as_deref(), Some("At berth 7."));
}

#[test]
fn dspy_keeps_results_in_numbered_fields() {
    let field = |name: &str, text: &str| format!("[[ ## {name} ## ]]\n{text}\n\n");
    let model = |id: u64, times: (u64, u64), run: &str, reply: String| {
        let asked = format!(
            "{}{}{run}Respond with the corresponding output fields",
            field("question", "Where is the ship?"),
            "[[ ## trajectory ## ]]\n"
        );
        let attributes = json!({"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": asked, "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": reply});
        span(1, id, 1, "LM.__call__", times, attributes)
    };
    let next =
        field("next_thought", "I will look.") + &field("next_tool_name", "find_ship") + &field("next_tool_args", "{}");
    let run = field("thought_0", "I will look.") + &field("tool_name_0", "find_ship") + &field("tool_args_0", "{}");
    let answer = field("reasoning", "It is there.") + &field("answer", "At berth 7.") + "[[ ## completed ## ]]";
    for (written, is_read) in [("berth 7", true), ("«berth 7»", true), ("[1] «berth 7»\n[2] «berth 8»", false)] {
        let seen = format!("{run}{}", field("observation_0", written));
        let read = read_one(&[
            span(1, 1, 0, "ReAct.forward", (0, 9), json!({"openinference.span.kind": "CHAIN"})),
            model(2, (1, 2), "", next.clone()),
            model(3, (3, 4), &seen, answer.clone()),
        ]);
        let observation = if is_read { "berth 7" } else { written };
        assert_eq!(steps(&read), [("find_ship", Some("I will look."), Some(observation))], "{read:#?}");
    }
}

#[test]
fn a_later_turn_of_langgraph_is_one_run() {
    let message = |place: usize, role: &str, text: &str| {
        let key = format!("llm.input_messages.{place}.message");
        json!({format!("{key}.role"): role, format!("{key}.content"): text})
    };
    let node = |kind: &str, messages: &[(&str, &str)]| {
        let fixed = json!({"openinference.span.kind": kind, "session.id": "s"});
        messages.iter().enumerate().fold(fixed, |all, (place, (role, text))| joined(all, &message(place, role, text)))
    };
    let history = [("user", "Who is the captain?"), ("assistant", "Captain Ida."), ("user", "Where is the ship?")];
    let call = json!({"llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "I will look.",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find_ship"});
    let tool = json!({"openinference.span.kind": "TOOL", "tool.name": "find_ship",
        "output.value": "{\"output\": \"content='berth 7' name='find_ship' tool_call_id='c'\"}"});
    let answer = json!({"llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "At berth 7."});
    // The node shows the first request of the conversation as its own.
    let spans = [
        span(1, 1, 0, "graph", (0, 9), node("AGENT", &[("user", "Where is the ship?")])),
        span(1, 2, 1, "agent", (1, 2), node("AGENT", &history[..1])),
        span(1, 3, 2, "ChatOpenAI", (1, 2), joined(node("LLM", &history), &call)),
        span(1, 4, 1, "find_ship", (3, 4), tool),
        span(1, 5, 1, "agent", (5, 6), node("AGENT", &history[..1])),
        span(1, 6, 5, "ChatOpenAI", (5, 6), joined(node("LLM", &history), &answer)),
    ];
    let read = read_one(&spans);
    assert_eq!(steps(&read), [FIND_SHIP]);
    assert_eq!(read.query.as_deref(), Some("Where is the ship?"));
}

#[test]
fn smolagents_puts_the_id_in_front_of_a_result() {
    let message = |place: usize, role: &str, text: &str| {
        let key = format!("llm.input_messages.{place}.message");
        json!({format!("{key}.role"): role, format!("{key}.content"): text})
    };
    let call = |place: usize, id: &str| {
        let key = format!("llm.output_messages.0.message.tool_calls.{place}.tool_call");
        json!({format!("{key}.id"): id, format!("{key}.function.name"): format!("tool_{id}")})
    };
    let first = joined(message(0, "user", "Where is the ship?"), &joined(call(0, "a"), &call(1, "b")));
    let fixed = json!({"openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant"});
    // The first of two calls was not run.
    let seen = message(1, "tool-response", "Call id: b\nObservation:\nberth 7");
    let last = joined(message(0, "user", "Where is the ship?"), &seen);
    let last = joined(last, &json!({"llm.output_messages.0.message.content": "At berth 7."}));
    let read = read_one(&[
        span(1, 1, 0, "agent", (0, 9), json!({"openinference.span.kind": "AGENT"})),
        span(1, 2, 1, "model", (1, 2), joined(fixed.clone(), &first)),
        span(1, 3, 1, "model", (3, 4), joined(fixed, &last)),
    ]);
    assert_eq!(steps(&read), [("tool_a", None, None), ("tool_b", None, Some("berth 7"))]);
}

#[test]
fn a_failed_part_of_a_run_whose_root_is_missing_is_no_failed_run() {
    let failed = |mut span: Json| {
        span["status"] = json!({"code": 2, "message": "no such ship"});
        span
    };
    let spans = |parent: u64| {
        let wrapper = span(1, 2, parent, "wrapper", (1, 3), json!({"traceloop.span.kind": "task"}));
        let said = json!([answer()]);
        [failed(wrapper), chat(1, 3, parent, (4, 5), json!([user()]), said)]
    };
    assert!(!read(&spans(9))[0].is_error);
    assert!(read(&spans(0)).iter().any(|run| run.is_error), "a root is the run");
}

#[test]
fn google_genai_under_logfire_keeps_the_role_inside() {
    let part = |key: &str, value: Json| joined(json!({"text": null, "function_call": null}), &json!({key: value}));
    let event = |role: &str, part: Json| json!({"role": "user", "content": {"role": role, "parts": [part]}});
    let asked = event("user", part("text", json!("Where is the ship?")));
    let call = json!({"id": "c", "name": "find_ship", "args": {"name": "Anna"}});
    let said =
        json!({"index": 0, "message": {"role": "assistant", "content": ["I will look.", {"function_call": call}]}});
    let called = json!({"role": "user", "content": {"role": "model",
        "parts": [part("text", json!("I will look.")), part("function_call", call.clone())]}});
    let seen = event(
        "user",
        part("function_response", json!({"id": "c", "name": "find_ship", "response": {"result": "berth 7"}})),
    );
    let answered = json!({"index": 0, "message": {"role": "assistant", "content": ["At berth 7."]}});
    let model = |trace: u64, times: (u64, u64), events: Json| {
        let attributes = json!({"gen_ai.system": "gemini", "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
            "events": events, "logfire.json_schema": "{}"});
        span(trace, trace, 0, "generate_content m", times, attributes)
    };
    assert_found(&read_one(&[
        model(1, (1, 2), json!([asked, said])),
        model(2, (3, 4), json!([asked, called, seen, answered])),
    ]));
}

#[test]
fn a_tool_may_be_a_task_of_openllmetry() {
    let model = |id: u64, times: (u64, u64), said: &str| {
        let said = json!({"role": "assistant", "parts": [{"type": "text", "content": said}]});
        chat(1, id, 1, times, json!([user()]), json!([said]))
    };
    let output = json!({"tool_name": "find_ship", "tool_kwargs": {"name": "Anna"}, "tool_id": "c",
        "tool_output": {"blocks": [{"block_type": "text", "text": "berth 7"}], "tool_name": "find_ship",
            "raw_input": {}, "is_error": true}});
    let tool = json!({"traceloop.span.kind": "task", "tool.name": "find_ship", "tool.arguments": {"name": "Anna"},
        "traceloop.entity.output": output});
    let read = read_one(&[
        span(1, 1, 0, "FunctionAgent.workflow", (0, 9), json!({"traceloop.span.kind": "workflow"})),
        model(2, (1, 2), "I will look."),
        span(1, 3, 1, "BaseWorkflowAgent.task", (3, 4), tool),
        model(4, (5, 6), "At berth 7."),
    ]);
    assert_found(&read);
    assert!(read.steps[0].is_error);
    assert_eq!(read.steps[0].tool_call_id.as_deref(), Some("c"));
}

#[test]
fn words_of_a_streamed_reply_stand_before_its_calls_in_the_history() {
    let words = json!({"role": "assistant", "parts": [{"type": "text", "content": "I will look."}]});
    let result = result(Some("c"));
    let input = json!([user(), words, reply(None, Some("c")), result]);
    assert_found(&read_one(&[
        agent(),
        chat(1, 2, 1, (1, 2), json!([user()]), json!([reply(None, Some("c"))])),
        chat(1, 3, 1, (3, 4), input, json!([answer()])),
    ]));
}

#[test]
fn smolagents_may_record_the_request_as_arguments() {
    let message = |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
    let model = |id: u64, times: (u64, u64), input: Json, more: Json| {
        let fixed = json!({"openinference.span.kind": "LLM", "input.value": {"args": [input]},
            "llm.output_messages.0.message.role": "assistant"});
        span(1, id, 1, "OpenAIServerModel.__call__", times, joined(fixed, &more))
    };
    let call = json!({"llm.output_messages.0.message.content": "I will look.",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find_ship"});
    let asked = message("user", "Where is the ship?");
    let seen =
        json!([asked, message("tool-call", "Calling tools: []"), message("tool-response", "Observation:\nberth 7")]);
    let tool = json!({"openinference.span.kind": "TOOL", "tool.name": "find_ship", "output.value": "None"});
    let read = read_one(&[
        span(1, 1, 0, "agent", (0, 9), json!({"openinference.span.kind": "AGENT"})),
        model(2, (1, 2), json!([asked]), call),
        span(1, 3, 1, "find_ship", (3, 4), tool),
        model(4, (5, 6), seen, json!({"llm.output_messages.0.message.content": "At berth 7."})),
    ]);
    assert_found(&read);
}

#[test]
fn calls_of_a_streamed_reply_of_gemini_are_in_its_response() {
    let response = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "I will look.",
        "function_call": {"name": "find_ship", "args": {"name": "Anna"}}}]}}]});
    let model = json!({"openinference.span.kind": "LLM", "output.value": response,
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where is the ship?",
        "llm.output_messages.0.message.role": "model", "llm.output_messages.0.message.content": "I will look."});
    let read = read_one(&[span(1, 1, 0, "GenerateContentStream", (1, 2), model)]);
    assert_eq!(steps(&read), [("find_ship", Some("I will look."), None)]);
    assert_eq!(read.final_answer, None);
}
