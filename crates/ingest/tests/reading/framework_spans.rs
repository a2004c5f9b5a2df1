//! Spans that frameworks write by themselves, with messages in events or printed by Python.

#![allow(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use serde_json::{Value as Json, json};

use crate::small_traces::{FIND_SHIP, assert_found, read_in_scope, read_one, span, steps};

/// A span with events: name and attributes.
fn with_events(mut span: Json, events: &[(&str, Json)]) -> Json {
    let value = |value: &Json| match value {
        Json::String(text) => json!({"stringValue": text}),
        Json::Number(number) => json!({"intValue": number.to_string()}),
        other => json!({"stringValue": other.to_string()}),
    };
    let events = events.iter().map(|(name, attributes)| {
        let attributes = attributes.as_object().unwrap().iter();
        let attributes: Vec<Json> = attributes.map(|(key, json)| json!({"key": key, "value": value(json)})).collect();
        json!({"name": name, "timeUnixNano": span["startTimeUnixNano"], "attributes": attributes})
    });
    let events: Vec<Json> = events.collect();
    span["events"] = json!(events);
    span
}

const LLAMAINDEX: &str = "llamaindex.opentelemetry.tracer";

/// The spans of an agent in LlamaIndex. The summary of the tool's call is as it is given here.
fn llamaindex_spans(summary: &str, result: &str) -> Vec<Json> {
    let message = |role: &str, text: &str| json!({"role": role, "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": text}]});
    let blocks = json!([{"block_type": "text", "text": "I will look."}, {"block_type": "tool_call", "tool_call_id": "c",
        "tool_name": "find_ship", "tool_kwargs": "{\"name\": \"Anna\"}"}]);
    let calls = json!([{"id": "c", "type": "function", "function": {"name": "find_ship", "arguments": "{\"name\": \"Anna\"}"}}]);
    let asked = message("user", "Where is the ship?");
    let called = json!({"role": "assistant", "additional_kwargs": {"tool_calls": calls}, "blocks": blocks});
    let mut seen = message("tool", "berth 7");
    seen["additional_kwargs"] = json!({"tool_call_id": "c"});
    let answer = message("assistant", "At berth 7.");
    let tools = json!([{"type": "function", "function": {"name": "find_ship", "parameters": {"type": "object"}}}]);
    let model = |id: u64, times: (u64, u64), input: Json, reply: Json, more: Json| {
        let start = json!({"messages": input, "additional_kwargs.tools": tools, "model_dict.model_name": "m"});
        let mut end = json!({"messages": input, "response.message.role": "assistant", "response.message.blocks": reply,
            "response.raw.usage.prompt_tokens": 5, "response.delta": "null"});
        end.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let model = span(1, id, id + 1, "OpenAI.achat", times, json!({"llamaindex.run_id": "r"}));
        with_events(model, &[("LLMChatStartEvent", start), ("LLMChatEndEvent", end)])
    };
    let wrapper = |id: u64, times: (u64, u64)| span(1, id, 1, "OpenAI.achat", times, json!({"llamaindex.run_id": "r"}));
    let step = json!({"llamaindex.step.input_event": "ToolCall", "llamaindex.step.input_summary": summary});
    let run = span(1, 7, 1, "BaseWorkflowAgent.call_tool", (3, 4), step.clone());
    vec![
        with_events(
            span(1, 1, 0, "FunctionAgent.run", (0, 9), json!({})),
            &[("workflow.output", json!({"output": "StopEvent(resu..."}))],
        ),
        model(
            2,
            (1, 2),
            json!([asked]),
            blocks.clone(),
            json!({"response.message.additional_kwargs.tool_calls": calls}),
        ),
        wrapper(3, (1, 2)),
        with_events(run, &[("step.output", json!({"output": result}))]),
        span(1, 8, 7, "FunctionTool.acall", (3, 4), step),
        model(4, (5, 6), json!([asked, called, seen]), answer["blocks"].clone(), json!({})),
        wrapper(5, (5, 6)),
    ]
}

#[test]
fn llamaindex_is_read_by_its_events() {
    let call = "ToolCall(tool_name='find_ship', tool_kwargs={'name': 'Anna'}, tool_id='c')";
    let result = "ToolCallResult(tool_name='find_ship', tool_kwargs={'name': 'Anna'}, tool_id='c', tool_output=ToolOutput(\
        blocks=[TextBlock(block_type='text', text='berth 7')], tool_name='find_sh...";
    let mut spans = llamaindex_spans(call, result);
    let read = read_in_scope(LLAMAINDEX, &spans);
    assert_eq!(read.len(), 1, "{read:#?}");
    assert_found(&read[0]);
    assert_eq!(read[0].steps[0].arguments, Some(json!({"name": "Anna"})));
    assert_eq!(read[0].steps[0].span_ids.len(), 3, "reply, step of the workflow and method of the tool");
    assert_eq!((read[0].query.as_deref(), read[0].tools.len()), (Some("Where is the ship?"), 1));
    // Without the second call of the model, the event of the step has the result; a failure is on the tool's method.
    spans.truncate(5);
    spans[4]["status"] = json!({"code": 2, "message": "no such ship"});
    let read = read_in_scope(LLAMAINDEX, &spans);
    assert_eq!(steps(&read[0]), [FIND_SHIP]);
    assert!(read[0].steps[0].is_error);
}

#[test]
fn summaries_of_llamaindex_that_are_cut_off_are_not_read() {
    let whole = "ToolCallResult(tool_name='find_ship', tool_kwargs={'name': 'Anna'}, tool_id='c', tool_output=ToolOutput(\
        blocks=[TextBlock(block_type='text', text='berth 7')]";
    for end in 0..whole.len() {
        let call = format!("{}...", &whole.replacen("Result", "", 1)[..end.min(60)]);
        let mut spans = llamaindex_spans(&call, &format!("{}...", &whole[..end]));
        assert_found(&read_in_scope(LLAMAINDEX, &spans)[0]);
        spans.truncate(5);
        let read = read_in_scope(LLAMAINDEX, &spans);
        assert_eq!(steps(&read[0]), [("find_ship", Some("I will look."), None)], "{end}");
    }
}

#[test]
fn an_agent_of_haystack_in_a_pipeline_is_read_by_its_printed_messages() {
    let message = |role: &str, content: &str| {
        let name = role.to_uppercase();
        json!(format!(
            "ChatMessage(_role=<ChatRole.{name}: '{role}'>, _content=[{content}], _name=None, _meta={{'n': X()}})"
        ))
    };
    let call = "ToolCall(tool_name='find_ship', arguments={'name': 'Anna'}, id='c', extra=None)";
    let asked = message("user", "TextContent(text='Where is the ship?')");
    let called = message("assistant", &format!("TextContent(text='I will look.'), {call}"));
    let seen = message("tool", &format!("ToolCallResult(result='berth 7', origin={call}, error=False)"));
    let done = message("assistant", "TextContent(text='At berth 7.')");
    // As Python writes JSON: with spaces behind colons and commas.
    let output = |messages: &[&Json]| {
        let list: Vec<String> = messages.iter().map(ToString::to_string).collect();
        format!("{{\"messages\": [{}], \"last_message\": {}}}", list.join(", "), messages.last().unwrap())
    };
    let chain = |id: u64, parent: u64, name: &str, input: Json, output: String| {
        let attributes = json!({"openinference.span.kind": "CHAIN", "input.value": input, "output.value": output});
        span(1, id, parent, name, (id, 9), attributes)
    };
    let run = |messages: &[&Json]| {
        let whole = output(messages);
        read_one(&[
            chain(
                1,
                0,
                "Pipeline.run",
                json!({"data": {"agent": {"messages": [asked]}}}),
                format!("{{\"agent\": {whole}}}"),
            ),
            chain(2, 1, "Agent.run", json!({"messages": [asked]}), whole),
        ])
    };
    let read = run(&[&asked, &called, &seen, &done]);
    assert_found(&read);
    assert_eq!(read.query.as_deref(), Some("Where is the ship?"));
    assert_eq!(read.steps[0].arguments, Some(json!({"name": "Anna"})));
    // A tool may end the run.
    assert_eq!(steps(&run(&[&asked, &called, &seen])), [FIND_SHIP]);
}

#[test]
fn chat_models_of_langchain_are_read_as_langtrace_records_them() {
    let asked = json!({"content": "Where is the ship?", "type": "human"});
    let called = json!({"content": "I will look.", "type": "ai",
        "tool_calls": [{"name": "find_ship", "args": {"name": "Anna"}, "id": "c", "type": "tool_call"}]});
    let seen =
        json!({"content": "berth 7", "type": "tool", "name": "find_ship", "tool_call_id": "c", "status": "success"});
    let done = json!({"content": "At berth 7.", "type": "ai"});
    let config = json!({"configurable": {"thread_id": "s"}});
    // One trace for each call, and two more spans for each: the method within, and the client of the provider.
    let call = |trace: u64, start: u64, messages: Json, reply: &Json| {
        let tools = json!({"tools": [{"type": "function", "function": {"name": "find_ship", "parameters": {}}}]});
        let attributes = |inputs: Json, outputs: Json| {
            json!({"langchain.task.name": "chatmodel", "gen_ai.request.model": "m", "langchain.inputs": inputs,
                "langchain.outputs": outputs, "langchain.metadata": tools})
        };
        let generated = json!({"generations": [[{"text": reply["content"], "message": reply}]]});
        let client = json!({"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "m"});
        let times = (start, start + 1);
        vec![
            span(trace, 1, 0, "BaseChatModel.invoke", times, attributes(json!([messages, config]), reply.clone())),
            span(trace, 2, 1, "BaseChatModel.generate", times, attributes(json!([[messages]]), generated)),
            span(trace, 3, 2, "openai.chat.completions.create", times, client),
            span(trace, 4, 2, "BaseChatModel.asdict", times, attributes(json!([]), json!({"_type": "openai-chat"}))),
        ]
    };
    let spans = [call(1, 1, json!([asked]), &called), call(2, 3, json!([asked, called, seen]), &done)].concat();
    let read = read_one(&spans);
    assert_found(&read);
    assert_eq!((read.session_id.as_deref(), read.tools.len()), (Some("s"), 1));
}

#[test]
fn thoughts_are_in_the_messages_that_voltagent_stores() {
    let of_agent = |more: Json| {
        let mut attributes = json!({"entity.type": "agent", "conversation.id": "s"});
        attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        attributes
    };
    let tool = |id: u64, call: &str, times: (u64, u64)| {
        let attributes = json!({"span.type": "tool", "tool.name": "find_ship", "tool.call.id": call,
            "input": {"name": "Anna"}, "output": "berth 7"});
        span(1, id, 1, "tool.execution:find_ship", times, of_agent(attributes))
    };
    let called = |call: &str| json!({"type": "tool-find_ship", "toolCallId": call, "output": {"type": "text", "value": "berth 7"}});
    let said = |text: &str| json!({"type": "text", "text": text});
    let memory = |id: u64, role: &str, parts: Json| {
        let message = json!({"conversationId": "s", "message": {"role": role, "parts": parts}});
        let attributes = json!({"span.type": "memory", "memory.operation": "write", "input": message});
        span(1, id, 1, "memory.write", (id, id), of_agent(attributes))
    };
    let history =
        json!([{"role": "user", "parts": [said("Hello")]}, {"role": "assistant", "parts": [said("Good day.")]}]);
    let earlier =
        json!({"span.type": "memory", "memory.operation": "read", "input": {"query": "q"}, "output": history});
    // Two calls side by side, then one of a reply without words, then one more with words.
    let first = json!([said("I will look."), called("c1"), called("c2")]);
    let all = json!([said("I will look."), called("c1"), called("c2"), called("c3"), {"type": "step-start"},
        said("Once more."), called("c4"), {"type": "step-start"}, said("At berth 7.")]);
    let root = json!({"input": "Where is the ship?", "output": "At berth 7."});
    let read = read_one(&[
        span(1, 1, 0, "agent", (0, 99), of_agent(root)),
        span(1, 2, 1, "memory.read", (1, 2), of_agent(earlier)),
        memory(3, "user", json!([said("I will look."), called("c3")])),
        tool(11, "c1", (11, 13)),
        tool(12, "c2", (12, 14)),
        memory(15, "assistant", first),
        tool(16, "c3", (16, 17)),
        tool(18, "c4", (18, 19)),
        memory(20, "assistant", all),
    ]);
    let step = |thought| ("find_ship", thought, Some("berth 7"));
    assert_eq!(steps(&read), [FIND_SHIP, FIND_SHIP, step(None), step(Some("Once more."))]);
    assert_eq!(read.query.as_deref(), Some("Where is the ship?"));
    assert_eq!(read.final_answer.as_deref(), Some("At berth 7."));
}

#[test]
fn a_result_with_the_name_of_its_tool_as_role_is_a_result() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "find_ship", "arguments": "{\"name\": \"Anna\"}"}});
    let asked = json!({"role": "user", "content": "Where is the ship?"});
    let called = json!({"role": "assistant", "content": "I will look.", "tool_calls": [call("c1"), call("c2")]});
    let seen = |text: &str| json!({"role": "find_ship", "content": text, "additional_kwargs": {}});
    let observed = |id: u64, name: &str, kind: &str, times: (u64, u64), more: Json| {
        let mut attributes = json!({"langfuse.observation.type": kind});
        attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        span(1, id, u64::from(id > 1), name, times, attributes)
    };
    let io =
        |input: Json, output: Json| json!({"langfuse.observation.input": input, "langfuse.observation.output": output});
    let failed = json!({"langfuse.observation.input": {"name": "Anna"}, "langfuse.observation.level": "ERROR",
        "langfuse.observation.status_message": "NoShip: none"});
    let history = json!({"messages": [asked, called, seen("Error: NoShip: none"), seen("berth 7")]});
    let mut spans = vec![
        observed(1, "LangGraph", "span", (0, 9), io(json!({"messages": [asked]}), json!({}))),
        observed(2, "ChatOpenAI", "generation", (1, 2), io(json!({"messages": [asked]}), called.clone())),
        observed(3, "find_ship", "tool", (3, 4), failed),
        observed(4, "find_ship", "tool", (4, 5), io(json!({"name": "Anna"}), json!("berth 7"))),
        observed(
            5,
            "ChatOpenAI",
            "generation",
            (6, 7),
            io(history, json!({"role": "assistant", "content": "At berth 7."})),
        ),
    ];
    let read = read_one(&spans);
    let step = |result| ("find_ship", Some("I will look."), Some(result));
    assert_eq!(steps(&read), [step("Error: NoShip: none"), step("berth 7")]);
    assert_eq!(read.final_answer.as_deref(), Some("At berth 7."));
    assert_eq!(read.query.as_deref(), Some("Where is the ship?"));
    assert_eq!(read.steps.iter().map(|step| step.is_error).collect::<Vec<_>>(), [true, false]);
    // Without a later request, the status of the span is what is known of the failure.
    spans.truncate(4);
    assert_eq!(steps(&read_one(&spans)), [step("NoShip: none"), step("berth 7")]);
}

#[test]
fn the_stack_of_an_error_is_no_part_of_the_observation() {
    let model = |id: u64, times: (u64, u64), reply: Json| {
        let mut attributes = json!({"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "Where is the ship?", "llm.output_messages.0.message.role": "assistant"});
        attributes.as_object_mut().unwrap().extend(reply.as_object().unwrap().clone());
        span(1, id, 1, "ChatOpenAI", times, attributes)
    };
    let called = json!({"llm.output_messages.0.message.content": "I will look.",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find_ship"});
    let done = json!({"llm.output_messages.0.message.content": "At berth 7."});
    let read = |message: &str| {
        let mut tool =
            span(1, 3, 1, "find_ship", (3, 4), json!({"openinference.span.kind": "TOOL", "tool.name": "find_ship"}));
        tool["status"] = json!({"code": 2, "message": message});
        let root = span(1, 1, 0, "agent", (0, 9), json!({"openinference.span.kind": "AGENT"}));
        let read = read_one(&[root, model(2, (1, 2), called.clone()), tool, model(4, (5, 6), done.clone())]);
        read.steps[0].observation.clone().unwrap()
    };
    let stack = "\n    at find (file:///ship.mjs:1:2)\n    at async call (file:///ship.mjs:3:4)";
    assert_eq!(read(&format!("none\n\nhere\n\nNoShip: none\n\nhere{stack}")), "none\n\nhere");
    assert_eq!(read(&format!("Error: none{stack}")), "Error: none");
    assert_eq!(read("ships:\n    at berth 7, full"), "ships:\n    at berth 7, full");
}

#[test]
fn calls_beside_the_parts_are_read_as_litellm_records_them() {
    let text = |role: &str, text: &str| json!({"role": role, "parts": [{"type": "text", "content": text}]});
    let arguments = "{\"name\": \"Anna\"}";
    let call =
        |id: &str| json!({"id": id, "type": "function", "function": {"name": "find_ship", "arguments": arguments}});
    let mut called = text("assistant", "I will look.");
    called["tool_calls"] = json!([call("c1"), call("c2")]);
    let seen = |id: &str, result: &str| {
        let mut message = text("tool", result);
        message["tool_call_id"] = json!(id);
        message
    };
    let asked = text("user", "Where is the ship?");
    let model = |trace: u64, times: (u64, u64), input: Json, reply: &str, more: Json| {
        let mut attributes = json!({"llm.request.type": "completion", "gen_ai.request.model": "m", "gen_ai.system": "openai",
            "gen_ai.input.messages": input, "gen_ai.output.messages": [text("assistant", reply)]});
        attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        span(trace, 1, 0, "litellm_request", times, attributes)
    };
    let calls = json!({"gen_ai.completion.0.function_call.name": "find_ship",
        "gen_ai.completion.0.function_call.arguments": arguments,
        "gen_ai.completion.1.function_call.name": "find_ship", "gen_ai.completion.1.function_call.arguments": arguments});
    let history = json!([asked, called, seen("c1", "berth 7"), seen("c2", "berth 8")]);
    let read = read_one(&[
        model(1, (1, 2), json!([asked]), "I will look.", calls),
        model(2, (3, 4), history, "At berth 7.", json!({})),
    ]);
    assert_eq!(steps(&read), [FIND_SHIP, ("find_ship", Some("I will look."), Some("berth 8"))]);
    assert_eq!(read.final_answer.as_deref(), Some("At berth 7."));
}

#[test]
fn crews_are_read_by_the_messages_of_their_tasks_as_langtrace_records_them() {
    let call =
        "{'id': 'c', 'type': 'function', 'function': {'name': 'find_ship', 'arguments': '{\"name\": \"Anna\"}'}}";
    let messages = format!(
        "[{{'role': 'user', 'content': 'Where is the ship?'}}, \
         {{'role': 'assistant', 'content': 'I will look.', 'tool_calls': [{call}]}}, \
         {{'role': 'tool', 'tool_call_id': 'c', 'name': 'find_ship', 'content': 'berth 7'}}, \
         {{'role': 'assistant', 'content': 'At berth 7.'}}]"
    );
    let tasks = format!(
        "[TaskOutput(raw='At berth 7.', output_format=<OutputFormat.RAW: 'raw'>, messages={messages}, tool_failures=[])]"
    );
    let crew = json!({"crewai.crew.tasks_output": tasks, "crewai.crew.result": "At berth 7."});
    let model = |id: u64, times: (u64, u64), prompt: Json| {
        let attributes =
            json!({"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "m"});
        let model = span(1, id, 2, "openai.chat.completions.create", times, attributes);
        with_events(model, &[("gen_ai.content.prompt", json!({"gen_ai.prompt": prompt}))])
    };
    let asked = json!({"role": "user", "content": "Where is the ship?"});
    let seen = json!({"role": "tool", "tool_call_id": "c", "name": "find_ship", "content": "berth 7"});
    let read = read_one(&[
        span(1, 1, 0, "Crew.kickoff", (0, 9), crew),
        span(1, 2, 1, "Task.execute", (0, 8), json!({"crewai.task.description": "Where is the ship?"})),
        model(3, (1, 2), json!([asked])),
        model(4, (3, 4), json!([asked, [{"id": "", "type": ""}], seen])),
    ]);
    assert_found(&read);
    assert_eq!(read.steps[0].arguments, Some(json!({"name": "Anna"})));
}

#[test]
fn calls_of_litellm_below_a_span_of_the_application_are_read() {
    let call =
        "{'id': 'c', 'type': 'function', 'function': {'name': 'find_ship', 'arguments': '{\"name\": \"Anna\"}'}}";
    let asked = "{'role': 'user', 'content': 'Where is the ship?'}";
    let called = format!("{{'role': 'assistant', 'content': 'I will look.', 'tool_calls': [{call}]}}");
    let seen = "{'role': 'tool', 'tool_call_id': 'c', 'content': 'berth 7'}";
    let raw = |id: u64, times: (u64, u64), messages: String, reply: &str| {
        let choices = format!("[{{'finish_reason': 'stop', 'index': 0, 'message': {reply}}}]");
        let attributes = json!({"llm.openai.messages": format!("[{messages}]"), "llm.openai.choices": choices,
            "llm.openai.model": "m", "llm.openai.usage": "{'prompt_tokens': 5, 'completion_tokens_details': None}"});
        span(1, id, 1, "raw_gen_ai_request", times, attributes)
    };
    // The attributes of one of the calls are on the span of the application.
    let text = |role: &str, text: &str| json!([{"role": role, "parts": [{"type": "text", "content": text}]}]);
    let root = json!({"llm.request.type": "completion", "gen_ai.request.model": "m", "gen_ai.system": "openai",
        "gen_ai.input.messages": text("user", "Where is the ship?"),
        "gen_ai.output.messages": text("assistant", "I will look."),
        "gen_ai.completion.0.function_call.name": "find_ship"});
    let read = read_in_scope(
        "litellm",
        &[
            span(1, 1, 0, "agent", (0, 9), root),
            raw(2, (1, 2), asked.to_owned(), &called),
            raw(
                3,
                (3, 4),
                [asked, &called, seen].join(", "),
                "{'role': 'assistant', 'content': 'At berth 7.', 'tool_calls': None}",
            ),
        ],
    );
    assert_eq!(read.len(), 1, "{read:#?}");
    assert_found(&read[0]);
    assert_eq!(read[0].query.as_deref(), Some("Where is the ship?"));
    assert_eq!(read[0].steps[0].tokens.prompt, 5);
}
