//! Spans of a project, as lines: for tables and for other programs. They are read and sent page by page, so neither side
//! has to hold them all.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gradus_core::dialect;
use gradus_core::span::{Attributes, Span, StatusCode, Value};
use gradus_otlp::{Limits, Signal, decode_span, read_export};
use gradus_store::{BlockSignal, Story};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, Params, blocking};
use super::{download, table, time};
use crate::serve::state::Server;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SpanParams {
    /// `LLM`, `TOOL`, `AGENT`, `CHAIN`, ...: the kind that OpenInference gives it, or what it comes to.
    kind: Option<String>,
    /// Only these attributes, by their names with commas between; all without it.
    attributes: Option<String>,
    /// `jsonl`, or `csv`: a column for each of `attributes`, or one with all of them as JSON.
    #[param(default = "jsonl")]
    format: Option<String>,
}

/// A span; a line of the answer.
#[derive(Serialize, ToSchema)]
pub(super) struct SpanLine<'a> {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_id: Option<String>,
    pub(super) name: &'a str,
    pub(super) kind: Option<&'a str>,
    pub(super) start: String,
    pub(super) end: String,
    /// `OK`, `ERROR` or `UNSET`.
    pub(super) status: &'static str,
    pub(super) status_message: Option<&'a str>,
    #[schema(value_type = Object)]
    pub(super) attributes: AttributeMap<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<EventLine<'a>>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct EventLine<'a> {
    name: &'a str,
    time: String,
    #[schema(value_type = Object)]
    attributes: AttributeMap<'a>,
}

/// Attributes as an object, without a copy.
pub(super) struct AttributeMap<'a> {
    attributes: &'a Attributes<'a>,
    only: &'a [String],
}

impl AttributeMap<'_> {
    /// One attribute as a cell: a text as it is, the rest as JSON.
    pub(super) fn cell(&self, name: &str) -> String {
        match self.attributes.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::Str(text)) => text.to_string(),
            Some(other) => other.to_json().to_string(),
        }
    }
}

impl Serialize for AttributeMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.attributes.iter() {
            if self.only.is_empty() || self.only.iter().any(|wanted| wanted == name) {
                map.serialize_entry(name, &Attribute(value))?;
            }
        }
        map.end()
    }
}

struct Attribute<'a>(&'a Value<'a>);

impl Serialize for Attribute<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(value) => serializer.serialize_i64(*value),
            Value::Double(value) => serializer.serialize_f64(*value),
            Value::Str(text) => serializer.serialize_str(text),
            Value::Bytes(bytes) => serializer.serialize_str(&String::from_utf8_lossy(bytes)),
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Attribute(item))?;
                }
                list.end()
            }
            Value::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, value) in entries {
                    map.serialize_entry(name, &Attribute(value))?;
                }
                map.end()
            }
        }
    }
}

/// The spans of a project, a line of JSON each, in order of their traces.
#[utoipa::path(get, path = "/api/v1/projects/{project}/spans", tag = "projects",
    params(("project" = String, Path), SpanParams),
    responses((status = 200, body = SpanLine, content_type = "application/x-ndjson"),
              (status = 404, body = super::error::ErrorBody)))]
pub(super) async fn of_project(
    State(server): State<Arc<Server>>,
    Path(project): Path<String>,
    Params(params): Params<SpanParams>,
) -> Result<Response, ApiError> {
    known_project(&server, &project).await?;
    let names = params.attributes.unwrap_or_default();
    let only: Vec<String> =
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let kind = params.kind;
    match params.format.as_deref() {
        None | Some("jsonl") => {
            let body = download::of_project(server, project, Vec::new(), move |story, out| {
                visit_spans(story, kind.as_deref(), &mut |span, kind| {
                    // Straight to the client: a line may be large. Writing cannot fail.
                    let _ = serde_json::to_writer(LineWriter(out), &span_line(span, kind, &only));
                    out(b"\n");
                });
            });
            let body = body.await?;
            Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
        }
        Some("csv") => {
            let head = table::head(&only);
            let body = download::of_project(server, project, head, move |story, out| {
                visit_spans(story, kind.as_deref(), &mut |span, kind| {
                    out(&table::row(&span_line(span, kind, &only), &only));
                });
            });
            let body = body.await?;
            Ok(([(CONTENT_TYPE, "text/csv; charset=utf-8")], body).into_response())
        }
        Some(other) => Err(ApiError::bad(format!("format={other}: jsonl or csv"))),
    }
}

/// Hands on what is written.
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

/// All records of a project as OTLP: export requests one behind the other, which are one export request. `gradus traces`
/// and `gradus eval` read this.
#[utoipa::path(get, path = "/api/v1/projects/{project}/otlp", tag = "projects",
    params(("project" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-protobuf"),
              (status = 404, body = super::error::ErrorBody)))]
pub(super) async fn export(
    State(server): State<Arc<Server>>,
    Path(project): Path<String>,
) -> Result<Response, ApiError> {
    known_project(&server, &project).await?;
    let body = download::of_project(server, project, Vec::new(), |story, out| {
        crate::stored_records::write_otlp(story, out)
    });
    let body = body.await?;
    Ok(([(CONTENT_TYPE, "application/x-protobuf")], body).into_response())
}

async fn known_project(server: &Arc<Server>, project: &str) -> Result<(), ApiError> {
    let name = project.to_owned();
    let is_known = blocking(server, move |server| Ok(server.store.has_project(&name)?)).await?;
    if is_known { Ok(()) } else { Err(ApiError::missing(format!("there is no project {project:?}"))) }
}

/// Hands out the spans of records, each with its kind.
pub(in crate::serve) fn visit_spans(
    story: &Story,
    kind: Option<&str>,
    visit: &mut dyn FnMut(&Span<'_>, Option<&str>),
) {
    let limits = Limits::default();
    for block in story.blocks.iter().filter(|block| block.signal == BlockSignal::Spans) {
        let _ = read_export(&block.export, &limits, &mut |record| {
            if record.signal != Signal::Span {
                return Ok(());
            }
            let Ok(span) = decode_span(record.body, &record.scope.resource, &record.scope.name, &limits)
            else {
                // What came before limits were looked at may be over them: others are not.
                return Ok(());
            };
            if !story.counts(block, span.span_id) {
                return Ok(());
            }
            let found = span_kind(&span);
            if kind.is_none_or(|wanted| found.is_some_and(|found| found.eq_ignore_ascii_case(wanted))) {
                visit(&span, found);
            }
            Ok(())
        });
    }
}

/// The kind that the span says it has, else the one it comes to.
fn span_kind<'s>(span: &'s Span<'_>) -> Option<&'s str> {
    span.text("openinference.span.kind").or_else(|| match dialect::read(span).kind {
        dialect::Kind::Model => Some("LLM"),
        dialect::Kind::Tool => Some("TOOL"),
        dialect::Kind::Agent => Some("AGENT"),
        _ => None,
    })
}

fn span_line<'a>(span: &'a Span<'a>, kind: Option<&'a str>, only: &'a [String]) -> SpanLine<'a> {
    let time = |ns: u64| time::show(i64::try_from(ns).unwrap_or(i64::MAX));
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
            let event = |event: &'a gradus_core::span::Event<'a>| EventLine {
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
