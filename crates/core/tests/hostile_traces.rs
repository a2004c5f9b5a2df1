//! Small traces that ask for much memory or time: one text that is copied for each of many spans, lists whose every item
//! is compared with every other. Sizes are asserted; where only time is at stake, the quadratic way would take hours.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::assemble::{AssemblyOutput, TrajectoryAssembler, assemble_messages, assemble_transcript};
use gradus_core::message::{ChatMessage, MessagePart, MessageRole, ToolCall};
use gradus_core::span::{AttributeList, AttributeValue, Span, SpanEvent, SpanId, SpanResource, TraceId};
use gradus_core::span_json::read_phoenix_span;
use gradus_core::trajectory::{DefectKind, Trajectory};
use serde_json::json;

const KIND: &str = "openinference.span.kind";

fn text_attributes(pairs: &[(&str, &str)]) -> AttributeList<'static> {
    let text = |text: &str| Cow::<'static, str>::Owned(text.to_owned());
    AttributeList(pairs.iter().map(|(key, value)| (text(key), AttributeValue::Str(text(value)))).collect())
}

fn span(id: u64, parent: Option<u64>, attributes: &[(&str, &str)]) -> Span<'static> {
    Span {
        trace_id: TraceId(1),
        span_id: SpanId(id),
        parent_id: parent.map(SpanId),
        start_ns: 1_000 + id,
        end_ns: 2_000 + id,
        attributes: text_attributes(attributes),
        ..Span::default()
    }
}

fn assemble(spans: &[Span<'_>]) -> AssemblyOutput {
    TrajectoryAssembler::default().assemble(spans)
}

fn has_too_large(assembled: &AssemblyOutput) -> bool {
    assembled.defects.iter().any(|defect| defect.kind == DefectKind::TooLarge)
}

fn defect_bytes(assembled: &AssemblyOutput) -> usize {
    let of_trajectories = assembled.trajectories.iter().flat_map(|trajectory| &trajectory.defects);
    of_trajectories.chain(&assembled.defects).map(|defect| defect.detail.len()).sum()
}

/// A name of the resource stands on every trajectory.
#[test]
fn names_of_the_resource_are_not_copied_in_full() {
    let long = "v".repeat(100_000);
    let attributes = text_attributes(&[("service.version", &long), ("service.name", &long)]);
    let resource = Arc::new(SpanResource { attributes });
    let make = |id| Span {
        resource: Arc::clone(&resource),
        ..span(id, None, &[(KIND, "TOOL"), ("tool.name", "t"), ("session.id", &long), ("agent.name", "a")])
    };
    let spans: Vec<_> = (1..=2_000).map(make).collect();
    let trajectories = assemble(&spans).trajectories;
    let bytes = |trajectory: &Trajectory| {
        let names = [
            &trajectory.session_id,
            &trajectory.project,
            &trajectory.agent,
            &trajectory.agent_version,
            &trajectory.model,
        ];
        names.into_iter().flatten().map(String::len).sum::<usize>()
    };
    let total: usize = trajectories.iter().map(bytes).sum();
    assert!(trajectories.len() == 2_000 && total < 2_000 * 1_000, "{total} bytes");
    let version = trajectories[0].agent_version.as_deref().unwrap();
    assert!(version.starts_with("vvv") && version.ends_with('…'), "{version}");
}

/// The name of a span is quoted in a defect for each span that was folded into it.
#[test]
fn names_of_spans_are_not_quoted_in_full() {
    let long = "x ".repeat(50_000);
    let child = |id| span(id, Some(2), &[(KIND, "TOOL")]);
    let tool = Span { name: long.clone().into(), ..span(2, Some(1), &[(KIND, "TOOL")]) };
    let mut spans = vec![span(1, None, &[(KIND, "AGENT"), ("input.value", "task")]), tool];
    spans.extend((3..=2_000).map(|id| Span { name: "x x".into(), ..child(id) }));
    let assembled = assemble(&spans);
    let outside = assembled.trajectories.iter().flat_map(|trajectory| &trajectory.defects);
    assert!(outside.filter(|defect| defect.kind == DefectKind::ToolRunOutsideSteps).count() > 1_000);
    assert!(defect_bytes(&assembled) < 1 << 20, "{}", defect_bytes(&assembled));

    // Model calls without messages, with and without something around them.
    for parent in [None, Some(1)] {
        let mut spans = vec![span(1, None, &[(KIND, if parent.is_some() { "AGENT" } else { "LLM" })])];
        spans[0].name = long.clone().into();
        let outer = Span { name: long.clone().into(), ..span(2, parent, &[(KIND, "LLM")]) };
        spans.push(outer);
        spans.extend((3..=2_000).map(|id| span(id, Some(2), &[(KIND, "LLM")])));
        let assembled = assemble(&spans);
        assert!(defect_bytes(&assembled) < 2 << 20, "{}", defect_bytes(&assembled));
    }
}

#[test]
fn no_more_trajectories_are_built_than_asked_for() {
    let spans: Vec<_> = (1..=50).map(|id| span(id, None, &[(KIND, "TOOL"), ("tool.name", "t")])).collect();
    let assembled = TrajectoryAssembler::with_max_trajectories(20).assemble(&spans);
    assert_eq!(assembled.trajectories.len(), 20);
    assert_eq!(assembled.trajectories[0].root_span_id.as_deref(), Some("0000000000000001"));
    let [defect] = assembled.defects.as_slice() else { panic!("{:?}", assembled.defects) };
    assert_eq!(defect.kind, DefectKind::TooLarge);
    assert!(defect.detail.starts_with("30 more"), "{}", defect.detail);
    assert!(TrajectoryAssembler::with_max_trajectories(50).assemble(&spans).defects.is_empty());
}

fn call_with_tool_calls(id: u64, parent: u64, count: usize) -> Span<'static> {
    let mut call = span(id, Some(parent), &[(KIND, "LLM"), ("llm.output_messages.0.message.role", "assistant")]);
    for number in 0..count {
        for (field, value) in [("id", format!("c{number}")), ("function.name", "search".to_owned())] {
            let key = format!("llm.output_messages.0.message.tool_calls.{number}.tool_call.{field}");
            call.attributes.0.push((key.into(), AttributeValue::Str(value.into())));
        }
    }
    call
}

/// Every step of a reply names the spans of its model call.
#[test]
fn a_step_names_a_few_spans_only() {
    let mut spans = vec![span(1, None, &[(KIND, "AGENT"), ("input.value", "task")])];
    spans.push(call_with_tool_calls(2, 1, 200));
    spans.extend((3..=3_000).map(|id| span(id, Some(2), &[(KIND, "LLM")])));
    let assembled = assemble(&spans);
    let steps = &assembled.trajectories[0].steps;
    let named: usize = steps.iter().map(|step| step.span_ids.len()).sum();
    assert!(steps.len() == 200 && named <= 200 * 64, "{} steps, {named} spans", steps.len());
    assert_eq!(steps[0].span_ids[0], "0000000000000002");
}

#[test]
fn many_calls_of_one_message() {
    let spans = [span(1, None, &[(KIND, "AGENT")]), call_with_tool_calls(2, 1, 200_000)];
    let assembled = assemble(&spans);
    assert_eq!(assembled.trajectories[0].steps.len(), 256);
    // Ids that come again are still one call, before and behind the place where they are hashed.
    let mut twice = call_with_tool_calls(2, 1, 40);
    for number in 0..40 {
        for (field, value) in [("id", format!("c{number}")), ("function.name", "search".to_owned())] {
            let key = format!("llm.output_messages.0.message.tool_calls.{}.tool_call.{field}", 100 + number);
            twice.attributes.0.push((key.into(), AttributeValue::Str(value.into())));
        }
    }
    let assembled = assemble(&[span(1, None, &[(KIND, "AGENT")]), twice]);
    assert_eq!(assembled.trajectories[0].steps.len(), 40);
}

/// Versions of one span that weigh the same are put in order by their content, which must not be written out for each
/// comparison.
#[test]
fn many_versions_of_one_span_that_share_a_large_resource() {
    let resource = Arc::new(SpanResource { attributes: text_attributes(&[("text", &"r".repeat(1 << 20))]) });
    let version = |number: usize| Span {
        resource: Arc::clone(&resource),
        name: format!("{number}").into(),
        ..span(1, None, &[(KIND, "TOOL"), ("tool.name", &format!("t{number}"))])
    };
    let mut spans: Vec<_> = (0..3_000).map(version).collect();
    let tool = |spans: &[Span<'_>]| {
        let assembled = assemble(spans);
        assert_eq!(assembled.trajectories.len(), 1);
        assert!(assembled.trajectories[0].defects.iter().any(|defect| defect.kind == DefectKind::ConflictingSpan));
        assembled.trajectories[0].steps[0].tool.clone()
    };
    let first = tool(&spans);
    spans.reverse();
    assert_eq!(tool(&spans), first);
}

/// A chain of tools that folds from its end: the ids must not be moved for each of them.
#[test]
fn a_chain_of_tools_that_folds_from_its_end() {
    const LENGTH: u64 = 100_000;
    let make = |id: u64| Span {
        start_ns: 1_000 + LENGTH - id,
        ..span(id, (id > 1).then(|| id - 1), &[(KIND, "TOOL"), ("tool.name", "t")])
    };
    let spans: Vec<_> = (1..=LENGTH).map(make).collect();
    let assembled = assemble(&spans);
    assert_eq!(assembled.trajectories.len(), 1);
    assert!(assembled.trajectories[0].steps.iter().all(|step| step.span_ids.len() <= 64));
}

/// Messages of one letter take forty times their text.
#[test]
fn messages_of_one_trace_are_bounded() {
    let list = format!("[{}]", vec!["\"x\""; 90_000].join(","));
    let call = |id| span(id, None, &[(KIND, "LLM"), ("llm.input_messages", &list)]);
    let few: Vec<_> = (1..=3).map(call).collect();
    assert!(!has_too_large(&assemble(&few)));
    let many: Vec<_> = (1..=14).map(call).collect();
    let assembled = assemble(&many);
    assert!(has_too_large(&assembled), "{:?}", assembled.defects);
    // The same in texts that are read last.
    let list = format!("{{\"messages\": {list}}}");
    let call = |id| span(id, None, &[(KIND, "LLM"), ("input.value", &list), ("output.value", "done")]);
    let many: Vec<_> = (1..=14).map(call).collect();
    assert!(has_too_large(&assemble(&many)));
}

/// Each event may hold a list of messages.
#[test]
fn messages_of_one_spans_events_are_bounded() {
    let list = format!("[{}]", vec!["\"x\""; 90_000].join(","));
    let event = SpanEvent {
        name: "gen_ai.client.inference.operation.details".into(),
        attributes: text_attributes(&[("gen_ai.input.messages", &list)]),
        ..SpanEvent::default()
    };
    let mut call = span(1, None, &[("gen_ai.operation.name", "chat")]);
    call.events = vec![event; 30];
    let facts = gradus_core::dialect::normalize_span(&call);
    assert!(facts.input.len() > 90_000 && facts.input.len() <= 200_000, "{}", facts.input.len());
}

/// What frames record is looked for in what was said to the model.
#[test]
fn frames_that_no_message_confirms() {
    let question = "w ".repeat(1 << 18);
    let call = span(
        2,
        Some(1),
        &[
            (KIND, "LLM"),
            ("llm.input_messages.0.message.role", "user"),
            ("llm.input_messages.0.message.content", &question),
            ("llm.output_messages.0.message.role", "assistant"),
            ("llm.output_messages.0.message.content", "done"),
        ],
    );
    let mut spans = vec![span(1, None, &[(KIND, "CHAIN")]), call];
    let frame = |id| span(id, Some(1), &[(KIND, "AGENT"), ("input.value", &format!("no such {id}"))]);
    spans.extend((3..=20_000).map(frame));
    let assembled = assemble(&spans);
    assert_eq!(assembled.trajectories[0].query.as_deref(), Some(question.trim()));
}

/// Within a session every call may look at the last requests of the conversations before it.
#[test]
fn a_session_of_calls_that_continue_nothing() {
    let call = |id: u64, count: usize| {
        let list: Vec<_> = (0..count).map(|_| json!({"role": "user", "content": "Error: x"})).collect();
        let mut call = span(
            id,
            None,
            &[
                (KIND, "LLM"),
                ("session.id", "s"),
                ("llm.input_messages", &json!(list).to_string()),
                ("llm.output_messages.0.message.content", &format!("reply {id}")),
            ],
        );
        call.trace_id = TraceId(id.into());
        call
    };
    let spans: Vec<_> = (1..=100).map(|id| call(id, 300)).collect();
    assert_eq!(assemble(&spans).trajectories.len(), 100);
}

fn copied(trajectory: &Trajectory) -> usize {
    let texts = trajectory.steps.iter().flat_map(|step| [&step.thought, &step.observation]);
    texts.flatten().map(String::len).sum()
}

#[test]
fn a_message_with_many_calls_does_not_copy_its_text_for_each() {
    let mut reply = ChatMessage::from_text(MessageRole::Assistant, "t".repeat(1 << 20));
    let call = ToolCall { name: "search".into(), ..ToolCall::default() };
    reply.parts.extend(vec![MessagePart::ToolCall(call); 2_000]);
    let trajectories = assemble_messages(&[ChatMessage::from_text(MessageRole::User, "find it"), reply], &[]);
    let [trajectory] = trajectories.as_slice() else { panic!() };
    assert!(trajectory.steps.len() == 2_000 && copied(trajectory) < 12 << 20, "{}", copied(trajectory));
    assert!(trajectory.defects.iter().any(|defect| defect.kind == DefectKind::TooLarge));
}

#[test]
fn a_transcript_with_many_calls_does_not_copy_its_texts_for_each() {
    let calls = vec![r#"{"tool": "a", "tool_input": "x"}"#; 2_000].join(",");
    let (thought, observation) = ("t".repeat(1 << 20), "o".repeat(1 << 20));
    let text = format!("Thought: {thought}\nAction: [{calls}]\nObservation: {observation}\n");
    let trajectories = assemble_transcript(&text);
    let [trajectory] = trajectories.as_slice() else { panic!() };
    assert!(trajectory.steps.len() == 2_000 && copied(trajectory) < 12 << 20, "{}", copied(trajectory));
    assert_eq!(trajectory.steps[0].observation.as_deref(), Some(observation.as_str()));
}

/// One long key above many values.
fn deep_attributes() -> serde_json::Value {
    let below: serde_json::Map<String, serde_json::Value> =
        (0..5_000).map(|number| (format!("k{number}"), json!(1))).collect();
    json!({"k".repeat(100_000): below, "plain": {"a": {"b": 1}}})
}

#[test]
fn paths_of_nested_attributes_are_bounded() {
    let object = json!({"context": {"trace_id": "1", "span_id": "2"}, "attributes": deep_attributes()});
    let span = read_phoenix_span(object.as_object().unwrap());
    let bytes: usize = span.attributes.iter().map(|(key, _)| key.len()).sum();
    assert!(bytes < 1 << 20, "{bytes}");
    assert_eq!(span.attributes.get("plain.a.b"), Some(&AttributeValue::Int(1)));
}
