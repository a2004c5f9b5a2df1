//! Alert rules that people make: create, change, delete, mute, test and export. All of it needs the scope admin.
//!
//! Doc comments on types and handlers of this folder are published in `/openapi.json`; notes for maintainers are plain
//! comments.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::alert::StoredAlertRule;
use crate::alert_changes::{self, MuteChange};
use crate::caller::RequestCaller;
use crate::http_error::{ApiError, ErrorBody};
use crate::receive;
use crate::state::ServerState;

/// Maximum size of a request body. A rule is a few short texts.
const MAX_RULE_BYTES: usize = 16 << 10;

/// A rule, with the keys of an `[[alert]]` table. It cannot name a command.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertRuleBody {
    /// Unique, 1 to 100 characters.
    name: String,
    /// Only this project; `*` at the end matches any ending.
    project: Option<String>,
    /// The condition: `thought_to_tool < 0.8 over 1h, at least 30 steps`.
    when: String,
    /// When the alert is over, in the form of the threshold: `0.85`, `85%`, `25s`.
    clear_at: Option<String>,
    /// Minimum time between two notices: `30m`.
    cool_down: Option<String>,
    /// Receives the notice as JSON. It must not lead to a private address unless `serve.alert_networks` allows it.
    webhook: Option<String>,
    /// Receives a Slack-compatible payload.
    slack: Option<String>,
}

impl From<AlertRuleBody> for StoredAlertRule {
    fn from(body: AlertRuleBody) -> StoredAlertRule {
        let AlertRuleBody { name, project, when, clear_at, cool_down, webhook, slack } = body;
        StoredAlertRule { name, project, when, clear_at, cool_down, webhook, slack }
    }
}

/// For how long a rule is muted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MuteBody {
    /// Null: until the muting is deleted.
    #[schema(minimum = 1, maximum = 8784)]
    hours: Option<u32>,
}

/// What came of a test notice, for each target.
#[derive(Serialize, ToSchema)]
pub(super) struct TestNoticeResult {
    items: Vec<TestNoticeItem>,
}

#[derive(Serialize, ToSchema)]
struct TestNoticeItem {
    /// `log`, `webhook`, `slack` or `command`.
    kind: &'static str,
    is_sent: bool,
    /// Why it was not accepted.
    reason: Option<String>,
}

async fn read_rule(server: &Arc<ServerState>, headers: &HeaderMap, body: Body) -> Result<StoredAlertRule, ApiError> {
    let (rule, _lease) = receive::read_small_json::<AlertRuleBody>(server, headers, body, MAX_RULE_BYTES).await?;
    Ok(rule.into())
}

/// Creates an alert rule.
#[utoipa::path(post, path = "/api/v1/alert-rules", tag = "alerts", request_body = AlertRuleBody,
    responses((status = 201), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn create_alert_rule(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let rule = read_rule(&server, &headers, body).await?;
    alert_changes::save_alert_rule(&server, &caller, rule, None).await?;
    Ok(StatusCode::CREATED)
}

/// Replaces an alert rule that was created here. Rules of the settings file answer 409.
#[utoipa::path(put, path = "/api/v1/alert-rules/{name}", tag = "alerts", request_body = AlertRuleBody,
    params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn replace_alert_rule(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let rule = read_rule(&server, &headers, body).await?;
    alert_changes::save_alert_rule(&server, &caller, rule, Some(name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes an alert rule that was created here. Its notices stay in the history.
#[utoipa::path(delete, path = "/api/v1/alert-rules/{name}", tag = "alerts", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn delete_alert_rule(
    State(server): State<Arc<ServerState>>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    alert_changes::delete_alert_rule(&server, name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Mutes an alert: its notices go to the log and to the history only.
#[utoipa::path(put, path = "/api/v1/alert-rules/{name}/mute", tag = "alerts", request_body = MuteBody,
    params(("name" = String, Path)),
    responses((status = 204), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn mute_alert(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let (body, _lease) = receive::read_small_json::<MuteBody>(&server, &headers, body, MAX_RULE_BYTES).await?;
    let change = body.hours.map_or(MuteChange::UntilEnded, MuteChange::Hours);
    alert_changes::mute_alert(&server, &caller, name, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends the muting of an alert.
#[utoipa::path(delete, path = "/api/v1/alert-rules/{name}/mute", tag = "alerts", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody)))]
pub(super) async fn unmute_alert(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    alert_changes::mute_alert(&server, &caller, name, MuteChange::End).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a notice of kind `test` to every target of a rule, once, and waits for their answers.
#[utoipa::path(post, path = "/api/v1/alert-rules/{name}/test", tag = "alerts", params(("name" = String, Path)),
    responses((status = 200, body = TestNoticeResult), (status = 404, body = ErrorBody)))]
pub(super) async fn test_alert(
    State(server): State<Arc<ServerState>>,
    Path(name): Path<String>,
) -> Result<Json<TestNoticeResult>, ApiError> {
    let sent = alert_changes::send_test_notice(&server, &name).await?;
    let items = sent.into_iter().map(|one| TestNoticeItem {
        kind: one.target.kind().name(),
        is_sent: one.failure.is_none(),
        reason: one.failure,
    });
    Ok(Json(TestNoticeResult { items: items.collect() }))
}

/// The rules that were created here, as `[[alert]]` tables for `gradus.toml`, with the addresses of their targets.
#[utoipa::path(get, path = "/api/v1/alert-rules/export", tag = "alerts",
    responses((status = 200, body = String, content_type = "application/toml")))]
pub(super) async fn export_alert_rules(State(server): State<Arc<ServerState>>) -> Response {
    let text = alert_changes::export_stored_rules(&server);
    ([(CONTENT_TYPE, "application/toml")], text).into_response()
}
