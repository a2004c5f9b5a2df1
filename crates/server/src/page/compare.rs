//! Comparison of two runs: verdicts by dimension, and the tasks that changed.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_report::compare::{ComparedVersion, RunPairing, TaskFlip, VersionComparison, build_comparison_tables};
use gradus_report::html::number::{self, format_count};
use gradus_report::html::text;
use gradus_report::html::view::tables::ReportTableView;
use serde::Deserialize;

use super::PageLayout;
use super::render::{self, PageError, PageQuery};
use super::run_addresses::{run_address, run_trajectory_address};
use crate::http_error::ApiError;
use crate::run_comparison::compare_runs;
use crate::state::ServerState;

/// Parameters of `/compare`: the ids of the runs, A (before) and B (after).
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RunComparisonQuery {
    a: String,
    b: String,
    /// Runs belong to no project. It is passed on to the links of the navigation.
    project: Option<String>,
}

#[derive(Template)]
#[template(path = "compare.html")]
struct RunComparisonPage {
    frame: PageLayout,
    versions: Vec<ComparedRunView>,
    /// How runs were paired, and what differs in the tasks.
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
}

/// `GET /compare`
pub(super) async fn render_comparison_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<RunComparisonQuery>,
) -> Result<Response, PageError> {
    let project = choice.project.as_deref().filter(|name| !name.is_empty());
    let frame = PageLayout::new("/runs", project, &headers);
    render::of_large(&server, move |server| build_comparison_page(server, &choice, frame)).await
}

fn build_comparison_page(
    server: &ServerState,
    choice: &RunComparisonQuery,
    frame: PageLayout,
) -> Result<RunComparisonPage, ApiError> {
    let comparison = compare_runs(server, &choice.a, &choice.b)?;
    let project = choice.project.as_deref().filter(|name| !name.is_empty());
    let notes = comparison.notes().map(|note| text::format_display_line(&note));
    // The changed tasks have lists of their own, with links.
    let tables =
        build_comparison_tables(&comparison).into_iter().filter(|table| !table.title.starts_with("Tasks that"));
    let flips = (comparison.pairing != RunPairing::None).then(|| {
        [("worse", "Worse in B than in A", true), ("better", "Better in B than in A", false)]
            .map(|(id, title, is_worse)| build_flip_list(&comparison, id, title, is_worse, project))
    });
    Ok(RunComparisonPage {
        frame,
        versions: comparison.versions.iter().map(|version| describe_version(version, project)).collect(),
        notes: std::iter::once(comparison.pairing.describe().to_owned()).chain(notes).collect(),
        tables: tables.map(|table| ReportTableView::from_table(&table)).collect(),
        flips,
    })
}

fn describe_version(version: &ComparedVersion, project: Option<&str>) -> ComparedRunView {
    ComparedRunView {
        letter: version.letter.clone(),
        name: text::format_display_line(&version.name),
        href: run_address(&version.run_id, project),
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
    project: Option<&str>,
) -> TaskFlipList {
    let pair = comparison.flips.first();
    let (count, flips) = match (pair, is_worse) {
        (Some(pair), true) => (pair.worse_count, pair.worse.as_slice()),
        (Some(pair), false) => (pair.better_count, pair.better.as_slice()),
        (None, _) => (0, &[] as &[TaskFlip]),
    };
    let row = |flip: &TaskFlip| {
        let href = |version: usize, trajectory: &str| {
            let run_id = comparison.versions.get(version).map_or("", |version| version.run_id.as_str());
            run_trajectory_address(run_id, trajectory, None, project).to_string()
        };
        let value = |mean: f64, path: &Option<String>| {
            let mean = number::format_score(mean);
            path.as_ref().map_or(mean.clone(), |path| format!("{mean}: {}", text::format_display_line(path)))
        };
        TaskFlipRow {
            request: text::format_display_line(flip.request.as_deref().unwrap_or(&flip.task)),
            dimension: text::format_display_line(comparison.title(&flip.dimension)),
            before: value(flip.before, &flip.before_path),
            before_href: href(0, &flip.before_trajectory),
            after: value(flip.after, &flip.after_path),
            href: href(1, &flip.after_trajectory),
        }
    };
    TaskFlipList { id, title, count: format_count(count), all: flips.iter().map(row).collect() }
}
