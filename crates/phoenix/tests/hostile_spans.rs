//! Small spans that ask for much memory or time when they are shown as Phoenix shows them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::borrow::Cow;

use gradus_core::span::{AttributeList, AttributeValue, Span, SpanId, TraceId};
use gradus_phoenix::span_view::PhoenixSpan;
use serde_json::json;

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

/// One long key above many values.
fn deep_attributes() -> serde_json::Value {
    let below: serde_json::Map<String, serde_json::Value> =
        (0..5_000).map(|number| (format!("k{number}"), json!(1))).collect();
    json!({"k".repeat(100_000): below, "plain": {"a": {"b": 1}}})
}

#[test]
fn paths_of_listed_attributes_are_bounded() {
    // A text that Phoenix reads as JSON, under a name that is none of the convention's.
    let text = deep_attributes().to_string();
    let span = self::span(1, None, &[("my.tool.parameters", &text)]);
    let view = PhoenixSpan::new(&span);
    let flat = view.flat_attributes();
    let bytes: usize = flat.keys().map(String::len).sum();
    assert!(bytes < 1 << 20, "{bytes}");
    assert_eq!(flat["my.tool.parameters.plain.a.b"], json!(1));
    let frame = json!(view.frame_attributes()).to_string().len();
    assert!(frame < 1 << 20, "{frame}");
}

/// What Phoenix makes of GenAI messages is compared with what the span has itself.
#[test]
fn many_messages_beside_many_attributes() {
    let list: Vec<_> = (0..15_000)
        .map(|number| json!({"role": "user", "parts": [{"type": "text", "content": number.to_string()}]}))
        .collect();
    let mut call = span(1, None, &[("gen_ai.input.messages", &json!(list).to_string())]);
    let key = |number: usize| format!("llm.xnput_messages.{number}.message.content");
    call.attributes.0.extend((0..60_000).map(|number| (key(number).into(), AttributeValue::Int(1))));
    let view = PhoenixSpan::new(&call);
    assert_eq!(view.attributes()["llm"]["input_messages"].as_array().unwrap().len(), 15_000);
}
