//! Forms that change alerts: create, edit, delete, mute and test. All need the scope admin, which the route requires.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_eval::evaluator::OUTCOME;
use serde::Deserialize;

use super::alerts::{self, AlertMessage};
use super::render::{self, PageError, PageQuery};
use super::{PageLayout, form};
use crate::alert::StoredAlertRule;
use crate::alert_catalog::{AlertCatalog, AlertOrigin};
use crate::alert_changes::{self, MuteChange};
use crate::caller::RequestCaller;
use crate::state::ServerState;
use gradus_report::html::text;

/// Example conditions that the form offers.
const EXAMPLE_CONDITIONS: [&str; 7] = [
    "thought_to_tool < 0.8 over 1h, at least 30 steps",
    "call_validity < 0.95 over 1h, at least 30 steps",
    "error_rate > 20% over 1h, at least 20 trajectories",
    "failure_rate > 10% over 1h, at least 20 questions",
    "latency_p95 > 60s over 1h, at least 20 trajectories",
    "cost_per_hour > $2 over 1h",
    "unseen_tool over 7d",
];

/// The form for a new rule or for one that is edited.
#[derive(Template)]
#[template(path = "alert_form.html")]
struct AlertFormPage {
    frame: PageLayout,
    given: AlertForm,
    /// Scheme and host of the stored targets, which are kept if the field is left empty.
    webhook_now: Option<String>,
    slack_now: Option<String>,
    examples: [&'static str; 7],
    outcome: &'static str,
    problem: Option<String>,
}

/// Fields of the form. Empty ones count as absent.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AlertForm {
    /// The name of the rule that is edited; empty for a new one.
    replaces: String,
    name: String,
    project: String,
    when: String,
    clear_at: String,
    cool_down: String,
    webhook: String,
    slack: String,
    /// `on` removes the stored address.
    no_webhook: String,
    no_slack: String,
}

/// Parameters of `/alerts/edit`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AlertEditQuery {
    rule: String,
}

/// Body of the forms that are a single button for a rule.
#[derive(Deserialize)]
pub(super) struct AlertActionForm {
    rule: String,
    /// For muting: hours, `open` or `end`.
    #[serde(default)]
    mute: String,
}

/// Returns the trimmed text; `None` for an empty field.
fn non_empty_field(text: &str) -> Option<String> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn find_stored(catalog: &AlertCatalog, name: &str) -> Option<StoredAlertRule> {
    let listed = catalog.find(name).and_then(|listed| match &listed.origin {
        AlertOrigin::Stored(stored) => Some(stored.clone()),
        AlertOrigin::File => None,
    });
    listed.or_else(|| catalog.unusable.iter().find(|one| one.name == name)?.stored.clone())
}

impl AlertForm {
    fn from_stored(stored: &StoredAlertRule) -> AlertForm {
        let shown = |value: &Option<String>| value.clone().unwrap_or_default();
        AlertForm {
            replaces: stored.name.clone(),
            name: stored.name.clone(),
            project: shown(&stored.project),
            when: stored.when.clone(),
            clear_at: shown(&stored.clear_at),
            cool_down: shown(&stored.cool_down),
            ..AlertForm::default()
        }
    }

    /// Converts the form. An empty address field keeps the stored address, which the page does not show.
    fn to_rule(&self, before: Option<&StoredAlertRule>) -> StoredAlertRule {
        let address = |given: &str, is_removed: &str, before: Option<&String>| {
            non_empty_field(given).or_else(|| before.filter(|_| is_removed != "on").cloned())
        };
        StoredAlertRule {
            name: self.name.trim().to_owned(),
            project: non_empty_field(&self.project),
            when: self.when.trim().to_owned(),
            clear_at: non_empty_field(&self.clear_at),
            cool_down: non_empty_field(&self.cool_down),
            webhook: address(&self.webhook, &self.no_webhook, before.and_then(|rule| rule.webhook.as_ref())),
            slack: address(&self.slack, &self.no_slack, before.and_then(|rule| rule.slack.as_ref())),
        }
    }
}

impl AlertFormPage {
    fn new(headers: &HeaderMap, given: AlertForm, before: Option<&StoredAlertRule>, problem: Option<String>) -> Self {
        let host = |url: Option<&String>| {
            let url = crate::alert::WebhookUrl::parse(url?).ok()?;
            Some(text::format_display_line(&url.to_string()))
        };
        AlertFormPage {
            frame: PageLayout::new("/alerts", None, headers),
            webhook_now: host(before.and_then(|rule| rule.webhook.as_ref())),
            slack_now: host(before.and_then(|rule| rule.slack.as_ref())),
            given,
            examples: EXAMPLE_CONDITIONS,
            outcome: OUTCOME,
            problem,
        }
    }
}

/// `GET /alerts/edit`: the form, filled with a stored rule if one is named.
pub(super) async fn render_alert_form(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(query): PageQuery<AlertEditQuery>,
) -> Result<Response, PageError> {
    if query.rule.is_empty() {
        return Ok(render::respond_with_page(&AlertFormPage::new(&headers, AlertForm::default(), None, None)));
    }
    let stored = find_stored(&server.alerts.catalog(), &query.rule)
        .ok_or_else(|| PageError::not_found("No alert rule of this name was made on this page."))?;
    let given = AlertForm::from_stored(&stored);
    Ok(render::respond_with_page(&AlertFormPage::new(&headers, given, Some(&stored), None)))
}

/// `POST /alerts`: stores a rule. If the rule cannot be stored, the form is shown again with the input and the
/// reason.
pub(super) async fn submit_alert_rule(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let given: AlertForm = form::read_form(&server, &headers, body).await?;
    let before = find_stored(&server.alerts.catalog(), &given.replaces);
    let rule = given.to_rule(before.as_ref());
    let replaces = non_empty_field(&given.replaces);
    match alert_changes::save_alert_rule(&server, &caller, rule, replaces).await {
        Ok(()) => Ok(redirect_to_alerts()),
        Err(error) => {
            let page = AlertFormPage::new(&headers, given, before.as_ref(), Some(error.message().to_owned()));
            Ok(render::respond_with_status(error.status(), &page))
        }
    }
}

/// `POST /alerts/delete`
pub(super) async fn submit_alert_deletion(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let given: AlertActionForm = form::read_form(&server, &headers, body).await?;
    alert_changes::delete_alert_rule(&server, given.rule).await?;
    Ok(redirect_to_alerts())
}

/// `POST /alerts/mute`
pub(super) async fn submit_alert_mute(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let given: AlertActionForm = form::read_form(&server, &headers, body).await?;
    let change = match given.mute.as_str() {
        "open" => MuteChange::UntilEnded,
        "end" => MuteChange::End,
        hours => MuteChange::Hours(
            hours
                .parse()
                .map_err(|_| PageError::new(StatusCode::BAD_REQUEST, "The form names no time for the muting."))?,
        ),
    };
    alert_changes::mute_alert(&server, &caller, given.rule, change).await?;
    Ok(redirect_to_alerts())
}

/// `POST /alerts/test`: sends a test notice and shows the page with its results.
pub(super) async fn submit_alert_test(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let given: AlertActionForm = form::read_form(&server, &headers, body).await?;
    let sent = alert_changes::send_test_notice(&server, &given.rule).await?;
    let lines = sent.iter().map(|one| match &one.failure {
        None => (true, text::format_display_line(&format!("{}: accepted", one.target))),
        Some(reason) => (false, text::format_display_line(&format!("{}: failed: {reason}", one.target))),
    });
    let title = text::format_display_line(&format!("Test notice of {}", given.rule));
    let message = AlertMessage { title, lines: lines.collect() };
    let frame = PageLayout::new("/alerts", None, &headers);
    render::render_page(&server, move |server| alerts::build_alerts_page(server, &caller, frame, Some(message))).await
}

/// `GET /alerts/export`: rules of the page as a file for `gradus.toml`.
pub(super) async fn export_alerts(State(server): State<Arc<ServerState>>) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/toml")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"gradus-alerts.toml\"")),
    ];
    (headers, alert_changes::export_stored_rules(&server)).into_response()
}

/// Redirects with 303, so that reloading the page repeats nothing.
fn redirect_to_alerts() -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/alerts"));
    response
}
