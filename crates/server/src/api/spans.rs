//! Spans of a project as JSON lines, CSV or OTLP. They are read and sent page by page, so neither side has to hold them
//! all.

use crate::api::span_line::SpanLine;
use crate::api::span_line::{AttributeMap, EventLine};
use crate::span_export::visit_spans;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gradus_core::span::{Span, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{download, table};
use crate::http_error::{ApiError, ApiQuery, run_short_query};
use crate::state::ServerState;
use crate::time_text as time;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SpanParams {
    /// `LLM`, `TOOL`, `AGENT`, `CHAIN` and so on: the kind that OpenInference gives, or the one derived from other
    /// conventions.
    kind: Option<String>,
    /// Names of the attributes to return, separated by commas; all by default.
    attributes: Option<String>,
    /// `jsonl`, or `csv` with a column for each of `attributes`, or one column with all of them as JSON.
    #[param(default = "jsonl")]
    format: Option<String>,
}

/// The spans of a project, one line of JSON each, ordered by trace.
#[utoipa::path(get, path = "/api/v1/projects/{project}/spans", tag = "projects",
    params(("project" = String, Path), SpanParams),
    responses((status = 200, body = SpanLine, content_type = "application/x-ndjson"),
              (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn of_project(
    State(server): State<Arc<ServerState>>,
    Path(project): Path<String>,
    ApiQuery(params): ApiQuery<SpanParams>,
) -> Result<Response, ApiError> {
    check_project_exists(&server, &project).await?;
    let names = params.attributes.unwrap_or_default();
    let only: Vec<String> =
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let kind = params.kind;
    match params.format.as_deref() {
        None | Some("jsonl") => {
            let body = download::stream_project_records(server, project, Vec::new(), move |trace_group, out| {
                visit_spans(trace_group, kind.as_deref(), &mut |span, kind| {
                    // Written straight into the response, because a line may be large. Writing to memory cannot fail.
                    let _ = serde_json::to_writer(LineWriter(out), &build_span_line(span, kind, &only));
                    out(b"\n");
                });
            });
            let body = body.await?;
            Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
        }
        Some("csv") => {
            let head = table::format_csv_header(&only);
            let body = download::stream_project_records(server, project, head, move |trace_group, out| {
                visit_spans(trace_group, kind.as_deref(), &mut |span, kind| {
                    out(&table::format_span_row(&build_span_line(span, kind, &only), &only));
                });
            });
            let body = body.await?;
            Ok(([(CONTENT_TYPE, "text/csv; charset=utf-8")], body).into_response())
        }
        Some(other) => Err(ApiError::bad_request(format!("format={other}: jsonl or csv"))),
    }
}

/// Adapts a callback to `std::io::Write` for `serde_json`.
struct LineWriter<'o>(&'o mut dyn FnMut(&[u8]));

impl std::io::Write for LineWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (self.0)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// All records of a project as OTLP protobuf.
///
/// The body is a sequence of `ExportTraceServiceRequest` messages, which together are again one valid message, since
/// protobuf merges repeated fields. `gradus traces` and `gradus eval` read this.
#[utoipa::path(get, path = "/api/v1/projects/{project}/otlp", tag = "projects",
    params(("project" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-protobuf"),
              (status = 404, body = crate::http_error::ErrorBody)))]
pub(super) async fn export_project_otlp(
    State(server): State<Arc<ServerState>>,
    Path(project): Path<String>,
) -> Result<Response, ApiError> {
    check_project_exists(&server, &project).await?;
    let body = download::stream_project_records(server, project, Vec::new(), |trace_group, out| {
        crate::stored_records::write_otlp(trace_group, out)
    });
    let body = body.await?;
    Ok(([(CONTENT_TYPE, "application/x-protobuf")], body).into_response())
}

/// Checked before the stream starts: a status cannot be changed after the first byte.
async fn check_project_exists(server: &Arc<ServerState>, project: &str) -> Result<(), ApiError> {
    let name = project.to_owned();
    let is_known = run_short_query(server, move |server| Ok(server.store.has_project(&name)?)).await?;
    if is_known { Ok(()) } else { Err(ApiError::not_found(format!("there is no project {project:?}"))) }
}

/// Events are left out where attributes are selected: the caller asked for columns of spans.
fn build_span_line<'a>(span: &'a Span<'a>, kind: Option<&'a str>, only: &'a [String]) -> SpanLine<'a> {
    let time = |ns: u64| time::format_rfc3339(i64::try_from(ns).unwrap_or(i64::MAX));
    SpanLine {
        trace_id: span.trace_id.to_string(),
        span_id: span.span_id.to_string(),
        parent_id: span.parent_id.map(|id| id.to_string()),
        name: &span.name,
        kind,
        start: time(span.start_ns),
        end: time(span.end_ns),
        status: match span.status.code {
            StatusCode::Ok => "OK",
            StatusCode::Error => "ERROR",
            StatusCode::Unset => "UNSET",
        },
        status_message: Some(&*span.status.message).filter(|message| !message.is_empty()),
        attributes: AttributeMap { attributes: &span.attributes, only },
        events: if only.is_empty() {
            let event = |event: &'a gradus_core::span::SpanEvent<'a>| EventLine {
                name: &event.name,
                time: time(event.time_ns),
                attributes: AttributeMap { attributes: &event.attributes, only },
            };
            span.events.iter().map(event).collect()
        } else {
            Vec::new()
        },
    }
}
