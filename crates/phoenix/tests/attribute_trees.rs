//! Whatever attributes spans carry, under whatever keys, assembling them ends well, and every model call and tool run
//! is accounted for.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::borrow::Cow;
use std::collections::HashSet;

use gradus_core::assemble::TrajectoryAssembler;
use gradus_core::dialect::{self, OperationKind};
use gradus_core::span::{AttributeList, AttributeValue, Span, SpanEvent, SpanId, SpanStatus, StatusCode, TraceId};
use gradus_phoenix::span_view::{PhoenixSpan, SpanKind, look_up_path};
use proptest::prelude::*;

const KEYS: [&str; 46] = [
    "openinference.span.kind",
    "input.value",
    "output.value",
    "session.id",
    "tool.name",
    "tool.parameters",
    "tool.id",
    "metadata",
    "crew_tasks",
    "llm.input_messages.0.message.role",
    "llm.input_messages.0.message.content",
    "llm.input_messages.7.message.tool_calls.3.tool_call.id",
    "llm.output_messages.0.message.content",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments",
    "llm.output_messages.1.message.contents.2.message_content.text",
    "llm.input_messages",
    "llm.output_messages.",
    "llm.tools",
    "llm.tools.0.tool.json_schema",
    "llm.token_count.prompt",
    "llm.prompts.0.prompt.text",
    "llm.choices.0.completion.text",
    "gen_ai.operation.name",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "gen_ai.tool.name",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.prompt.0.content",
    "gen_ai.completion.0.tool_calls.0.name",
    "gen_ai.request.model",
    "traceloop.span.kind",
    "traceloop.entity.name",
    "traceloop.entity.output",
    "ai.operationId",
    "ai.prompt",
    "ai.response.toolCalls",
    "ai.toolCall.result",
    "gcp.vertex.agent.llm_request",
    "gcp.vertex.agent.llm_response",
    "all_messages_events",
    "events",
    "tool_response",
    "mastra.agent_run.input",
];

const TEXTS: [&str; 30] = [
    "LLM",
    "TOOL",
    "AGENT",
    "CHAIN",
    "chat",
    "execute_tool",
    "invoke_agent",
    "tool",
    "ai.toolCall",
    "ai.generateText.doGenerate",
    "find",
    "user",
    "assistant",
    "final_answer",
    "{\"a\": 1}",
    "{'a': None}",
    "[[[[",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}",
    "[{\"role\": \"assistant\", \"parts\": [{\"type\": \"tool_call\", \"id\": \"c\", \"name\": \"f\", \"arguments\": \"{\"}]}]",
    "[{\"role\": \"tool\", \"parts\": [{\"type\": \"tool_call_response\", \"id\": \"c\", \"response\": {\"result\": 3}}]}]",
    "Thought: t\nAction: f\nAction Input: {\"a\": ",
    "Thought: t\n<code>\nf(1)\n",
    "Thought: t\nAnswer: a",
    "[true, {\"content\": \"x\"}]",
    "{\"blocks\": [{\"text\": \"x\"}], \"tool_name\": \"f\", \"raw_input\": {}}",
    "\"\\\"twice\\\"\"",
    "{\"kwargs\": {}}",
    "é🐛\u{202e}",
    "",
    "18446744073709551615",
];

fn value() -> impl Strategy<Value = AttributeValue<'static>> {
    let text = prop_oneof![
        8 => prop::sample::select(TEXTS.to_vec()).prop_map(str::to_owned),
        1 => ".{0,30}",
    ];
    let leaf = prop_oneof![
        8 => text.prop_map(|text| AttributeValue::Str(Cow::Owned(text))),
        1 => any::<i64>().prop_map(AttributeValue::Int),
        1 => any::<f64>().prop_map(AttributeValue::Double),
        1 => any::<bool>().prop_map(AttributeValue::Bool),
        1 => Just(AttributeValue::Null),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(AttributeValue::Array),
            prop::collection::vec((prop::sample::select(KEYS.to_vec()), inner), 0..4).prop_map(|pairs| {
                AttributeValue::Map(pairs.into_iter().map(|(key, value)| (Cow::Borrowed(key), value)).collect())
            }),
        ]
    })
}

fn attributes(most: usize) -> impl Strategy<Value = AttributeList<'static>> {
    let pair = (prop::sample::select(KEYS.to_vec()), value()).prop_map(|(key, value)| (Cow::Borrowed(key), value));
    prop::collection::vec(pair, 0..most).prop_map(AttributeList)
}

fn span() -> impl Strategy<Value = Span<'static>> {
    let event = (
        prop::sample::select(vec!["exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"]),
        attributes(4),
        prop::option::of(value()),
    )
        .prop_map(|(name, attributes, body)| SpanEvent { name: Cow::Borrowed(name), time_ns: 1, attributes, body });
    // Few ids, so that spans repeat, miss their parents and form circles.
    let ids = (0u128..3, 0u64..8, prop::option::of(0u64..8));
    (ids, 0u64..50, 0u64..50, attributes(10), prop::collection::vec(event, 0..3), any::<bool>()).prop_map(
        |((trace, id, parent), start_ns, length, attributes, events, failed)| Span {
            trace_id: TraceId(trace),
            span_id: SpanId(id),
            parent_id: parent.map(SpanId),
            name: Cow::Borrowed("span"),
            start_ns,
            end_ns: start_ns + length,
            status: SpanStatus {
                code: if failed { StatusCode::Error } else { StatusCode::Ok },
                message: Cow::Borrowed(""),
            },
            attributes,
            events,
            ..Span::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_attributes_are_survived_and_accounted_for(spans in prop::collection::vec(span(), 0..14)) {
        let assembled = TrajectoryAssembler::default().assemble(&spans);
        let mut told: HashSet<String> = assembled.defects.iter().filter_map(|defect| defect.span_id.clone()).collect();
        for trajectory in &assembled.trajectories {
            // What comes out must be a line of JSON again.
            let line = serde_json::to_string(trajectory).unwrap();
            prop_assert!(!line.contains('\n'));
            told.extend(trajectory.answer_span_ids.iter().cloned());
            told.extend(trajectory.steps.iter().flat_map(|step| step.span_ids.iter().cloned()));
            told.extend(trajectory.defects.iter().filter_map(|defect| defect.span_id.clone()));
        }
        // A span that came in one version only, with an id of its own over all traces.
        for span in &spans {
            let alone = spans.iter().filter(|other| other.span_id == span.span_id).count() == 1 && span.span_id.0 != 0;
            let kind = dialect::normalize_span(span).kind;
            if alone && matches!(kind, OperationKind::Model | OperationKind::Tool) {
                prop_assert!(told.contains(&span.span_id.to_string()), "{kind:?} {} of {spans:#?}", span.span_id);
            }
        }
    }

    #[test]
    fn any_span_can_be_listed_as_phoenix_does(span in span()) {
        let view = PhoenixSpan::new(&span);
        let kind = view.kind();
        let recorded = look_up_path(view.attributes(), "openinference.span.kind").and_then(serde_json::Value::as_str);
        prop_assert_eq!(kind, SpanKind::parse(recorded.unwrap_or_default()), "a glance and the tree agree");
        let listed = view.to_listing_json();
        let flat = listed["attributes"].as_object().unwrap();
        prop_assert!(flat.values().all(|value| !value.is_object() && !value.is_null()), "{flat:?}");
        let events = span.events.iter().filter(|event| event.body.is_none()).count();
        prop_assert_eq!(listed["events"].as_array().unwrap().len(), events);
    }

    #[test]
    fn the_order_of_spans_changes_nothing(spans in prop::collection::vec(span(), 0..10), seed in any::<u64>()) {
        let wanted = TrajectoryAssembler::default().assemble(&spans).trajectories;
        let mut shuffled = spans.clone();
        let mut state = seed | 1;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        let got = TrajectoryAssembler::default().assemble(&shuffled).trajectories;
        prop_assert_eq!(format!("{:?}", got), format!("{:?}", wanted));
    }
}
