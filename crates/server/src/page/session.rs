//! The page of a session: its turns as a conversation, with verdicts, cost and time.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_report::html::{number, text};
use gradus_store::{SessionTotals, TrajectoryRow};
use serde::Deserialize;

use super::PageLayout;
use super::address::{PageUrl, encode_path_segment};
use super::display_text::{format_duration, format_timestamp, format_whole_number};
use super::loaded_trace::{build_trace_url, format_step_url};
use super::pagination::PaginationLinks;
use super::render::{self, PageError, PageQuery};
use super::run_fact::RunFact;
use super::run_headline::{RunHeadline, is_failed_run};
use super::run_outcome::RunOutcome;
use super::span_scan::{ErrorSpanLink, TraceSpanScan};
use super::text_preview::{TextPreview, TrajectoryLocation};
use crate::http_error::ApiError;
use crate::recorded_verdict::{RecordedVerdict, load_verdicts};
use crate::session_view::{MAX_TURNS, SessionTurn, SessionView};
use crate::settings::ReloadableSettings;
use crate::state::ServerState;

/// Maximum number of listed calls of one turn.
const MAX_CALLS: usize = 40;
/// Maximum indentation. Deeper agents are not indented further.
const MAX_DEPTH: usize = 6;

/// Parameters of `/sessions/{session}`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionQuery {
    /// Without it, the first project that has a session of this name.
    project: Option<String>,
    offset: usize,
    /// Name of the session, for `/session`, whose path has none.
    id: Option<String>,
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    frame: PageLayout,
    session: String,
    project_sessions: String,
    facts: Vec<RunFact>,
    turns: Vec<TurnView>,
    window: Option<PaginationLinks>,
    api: String,
}

/// A turn of the conversation, or an agent that one started.
struct TurnView {
    /// Element id.
    anchor: String,
    /// `Turn 2`, or the name of the agent.
    title: String,
    /// 0 for a turn, more for agents inside of it.
    depth: usize,
    href: String,
    query: Option<TextPreview>,
    answer: Option<TextPreview>,
    headline: RunHeadline,
    /// Start, duration, tokens and cost.
    facts: Vec<String>,
    /// Calls that the model asked for together are in one row.
    calls: Vec<Vec<TurnCall>>,
    more_calls: Option<String>,
}

/// A tool call.
struct TurnCall {
    href: String,
    tool: String,
    /// `fail`, `error` or `none`: the CSS class.
    class: &'static str,
}

/// Builds the URL of a session.
pub(super) fn build_session_url(session: &str, project: &str) -> PageUrl {
    match session {
        // Browsers resolve these names in a path, however they are escaped.
        "." | ".." => PageUrl::from_path("/session").with("id", Some(session)),
        _ => PageUrl::from_path(format!("/sessions/{}", encode_path_segment(session))),
    }
    .with("project", Some(project))
}

/// `GET /sessions/{session}`
pub(super) async fn render_session_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path(session): Path<String>,
    PageQuery(choice): PageQuery<SessionQuery>,
) -> Result<Response, PageError> {
    render::render_large_page(&server, move |server| SessionPage::load(server, &session, &choice, &headers)).await
}

/// `GET /session`: the session of the parameter `id`, which may be one that cannot be part of a path.
pub(super) async fn render_session_by_id(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(choice): PageQuery<SessionQuery>,
) -> Result<Response, PageError> {
    let session = choice.id.clone().unwrap_or_default();
    render::render_large_page(&server, move |server| SessionPage::load(server, &session, &choice, &headers)).await
}

impl SessionPage {
    fn load(
        server: &ServerState,
        session: &str,
        choice: &SessionQuery,
        headers: &HeaderMap,
    ) -> Result<SessionPage, ApiError> {
        let project = choice.project.as_deref().filter(|name| !name.is_empty());
        let view = SessionView::load(server, session, project, choice.offset, MAX_TURNS)?;
        let settings = server.reloadable();
        let here = build_session_url(session, &view.project);
        let mut turns = Vec::with_capacity(view.turns.len());
        // Turns are counted in the order of time: a trace knows its own position only if it repeats the turns before.
        let mut number = choice.offset;
        for (turn, depth) in order_turns(&view.turns) {
            let verdicts = load_verdicts(server, &turn.row.trajectory.trajectory_id)?;
            number += usize::from(depth == 0);
            let is_failed = is_failed_run(&turn.trajectory, RunOutcome::from_outcomes(&verdicts).as_ref());
            let errors = match is_failed {
                true => TraceSpanScan::load_errors(server, turn.row.trace_id)?,
                false => Vec::new(),
            };
            turns.push(TurnView::from_turn(&settings, turn, &verdicts, &errors, number, depth));
        }
        Ok(SessionPage {
            frame: PageLayout::new("/sessions", Some(&view.project), headers),
            session: text::format_display_line(session),
            project_sessions: PageUrl::from_path("/sessions").with("project", Some(&view.project)).to_string(),
            facts: list_session_facts(&view),
            window: build_turn_pagination(&here, choice.offset, &view),
            turns,
            api: PageUrl::from_path(format!("/api/v1/sessions/{}", encode_path_segment(session)))
                .with("project", Some(&view.project))
                .to_string(),
        })
    }
}

/// Agents below the trajectory that started them, with depths. An agent whose starter is on another page is a root.
fn order_turns(all: &[SessionTurn]) -> Vec<(&SessionTurn, usize)> {
    let id = |turn: &SessionTurn| turn.trajectory.trajectory_id.clone();
    let parent = |turn: &SessionTurn| turn.trajectory.parent_trajectory_id.clone();
    let is_known = |wanted: &str| all.iter().any(|turn| id(turn) == wanted);
    let mut ordered = Vec::with_capacity(all.len());
    let mut is_listed = vec![false; all.len()];
    let roots = (0..all.len()).filter(|at| parent(&all[*at]).is_none_or(|wanted| !is_known(&wanted)));
    // After the roots come all trajectories again, which lists those that name each other as starters.
    for root in roots.chain(0..all.len()) {
        let mut open = vec![(root, 0)];
        while let Some((at, depth)) = open.pop() {
            if std::mem::replace(&mut is_listed[at], true) {
                continue;
            }
            ordered.push((&all[at], depth.min(MAX_DEPTH)));
            let own = Some(id(&all[at]));
            open.extend(
                (0..all.len()).rev().filter(|child| parent(&all[*child]) == own).map(|child| (child, depth + 1)),
            );
        }
    }
    ordered
}

impl TurnView {
    /// `number` is the position in the session.
    fn from_turn(
        settings: &ReloadableSettings,
        turn: &SessionTurn,
        verdicts: &[RecordedVerdict],
        errors: &[ErrorSpanLink],
        number: usize,
        depth: usize,
    ) -> TurnView {
        let SessionTurn { row, trajectory } = turn;
        let trace = row.trace_id.to_string();
        let id = &row.trajectory.trajectory_id;
        let at = |step: Option<u32>| build_trace_url(&trace, Some(id), step);
        let text_location = TrajectoryLocation::Trace { trace: &trace, trajectory: id };
        let agent = || text::format_display_line(trajectory.agent.as_deref().unwrap_or("Agent"));
        TurnView {
            anchor: format!("turn-{:x}", gradus_core::stable_digest(id.as_bytes()) >> 96),
            title: if depth == 0 { format!("Turn {number}") } else { agent() },
            depth,
            href: at(None).to_string(),
            query: text_location.preview_text(trajectory.query.as_deref(), None, "query"),
            answer: text_location.preview_text(trajectory.final_answer.as_deref(), None, "answer"),
            headline: RunHeadline::from_run(settings, trajectory, verdicts, errors, at),
            facts: list_turn_facts(&row.trajectory),
            calls: group_turn_calls(trajectory, verdicts, &trace, id),
            more_calls: trajectory
                .steps
                .len()
                .checked_sub(MAX_CALLS)
                .filter(|more| *more > 0)
                .map(|more| number::format_count(more as u64)),
        }
    }
}

/// Lists start, duration, steps, tokens and cost, as far as they are known.
fn list_turn_facts(row: &TrajectoryRow) -> Vec<String> {
    let mut facts = vec![
        format_timestamp(row.start_ns),
        format_duration(row.end_ns.saturating_sub(row.start_ns)),
        number::format_counted_noun(u64::try_from(row.steps).unwrap_or(0), "step", "steps"),
    ];
    if row.tokens > 0 {
        facts.push(format!("{} tokens", format_whole_number(row.tokens)));
    }
    facts.extend(row.cost_usd.map(number::format_usd));
    facts
}

/// Groups the calls in order by model reply.
fn group_turn_calls(
    trajectory: &Trajectory,
    verdicts: &[RecordedVerdict],
    trace: &str,
    id: &str,
) -> Vec<Vec<TurnCall>> {
    let is_wrong = |step: u32| verdicts.iter().any(|given| given.is_wrong && given.line.step_index == Some(step));
    let call = |step: &TrajectoryStep| TurnCall {
        href: format_step_url(trace, Some(id), Some(step.index)),
        tool: text::format_display_line(&step.tool),
        class: match (is_wrong(step.index), step.is_error) {
            (true, _) => "fail",
            (_, true) => "error",
            _ => "none",
        },
    };
    let mut rows: Vec<Vec<TurnCall>> = Vec::new();
    for step in trajectory.steps.iter().take(MAX_CALLS) {
        match rows.last_mut().filter(|_| step.parallel_with_previous) {
            Some(row) => row.push(call(step)),
            None => rows.push(vec![call(step)]),
        }
    }
    rows
}

/// Lists the totals of the session. Unknown costs are mentioned, since they are not in the sum.
fn list_session_facts(view: &SessionView) -> Vec<RunFact> {
    let SessionTotals { trajectories, tokens, cost_usd, unpriced, start_ns, end_ns } = view.totals;
    let traces = PageUrl::from_path("/traces").with("project", Some(&view.project)).to_string();
    let mut facts = vec![
        RunFact::with_link("Project", &view.project, traces),
        RunFact::new("Runs", format_whole_number(trajectories)),
        RunFact::new("Started", format_timestamp(start_ns)),
        RunFact::new("Duration", format_duration(end_ns.saturating_sub(start_ns))),
    ];
    if tokens > 0 {
        facts.push(RunFact::new("Tokens", format_whole_number(tokens)));
    }
    if let Some(cost) = cost_usd {
        let without = match unpriced {
            0 => String::new(),
            _ => format!(", {} without a known price", format_whole_number(unpriced)),
        };
        facts.push(RunFact::new("Cost", format!("{}{without}", number::format_usd(cost))));
    }
    facts
}

/// None if all turns fit on one page.
fn build_turn_pagination(here: &PageUrl, offset: usize, view: &SessionView) -> Option<PaginationLinks> {
    if offset == 0 && view.next_offset.is_none() {
        return None;
    }
    let at = |offset: usize| here.with_replaced("offset", Some(&offset.to_string())).to_string();
    let number = |place: usize| number::format_count(place as u64);
    Some(PaginationLinks {
        text: format!("Runs {} to {}", number(offset + 1), number(offset + view.turns.len())),
        earlier: (offset > 0).then(|| at(offset.saturating_sub(MAX_TURNS))),
        later: view.next_offset.map(at),
    })
}

#[cfg(test)]
mod tests {
    use gradus_core::span::TraceId;
    use gradus_eval::evaluator::OUTCOME;
    use gradus_store::SessionTurnRow;

    use super::*;
    use crate::page::step::tests::verdict;

    fn turn(id: &str, parent: Option<&str>, steps: Vec<TrajectoryStep>) -> SessionTurn {
        let row = TrajectoryRow {
            no: 1,
            trajectory_id: id.to_owned(),
            agent: "concierge".to_owned(),
            version: String::new(),
            model: "gpt-4o".to_owned(),
            query: String::new(),
            steps: steps.len() as i64,
            is_error: false,
            start_ns: 1_772_444_467_000_000_000,
            end_ns: 1_772_444_469_500_000_000,
            tokens: 1_234,
            cost_usd: Some(0.0031),
            session: "chat".to_owned(),
            scores: Vec::new(),
        };
        let trajectory = Trajectory {
            trajectory_id: id.to_owned(),
            agent: Some("concierge".to_owned()),
            query: Some("Where is <my> order?".to_owned()),
            final_answer: Some("On its way.".to_owned()),
            parent_trajectory_id: parent.map(str::to_owned),
            steps,
            ..Trajectory::default()
        };
        SessionTurn { row: SessionTurnRow { trace_id: TraceId(7), trajectory: row }, trajectory }
    }

    fn step(index: u32, tool: &str, parallel: bool) -> TrajectoryStep {
        TrajectoryStep { index, tool: tool.to_owned(), parallel_with_previous: parallel, ..TrajectoryStep::default() }
    }

    #[test]
    fn a_session_that_browsers_resolve_in_a_path_has_another_address() {
        assert_eq!(build_session_url("a/b", "p").to_string(), "/sessions/a%2Fb?project=p");
        for session in [".", ".."] {
            assert_eq!(build_session_url(session, "p").to_string(), format!("/session?id={session}&project=p"));
        }
    }

    #[test]
    fn agents_stand_below_the_turn_that_started_them() {
        let all = [
            turn("a", None, vec![]),
            turn("b", None, vec![]),
            turn("c", Some("a"), vec![]),
            turn("d", Some("d"), vec![]),
        ];
        let ordered: Vec<(&str, usize)> = order_turns(&all)
            .into_iter()
            .map(|(turn, depth)| (turn.trajectory.trajectory_id.as_str(), depth))
            .collect();
        assert_eq!(ordered, [("a", 0), ("c", 1), ("b", 0), ("d", 0)]);
    }

    #[test]
    fn a_turn_has_its_calls_verdicts_cost_and_time() {
        let steps = vec![step(1, "get_order", false), step(2, "get_order", true), step(3, "refund", false)];
        let mut wrong = verdict("call_validity", "invalid", true);
        wrong.line.step_index = Some(3);
        let mut ended = verdict(OUTCOME, "gave_up", true);
        ended.line.step_index = None;
        let settings = ReloadableSettings::without_rules();
        let view = TurnView::from_turn(&settings, &turn("t1", None, steps), &[wrong, ended], &[], 2, 0);
        let calls: Vec<Vec<(&str, &str)>> =
            view.calls.iter().map(|row| row.iter().map(|call| (call.tool.as_str(), call.class)).collect()).collect();
        assert_eq!(calls, [vec![("get_order", "none"), ("get_order", "none")], vec![("refund", "fail")]]);
        assert_eq!(view.calls[1][0].href, "/traces/00000000000000000000000000000007?trajectory=t1#step-3");
        assert_eq!((view.title.as_str(), view.headline.outcome.as_deref()), ("Turn 2", Some("Gave up")));
        let facts: Vec<String> = view.facts.iter().map(|fact| fact.replace('\u{a0}', " ")).collect();
        assert_eq!(facts, ["2026-03-02 09:41:07", "2.5 s", "3 steps", "1,234 tokens", "$0.0031"]);
    }
}
