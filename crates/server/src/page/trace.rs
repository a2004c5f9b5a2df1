//! The page of a trajectory: a timeline of thoughts, calls and observations with the verdicts on each step.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::{DefectKind, Trajectory};
use gradus_eval::outcome::OutcomeKind;
use gradus_report::html::{number, text};
use serde::Deserialize;

use super::PageLayout;
use super::address::PageUrl;
use super::agent_tree::{AgentLink, build_agent_tree};
use super::display_text::{format_duration, format_timestamp, format_whole_number};
use super::flag_groups::{FlagGroup, build_flag_groups};
use super::loaded_trace::{self, LoadedTrace, STEPS_PER_PAGE};
use super::pagination::PaginationLinks;
use super::render::{self, PageError, PageQuery};
use super::run_fact::RunFact;
use super::run_headline::{RunHeadline, is_failed_run};
use super::run_outcome::RunOutcome;
use super::search::{StepSearchHit, search_steps};
use super::session::build_session_url;
use super::span_scan::{ErrorSpanLink, TraceSpanScan};
use super::step::{StepView, TrajectoryVerdicts};
use super::step_list::{fold_many_steps, mute_right_verdicts};
use super::step_mentions::StepMentions;
use super::step_outline::{OutlineEntry, build_outline};
use super::step_state::summarize_other_verdicts;
use super::step_verdicts::step_verdicts_url;
use super::text_preview::{TextPreview, TrajectoryLocation};
use super::verdict::VerdictDetailView;
use crate::caller::RequestCaller;
use crate::page::label_authors::LabelAuthor;
use crate::page::step_pages::{build_step_pagination, find_page_start, is_last_page};
use crate::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Maximum number of steps of a run whose page contains all verdicts. In longer runs, verdicts that flag nothing are
/// loaded when they are unfolded.
const MAX_INLINE_STEPS: usize = 40;
/// Maximum number of rows in the list of defects.
const MAX_DEFECTS: usize = 50;

/// Parameters of `/traces/{trace}`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct TraceDetailQuery {
    /// Id of the trajectory; the first one of the trace without it.
    trajectory: Option<String>,
    /// Selects the page of steps that contains this one.
    step: Option<u32>,
    /// Text to search for in all steps.
    q: Option<String>,
    /// `all` unfolds all steps of the page.
    open: Option<String>,
}

/// All texts of the template. Long texts are previews; the rest is loaded on request.
#[derive(Template)]
#[template(path = "trace.html")]
struct TraceDetailPage {
    frame: PageLayout,
    trace_id: String,
    query: Option<TextPreview>,
    /// The request on one line, or the name of the trace.
    title: String,
    /// How the run ended, and what went wrong first.
    headline: RunHeadline,
    /// Spans in which errors began, without the one that the headline is about.
    errors: Vec<ErrorSpanLink>,
    facts: Vec<RunFact>,
    /// Whether the trace may still grow. The page mentions it, because verdicts are missing.
    is_open: bool,
    quarantine_reason: Option<String>,
    /// All agents of the trace. Empty for a single one.
    agents: Vec<AgentLink>,
    /// URL of the step that started this trajectory, for an agent called by another one.
    parent: Option<String>,
    /// Verdicts on the whole trajectory.
    whole: Vec<VerdictDetailView>,
    /// Summary of those of them that flag nothing.
    other_verdicts: Option<String>,
    /// Wrong verdicts on steps of any page.
    flags: Vec<FlagGroup>,
    /// Other trajectories of the trace that fail, if this one does not. The cause may be there.
    failing_others: Vec<AgentLink>,
    outline: Vec<OutlineEntry>,
    /// URL of the same page with all steps unfolded. None if all of them are.
    unfold: Option<String>,
    /// The last page ends with the thought before the answer.
    steps: Vec<StepView>,
    window: Option<PaginationLinks>,
    /// The search text and its hits.
    sought: Option<String>,
    hits: Vec<StepSearchHit>,
    more_hits: bool,
    /// Hidden field of the search form; empty for the first trajectory.
    here_trajectory: String,
    answer: Option<TextPreview>,
    defects: Vec<TraceDefectRow>,
    /// URLs of the tree of spans: as a fragment, and as a page.
    spans: String,
    spans_page: String,
    project_traces: String,
    author: LabelAuthor,
    /// Number of questions that failed.
    unjudged: Option<String>,
    /// Whether the trajectory waits for a judge model.
    waits: bool,
}

/// A defect that assembly reported, with the id of the span where it was found.
struct TraceDefectRow {
    kind: String,
    detail: String,
    span: Option<String>,
}

/// `GET /traces/{trace}`
pub(super) async fn render_trace_page(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    Path(id): Path<String>,
    PageQuery(choice): PageQuery<TraceDetailQuery>,
) -> Result<Response, PageError> {
    // A trace may be large, so the page is built with the large queries.
    let author = LabelAuthor::from_headers(&headers, &caller);
    render::render_large_page(&server, move |server| {
        let opened = loaded_trace::load_trace(server, &id, choice.trajectory.as_deref())?;
        let scan = TraceSpanScan::load(server, &opened)?;
        Ok(TraceDetailPage::from_trace(&server.reloadable(), &opened, scan, &choice, author, &headers))
    })
    .await
}

impl TraceDetailPage {
    /// Builds the page. A trace without a trajectory is shown with an empty one: its spans and properties are still
    /// useful.
    fn from_trace(
        settings: &ReloadableSettings,
        opened: &LoadedTrace,
        scan: TraceSpanScan,
        choice: &TraceDetailQuery,
        author: LabelAuthor,
        headers: &HeaderMap,
    ) -> TraceDetailPage {
        let row = &opened.row;
        let trace_id = row.trace_id.to_string();
        // Placeholder where the trace has no trajectory.
        let empty = Trajectory::default();
        let trajectory = opened.trajectory.as_ref().unwrap_or(&empty);
        let id = &trajectory.trajectory_id;
        let is_first = opened.others.first().is_none_or(|first| first.id == *id);
        // The first trajectory needs no parameter, which keeps the usual URL short and stable.
        let own_id = Some(id.as_str()).filter(|_| !is_first);
        let at = |step: Option<u32>| loaded_trace::build_trace_url(&trace_id, own_id, step);
        // Index of the first step of the selected page.
        let first = find_page_start(trajectory, choice.step);
        let text_location = TrajectoryLocation::Trace { trace: &trace_id, trajectory: id };
        let judged = TrajectoryVerdicts { text_location, trajectory, outcomes: &opened.outcomes, said: &opened.said };
        let fold = |given: &Option<String>, part: &str| text_location.preview_text(given.as_deref(), None, part);
        let mentions = StepMentions::from_outcomes(settings, trajectory, &opened.outcomes);
        let shown = trajectory.steps.iter().skip(first).take(STEPS_PER_PAGE);
        let mut steps: Vec<StepView> =
            shown.map(|step| StepView::from_step(settings, &judged, step, &at(Some(step.index)))).collect();
        mentions.mark_steps(&mut steps);
        scan.add_schemas(trajectory, &mut steps);
        let final_thought = trajectory
            .final_thought_index()
            .filter(|_| is_last_page(trajectory, first))
            .and_then(|index| StepView::from_final_thought(settings, &judged, trajectory, &at(Some(index))));
        // The final thought is one more row, with an id of its own.
        steps.extend(final_thought);
        let whole = opened.outcomes.iter().filter(|given| given.line.step_index.is_none());
        let mut whole: Vec<VerdictDetailView> =
            whole.map(|given| VerdictDetailView::from_recorded(settings, given, &opened.said, &at(None))).collect();
        mentions.link_verdicts(&mut whole, at);
        let flags = build_flag_groups(settings, &opened.outcomes, at);
        let mut headline = RunHeadline::from_run(settings, trajectory, &opened.outcomes, &scan.errors, at);
        if let Some((other, verdicts)) = &opened.failing_other {
            let at = |step: Option<u32>| loaded_trace::build_trace_url(&trace_id, Some(&other.trajectory_id), step);
            let fault = RunHeadline::from_run(settings, other, verdicts, &[], at);
            headline = headline.with_agent_fault(other, fault, at(None).to_string());
        }
        if is_failed_run(trajectory, RunOutcome::from_outcomes(&opened.outcomes).as_ref()) {
            mute_right_verdicts(&mut whole, &mut steps);
        }
        let is_unfolded = choice.open.as_deref() == Some("all");
        fold_many_steps(&mut steps);
        let agents = build_agent_tree(&trace_id, &opened.others, id);
        for step in &mut steps {
            step.is_open |= is_unfolded;
            // With forms for each verdict, a page of many steps would be megabytes.
            step.verdicts_src = Some(step_verdicts_url(&trace_id, id, step.number))
                .filter(|_| trajectory.steps.len() > MAX_INLINE_STEPS && !is_unfolded);
            let started = agents.iter().filter(|agent| agent.is_started_by(id, step.number));
            step.started = started.map(AgentLink::to_started).collect();
        }
        let outline = build_outline(trajectory, &opened.outcomes, &steps, first, at);
        let is_bad = headline.class == "bad";
        let is_of_step = |error: &ErrorSpanLink| {
            let mut spans = trajectory.steps.iter().flat_map(|step| &step.span_ids);
            spans.any(|id| error.href.ends_with(id.as_str()))
        };
        let is_flagged = opened.outcomes.iter().any(|given| given.is_wrong);
        let (hits, more_hits) = match choice.q.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => search_steps(trajectory, text, at),
            None => (Vec::new(), false),
        };
        let mut failing_others = build_agent_tree(&trace_id, &opened.others, id);
        failing_others.retain(|agent| agent.is_failing && !agent.is_here && !is_flagged);
        // A single failing agent is named by the headline.
        if opened.failing_other.is_some() && failing_others.len() == 1 && headline.class == "flagged" {
            failing_others.clear();
        }
        TraceDetailPage {
            frame: PageLayout::new("/traces", Some(&row.project), headers),
            title: trajectory
                .query
                .as_deref()
                .map_or_else(|| text::format_display_line(&row.name), text::format_display_line),
            query: fold(&trajectory.query, "query"),
            // Errors that the headline or a step shows are not repeated.
            errors: scan
                .errors
                .into_iter()
                .filter(|error| !headline.is_about(&error.href) && !is_of_step(error))
                .collect(),
            headline,
            facts: list_trace_properties(settings, opened, trajectory),
            is_open: opened.is_open,
            quarantine_reason: opened.quarantine_reason.as_deref().map(text::format_display_line),
            agents,
            failing_others,
            parent: trajectory
                .parent_trajectory_id
                .as_ref()
                .map(|parent| loaded_trace::format_step_url(&trace_id, Some(parent), trajectory.parent_step_index)),
            other_verdicts: summarize_other_verdicts(&whole),
            whole,
            flags,
            outline,
            unfold: steps
                .iter()
                .any(|step| !step.is_open)
                .then(|| at(trajectory.steps.get(first).map(|step| step.index)).with("open", Some("all")).to_string()),
            window: build_step_pagination(trajectory, first, at),
            steps,
            sought: choice.q.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned),
            hits,
            more_hits,
            here_trajectory: own_id.unwrap_or_default().to_owned(),
            answer: fold(&trajectory.final_answer, "answer"),
            defects: trajectory
                .defects
                .iter()
                // The headline shows the error.
                .filter(|defect| defect.kind != DefectKind::RunFailed || !is_bad)
                .take(MAX_DEFECTS)
                .map(|defect| TraceDefectRow {
                    kind: defect.kind.name().replace('_', " "),
                    detail: text::format_display_line(&defect.detail),
                    span: defect.span_id.as_deref().map(text::format_display_line),
                })
                .collect(),
            spans: format!("/traces/{trace_id}/spans/rows"),
            spans_page: format!("/traces/{trace_id}/spans"),
            project_traces: PageUrl::from_path("/traces").with("project", Some(&row.project)).to_string(),
            trace_id,
            author,
            unjudged: format_question_count(&opened.outcomes, OutcomeKind::Failed),
            waits: opened.waits,
        }
    }
}

/// Formats the number of questions with this kind of outcome; none if it is 0.
fn format_question_count(outcomes: &[RecordedVerdict], kind: OutcomeKind) -> Option<String> {
    let count = outcomes.iter().filter(|given| given.line.outcome == kind).count() as u64;
    (count > 0).then(|| number::format_counted_noun(count, "question", "questions"))
}

/// Lists the recorded properties. How the run ended is in the headline.
fn list_trace_properties(settings: &ReloadableSettings, opened: &LoadedTrace, trajectory: &Trajectory) -> Vec<RunFact> {
    let row = &opened.row;
    let traces = |name: &'static str, value: &str| {
        PageUrl::from_path("/traces").with("project", Some(&row.project)).with(name, Some(value)).to_string()
    };
    let mut facts = vec![RunFact::with_link(
        "Project",
        &row.project,
        PageUrl::from_path("/traces").with("project", Some(&row.project)).to_string(),
    )];
    let named = [
        ("Agent", "agent", &trajectory.agent),
        ("Version", "version", &trajectory.agent_version),
        ("Model", "model", &trajectory.model),
    ];
    facts.extend(named.into_iter().filter_map(|(name, parameter, value)| {
        let value = value.as_deref()?;
        Some(RunFact::with_link(name, value, traces(parameter, value)))
    }));
    if let Some(session) = trajectory.session_id.as_deref().filter(|session| !session.is_empty()) {
        facts.push(RunFact::with_link("Session", session, build_session_url(session, &row.project).to_string()));
    }
    facts.push(RunFact::new("Started", format_timestamp(row.start_ns)));
    facts.push(RunFact::new("Duration", format_duration(row.end_ns.saturating_sub(row.start_ns))));
    facts.push(RunFact::new("Steps", number::format_count(trajectory.steps.len() as u64)));
    let tokens = trajectory.tokens;
    if tokens.total() > 0 {
        let count = number::format_count;
        facts.push(RunFact::new("Tokens", format!("{} in, {} out", count(tokens.prompt), count(tokens.completion))));
    }
    let cost = gradus_eval::report::known_agent_cost(trajectory, &settings.prices);
    facts.extend(cost.map(|cost| RunFact::new("Cost", number::format_usd(cost))));
    let spans = format!("/traces/{}/spans", row.trace_id);
    facts.push(RunFact::with_link("Spans", &format_whole_number(row.spans), spans.clone()));
    if row.errors > 0 {
        let errors = number::format_counted_noun(row.errors as u64, "span", "spans");
        facts.push(RunFact { is_error: true, ..RunFact::with_link("With errors", &errors, format!("{spans}#errors")) });
    }
    facts
}

#[cfg(test)]
pub(super) mod tests {
    use gradus_core::trajectory::TrajectoryStep;

    use super::*;

    pub(in super::super) fn long(steps: u32) -> Trajectory {
        let step = |index| TrajectoryStep {
            index,
            tool: "look".to_owned(),
            observation: Some(format!("{} the İSTANBUL lamp {index}", "İ".repeat(500))),
            ..TrajectoryStep::default()
        };
        Trajectory { steps: (1..=steps).map(step).collect(), ..Trajectory::default() }
    }

    fn at(step: Option<u32>) -> PageUrl {
        loaded_trace::build_trace_url("t", None, step)
    }

    #[test]
    fn every_step_is_on_a_page() {
        let trajectory = long(450);
        assert!(build_step_pagination(&long(200), 0, at).is_none());
        assert_eq!(
            [None, Some(200), Some(201), Some(450), Some(9_999)].map(|step| find_page_start(&trajectory, step)),
            [0, 0, 200, 400, 0]
        );
        let middle = build_step_pagination(&trajectory, 200, at).unwrap();
        assert_eq!(middle.text, "Steps 201 to 400 of 450");
        assert_eq!(middle.earlier.as_deref(), Some("/traces/t#step-1"));
        assert_eq!(middle.later.as_deref(), Some("/traces/t?step=401#step-401"));
        assert_eq!(build_step_pagination(&trajectory, 400, at).unwrap().later, None);
    }
}
