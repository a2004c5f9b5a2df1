//! Lists spans page by page, in Phoenix's own form and in its form of OTLP.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gradus_core::span::{SpanId, TraceId};
use gradus_phoenix::span_view::PhoenixSpan;
use gradus_store::ProjectPosition;
use serde_json::{Value, json};

use super::error::{PhoenixApiError, run_large_query};
use super::request::{self, PhoenixQueryParams};
use super::scan::{SpanScan, SpanScanPosition};
use super::span_filters::SpanFilters;
use super::{ids, otlp};
use crate::client_address::ClientAddress;
use crate::spilled_body::spill_store_error;
use crate::state::ServerState;

/// Maximum size of a page. It may end before `limit`; the cursor continues it.
const MAX_PAGE_BYTES: u64 = 8 << 20;

/// `GET /v1/projects/{project}/spans`.
pub(super) async fn list_spans(
    State(server): State<Arc<ServerState>>,
    Path(project): Path<String>,
    params: PhoenixQueryParams,
) -> Result<Response, PhoenixApiError> {
    // Both orders are the same here: the order of the traces' starts.
    params.is_first_option("sort", ["id", "start_time"], "id")?;
    let newest_first = params.is_first_option("order", ["desc", "asc"], "desc")?;
    fetch_span_page(&server, &project, &params, newest_first, true, |span| {
        let mut listed = span.to_listing_json();
        listed["id"] = Value::from(ids::encode_node_id("Span", span.span().span_id));
        listed
    })
    .await
}

/// `GET /v1/projects/{project}/spans/otlpv1`.
pub(super) async fn list_otlp(
    State(server): State<Arc<ServerState>>,
    Path(project): Path<String>,
    params: PhoenixQueryParams,
) -> Result<Response, PhoenixApiError> {
    fetch_span_page(&server, &project, &params, true, false, otlp::span_to_otlp_json).await
}

/// Responds with a page of spans. `show` converts one span. The page is written span by span to a spill file, since
/// as text spans take a tenth of the memory of JSON values.
async fn fetch_span_page(
    server: &Arc<ServerState>,
    project: &str,
    params: &PhoenixQueryParams,
    newest_first: bool,
    has_kinds: bool,
    show: fn(&PhoenixSpan<'_>) -> Value,
) -> Result<Response, PhoenixApiError> {
    let limit = params.parse_limit(100, 1000)?;
    let filters = SpanFilters::read(params, has_kinds)?;
    let trace_ids = params.all_values("trace_id");
    let mut scan = SpanScan {
        newest_first,
        from_us: params.parse_time_us("start_time")?,
        to_us: params.parse_time_us("end_time")?,
        traces: (!trace_ids.is_empty()).then(|| trace_ids.iter().map(|id| TraceId::parse(id.trim())).collect()),
        at: params.last_value("cursor").map(read_cursor).transpose()?,
        ..SpanScan::for_project(request::find_project(server, project).await?.no)
    };
    let client = ClientAddress::current();
    run_large_query(server, move |server| {
        filters.narrow_scan(&mut scan, server)?;
        // Beyond one megabyte the page continues in a temporary file.
        let mut page = server.spill_writer(client);
        let mut written = page.write_all(b"{\"data\":[");
        let (mut count, mut next) = (0, None);
        scan.visit(server, &mut |trace, index| {
            let span = PhoenixSpan::new(&trace.spans[index]);
            if !filters.matches(&span) {
                return ControlFlow::Continue(());
            }
            if count >= limit || page.len() > MAX_PAGE_BYTES || written.is_err() {
                next = Some(write_cursor(trace.span_position(index)));
                return ControlFlow::Break(());
            }
            let separator: &[u8] = if count == 0 { b"" } else { b"," };
            count += 1;
            written = page
                .write_all(separator)
                .and_then(|()| serde_json::to_writer(&mut page, &show(&span)).map_err(Into::into));
            ControlFlow::Continue(())
        })?;
        let body = written
            .and_then(|()| write!(page, "],\"next_cursor\":{}}}", json!(next)))
            .and_then(|()| page.into_body())
            .map_err(|error| spill_store_error(&error))?;
        Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
    })
    .await
}

/// Encodes the position of the first span of the next page, so that a page does not change when spans arrive.
fn write_cursor(place: SpanScanPosition) -> String {
    let SpanScanPosition { trace, start_ns, span } = place;
    ids::encode_node_id("Span", format_args!("{}:{}:{start_ns}:{span}", trace.start_ns, trace.trace))
}

/// Decodes a cursor. It comes from a client, so every part is checked.
fn read_cursor(cursor: &str) -> Result<SpanScanPosition, PhoenixApiError> {
    let read = || {
        let text = ids::decode_node_id("Span", cursor)?;
        let mut parts = text.split(':');
        let place = SpanScanPosition {
            trace: ProjectPosition { start_ns: parts.next()?.parse().ok()?, trace: parts.next()?.parse().ok()? },
            start_ns: parts.next()?.parse().ok()?,
            span: SpanId(u64::from_str_radix(parts.next()?, 16).ok()?),
        };
        parts.next().is_none().then_some(place)
    };
    read().ok_or_else(|| PhoenixApiError::unprocessable("Invalid cursor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_as_they_went() {
        let place = SpanScanPosition {
            trace: ProjectPosition { start_ns: -5, trace: 7 },
            start_ns: u64::MAX,
            span: SpanId(0xab),
        };
        assert_eq!(read_cursor(&write_cursor(place)).ok(), Some(place));
        for wrong in [
            "",
            "U3Bhbjox",
            "%%%",
            &ids::encode_node_id("Span", "1:2:3:xyz"),
            &ids::encode_node_id("Span", "1:2:3:4:5"),
        ] {
            assert!(read_cursor(wrong).is_err(), "{wrong}");
        }
    }
}
