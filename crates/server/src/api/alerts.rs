//! Alert rules with their states and latest measurements, the notices so far, and the rules of live grading.
//!
//! Doc comments on types and handlers of this folder are published in `/openapi.json`; notes for maintainers are plain
//! comments.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::alert;
use crate::alert_measurements::LatestAlertMeasurement;
use crate::http_error::{ApiError, ApiQuery, run_short_query};
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
    /// Rules that were created here and do not fit the settings any more.
    unusable: Vec<UnusableAlertRule>,
    /// The latest first.
    events: Vec<AlertEventBody>,
    next_cursor: Option<i64>,
}

/// A rule of the current settings.
#[derive(Serialize, ToSchema)]
#[schema(as = AlertRule)]
pub(super) struct AlertRuleStatus {
    name: String,
    /// Null if the rule watches all projects.
    project: Option<String>,
    /// The condition as text, in canonical form.
    condition: String,
    /// State of the rule: `quiet` or `firing`, with the time since when.
    #[schema(value_type = Object)]
    state: serde_json::Value,
    /// The value at which an alert is over: a share, a score, dollars or seconds. Null for `unseen_tool`.
    clear_at: Option<f64>,
    /// The latest measurement; null before the first.
    now: Option<AlertReading>,
    /// `file` for a rule of the settings file, `page` for one that somebody created here.
    origin: &'static str,
    /// Whether notices go to the log only.
    is_muted: bool,
    /// When the muting ends; null if somebody has to end it, or if the rule is not muted.
    muted_until: Option<String>,
    /// Who is notified.
    targets: Vec<AlertTargetStatus>,
}

/// A target of notices, with how the latest delivery went.
#[derive(Serialize, ToSchema)]
pub(super) struct AlertTargetStatus {
    /// `log`, `webhook`, `slack` or `command`.
    kind: &'static str,
    /// Scheme and host of an address, or the program of a command. The rest is secret.
    name: String,
    /// When a notice was last accepted, since the start of the server.
    last_sent: Option<String>,
    /// Present while deliveries fail.
    failure: Option<AlertTargetFailure>,
}

/// Failed attempts without a success in between.
#[derive(Serialize, ToSchema)]
pub(super) struct AlertTargetFailure {
    since: String,
    attempts: u64,
    reason: String,
    /// Whether the notice was given up after the last attempt.
    is_given_up: bool,
}

impl AlertTargetStatus {
    fn new(server: &ServerState, target: &alert::AlertTarget) -> AlertTargetStatus {
        let health = server.alerts.target_health(target);
        AlertTargetStatus {
            kind: target.kind().name(),
            name: target.to_string(),
            last_sent: health.sent_at.map(|at| at.to_string()),
            failure: health.failure.map(|failure| AlertTargetFailure {
                since: failure.since.to_string(),
                attempts: failure.attempts,
                reason: failure.reason,
                is_given_up: failure.is_given_up,
            }),
        }
    }
}

/// A rule that was created here and is not in force.
#[derive(Serialize, ToSchema)]
pub(super) struct UnusableAlertRule {
    name: String,
    reason: String,
}

/// A measurement of a rule.
#[derive(Serialize, ToSchema)]
pub(super) struct AlertReading {
    at: String,
    /// In the unit of `clear_at`, or the number of unseen tools. Null without data.
    value: Option<f64>,
    /// How many steps, trajectories or questions the value is taken from.
    count: u64,
    /// Whether the sample is large enough for the rule to fire or resolve.
    is_enough: bool,
    /// Tools that were not called in the window before, for `unseen_tool`.
    unseen: Vec<String>,
}

impl AlertReading {
    fn from_measurement(rule: &alert::AlertRule, reading: LatestAlertMeasurement) -> AlertReading {
        let value = reading.measured.as_ref().map(|measured| measured.value);
        let measured = reading.measured.unwrap_or_default();
        AlertReading {
            at: time::format_rfc3339(reading.at_ns),
            // JSON has no infinities and no NaN.
            value: value.filter(|value| value.is_finite()),
            count: measured.count,
            is_enough: measured.count >= rule.condition.min_sample_count(),
            unseen: measured.unseen,
        }
    }
}

/// A notice that was sent.
#[derive(Serialize, ToSchema)]
pub(super) struct AlertEventBody {
    /// Grows with time; the cursor of the list.
    id: i64,
    at: String,
    rule: String,
    /// `fired`, `reminder` or `resolved`. Test notices are not listed.
    kind: String,
    /// The notice as webhooks get it.
    #[schema(value_type = Object)]
    notice: serde_json::Value,
}

/// Alert rules with their states, and the notices that were sent.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "alerts", params(AlertParams),
    responses((status = 200, body = AlertList), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn list_alerts(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<AlertParams>,
) -> Result<Json<AlertList>, ApiError> {
    // The bounds are also declared in `AlertParams`, but `utoipa` only documents them.
    let limit = params.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(ApiError::bad_request(format!("limit={limit}: from 1 to 1000")));
    }
    run_short_query(&server, move |server| {
        let mut rules = Vec::new();
        // Only rules of the current settings: states of removed rules stay in the store and are not listed.
        let catalog = server.alerts.catalog();
        for listed in &catalog.alerts {
            let rule = &listed.rule;
            let mute = listed.mute();
            let state = server.store.alert_state(&rule.name)?;
            rules.push(AlertRuleStatus {
                name: rule.name.clone(),
                project: rule.project.clone(),
                condition: rule.condition.to_string(),
                state: state.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                clear_at: rule.clears_at(),
                now: server
                    .alert_measurements
                    .find_for_rule(rule)
                    .map(|reading| AlertReading::from_measurement(rule, reading)),
                origin: if listed.is_stored() { "page" } else { "file" },
                is_muted: mute.is_some(),
                muted_until: mute.and_then(|mute| mute.until_ns).map(time::format_rfc3339),
                targets: rule.targets.iter().map(|target| AlertTargetStatus::new(server, target)).collect(),
            });
        }
        let events = server.store.alert_events(params.cursor.unwrap_or(i64::MAX), limit)?;
        // A full page may be the last one; then the next page is empty.
        let next_cursor = events.last().filter(|_| events.len() == limit).map(|event| event.no);
        let events = events.into_iter().map(|event| AlertEventBody {
            id: event.no,
            at: time::format_rfc3339(event.at_ns),
            rule: event.rule,
            kind: event.kind,
            notice: serde_json::from_str(&event.body).unwrap_or_default(),
        });
        let unusable = catalog.unusable.iter();
        let unusable =
            unusable.map(|one| UnusableAlertRule { name: one.name.clone(), reason: one.reason.clone() }).collect();
        Ok(Json(AlertList { rules, unusable, events: events.collect(), next_cursor }))
    })
    .await
}

#[derive(Serialize, ToSchema)]
#[schema(as = Rules)]
pub(super) struct GradingRuleList {
    items: Vec<RuleBody>,
}

/// How the trajectories of a project are graded as they arrive.
#[derive(Serialize, ToSchema)]
pub(super) struct RuleBody {
    name: String,
    /// A name; `*` at its end matches any ending.
    project: String,
    /// `offline`, or provider and model as `openai:gpt-4o`.
    judge: String,
    evaluators: Vec<String>,
    /// Share of the trajectories that are graded, from 0 to 1.
    sample: f64,
    /// Whether every trajectory with an error is graded in addition to the sample.
    all_errors: bool,
    /// Dollars for a UTC day; null for no limit.
    daily_budget_usd: Option<f64>,
}

/// The rules of live grading. The first rule that matches a project applies.
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
