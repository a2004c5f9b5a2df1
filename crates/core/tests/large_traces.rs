//! Traces of many spans, in shapes that a search from the start for each span would square. The sizes are such that a
//! quadratic step would take hours here.

use std::sync::Arc;

use gradus_core::assemble::TrajectoryAssembler;
use gradus_core::span::{AttributeList, AttributeValue, Span, SpanId, SpanResource, TraceId};

const SPANS: u64 = 100_000;

fn span(id: u64, parent: Option<u64>, attributes: &[(&'static str, String)]) -> Span<'static> {
    let attributes = attributes.iter().map(|(key, text)| ((*key).into(), AttributeValue::Str(text.clone().into())));
    Span {
        trace_id: TraceId(1),
        span_id: SpanId(id),
        parent_id: parent.map(SpanId),
        start_ns: 1_000 + id,
        end_ns: 2_000 + id,
        attributes: AttributeList(attributes.collect()),
        resource: Arc::new(SpanResource::default()),
        ..Span::default()
    }
}

fn tool(id: u64, parent: Option<u64>) -> Span<'static> {
    let text = |text: &str| text.to_owned();
    span(id, parent, &[("openinference.span.kind", text("TOOL")), ("tool.name", format!("t{}", id % 7))])
}

fn agent(id: u64, parent: Option<u64>) -> Span<'static> {
    span(id, parent, &[("openinference.span.kind", "AGENT".to_owned()), ("input.value", format!("task {id}"))])
}

fn call(id: u64, parent: Option<u64>, question: &str, reply: &str) -> Span<'static> {
    let text = |text: &str| text.to_owned();
    span(
        id,
        parent,
        &[
            ("openinference.span.kind", text("LLM")),
            ("llm.input_messages.0.message.role", text("user")),
            ("llm.input_messages.0.message.content", text(question)),
            ("llm.output_messages.0.message.role", text("assistant")),
            ("llm.output_messages.0.message.content", text(reply)),
        ],
    )
}

fn steps(spans: &[Span<'_>]) -> (usize, usize) {
    let assembled = TrajectoryAssembler::default().assemble(spans);
    let steps = assembled.trajectories.iter().map(|trajectory| trajectory.steps.len()).sum();
    (assembled.trajectories.len(), steps)
}

#[test]
fn tools_without_anything_around_them() {
    let spans: Vec<_> = (1..=SPANS).map(|id| tool(id, None)).collect();
    assert_eq!(steps(&spans), (SPANS as usize, SPANS as usize));
}

#[test]
fn tools_below_one_agent() {
    let spans: Vec<_> = std::iter::once(agent(1, None)).chain((2..=SPANS).map(|id| tool(id, Some(1)))).collect();
    assert_eq!(steps(&spans), (1, SPANS as usize - 1));
}

#[test]
fn a_chain_of_agents_with_calls_in_it() {
    let make = |id| match id % 10 {
        9 => call(id, Some(id - 1), &format!("task {id}"), "done"),
        _ => agent(id, (id > 1).then(|| id - 1)),
    };
    let spans: Vec<_> = (1..=SPANS).map(make).collect();
    let (trajectories, _) = steps(&spans);
    assert!(trajectories >= 1);
}

#[test]
fn calls_that_ask_for_tools_nobody_ran_beside_tools_nobody_asked_for() {
    let reply = "Thought: look\nAction: search\nAction Input: {\"q\": 1}";
    let make = |id: u64| match id % 2 {
        0 => call(id, Some(1), "find it", reply),
        _ => tool(id, Some(1)),
    };
    let spans: Vec<_> = std::iter::once(agent(1, None)).chain((2..=SPANS).map(make)).collect();
    assert_eq!(steps(&spans), (1, SPANS as usize - 1));
}

/// One reply asks for many calls: its text is shared by their steps only as far as there is room.
#[test]
fn a_text_that_many_steps_share_is_not_copied_for_each() {
    let thought = "t".repeat(1 << 20);
    let actions = r#"{"name": "search", "arguments": {}},"#.repeat(200);
    let reply = format!("Thought: {thought}\nAction: [{}]", actions.trim_end_matches(','));
    let spans = vec![agent(1, None), call(2, Some(1), "find it", &reply)];
    let assembled = TrajectoryAssembler::default().assemble(&spans);
    let trajectory = &assembled.trajectories[0];
    let copied: usize = trajectory.steps.iter().filter_map(|step| step.thought.as_ref()).map(String::len).sum();
    assert!(trajectory.steps.len() == 200 && copied < 12 << 20, "{} steps, {copied} bytes", trajectory.steps.len());
}

/// Arguments that are small one by one and large together.
#[test]
fn arguments_beyond_the_budget_keep_their_text() {
    let dense = format!("[{}0]", "[0],".repeat(20_000));
    let arguments = format!("{{\"q\": {dense}}}");
    let make = |id: u64| {
        let mut one = tool(id, Some(1));
        one.attributes.0.push(("input.value".into(), AttributeValue::Str(arguments.clone().into())));
        one
    };
    let spans: Vec<_> = std::iter::once(agent(1, None)).chain((2..=30).map(make)).collect();
    let assembled = TrajectoryAssembler::default().assemble(&spans);
    let trajectory = &assembled.trajectories[0];
    let parsed = trajectory.steps.iter().filter(|step| step.arguments.is_some()).count();
    assert!(parsed > 5 && parsed < 15, "{parsed} of {}", trajectory.steps.len());
    assert!(trajectory.steps.iter().all(|step| step.arguments_raw.is_some()));
    assert!(trajectory.defects.iter().any(|defect| defect.kind.name() == "too_large"));
}
