//! Spans as they are taken from the provider.

use std::sync::Arc;
use std::time::Duration;

use gradus_llm::{
    CallError, ChatReply, ChatRequest, ChatToolCall, ChatToolDefinition, CompletionUsage, FinishReason,
    ModelCallFailure, PromptMessage,
};
use opentelemetry::trace::Status;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use serde_json::json;

use super::*;
use crate::agent::AgentRunEnd;
use crate::agent::{AgentObserver as _, AgentToolCall, ObserverEvent};
use crate::tools::{AgentTool, CallObservation, ToolEffect};

fn traces() -> AgentTracer {
    AgentTracer::new(&TracerSettings { service: "s", project: "p", ids: TraceIdGenerator::from_seed("seed") })
}

fn value(span: &SpanData, key: &str) -> Option<String> {
    span.attributes.iter().find(|found| found.key.as_str() == key).map(|found| found.value.to_string())
}

fn tool() -> AgentTool {
    AgentTool {
        definition: ChatToolDefinition {
            name: "read".into(),
            description: "Reads.".into(),
            parameters: Arc::new(json!({"type": "object"})),
        },
        effect: ToolEffect::Read,
    }
}

fn call() -> AgentToolCall {
    serde_json::from_value(json!({"id": "a", "name": "read", "arguments": {"p": 1}, "thought": null})).expect("a call")
}

/// One request: a question, a call that is rate limited and fails, a question that fails.
fn play(traces: &AgentTracer) {
    let mut observer = traces.observer();
    observer.on_event(&ObserverEvent::Begun { session: "s1", request: "Do.", model: "m", goes_on: false });
    let messages = vec![PromptMessage::User { text: "Do.".to_owned() }; 100];
    let (tools, stop) = ([tool()], ["\nObservation:"]);
    let chat = ChatRequest {
        system: "sys",
        messages: &messages,
        tools: &[],
        stop: &stop,
        max_tokens: 9,
        temperature: Some(0.0),
    };
    observer.on_event(&ObserverEvent::Asked { chat: &chat, tools: &tools });
    let calls = vec![ChatToolCall { id: "a".to_owned(), name: "read".to_owned(), arguments: "{\"p\":1}".to_owned() }];
    let usage = Some(CompletionUsage { prompt: 5, completion: 2, cached_prompt: 1 });
    let reply = Ok(ChatReply { text: "I read.".to_owned(), calls, usage, stop: FinishReason::Done });
    observer.on_event(&ObserverEvent::Replied { reply: &reply });
    let call = call();
    observer.on_event(&ObserverEvent::Called { call: &call, tool: Some(&tools[0]) });
    observer.on_event(&ObserverEvent::Waits { call: &call, time: Duration::from_secs(60) });
    let observation = CallObservation { text: "{\"error\":\"gone\"}".to_owned(), is_error: true, retry_after: None };
    observer.on_event(&ObserverEvent::Returned { call: &call, observation: &observation });
    observer.on_event(&ObserverEvent::Asked { chat: &chat, tools: &tools });
    let failure = Err(ModelCallFailure { error: CallError::Timeout(Duration::from_secs(3)), attempts: 2 });
    observer.on_event(&ObserverEvent::Replied { reply: &failure });
    observer.on_event(&ObserverEvent::Finished { end: &AgentRunEnd::Failed("no answer".to_owned()), answer: None });
}

#[test]
fn a_request_is_a_tree_of_spans_with_everything_in_it() {
    let traces = traces();
    play(&traces);
    let spans = traces.take_spans();
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["chat m", "read", "chat m", "gradus agent"]);
    let [question, run, failed, agent] = &spans[..] else { panic!() };
    for span in &spans[..3] {
        assert_eq!(span.parent_span_id, agent.span_context.span_id());
        assert_eq!(span.span_context.trace_id(), agent.span_context.trace_id());
        assert_eq!(value(span, "session.id").as_deref(), Some("s1"));
        assert_eq!(span.dropped_attributes_count, 0);
    }
    for (span, key, expected) in [
        (agent, "openinference.span.kind", "AGENT"),
        (agent, "input.value", "Do."),
        (question, "llm.model_name", "m"),
        (question, "llm.input_messages.0.message.role", "system"),
        (question, "llm.input_messages.100.message.content", "Do."),
        (question, "llm.output_messages.0.message.content", "I read."),
        (question, "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments", "{\"p\":1}"),
        (
            question,
            "llm.tools.0.tool.json_schema",
            "{\"type\":\"function\",\"function\":{\"name\":\"read\",\"description\":\"Reads.\",\"parameters\":{\"type\":\"object\"}}}",
        ),
        (
            question,
            "llm.invocation_parameters",
            "{\"max_tokens\":9,\"temperature\":0.0,\"stop\":[\"\\nObservation:\"]}",
        ),
        (question, "llm.token_count.total", "7"),
        (run, "tool.name", "read"),
        (run, "tool.description", "Reads."),
        (run, "input.value", "{\"p\":1}"),
        (run, "output.value", "{\"error\":\"gone\"}"),
    ] {
        assert_eq!(value(span, key).as_deref(), Some(expected), "{key}");
    }
    assert_eq!(question.status, Status::Ok);
    let events: Vec<&str> = run.events.iter().map(|event| &*event.name).collect();
    assert_eq!(events, ["rate_limited", "exception"]);
    assert_eq!(failed.status, Status::error("no answer within 3 s (tried 2 times)"));
    assert_eq!(agent.status, Status::error("no answer"));
}

#[test]
fn counted_ids_are_the_same_in_every_run() {
    let ids = |traces: AgentTracer| -> Vec<_> {
        play(&traces);
        traces.take_spans().iter().map(|span| (span.span_context.trace_id(), span.span_context.span_id())).collect()
    };
    let (one, other) = (ids(traces()), ids(traces()));
    assert_eq!(one, other);
    let different =
        AgentTracer::new(&TracerSettings { service: "s", project: "p", ids: TraceIdGenerator::from_seed("other") });
    assert_ne!(ids(different), one);
}

#[test]
fn a_run_that_is_given_up_leaves_no_open_span() {
    let traces = traces();
    let mut observer = traces.observer();
    observer.on_event(&ObserverEvent::Begun { session: "s1", request: "Do.", model: "m", goes_on: false });
    let call = call();
    observer.on_event(&ObserverEvent::Called { call: &call, tool: None });
    drop(observer);
    let spans = traces.take_spans();
    assert_eq!(spans.len(), 2);
    for span in spans {
        assert_eq!(span.status, Status::error("the run was given up"));
    }
}

#[derive(Debug)]
struct Away;

impl SpanExporter for Away {
    async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
        Err(OTelSdkError::Timeout(Duration::from_secs(1)))
    }
}

#[derive(Debug)]
struct Silent;

impl SpanExporter for Silent {
    async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
        std::future::pending().await
    }
}

#[test]
fn what_could_not_be_sent_waits() {
    let traces = traces();
    play(&traces);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    assert!(runtime.block_on(traces.export(&Away)).is_err());
    let names: Vec<_> = traces.take_spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["chat m", "read", "chat m", "gradus agent"], "in their order");
    play(&traces);
    // Nobody waits for it any more.
    let never = async { tokio::time::timeout(Duration::from_millis(5), traces.export(&Silent)).await };
    assert!(runtime.block_on(never).is_err());
    assert!(!traces.take_otlp().is_empty());
    assert!(traces.take_spans().is_empty());
}

#[test]
fn what_waits_is_bounded_by_its_size_and_what_is_given_up_is_counted() {
    let traces = traces();
    play(&traces);
    let mut waiting = UnexportedSpans { spans: traces.take_spans(), dropped: 0 };
    let all: usize = waiting.spans.iter().map(estimate_span_size).sum();
    let first = estimate_span_size(&waiting.spans[0]);
    assert!(first > 100 * 64, "a question holds its whole conversation: {first}");
    waiting.trim_to_size(all);
    assert_eq!((waiting.spans.len(), waiting.dropped), (4, 0));
    waiting.trim_to_size(all - 1);
    let names: Vec<&str> = waiting.spans.iter().map(|span| &*span.name).collect();
    assert_eq!((names.as_slice(), waiting.dropped), (["read", "chat m", "gradus agent"].as_slice(), 1));
    waiting.trim_to_size(0);
    assert_eq!((waiting.spans.len(), waiting.dropped), (1, 3), "the newest stays");
}
