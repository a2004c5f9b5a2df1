//! A trajectory with the verdicts of a run. They may differ from those that the server gave since, and the trace need
//! not be on this server.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::Trajectory;
use gradus_eval::run::RunManifest;
use gradus_report::html::{number, text};
use serde::Deserialize;

use super::flag_groups::{FlagGroup, build_flag_groups};
use super::pagination::PaginationLinks;
use super::render::{self, PageError, PageQuery};
use super::run_addresses::{build_run_trajectory_url, find_trajectory_url, format_run_url};
use super::run_fact::RunFact;
use super::run_headline::{RunHeadline, is_failed_run};
use super::run_outcome::RunOutcome;
use super::span_scan::ErrorSpanLink;
use super::step::{StepView, TrajectoryVerdicts};
use super::step_list::{fold_many_steps, mute_right_verdicts};
use super::step_mentions::StepMentions;
use super::step_outline::{OutlineEntry, build_outline};
use super::step_state::summarize_other_verdicts;
use super::text_preview::{self, TextPreview, TrajectoryLocation};
use super::verdict::VerdictDetailView;
use super::{PageLayout, loaded_trace, step_pages};
use crate::http_error::ApiError;
use crate::page::label_authors::LabelAuthor;
use crate::recorded_verdict::{RecordedVerdict, read_run_trajectory};
use crate::state::ServerState;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RunTrajectoryQuery {
    /// Selects the page of steps that contains this one.
    step: Option<u32>,
    project: Option<String>,
    /// `all` unfolds all steps of the page.
    open: Option<String>,
}

/// As the page of a trace, without labels, spans and defects.
#[derive(Template)]
#[template(path = "run_trajectory.html")]
struct RunTrajectoryPage {
    frame: PageLayout,
    run_id: String,
    run: String,
    /// URL of the trace, if it is on this server.
    trace: Option<String>,
    title: String,
    query: Option<TextPreview>,
    answer: Option<TextPreview>,
    /// How the run of the agent ended, and what went wrong first.
    headline: RunHeadline,
    /// The files of a run have no spans.
    errors: Vec<ErrorSpanLink>,
    facts: Vec<RunFact>,
    flags: Vec<FlagGroup>,
    whole: Vec<VerdictDetailView>,
    /// Summary of those of them that flag nothing.
    other_verdicts: Option<String>,
    outline: Vec<OutlineEntry>,
    /// URL of the same page with all steps unfolded. None if all of them are.
    unfold: Option<String>,
    /// The last page ends with the thought before the answer.
    steps: Vec<StepView>,
    window: Option<PaginationLinks>,
    author: LabelAuthor,
}

/// `GET /runs/{run}/trajectories/{trajectory}`
pub(super) async fn render_run_trajectory(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path((run, id)): Path<(String, String)>,
    PageQuery(choice): PageQuery<RunTrajectoryQuery>,
) -> Result<Response, PageError> {
    render::render_large_page(&server, move |server| {
        let (record, trajectory, outcomes) = read_run_trajectory(server, &run, &id)?;
        RunTrajectoryPage::new(server, &record, &trajectory, &outcomes, &choice, &headers)
    })
    .await
}

/// `GET /runs/{run}/trajectories/{trajectory}/text`: one whole text.
pub(super) async fn serve_run_text(
    State(server): State<Arc<ServerState>>,
    Path((run, id)): Path<(String, String)>,
    PageQuery(which): PageQuery<text_preview::TextPartQuery>,
) -> Result<Response, PageError> {
    text_preview::respond_with_text(&server, move |server| {
        let (_, trajectory, _) = read_run_trajectory(server, &run, &id)?;
        Ok((trajectory, which))
    })
    .await
}

impl RunTrajectoryPage {
    /// Marks and links failing steps as the page of a trace does.
    fn new(
        server: &ServerState,
        record: &RunManifest,
        trajectory: &Trajectory,
        outcomes: &[RecordedVerdict],
        choice: &RunTrajectoryQuery,
        headers: &HeaderMap,
    ) -> Result<RunTrajectoryPage, ApiError> {
        let settings = server.reloadable();
        let project = choice.project.as_deref().filter(|name| !name.is_empty());
        let (run, id) = (&record.run_id, &trajectory.trajectory_id);
        let at = |step: Option<u32>| build_run_trajectory_url(run, id, step, project).with_fragment(String::new());
        let text_location = TrajectoryLocation::Run { run, trajectory: id };
        let judged = TrajectoryVerdicts { text_location, trajectory, outcomes, said: &[] };
        let fold = |given: &Option<String>, part: &str| judged.text_location.preview_text(given.as_deref(), None, part);
        let first = step_pages::find_page_start(trajectory, choice.step);
        let mentions = StepMentions::from_outcomes(&settings, trajectory, outcomes);
        let shown = trajectory.steps.iter().skip(first).take(loaded_trace::STEPS_PER_PAGE);
        let mut steps: Vec<StepView> =
            shown.map(|step| StepView::from_step(&settings, &judged, step, &at(Some(step.index)))).collect();
        mentions.mark_steps(&mut steps);
        let final_thought = trajectory
            .final_thought_index()
            .filter(|_| step_pages::is_last_page(trajectory, first))
            .and_then(|index| StepView::from_final_thought(&settings, &judged, trajectory, &at(Some(index))));
        steps.extend(final_thought);
        let whole = outcomes.iter().filter(|given| given.line.step_index.is_none());
        let mut whole: Vec<VerdictDetailView> =
            whole.map(|given| VerdictDetailView::from_recorded(&settings, given, &[], &at(None))).collect();
        // Verdicts of a run cannot be labelled: labels belong to the verdicts of live grading.
        for verdict in whole.iter_mut().chain(steps.iter_mut().flat_map(|step| &mut step.verdicts)) {
            verdict.labelling = None;
        }
        mentions.link_verdicts(&mut whole, at);
        if is_failed_run(trajectory, RunOutcome::from_outcomes(outcomes).as_ref()) {
            mute_right_verdicts(&mut whole, &mut steps);
        }
        let is_unfolded = choice.open.as_deref() == Some("all");
        fold_many_steps(&mut steps);
        steps.iter_mut().for_each(|step| step.is_open |= is_unfolded);
        let mut facts = vec![RunFact::new("Judge", text::format_display_line(&record.judge))];
        let named =
            [("Agent", &trajectory.agent), ("Version", &trajectory.agent_version), ("Model", &trajectory.model)];
        facts.extend(
            named
                .into_iter()
                .filter_map(|(name, value)| Some(RunFact::new(name, text::format_display_line(value.as_deref()?)))),
        );
        facts.push(RunFact::new("Steps", number::format_count(trajectory.steps.len() as u64)));
        Ok(RunTrajectoryPage {
            frame: PageLayout::new("/runs", project, headers),
            run_id: text::format_display_line(run),
            run: format_run_url(run, project),
            trace: find_trajectory_url(server, id, None)?,
            title: trajectory.query.as_deref().map_or_else(|| text::format_display_line(id), text::format_display_line),
            query: fold(&trajectory.query, "query"),
            answer: fold(&trajectory.final_answer, "answer"),
            headline: RunHeadline::from_run(&settings, trajectory, outcomes, &[], at),
            errors: Vec::new(),
            facts,
            flags: build_flag_groups(&settings, outcomes, at),
            other_verdicts: summarize_other_verdicts(&whole),
            whole,
            outline: build_outline(trajectory, outcomes, &steps, first, at),
            unfold: steps
                .iter()
                .any(|step| !step.is_open)
                .then(|| at(trajectory.steps.get(first).map(|step| step.index)).with("open", Some("all")).to_string()),
            window: step_pages::build_step_pagination(trajectory, first, at),
            steps,
            author: LabelAuthor::read_only(),
        })
    }
}
