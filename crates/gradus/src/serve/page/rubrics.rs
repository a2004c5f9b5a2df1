//! Rubrics: what is asked, and what the answers are worth. Each can be tried on a step: the prompt is shown as a judge would
//! get it, and, when asked to, a judge answers. Nothing of a trial is kept.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_core::trajectory::Trajectory;
use gradus_eval::judge::{ModelJudge, answer_form};
use gradus_eval::prompt::{Case, Prompt, PromptWindow, Renderer, ToolText, missing};
use gradus_eval::rubric::{Origin, Piece, Rubric, Subject};
use serde::Deserialize;

use super::address::Address;
use super::answer::{self, PageError};
use super::{Frame, form};
use crate::output::html::number;
use crate::output::html::text::{self, Block};
use crate::output::printable;
use crate::serve::api::{ApiError, Params, blocking};
use crate::serve::live::{GradingRule, story_trajectories};
use crate::serve::settings::Reloadable;
use crate::serve::state::Server;

/// Of a prompt; a page is not the place for a window full of text.
const MOST_PROMPT: usize = 60_000;
/// Without a model there is no window to fit.
const WINDOW_TOKENS: usize = 32_000;

#[derive(Template)]
#[template(path = "rubrics.html")]
struct Page {
    frame: Frame,
    rubrics: Vec<Row>,
}

struct Row {
    name: String,
    href: String,
    title: String,
    about: Block,
    subject: &'static str,
    labels: Vec<(String, String)>,
    origin: String,
    rules: String,
}

#[derive(Template)]
#[template(path = "rubric.html")]
struct RubricPage {
    frame: Frame,
    rubric: Row,
    hash: String,
    prompt: String,
    trajectory: String,
    step: String,
    of_steps: bool,
    judge: Option<String>,
    trial: Option<Trial>,
    wrong: Option<String>,
}

/// What a judge would see, and what it said.
struct Trial {
    system: String,
    user: String,
    note: Option<String>,
    answer: Option<Answer>,
}

struct Answer {
    class: &'static str,
    label: String,
    explanation: Block,
    cost: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Choice {
    trajectory: Option<String>,
    step: Option<String>,
}

pub(super) async fn page(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    let settings = server.reloadable();
    let rubrics = settings.library.iter().map(|rubric| Row::of(&settings, rubric)).collect();
    answer::page(&Page { frame: Frame::of("/rubrics", None, &headers), rubrics })
}

impl Row {
    fn of(settings: &Reloadable, rubric: &Rubric) -> Row {
        let uses = |rule: &&GradingRule| rule.evaluators.iter().any(|one| *one.name == *rubric.name);
        let rules: Vec<&str> = settings.rules.iter().filter(uses).map(|rule| rule.name.as_str()).collect();
        Row {
            name: text::line(&rubric.name),
            href: address(&rubric.name).to_string(),
            title: text::line(&rubric.title),
            about: text::block(&rubric.about),
            subject: match rubric.subject {
                Subject::Step => "each step",
                Subject::Trajectory => "the whole trajectory",
            },
            labels: rubric
                .labels
                .iter()
                .map(|(label, score)| (text::line(label), number::score(score)))
                .collect(),
            origin: match &rubric.origin {
                Origin::BuiltIn => "built in".to_owned(),
                Origin::File(path) => text::line(&path.display().to_string()),
            },
            rules: if rules.is_empty() { "no rule".to_owned() } else { text::line(&rules.join(", ")) },
        }
    }
}

pub(super) fn address(name: &str) -> Address {
    let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    Address::of(format!("/rubrics/{name}"))
}

/// One rubric, with the prompt for a step if one is named. That costs nothing.
pub(super) async fn one(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Params(choice): Params<Choice>,
) -> Result<Response, PageError> {
    shown(&server, &headers, &name, choice, false).await
}

#[derive(Deserialize)]
struct Wanted {
    rubric: String,
    trajectory: Option<String>,
    step: Option<String>,
}

/// Asks a judge, which may cost money.
pub(super) async fn try_out(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let wanted: Wanted = form::read(&server, &headers, body).await?;
    let choice = Choice { trajectory: wanted.trajectory, step: wanted.step };
    shown(&server, &headers, &wanted.rubric, choice, true).await
}

async fn shown(
    server: &Arc<Server>,
    headers: &HeaderMap,
    name: &str,
    choice: Choice,
    asks: bool,
) -> Result<Response, PageError> {
    let settings = server.reloadable();
    let rubric =
        settings.library.find(name).ok_or_else(|| ApiError::missing("There is no rubric of this name."))?;
    let of_steps = rubric.subject == Subject::Step;
    let trajectory =
        choice.trajectory.as_deref().map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned);
    let step = choice.step.as_deref().map(str::trim).filter(|step| !step.is_empty() && of_steps);
    let judge = settings.rules.iter().find_map(|rule| rule.judge.clone());
    let mut page = RubricPage {
        frame: Frame::of("/rubrics", None, headers),
        rubric: Row::of(&settings, rubric),
        hash: text::line(&rubric.hash),
        prompt: template(rubric),
        trajectory: trajectory.clone().unwrap_or_default(),
        step: step.unwrap_or(if of_steps { "1" } else { "" }).to_owned(),
        of_steps,
        judge: judge.as_ref().map(|judge| text::line(&judge.name())),
        trial: None,
        wrong: None,
    };
    if let Some(id) = trajectory {
        let number: Option<u32> = if of_steps { page.step.parse().ok() } else { None };
        match tried(server, rubric, &id, number, judge.as_deref(), asks).await {
            Ok(trial) => page.trial = Some(trial),
            Err(reason) => page.wrong = Some(reason),
        }
    }
    Ok(answer::page(&page))
}

/// The prompt as it is written, with its places marked.
fn template(rubric: &Rubric) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Variable(variable) => format!("{{{}}}", variable.name()),
    };
    let whole: String = rubric.template.pieces.iter().map(piece).collect();
    cut(&whole)
}

fn cut(whole: &str) -> String {
    printable(&whole[..whole.floor_char_boundary(MOST_PROMPT)]).into_owned()
}

async fn tried(
    server: &Arc<Server>,
    rubric: &Rubric,
    id: &str,
    step: Option<u32>,
    judge: Option<&ModelJudge>,
    asks: bool,
) -> Result<Trial, String> {
    let (trajectory, tools) =
        opened(server, id.to_owned()).await.map_err(|error| error.message().to_owned())?;
    let at = match step {
        Some(number) => {
            Some(trajectory.steps.iter().position(|step| step.index == number).ok_or_else(|| {
                format!("This trajectory has no step {number}; it has {}.", trajectory.steps.len())
            })?)
        }
        None if rubric.subject == Subject::Step => {
            return Err("Say which step: this rubric is about one.".to_owned());
        }
        None => None,
    };
    let case = Case { trajectory: &trajectory, step: at, tools: &tools };
    if let Some(reason) = missing(rubric, &case) {
        return Err(format!("The question does not arise here: {reason}."));
    }
    let window = judge.map_or(PromptWindow::of_tokens(WINDOW_TOKENS), |judge| judge.settings.window);
    let render = |window: PromptWindow| -> Prompt { Renderer::new(rubric, &tools, window).render(&case) };
    let prompt = render(window);
    let mut trial = Trial {
        system: cut(&prompt.system),
        user: cut(&prompt.user),
        note: (!prompt.shortened.is_empty())
            .then(|| "Some of it did not fit the judge's window, and is marked as left out.".to_owned()),
        answer: None,
    };
    if asks {
        let judge = judge.ok_or("No rule of this server has a model; there is nobody to ask.")?;
        let form = answer_form(rubric, judge.settings.structured);
        let judgement = judge.judge(&form, &rubric.labels, prompt, render).await;
        let reading = judgement.result.map_err(|failure| format!("The judge gave no verdict: {failure}"))?;
        let best = rubric.labels.best() == reading.label;
        let dollars = judge.price.zip(judgement.usage).map(|(price, usage)| number::usd(price.of(usage)));
        trial.answer = Some(Answer {
            class: if best { "pass" } else { "fail" },
            label: text::line(&reading.label),
            explanation: text::block(&reading.explanation),
            cost: dollars.unwrap_or_else(|| "cost not known".to_owned()),
        });
    }
    Ok(trial)
}

/// A trajectory as judges get it: with the tools on offer, and what the project's rule says of them.
async fn opened(server: &Arc<Server>, id: String) -> Result<(Trajectory, Arc<ToolText>), ApiError> {
    let _turn = server.openings.acquire().await;
    blocking(server, move |server| {
        let missing = || ApiError::missing("There is no trajectory with this id.");
        let trace = server.store.trace_of_trajectory(&id)?.ok_or_else(missing)?;
        let row = server.store.trace(trace)?.ok_or_else(missing)?;
        let all = story_trajectories(&server.store.story(row.story)?);
        let found = all.into_iter().find(|one| one.trajectory_id == id).ok_or_else(missing)?;
        let settings = server.reloadable();
        let rule = settings.rules.iter().find(|rule| rule.fits(&row.project));
        let mut texts = rule.map(GradingRule::tool_texts).unwrap_or_default();
        let tools = texts.of(&found.tools);
        Ok((found, tools))
    })
    .await
}
