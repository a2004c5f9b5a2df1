//! Conversations, as far as trajectories tell which one they belong to: a trace is in the list once it is assembled.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use gradus_core::phoenix_view::iso_time;
use gradus_core::span::TraceId;
use gradus_store::{SessionRow, StoreError};
use serde_json::{Value, json};

use super::error::{PhoenixError, blocking_large};
use super::request::{self, Params};
use super::scan::Scan;
use super::{ids, traces};
use crate::serve::state::Server;

const NODE: &str = "ProjectSession";

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Path(project): Path<String>,
    params: Params,
) -> Result<Json<Value>, PhoenixError> {
    if params.one("filter").is_some() {
        let message = "the filter language for sessions is not kept here";
        return Err(PhoenixError::new(StatusCode::NOT_IMPLEMENTED, message));
    }
    let is_descending = params.choice("order", ["desc", "asc"], "asc")?;
    let limit = params.limit(100, 1000)?;
    let from = match params.one("cursor") {
        Some(cursor) => {
            name(cursor).ok_or_else(|| PhoenixError::invalid(format!("Invalid cursor format: {cursor}")))?.1
        }
        None if is_descending => char::MAX.to_string(),
        None => String::new(),
    };
    let project = request::project(&server, &project).await?.no;
    blocking_large(&server, move |server| {
        let mut rows = server.store.sessions(project, &from, is_descending, limit + 1)?;
        let next = rows.get(limit).map(id);
        rows.truncate(limit);
        let data = rows.iter().map(|row| shown(server, row)).collect::<Result<Vec<Value>, _>>()?;
        Ok(Json(json!({"data": data, "next_cursor": next})))
    })
    .await
}

pub(super) async fn one(
    State(server): State<Arc<Server>>,
    Path(identifier): Path<String>,
) -> Result<Json<Value>, PhoenixError> {
    blocking_large(&server, move |server| {
        let row = find(server, &identifier)?;
        let row = row.ok_or_else(|| {
            PhoenixError::missing(format!("Session with session_id {identifier} not found"))
        })?;
        Ok(Json(json!({"data": shown(server, &row)?})))
    })
    .await
}

/// A session by its id in Phoenix's form, or by its name.
fn find(server: &Server, identifier: &str) -> Result<Option<SessionRow>, StoreError> {
    let (project, session) = match name(identifier) {
        Some((project, session)) => (Some(project), session),
        None => (None, identifier.to_owned()),
    };
    let rows = server.store.session(&session)?;
    Ok(rows.into_iter().find(|row| project.is_none_or(|project| row.project == project)))
}

/// The name of a session, whichever way it is written.
pub(super) fn plain(identifier: &str) -> String {
    name(identifier).map_or_else(|| identifier.to_owned(), |(_, session)| session)
}

/// The first trace of a session.
pub(super) fn first_trace(server: &Server, identifier: &str) -> Result<Option<TraceId>, StoreError> {
    Ok(find(server, identifier)?.and_then(|row| row.traces.first().map(|trace| trace.trace_id)))
}

/// The traces of some sessions in a project.
pub(super) fn traces(
    server: &Server,
    project: i64,
    identifiers: &[String],
) -> Result<Vec<TraceId>, StoreError> {
    let mut found = Vec::new();
    for identifier in identifiers {
        let rows = server.store.session(&plain(identifier))?.into_iter().filter(|row| row.project == project);
        found.extend(rows.flat_map(|row| row.traces).map(|trace| trace.trace_id));
    }
    Ok(found)
}

fn id(row: &SessionRow) -> String {
    ids::encode(NODE, format_args!("{}:{}", row.project, row.session))
}

/// The project and the name in an id.
fn name(id: &str) -> Option<(i64, String)> {
    let text = ids::decode(NODE, id)?;
    let (project, session) = text.split_once(':')?;
    Some((project.parse().ok()?, session.to_owned()))
}

fn shown(server: &Server, row: &SessionRow) -> Result<Value, StoreError> {
    let mut traces_shown = Vec::new();
    let (mut prompt, mut completion) = (0_i64, 0_i64);
    let (mut start_us, mut end_us) = (i64::MAX, i64::MIN);
    let ids = row.traces.iter().map(|trace| trace.trace_id).collect();
    let scan = Scan { newest_first: false, traces: Some(ids), ..Scan::of(row.project) };
    scan.each_trace(server, &mut |trace| {
        let Some((first, last)) = traces::extent(trace) else { return ControlFlow::Continue(()) };
        let tokens = traces::tokens(trace);
        prompt = prompt.saturating_add(tokens.0);
        completion = completion.saturating_add(tokens.1);
        (start_us, end_us) = (start_us.min(first), end_us.max(last));
        traces_shown.push(json!({
            "id": ids::encode("Trace", trace.trace_id),
            "trace_id": trace.trace_id.to_string(),
            "start_time": iso_time(first),
            "end_time": iso_time(last),
        }));
        ControlFlow::Continue(())
    })?;
    Ok(json!({
        "id": id(row),
        "session_id": row.session,
        "project_id": ids::encode("Project", row.project),
        "start_time": iso_time(start_us),
        "end_time": iso_time(end_us),
        "traces": traces_shown,
        "token_count_prompt": prompt,
        "token_count_completion": completion,
        "token_count_total": prompt.saturating_add(completion),
    }))
}
