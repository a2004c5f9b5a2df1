//! The list of runs of `gradus eval`, and the report of one run as `--html` writes it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::run::{RunFolder, RunState, StateFolder};
use gradus_report::html::number::format_minute;
use gradus_report::html::text;
use gradus_report::html::view::{ReportView, tables};
use serde::Deserialize;

use super::address::PageUrl;
use super::display_text::{LiveRule, join_names};
use super::render::{self, PageError, PageQuery};
use super::run_addresses::{build_run_trajectory_url, format_run_url};
use super::{NavigationQuery, PageLayout};
use crate::run_lookup::log_run_failure;
use crate::run_reports::{RunGateStatus, RunListSummary};
use crate::state::ServerState;

/// Maximum number of runs on one page.
const MAX_RUNS_PER_PAGE: usize = 100;
/// Maximum time that one request spends on summarising runs. Rows without a summary are shown without scores; the
/// next request continues.
const MAX_SUMMARY_TIME: Duration = Duration::from_millis(250);

/// Parameters of `/runs`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RunListQuery {
    /// Cursor: only runs with a smaller id. Ids begin with the time, so they sort by age.
    before: Option<String>,
    /// Runs belong to no project. It is passed on to the links of the navigation.
    project: Option<String>,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunListPage {
    frame: PageLayout,
    runs: Vec<RunListRow>,
    /// Rules of live grading, which are runs without an end.
    live: Vec<LiveRule>,
    /// Whether this is the page with the latest runs, whose URL is `latest`.
    is_first: bool,
    latest: String,
    older: Option<String>,
    project: String,
}

/// A run with its summary, as far as that is cached or could be computed in time.
struct RunListRow {
    id: String,
    href: String,
    state: &'static str,
    started: String,
    judge: String,
    /// Empty if there is no summary yet.
    trajectories: String,
    scores: String,
    gates: Option<RunGateStatus>,
    evaluators: String,
    sources: String,
}

/// The report of a run inside the frame of the pages.
#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: PageLayout,
    report: ReportView,
    /// Tables of the benchmark, for runs of one.
    tables: Vec<tables::ReportTableView>,
}

/// `GET /runs`
pub(super) async fn render_runs_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<RunListQuery>,
) -> Result<Response, PageError> {
    // Summaries may have to be computed, which reads whole runs.
    render::render_large_page(&server, move |server| {
        let started = Instant::now();
        let folder = StateFolder::from_path(&server.settings.data);
        let project = choice.project.filter(|name| !name.is_empty());
        let list = PageUrl::from_path("/runs").with("project", project.as_deref());
        let before = choice.before.filter(|id| !id.is_empty());
        // Latest first.
        let mut ids = folder.run_ids();
        ids.retain(|id| before.as_ref().is_none_or(|before| id < before));
        let has_more = ids.len() > MAX_RUNS_PER_PAGE;
        ids.truncate(MAX_RUNS_PER_PAGE);
        let last = ids.last().filter(|_| has_more);
        let settings = server.reloadable();
        Ok(RunListPage {
            frame: PageLayout::new("/runs", project.as_deref(), &headers),
            is_first: before.is_none(),
            older: last.map(|id| list.with_replaced("before", Some(id)).to_string()),
            latest: list.to_string(),
            project: project.clone().unwrap_or_default(),
            runs: ids
                .iter()
                // A run that is being created or deleted has no readable manifest.
                .filter_map(|id| folder.read_run(id).ok())
                .map(|run| {
                    let brief = server.run_reports.load_list_summary(&run, started.elapsed() < MAX_SUMMARY_TIME);
                    RunListRow::from_run(&run, brief, project.as_deref())
                })
                .collect(),
            live: settings.rules.iter().map(LiveRule::from_rule).collect(),
        })
    })
    .await
}

impl RunListRow {
    /// Builds a row. `brief` is none if the summary is not cached and the time of the request is over.
    fn from_run(run: &RunFolder, brief: Option<RunListSummary>, project: Option<&str>) -> RunListRow {
        let record = &run.record;
        let brief = brief.unwrap_or_default();
        RunListRow {
            id: text::format_display_line(&record.run_id),
            href: format_run_url(&record.run_id, project),
            state: match record.state {
                RunState::Running => "running or killed",
                RunState::Stopped => "stopped early",
                RunState::Finished => "complete",
            },
            started: format_minute(&record.started),
            judge: text::format_display_line(&record.judge),
            trajectories: brief.trajectories,
            scores: brief.scores,
            gates: brief.gates,
            evaluators: join_names(record.evaluators.iter().map(|one| one.title.as_str())),
            sources: join_names(record.sources.iter().map(String::as_str)),
        }
    }
}

/// `GET /runs/{run}`
pub(super) async fn render_run_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    PageQuery(looked): PageQuery<NavigationQuery>,
) -> Result<Response, PageError> {
    // A run may be large.
    render::render_large_page(&server, move |server| {
        let run = crate::run_lookup::find_run(server, &id)?;
        let whole = server.run_reports.load_report(&run).map_err(log_run_failure)?;
        let mut report = ReportView::from_summary(&whole.summary, &whole.gates);
        // `Running` is also the state of a run that was killed.
        report.is_running = run.record.state == RunState::Running;
        // The report itself has no links; here findings lead to the page of the trajectory.
        for (shown, found) in report.findings.all.iter_mut().zip(&whole.summary.findings) {
            let project = looked.project();
            let at = build_run_trajectory_url(&run.record.run_id, &found.trajectory_id, found.step_index, project);
            shown.href = Some(at.to_string());
        }
        let findings = &report.findings.all;
        for run in report.outcome.iter_mut().flat_map(|outcome| &mut outcome.endings).flat_map(|one| &mut one.runs) {
            run.href = findings[run.finding].href.clone().unwrap_or_default();
        }
        let tables = whole.tables.iter().map(tables::ReportTableView::from_table).collect();
        Ok(RunPage { frame: PageLayout::new("/runs", looked.project(), &headers), report, tables })
    })
    .await
}
