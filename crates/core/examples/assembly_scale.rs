//! Assembles one trace of N spans in several shapes and prints CPU time a span, as lines of JSON. Run by
//! `benches/run_assembly.py`.

use std::sync::Arc;
use std::time::Instant;

use gradus_core::assemble::TrajectoryAssembler;
use gradus_core::span::{AttributeList, AttributeValue, Span, SpanId, SpanResource, TraceId};

const SHAPES: [&str; 6] = ["tool_roots", "tool_star", "tool_chain", "agent_chain", "react_calls", "conversations"];

fn main() {
    let most: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    for shape in SHAPES {
        let mut count = 1_000;
        while count <= most {
            let spans: Vec<Span<'static>> = (0..count).map(|number| span(shape, number)).collect();
            let began = Instant::now();
            let assembled = TrajectoryAssembler::default().assemble(&spans);
            let took = began.elapsed();
            let steps: usize = assembled.trajectories.iter().map(|trajectory| trajectory.steps.len()).sum();
            #[allow(clippy::print_stdout, reason = "its output is what it is for")]
            {
                println!(
                    "{{\"shape\": \"{shape}\", \"spans\": {count}, \"us_per_span\": {:.3}, \"trajectories\": {}, \"steps\": {steps}}}",
                    took.as_secs_f64() * 1e6 / count as f64,
                    assembled.trajectories.len()
                );
            }
            count *= 10;
        }
    }
}

fn span(shape: &str, number: u64) -> Span<'static> {
    let id = number + 1;
    let is_root = number == 0;
    let (kind, parent) = match shape {
        "tool_roots" => ("TOOL", None),
        "tool_star" => (if is_root { "AGENT" } else { "TOOL" }, Some(1)),
        "tool_chain" => (if is_root { "AGENT" } else { "TOOL" }, Some(number)),
        "agent_chain" => (if number % 10 == 9 { "LLM" } else { "AGENT" }, Some(number)),
        "react_calls" => (if is_root { "AGENT" } else { "LLM" }, Some(1)),
        _ => ("LLM", None),
    };
    let mut attributes = vec![("openinference.span.kind", kind.to_owned())];
    match kind {
        "TOOL" => {
            attributes.extend([("tool.name", "search".to_owned()), ("input.value", format!("{{\"q\": {number}}}"))])
        }
        "AGENT" => attributes.push(("input.value", format!("request {}", number / 100))),
        _ => attributes.extend([
            ("session.id", "s".to_owned()),
            ("llm.input_messages.0.message.role", "user".to_owned()),
            ("llm.input_messages.0.message.content", format!("question {}", number / 5)),
            ("llm.output_messages.0.message.role", "assistant".to_owned()),
            (
                "llm.output_messages.0.message.content",
                format!("Thought: look\nAction: search\nAction Input: {{\"q\": {number}}}"),
            ),
        ]),
    }
    Span {
        trace_id: TraceId(if shape == "conversations" { u128::from(id) } else { 1 }),
        span_id: SpanId(id),
        parent_id: parent.filter(|_| !is_root).map(SpanId),
        name: kind.into(),
        start_ns: 1_000 + number * 10,
        end_ns: 1_005 + number * 10,
        attributes: AttributeList(
            attributes.into_iter().map(|(key, text)| (key.into(), AttributeValue::Str(text.into()))).collect(),
        ),
        resource: Arc::new(SpanResource::default()),
        ..Span::default()
    }
}
