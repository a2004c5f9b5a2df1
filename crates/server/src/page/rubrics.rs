//! Rubrics, and trials of them on a recorded step. The prompt is shown as a judge would get it; on request the judge of
//! the project answers. Trials are kept in memory for a while and never stored; a changed rubric can be downloaded as a
//! file.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gradus_eval::rubric::{Rubric, RubricOrigin, RubricSubject};
use serde::Deserialize;

use super::bulk_trial_form::{BulkTrialForm, BulkTrialQuery};
use super::render::{self, PageError, PageQuery};
use super::rubric_addresses::build_rubric_url;
use super::trials::{RubricPromptPreview, RubricTrialError, RubricTrialJudge, RubricTrialReply, RubricTrialSubject};
use super::{NavigationQuery, PageLayout, form};
use crate::caller::{RequestCaller, RequiredScope};
use crate::grading_rule::GradingRule;
use crate::http_error::ApiError;
use crate::rubric_trials::{RubricTrial, RubricTrialAnswer};
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use gradus_report::html::number;
use gradus_report::html::text::{self, DisplayText};

#[derive(Template)]
#[template(path = "rubrics.html")]
struct RubricListPage {
    frame: PageLayout,
    rubrics: Vec<RubricListRow>,
}

/// A rubric as the list and its own page show it.
struct RubricListRow {
    name: String,
    href: String,
    /// Where trials on many cases are planned.
    trials: String,
    title: String,
    about: DisplayText,
    subject: &'static str,
    /// Label and score, best first.
    labels: Vec<(String, String)>,
    origin: String,
    /// Names of the rules that use it.
    rules: String,
}

/// A rubric with the state of the trial form.
#[derive(Template)]
#[template(path = "rubric.html")]
struct RubricPage {
    frame: PageLayout,
    project: String,
    rubric: RubricListRow,
    hash: String,
    /// Text of the rubric file, or the changed text of the trial.
    source: String,
    is_changed: bool,
    trajectory: String,
    step: String,
    of_steps: bool,
    /// Whether the person may make trials, which requires the scope `admin`, since a trial can cost money.
    may_try: bool,
    /// The judge that would be asked.
    judge: Option<String>,
    /// Why no judge can be asked; empty if one can.
    nobody: &'static str,
    shown: Option<RubricPromptPreview>,
    answer: Option<RubricTrialAnswer>,
    /// Why there is no prompt or no answer.
    wrong: Option<String>,
    bulk: BulkTrialForm,
}

/// Parameters of `/rubrics/{rubric}`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RubricTrialQuery {
    trajectory: Option<String>,
    step: Option<String>,
    /// Id of a trial in the cache.
    trial: Option<String>,
    /// Rubrics belong to no project. It is passed on to the links of the navigation.
    project: Option<String>,
    /// Id of a trial on many cases whose text is edited.
    from: Option<String>,
    #[serde(flatten)]
    bulk: BulkTrialQuery,
}

/// `GET /rubrics`
pub(super) async fn render_rubrics_page(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    PageQuery(looked): PageQuery<NavigationQuery>,
) -> Response {
    let settings = server.reloadable();
    let project = looked.project();
    let rubrics =
        settings.library.iter().map(|rubric| RubricListRow::from_rubric(&settings, rubric, project)).collect();
    render::respond_with_page(&RubricListPage { frame: PageLayout::new("/rubrics", project, &headers), rubrics })
}

impl RubricListRow {
    /// Builds a row. `project` is kept in its links.
    fn from_rubric(settings: &ReloadableSettings, rubric: &Rubric, project: Option<&str>) -> RubricListRow {
        let uses = |rule: &&GradingRule| rule.evaluators.iter().any(|one| *one.name == *rubric.name);
        let rules: Vec<&str> = settings.rules.iter().filter(uses).map(|rule| rule.name.as_str()).collect();
        RubricListRow {
            name: text::format_display_line(&rubric.name),
            href: build_rubric_url(&rubric.name).with("project", project).to_string(),
            trials: format!("{}/trials", build_rubric_url(&rubric.name)),
            title: text::format_display_line(&rubric.title),
            about: text::format_display_block(&rubric.about),
            subject: match rubric.subject {
                RubricSubject::Step => "each step",
                RubricSubject::Trajectory => "the whole trajectory",
            },
            labels: rubric
                .labels
                .iter()
                .map(|(label, score)| (text::format_display_line(label), number::format_score(score)))
                .collect(),
            origin: match &rubric.origin {
                RubricOrigin::BuiltIn => "built in".to_owned(),
                RubricOrigin::File(path) => text::format_display_line(&path.display().to_string()),
            },
            rules: if rules.is_empty() { "no rule".to_owned() } else { text::format_display_line(&rules.join(", ")) },
        }
    }
}

/// `GET /rubrics/{rubric}`: a rubric, with the prompt for a step if one is selected. Asks no judge and costs nothing.
pub(super) async fn render_rubric_page(
    State(server): State<Arc<ServerState>>,
    Extension(caller): Extension<RequestCaller>,
    headers: HeaderMap,
    Path(name): Path<String>,
    PageQuery(choice): PageQuery<RubricTrialQuery>,
) -> Result<Response, PageError> {
    let settings = server.reloadable();
    let rubric = find_rubric(&settings, &name)?;
    let project = choice.project.as_deref().filter(|name| !name.is_empty());
    let trial = choice.trial.as_deref().filter(|name| !name.is_empty());
    // An id that is not in the cache is reported: the trial was evicted, or the server restarted.
    let kept = trial.map(|name| server.rubric_trials.get(name).ok_or(()));
    let is_gone = matches!(kept, Some(Err(())));
    let RubricTrial { mut text, answer, wrong } = kept.and_then(Result::ok).unwrap_or_default();
    let (bulk, earlier) =
        BulkTrialForm::load_with_rubric_text(&server, &name, choice.from.clone(), choice.bulk.clone()).await?;
    text = text.or(earlier);
    let changed = text.as_deref().map(|text| Rubric::parse(text, RubricOrigin::BuiltIn));
    let tried = changed.as_ref().and_then(|changed| changed.as_ref().ok()).unwrap_or(rubric);
    let of_steps = tried.subject == RubricSubject::Step;
    let trajectory = choice.trajectory.as_deref().map(str::trim).unwrap_or_default().to_owned();
    let step = choice.step.as_deref().map(str::trim).filter(|step| !step.is_empty() && of_steps);
    let mut page = RubricPage {
        frame: PageLayout::new("/rubrics", project, &headers),
        rubric: RubricListRow::from_rubric(&settings, rubric, project),
        project: project.unwrap_or_default().to_owned(),
        hash: text::format_display_line(&rubric.hash),
        source: text.clone().unwrap_or_else(|| rubric.source.to_string()),
        is_changed: text.is_some(),
        step: step.unwrap_or(if of_steps { "1" } else { "" }).to_owned(),
        trajectory,
        of_steps,
        may_try: caller.has_scope(RequiredScope::Admin),
        judge: None,
        nobody: "",
        shown: None,
        answer,
        wrong: wrong.or_else(|| is_gone.then(|| "This trial has expired; run it again.".to_owned())),
        bulk,
    };
    if !page.trajectory.is_empty() {
        let is_changed = text.is_some();
        let prompt = move |subject: RubricTrialSubject, rubric: &Rubric, settings: &ReloadableSettings| {
            let who = subject.select_judge(settings, rubric, is_changed);
            let nobody = if let RubricTrialJudge::Nobody(reason) = who { reason } else { "" };
            (who.name(), nobody, subject.preview_prompt(rubric, &who))
        };
        match RubricTrialSubject::load_with(&server, tried, &page.trajectory, page.step.parse().ok(), prompt).await {
            Ok((judge, nobody, prompt)) => {
                page.judge = judge;
                page.nobody = nobody;
                match prompt {
                    Ok(shown) => page.shown = Some(shown),
                    Err(error) => page.wrong = page.wrong.or_else(|| Some(error.to_string())),
                }
            }
            Err(error) => page.wrong = page.wrong.or_else(|| Some(error.message().to_owned())),
        }
    }
    Ok(render::respond_with_page(&page))
}

/// Finds a rubric by name; 404 for unknown names.
pub(super) fn find_rubric<'r>(settings: &'r ReloadableSettings, name: &str) -> Result<&'r Rubric, ApiError> {
    settings.library.find(name).ok_or_else(|| ApiError::not_found("No rubric has this name."))
}

/// Body of `POST /rubrics/{rubric}`.
#[derive(Deserialize)]
struct RubricTrialForm {
    #[serde(default)]
    trajectory: String,
    #[serde(default)]
    step: String,
    #[serde(default)]
    project: String,
    /// The text of the rubric as edited.
    text: Option<String>,
    what: RubricTrialAction,
}

/// The button that was pressed: show the prompt, ask the judge, or download the file.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RubricTrialAction {
    Show,
    Ask,
    Load,
}

/// `POST /rubrics/{rubric}`: makes a trial, caches it and redirects to its page. Reloading that page asks no judge
/// again, so nothing is paid twice.
pub(super) async fn submit_rubric_trial(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, PageError> {
    let wanted: RubricTrialForm = form::read_form(&server, &headers, body).await?;
    let settings = server.reloadable();
    let rubric = find_rubric(&settings, &name)?;
    // Forms send CRLF line ends, which would change the hash of the rubric.
    let text = wanted.text.map(|text| text.replace("\r\n", "\n"));
    // An unchanged text counts as the original rubric, which offline rules may judge.
    let text = text.filter(|text| text.trim() != rubric.source.trim());
    let changed = text.as_deref().map(|text| Rubric::parse(text, RubricOrigin::BuiltIn)).transpose();
    let mut trial = RubricTrial { text, ..RubricTrial::default() };
    match changed {
        Err(error) => trial.wrong = Some(text::format_display_line(&format!("Invalid rubric: {error}"))),
        Ok(_) if wanted.what == RubricTrialAction::Load => {
            return Ok(respond_rubric_file(&name, trial.text.as_deref().unwrap_or(&rubric.source)));
        }
        Ok(changed) if wanted.what == RubricTrialAction::Ask => {
            let tried = changed.as_ref().unwrap_or(rubric);
            let step = wanted.step.trim().parse().ok();
            let is_changed = changed.is_some();
            let ask = move |subject: RubricTrialSubject, rubric: &Rubric, settings: &ReloadableSettings| {
                let who = subject.select_judge(settings, rubric, is_changed);
                subject.begin_trial(rubric, &who)
            };
            let asked = match RubricTrialSubject::load_with(&server, tried, wanted.trajectory.trim(), step, ask).await {
                Ok(Ok(RubricTrialReply::Rules(answer))) => Ok(answer),
                Ok(Ok(RubricTrialReply::Model(question))) => {
                    // A task of its own, so that the cost of the call is recorded even if the client disconnects.
                    let (server, tried) = (Arc::clone(&server), tried.clone());
                    let asked = tokio::spawn(async move { question.ask_judge(&server, &tried).await }).await;
                    asked.unwrap_or_else(|error| Err(RubricTrialError::Aborted(error)))
                }
                Ok(Err(error)) => Err(error),
                Err(error) => Err(RubricTrialError::Query(error)),
            };
            match asked {
                Ok(answer) => trial.answer = Some(answer),
                Err(error) => trial.wrong = Some(error.to_string()),
            }
        }
        Ok(_) => {}
    }
    let to = build_rubric_url(&name)
        .with("trajectory", Some(wanted.trajectory.trim()))
        .with("step", Some(wanted.step.trim()))
        .with("trial", Some(&server.rubric_trials.insert(trial)))
        .with("project", Some(&wanted.project))
        .with_fragment("h-try");
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(to) = HeaderValue::from_str(&to.to_string()) {
        response.headers_mut().insert(LOCATION, to);
    }
    Ok(response)
}

/// Responds with the text as a file for download.
pub(super) fn respond_rubric_file(name: &str, text: &str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/markdown; charset=utf-8")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    let mut response = (headers, text.to_owned()).into_response();
    // Names of rubrics consist of plain letters; any other name keeps the header without a file name.
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename={name}.md")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    response
}
