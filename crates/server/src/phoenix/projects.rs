//! `/v1/projects`: listing, creating, describing and deleting projects.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use gradus_store::ProjectInfo;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{PhoenixApiError, run_short_query};
use super::ids;
use super::request::{self, DEFAULT_PROJECT, PhoenixQueryParams};
use crate::clock::now_ns;
use crate::receive::MAX_PROJECT_NAME_BYTES;
use crate::state::ServerState;

/// Lists projects from new to old, by row number. The default project is listed even if it is not stored yet.
pub(super) async fn list_projects(
    State(server): State<Arc<ServerState>>,
    params: PhoenixQueryParams,
) -> Result<Json<Value>, PhoenixApiError> {
    let limit = params.parse_limit(100, 10_000)?;
    let up_to = match params.last_value("cursor") {
        Some(cursor) => ids::decode_numeric_id("Project", cursor)
            .ok_or_else(|| PhoenixApiError::unprocessable(format!("Invalid cursor format: {cursor}")))?,
        None => i64::MAX,
    };
    let part = params.last_value("name_contains").map(str::to_owned);
    let mut found = run_short_query(&server, move |server| {
        let mut found = server.store.project_list(up_to, part.as_deref(), limit + 1)?;
        found.extend(request::listed_default_project(server, up_to, part.as_deref())?);
        Ok(found)
    })
    .await?;
    let next = found.get(limit).map(|next| ids::encode_node_id("Project", next.no));
    found.truncate(limit);
    let found: Vec<Value> = found.iter().map(project_to_json).collect();
    Ok(Json(json!({"data": found, "next_cursor": next})))
}

/// Returns a project by global id or by name.
pub(super) async fn get_project(
    State(server): State<Arc<ServerState>>,
    Path(identifier): Path<String>,
) -> Result<Json<Value>, PhoenixApiError> {
    let project = request::find_project(&server, &identifier).await?;
    Ok(Json(json!({"data": project_to_json(&project)})))
}

#[derive(Deserialize)]
struct NewPhoenixProject {
    name: String,
    description: Option<String>,
}

/// Creates a project; 409 if it exists. Names and descriptions are redacted like all other received text.
pub(super) async fn create_project(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    let (mut new, _lease): (NewPhoenixProject, _) = request::parse_json_body(&server, &headers, body).await?;
    let redaction = &server.reloadable().redaction;
    redaction.apply_to(&mut new.name);
    new.description.iter_mut().for_each(|description| redaction.apply_to(description));
    if new.name.trim().is_empty() || new.name.len() > MAX_PROJECT_NAME_BYTES {
        let advice = format!("a project's name has from 1 to {MAX_PROJECT_NAME_BYTES} bytes");
        return Err(PhoenixApiError::invalid_body(&["name".into()], &advice));
    }
    let name = new.name.clone();
    let made = server.store.add_project(new.name, new.description, now_ns())?.wait_async().await?;
    let made =
        made.ok_or_else(|| PhoenixApiError::new(StatusCode::CONFLICT, format!("there is a project {name:?} already")))?;
    Ok(Json(json!({"data": project_to_json(&made)})))
}

#[derive(Deserialize)]
struct PhoenixProjectUpdate {
    description: Option<String>,
}

/// Changes the description. Nothing else can be changed, as in Phoenix.
pub(super) async fn update_project_description(
    State(server): State<Arc<ServerState>>,
    Path(identifier): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, PhoenixApiError> {
    let (update, _lease): (PhoenixProjectUpdate, _) = request::parse_json_body(&server, &headers, body).await?;
    let mut project = request::find_or_store_project(&server, &identifier).await?;
    if let Some(mut description) = update.description {
        server.reloadable().redaction.apply_to(&mut description);
        let is_there = server.store.describe_project(project.no, description.clone())?.wait_async().await?;
        if !is_there {
            return Err(PhoenixApiError::not_found(format!("Project with name {} not found", project.name)));
        }
        project.description = Some(description);
    }
    Ok(Json(json!({"data": project_to_json(&project)})))
}

/// Deletes a project with all of its data, in short steps, so that senders do not wait.
pub(super) async fn delete_project(
    State(server): State<Arc<ServerState>>,
    Path(identifier): Path<String>,
) -> Result<StatusCode, PhoenixApiError> {
    let project = request::find_project(&server, &identifier).await?;
    if project.name == DEFAULT_PROJECT {
        return Err(PhoenixApiError::new(StatusCode::FORBIDDEN, "The default project cannot be deleted"));
    }
    // A task of its own, so that it goes on when the client disconnects: a half-deleted project is useless.
    let removing = tokio::spawn(async move {
        while server.store.remove_project_step(project.no)?.wait_async().await?.has_more {}
        Ok::<(), gradus_store::StoreError>(())
    });
    removing
        .await
        .map_err(|_| PhoenixApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the project could not be removed"))??;
    Ok(StatusCode::NO_CONTENT)
}

fn project_to_json(project: &ProjectInfo) -> Value {
    json!({
        "id": ids::encode_node_id("Project", project.no),
        "name": project.name,
        "description": project.description,
    })
}
