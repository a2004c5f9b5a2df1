//! Runs of `gradus eval`: the list, and one run's report as `--html` writes it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::report::{Gate, GateResult, Metric, RunReader, Summary};
use gradus_eval::run::{RunFileError, RunFolder, RunRecord, RunState, StateFolder};
use serde::Deserialize;

use super::address::Address;
use super::answer::{self, Asked, PageError};
use super::opened;
use super::words::{LiveRule, joined};
use super::{Frame, Looked};
use crate::output::html::number::{self, minute};
use crate::output::html::text;
use crate::output::html::view::Report;
use crate::serve::api::ApiError;
use crate::serve::state::Server;

/// Runs of one page.
const MOST: usize = 100;
/// How long one request sums up runs for the list: what is left comes with the next.
const SUMS_FOR: Duration = Duration::from_millis(250);

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    /// Those that began before this one.
    before: Option<String>,
    /// Runs belong to no project: it is kept for the other places.
    project: Option<String>,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct Page {
    frame: Frame,
    runs: Vec<Row>,
    live: Vec<LiveRule>,
    is_first: bool,
    latest: String,
    older: Option<String>,
    project: String,
}

struct Row {
    id: String,
    href: String,
    state: &'static str,
    started: String,
    judge: String,
    /// Empty where it is not known.
    trajectories: String,
    scores: String,
    evaluators: String,
    sources: String,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    report: Report,
}

/// What finished runs come to. Their files do not change any more, and may take long to sum up.
#[derive(Debug, Default)]
pub(in crate::serve) struct Summaries {
    whole: Mutex<VecDeque<Arc<Summary>>>,
    /// By the run's id.
    briefs: Mutex<HashMap<String, Brief>>,
}

/// What tells a run from others in the list.
#[derive(Clone, Debug, Default)]
struct Brief {
    ended: Option<String>,
    trajectories: String,
    /// Dimensions with their mean scores.
    scores: String,
}

impl Summaries {
    const MOST: usize = 16;
    const MOST_BRIEFS: usize = 2_000;
    /// Runs with more outcomes than this are not summed up for a list.
    const MOST_BYTES: u64 = 8 << 20;

    /// None for runs that go on, and for those that would take long to sum up.
    fn brief(&self, run: &RunFolder, may_read: bool) -> Option<Brief> {
        let record = &run.record;
        let lock = || self.briefs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&record.run_id).filter(|known| known.ended == record.ended) {
            return Some(known.clone());
        }
        let size = || std::fs::metadata(run.outcomes_path()).map_or(u64::MAX, |file| file.len());
        if !may_read || record.state == RunState::Running || size() > Self::MOST_BYTES {
            return None;
        }
        let summary = Summary::of(&mut RunReader::open(run).ok()?).ok()?;
        let score = |metric: &Metric| {
            let value = metric.value?;
            let value = if metric.is_share { number::percent(value) } else { number::score(value) };
            Some(format!("{}\u{a0}{value}", text::line(&metric.title)))
        };
        let brief = Brief {
            ended: record.ended.clone(),
            trajectories: number::count(summary.trajectories),
            scores: summary.metrics.iter().filter_map(score).collect::<Vec<_>>().join(", "),
        };
        let mut kept = lock();
        if kept.len() >= Self::MOST_BRIEFS {
            kept.clear();
        }
        kept.insert(record.run_id.clone(), brief.clone());
        Some(brief)
    }

    fn of(&self, reader: &mut RunReader) -> Result<Arc<Summary>, RunFileError> {
        let record = reader.record.clone();
        let is_finished = record.state == RunState::Finished;
        let lock = || self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &&Arc<Summary>| known.run_id == record.run_id && known.ended == record.ended;
        if let Some(known) = lock().iter().find(is_same).filter(|_| is_finished) {
            return Ok(Arc::clone(known));
        }
        let summary = Arc::new(Summary::of(reader)?);
        if is_finished {
            let mut kept = lock();
            kept.truncate(Self::MOST - 1);
            kept.push_front(Arc::clone(&summary));
        }
        Ok(summary)
    }
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Asked(choice): Asked<Choice>,
) -> Result<Response, PageError> {
    answer::of(&server, move |server| {
        let started = Instant::now();
        let folder = StateFolder::at(&server.settings.data);
        let project = choice.project.filter(|name| !name.is_empty());
        let list = Address::of("/runs").with("project", project.as_deref());
        let before = choice.before.filter(|id| !id.is_empty());
        // The latest come first.
        let mut ids = folder.runs();
        ids.retain(|id| before.as_ref().is_none_or(|before| id < before));
        let has_more = ids.len() > MOST;
        ids.truncate(MOST);
        let last = ids.last().filter(|_| has_more);
        let settings = server.reloadable();
        Ok(Page {
            frame: Frame::of("/runs", project.as_deref(), &headers),
            is_first: before.is_none(),
            older: last.map(|id| list.but("before", Some(id)).to_string()),
            latest: list.to_string(),
            project: project.clone().unwrap_or_default(),
            runs: ids
                .iter()
                .filter_map(|id| folder.read_run(id).ok())
                .map(|run| {
                    let brief = server.summaries.brief(&run, started.elapsed() < SUMS_FOR);
                    Row::of(&run, brief, project.as_deref())
                })
                .collect(),
            live: settings.rules.iter().map(LiveRule::of).collect(),
        })
    })
    .await
}

impl Row {
    fn of(run: &RunFolder, brief: Option<Brief>, project: Option<&str>) -> Row {
        let record = &run.record;
        let brief = brief.unwrap_or_default();
        Row {
            id: text::line(&record.run_id),
            href: address(&record.run_id, project),
            state: match record.state {
                RunState::Running => "running",
                RunState::Stopped => "stopped early",
                RunState::Finished => "complete",
            },
            started: minute(&record.started),
            judge: text::line(&record.judge),
            trajectories: brief.trajectories,
            scores: brief.scores,
            evaluators: joined(record.evaluators.iter().map(|one| one.title.as_str())),
            sources: joined(record.sources.iter().map(String::as_str)),
        }
    }
}

/// Where a run is looked at.
pub(super) fn address(id: &str, project: Option<&str>) -> String {
    Address::of(format!("/runs/{id}")).with("project", project).to_string()
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

/// Where a trajectory of a run can be looked at; none if its trace was never sent here.
pub(super) fn trajectory_address(
    server: &Server,
    id: &str,
    step: Option<u32>,
) -> Result<Option<String>, ApiError> {
    let trace = server.store.trace_of_trajectory(id)?;
    Ok(trace.map(|trace| opened::step_address(&trace.to_string(), Some(id), step)))
}

pub(super) async fn one(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Asked(looked): Asked<Looked>,
) -> Result<Response, PageError> {
    // A run may be large.
    let _turn = server.openings.acquire().await;
    answer::of(&server, move |server| {
        let mut reader = open(server, &id)?;
        let gates = gates(&reader.record);
        let summary = server.summaries.of(&mut reader).map_err(failed)?;
        let gates: Vec<GateResult> = gates.iter().map(|gate| gate.check(&summary, false)).collect();
        let mut report = Report::of(&summary, &gates);
        for (shown, found) in report.findings.all.iter_mut().zip(&summary.findings) {
            shown.href = trajectory_address(server, &found.trajectory_id, found.step_index)?;
        }
        Ok(RunPage { frame: Frame::of("/runs", looked.project(), &headers), report })
    })
    .await
}

/// What the run had to meet. Gates on numbers that are not among its outcomes cannot be checked here.
fn gates(record: &RunRecord) -> Vec<Gate> {
    let names: Vec<&str> = record.evaluators.iter().map(|known| known.name.as_str()).collect();
    record.gates.iter().filter_map(|text| Gate::parse(text, &names).ok()).collect()
}
