//! The page of a trajectory: a timeline of thoughts, calls and observations with the verdicts on each step.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::OutcomeKind;
use gradus_report::html::{number, text};
use serde::Deserialize;

use super::PageLayout;
use super::address::PageUrl;
use super::display_text::{format_duration, format_timestamp, format_whole_number};
use super::loaded_trace::{self, LoadedTrace, STEPS_OF_A_PAGE};
use super::pagination::PaginationLinks;
use super::render::{self, PageError, PageQuery};
use super::run_outcome::RunOutcome;
use super::search::{StepSearchHit, search_steps};
use super::step::{StepView, TrajectoryVerdicts};
use super::step_mentions::StepMentions;
use super::text_preview::{TextPreview, TrajectoryLocation};
use super::verdict::VerdictDetailView;
use crate::caller::RequestCaller;
use crate::page::failing_steps::{
    FailingStepLink, build_failing_links, build_step_pagination, first_shown, is_last_page,
};
use crate::page::label_authors::LabelAuthor;
use crate::page::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Rows of the list of defects, and tabs of the other trajectories of the trace.
const MAX_DEFECTS: usize = 50;
const MAX_OTHERS: usize = 50;

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
    /// How the run ended.
    outcome: Option<RunOutcome>,
    facts: Vec<(&'static str, String)>,
    /// Number of spans that ended in an error, in words.
    errors: Option<String>,
    /// The trace may still grow; the page says so, because verdicts are missing.
    is_open: bool,
    quarantine_reason: Option<String>,
    others: Vec<TrajectoryTab>,
    /// URL of the step that started this trajectory, for an agent called by another one.
    parent: Option<String>,
    /// Verdicts on the whole trajectory.
    whole: Vec<VerdictDetailView>,
    /// Links to wrong verdicts on any page, and the number of those without a link.
    failing: Vec<FailingStepLink>,
    more_failing: Option<String>,
    /// Other trajectories of the trace that fail, if this one does not: the cause may be there.
    failing_others: Vec<TrajectoryTab>,
    steps: Vec<StepView>,
    /// On the last page of steps.
    final_thought: Option<StepView>,
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
    is_judged: bool,
    /// Number of questions that failed.
    unjudged: Option<String>,
    /// Number of questions that the judge cannot decide.
    undecided: Option<String>,
    /// Whether the trajectory waits for a judge model.
    waits: bool,
}

/// A link to one trajectory of the trace.
struct TrajectoryTab {
    href: String,
    title: String,
    steps: String,
    is_here: bool,
    is_failing: bool,
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
    render::of_large(&server, move |server| {
        let opened = loaded_trace::load_trace(server, &id, choice.trajectory.as_deref())?;
        Ok(TraceDetailPage::from_trace(&server.reloadable(), &opened, &choice, author, &headers))
    })
    .await
}

impl TraceDetailPage {
    /// A trace without a trajectory is shown with an empty one: its spans and properties are still useful.
    fn from_trace(
        settings: &ReloadableSettings,
        opened: &LoadedTrace,
        choice: &TraceDetailQuery,
        author: LabelAuthor,
        headers: &HeaderMap,
    ) -> TraceDetailPage {
        let row = &opened.row;
        let trace_id = row.trace_id.to_string();
        // Stands in for a trajectory where the trace has none.
        let empty = Trajectory::default();
        let trajectory = opened.trajectory.as_ref().unwrap_or(&empty);
        let id = &trajectory.trajectory_id;
        let is_first = opened.others.first().is_none_or(|first| first.id == *id);
        // The first trajectory needs no parameter, which keeps the usual URL short and stable.
        let own_id = Some(id.as_str()).filter(|_| !is_first);
        let at = |step: Option<u32>| loaded_trace::build_trace_url(&trace_id, own_id, step);
        // Index of the first step of the selected page.
        let first = first_shown(trajectory, choice.step);
        let shelf = TrajectoryLocation::Trace { trace: &trace_id, trajectory: id };
        let judged = TrajectoryVerdicts { shelf, outcomes: &opened.outcomes, said: &opened.said };
        let fold = |given: &Option<String>, part: &str| shelf.preview_text(given.as_deref(), None, part);
        let mentions = StepMentions::from_outcomes(settings, trajectory, &opened.outcomes);
        let shown = trajectory.steps.iter().skip(first).take(STEPS_OF_A_PAGE);
        let mut steps: Vec<StepView> =
            shown.map(|step| StepView::from_step(settings, &judged, step, &at(Some(step.index)))).collect();
        mentions.mark_steps(&mut steps);
        let final_thought = trajectory
            .final_thought_index()
            .filter(|_| is_last_page(trajectory, first))
            .and_then(|index| StepView::from_final_thought(settings, &judged, trajectory, &at(Some(index))));
        let whole = opened.outcomes.iter().filter(|given| given.line.step_index.is_none());
        let mut whole: Vec<VerdictDetailView> =
            whole.map(|given| VerdictDetailView::from_recorded(settings, given, &opened.said, &at(None))).collect();
        mentions.link_verdicts(&mut whole, at);
        let (failing, more_failing) = build_failing_links(settings, &opened.outcomes, &mentions, at);
        let (hits, more_hits) = match choice.q.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => search_steps(trajectory, text, at),
            None => (Vec::new(), false),
        };
        let others = build_trajectory_tabs(opened, &trace_id, id);
        let failing_others = build_trajectory_tabs(opened, &trace_id, id)
            .into_iter()
            .filter(|tab| tab.is_failing && !tab.is_here && failing.is_empty())
            .collect();
        TraceDetailPage {
            frame: PageLayout::new("/traces", Some(&row.project), headers),
            title: trajectory
                .query
                .as_deref()
                .map_or_else(|| text::format_display_line(&row.name), text::format_display_line),
            query: fold(&trajectory.query, "query"),
            outcome: RunOutcome::from_outcomes(&opened.outcomes),
            facts: list_trace_properties(opened, trajectory),
            errors: (row.errors > 0)
                .then(|| number::format_counted_noun(row.errors as u64, "span with an error", "spans with errors")),
            is_open: opened.is_open,
            quarantine_reason: opened.quarantine_reason.as_deref().map(text::format_display_line),
            others,
            failing_others,
            parent: trajectory
                .parent_trajectory_id
                .as_ref()
                .map(|parent| loaded_trace::step_address(&trace_id, Some(parent), trajectory.parent_step_index)),
            whole,
            failing,
            more_failing,
            window: build_step_pagination(trajectory, first, at),
            steps,
            final_thought,
            sought: choice.q.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned),
            hits,
            more_hits,
            here_trajectory: own_id.unwrap_or_default().to_owned(),
            answer: fold(&trajectory.final_answer, "answer"),
            defects: trajectory
                .defects
                .iter()
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
            is_judged: opened.outcomes.iter().any(|given| given.line.score.is_some()),
            unjudged: format_question_count(&opened.outcomes, OutcomeKind::Failed),
            undecided: format_question_count(&opened.outcomes, OutcomeKind::Abstained),
            waits: opened.waits,
        }
    }
}

/// The number of questions that ended in this way; none if there are none.
fn format_question_count(outcomes: &[RecordedVerdict], kind: OutcomeKind) -> Option<String> {
    let count = outcomes.iter().filter(|given| given.line.outcome == kind).count() as u64;
    (count > 0).then(|| number::format_counted_noun(count, "question", "questions"))
}

/// Name and value of each property that is recorded.
fn list_trace_properties(opened: &LoadedTrace, trajectory: &Trajectory) -> Vec<(&'static str, String)> {
    let row = &opened.row;
    let ended = RunOutcome::from_outcomes(&opened.outcomes).map(|outcome| ("Outcome", outcome.label));
    let mut facts: Vec<_> = ended.into_iter().collect();
    facts.push(("Project", text::format_display_line(&row.project)));
    let named = [
        ("Agent", &trajectory.agent),
        ("Version", &trajectory.agent_version),
        ("Model", &trajectory.model),
        ("Session", &trajectory.session_id),
    ];
    facts.extend(
        named.into_iter().filter_map(|(name, value)| Some((name, text::format_display_line(value.as_deref()?)))),
    );
    facts.push(("Started", format_timestamp(row.start_ns)));
    facts.push(("Duration", format_duration(row.end_ns.saturating_sub(row.start_ns))));
    facts.push(("Steps", number::format_count(trajectory.steps.len() as u64)));
    facts.push(("Spans", format_whole_number(row.spans)));
    let tokens = trajectory.tokens;
    if tokens.total() > 0 {
        facts.push((
            "Tokens",
            format!("{} in, {} out", number::format_count(tokens.prompt), number::format_count(tokens.completion)),
        ));
    }
    facts.extend(trajectory.cost_usd.map(|cost| ("Cost", number::format_usd(cost))));
    facts
}

/// Empty for a single trajectory: there is nothing to choose.
fn build_trajectory_tabs(opened: &LoadedTrace, trace_id: &str, chosen: &str) -> Vec<TrajectoryTab> {
    if opened.others.len() < 2 {
        return Vec::new();
    }
    let tab = |(at, other): (usize, &loaded_trace::TrajectoryListEntry)| TrajectoryTab {
        href: PageUrl::from_path(format!("/traces/{trace_id}"))
            .with("trajectory", Some(other.id.as_str()).filter(|_| at > 0))
            .to_string(),
        title: text::format_display_line(other.agent.as_deref().or(other.query.as_deref()).unwrap_or("trajectory")),
        steps: number::format_counted_noun(other.steps as u64, "step", "steps"),
        is_here: other.id == chosen,
        is_failing: other.is_failing,
    };
    opened.others.iter().enumerate().take(MAX_OTHERS).map(tab).collect()
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
            [None, Some(200), Some(201), Some(450), Some(9_999)].map(|step| first_shown(&trajectory, step)),
            [0, 0, 200, 400, 0]
        );
        let middle = build_step_pagination(&trajectory, 200, at).unwrap();
        assert_eq!(middle.text, "Steps 201 to 400 of 450");
        assert_eq!(middle.earlier.as_deref(), Some("/traces/t#step-1"));
        assert_eq!(middle.later.as_deref(), Some("/traces/t?step=401#step-401"));
        assert_eq!(build_step_pagination(&trajectory, 400, at).unwrap().later, None);
    }
}
