//! One trajectory: a timeline of thought, call and observation, with what was found of each step.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::{Step, Trajectory};
use gradus_eval::evaluator::CALL_VALIDITY;
use serde::Deserialize;

use super::Frame;
use super::address::Address;
use super::answer::{self, PageError};
use super::fold::{self, Folded};
use super::labels::Person;
use super::opened::{self, Opened};
use super::verdict::{Verdict, place};
use super::words::{duration, second, whole};
use crate::output::html::number;
use crate::output::html::text::{self, Block};
use crate::serve::api::{Params, blocking};
use crate::serve::auth::Caller;
use crate::serve::settings::Reloadable;
use crate::serve::state::Server;

/// Steps of one page; a trajectory with more says so.
const MOST_STEPS: usize = 300;
const MOST_DEFECTS: usize = 50;
const MOST_OTHERS: usize = 50;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Choice {
    trajectory: Option<String>,
}

#[derive(Template)]
#[template(path = "trace.html")]
struct Page {
    frame: Frame,
    trace_id: String,
    query: Option<Folded>,
    /// On one line, for the title.
    title: String,
    facts: Vec<(&'static str, String)>,
    errors: Option<String>,
    is_open: bool,
    others: Vec<Tab>,
    parent: Option<String>,
    whole: Vec<Verdict>,
    failing: Vec<Failing>,
    steps: Vec<StepView>,
    omitted_steps: Option<String>,
    answer: Option<Folded>,
    defects: Vec<Defect>,
    spans: String,
    spans_page: String,
    project_traces: String,
    author: Person,
    is_judged: bool,
}

struct Tab {
    href: String,
    title: String,
    steps: String,
    is_here: bool,
}

struct Failing {
    href: String,
    text: String,
}

struct Defect {
    kind: String,
    detail: String,
    span: Option<String>,
}

pub(super) struct StepView {
    pub(super) number: u32,
    pub(super) tool: String,
    pub(super) thought: Option<Folded>,
    pub(super) arguments: Option<Folded>,
    /// What is wrong with the call itself.
    pub(super) violation: Option<Violation>,
    pub(super) observation: Option<Folded>,
    pub(super) is_error: bool,
    pub(super) is_parallel: bool,
    pub(super) facts: Vec<String>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) is_failing: bool,
}

pub(super) struct Violation {
    pub(super) what: Block,
    pub(super) evidence: Vec<Block>,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Params(choice): Params<Choice>,
) -> Result<Response, PageError> {
    // A trace may be large.
    let _turn = server.openings.acquire().await;
    let opened =
        blocking(&server, move |server| opened::open(server, &id, choice.trajectory.as_deref())).await?;
    let author = Person::of(&headers, &caller);
    Ok(answer::page(&Page::of(&server.reloadable(), &opened, author, &headers)))
}

impl Page {
    fn of(settings: &Reloadable, opened: &Opened, author: Person, headers: &HeaderMap) -> Page {
        let row = &opened.row;
        let trace_id = row.trace_id.to_string();
        let empty = Trajectory::default();
        let trajectory = opened.trajectory.as_ref().unwrap_or(&empty);
        let id = &trajectory.trajectory_id;
        let is_first = opened.others.first().is_none_or(|first| first.id == *id);
        let here = Address::of(format!("/traces/{trace_id}"))
            .with("trajectory", Some(id.as_str()).filter(|_| !is_first));
        let fold = |given: &Option<String>, part: &str| {
            let given = given.as_deref().filter(|given| !given.is_empty())?;
            Some(Folded::of(given, || fold::address(&trace_id, id, None, part)))
        };
        let steps: Vec<StepView> = trajectory
            .steps
            .iter()
            .take(MOST_STEPS)
            .map(|step| StepView::of(settings, opened, id, step, &here))
            .collect();
        let mut all: Vec<(Option<u32>, Verdict)> = opened
            .outcomes
            .iter()
            .map(|(at_ns, line)| (line.step_index, Verdict::of(settings, *at_ns, line, &opened.said, &here)))
            .collect();
        let failing = all.iter().filter(|(_, verdict)| verdict.is_wrong()).map(|(step, verdict)| {
            let what = step.map_or_else(|| "Whole".to_owned(), |step| format!("Step {step}"));
            Failing {
                href: format!("#{}", place(*step)),
                text: format!("{what} · {}: {}", verdict.title, verdict.label),
            }
        });
        let failing = failing.collect();
        let is_judged = !all.is_empty();
        all.retain(|(step, _)| step.is_none());
        Page {
            frame: Frame::of("/traces", Some(&row.project), headers),
            title: trajectory.query.as_deref().map_or_else(|| text::line(&row.name), text::line),
            query: fold(&trajectory.query, "query"),
            facts: facts(opened, trajectory),
            errors: (row.errors > 0)
                .then(|| number::counted(row.errors as u64, "span with an error", "spans with errors")),
            is_open: opened.is_open,
            others: tabs(opened, &trace_id, id),
            parent: trajectory.parent_trajectory_id.as_ref().map(|parent| {
                let step =
                    trajectory.parent_step_index.map(|step| format!("step-{step}")).unwrap_or_default();
                Address::of(format!("/traces/{trace_id}"))
                    .with("trajectory", Some(parent))
                    .at(step)
                    .to_string()
            }),
            whole: all.into_iter().map(|(_, verdict)| verdict).collect(),
            failing,
            steps,
            omitted_steps: trajectory
                .steps
                .len()
                .checked_sub(MOST_STEPS)
                .filter(|more| *more > 0)
                .map(|more| number::count(more as u64)),
            answer: fold(&trajectory.final_answer, "answer"),
            defects: trajectory
                .defects
                .iter()
                .take(MOST_DEFECTS)
                .map(|defect| Defect {
                    kind: defect.kind.name().replace('_', " "),
                    detail: text::line(&defect.detail),
                    span: defect.span_id.as_deref().map(text::line),
                })
                .collect(),
            spans: format!("/traces/{trace_id}/spans/rows"),
            spans_page: format!("/traces/{trace_id}/spans"),
            project_traces: Address::of("/traces").with("project", Some(&row.project)).to_string(),
            trace_id,
            author,
            is_judged,
        }
    }
}

fn facts(opened: &Opened, trajectory: &Trajectory) -> Vec<(&'static str, String)> {
    let row = &opened.row;
    let mut facts = vec![("Project", text::line(&row.project))];
    let named = [
        ("Agent", &trajectory.agent),
        ("Version", &trajectory.agent_version),
        ("Model", &trajectory.model),
        ("Session", &trajectory.session_id),
    ];
    facts.extend(named.into_iter().filter_map(|(name, value)| Some((name, text::line(value.as_deref()?)))));
    facts.push(("Began", second(row.start_ns)));
    facts.push(("Took", duration(row.end_ns.saturating_sub(row.start_ns))));
    facts.push(("Steps", number::count(trajectory.steps.len() as u64)));
    facts.push(("Spans", whole(row.spans)));
    let tokens = trajectory.tokens;
    if tokens.prompt + tokens.completion > 0 {
        facts.push((
            "Tokens",
            format!("{} in, {} out", number::count(tokens.prompt), number::count(tokens.completion)),
        ));
    }
    facts.extend(trajectory.cost_usd.map(|cost| ("Cost", number::usd(cost))));
    facts
}

fn tabs(opened: &Opened, trace_id: &str, chosen: &str) -> Vec<Tab> {
    if opened.others.len() < 2 {
        return Vec::new();
    }
    let tab = |(at, other): (usize, &opened::Other)| Tab {
        href: Address::of(format!("/traces/{trace_id}"))
            .with("trajectory", Some(other.id.as_str()).filter(|_| at > 0))
            .to_string(),
        title: text::line(other.agent.as_deref().or(other.query.as_deref()).unwrap_or("trajectory")),
        steps: number::counted(other.steps as u64, "step", "steps"),
        is_here: other.id == chosen,
    };
    opened.others.iter().enumerate().take(MOST_OTHERS).map(tab).collect()
}

impl StepView {
    pub(super) fn of(
        settings: &Reloadable,
        opened: &Opened,
        trajectory: &str,
        step: &Step,
        here: &Address,
    ) -> StepView {
        let trace = opened.row.trace_id.to_string();
        let fold = |given: Option<&str>, part: &str| {
            let given = given.filter(|given| !given.is_empty())?;
            Some(Folded::of(given, || fold::address(&trace, trajectory, Some(step.index), part)))
        };
        let of_step = || opened.outcomes.iter().filter(|(_, line)| line.step_index == Some(step.index));
        let verdicts: Vec<Verdict> =
            of_step().map(|(at_ns, line)| Verdict::of(settings, *at_ns, line, &opened.said, here)).collect();
        let is_invalid = of_step().any(|(_, line)| {
            *line.evaluator == *CALL_VALIDITY && line.score.is_some_and(|score| score < 1.0)
        });
        let violation =
            of_step().find(|(_, line)| is_invalid && *line.evaluator == *CALL_VALIDITY).map(|(_, line)| {
                Violation {
                    what: text::block(
                        line.explanation.as_deref().unwrap_or("The tool cannot take this call."),
                    ),
                    evidence: line.evidence.iter().take(8).map(|piece| text::block(piece)).collect(),
                }
            });
        let mut facts = Vec::new();
        let time = |text: &Option<String>| -> Option<i64> {
            let time: jiff::Timestamp = text.as_deref()?.parse().ok()?;
            i64::try_from(time.as_nanosecond()).ok()
        };
        if let (Some(start), Some(end)) = (time(&step.start), time(&step.end)) {
            facts.push(duration(end.saturating_sub(start)));
        }
        let tokens = step.tokens.prompt + step.tokens.completion;
        if tokens > 0 {
            facts.push(format!("{} tokens", number::count(tokens)));
        }
        facts.extend(step.agent.as_deref().map(text::line));
        StepView {
            number: step.index,
            tool: text::line(&step.tool),
            thought: fold(step.thought.as_deref(), "thought"),
            arguments: fold(step.arguments_text().as_deref(), "arguments"),
            violation,
            observation: fold(step.observation.as_deref(), "observation"),
            is_error: step.is_error,
            is_parallel: step.parallel_with_previous,
            facts,
            is_failing: verdicts.iter().any(Verdict::is_wrong),
            verdicts,
        }
    }
}
