//! Runs of `gradus eval`: the list, and one run's report as `--html` writes it.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::report::{RunReader, Summary};
use gradus_eval::run::{RunFileError, RunFolder, RunState, StateFolder};

use super::Frame;
use super::answer::{self, PageError};
use crate::output::html::number::minute;
use crate::output::html::text;
use crate::output::html::view::Report;
use crate::serve::api::{ApiError, blocking};
use crate::serve::state::Server;

/// Runs that are listed, the latest.
const MOST: usize = 200;

#[derive(Template)]
#[template(path = "runs.html")]
struct Page {
    frame: Frame,
    runs: Vec<Row>,
    live: Vec<Live>,
    is_cut: bool,
}

struct Row {
    id: String,
    href: String,
    state: &'static str,
    started: String,
    judge: String,
    evaluators: String,
    sources: String,
}

/// What is judged as it arrives.
struct Live {
    name: String,
    project: String,
    judge: String,
    evaluators: String,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    report: Report,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let page = blocking(&server, move |server| {
        let folder = StateFolder::at(&server.settings.data);
        let ids = folder.runs();
        let is_cut = ids.len() > MOST;
        let runs = ids.iter().take(MOST).filter_map(|id| folder.read_run(id).ok()).map(|run| Row::of(&run));
        let settings = server.reloadable();
        let live = settings.rules.iter().map(|rule| Live {
            name: text::line(&rule.name),
            project: text::line(rule.project_pattern()),
            judge: rule.judge.as_ref().map_or_else(|| "rules".to_owned(), |judge| text::line(&judge.name())),
            evaluators: joined(rule.evaluators.iter().map(|one| one.title.as_str())),
        });
        let frame = Frame::of("/runs", None, &headers);
        Ok(Page { frame, runs: runs.collect(), live: live.collect(), is_cut })
    })
    .await?;
    Ok(answer::page(&page))
}

fn joined<'t>(names: impl Iterator<Item = &'t str>) -> String {
    text::line(&names.collect::<Vec<_>>().join(", "))
}

impl Row {
    fn of(run: &RunFolder) -> Row {
        let record = &run.record;
        Row {
            id: text::line(&record.run_id),
            href: format!("/runs/{}", record.run_id),
            state: match record.state {
                RunState::Running => "running",
                RunState::Stopped => "stopped early",
                RunState::Finished => "complete",
            },
            started: minute(&record.started),
            judge: text::line(&record.judge),
            evaluators: joined(record.evaluators.iter().map(|one| one.title.as_str())),
            sources: joined(record.sources.iter().map(String::as_str)),
        }
    }
}

/// Opens a run that is in the list: an id is a name, not a path.
pub(super) fn open(server: &Server, id: &str) -> Result<RunReader, ApiError> {
    let missing = || ApiError::missing("There is no run with this id in the server's folder.");
    let folder = StateFolder::at(&server.settings.data);
    let known = folder.runs().into_iter().find(|known| known == id).ok_or_else(missing)?;
    let run = folder.read_run(&known).map_err(failed)?;
    RunReader::open(&run).map_err(failed)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn failed(error: RunFileError) -> ApiError {
    tracing::error!(%error, "a run cannot be read");
    ApiError::missing("The run's files cannot be read; see the server's log.")
}

pub(super) async fn one(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    // A run may be large.
    let _turn = server.openings.acquire().await;
    let report = blocking(&server, move |server| {
        let summary = Summary::of(&mut open(server, &id)?).map_err(failed)?;
        Ok(Report::of(&summary, &[]))
    })
    .await?;
    Ok(answer::page(&RunPage { frame: Frame::of("/runs", None, &headers), report }))
}
