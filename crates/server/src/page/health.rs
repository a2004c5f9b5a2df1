//! State of the server: health, rules of live grading, projects, quarantined traces and API keys.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::display_text::{self, LiveRule, format_byte_size, format_duration, format_timestamp, format_whole_number};
use super::render::{self, PageError, PageQuery};
use super::{NavigationQuery, PageLayout, form};
use crate::clock::today_ns;
use crate::http_error::ApiError;
use crate::judge_anchors::{KeyedAnchorSet, current_anchor_sets};
use crate::judge_pause::{JudgePause, JudgePauseReason};
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use gradus_report::html::number;
use gradus_report::html::text;

/// The backlog of a rule is counted up to this number, because counting reads every row.
const MAX_COUNTED_BACKLOG: usize = 10_000;
/// Maximum number of quarantined traces on the page. The API lists more.
const MAX_QUARANTINED_SHOWN: usize = 100;

/// `is_well` is false if writing fails, traces are quarantined, or a judge cannot be reached.
#[derive(Template)]
#[template(path = "health.html")]
struct HealthPage {
    frame: PageLayout,
    is_well: bool,
    facts: Vec<(&'static str, String)>,
    quarantined: Vec<QuarantinedTraceRow>,
    projects: Vec<ProjectHealthRow>,
    rules: Vec<GradingRuleRow>,
    anchors: Vec<AnchorSetView>,
    keys: Vec<ApiKeyRow>,
    needs_key: bool,
}

/// A trace that failed to be assembled twice.
struct QuarantinedTraceRow {
    trace_id: String,
    name: String,
    project: String,
    spans: String,
    since: String,
    reason: String,
}

/// Body of `POST /server/retry`.
#[derive(Deserialize)]
struct RetryForm {
    /// Id of the trace; all quarantined traces without it.
    trace: Option<String>,
}

/// `POST /server/retry`: puts quarantined traces back into the ready queue. Responds with 303, so that reloading the
/// page does not repeat it.
pub(super) async fn submit_retry(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let form: RetryForm = form::read_form(&server, &headers, body).await?;
    crate::quarantine::retry_quarantined_traces(&server, form.trace.as_deref()).await?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/server#h-quarantined"));
    Ok(response)
}

/// A project with the amount of its stored data.
struct ProjectHealthRow {
    name: String,
    href: String,
    traces: String,
    spans: String,
    trajectories: String,
    last: String,
}

/// A rule of live grading with its spending of today (UTC).
struct GradingRuleRow {
    rule: LiveRule,
    share: String,
    budget: String,
    spent: String,
    /// Why its model is paused, if it is.
    current_pause: Option<JudgePauseView>,
    /// Backlog of the rule. Empty for rules without a model, which grade at once.
    waiting: String,
}

/// A pause of a judge. An exhausted budget is expected and no fault; an unreachable judge is one.
struct JudgePauseView {
    is_fault: bool,
    text: String,
}

impl JudgePauseView {
    /// A budget resets at midnight UTC; a judge that cannot be reached is tried again until it answers.
    fn from_pause(known: &JudgePause) -> JudgePauseView {
        let since = format_timestamp(known.since_ns);
        let reason = text::format_display_line(&known.reason);
        match known.why {
            JudgePauseReason::Budget => {
                JudgePauseView { is_fault: false, text: format!("paused since {since}, until 00:00 UTC: {reason}") }
            }
            JudgePauseReason::Judge => {
                JudgePauseView { is_fault: true, text: format!("failing since {since}: {reason}") }
            }
        }
    }
}

/// The results of a judge's anchor rounds.
struct AnchorSetView {
    evaluator: String,
    judge: String,
    result: String,
    has_drifted: bool,
    at: String,
}

/// Lists the anchor sets of the configured judges. Other sets are not asked any more.
fn list_anchor_sets(server: &ServerState, settings: &ReloadableSettings) -> Result<Vec<AnchorSetView>, ApiError> {
    let view = |known: KeyedAnchorSet| AnchorSetView {
        evaluator: text::format_display_line(&known.evaluator),
        judge: text::format_display_line(&known.judge),
        result: known.set.describe(),
        has_drifted: known.set.has_drifted(),
        at: known.set.last.or(known.set.first).map(|round| format_timestamp(round.at_ns)).unwrap_or_default(),
    };
    Ok(current_anchor_sets(&server.store, &settings.rules)?.into_iter().map(view).collect())
}

/// An API key without its secret, which the store does not have: it keeps a hash.
struct ApiKeyRow {
    name: String,
    scopes: String,
    made: String,
    revoked: Option<String>,
}

/// `GET /server`
pub(super) async fn render_health_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(looked): PageQuery<NavigationQuery>,
) -> Result<Response, PageError> {
    let frame = PageLayout::new("/server", looked.project(), &headers);
    render::render_page(&server, move |server| build_health_page(server, frame)).await
}

/// Reads counters of the store and of the server. Each number is current, but they are not from one transaction.
fn build_health_page(server: &ServerState, frame: PageLayout) -> Result<HealthPage, ApiError> {
    let store = &server.store;
    // A store that is open for reading only accepts no spans either.
    let is_failing = !store.is_writable();
    let (used, free) = store.used_and_free_bytes()?;
    let bytes = |bytes: u64| format_byte_size(usize::try_from(bytes).unwrap_or(usize::MAX));
    let quarantined_count = store.quarantined_count()?;
    let facts = vec![
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Uptime", format_duration(i64::try_from(server.started.elapsed().as_nanos()).unwrap_or(i64::MAX))),
        // Whether the last transaction succeeded.
        ("Accepts spans", if is_failing { "no; see the log" } else { "yes" }.to_owned()),
        (
            "Store",
            match free {
                0 => bytes(used),
                free => format!("{}, {} of it free", bytes(used + free), bytes(free)),
            },
        ),
        ("Traces in the ready queue", format_whole_number(store.ready_queue_length()?)),
        ("Quarantined traces", format_whole_number(quarantined_count)),
        ("Trajectories waiting for a model", format_whole_number(store.ungraded_count()?)),
    ];
    let settings = server.reloadable();
    let today = today_ns();
    let mut rules = Vec::new();
    for rule in &settings.rules {
        let spent = store.load_spend_since(today, Some(&rule.name), None)?;
        rules.push(GradingRuleRow {
            rule: LiveRule::from_rule(rule),
            share: match (rule.sample >= 1.0, rule.all_errors) {
                (true, _) => "all".to_owned(),
                (false, true) => format!("{} and all with errors", number::format_percent(rule.sample)),
                (false, false) => number::format_percent(rule.sample),
            },
            budget: rule.daily_budget_usd.map_or_else(|| "none".to_owned(), number::format_usd),
            spent: display_text::format_spend(spent),
            current_pause: server.judge_pauses.find_for_rule(&rule.name).as_ref().map(JudgePauseView::from_pause),
            waiting: match rule.asks_model() {
                true => {
                    let found = store.rule_backlog(&rule.name, MAX_COUNTED_BACKLOG)?;
                    format!("{}{}", number::format_count(found.count), if found.is_cut { " or more" } else { "" })
                }
                false => String::new(),
            },
        });
    }
    let projects = store.projects()?.into_iter().map(|row| ProjectHealthRow {
        href: super::PageUrl::from_path("/traces").with("project", Some(&row.name)).to_string(),
        name: text::format_display_line(&row.name),
        traces: format_whole_number(row.traces),
        spans: format_whole_number(row.spans),
        trajectories: format_whole_number(row.trajectories),
        last: row.last_ns.map(format_timestamp).unwrap_or_default(),
    });
    let keys = store.keys()?.into_iter().map(|row| ApiKeyRow {
        name: text::format_display_line(&row.name),
        scopes: row.scopes.join_names().replace(',', ", "),
        made: format_timestamp(row.created_ns),
        revoked: row.revoked_ns.map(format_timestamp),
    });
    let quarantined = store.quarantined_traces(MAX_QUARANTINED_SHOWN)?.into_iter().map(|row| QuarantinedTraceRow {
        trace_id: row.trace_id.to_string(),
        name: text::format_display_line(&row.name),
        project: text::format_display_line(&row.project),
        spans: format_whole_number(row.spans),
        since: format_timestamp(row.since_ns),
        reason: text::format_display_line(&row.reason),
    });
    Ok(HealthPage {
        quarantined: quarantined.collect(),
        frame,
        is_well: !is_failing
            && quarantined_count == 0
            && !rules.iter().any(|one| one.current_pause.as_ref().is_some_and(|still| still.is_fault)),
        facts,
        anchors: list_anchor_sets(server, &settings)?,
        // Bounded, since any sender can create projects by naming them.
        projects: projects.take(200).collect(),
        rules,
        keys: keys.collect(),
        needs_key: server.settings.needs_key,
    })
}
