//! Spans and filters as Phoenix has them, for `tests/peers/phoenix_parity.py`, which holds both against a real one.
//!
//!   phoenix_view protobuf REQUEST OUT     a request in JSON as the same in protobuf; one in protobuf as it is
//!   phoenix_view list REQUEST...          each span as it is listed, one a line
//!   phoenix_view where CASES REQUEST...   for each filter of CASES the spans that it is true of, one filter a line
//!
//! Requests are OTLP traces, not compressed; for the last two in protobuf. CASES is JSON: `filters` is a list of texts,
//! `annotations` a list of `scope` (span or trace), `id`, `name`, `label`, `score`, `explanation` and `identifier`,
//! `costs` the costs of spans by their ids.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io::{self, BufWriter, Write};

use gradus_core::span::{Span, SpanId, TraceId};
use gradus_otlp::{RecordLimits, TelemetrySignal, decode_span, export_from_json, read_export};
use gradus_phoenix::filter::{
    AnnotationScope, CostDetail, FilterExpression, FilterableAnnotation, SpanCostTotals, SpanFilterContext, TokenSums,
};
use gradus_phoenix::span_view::PhoenixSpan;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Cases {
    filters: Vec<String>,
    annotations: Vec<Annotation>,
    costs: HashMap<String, SpanCost>,
}

#[derive(Deserialize)]
struct SpanCost {
    total: Option<f64>,
    prompt: Option<f64>,
    completion: Option<f64>,
    details: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    token_type: String,
    is_prompt: bool,
    cost: Option<f64>,
    tokens: Option<f64>,
    cost_per_token: Option<f64>,
}

#[derive(Deserialize)]
struct Annotation {
    scope: String,
    id: String,
    name: String,
    label: Option<String>,
    score: Option<f64>,
    explanation: Option<String>,
    identifier: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["protobuf", request, out] => to_protobuf(request, out),
        ["list", ref requests @ ..] => list(requests),
        ["where", cases, ref requests @ ..] => filter(cases, requests),
        _ => Err("usage: phoenix_view protobuf REQUEST OUT | list REQUEST... | where CASES REQUEST...".into()),
    }
}

fn to_protobuf(request: &str, out: &str) -> Result<(), Box<dyn Error>> {
    let bytes = std::fs::read(request)?;
    let bytes = if bytes.starts_with(b"{") { export_from_json(&bytes, TelemetrySignal::Span)?.0 } else { bytes };
    Ok(std::fs::write(out, bytes)?)
}

fn list(requests: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(io::stdout().lock());
    for span in &read(requests)? {
        let view = PhoenixSpan::new(span);
        let line = json!({"listed": view.to_listing_json(), "kind": view.kind().as_str(), "nested": view.attributes()});
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

fn filter(cases: &str, requests: &[&str]) -> Result<(), Box<dyn Error>> {
    let cases: Cases = serde_json::from_slice(&std::fs::read(cases)?)?;
    let spans = read(requests)?;
    let views: Vec<PhoenixSpan<'_>> = spans.iter().map(PhoenixSpan::new).collect();
    let project = Project::new(&views, cases.annotations, cases.costs);
    let mut out = BufWriter::new(io::stdout().lock());
    for text in cases.filters {
        let line = match FilterExpression::parse(&text) {
            Err(error) => json!({"filter": text, "error": error.to_string()}),
            Ok(filter) => {
                let matched = views.iter().filter(|span| filter.matches(span, &Around { span, project: &project }));
                json!({"filter": text, "spans": matched.map(|span| span.span().span_id.to_string()).collect::<Vec<_>>()})
            }
        };
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

/// Spans of all requests; of those with the same id the first one stays, as in Phoenix.
fn read(requests: &[&str]) -> Result<Vec<Span<'static>>, Box<dyn Error>> {
    let limits = RecordLimits::default();
    let (mut spans, mut seen) = (Vec::new(), HashSet::new());
    for path in requests {
        // Spans borrow from their request, and there is nothing to free before the end.
        let request: &'static [u8] = Box::leak(std::fs::read(path)?.into_boxed_slice());
        let mut bodies = Vec::new();
        read_export(request, &limits, &mut |record| {
            if record.signal == TelemetrySignal::Span {
                let body: &'static [u8] = Box::leak(record.body.to_vec().into_boxed_slice());
                bodies.push((body, record.scope.resource.clone()));
            }
            Ok(())
        })?;
        for (body, resource) in bodies {
            let span = decode_span(body, &resource, "", &limits)?;
            if seen.insert(span.span_id) {
                spans.push(span);
            }
        }
    }
    Ok(spans)
}

/// All that is known besides single spans.
struct Project {
    ids: HashSet<SpanId>,
    tokens: HashMap<(TraceId, SpanId), TokenSums>,
    annotations: Vec<Annotation>,
    costs: HashMap<String, SpanCost>,
}

impl Project {
    fn new(spans: &[PhoenixSpan<'_>], annotations: Vec<Annotation>, costs: HashMap<String, SpanCost>) -> Project {
        let key = |span: &PhoenixSpan<'_>| (span.span().trace_id, span.span().span_id);
        let parents: HashMap<_, _> = spans.iter().map(|span| (key(span), span.span().parent_id)).collect();
        let mut tokens: HashMap<(TraceId, SpanId), TokenSums> = HashMap::new();
        for span in spans {
            let Some((prompt, completion)) = span.own_tokens() else { continue };
            let (mut at, mut passed) = (key(span), HashSet::new());
            while parents.contains_key(&at) && passed.insert(at) {
                let sums = tokens.entry(at).or_default();
                (sums.prompt, sums.completion) = (sums.prompt + prompt, sums.completion + completion);
                let Some(parent) = parents[&at] else { break };
                at.1 = parent;
            }
        }
        Project { ids: spans.iter().map(|span| span.span().span_id).collect(), tokens, annotations, costs }
    }
}

struct Around<'p> {
    span: &'p PhoenixSpan<'p>,
    project: &'p Project,
}

impl SpanFilterContext for Around<'_> {
    fn has_parent(&self) -> bool {
        self.span.span().parent_id.is_some_and(|parent| self.project.ids.contains(&parent))
    }

    fn cumulative_tokens(&self) -> TokenSums {
        let span = self.span.span();
        self.project.tokens.get(&(span.trace_id, span.span_id)).copied().unwrap_or_default()
    }

    fn cost(&self) -> SpanCostTotals {
        let cost = self.project.costs.get(&self.span.span().span_id.to_string());
        cost.map_or(SpanCostTotals::default(), |cost| SpanCostTotals {
            total: cost.total,
            prompt: cost.prompt,
            completion: cost.completion,
        })
    }

    fn cost_details(&self) -> Vec<CostDetail> {
        let cost = self.project.costs.get(&self.span.span().span_id.to_string());
        let details = cost.into_iter().flat_map(|cost| &cost.details).map(|detail| CostDetail {
            token_type: detail.token_type.clone(),
            is_prompt: detail.is_prompt,
            cost: detail.cost,
            tokens: detail.tokens,
            cost_per_token: detail.cost_per_token,
        });
        details.collect()
    }

    fn annotations(&self, scope: AnnotationScope, name: &str) -> Vec<FilterableAnnotation> {
        let (scope, id) = match scope {
            AnnotationScope::Span => ("span", self.span.span().span_id.to_string()),
            AnnotationScope::Trace => ("trace", self.span.span().trace_id.to_string()),
        };
        let found = self.project.annotations.iter();
        let found = found.filter(|note| note.scope == scope && note.id == id && note.name == name);
        found
            .map(|note| FilterableAnnotation {
                label: note.label.clone(),
                score: note.score,
                explanation: note.explanation.clone(),
                identifier: note.identifier.clone(),
            })
            .collect()
    }
}
