//! Turns events of a run into spans.

use gradus_llm::{CallError, ChatToolDefinition};
use opentelemetry::Context;
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry_sdk::trace::SdkTracer;

use super::attributes::{self, JSON, TEXT, build_attribute, mime_type};
use crate::agent::AgentRunEnd;
use crate::agent::{AgentObserver, AgentToolCall, ObserverEvent};
use crate::tools::{AgentTool, CallObservation};

/// Name of the agent span.
const AGENT_SPAN_NAME: &str = "gradus agent";

/// At most two spans are open at a time: the agent span, and below it one model or tool span.
#[derive(Debug)]
pub struct SpanObserver {
    tracer: SdkTracer,
    session: String,
    model: String,
    /// The request's span.
    agent: Option<Context>,
    /// The open model or tool span.
    open: Option<Context>,
}

impl SpanObserver {
    pub(super) fn new(tracer: SdkTracer) -> SpanObserver {
        SpanObserver { tracer, session: String::new(), model: String::new(), agent: None, open: None }
    }

    /// Opens the root span of a request. A continued request gets a new trace, and metadata that says so.
    fn open_agent_span(&mut self, request: &str, goes_on: bool) {
        self.end_interrupted_spans("another request began");
        let mut attributes = vec![
            build_attribute("openinference.span.kind", "AGENT"),
            build_attribute("agent.name", AGENT_SPAN_NAME),
            build_attribute("session.id", self.session.clone()),
            build_attribute("input.value", request.to_owned()),
            build_attribute("input.mime_type", TEXT),
        ];
        if goes_on {
            attributes.push(build_attribute("metadata", "{\"goes_on\":true}"));
        }
        let builder = SpanBuilder::from_name(AGENT_SPAN_NAME).with_kind(SpanKind::Internal).with_attributes(attributes);
        let span = self.tracer.build_with_context(builder, &Context::new());
        self.agent = Some(Context::new().with_span(span));
    }

    /// Opens a child of the agent span. Does nothing without an agent span.
    fn open_span(
        &mut self,
        name: String,
        kind: &'static str,
        span_kind: SpanKind,
        attributes: Vec<opentelemetry::KeyValue>,
    ) {
        let Some(agent) = &self.agent else { return };
        let mut all =
            vec![build_attribute("openinference.span.kind", kind), build_attribute("session.id", self.session.clone())];
        all.extend(attributes);
        let builder = SpanBuilder::from_name(name).with_kind(span_kind).with_attributes(all);
        let span = self.tracer.build_with_context(builder, agent);
        self.open = Some(Context::new().with_span(span));
    }

    /// Ends the open child span, with an exception event if it failed.
    fn close_span(&mut self, attributes: Vec<opentelemetry::KeyValue>, failure: Option<(&str, String)>) {
        let Some(open) = self.open.take() else { return };
        let span = open.span();
        span.set_attributes(attributes);
        match failure {
            Some((kind, message)) => record_span_failure(&open, kind, message),
            None => span.set_status(Status::Ok),
        }
        span.end();
    }

    /// Opens a tool span. Arguments that are not JSON are recorded as the model wrote them.
    fn open_tool_span(&mut self, call: &AgentToolCall, tool: Option<&AgentTool>) {
        // If it is not JSON, the text of the model.
        let input = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
        let mut attributes = vec![
            build_attribute("tool.name", call.name.clone()),
            build_attribute("tool.id", call.id.clone()),
            build_attribute("input.mime_type", if call.arguments.is_object() { JSON } else { TEXT }),
            build_attribute("input.value", input),
        ];
        if let Some(tool) = tool {
            attributes.push(build_attribute("tool.description", tool.definition.description.to_string()));
            attributes.push(build_attribute("tool.parameters", tool.definition.parameters.to_string()));
        }
        self.open_span(call.name.clone(), "TOOL", SpanKind::Internal, attributes);
    }

    /// Closes a tool span. The full observation is the output; an error also sets the status.
    fn close_tool_span(&mut self, observation: &CallObservation) {
        let attributes = vec![
            build_attribute("output.value", observation.text.clone()),
            build_attribute("output.mime_type", mime_type(&observation.text)),
        ];
        let failure = observation.is_error.then(|| ("ToolError", truncate_status(&observation.text)));
        self.close_span(attributes, failure);
    }

    /// Ends all open spans as stopped.
    fn end_interrupted_spans(&mut self, reason: &str) {
        self.close_span(Vec::new(), Some(("Stopped", reason.to_owned())));
        if let Some(agent) = self.agent.take() {
            record_span_failure(&agent, "Stopped", reason.to_owned());
            agent.span().end();
        }
    }

    /// Ends the agent span with the answer or the error.
    fn end_agent_span(&mut self, end: &AgentRunEnd, answer: Option<&str>) {
        let failure = match end {
            AgentRunEnd::Answered => None,
            AgentRunEnd::StepLimit => Some("the limit of steps is reached".to_owned()),
            AgentRunEnd::CallLimit => Some("the limit of calls is reached".to_owned()),
            AgentRunEnd::Failed(reason) => Some(reason.clone()),
        };
        // A span that is still open was interrupted.
        self.close_span(Vec::new(), failure.clone().map(|reason| ("Stopped", reason)));
        let Some(agent) = self.agent.take() else { return };
        if let Some(answer) = answer {
            agent.span().set_attribute(build_attribute("output.value", answer.to_owned()));
            agent.span().set_attribute(build_attribute("output.mime_type", TEXT));
        }
        match failure {
            Some(reason) => record_span_failure(&agent, "AgentError", reason),
            None => agent.span().set_status(Status::Ok),
        }
        agent.span().end();
    }
}

impl AgentObserver for SpanObserver {
    fn on_event(&mut self, event: &ObserverEvent<'_>) {
        match event {
            ObserverEvent::Begun { session, request, model, goes_on } => {
                (self.session, self.model) = ((*session).to_owned(), (*model).to_owned());
                self.open_agent_span(request, *goes_on);
            }
            ObserverEvent::Asked { chat, tools } => {
                let tools: Vec<&ChatToolDefinition> = tools.iter().map(|tool| &tool.definition).collect();
                let mut attributes = attributes::build_request_attributes(chat, &tools);
                attributes.push(build_attribute("llm.model_name", self.model.clone()));
                self.open_span(format!("chat {}", self.model), "LLM", SpanKind::Client, attributes);
            }
            ObserverEvent::Replied { reply: Ok(reply) } => {
                self.close_span(attributes::build_reply_attributes(reply), None)
            }
            ObserverEvent::Replied { reply: Err(failure) } => {
                self.close_span(Vec::new(), Some((classify_call_error(&failure.error), failure.to_string())));
            }
            ObserverEvent::Called { call, tool } => self.open_tool_span(call, *tool),
            ObserverEvent::Waits { time, .. } => {
                if let Some(open) = &self.open {
                    let seconds = build_attribute("retry_after_s", time.as_secs_f64());
                    open.span().add_event("rate_limited", vec![seconds]);
                }
            }
            ObserverEvent::Returned { observation, .. } => self.close_tool_span(observation),
            ObserverEvent::Finished { end, answer } => self.end_agent_span(end, *answer),
            ObserverEvent::Corrected { .. } | ObserverEvent::Confirms { .. } | ObserverEvent::Confirmed { .. } => {}
        }
    }
}

/// A span that is dropped without an end would be lost, or look like a success.
impl Drop for SpanObserver {
    fn drop(&mut self) {
        self.end_interrupted_spans("the run was given up");
    }
}

/// Records an exception event and an error status, as the OpenTelemetry conventions require.
fn record_span_failure(context: &Context, kind: &str, message: String) {
    let span = context.span();
    span.add_event(
        "exception",
        vec![build_attribute("exception.type", kind.to_owned()), build_attribute("exception.message", message.clone())],
    );
    span.set_status(Status::error(message));
}

/// Returns `exception.type` by the kind of failure.
fn classify_call_error(error: &CallError) -> &'static str {
    match error {
        CallError::Connect(_) | CallError::Broken(_) => "ConnectionError",
        CallError::Timeout(_) | CallError::Silent(_) => "Timeout",
        CallError::RateLimited { .. } | CallError::LongPause(_) => "RateLimited",
        CallError::Server { .. } | CallError::Loading { .. } => "ServerError",
        CallError::Unauthorized { .. } => "Unauthorized",
        CallError::NotFound { .. } => "NotFound",
        CallError::TooLong(_) => "ContextLengthExceeded",
        CallError::Refused { .. } => "BadRequest",
        CallError::BadReply(_) => "BadReply",
        CallError::CallLimit => "CallLimit",
    }
}

/// Shortens a status message, which is for lists; the full text is in `output.value`.
fn truncate_status(text: &str) -> String {
    const MAX_STATUS_CHARS: usize = 500;
    text.chars().take(MAX_STATUS_CHARS).collect()
}
