//! One trajectory: a timeline of thought, call and observation, with what was found of each step.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gradus_core::trajectory::{Step, Trajectory};
use gradus_eval::evaluator::CALL_VALIDITY;
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::scale::Scale;
use serde::Deserialize;

use super::address::Address;
use super::answer::{self, Asked, PageError};
use super::fold::{self, Folded};
use super::labels::Person;
use super::opened::{self, Opened, STEPS_OF_A_PAGE};
use super::verdict::{Verdict, place};
use super::words::{duration, second, whole};
use super::{Frame, words};
use crate::output::html::number;
use crate::output::html::text::{self, Block};
use crate::serve::api::{ApiError, blocking};
use crate::serve::auth::Caller;
use crate::serve::settings::Reloadable;
use crate::serve::state::Server;

/// Links to what was found wrong, and places in which a text was found.
const MOST_CHIPS: usize = 50;
const MOST_DEFECTS: usize = 50;
const MOST_OTHERS: usize = 50;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    trajectory: Option<String>,
    /// The page of steps that has this one is shown.
    step: Option<u32>,
    /// What is sought in all steps.
    q: Option<String>,
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
    more_failing: Option<String>,
    /// Trajectories of the same trace that fail, where this one does not.
    failing_others: Vec<Tab>,
    steps: Vec<StepView>,
    window: Option<Window>,
    sought: Option<String>,
    hits: Vec<Hit>,
    more_hits: bool,
    here_trajectory: String,
    answer: Option<Folded>,
    defects: Vec<Defect>,
    spans: String,
    spans_page: String,
    project_traces: String,
    author: Person,
    is_judged: bool,
    /// A model has still to judge it.
    waits: bool,
}

struct Tab {
    href: String,
    title: String,
    steps: String,
    is_here: bool,
    is_failing: bool,
}

/// Which of many steps are shown, and where the others are.
struct Window {
    text: String,
    earlier: Option<String>,
    later: Option<String>,
}

struct Failing {
    href: String,
    text: String,
}

/// A place in which a text was found.
struct Hit {
    href: String,
    place: String,
    before: String,
    found: String,
    after: String,
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
    Asked(choice): Asked<Choice>,
) -> Result<Response, PageError> {
    // A trace may be large.
    let _turn = server.openings.acquire().await;
    let author = Person::of(&headers, &caller);
    let text = blocking(&server, move |server| {
        let opened = opened::open(server, &id, choice.trajectory.as_deref())?;
        let page = Page::of(&server.reloadable(), &opened, &choice, author, &headers);
        page.render()
            .map_err(|_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made."))
    })
    .await?;
    Ok(answer::made(text))
}

impl Page {
    fn of(
        settings: &Reloadable,
        opened: &Opened,
        choice: &Choice,
        author: Person,
        headers: &HeaderMap,
    ) -> Page {
        let row = &opened.row;
        let trace_id = row.trace_id.to_string();
        let empty = Trajectory::default();
        let trajectory = opened.trajectory.as_ref().unwrap_or(&empty);
        let id = &trajectory.trajectory_id;
        let is_first = opened.others.first().is_none_or(|first| first.id == *id);
        let own_id = Some(id.as_str()).filter(|_| !is_first);
        let at = |step: Option<u32>| opened::address(&trace_id, own_id, step);
        let first = first_shown(trajectory, choice.step);
        let fold = |given: &Option<String>, part: &str| {
            let given = given.as_deref().filter(|given| !given.is_empty())?;
            Some(Folded::of(given, || fold::address(&trace_id, id, None, part)))
        };
        let shown = trajectory.steps.iter().skip(first).take(STEPS_OF_A_PAGE);
        let steps: Vec<StepView> =
            shown.map(|step| StepView::of(settings, opened, id, step, &at(Some(step.index)))).collect();
        let whole = opened.outcomes.iter().filter(|(_, line)| line.step_index.is_none());
        let whole: Vec<Verdict> =
            whole.map(|(at_ns, line)| Verdict::of(settings, *at_ns, line, &opened.said, &at(None))).collect();
        let (failing, more_failing) = failing(settings, opened, at);
        let (hits, more_hits) = match choice.q.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => find(trajectory, text, at),
            None => (Vec::new(), false),
        };
        let others = tabs(opened, &trace_id, id);
        let failing_others = tabs(opened, &trace_id, id)
            .into_iter()
            .filter(|tab| tab.is_failing && !tab.is_here && failing.is_empty())
            .collect();
        Page {
            frame: Frame::of("/traces", Some(&row.project), headers),
            title: trajectory.query.as_deref().map_or_else(|| text::line(&row.name), text::line),
            query: fold(&trajectory.query, "query"),
            facts: facts(opened, trajectory),
            errors: (row.errors > 0)
                .then(|| number::counted(row.errors as u64, "span with an error", "spans with errors")),
            is_open: opened.is_open,
            others,
            failing_others,
            parent: trajectory.parent_trajectory_id.as_ref().map(|parent| {
                let step =
                    trajectory.parent_step_index.map(|step| format!("step-{step}")).unwrap_or_default();
                Address::of(format!("/traces/{trace_id}"))
                    .with("trajectory", Some(parent))
                    .at(step)
                    .to_string()
            }),
            whole,
            failing,
            more_failing,
            window: Window::of(trajectory, first, at),
            steps,
            sought: choice.q.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned),
            hits,
            more_hits,
            here_trajectory: own_id.unwrap_or_default().to_owned(),
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
            is_judged: !opened.outcomes.is_empty(),
            waits: opened.waits,
        }
    }
}

/// The place of the first step of the page that has a step, or of the first page.
fn first_shown(trajectory: &Trajectory, step: Option<u32>) -> usize {
    let at = step.and_then(|step| trajectory.steps.iter().position(|known| known.index == step));
    at.unwrap_or(0) / STEPS_OF_A_PAGE * STEPS_OF_A_PAGE
}

impl Window {
    fn of(trajectory: &Trajectory, first: usize, at: impl Fn(Option<u32>) -> Address) -> Option<Window> {
        let all = &trajectory.steps;
        if all.len() <= STEPS_OF_A_PAGE {
            return None;
        }
        let end = (first + STEPS_OF_A_PAGE).min(all.len());
        let link = |place: usize| {
            let step = all.get(place)?.index;
            Some(at(Some(step)).at(format!("step-{step}")).to_string())
        };
        let number = |place: usize| number::count(place as u64);
        Some(Window {
            text: format!("Steps {} to {} of {}", number(first + 1), number(end), number(all.len())),
            earlier: first.checked_sub(STEPS_OF_A_PAGE).and_then(link),
            later: link(end),
        })
    }
}

/// Links to what was found wrong, wherever it is, and how many more there are.
fn failing(
    settings: &Reloadable,
    opened: &Opened,
    at: impl Fn(Option<u32>) -> Address,
) -> (Vec<Failing>, Option<String>) {
    let mut known: HashMap<&str, (Scale, String)> = HashMap::new();
    let (mut failing, mut more) = (Vec::new(), 0_u64);
    for (_, line) in &opened.outcomes {
        let (scale, title) = known.entry(&line.evaluator).or_insert_with(|| {
            let scale = words::scale(settings, &line.evaluator).unwrap_or(Scale::SHARE);
            (scale, words::title(settings, &line.evaluator))
        });
        if line.outcome != OutcomeKind::Scored || !line.score.is_some_and(|score| scale.is_wrong(score)) {
            continue;
        }
        if failing.len() == MOST_CHIPS {
            more += 1;
            continue;
        }
        let step = line.step_index;
        let what = step.map_or_else(|| "Whole".to_owned(), |step| format!("Step {step}"));
        let label = line.label.as_deref().map(text::line).unwrap_or_default();
        failing.push(Failing {
            href: at(step).at(place(step)).to_string(),
            text: format!("{what} · {title}: {label}"),
        });
    }
    (failing, (more > 0).then(|| number::count(more)))
}

/// Where a text stands in what was thought, called and seen, in whatever case it is written.
fn find(trajectory: &Trajectory, wanted: &str, at: impl Fn(Option<u32>) -> Address) -> (Vec<Hit>, bool) {
    let low = wanted.to_lowercase();
    let mut hits = Vec::new();
    for step in &trajectory.steps {
        let arguments = step.arguments_text();
        let parts = [
            ("thought", step.thought.as_deref()),
            ("call", arguments.as_deref()),
            ("observation", step.observation.as_deref()),
        ];
        for (part, given) in parts {
            let Some(found) = given.and_then(|given| first_place(given, &low)) else { continue };
            if hits.len() == MOST_CHIPS {
                return (hits, true);
            }
            let given = given.unwrap_or_default();
            let from = given.floor_char_boundary(found.start.saturating_sub(60));
            let to = given.ceil_char_boundary((found.end + 60).min(given.len()));
            hits.push(Hit {
                // The page there goes on with the search, which may have found something that is folded.
                href: at(Some(step.index))
                    .with("q", Some(wanted))
                    .at(format!("step-{}-{part}", step.index))
                    .to_string(),
                place: format!("Step {}, {part}", step.index),
                before: beside(&given[from..found.start]),
                found: text::line(&given[found.clone()]),
                after: beside(&given[found.end..to]),
            });
        }
    }
    (hits, false)
}

/// What stands beside something that was found, with the space between the two.
fn beside(given: &str) -> String {
    let space = |has: bool| if has { " " } else { "" };
    let shown = text::line(given);
    let (first, last) = (given.starts_with(char::is_whitespace), given.ends_with(char::is_whitespace));
    format!("{}{shown}{}", space(first), space(last && !shown.is_empty()))
}

/// A letter may have another length in lower case: places are those of the text as it is.
fn first_place(given: &str, low: &str) -> Option<std::ops::Range<usize>> {
    let mut lower = String::with_capacity(given.len());
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (at, c) in given.char_indices() {
        // Only where the two come apart has it to be known how far.
        let before = lower.len();
        lower.extend(c.to_lowercase());
        if lower.len() - before != c.len_utf8() || places.is_empty() {
            places.push((lower.len(), at + c.len_utf8()));
        }
    }
    let start = lower.find(low)?;
    let own = |place: usize| {
        let known = places.partition_point(|(low, _)| *low <= place);
        let (low_end, end) = known.checked_sub(1).map_or((0, 0), |at| places[at]);
        (end + (place - low_end)).min(given.len())
    };
    let (from, to) =
        (given.floor_char_boundary(own(start)), given.ceil_char_boundary(own(start + low.len())));
    Some(from..to.max(from))
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
    if tokens.total() > 0 {
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
        is_failing: other.is_failing,
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
        let tokens = step.tokens.total();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn long(steps: u32) -> Trajectory {
        let step = |index| Step {
            index,
            tool: "look".to_owned(),
            observation: Some(format!("{} the İSTANBUL lamp {index}", "İ".repeat(500))),
            ..Step::default()
        };
        Trajectory { steps: (1..=steps).map(step).collect(), ..Trajectory::default() }
    }

    fn at(step: Option<u32>) -> Address {
        opened::address("t", None, step)
    }

    #[test]
    fn every_step_is_on_a_page() {
        let trajectory = long(450);
        assert!(Window::of(&long(200), 0, at).is_none());
        assert_eq!(
            [None, Some(200), Some(201), Some(450), Some(9_999)].map(|step| first_shown(&trajectory, step)),
            [0, 0, 200, 400, 0]
        );
        let middle = Window::of(&trajectory, 200, at).unwrap();
        assert_eq!(middle.text, "Steps 201 to 400 of 450");
        assert_eq!(middle.earlier.as_deref(), Some("/traces/t#step-1"));
        assert_eq!(middle.later.as_deref(), Some("/traces/t?step=401#step-401"));
        assert_eq!(Window::of(&trajectory, 400, at).unwrap().later, None);
    }

    #[test]
    fn a_text_is_found_in_every_step_and_marked_where_it_stands() {
        let trajectory = long(300);
        let (hits, _) = find(&trajectory, "lamp 7", at);
        let seen: Vec<_> = hits.iter().map(|hit| (hit.href.as_str(), hit.found.as_str())).collect();
        assert_eq!(seen[0], ("/traces/t?q=lamp%207#step-7-observation", "lamp 7"));
        assert_eq!(seen.len(), 11);
        let (hits, more) = find(&trajectory, "i\u{307}stanbul LAMP 250", at);
        assert_eq!((hits.len(), more), (1, false));
        assert_eq!(
            (hits[0].found.as_str(), hits[0].place.as_str()),
            ("İSTANBUL lamp 250", "Step 250, observation")
        );
        assert!(hits[0].href.starts_with("/traces/t?step=250&q="));
        assert!(hits[0].href.ends_with("#step-250-observation"));
        assert_eq!(find(&trajectory, "the", at).0.len(), MOST_CHIPS);
        assert!(find(&trajectory, "the", at).1 && find(&trajectory, "nowhere", at).0.is_empty());
        for given in ["", "ẞ", "aİb", "ΑΣ ΟΔΟΣ"] {
            for wanted in ["", "ß", "a", "b", "i", "\u{307}", "σ", "ς"] {
                let _ = first_place(given, wanted);
            }
        }
    }
}
