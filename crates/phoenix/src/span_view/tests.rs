use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use gradus_core::span::{AttributeList, SpanId, SpanStatus, TraceId};

fn span(attributes: &Json) -> Span<'static> {
    let attributes = attributes.as_object().unwrap().clone().into_iter();
    let attributes = attributes.map(|(key, value)| (Cow::Owned(key), AttributeValue::from_json(value)));
    Span { attributes: AttributeList(attributes.collect()), ..Span::default() }
}

fn nested(attributes: &Json) -> Json {
    Json::Object(PhoenixSpan::new(&span(attributes)).attributes().clone())
}

fn flat(attributes: &Json) -> Json {
    Json::Object(PhoenixSpan::new(&span(attributes)).flat_attributes())
}

fn kind(attributes: &Json) -> &'static str {
    let span = span(attributes);
    let quick = PhoenixSpan::new(&span).kind();
    assert_eq!(quick, PhoenixSpan::new(&span).recorded_kind(), "a glance and the tree agree: {attributes}");
    quick.as_str()
}

#[test]
fn kinds_in_any_case_and_from_operations() {
    assert_eq!(kind(&json!({"openinference.span.kind": "llm"})), "LLM");
    assert_eq!(kind(&json!({"openinference.span.kind": "Guardrail"})), "GUARDRAIL");
    assert_eq!(kind(&json!({"openinference.span.kind": "ROBOT"})), "UNKNOWN");
    assert_eq!(kind(&json!({"openinference.span.kind": 5})), "UNKNOWN");
    assert_eq!(kind(&json!({})), "UNKNOWN");
    assert_eq!(kind(&json!({"openinference": {"span": {"kind": "TOOL"}}})), "TOOL");
    assert_eq!(kind(&json!({"openinference": 1, "openinference.span.kind": "TOOL"})), "UNKNOWN");
    assert_eq!(kind(&json!({"gen_ai.operation.name": "chat"})), "LLM");
    assert_eq!(kind(&json!({"gen_ai.operation.name": "invoke_agent"})), "AGENT");
    assert_eq!(kind(&json!({"gen_ai.operation.name": "invoke_workflow", "gen_ai.tool.name": "x"})), "UNKNOWN");
    assert_eq!(kind(&json!({"gen_ai.tool.name": "find"})), "TOOL");
    assert_eq!(kind(&json!({"gen_ai.tool.name": "", "gen_ai.request.model": "m"})), "LLM");
    let both = json!({"openinference.span.kind": "CHAIN", "gen_ai.operation.name": "chat"});
    assert_eq!(kind(&both), "CHAIN");
}

#[test]
fn the_listed_kind_is_the_recorded_text() {
    let lower = span(&json!({"openinference.span.kind": "llm"}));
    assert_eq!(PhoenixSpan::new(&lower).listed_kind(), "llm");
    assert_eq!(PhoenixSpan::new(&Span::default()).listed_kind(), "UNKNOWN");
}

#[test]
fn some_texts_are_json() {
    let attributes = json!({
        "metadata": "{\"topic\": \"agent\", \"n\": [1]}",
        "my_metadata": "5",
        "tool.parameters": "{'not': 'json'}",
        "retrieval.documents.0.document.metadata": "null",
        "input.value": "{\"stays\": \"text\"}",
    });
    let wanted = json!({
        "metadata": {"topic": "agent", "n": [1]},
        "my_metadata": 5,
        "tool": {"parameters": "{'not': 'json'}"},
        "input": {"value": "{\"stays\": \"text\"}"},
    });
    assert_eq!(nested(&attributes), wanted);
    assert_eq!(flat(&json!({"metadata": "{\"a\": {\"b\": [1, {\"c\": 2}]}}"})), json!({"metadata.a.b.1.c": 2}));
}

#[test]
fn an_input_that_is_no_text_becomes_one() {
    let input = json!({"input.value": {"q": ["é", 1.0]}, "input.mime_type": "text/plain"});
    let wanted = json!({"input": {"value": "{\"q\": [\"\\u00e9\", 1.0]}", "mime_type": "application/json"}});
    assert_eq!(nested(&input), wanted);
    assert_eq!(nested(&json!({"input.value": 0})), json!({"input": {"value": 0}}));
}

#[test]
fn token_counts_are_whole_numbers() {
    let counts = json!({
        "openinference.span.kind": "LLM",
        "llm.token_count.prompt": "12",
        "llm.token_count.completion": 7.9,
        "llm.token_count.total": "many",
    });
    let span = span(&counts);
    let view = PhoenixSpan::new(&span);
    let wanted = json!({"prompt": 12, "completion": 7, "total": "many"});
    assert_eq!(look_up_path(view.attributes(), "llm.token_count"), Some(&wanted));
    assert_eq!(view.own_tokens(), Some((12, 7)));
}

#[test]
fn messages_of_the_genai_convention_are_mapped() {
    let attributes = json!({
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "OpenAI",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ["END"],
        "gen_ai.output.type": "json",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": "5",
        "gen_ai.conversation.id": "c1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.id": "r1",
        "gen_ai.system_instructions": "[{\"type\":\"text\",\"content\":\"Be kind.\"}]",
        "gen_ai.input.messages": "[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"content\":\"Hi\"}]},\
            {\"role\":\"tool\",\"parts\":[{\"type\":\"tool_call_response\",\"id\":\"t1\",\"response\":{\"n\":1}}]}]",
        "gen_ai.output.messages": "[{\"role\":\"assistant\",\"finish_reason\":\"tool_call\",\"parts\":[\
            {\"type\":\"reasoning\",\"content\":\"Hm.\"},{\"type\":\"text\",\"content\":\"I look.\"},\
            {\"type\":\"tool_call\",\"id\":\"t2\",\"name\":\"find\",\"arguments\":{\"q\":\"é\"}},\
            {\"type\":\"text\"},{\"type\":\"robot\",\"x\":1}]}]",
        "gen_ai.tool.definitions": "[{\"name\":\"find\",\"description\":\"\",\"parameters\":{\"type\":\"object\"}}]",
    });
    let flat = flat(&attributes);
    let made = |key: &str| flat.get(key).cloned().unwrap_or_default();
    assert_eq!(made("llm.provider"), "openai");
    assert_eq!(made("llm.model_name"), "gpt-4o");
    let parameters = "{\"temperature\": 0.5, \"stop\": [\"END\"], \"response_format\": {\"type\": \"json_object\"}}";
    assert_eq!(made("llm.invocation_parameters"), parameters);
    assert_eq!(made("llm.token_count.total"), 15);
    assert_eq!(made("session.id"), "c1");
    assert_eq!(made("llm.finish_reason"), "stop");
    assert_eq!(made("output.value"), "{\"id\": \"r1\"}");
    assert_eq!(made("output.mime_type"), "application/json");
    assert_eq!(made("llm.input_messages.0.message.role"), "system");
    assert_eq!(made("llm.input_messages.0.message.content"), "Be kind.");
    assert_eq!(made("llm.input_messages.1.message.content"), "Hi");
    assert_eq!(made("llm.input_messages.2.message.tool_call_id"), "t1");
    assert_eq!(made("llm.input_messages.2.message.content"), "{\"n\": 1}");
    let reply = |key: &str| made(&format!("llm.output_messages.0.message.{key}"));
    assert_eq!(reply("finish_reason"), "tool_call");
    assert_eq!(reply("contents.0.message_content.type"), "reasoning");
    assert_eq!(reply("contents.1.message_content.text"), "I look.");
    assert_eq!(reply("tool_calls.0.tool_call.function.arguments"), "{\"q\": \"é\"}");
    let schema = "{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": {\"type\": \"object\"}}}";
    assert_eq!(made("llm.tools.0.tool.json_schema"), schema);
}

#[test]
fn what_a_span_says_itself_stands() {
    let reply =
        "[{\"role\":\"assistant\",\"finish_reason\":\"stop\",\"parts\":[{\"type\":\"text\",\"content\":\"b\"}]}]";
    let attributes = json!({
        "gen_ai.output.messages": reply,
        "gen_ai.request.model": "theirs",
        "llm.model_name": "ours",
        "llm.output_messages.3.message.content": "a",
    });
    let flat = flat(&attributes);
    assert_eq!(flat.get("llm.model_name"), Some(&json!("ours")));
    assert_eq!(flat.get("llm.output_messages.0.message.content"), Some(&json!("a")), "the list has one message");
    assert_eq!(flat.get("llm.output_messages.0.message.role"), None);
}

#[test]
fn one_bad_message_takes_its_list_away() {
    let broken = [
        json!({"gen_ai.input.messages": "[{\"role\":\"user\",\"parts\":[]},{\"role\":1,\"parts\":[]}]"}),
        json!({"gen_ai.input.messages": "[{\"role\":\"user\",\"parts\":[{\"content\":\"no type\"}]}]"}),
        json!({"gen_ai.output.messages": "[{\"role\":\"assistant\",\"parts\":[]}]"}),
        json!({"gen_ai.input.messages": "not JSON"}),
    ];
    for attributes in broken {
        let made = nested(&attributes);
        assert_eq!(made.get("llm"), None, "{attributes}");
    }
}

#[test]
fn tools_and_documents() {
    let tool = json!({
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "find",
        "gen_ai.tool.call.arguments": "{\"q\": 1}",
        "gen_ai.tool.call.result": "[1]",
    });
    let made = nested(&tool);
    assert_eq!(made["tool"], json!({"name": "find", "parameters": {"q": 1}}));
    assert_eq!(made["output"], json!({"value": "[1]", "mime_type": "application/json"}));
    let found = json!({
        "gen_ai.retrieval.query.text": "lamps",
        "gen_ai.retrieval.documents": "[{\"id\":\"d\",\"score\":1,\"content\":\"c\",\"metadata\":{\"a\":1}}]",
    });
    let made = nested(&found);
    assert_eq!(made["input"], json!({"value": "lamps", "mime_type": "text/plain"}));
    let document = json!({"document": {"id": "d", "score": 1.0, "content": "c", "metadata": {"a": 1}}});
    assert_eq!(made["retrieval"], json!({"documents": [document]}));
}

#[test]
fn a_span_as_it_is_listed() {
    let exception = [
        (Cow::Borrowed("exception.type"), AttributeValue::Str(Cow::Borrowed("ValueError"))),
        (Cow::Borrowed("thread"), AttributeValue::Int(1)),
    ];
    let attributes = AttributeList(exception.to_vec());
    let event =
        SpanEvent { name: Cow::Borrowed("exception"), time_ns: 1_000_000_000, attributes, ..SpanEvent::default() };
    let log = SpanEvent { name: Cow::Borrowed("log"), body: Some(AttributeValue::Null), ..SpanEvent::default() };
    let span = Span {
        trace_id: TraceId(1),
        span_id: SpanId(2),
        parent_id: Some(SpanId(3)),
        name: Cow::Borrowed("work"),
        start_ns: 1_000_000_000,
        end_ns: 1_500_000_000,
        status: SpanStatus { code: StatusCode::Error, message: Cow::Borrowed("bad") },
        events: vec![event, log],
        ..Span::default()
    };
    let wanted = json!({
        "name": "work",
        "context": {"trace_id": "00000000000000000000000000000001", "span_id": "0000000000000002"},
        "span_kind": "UNKNOWN",
        "parent_id": "0000000000000003",
        "start_time": "1970-01-01T00:00:01+00:00",
        "end_time": "1970-01-01T00:00:01.500000+00:00",
        "status_code": "ERROR",
        "status_message": "bad",
        "attributes": {},
        "events": [{
            "name": "exception",
            "timestamp": "1970-01-01T00:00:01+00:00",
            "attributes": {"exception.type": "ValueError", "exception.message": ""},
        }],
    });
    let view = PhoenixSpan::new(&span);
    assert_eq!(view.to_listing_json(), wanted);
    assert_eq!(view.latency_ms(), 500.0);
}

#[test]
fn a_glance_sees_plain_attributes() {
    let attributes = json!({
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-4o",
        "llm.token_count.total": 12,
        "llm.input_messages.0.message.role": "user",
        "metadata": "{}",
        "my_attr": 1.5,
    });
    let span = span(&attributes);
    let glance = |path| PhoenixSpan::new(&span).peek_attribute(path);
    assert_eq!(glance("llm.model_name"), AttributeLookup::Text("gpt-4o"));
    assert_eq!(glance("llm.token_count.total"), AttributeLookup::Number(12.into()));
    assert_eq!(glance("session.id"), AttributeLookup::Missing);
    assert_eq!(glance("llm.model"), AttributeLookup::Missing);
    for path in
        ["llm", "llm.model_name.x", "metadata", "metadata.topic", "my_attr", "llm.input_messages.x", "input", ""]
    {
        assert_eq!(glance(path), AttributeLookup::Unknown, "{path}");
    }
    let built = PhoenixSpan::new(&span);
    built.attributes();
    assert_eq!(built.peek_attribute("llm.model_name"), AttributeLookup::Unknown, "the tree is there");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fractions_in_json_texts_are_exact(number in 0.0..1.0_f64) {
        let span = span(&json!({"metadata": format!("{{\"x\": {number}}}")}));
        let view = PhoenixSpan::new(&span);
        prop_assert_eq!(look_up_path(view.attributes(), "metadata.x").and_then(Json::as_f64), Some(number));
    }

    #[test]
    fn a_glance_and_the_tree_agree(
        keys in prop::collection::vec(("( ?(a|b|0|input|value|metadata) ?\\.?){1,3}", 0..5_usize), 0..6),
        path in "(a|b|input|value|metadata)(\\.(a|b|value)){0,2}",
    ) {
        let values = [json!("x"), json!(1), json!({"a": 1}), json!("{\"a\": \"x\"}"), json!(2.5)];
        let pairs = keys.into_iter().map(|(key, value)| (Cow::Owned(key), AttributeValue::from_json(values[value].clone())));
        let span = Span { attributes: AttributeList(pairs.collect()), ..Span::default() };
        let view = PhoenixSpan::new(&span);
        let seen = match view.peek_attribute(&path) {
            AttributeLookup::Missing => None,
            AttributeLookup::Text(text) => Some(Json::from(text)),
            AttributeLookup::Number(number) => Some(Json::Number(number)),
            AttributeLookup::Unknown => return Ok(()),
        };
        prop_assert_eq!(seen.as_ref(), look_up_path(view.attributes(), &path), "{:?}", span.attributes);
    }
}
