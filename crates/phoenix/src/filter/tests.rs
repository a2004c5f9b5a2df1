use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::span_view::SpanKind;
use gradus_core::span::{AttributeList, AttributeValue, Span, SpanId, SpanStatus, StatusCode, TraceId};

/// Filters that Phoenix takes, and whether they are true of the span that `look` makes.
const ACCEPTED: [(&str, bool); 70] = [
    ("span_kind == 'LLM'", true),
    ("span_kind == 'llm'", true),
    ("span_kind in ['LLM', 'TOOL']", true),
    ("span_kind in ('LLM',)", true),
    ("span_kind != 'LLM' and not (name == 'x')", false),
    ("name == 'foo' or 'foo' in name", true),
    ("'foo' not in name", false),
    ("parent_id is None", false),
    ("parent_id == None", false),
    ("parent_span is None", true),
    ("parent_span is not None", false),
    ("status_code == 'ERROR'", true),
    ("'timeout' in status_message", true),
    ("latency_ms > 1000", true),
    ("latency_ms >= 100 and latency_ms < 500", false),
    ("100 < latency_ms < 5000", true),
    ("start_time > '2026-01-01T00:00:00Z'", true),
    ("llm.token_count.total > 100", true),
    // Two attributes are put one behind the other: 10020 is more than 1000.
    ("llm.token_count.prompt + llm.token_count.completion > 1000", true),
    ("cumulative_token_count.total > 5", true),
    ("cumulative_llm_token_count_total > 5000", false),
    ("llm.model_name == 'gpt-4o'", true),
    ("attributes['llm']['model_name'] == 'gpt-4o'", true),
    ("attributes['llm.model_name'] == 'gpt-4o'", false),
    ("attributes[['llm','model_name']] == 'gpt-4o'", true),
    ("input.value == 'x'", false),
    ("'refund' in input.value", true),
    ("'refund' in output.value", false),
    ("metadata['topic'] == 'agent'", true),
    ("metadata['a']['b'] == 'c'", true),
    ("metadata['count'] > 3", true),
    ("metadata['flag'] == True", true),
    ("metadata['flag'] is True", true),
    ("float(metadata['count']) > 3", true),
    ("int(metadata['count']) > 3", true),
    ("str(metadata['count']) == '5'", true),
    ("attributes['llm']['output_messages'][0]['message']['content'] == 'x'", true),
    ("evals['hallucination'].label == 'bad'", true),
    ("evals['hallucination'].score < 0.5", true),
    ("evals['hallucination'].label is None", false),
    ("annotations['hallucination'].label != 'ok'", true),
    ("annotations['hallucination']", true),
    ("not annotations['hallucination']", false),
    ("annotations['h'].explanation == 'x'", false),
    ("'because' in annotations['hallucination'].explanation", true),
    ("annotations['hallucination'].identifier == 'v1'", true),
    ("trace_annotations['task'].score > 0.5", true),
    ("total_cost > 0.01", true),
    ("any(d.cost > 0.1 for d in cost_details)", true),
    ("sum(d.tokens for d in cost_details) > 5", true),
    ("sum([d.tokens for d in cost_details if d.is_prompt]) == 100", true),
    ("all(d.cost > 0.1 for d in cost_details)", false),
    ("len([d for d in cost_details if not d.is_prompt and 'OUT' in d.token_type]) == 1", true),
    ("max(d.cost_per_token for d in cost_details) is None", true),
    ("min(d.cost * 2 for d in cost_details) < 0.5 and span_kind == 'LLM'", true),
    ("not all(d.token_type in ['input'] for d in cost_details if d.cost is not None)", true),
    ("session.id == 's1'", true),
    ("user.id == 'u'", false),
    ("trace_id == '000000000000000000000000000000ab'", true),
    ("context.trace_id == 'abc'", false),
    ("span_id in ['a','00000000000000cd']", true),
    ("events == 1", false),
    ("custom.attr == 'x'", false),
    ("my_attr == 'x'", false),
    ("my_attr > 3", true),
    ("latency_ms / 1000 > 2", true),
    ("latency_ms % 2 == 0", true),
    ("-latency_ms < 0", true),
    ("1 == 1", true),
    ("tool.name == 'lookup' and span_kind == 'TOOL'", false),
];

/// Filters that Phoenix refuses, and the beginning of what is said about them.
const REFUSED: [(&str, &str); 44] = [
    ("name.startswith('x')", "invalid expression: name.startswith('x'), at character 1"),
    ("name.contains('x')", "invalid expression"),
    ("name.upper() == 'X'", "invalid expression"),
    ("llm.output_messages[0].message.content == 'x'", "invalid expression"),
    ("llm.tools[0].tool.json_schema == 'x'", "invalid expression"),
    ("len(name) > 3", "`len(...)` takes a loop over cost_details, such as `len([d for d in cost_details])`"),
    ("any(x.cost > 1 for x in spans)", "cannot loop over `spans`, only over cost_details, at character 25"),
    ("sum(d.cost for d in cost_details)", "`sum(d.cost for d in cost_details)` is not a condition"),
    ("any(d.cost for d in cost_details)", "`d.cost` is not a condition"),
    ("any(name == 'x' for d in cost_details)", "`name` cannot be used inside this loop; `d` has .token_type"),
    ("any(d.price > 1 for d in cost_details)", "`d.price` cannot be used inside this loop"),
    ("len(d for d in cost_details) > 1", "`len` counts details"),
    ("any(d.cost == 'x' for d in cost_details)", "these two cannot be compared"),
    ("any(d.token_type < 'x' for d in cost_details)", "inside a loop only numbers have an order"),
    ("[d for d in cost_details] == 1", "a loop can only stand in any"),
    ("(d.cost for d in cost_details) == 1", "invalid syntax at character 1: a loop can only stand in any"),
    ("any(d.cost > 1 for d, e in cost_details)", "invalid syntax at character 21: `,`; expected `in`"),
    ("lambda: 1", "invalid syntax at character 1: `lambda`"),
    ("__import__('os')", "invalid expression: __import__('os')"),
    ("name == 1", "cannot compare string and number, at character 1"),
    ("True", "`True` is not a condition on its own"),
    ("name", "`name` is not a condition; compare it, as in `name == ...`, at character 1"),
    ("re.match('a', name)", "invalid expression"),
    ("span_kind = 3", "invalid syntax at character 11: `=`; expected `==`"),
    ("name == 'x' and", "invalid syntax at character 16: the filter ends here; expected a name"),
    ("name == 'x", "invalid syntax at character 9: this text has no end"),
    ("(name == 'x'", "invalid syntax at character 13: the filter ends here; expected `,`"),
    ("name == 'x' name", "invalid syntax at character 13: `name`; expected an operator"),
    ("name is 'x'", "`is` goes with None, True or False only"),
    ("'x' in ['x']", "this compares two values"),
    ("name in [None]", "None in a list never matches"),
    ("name in ['a', 1]", "cannot compare string and number, at character 15"),
    ("'x' in 'xyz'", "`in` needs a list or a text field"),
    ("start_time > '2026-01-01T00:00:00'", "the time '2026-01-01T00:00:00' has no time zone"),
    ("start_time > 'now'", "'now' is no time"),
    ("start_time > metadata['x']", "cannot compare a time with an attribute"),
    ("parent_span.name == 'x'", "only `parent_span is None`"),
    ("annotations['x'].foo == 1", "an annotation has no `.foo`"),
    ("annotations[1].label == 'x'", "an annotation is named by a text"),
    ("7 // 2 == 3", "invalid syntax at character 3: `//`; arithmetic has + - * / %"),
    ("metadata['a'] and name == 'x'", "`metadata['a']` is not a condition"),
    ("float(name) == 1", "cannot cast string to number"),
    ("name < None", "None has no order"),
    ("n\u{ff41}me == 'x'", "invalid syntax at character 1: `\u{ff41}` stands for another letter"),
];

struct Around;

impl SpanFilterContext for Around {
    fn has_parent(&self) -> bool {
        false
    }

    fn cumulative_tokens(&self) -> TokenSums {
        TokenSums { prompt: 100, completion: 20 }
    }

    fn cost(&self) -> SpanCostTotals {
        SpanCostTotals { total: Some(0.5), ..SpanCostTotals::default() }
    }

    fn cost_details(&self) -> Vec<CostDetail> {
        let detail = |token_type: &str, is_prompt, cost, tokens| CostDetail {
            token_type: token_type.to_owned(),
            is_prompt,
            cost,
            tokens: Some(tokens),
            cost_per_token: None,
        };
        vec![
            detail("input", true, Some(0.4), 100.0),
            detail("output", false, Some(0.1), 20.0),
            detail("audio", true, None, 0.0),
        ]
    }

    fn annotations(&self, scope: AnnotationScope, name: &str) -> Vec<FilterableAnnotation> {
        let note = |label: &str, score, identifier: &str| FilterableAnnotation {
            label: Some(label.to_owned()),
            score: Some(score),
            explanation: Some("Because.".to_owned()),
            identifier: identifier.to_owned(),
        };
        match (scope, name) {
            (AnnotationScope::Span, "hallucination") => {
                vec![note("bad", 0.25, "v1"), note("good", 0.75, "v2")]
            }
            (AnnotationScope::Trace, "task") => vec![note("done", 1.0, "")],
            _ => Vec::new(),
        }
    }
}

fn span(attributes: &Json) -> Span<'static> {
    let attributes = attributes.as_object().unwrap().clone().into_iter();
    let attributes = attributes.map(|(key, value)| (Cow::Owned(key), AttributeValue::from_json(value)));
    Span {
        trace_id: TraceId(0xab),
        span_id: SpanId(0xcd),
        parent_id: Some(SpanId(0xef)),
        name: Cow::Borrowed("Foo bar"),
        start_ns: 1_790_000_000_000_000_000,
        end_ns: 1_790_000_002_500_000_000,
        status: SpanStatus { code: StatusCode::Error, message: Cow::Borrowed("Timeout!") },
        attributes: AttributeList(attributes.collect()),
        ..Span::default()
    }
}

fn look() -> Span<'static> {
    span(&json!({
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-4o",
        "llm.token_count.prompt": 100,
        "llm.token_count.completion": 20,
        "llm.token_count.total": 120,
        "llm.output_messages.0.message.content": "x",
        "input.value": "I want a REFUND.",
        "metadata": "{\"topic\": \"agent\", \"a\": {\"b\": \"c\"}, \"count\": \"5\", \"flag\": true, \"none\": null}",
        "session.id": "s1",
        "my_attr": 4,
    }))
}

fn holds(text: &str, span: &Span<'_>) -> bool {
    let filter = FilterExpression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    filter.matches(&PhoenixSpan::new(span), &Around)
}

#[test]
fn what_phoenix_takes() {
    let span = look();
    for (text, wanted) in ACCEPTED {
        assert_eq!(holds(text, &span), wanted, "{text}");
    }
}

#[test]
fn what_phoenix_refuses() {
    for (text, reason) in REFUSED {
        let error = FilterExpression::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(reason), "{text}: {error}");
        assert!(!error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn unknown_is_neither_true_nor_false() {
    let span = look();
    let unknown = [
        "metadata['x'] == 'a'",
        "metadata['x'] != 'a'",
        "metadata['none'] != 'a'",
        "not (metadata['x'] == 'a')",
        "metadata['x'] > 1",
        "metadata['x'] not in ['a']",
        "'a' in metadata['x']",
        "'a' not in metadata['x']",
        "metadata['topic'] > 1",
        "metadata['topic'] == True",
        "latency_ms / 0 == latency_ms / 0",
        "annotations['none'].label != 'x'",
        "metadata['x'] == 'a' and name == 'Foo bar'",
        "not (metadata['x'] == 'a' or name == 'no')",
    ];
    for text in unknown {
        assert!(!holds(text, &span), "{text}");
    }
    assert!(holds("metadata['x'] == 'a' or name == 'Foo bar'", &span));
    assert!(holds("not (metadata['x'] == 'a' and name == 'no')", &span));
    assert!(holds("metadata['x'] not in []", &span));
    assert!(holds("metadata['none'] is None and metadata['x'] is None", &span));
}

#[test]
fn annotations_are_tried_one_by_one() {
    let span = look();
    assert!(holds("annotations['hallucination'].label == 'good'", &span));
    assert!(!holds("annotations['hallucination'].label == 'good' and annotations['hallucination'].score < 0.5", &span));
    assert!(holds("annotations['hallucination'].score > 0.5 and trace_annotations['task'].label == 'done'", &span));
    assert!(holds("annotations['none'].label is None and not annotations['none']", &span));
}

#[test]
fn python_texts_and_numbers() {
    let span = look();
    let same = [
        r"name == 'Foo\x20bar'",
        r"name == '\u0046oo \142ar'",
        "name == \"Foo\" ' bar'",
        "name == '''Foo bar'''",
        "name == r'Foo bar'",
        "my_attr == 0x4 and my_attr == 4. and my_attr == .4e1 and my_attr == 0b1_00",
        "(name\n == 'Foo bar') # and nothing else",
    ];
    for text in same {
        assert!(holds(text, &span), "{text}");
    }
    for text in
        ["name == '\\N{DASH}'", "my_attr == 012", "my_attr == 1e999", "my_attr == 1x", "name == b'x'", "a\n== 1"]
    {
        assert!(FilterExpression::parse(text).is_err(), "{text}");
    }
}

#[test]
fn an_empty_filter_is_true() {
    assert!(holds("", &look()) && holds("  \n", &look()));
}

#[test]
fn deep_and_long_filters_are_refused() {
    let deep = |levels: usize| {
        [
            "(".repeat(levels),
            format!("{}name == 'x'", "not ".repeat(levels)),
            format!("{}1 == 1", "-".repeat(levels)),
            format!("my_attr{} == 1", " + 1".repeat(levels)),
            format!("a{} == 1", ".a".repeat(levels)),
            format!("attributes{} == 1", "['a']".repeat(levels)),
            "[".repeat(levels),
            format!("{}1", "str(".repeat(levels)),
        ]
    };
    for text in deep(120) {
        let error = FilterExpression::parse(&text).unwrap_err();
        assert!(matches!(error, FilterError::TooDeep { .. }), "{error}");
    }
    for text in deep(40_000) {
        let error = FilterExpression::parse(&text).unwrap_err();
        assert!(matches!(error, FilterError::TooComplex { .. }), "{error}");
    }
    let long = format!("name == '{}'", "x".repeat(parser::MAX_LENGTH));
    assert!(matches!(FilterExpression::parse(&long), Err(FilterError::TooLong { .. })));
    let wide = |conditions| vec!["name == 'x'"; conditions].join(" or ");
    assert!(!holds(&wide(100), &look()));
    assert!(matches!(FilterExpression::parse(&wide(10_000)), Err(FilterError::TooComplex { .. })));
    // Constants of a list are looked up: there may be many.
    let ids: Vec<String> = (0..10_000).map(|n| format!("'{n:x}'")).collect();
    assert!(!holds(&format!("name in [{}]", ids.join(", ")), &look()));
}

#[test]
fn filters_say_what_they_need() {
    let needs = |text: &str| FilterExpression::parse(text).unwrap().requirements().clone();
    assert_eq!(needs("name == 'x'"), FilterRequirements::default());
    assert!(needs("parent_span is None").parent);
    assert!(needs("not (cumulative_token_count.total > 5)").cumulative_tokens);
    assert!(needs("1 < total_cost").cost);
    assert!(needs("name == llm.model_name").attributes);
    let wanted = vec![(AnnotationScope::Span, "a".to_owned()), (AnnotationScope::Trace, "a".to_owned())];
    assert_eq!(needs("evals['a'].score > 1 and (trace_annotations['a'] or annotations['a'])").annotations, wanted);
}

#[test]
fn filters_say_which_spans_they_can_be_true_of() {
    let bounds = |text: &str| FilterExpression::parse(text).unwrap().requirements().bounds.clone();
    assert_eq!(bounds("name == 'x'"), FilterBounds::default());
    assert_eq!(bounds("span_id == '00000000000000cd' and name == 'x'").span_ids, Some(vec![SpanId(0xcd)]));
    assert_eq!(bounds("'00000000000000CD' == span_id").span_ids, Some(Vec::new()), "nobody's id is written so");
    let ids = "span_id in ['00000000000000cd', '00000000000000ce']";
    assert_eq!(bounds(&format!("{ids} and span_id == '00000000000000ce'")).span_ids, Some(vec![SpanId(0xce)]));
    assert_eq!(bounds(&format!("{ids} or name == 'x'")).span_ids, None);
    assert_eq!(bounds(&format!("not {ids}")).span_ids, None);
    assert_eq!(bounds("span_kind == 'llm' or span_kind == 'tool'").kinds, Some(vec![SpanKind::Llm, SpanKind::Tool]));
    assert_eq!(bounds("span_kind == 'robot'").kinds, Some(Vec::new()));
    assert_eq!(bounds("trace_id == '000000000000000000000000000000ab'").trace_ids, Some(vec![TraceId(0xab)]));
    assert!(bounds("parent_id is None and name == 'x'").is_root);
    assert!(!bounds("parent_span is None").is_root, "orphans are roots too");
    let time = bounds("'2026-01-01T00:00:00Z' <= start_time < '2026-01-02T00:00:00+00:00'");
    assert_eq!(time.start_from_ns, Some(1_767_225_599_999_999_000));
    assert_eq!(time.start_to_ns, Some(1_767_312_000_000_001_000));
}

/// Texts that are made of what filters are made of, whether they are filters or not.
fn soup() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "name",
        "span_kind",
        "latency_ms",
        "start_time",
        "metadata",
        "attributes",
        "annotations",
        "llm",
        "parent_span",
        "'x'",
        "'2026-01-01T00:00:00Z'",
        "'",
        "\"",
        "1",
        "2.5",
        "0x",
        "True",
        "None",
        "[",
        "]",
        "(",
        ")",
        ",",
        ".",
        "==",
        "!=",
        "<",
        ">=",
        "in",
        "not",
        "is",
        "and",
        "or",
        "+",
        "-",
        "*",
        "/",
        "%",
        "float",
        "str",
        "['a']",
        ".score",
        "=",
        "for",
        "é",
        "\\",
        "\n",
        "#",
        "𝒏",
    ]);
    prop::collection::vec(words, 0..24).prop_map(|words| words.join(" "))
}

/// Expressions that follow the grammar.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "name",
        "latency_ms",
        "llm.model_name",
        "metadata['a'][0]",
        "attributes[['a', 1]]",
        "annotations['q'].label",
        "'it\\'s'",
        "''",
        "'\\x07é'",
        "3",
        "0.5",
        "1e-9",
        "True",
        "None",
        "f('x')",
        "[1, 'a']",
        "(1,)",
        "()",
        "any(d.cost > 1 for d in cost_details)",
        "len([d for d in cost_details if d.is_prompt if 'x' in d.token_type])",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 4, |inner| {
        let pair = (
            inner.clone(),
            prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "<", "in", "not in", "is", "is not", "and", "or"]),
            inner.clone(),
        );
        prop_oneof![
            pair.prop_map(|(left, operator, right)| format!("({left}) {operator} ({right})")),
            inner.clone().prop_map(|operand| format!("not ({operand})")),
            inner.clone().prop_map(|operand| format!("-({operand})")),
            inner.clone().prop_map(|operand| format!("str({operand})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a}) <= ({b}) != ({c})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(text in prop_oneof![soup(), expression(), any::<String>()]) {
        if let Ok(filter) = FilterExpression::parse(&text) {
            filter.matches(&PhoenixSpan::new(&look()), &Around);
            filter.matches(&PhoenixSpan::new(&Span::default()), &EmptyFilterContext);
        }
    }

    #[test]
    fn what_is_printed_is_read_as_the_same(text in expression()) {
        let node = parser::parse_filter(&text).unwrap();
        let printed = node.to_string();
        prop_assert_eq!(&parser::parse_filter(&printed).unwrap(), &node, "{} printed as {}", text, printed);
    }

    #[test]
    fn bounds_are_necessary(texts in prop::collection::vec(prop::sample::select(vec![
        "span_kind == 'LLM'", "span_kind in ['TOOL']", "span_id == '00000000000000cd'", "name == 'x'", "parent_id is None",
        "start_time > '2026-01-01T00:00:00Z'", "'2027-01-01T00:00:00Z' > start_time", "start_time == '2026-09-21T14:13:20Z'",
        "trace_id in ['000000000000000000000000000000ab']", "my_attr == 4",
    ]), 1..4), shape in 0..4) {
        let text = match shape {
            0 => texts.join(" and "),
            1 => texts.join(" or "),
            2 => format!("not ({})", texts.join(" and ")),
            _ => format!("name == 'Foo bar' and ({})", texts.join(" or ")),
        };
        let span = look();
        let filter = FilterExpression::parse(&text).unwrap();
        let view = PhoenixSpan::new(&span);
        if filter.matches(&view, &Around) {
            let bounds = &filter.requirements().bounds;
            prop_assert!(bounds.span_ids.as_ref().is_none_or(|ids| ids.contains(&span.span_id)), "{}", text);
            prop_assert!(bounds.trace_ids.as_ref().is_none_or(|ids| ids.contains(&span.trace_id)), "{}", text);
            prop_assert!(bounds.kinds.as_ref().is_none_or(|kinds| kinds.contains(&view.kind())), "{}", text);
            prop_assert!(bounds.start_from_ns.is_none_or(|from| from <= span.start_ns), "{}", text);
            prop_assert!(bounds.start_to_ns.is_none_or(|to| to >= span.start_ns), "{}", text);
            prop_assert!(!bounds.is_root || span.parent_id.is_none(), "{}", text);
        }
    }
}
