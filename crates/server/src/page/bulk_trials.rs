//! Trials of a rubric on many cases: plan, run, cancel, continue, and results.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_eval::rubric::{Rubric, RubricOrigin};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;
use serde::Deserialize;

use super::address::PageUrl;
use super::bulk_trial_form::{BulkTrialQuery, describe_status};
use super::bulk_trial_results::{BulkTrialResults, CaseLabels};
use super::display_text::format_timestamp;
use super::render::{self, PageError};
use super::rubric_addresses::{build_rubric_url, build_trial_url};
use super::rubrics::{find_rubric, respond_rubric_file};
use super::{PageLayout, form};
use crate::bulk_trial::{
    BulkTrialFolder, BulkTrialLimits, BulkTrialPlan, BulkTrialRecord, BulkTrialRequest, BulkTrialSelection,
    BulkTrialState, BulkTrialStatus, plan_bulk_trial, start_bulk_trial,
};
use crate::caller::{RequestCaller, RequiredScope};
use crate::http_error::{ApiError, run_large_query, run_short_query};
use crate::rubric_trials::RubricTrial;
use crate::state::ServerState;

/// Maximum number of traces in one trial.
const MAX_TRACES: usize = 1_000;
/// Maximum limits that the form accepts.
const MAX_CALLS: u64 = 100_000;
const MAX_USD: f64 = 10_000.0;

/// Body of `POST /rubrics/{rubric}/trials`: the form on the page of the rubric.
#[derive(Deserialize)]
struct BulkTrialPlanForm {
    #[serde(default)]
    text: String,
    #[serde(flatten)]
    bulk: BulkTrialQuery,
    #[serde(default)]
    project: String,
}

/// `POST /rubrics/{rubric}/trials`: plans a trial and shows the plan. If it cannot be planned, the page of the rubric
/// says why, with everything that was filled in.
pub(super) async fn submit_bulk_plan(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, PageError> {
    let given: BulkTrialPlanForm = form::read_form(&server, &headers, body).await?;
    let settings = server.reloadable();
    let present = find_rubric(&settings, &name)?;
    // Forms send CRLF line ends, which would change the hash of the rubric.
    let text = given.text.replace("\r\n", "\n");
    let text = if text.trim() == present.source.trim() { present.source.to_string() } else { text };
    let wrong = match parse_bulk_request(present, &text, &given.bulk, &caller) {
        Ok(request) => match plan_bulk_trial(&server, request).await {
            Ok(plan) => return Ok(redirect_to(&build_trial_url(&name, &plan.id))),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    let changed = (text.trim() != present.source.trim()).then_some(text);
    let trial = RubricTrial { text: changed, wrong: Some(wrong), ..RubricTrial::default() };
    let back = build_rubric_url(&name)
        .with("trial", Some(&server.rubric_trials.insert(trial)))
        .with("project", Some(&given.project));
    Ok(redirect_to(&given.bulk.add_to_url(back).with_fragment("h-many")))
}

/// What is wrong with the form. Each message is a sentence for the page.
#[derive(Debug, thiserror::Error)]
enum BulkTrialFormError {
    #[error("Invalid rubric: {reason}")]
    Rubric { reason: String },
    #[error("Keep the name {name}: the trial is compared with it.")]
    OtherName { name: String },
    #[error("Choose a project.")]
    NoProject,
    #[error("{field}: give a number from 1 to {}.", format_count(*max))]
    Number { field: &'static str, max: u64 },
    #[error("Dollars: give an amount above 0.")]
    Dollars,
}

/// Checks the form and converts it to a request.
fn parse_bulk_request(
    present: &Rubric,
    text: &str,
    given: &BulkTrialQuery,
    caller: &RequestCaller,
) -> Result<BulkTrialRequest, BulkTrialFormError> {
    let rubric = Rubric::parse(text, RubricOrigin::BuiltIn)
        .map_err(|error| BulkTrialFormError::Rubric { reason: text::format_display_line(&error.to_string()) })?;
    if rubric.name != present.name {
        return Err(BulkTrialFormError::OtherName { name: present.name.to_string() });
    }
    let filled =
        |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let project = filled(&given.bulk_project).ok_or(BulkTrialFormError::NoProject)?;
    let number = |text: &Option<String>, max: u64, field: &'static str| {
        let number = filled(text).and_then(|text| text.parse::<u64>().ok());
        number.filter(|number| (1..=max).contains(number)).ok_or(BulkTrialFormError::Number { field, max })
    };
    let selection = match given.cases.as_deref() {
        Some("labelled") => BulkTrialSelection::Labelled,
        _ => {
            let traces = number(&given.traces, MAX_TRACES as u64, "Traces")?;
            BulkTrialSelection::Latest { traces: usize::try_from(traces).unwrap_or(MAX_TRACES) }
        }
    };
    let max_cost_usd = match filled(&given.max_usd) {
        None => None,
        Some(text) => {
            let amount = text.trim_start_matches('$').parse::<f64>().ok();
            let is_valid = |amount: &f64| amount.is_finite() && *amount > 0.0 && *amount <= MAX_USD;
            Some(amount.filter(is_valid).ok_or(BulkTrialFormError::Dollars)?)
        }
    };
    let max_calls = number(&given.max_calls, MAX_CALLS, "Calls")?;
    Ok(BulkTrialRequest {
        rubric,
        present_hash: present.hash.to_string(),
        project,
        selection,
        limits: BulkTrialLimits { max_calls, max_cost_usd },
        author: caller.name.clone(),
    })
}

fn redirect_to(url: &PageUrl) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(to) = HeaderValue::from_str(&url.to_string()) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

#[derive(Template)]
#[template(path = "bulk_trial.html")]
struct BulkTrialPage {
    frame: PageLayout,
    title: String,
    rubric: String,
    /// URL of this page.
    here: String,
    facts: Vec<(&'static str, String)>,
    /// The questions and the cost of the trial, in words.
    cost: String,
    /// The rubric that is tried.
    source: String,
    is_changed: bool,
    edit: String,
    progress: BulkTrialProgress,
    may_run: bool,
    /// Why it could not be started.
    wrong: Option<String>,
    results: Option<BulkTrialResults>,
}

/// The progress of a trial. Also a fragment, which the script loads again while the trial runs.
#[derive(Template)]
#[template(path = "bulk_trial_progress.html")]
struct BulkTrialProgress {
    is_running: bool,
    /// `planned`, `running`, `interrupted`, `finished` or `stopped`.
    status: &'static str,
    reason: String,
    done: u64,
    cases: u64,
    /// Calls and dollars so far, of the limits.
    spent: String,
}

impl BulkTrialProgress {
    fn new(server: &ServerState, plan: &BulkTrialPlan, state: &BulkTrialState, record: &BulkTrialRecord) -> Self {
        let is_running = server.bulk_trials.is_running(&plan.id);
        let calls = format!("{} of {} calls", format_count(record.calls), format_count(plan.limits.max_calls));
        let cost = match plan.limits.max_cost_usd {
            Some(most) => format!("{} of {}", number::format_usd(record.cost_usd), number::format_usd(most)),
            None if record.unpriced > 0 => "price not known".to_owned(),
            None => number::format_usd(record.cost_usd),
        };
        BulkTrialProgress {
            is_running,
            status: describe_status(state.status, is_running),
            reason: match (state.status, is_running) {
                (BulkTrialStatus::Running, false) => {
                    "The server was restarted. What is answered is kept; continue to ask the rest.".to_owned()
                }
                _ => text::format_display_line(&state.reason),
            },
            done: record.outcomes.len() as u64,
            cases: plan.cases.len() as u64,
            spent: format!("{calls}, {cost}"),
        }
    }
}

/// Path parameters of a trial: rubric name and trial id.
type TrialPath = Path<(String, String)>;

fn load_trial_folder(server: &ServerState, name: &str, id: &str) -> Result<(BulkTrialFolder, BulkTrialPlan), ApiError> {
    let missing = || ApiError::not_found("No trial has this id. Old trials are deleted.");
    let folder = BulkTrialFolder::find(&server.settings.data, id).ok_or_else(missing)?;
    let plan = folder.load_plan().map_err(log_unreadable_trial)?;
    if plan.rubric == name { Ok((folder, plan)) } else { Err(missing()) }
}

fn log_unreadable_trial(error: impl std::fmt::Display) -> ApiError {
    tracing::error!(%error, "failed to read a rubric trial");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "The files of this trial cannot be read; see the server log.")
}

/// Parameters of the page of a trial.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BulkTrialPageQuery {
    /// Id of the cached reason why the trial could not be started. The message itself is not in the URL, since
    /// anybody could make such a link.
    trial: Option<String>,
}

/// `GET /rubrics/{rubric}/trials/{trial}`
pub(super) async fn render_bulk_trial(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    Path((name, id)): TrialPath,
    render::PageQuery(query): render::PageQuery<BulkTrialPageQuery>,
) -> Result<Response, PageError> {
    let may_run = caller.has_scope(RequiredScope::Admin);
    let wrong = query.trial.and_then(|id| server.rubric_trials.get(&id)?.wrong);
    let page = run_large_query(&server, move |server| {
        let (folder, plan) = load_trial_folder(server, &name, &id)?;
        let record = folder.load_record().map_err(log_unreadable_trial)?;
        let state = folder.load_state().map_err(log_unreadable_trial)?;
        let rubric = Rubric::parse(&plan.text, RubricOrigin::BuiltIn).map_err(log_unreadable_trial)?;
        let people = CaseLabels::load(&server.store, &plan)?;
        let mut results = BulkTrialResults::new(&plan, &rubric, &record, &people);
        if let Some(results) = &mut results {
            results.name_requests(&server.store)?;
        }
        let page = BulkTrialPage {
            frame: PageLayout::new("/rubrics", None, &headers),
            title: text::format_display_line(&rubric.title),
            rubric: build_rubric_url(&name).to_string(),
            here: build_trial_url(&name, &id).to_string(),
            facts: describe_plan(&plan),
            cost: describe_cost(&plan),
            is_changed: plan.rubric_hash != plan.present_hash,
            edit: build_rubric_url(&name).with("from", Some(&id)).with_fragment("h-many").to_string(),
            progress: BulkTrialProgress::new(server, &plan, &state, &record),
            results,
            source: plan.text,
            may_run,
            wrong,
        };
        Ok(render::respond_with_page(&page))
    });
    Ok(page.await?)
}

fn describe_plan(plan: &BulkTrialPlan) -> Vec<(&'static str, String)> {
    let count = format_count(plan.cases.len() as u64);
    let cases = match plan.selection {
        BulkTrialSelection::Latest { traces } => {
            format!("{count} from the latest traces ({} at most)", format_count(traces as u64))
        }
        BulkTrialSelection::Labelled => format!("{count} that people labelled"),
    };
    let left_out = match plan.left_out {
        0 => String::new(),
        count => format!("; {} more are left out", format_count(count)),
    };
    let mut facts = vec![
        ("Project", text::format_display_line(&plan.project)),
        ("Judge", text::format_display_line(&plan.judge)),
        ("Cases", format!("{cases}{left_out}")),
        ("Planned", format_timestamp(plan.created_ns)),
    ];
    if !plan.author.is_empty() {
        facts.push(("By", format!("key {}", text::format_display_line(&plan.author))));
    }
    facts
}

/// Describes the number of questions, the estimated cost and the limits.
fn describe_cost(plan: &BulkTrialPlan) -> String {
    let estimate = &plan.estimate;
    let cached = match estimate.cached {
        0 => String::new(),
        count => format!(" ({} answered before, free)", format_count(count)),
    };
    let about = match estimate.cost_usd {
        Some(cost) => format!("about {}", number::format_usd(cost)),
        None => "price not known".to_owned(),
    };
    let dollars = plan.limits.max_cost_usd.map(|most| format!(" and {}", number::format_usd(most))).unwrap_or_default();
    format!(
        "{} to ask{cached}, {about}. The trial stops at {}{dollars}.",
        number::format_counted_noun(estimate.to_ask, "question", "questions"),
        number::format_counted_noun(plan.limits.max_calls, "call", "calls"),
    )
}

/// `GET /rubrics/{rubric}/trials/{trial}/progress`: the fragment that the script polls.
pub(super) async fn render_bulk_progress(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path((name, id)): TrialPath,
) -> Result<Response, PageError> {
    let part = run_short_query(&server, move |server| {
        let (folder, plan) = load_trial_folder(server, &name, &id)?;
        let record = folder.load_record().map_err(log_unreadable_trial)?;
        let progress =
            BulkTrialProgress::new(server, &plan, &folder.load_state().map_err(log_unreadable_trial)?, &record);
        Ok(render::respond_with_fragment(&progress, &headers))
    });
    Ok(part.await?)
}

/// `GET /rubrics/{rubric}/trials/{trial}/rubric`: the tried rubric as a file.
pub(super) async fn download_tried_rubric(
    State(server): State<Arc<ServerState>>,
    Path((name, id)): TrialPath,
) -> Result<Response, PageError> {
    let plan = run_short_query(&server, move |server| Ok(load_trial_folder(server, &name, &id)?.1)).await?;
    Ok(respond_rubric_file(&plan.rubric, &plan.text))
}

/// Body of `POST /rubrics/{rubric}/trials/{trial}`.
#[derive(Deserialize)]
struct BulkTrialActionForm {
    what: BulkTrialAction,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BulkTrialAction {
    Run,
    Cancel,
}

/// `POST /rubrics/{rubric}/trials/{trial}`: starts, continues or cancels a trial.
pub(super) async fn submit_bulk_action(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path((name, id)): TrialPath,
    body: Body,
) -> Result<Response, PageError> {
    let given: BulkTrialActionForm = form::read_form(&server, &headers, body).await?;
    let here = build_trial_url(&name, &id);
    let asked = id.clone();
    let (folder, _) = run_short_query(&server, move |server| load_trial_folder(server, &name, &asked)).await?;
    let wrong = match given.what {
        BulkTrialAction::Run => start_bulk_trial(&server, folder).await.err().map(|error| error.to_string()),
        BulkTrialAction::Cancel => {
            (!server.bulk_trials.cancel(&id)).then(|| "This trial does not run any more.".to_owned())
        }
    };
    let wrong =
        wrong.map(|wrong| server.rubric_trials.insert(RubricTrial { wrong: Some(wrong), ..RubricTrial::default() }));
    Ok(redirect_to(&here.with("trial", wrong.as_deref())))
}
