//! Alert rules as they stand, what was told, and the rules of live grading.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::alert;
use crate::alert_readings::LatestAlertMeasurement;
use crate::http_error::{ApiError, ApiQuery, run_store_query};
use crate::state::ServerState;
use crate::time_text as time;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AlertParams {
    /// `next_cursor` of the page before.
    #[param(minimum = 0)]
    cursor: Option<i64>,
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Alerts)]
pub(super) struct AlertList {
    rules: Vec<AlertRuleStatus>,
    /// The latest first.
    events: Vec<AlertEventBody>,
    next_cursor: Option<i64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AlertRule)]
pub(super) struct AlertRuleStatus {
    name: String,
    project: Option<String>,
    condition: String,
    /// How the rule stands: `quiet` or `firing`, and since when.
    #[schema(value_type = Object)]
    state: serde_json::Value,
    /// The value at which an alert is over, as shares, scores, dollars or seconds; none for `unseen_tool`.
    clear_at: Option<f64>,
    /// What the rule found when it last looked; none before its first look.
    now: Option<AlertReading>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct AlertReading {
    at: String,
    /// In the unit of `clear_at`, or the number of unseen tools; none where there was no data.
    value: Option<f64>,
    /// How many steps, trajectories or questions the value is taken from.
    count: u64,
    /// Whether that is enough for the rule to say anything.
    is_enough: bool,
    unseen: Vec<String>,
}

impl AlertReading {
    fn from_measurement(rule: &alert::AlertRule, reading: LatestAlertMeasurement) -> AlertReading {
        let value = reading.measured.as_ref().map(|measured| measured.value);
        let measured = reading.measured.unwrap_or_default();
        AlertReading {
            at: time::format_rfc3339(reading.at_ns),
            value: value.filter(|value| value.is_finite()),
            count: measured.count,
            is_enough: measured.count >= rule.condition.least_count(),
            unseen: measured.unseen,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct AlertEventBody {
    id: i64,
    at: String,
    rule: String,
    /// `fired`, `reminder` or `resolved`.
    kind: String,
    /// As it is sent to webhooks.
    #[schema(value_type = Object)]
    notice: serde_json::Value,
}

/// Alert rules, and what they told.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "alerts", params(AlertParams),
    responses((status = 200, body = AlertList), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn list_alerts(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<AlertParams>,
) -> Result<Json<AlertList>, ApiError> {
    let limit = params.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit={limit}: from 1 to 1000")));
    }
    run_store_query(&server, move |server| {
        let mut rules = Vec::new();
        for rule in &server.reloadable().alerts {
            let state = server.store.alert_state(&rule.name)?;
            rules.push(AlertRuleStatus {
                name: rule.name.clone(),
                project: rule.project.clone(),
                condition: rule.condition.to_string(),
                state: state.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                clear_at: rule.clears_at(),
                now: server.readings.find_for_rule(rule).map(|reading| AlertReading::from_measurement(rule, reading)),
            });
        }
        let events = server.store.alert_events(params.cursor.unwrap_or(i64::MAX), limit)?;
        let next_cursor = events.last().filter(|_| events.len() == limit).map(|event| event.no);
        let events = events.into_iter().map(|event| AlertEventBody {
            id: event.no,
            at: time::format_rfc3339(event.at_ns),
            rule: event.rule,
            kind: event.kind,
            notice: serde_json::from_str(&event.body).unwrap_or_default(),
        });
        Ok(Json(AlertList { rules, events: events.collect(), next_cursor }))
    })
    .await
}

#[derive(Serialize, ToSchema)]
#[schema(as = Rules)]
pub(super) struct GradingRuleList {
    items: Vec<RuleBody>,
}

/// How the trajectories of a project are judged.
#[derive(Serialize, ToSchema)]
pub(super) struct RuleBody {
    name: String,
    /// `*` at its end stands for anything.
    project: String,
    judge: String,
    evaluators: Vec<String>,
    /// The share of trajectories that are judged.
    sample: f64,
    /// Whether every trajectory with an error is judged.
    all_errors: bool,
    daily_budget_usd: Option<f64>,
}

/// The rules of live grading; the first that fits a project counts.
#[utoipa::path(get, path = "/api/v1/rules", tag = "rules", responses((status = 200, body = GradingRuleList)))]
pub(super) async fn list_grading_rules(State(server): State<Arc<ServerState>>) -> Json<GradingRuleList> {
    let reloadable = server.reloadable();
    let items = reloadable.rules.iter().map(|rule| RuleBody {
        name: rule.name.clone(),
        project: rule.project_pattern().to_owned(),
        judge: rule.judge.as_ref().map_or_else(|| "offline".to_owned(), |judge| judge.name()),
        evaluators: rule.evaluators.iter().map(|evaluator| evaluator.name.to_string()).collect(),
        sample: rule.sample,
        all_errors: rule.all_errors,
        daily_budget_usd: rule.daily_budget_usd,
    });
    Json(GradingRuleList { items: items.collect() })
}
