//! `POST /v1/spans`: the queries of `get_spans_dataframe` and `query_spans`. The response is streamed while rows are
//! found, so that a large one takes no more memory than a small one.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::error::{PhoenixApiError, run_short_query};
use super::query::{DataFrameError, QueryBody, SpanQuery};
use super::request::{DEFAULT_PROJECT, PhoenixQueryParams, parse_iso_time_us};
use super::rows::{RootSpanFilter, SpanQueryBounds};
use super::{arrow, frame_json, ids};
use crate::memory::MemoryLease;
use crate::queries::QueryKind;
use crate::receive::{ReceiveRefusal, parse_body, parse_json};
use crate::state::ServerState;
use crate::stream;

/// Phoenix's default number of spans.
const DEFAULT_LIMIT: i64 = 1000;
/// Maximum number of queries in one request.
const MAX_QUERIES: usize = 100;
/// Maximum size of a request's body.
const MAX_QUERY_BYTES: usize = 1 << 20;

/// Answers queries with one table each: multipart JSON for current clients, concatenated Arrow streams for older
/// ones.
pub(super) async fn query_spans(
    State(server): State<Arc<ServerState>>,
    params: PhoenixQueryParams,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PhoenixApiError> {
    let ((body, queries), _lease) =
        parse_body(&server, &headers, body, |text, lease| read_queries(&text, lease)).await?;
    let bounds = resolve_query_bounds(&server, &params, &headers, &body).await?;
    let permit = server.queries.admit(QueryKind::Download).await?;
    let (pool, stall_timeout) = (Arc::clone(&server.queries), server.settings.timeouts.stall);
    if headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == b"application/json") {
        // Random, so that no recorded text can contain it.
        let boundary = ids::generate_random_id();
        let kind = format!("multipart/mixed; boundary={boundary}");
        let body = stream::stream_query_body(&pool, permit, stall_timeout, move |sink| {
            for query in &queries {
                sink.write(format!("--{boundary}\r\nContent-Type: application/json\r\n\r\n").as_bytes());
                frame_json::write_json_frame(&server, query, &bounds, sink)?;
                sink.write(b"\r\n");
            }
            sink.write(format!("--{boundary}--\r\n").as_bytes());
            Ok(())
        });
        return Ok(([(CONTENT_TYPE, kind)], body).into_response());
    }
    let body = stream::stream_query_body(&pool, permit, stall_timeout, move |sink| {
        queries.iter().try_for_each(|query| arrow::write_arrow_frame(&server, query, &bounds, sink))
    });
    Ok(([(CONTENT_TYPE, arrow::ARROW_CONTENT_TYPE)], body).into_response())
}

/// Parses a request and its queries on a worker thread.
fn read_queries(text: &[u8], lease: &mut MemoryLease) -> Result<(QueryBody, Vec<SpanQuery>), PhoenixApiError> {
    if text.len() > MAX_QUERY_BYTES {
        return Err(ReceiveRefusal::BodyTooLarge { limit: MAX_QUERY_BYTES }.into());
    }
    let body: QueryBody = parse_json(text, lease)?;
    if body.queries.len() > MAX_QUERIES {
        return Err(PhoenixApiError::unprocessable(format!("at most {MAX_QUERIES} queries at once")));
    }
    let queries = body.queries.iter().map(SpanQuery::read).collect::<Result<Vec<SpanQuery>, DataFrameError>>();
    let queries = queries.map_err(|error| PhoenixApiError::unprocessable(format!("Invalid query: {error}")))?;
    if queries.is_empty() {
        return Err(PhoenixApiError::not_found("there is no query in this request"));
    }
    Ok((body, queries))
}

/// Resolves the bounds. A missing project is not an error: the tables are empty then, as in Phoenix.
async fn resolve_query_bounds(
    server: &Arc<ServerState>,
    params: &PhoenixQueryParams,
    headers: &HeaderMap,
    body: &QueryBody,
) -> Result<SpanQueryBounds, PhoenixApiError> {
    // Clients of different versions name the project in a parameter, a header or the body.
    let header = headers.get("project-name").and_then(|name| name.to_str().ok());
    let names =
        [params.last_value("project_name"), params.last_value("project-name"), header, body.project_name.as_deref()];
    let name = names.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or(DEFAULT_PROJECT).to_owned();
    let project = run_short_query(server, move |server| Ok(server.store.project_named(&name)?)).await?;
    let time = |name: &str, text: Option<&String>| match text {
        Some(text) => parse_iso_time_us(text).map(Some).ok_or_else(|| {
            PhoenixApiError::invalid_body(&[name.into()], &format!("{text:?}: write it as 2026-11-15T08:00:00+00:00"))
        }),
        None => Ok(None),
    };
    let end_time = time("end_time", body.end_time.as_ref())?;
    Ok(SpanQueryBounds {
        project: project.map(|project| project.no),
        from_us: time("start_time", body.start_time.as_ref())?,
        to_us: end_time.or(time("stop_time", body.stop_time.as_ref())?),
        // As in SQL, a negative limit means no limit.
        limit: usize::try_from(body.limit.unwrap_or(DEFAULT_LIMIT)).ok(),
        roots: match (body.root_spans_only, body.orphan_span_as_root_span) {
            (Some(true), Some(false)) => RootSpanFilter::WithoutParent,
            (Some(true), _) => RootSpanFilter::WithOrphans,
            _ => RootSpanFilter::All,
        },
    })
}
