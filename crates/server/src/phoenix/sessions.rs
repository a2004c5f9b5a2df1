//! Sessions of a project. A session is known from trajectories, so a trace is listed once it is assembled.

use crate::phoenix::session_lookup::SESSION_NODE_TYPE;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use gradus_phoenix::span_view::format_iso_time;
use gradus_store::{SessionRow, StoreError};
use serde_json::{Value, json};

use super::error::{PhoenixApiError, run_large_query};
use super::ids;
use super::request::{self, PhoenixQueryParams};
use super::scan::SpanScan;
use crate::phoenix::session_lookup::{decode_session_id, find_session};
use crate::state::ServerState;

/// Lists sessions in the order of their names. The cursor names the first session of the next page.
pub(super) async fn list_sessions(
    State(server): State<Arc<ServerState>>,
    Path(project): Path<String>,
    params: PhoenixQueryParams,
) -> Result<Json<Value>, PhoenixApiError> {
    if params.last_value("filter").is_some() {
        let message = "the filter language for sessions is not kept here";
        return Err(PhoenixApiError::new(StatusCode::NOT_IMPLEMENTED, message));
    }
    let is_descending = params.is_first_option("order", ["desc", "asc"], "asc")?;
    let limit = params.parse_limit(100, 1000)?;
    let from = match params.last_value("cursor") {
        Some(cursor) => {
            decode_session_id(cursor)
                .ok_or_else(|| PhoenixApiError::unprocessable(format!("Invalid cursor format: {cursor}")))?
                .1
        }
        // Greater than any name, so the list begins at the end.
        None if is_descending => char::MAX.to_string(),
        None => String::new(),
    };
    let project = request::find_project(&server, &project).await?.no;
    run_large_query(&server, move |server| {
        let mut rows = server.store.sessions(project, &from, is_descending, limit + 1)?;
        let next = rows.get(limit).map(encode_session_id);
        rows.truncate(limit);
        let data = rows.iter().map(|row| session_to_json(server, row)).collect::<Result<Vec<Value>, _>>()?;
        Ok(Json(json!({"data": data, "next_cursor": next})))
    })
    .await
}

/// Returns a session by global id or by name.
pub(super) async fn get_session(
    State(server): State<Arc<ServerState>>,
    Path(identifier): Path<String>,
) -> Result<Json<Value>, PhoenixApiError> {
    run_large_query(&server, move |server| {
        let row = find_session(server, &identifier)?;
        let row =
            row.ok_or_else(|| PhoenixApiError::not_found(format!("Session with session_id {identifier} not found")))?;
        Ok(Json(json!({"data": session_to_json(server, &row)?})))
    })
    .await
}

fn encode_session_id(row: &SessionRow) -> String {
    ids::encode_node_id(SESSION_NODE_TYPE, format_args!("{}:{}", row.project, row.session))
}

/// Converts a session. Reads the spans of all of its traces, since times and tokens are not stored by session.
fn session_to_json(server: &ServerState, row: &SessionRow) -> Result<Value, StoreError> {
    let mut traces_shown = Vec::new();
    let (mut prompt, mut completion) = (0_i64, 0_i64);
    let (mut start_us, mut end_us) = (i64::MAX, i64::MIN);
    let ids = row.traces.iter().map(|trace| trace.trace_id).collect();
    let scan = SpanScan { newest_first: false, traces: Some(ids), ..SpanScan::for_project(row.project) };
    scan.visit_traces(server, &mut |trace| {
        let Some((first, last)) = crate::phoenix::trace_totals::compute_trace_extent(trace) else {
            return ControlFlow::Continue(());
        };
        let tokens = crate::phoenix::trace_totals::sum_trace_tokens(trace);
        prompt = prompt.saturating_add(tokens.0);
        completion = completion.saturating_add(tokens.1);
        (start_us, end_us) = (start_us.min(first), end_us.max(last));
        traces_shown.push(json!({
            "id": ids::encode_node_id("Trace", trace.trace_id),
            "trace_id": trace.trace_id.to_string(),
            "start_time": format_iso_time(first),
            "end_time": format_iso_time(last),
        }));
        ControlFlow::Continue(())
    })?;
    Ok(json!({
        "id": encode_session_id(row),
        "session_id": row.session,
        "project_id": ids::encode_node_id("Project", row.project),
        "start_time": format_iso_time(start_us),
        "end_time": format_iso_time(end_us),
        "traces": traces_shown,
        "token_count_prompt": prompt,
        "token_count_completion": completion,
        "token_count_total": prompt.saturating_add(completion),
    }))
}
