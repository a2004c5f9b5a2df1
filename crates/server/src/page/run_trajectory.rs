//! A trajectory as a run judged it: with the run's own verdicts, which may be others than those given since, and also where
//! its trace was never sent here.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::RunReader;
use gradus_eval::run::RunRecord;
use gradus_report::html::{number, text};
use serde::Deserialize;

use super::answer::{self, Asked, PageError};
use super::fold::{self, Folded, Shelf};
use super::mentions::Mentions;
use super::run_addresses::{run_address, run_trajectory_address, trajectory_address};
use super::step::{Judged, StepView};
use super::verdict::Verdict;
use super::window::Window;
use super::{Frame, opened};
use crate::http_error::ApiError;
use crate::page::failing_steps::Failing;
use crate::page::people::Person;
use crate::page::recorded_verdict::Given;
use crate::run_lookup::failed;
use crate::state::Server;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    /// The page of steps that has this one is shown.
    step: Option<u32>,
    project: Option<String>,
}

#[derive(Template)]
#[template(path = "run_trajectory.html")]
struct Page {
    frame: Frame,
    run_id: String,
    run: String,
    /// Where its trace is, if it was sent here.
    trace: Option<String>,
    title: String,
    query: Option<Folded>,
    answer: Option<Folded>,
    facts: Vec<(&'static str, String)>,
    failing: Vec<Failing>,
    more_failing: Option<String>,
    whole: Vec<Verdict>,
    steps: Vec<StepView>,
    window: Option<Window>,
    author: Person,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path((run, id)): Path<(String, String)>,
    Asked(choice): Asked<Choice>,
) -> Result<Response, PageError> {
    answer::of_large(&server, move |server| {
        let (record, trajectory, outcomes) = read(server, &run, &id)?;
        Page::of(server, &record, &trajectory, &outcomes, &choice, &headers)
    })
    .await
}

/// The whole of a text, as plain text.
pub(super) async fn whole(
    State(server): State<Arc<Server>>,
    Path((run, id)): Path<(String, String)>,
    Asked(which): Asked<fold::Which>,
) -> Result<Response, PageError> {
    fold::sent(&server, move |server| {
        let (_, trajectory, _) = read(server, &run, &id)?;
        Ok((trajectory, which))
    })
    .await
}

fn read(server: &Server, run: &str, id: &str) -> Result<(RunRecord, Trajectory, Vec<Given>), ApiError> {
    let mut reader = RunReader::open(&crate::run_lookup::find(server, run)?).map_err(failed)?;
    let found = reader.find(id).map_err(failed)?;
    let (trajectory, lines) =
        found.ok_or_else(|| ApiError::missing("There is no trajectory with this id in this run."))?;
    let record = reader.record.clone();
    let outcomes = lines.into_iter().map(|line| given(&record, line)).collect();
    Ok((record, trajectory, outcomes))
}

fn given(record: &RunRecord, line: OutcomeLine) -> Given {
    let known = record.evaluators.iter().find(|known| *known.name == *line.evaluator);
    let is_wrong = line.score.is_some() && known.is_some_and(|known| !known.is_right(line.score));
    let ended = record.ended.as_deref().unwrap_or(&record.started);
    let at = ended.parse::<jiff::Timestamp>().ok();
    Given { at_ns: at.and_then(|at| i64::try_from(at.as_nanosecond()).ok()).unwrap_or(0), is_wrong, line }
}

impl Page {
    fn of(
        server: &Server,
        record: &RunRecord,
        trajectory: &Trajectory,
        outcomes: &[Given],
        choice: &Choice,
        headers: &HeaderMap,
    ) -> Result<Page, ApiError> {
        let settings = server.reloadable();
        let project = choice.project.as_deref().filter(|name| !name.is_empty());
        let (run, id) = (&record.run_id, &trajectory.trajectory_id);
        let at = |step: Option<u32>| run_trajectory_address(run, id, step, project).at(String::new());
        let judged = Judged { shelf: Shelf::Run { run, trajectory: id }, outcomes, said: &[] };
        let fold = |given: &Option<String>, part: &str| judged.shelf.folded(given.as_deref(), None, part);
        let first = crate::page::failing_steps::first_shown(trajectory, choice.step);
        let mentions = Mentions::of(&settings, trajectory, outcomes);
        let shown = trajectory.steps.iter().skip(first).take(opened::STEPS_OF_A_PAGE);
        let mut steps: Vec<StepView> =
            shown.map(|step| StepView::of(&settings, &judged, step, &at(Some(step.index)))).collect();
        mentions.mark(&mut steps);
        let whole = outcomes.iter().filter(|given| given.line.step_index.is_none());
        let mut whole: Vec<Verdict> =
            whole.map(|given| Verdict::of(&settings, given, &[], &at(None))).collect();
        // What a run said is not labelled: people label what is judged as it arrives.
        for verdict in whole.iter_mut().chain(steps.iter_mut().flat_map(|step| &mut step.verdicts)) {
            verdict.labelling = None;
        }
        mentions.link(&mut whole, at);
        let (failing, more_failing) = crate::page::failing_steps::failing(&settings, outcomes, &mentions, at);
        let mut facts = vec![("Judge", text::line(&record.judge))];
        let named = [
            ("Agent", &trajectory.agent),
            ("Version", &trajectory.agent_version),
            ("Model", &trajectory.model),
        ];
        facts.extend(
            named.into_iter().filter_map(|(name, value)| Some((name, text::line(value.as_deref()?)))),
        );
        facts.push(("Steps", number::count(trajectory.steps.len() as u64)));
        Ok(Page {
            frame: Frame::of("/runs", project, headers),
            run_id: text::line(run),
            run: run_address(run, project),
            trace: trajectory_address(server, id, None)?,
            title: trajectory.query.as_deref().map_or_else(|| text::line(id), text::line),
            query: fold(&trajectory.query, "query"),
            answer: fold(&trajectory.final_answer, "answer"),
            facts,
            failing,
            more_failing,
            whole,
            window: crate::page::failing_steps::window(trajectory, first, at),
            steps,
            author: Person::nobody(),
        })
    }
}
