//! The JSON shapes of messages, one of each kind that frameworks and services use, mean the same.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use gradus_core::message::{ArgumentsText, ChatMessage, MessagePart, MessageRole, messages_from_json};
use serde_json::{Value as Json, json};

/// A user's question, a reply with a thought and one call, and the result.
fn assert_conversation(name: &str, shape: Json) {
    let messages = messages_from_json(shape);
    let spoken: Vec<&ChatMessage<'_>> = messages.iter().filter(|message| message.role != MessageRole::System).collect();
    let question = spoken.iter().find(|message| message.role == MessageRole::User && !message.joined_text().is_empty());
    assert_eq!(
        question.map(|message| message.joined_text().into_owned()).as_deref(),
        Some("How many?"),
        "{name}: {messages:?}"
    );
    let said =
        spoken.iter().filter(|message| message.role == MessageRole::Assistant).flat_map(|message| &message.parts);
    let thought = said.clone().find_map(|part| match part {
        MessagePart::Text(text) | MessagePart::Reasoning(text) => Some(text.as_ref()),
        _ => None,
    });
    assert_eq!(thought, Some("I count."), "{name}: {messages:?}");
    let call = said.clone().find_map(|part| match part {
        MessagePart::ToolCall(call) => Some(call),
        _ => None,
    });
    let call = call.unwrap_or_else(|| panic!("{name}: no call in {messages:?}"));
    assert_eq!((call.name.as_ref(), call.id.as_deref()), ("count", Some("c1")), "{name}");
    let arguments: serde_json::Value = match call.arguments.as_ref().unwrap() {
        ArgumentsText::Text(text) | ArgumentsText::Json(text) => serde_json::from_str(text).unwrap(),
    };
    assert_eq!(arguments, json!({"of": "issues"}), "{name}");
    let result = spoken.iter().find_map(|message| message.tool_results().next().cloned());
    let result = result.unwrap_or_else(|| panic!("{name}: no result in {messages:?}"));
    assert_eq!((result.id.as_deref(), result.content.as_ref()), (Some("c1"), "12"), "{name}");
}

#[test]
fn openai_chat() {
    assert_conversation(
        "OpenAI chat",
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How many?"},
            {"role": "assistant", "content": "I count.", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "count", "arguments": "{\"of\": \"issues\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "12"},
        ]),
    );
}

#[test]
fn openai_responses() {
    assert_conversation(
        "OpenAI Responses",
        json!([
            {"role": "user", "content": [{"type": "input_text", "text": "How many?"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I count."}]},
            {"type": "function_call", "call_id": "c1", "name": "count", "arguments": "{\"of\": \"issues\"}"},
            {"type": "function_call_output", "call_id": "c1", "output": "12"},
        ]),
    );
}

#[test]
fn anthropic() {
    assert_conversation(
        "Anthropic",
        json!({"system": "Be brief.", "messages": [
            {"role": "user", "content": "How many?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I count."}, {"type": "tool_use", "id": "c1", "name": "count", "input": {"of": "issues"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "12"}]}]},
        ]}),
    );
}

#[test]
fn genai_parts() {
    assert_conversation(
        "GenAI",
        json!([
            {"role": "user", "parts": [{"type": "text", "content": "How many?"}]},
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "I count."}, {"type": "tool_call", "id": "c1", "name": "count", "arguments": {"of": "issues"}}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "12"}]},
        ]),
    );
}

#[test]
fn gemini() {
    assert_conversation(
        "Gemini",
        json!({"contents": [
            {"role": "user", "parts": [{"text": "How many?"}]},
            {"role": "model", "parts": [{"text": "I count."}, {"function_call": {"id": "c1", "name": "count", "args": {"of": "issues"}}}]},
            {"role": "user", "parts": [{"function_response": {"id": "c1", "name": "count", "response": {"result": "12"}}}]},
        ]}),
    );
}

#[test]
fn vercel() {
    assert_conversation(
        "Vercel AI",
        json!([
            {"role": "user", "content": [{"type": "text", "text": "How many?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I count."}, {"type": "tool-call", "toolCallId": "c1", "toolName": "count", "input": {"of": "issues"}}]},
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "count", "output": {"type": "text", "value": "12"}}]},
        ]),
    );
}

#[test]
fn langchain_serialised() {
    assert_conversation(
        "LangChain",
        json!([[
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "How many?", "type": "human"}},
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "I count.", "type": "ai", "tool_calls": [{"name": "count", "args": {"of": "issues"}, "id": "c1"}]}},
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"], "kwargs": {"content": "12", "type": "tool", "tool_call_id": "c1"}},
        ]]),
    );
}

#[test]
fn bedrock() {
    assert_conversation(
        "Bedrock",
        json!([
            {"role": "user", "content": [{"text": "How many?"}]},
            {"role": "assistant", "content": [{"text": "I count."}, {"toolUse": {"toolUseId": "c1", "name": "count", "input": {"of": "issues"}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "12"}], "status": "success"}}]},
        ]),
    );
}

#[test]
fn what_is_no_message_gives_none() {
    for shape in [json!(null), json!(3), json!([]), json!({}), json!([1, null, {}])] {
        assert!(messages_from_json(shape.clone()).is_empty(), "{shape}");
    }
}

#[test]
fn marks_of_coding_agents_are_no_requests() {
    let list = json!([
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "a", "type": "function",
            "function": {"name": "Bash", "arguments": "{\"command\": \"make\"}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "Exit code 2\nno rule"},
        {"role": "assistant-subagent-7", "content": "The subagent is done."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "b", "type": "function",
            "function": {"name": "Edit", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "<tool_use_error>File has not been read yet."},
        {"role": "user", "content": "[Request interrupted by user]"},
        {"role": "user", "content": "Rather explain it."},
        {"role": "assistant", "content": "It is broken."}]);
    let found = gradus_core::assemble::assemble_messages(&messages_from_json(list), &[]);
    let queries: Vec<Option<&str>> = found.iter().map(|run| run.query.as_deref()).collect();
    assert_eq!(queries, [Some("Fix it."), Some("Rather explain it.")]);
    assert!(found[0].steps.iter().all(|step| step.is_error), "{:?}", found[0].steps);
    assert!(found[0].defects.iter().any(|defect| defect.detail == "the user interrupted the request"));
}
