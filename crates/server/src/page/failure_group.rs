//! The page of one failure group, where people name it, mute it, and write a note. It shows what the row of the overview
//! shows, of the same runs.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use gradus_report::html::number::format_count;
use gradus_report::html::text;
use gradus_store::{FailureGroupNote, FailureGroupOptions, FailureGroupRow, MetricFilter};
use serde::Deserialize;
use serde_json::json;

use super::address::PageUrl;
use super::failure_groups::{
    FailureExampleView, FailureGroupScope, FailureGroupView, PeriodTotals, format_group_path, load_example_value,
};
use super::labels::wants_json;
use super::overview_query::OverviewQuery;
use super::render::{self, PageError, PageQuery};
use super::traces::{FilterChip, build_filter_chips};
use super::unsent_text::UnsentTextPage;
use super::{PageLayout, SelectOption, build_project_options, build_range_options, form};
use crate::caller::{RequestCaller, RequiredScope};
use crate::clock::now_ns;
use crate::derived_checks::derive_checks;
use crate::evaluators::find_evaluator_title;
use crate::failure_group_notes::{MAX_NAME_CHARS, MAX_NOTE_CHARS, UNKNOWN_GROUP, annotate_failure_group};
use crate::http_error::{ApiError, run_short_query};
use crate::state::ServerState;

/// Maximum number of trajectories on the page.
const MAX_EXAMPLES: usize = 20;

/// Note on a dataset whose items are requests without checks.
const NO_CHECKS_NOTE: &str = "The dataset holds the requests without checks: none follows for certain from this failure. Add \
                         what you expect before you run an experiment.";

#[derive(Template)]
#[template(path = "failure_group.html")]
struct FailureGroupPage {
    frame: PageLayout,
    projects: Vec<SelectOption>,
    ranges: Vec<SelectOption>,
    /// URL without the days, if days are selected.
    without_days: Option<String>,
    /// Filters that the form does not show. Each can be removed.
    chips: Vec<FilterChip>,
    /// Fields that the form sends along.
    hidden: Vec<(&'static str, String)>,
    /// URL of the overview with the same filter.
    overview: String,
    /// The page over all stored runs; `None` if it is.
    all_time: Option<String>,
    /// What the row of the overview shows.
    group: FailureGroupView,
    /// All runs of the filter, with the group or without.
    run_count: String,
    /// The reason, if the group has a name.
    reason: Option<String>,
    /// What does not depend on the filter.
    facts: Vec<(&'static str, String)>,
    /// Why the submitted form was not stored. It is shown again with what was typed.
    problem: Option<String>,
    name: String,
    note: String,
    /// Whether the key of this request may name and mute it.
    may_change: bool,
    examples: Vec<FailureExampleView>,
    /// URL that the forms are sent to.
    action: String,
    /// Which checks the items of the dataset have.
    dataset_about: &'static str,
    max_name: usize,
    max_note: usize,
}

/// `GET /groups/{key}`
pub(super) async fn render_failure_group(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    Path(key): Path<String>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<OverviewQuery>,
) -> Result<Response, PageError> {
    let choice = choice.without_blanks();
    let frame = PageLayout::new("/", choice.project.as_deref(), &headers);
    let may_change = caller.has_scope(RequiredScope::Admin);
    render::render_page(&server, move |server| build_group_page(server, &key, &choice, frame, may_change)).await
}

fn build_group_page(
    server: &ServerState,
    key: &str,
    choice: &OverviewQuery,
    frame: PageLayout,
    may_change: bool,
) -> Result<FailureGroupPage, ApiError> {
    let store = &server.store;
    let time = choice.time_range(now_ns())?;
    let filter = choice.to_filter(&time);
    let load = |filter: &MetricFilter, before_ns| -> Result<Option<FailureGroupRow>, ApiError> {
        let options = FailureGroupOptions { before_ns, with_muted: true, key: Some(key), limit: 1 };
        Ok(store.failure_groups(filter, options)?.groups.into_iter().next())
    };
    let stored = load(&MetricFilter::default(), None)?.ok_or_else(|| ApiError::not_found(UNKNOWN_GROUP))?;
    // Without the project of the filter there is no row.
    let row = load(&filter, time.before_ns)?.unwrap_or_else(|| FailureGroupRow {
        trajectories: 0,
        verdicts: 0,
        versions: Vec::new(),
        version_count: 0,
        example: None,
        ..stored.clone()
    });
    let settings = server.reloadable();
    let facts = vec![
        ("Evaluator", find_evaluator_title(&settings, &row.evaluator)),
        ("Verdict", text::format_display_line(&row.label)),
        ("Tool", text::format_display_line(&row.tool)),
        ("Found by", if row.rule.is_empty() { "a model".to_owned() } else { format!("rule {}", row.rule) }),
        ("All stored runs with it", format_count(stored.trajectories)),
        ("All stored verdicts", format_count(stored.verdicts)),
    ];
    let is_ahead = store.count_traces_since(choice.project.as_deref(), time.ahead_ns, 1)? > 0;
    let usage = store.usage_periods(&filter, time.period_ns)?;
    let totals = PeriodTotals::load(store, &filter, &time, &usage.rows)?;
    let overview = choice.to_url().with_replaced("groups", None);
    let here = overview.with_path(format_group_path(key));
    let scope =
        FailureGroupScope { totals, from_ns: time.from_ns, traces: choice.traces_url(&time, is_ahead), overview };
    let examples = store.failure_trajectories(&filter, key, MAX_EXAMPLES)?;
    let is_shown = |name: &str| matches!(name, "project" | "range");
    let chips = build_filter_chips(&here, None).into_iter().filter(|chip| !is_shown(chip.name));
    let hidden = here.pairs().iter().filter(|(name, _)| !is_shown(name)).cloned();
    Ok(FailureGroupPage {
        frame,
        projects: build_project_options(store.project_names()?, choice.project.as_deref()),
        ranges: build_range_options(choice.preset()?),
        without_days: choice.has_days().then(|| here.with_replaced("from", None).with_replaced("to", None).to_string()),
        chips: chips.collect(),
        hidden: hidden.collect(),
        overview: scope.overview.to_string(),
        all_time: (row.trajectories < stored.trajectories)
            .then(|| PageUrl::from_path(format_group_path(key)).with("range", Some("all")).to_string()),
        run_count: format_count(totals.now),
        may_change,
        reason: row.name.is_some().then(|| text::format_reason_line(&row.reason)),
        facts: facts.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
        problem: None,
        examples: examples.iter().map(FailureExampleView::new).collect(),
        action: here.to_string(),
        dataset_about: derive_checks(&row.rule, &row.tool).map_or(NO_CHECKS_NOTE, |checks| checks.about),
        max_name: MAX_NAME_CHARS,
        max_note: MAX_NOTE_CHARS,
        group: FailureGroupView {
            value: load_example_value(server, &row),
            ..FailureGroupView::new(&settings, &row, &scope)
        },
        name: row.name.unwrap_or_default(),
        note: row.note.unwrap_or_default(),
    })
}

/// Body of `POST /groups/{key}`.
#[derive(Deserialize)]
struct FailureGroupForm {
    name: Option<String>,
    note: Option<String>,
    /// `on` to mute, `off` to show again.
    mute: Option<String>,
}

/// `POST /groups/{key}`: stores name, note or muting, and returns to the page. If that fails, the response is the page
/// with what was typed, or an error for the script, which keeps the form on the page.
pub(super) async fn submit_failure_group(
    State(server): State<Arc<ServerState>>,
    Path(key): Path<String>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<OverviewQuery>,
    body: Body,
) -> Result<Response, PageError> {
    let submitted: FailureGroupForm = form::read_form(&server, &headers, body).await?;
    let choice = choice.without_blanks();
    let submitted = FailureGroupNote {
        name: submitted.name,
        note: submitted.note,
        is_muted: submitted.mute.map(|mute| mute == "on"),
    };
    match annotate_failure_group(&server, key.clone(), submitted.clone()).await {
        Ok(()) => {}
        Err(error) if wants_json(&headers) => return Ok(error.into_response()),
        Err(error) => return Ok(render_refused_form(&server, key, choice, submitted, &headers, error).await),
    }
    let back = choice.to_url().with_path(format_group_path(&key)).to_string();
    if wants_json(&headers) {
        return Ok(Json(json!({ "next": back })).into_response());
    }
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(back) = HeaderValue::from_str(&back) {
        response.headers_mut().insert(LOCATION, back);
    }
    Ok(response)
}

/// Responds with the page and what was typed; if there is no such page, with what was typed.
async fn render_refused_form(
    server: &Arc<ServerState>,
    key: String,
    choice: OverviewQuery,
    submitted: FailureGroupNote,
    headers: &HeaderMap,
    error: ApiError,
) -> Response {
    let project = choice.project.clone();
    let frame = || PageLayout::new("/", project.as_deref(), headers);
    let (own, back) = (frame(), choice.to_url().with_path(format_group_path(&key)).to_string());
    match run_short_query(server, move |server| build_group_page(server, &key, &choice, own, true)).await {
        Ok(mut page) => {
            page.problem = Some(error.message().to_owned());
            page.name = submitted.name.unwrap_or(page.name);
            page.note = submitted.note.unwrap_or(page.note);
            render::respond_with_status(error.status(), &page)
        }
        Err(_) => {
            let texts = vec![("Name", submitted.name), ("Note", submitted.note)];
            let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
            let page =
                UnsentTextPage::new(frame(), "The group was not changed", error.message().to_owned(), back, texts);
            render::respond_with_status(error.status(), &page)
        }
    }
}
