//! Comparison of two runs of `gradus eval`, or of two versions, models or agents in live traffic: verdicts by
//! dimension, and the tasks that changed.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_report::compare::{
    ComparedVersion, RunPairing, TaskFlip, VersionComparison, build_comparison_tables, summarize_verdicts,
};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;
use gradus_report::html::view::tables::ReportTableView;
use gradus_store::MetricFilter;
use serde::Deserialize;

use super::PageLayout;
use super::address::PageUrl;
use super::metric_timeline::TimeRangePreset;
use super::render::{self, PageError, PageQuery};
use super::run_addresses::{build_run_trajectory_url, find_trajectory_url, format_run_url};
use super::versions::VersionListQuery;
use crate::http_error::ApiError;
use crate::live_comparison::{ComparedName, compare_live};
use crate::run_comparison::compare_runs;
use crate::state::ServerState;

/// Parameters of `/compare`: A (before) and B (after). With `by` they are names of live traffic, else ids of runs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunComparisonQuery {
    a: String,
    b: String,
    by: Option<String>,
    /// Runs belong to no project; there it is only passed on to the links of the navigation.
    project: Option<String>,
    agent: Option<String>,
    version: Option<String>,
    model: Option<String>,
    range: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

impl RunComparisonQuery {
    /// Returns the selection of live traffic; `None` for runs of `gradus eval`.
    fn live_selection(&self) -> Option<VersionListQuery> {
        self.by.as_deref().filter(|by| !by.is_empty())?;
        let choice = VersionListQuery {
            by: self.by.clone(),
            project: self.project.clone(),
            agent: self.agent.clone(),
            version: self.version.clone(),
            model: self.model.clone(),
            range: self.range.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
        };
        Some(choice.without_blanks())
    }
}

#[derive(Template)]
#[template(path = "compare.html")]
struct RunComparisonPage {
    frame: PageLayout,
    title: String,
    /// The page that the comparison was chosen on, and its URL.
    crumb: &'static str,
    crumb_href: String,
    /// URL of the comparison in the other direction.
    swapped: String,
    api: String,
    versions: Vec<ComparedRunView>,
    /// How runs were paired, and what differs in the tasks.
    summary: String,
    notes: Vec<String>,
    /// Verdicts by dimension, and failure groups.
    tables: Vec<ReportTableView>,
    /// Worse, then better. `None` if nothing is paired: without pairs nothing can have changed.
    flips: Option<[TaskFlipList; 2]>,
}

/// One of the runs.
struct ComparedRunView {
    letter: String,
    name: String,
    /// The run, or the traces.
    href: String,
    judge: String,
    tasks: String,
    runs: String,
}

/// The changes in one direction.
struct TaskFlipList {
    id: &'static str,
    title: &'static str,
    count: String,
    all: Vec<TaskFlipRow>,
}

/// A task that changed, with links to a trajectory of either run.
struct TaskFlipRow {
    request: String,
    dimension: String,
    before: String,
    before_href: String,
    after: String,
    href: String,
    /// URL of both runs side by side; none if a baseline names no run.
    steps: String,
}

/// `GET /compare`
pub(super) async fn render_comparison_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<RunComparisonQuery>,
) -> Result<Response, PageError> {
    let project = choice.project.as_deref().filter(|name| !name.is_empty());
    let here = if choice.live_selection().is_some() { "/versions" } else { "/runs" };
    let frame = PageLayout::new(here, project, &headers);
    let asked = format!("compare {} {choice:?}", frame.is_signed_in);
    render::render_cached_page(&server, asked, move |server| build_comparison_page(server, &choice, frame)).await
}

/// The compared runs or live traffic, for building URLs.
struct ComparedSubject<'c> {
    server: &'c ServerState,
    choice: &'c RunComparisonQuery,
    live: Option<(VersionListQuery, ComparedName)>,
}

impl ComparedSubject<'_> {
    /// Returns the URL of a trajectory of one of the versions.
    fn trajectory_href(&self, run_id: &str, trajectory: &str) -> Result<String, ApiError> {
        match &self.live {
            // Retention may have deleted it since.
            Some(_) => Ok(find_trajectory_url(self.server, trajectory, None)?.unwrap_or_else(|| "/traces".to_owned())),
            None => Ok(build_run_trajectory_url(run_id, trajectory, None, self.project()).to_string()),
        }
    }

    /// Returns the URL of both runs of a task side by side.
    fn steps_href(&self, runs: [&str; 2], trajectories: [&str; 2]) -> String {
        let url =
            PageUrl::from_path("/compare/steps").with("a", Some(trajectories[0])).with("b", Some(trajectories[1]));
        match &self.live {
            Some((choice, by)) => url
                .with("by", Some(by.noun()))
                .with("name_a", Some(&self.choice.a))
                .with("name_b", Some(&self.choice.b))
                .with("project", choice.project.as_deref()),
            None => url.with("run_a", Some(runs[0])).with("run_b", Some(runs[1])).with("project", self.project()),
        }
        .to_string()
    }

    fn project(&self) -> Option<&str> {
        self.choice.project.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the URL of this comparison under another path, optionally in the other direction.
    fn to_url(&self, path: &str, is_swapped: bool) -> PageUrl {
        let (a, b) = match is_swapped {
            true => (&self.choice.b, &self.choice.a),
            false => (&self.choice.a, &self.choice.b),
        };
        let url = match &self.live {
            Some((choice, by)) => choice.to_url(path, *by),
            None => PageUrl::from_path(path).with("project", self.project()),
        };
        url.with("a", Some(a)).with("b", Some(b))
    }
}

fn build_comparison_page(
    server: &ServerState,
    choice: &RunComparisonQuery,
    frame: PageLayout,
) -> Result<RunComparisonPage, ApiError> {
    let live = match choice.live_selection() {
        Some(selection) => {
            let by = selection.compared_name()?;
            Some((selection, by))
        }
        None => None,
    };
    let subject = ComparedSubject { server, choice, live };
    let filter = match &subject.live {
        Some((selection, by)) => selection.to_filter(*by, TimeRangePreset::All)?,
        None => MetricFilter::default(),
    };
    let comparison = match &subject.live {
        Some((_, by)) => Arc::new(compare_live(server, *by, [&choice.a, &choice.b], &filter)?),
        None => compare_runs(server, &choice.a, &choice.b)?,
    };
    let notes = comparison.notes().map(|note| text::format_display_line(&note));
    // The changed tasks have lists of their own, with links.
    let tables =
        build_comparison_tables(&comparison).into_iter().filter(|table| !table.title.starts_with("Tasks that"));
    let flips = match comparison.pairing {
        RunPairing::None => None,
        _ => Some([
            build_flip_list(&comparison, "worse", "Worse in B than in A", true, &subject)?,
            build_flip_list(&comparison, "better", "Better in B than in A", false, &subject)?,
        ]),
    };
    let (title, crumb, crumb_href) = match &subject.live {
        Some((selection, by)) => {
            let names = [&choice.a, &choice.b].map(|name| text::format_display_line(name));
            let title = format!("Compare {}s: {} against {}", by.noun(), names[1], names[0]);
            (title, "Versions", selection.to_url("/versions", *by).to_string())
        }
        None => ("Compare two runs".to_owned(), "Runs", frame.href("Runs").to_owned()),
    };
    let api = match &subject.live {
        Some((selection, by)) => selection.to_api_url("/api/v1/compare", *by, &filter),
        None => PageUrl::from_path("/api/v1/compare"),
    };
    let api = api.with("a", Some(&choice.a)).with("b", Some(&choice.b));
    Ok(RunComparisonPage {
        frame,
        title,
        crumb,
        crumb_href,
        swapped: subject.to_url("/compare", true).to_string(),
        api: api.to_string(),
        versions: comparison.versions.iter().map(|version| describe_version(version, &subject, &filter)).collect(),
        summary: text::format_display_line(&summarize_verdicts(&comparison)),
        notes: std::iter::once(comparison.pairing.describe().to_owned()).chain(notes).collect(),
        tables: tables.map(|table| ReportTableView::from_table(&table)).collect(),
        flips,
    })
}

fn describe_version(
    version: &ComparedVersion,
    subject: &ComparedSubject<'_>,
    filter: &MetricFilter,
) -> ComparedRunView {
    let href = match &subject.live {
        Some((selection, by)) => {
            let name = if version.letter == "A" { &subject.choice.a } else { &subject.choice.b };
            selection.traces_url(*by, name, filter).to_string()
        }
        None => format_run_url(&version.run_id, subject.project()),
    };
    ComparedRunView {
        letter: version.letter.clone(),
        name: text::format_display_line(&version.name),
        href,
        judge: text::format_display_line(&version.judge),
        tasks: format_count(version.tasks),
        runs: format_count(version.runs),
    }
}

fn build_flip_list(
    comparison: &VersionComparison,
    id: &'static str,
    title: &'static str,
    is_worse: bool,
    subject: &ComparedSubject<'_>,
) -> Result<TaskFlipList, ApiError> {
    let pair = comparison.flips.first();
    let (count, flips) = match (pair, is_worse) {
        (Some(pair), true) => (pair.worse_count, pair.worse.as_slice()),
        (Some(pair), false) => (pair.better_count, pair.better.as_slice()),
        (None, _) => (0, &[] as &[TaskFlip]),
    };
    let row = |flip: &TaskFlip| {
        let run_id = |version: usize| comparison.versions.get(version).map_or("", |version| version.run_id.as_str());
        let href = |version: usize, trajectory: &str| subject.trajectory_href(run_id(version), trajectory);
        let trajectories = [flip.before_trajectory.as_str(), flip.after_trajectory.as_str()];
        let value = |mean: f64, path: &Option<String>| {
            let mean = number::format_score(mean);
            path.as_ref().map_or(mean.clone(), |path| format!("{mean}: {}", text::format_display_line(path)))
        };
        Ok(TaskFlipRow {
            request: text::format_display_line(flip.request.as_deref().unwrap_or(&flip.task)),
            dimension: text::format_display_line(comparison.title(&flip.dimension)),
            before: value(flip.before, &flip.before_path),
            before_href: href(0, &flip.before_trajectory)?,
            after: value(flip.after, &flip.after_path),
            href: href(1, &flip.after_trajectory)?,
            steps: subject.steps_href([run_id(0), run_id(1)], trajectories),
        })
    };
    Ok(TaskFlipList {
        id,
        title,
        count: format_count(count),
        all: flips.iter().map(row).collect::<Result<_, ApiError>>()?,
    })
}
