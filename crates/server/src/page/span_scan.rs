//! Reads from recorded spans what stored trajectories lack: where errors began, and the parameters of tools whose
//! calls are invalid.

use std::collections::{HashMap, HashSet};

use gradus_core::dialect::{OfferedTools, normalize_span};
use gradus_core::span::{Span, SpanId, TraceId};
use gradus_core::trajectory::{ToolDefinition, Trajectory};
use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_report::html::text;
use gradus_store::TraceRow;

use super::loaded_trace::LoadedTrace;
use super::step::StepView;
use crate::http_error::ApiError;
use crate::span_export::visit_spans;
use crate::state::ServerState;

/// Maximum size of a scanned trace. The page of a larger one has only links to the spans.
const MAX_SCANNED_SPANS: i64 = 3_000;
const MAX_SCANNED_BYTES: i64 = 4 << 20;
/// Maximum number of listed errors.
const MAX_ERROR_SPANS: usize = 5;

/// A span in which an error began.
pub(super) struct ErrorSpanLink {
    pub(super) href: String,
    pub(super) name: String,
    pub(super) message: String,
}

/// The result of the scan. Empty for traces that are too large.
#[derive(Default)]
pub(super) struct TraceSpanScan {
    /// Spans with an error none of whose children has one: an error is passed on from child to parent.
    pub(super) errors: Vec<ErrorSpanLink>,
    /// Definitions of tools by name.
    tools: HashMap<String, ToolDefinition>,
}

/// The needed parts of a span with an error.
struct FailedSpan {
    id: SpanId,
    parent: Option<SpanId>,
    start_ns: u64,
    name: String,
    message: String,
}

impl TraceSpanScan {
    /// Loads the errors of a trace that is shown as a part of another page.
    pub(super) fn load_errors(server: &ServerState, trace: TraceId) -> Result<Vec<ErrorSpanLink>, ApiError> {
        match server.store.trace(trace)? {
            Some(row) if row.errors > 0 => Ok(TraceSpanScan::read(server, &row, &HashSet::new())?.errors),
            _ => Ok(Vec::new()),
        }
    }

    /// Scans the spans if the trace has errors or invalid calls.
    pub(super) fn load(server: &ServerState, opened: &LoadedTrace) -> Result<TraceSpanScan, ApiError> {
        let row = &opened.row;
        let Some(trajectory) = &opened.trajectory else { return Ok(TraceSpanScan::default()) };
        let wanted = find_invalid_calls(opened, trajectory);
        if row.errors == 0 && wanted.is_empty() {
            return Ok(TraceSpanScan::default());
        }
        TraceSpanScan::read(server, row, &wanted)
    }

    /// Scans the spans. `wanted` are model calls whose tools are collected.
    fn read(server: &ServerState, row: &TraceRow, wanted: &HashSet<SpanId>) -> Result<TraceSpanScan, ApiError> {
        if row.spans > MAX_SCANNED_SPANS || row.bytes > MAX_SCANNED_BYTES {
            return Ok(TraceSpanScan::default());
        }
        let mut scan = TraceSpanScan::default();
        let mut failed = Vec::new();
        visit_spans(&server.store.trace_group(row.trace_group)?, None, &mut |span, _| {
            if span.is_error() && span.trace_id == row.trace_id {
                failed.push(FailedSpan::from_span(span));
            }
            if wanted.contains(&span.span_id) {
                scan.add_tools(span);
            }
        });
        scan.errors = list_error_origins(&row.trace_id.to_string(), failed);
        Ok(scan)
    }

    /// Adds the tools that a model call offers. The first definition of a name is kept.
    fn add_tools(&mut self, span: &Span<'_>) {
        for tool in read_offered_tools(&normalize_span(span).offered_tools) {
            self.tools.entry(tool.name.clone()).or_insert(tool);
        }
    }

    /// Adds the tool's parameters to each invalid call.
    pub(super) fn add_schemas(&self, trajectory: &Trajectory, steps: &mut [StepView]) {
        for view in steps.iter_mut().filter(|view| view.violation.is_some()) {
            let step = trajectory.steps.iter().find(|step| step.index == view.number);
            let tool = step.and_then(|step| self.tools.get(&step.tool));
            let schema = tool.and_then(|tool| tool.schema.as_ref());
            view.schema = schema.map(|schema| text::format_display_json(schema.as_str()));
        }
    }
}

/// Finds the model calls of steps whose tool call is invalid.
fn find_invalid_calls(opened: &LoadedTrace, trajectory: &Trajectory) -> HashSet<SpanId> {
    let wrong = opened.outcomes.iter().filter(|given| given.is_wrong && *given.line.evaluator == *CALL_VALIDITY);
    let invalid: HashSet<u32> = wrong.filter_map(|given| given.line.step_index).collect();
    let steps = trajectory.steps.iter().filter(|step| invalid.contains(&step.index));
    steps.flat_map(|step| step.span_ids.iter().take(1)).map(|id| SpanId::parse(id)).collect()
}

/// Reads tool definitions in any form in which a model call records them.
pub(super) fn read_offered_tools(offered: &[OfferedTools<'_>]) -> Vec<ToolDefinition> {
    let mut tools = Vec::new();
    for one in offered {
        match one {
            OfferedTools::Json(json) => tools.extend(gradus_core::assemble::tool_definitions(json)),
            OfferedTools::Value(value) => {
                tools.extend(gradus_core::assemble::tool_definitions(&value.to_json().to_string()));
            }
            OfferedTools::Function { name, description, parameters } => tools.push(ToolDefinition {
                name: (*name).to_owned(),
                description: description.map(str::to_owned),
                schema: parameters.and_then(gradus_core::raw_json::RawJson::parse_object),
            }),
        }
    }
    tools
}

impl FailedSpan {
    /// Reads a failed span. The message of a recorded exception is more specific than the status of the span.
    fn from_span(span: &Span<'_>) -> FailedSpan {
        let message = span.exception_message().unwrap_or(&span.status.message);
        FailedSpan {
            id: span.span_id,
            parent: span.parent_id,
            start_ns: span.start_ns,
            name: text::format_display_line(&span.name),
            message: text::format_display_line(message.trim()),
        }
    }
}

/// Lists the latest error origins, in order of time.
fn list_error_origins(trace: &str, mut failed: Vec<FailedSpan>) -> Vec<ErrorSpanLink> {
    let parents: HashSet<SpanId> = failed.iter().filter_map(|span| span.parent).collect();
    failed.retain(|span| !parents.contains(&span.id));
    failed.sort_by_key(|span| (span.start_ns, span.id));
    // Two instrumentations record the same error: the one that began later is nearer to its cause.
    let mut seen = HashSet::new();
    failed.reverse();
    failed.retain(|span| seen.insert(span.message.clone()));
    failed.reverse();
    let link = |span: FailedSpan| ErrorSpanLink {
        href: format!("/traces/{trace}/spans/{}", span.id),
        name: if span.name.is_empty() { span.id.to_string() } else { span.name },
        message: if span.message.is_empty() { "ended in an error".to_owned() } else { span.message },
    };
    // The last one may be what ended the run.
    let later = failed.len().saturating_sub(MAX_ERROR_SPANS);
    failed.into_iter().skip(later).map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_listed_where_it_began() {
        let failed = |id: u64, parent: u64, message: &str| FailedSpan {
            id: SpanId(id),
            parent: (parent > 0).then_some(SpanId(parent)),
            start_ns: id,
            name: format!("span {id}"),
            message: message.to_owned(),
        };
        let all =
            vec![failed(1, 0, "500"), failed(2, 1, "500"), failed(3, 2, "500"), failed(4, 0, "500"), failed(9, 1, "")];
        let shown: Vec<(String, String)> =
            list_error_origins("t", all).into_iter().map(|one| (one.href, one.message)).collect();
        let wanted = [("4", "500"), ("9", "ended in an error")];
        let wanted = wanted.map(|(id, message)| (format!("/traces/t/spans/{id:0>16}"), message.to_owned()));
        assert_eq!(shown, wanted);
        let many = (1..=6).map(|id| failed(id, 0, &format!("error {id}"))).collect();
        let shown: Vec<String> = list_error_origins("t", many).into_iter().map(|one| one.message).collect();
        assert_eq!(shown, ["error 2", "error 3", "error 4", "error 5", "error 6"]);
    }
}
