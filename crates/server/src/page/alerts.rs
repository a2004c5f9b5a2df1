//! Alert rules with their states and latest measurements, and the latest notices.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value as Json;

use super::display_text::{format_duration, format_timestamp};
use super::loaded_trace::{self, trace_id};
use super::render::{self, PageError, PageQuery};
use super::{NavigationQuery, PageLayout, PageUrl};
use crate::alert::{AlertMetric, AlertRule, AlertTarget};
use crate::alert_catalog::ListedAlert;
use crate::alert_measurements::LatestAlertMeasurement;
use crate::caller::{RequestCaller, RequiredScope};
use crate::http_error::ApiError;
use crate::live::NEW_TOOL_PERIOD_NS;
use crate::state::ServerState;
use gradus_report::html::number::{format_count, format_counted_noun, format_minute};
use gradus_report::html::text;

/// Maximum number of notices on the page; the latest. The API pages through all of them.
const MAX_EVENTS: usize = 100;
/// Maximum number of unseen tools in one row.
const MAX_TOOLS: usize = 20;

#[derive(Template)]
#[template(path = "alerts.html")]
pub(super) struct AlertListPage {
    frame: PageLayout,
    rules: Vec<AlertRuleRow>,
    unusable: Vec<UnusableAlertRow>,
    events: Vec<AlertEventRow>,
    /// Whether the caller may create and change rules.
    may_change: bool,
    /// Whether there is something to export.
    has_stored: bool,
    message: Option<AlertMessage>,
}

/// A stored rule that is not in force.
struct UnusableAlertRow {
    name: String,
    /// The name as it is stored, for forms.
    key: String,
    reason: String,
    edit: Option<String>,
}

/// A target of notices, and why delivery to it fails.
struct AlertTargetView {
    name: String,
    /// Since when it fails, and how.
    failure: Option<(String, String)>,
}

/// A rule that is in force.
struct AlertRuleRow {
    name: String,
    /// The name as it is stored, for forms.
    key: String,
    origin: &'static str,
    /// URL of the form; rules of the file have none.
    edit: Option<String>,
    is_muted: bool,
    muted_until: Option<String>,
    project: String,
    condition: String,
    /// What the value of an evaluator is.
    measures: Option<&'static str>,
    /// The value at which the alert is over, with its unit.
    clears: Option<String>,
    now: AlertMeasurementView,
    is_firing: bool,
    since: Option<String>,
    targets: Vec<AlertTargetView>,
}

/// The latest measurement of a rule, or why there is none.
struct AlertMeasurementView {
    value: String,
    /// Sample size, or why the value cannot fire the rule.
    of: String,
    unseen: Vec<String>,
}

impl AlertMeasurementView {
    /// Formats a measurement. `reading` is none before the first measurement after a start: measurements are in
    /// memory only.
    fn for_rule(rule: &AlertRule, reading: Option<LatestAlertMeasurement>) -> AlertMeasurementView {
        let only = |of: &str| AlertMeasurementView { value: "–".to_owned(), of: of.to_owned(), unseen: Vec::new() };
        let Some(reading) = reading else { return only("not evaluated yet") };
        let Some(measured) = reading.measured else { return only("no data in the window") };
        let condition = &rule.condition;
        let least = condition.min_sample_count();
        // Without `at least` the unit is that of the metric.
        let unit =
            condition.min_sample.and_then(|min_sample| min_sample.unit).or(condition.subject.units().first().copied());
        let counted = |number: u64| match unit {
            Some(unit) => format!("{} {}", format_count(number), unit.name_for(number)),
            None => format_count(number),
        };
        AlertMeasurementView {
            value: condition.format_measured_value(measured.value),
            of: match (measured.count < least, condition.subject == AlertMetric::CostPerHour) {
                (true, _) => {
                    format!("of {}; needs at least {}", counted(measured.count), counted(least))
                }
                (false, true) => String::new(),
                (false, false) if condition.subject == AlertMetric::UnseenTool => {
                    format!("new in the last {}, of {}", format_duration(NEW_TOOL_PERIOD_NS), counted(measured.count))
                }
                // The mean of the window is bad, but the scores do not prove that it is.
                (false, false)
                    if measured.is_proven == Some(false)
                        && condition.bar.is_some_and(|bar| bar.is_met_by(measured.value)) =>
                {
                    format!("of {}, which may be chance", counted(measured.count))
                }
                (false, false) => format!("of {}", counted(measured.count)),
            },
            unseen: measured.unseen.iter().take(MAX_TOOLS).map(|name| text::format_display_line(name)).collect(),
        }
    }
}

/// A notice from the store. Notices are JSON of the version that wrote them, so every field may be missing.
struct AlertEventRow {
    at: String,
    rule: String,
    kind: String,
    class: &'static str,
    value: String,
    unseen: Vec<String>,
    /// URL and summary.
    examples: Vec<(String, String)>,
}

/// The result of an action, such as a test notice.
pub(super) struct AlertMessage {
    pub(super) title: String,
    /// Whether the step succeeded, and a description.
    pub(super) lines: Vec<(bool, String)>,
}

/// `GET /alerts`
pub(super) async fn render_alerts_page(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    PageQuery(looked): PageQuery<NavigationQuery>,
) -> Result<Response, PageError> {
    let frame = PageLayout::new("/alerts", looked.project(), &headers);
    render::render_page(&server, move |server| build_alerts_page(server, &caller, frame, None)).await
}

pub(super) fn build_alerts_page(
    server: &ServerState,
    caller: &RequestCaller,
    frame: PageLayout,
    message: Option<AlertMessage>,
) -> Result<AlertListPage, ApiError> {
    let catalog = server.alerts.catalog();
    let mut rules = Vec::new();
    for listed in &catalog.alerts {
        rules.push(AlertRuleRow::new(server, listed)?);
    }
    let events = server.store.alert_events(i64::MAX, MAX_EVENTS)?;
    let events = events.iter().map(|event| {
        let notice: Json = serde_json::from_str(&event.body).unwrap_or_default();
        AlertEventRow {
            at: format_timestamp(event.at_ns),
            rule: text::format_display_line(&event.rule),
            class: if event.kind == "resolved" { "pass" } else { "fail" },
            kind: text::format_display_line(&event.kind),
            value: text::format_display_line(notice["value_text"].as_str().unwrap_or_default()),
            unseen: list_unseen_tools(&notice),
            examples: list_example_links(&notice),
        }
    });
    let unusable = catalog.unusable.iter().map(|one| UnusableAlertRow {
        name: text::format_display_line(&one.name),
        key: one.name.clone(),
        reason: text::format_display_line(&one.reason),
        edit: one.stored.is_some().then(|| edit_url(&one.name)),
    });
    Ok(AlertListPage {
        frame,
        may_change: caller.has_scope(RequiredScope::Admin),
        has_stored: catalog.alerts.iter().any(ListedAlert::is_stored) || !catalog.unusable.is_empty(),
        unusable: unusable.collect(),
        rules,
        events: events.collect(),
        message,
    })
}

fn edit_url(name: &str) -> String {
    PageUrl::from_path("/alerts/edit").with("rule", Some(name)).to_string()
}

/// `GET /alerts/firing`: the number in the badge, for pages that stay open.
pub(super) async fn count_firing_alerts(State(server): State<Arc<ServerState>>) -> String {
    server.alerts.firing_count().to_string()
}

impl AlertRuleRow {
    fn new(server: &ServerState, listed: &ListedAlert) -> Result<AlertRuleRow, ApiError> {
        let rule = &listed.rule;
        let state = server.store.alert_state(&rule.name)?;
        let state: Json = state.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        Ok(AlertRuleRow {
            name: text::format_display_line(&rule.name),
            key: rule.name.clone(),
            origin: if listed.is_stored() { "made here" } else { "from gradus.toml" },
            edit: listed.is_stored().then(|| edit_url(&rule.name)),
            is_muted: listed.mute().is_some(),
            muted_until: listed.mute().and_then(|mute| mute.until_ns).map(format_timestamp),
            project: text::format_display_line(rule.project.as_deref().unwrap_or("all")),
            condition: text::format_display_line(&rule.condition.to_string()),
            measures: match &rule.condition.subject {
                AlertMetric::Evaluator { gives_only_flags: true, .. } => {
                    Some("share of judged cases without a flag: its rules only notice mistakes")
                }
                AlertMetric::Evaluator { .. } => Some("mean score of decided cases; undecided ones do not count"),
                _ => None,
            },
            clears: rule.clears_at().map(|value| rule.condition.subject.format_value(value)),
            now: AlertMeasurementView::for_rule(rule, server.alert_measurements.find_for_rule(rule)),
            is_firing: state["state"] == "firing",
            since: state["since"].as_str().map(format_minute),
            targets: rule.targets.iter().map(|target| AlertTargetView::new(server, target)).collect(),
        })
    }
}

impl AlertTargetView {
    fn new(server: &ServerState, target: &AlertTarget) -> AlertTargetView {
        let failure = server.alerts.target_health(target).failure;
        AlertTargetView {
            name: text::format_display_line(&target.to_string()),
            failure: failure.map(|failure| {
                let attempts = format_counted_noun(failure.attempts, "attempt", "attempts");
                let next = if failure.is_given_up { "given up" } else { "retrying" };
                let since = format_minute(&failure.since.to_string());
                let reason = text::format_display_line(&failure.reason);
                (since, format!("{reason}; {attempts}, {next}"))
            }),
        }
    }
}

/// Lists the tools that were not called in the window before.
fn list_unseen_tools(notice: &Json) -> Vec<String> {
    let names = notice["unseen"].as_array().into_iter().flatten().filter_map(Json::as_str);
    names.take(MAX_TOOLS).map(text::format_display_line).collect()
}

/// Lists URLs and summaries of the examples. Those whose trace id is not hexadecimal get no link: the id would be
/// part of a path.
fn list_example_links(notice: &Json) -> Vec<(String, String)> {
    let example = |one: &Json| {
        let trace = one["trace_id"].as_str().filter(|id| trace_id(id).is_some())?;
        let step = one["step_index"].as_u64().and_then(|step| u32::try_from(step).ok());
        let address = loaded_trace::format_step_url(trace, one["trajectory_id"].as_str(), step);
        Some((address, text::format_display_line(one["summary"].as_str().unwrap_or("a trace"))))
    };
    notice["examples"].as_array().into_iter().flatten().filter_map(example).collect()
}
