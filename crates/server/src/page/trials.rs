//! Trials of a rubric on one recorded step: the prompt that a judge would get, and the answer of the project's own
//! judge. Data of a project is sent to no other endpoint than the one that its rule names.

use crate::rubric_trials::RubricTrialAnswer;
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::Evaluator;
use gradus_eval::judge::{JudgeFailure, ModelJudge, build_answer_form};
use gradus_eval::outcome::OutcomeKind;
use gradus_eval::prompt::{
    CachedPromptRenderer, EvaluationCase, JudgePrompt, PromptWindow, ToolText, explain_not_applicable,
};
use gradus_eval::rubric::{Rubric, RubricSubject};
use gradus_eval::runner::RulesJudge;
use gradus_store::{JudgeCall, JudgeSpend};

use crate::call_reservation::{CallReservation, CallReservationError};
use crate::grading_rule::GradingRule;
use crate::http_error::{ApiError, run_large_query};
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::trace_group::TraceGroupView;
use gradus_core::visible::make_printable;
use gradus_report::html::number;
use gradus_report::html::text::{self};

/// Maximum number of bytes of each part of a prompt that the page shows.
const MAX_SHOWN_PROMPT_BYTES: usize = 60_000;
/// Context window in tokens for a preview without a model.
const PREVIEW_WINDOW_TOKENS: usize = 32_000;

/// The step or the trajectory that a rubric is tried on.
pub(super) struct RubricTrialSubject {
    trajectory: Trajectory,
    /// Index into the steps; none for the whole trajectory.
    step: Option<usize>,
    /// The tools on offer, rendered as the project's rule does.
    tools: Arc<ToolText>,
    project: String,
}

/// Why a trial has no answer, or no prompt to show. Each message is a sentence for the page.
#[derive(Debug, thiserror::Error)]
pub(super) enum RubricTrialError {
    /// The trajectory or the step lacks something that the rubric requires.
    #[error("Not applicable: {reason}.")]
    NotApplicable { reason: String },
    /// The project's rule has no judge for this rubric.
    #[error("{reason}")]
    NoJudge { reason: &'static str },
    #[error("The offline judge gives no outcome for this.")]
    NoRuleVerdict,
    /// Asking could exceed the daily budget of the rule. Both amounts are formatted dollars.
    #[error("The rule has spent {spent} of today's budget of {budget}; the rest may not cover this question.")]
    Budget { budget: String, spent: String },
    #[error("The judge gave no verdict: {0}")]
    Judge(#[source] JudgeFailure),
    /// The task that asks the judge panicked or was cancelled.
    #[error("The judge could not be called; see the server log.")]
    Aborted(#[source] tokio::task::JoinError),
    /// The trajectory or the spending could not be read from the store.
    #[error("{}", .0.message())]
    Query(ApiError),
}

/// The first part of a trial. Rules answer at once; a model is asked outside of the query pool.
pub(super) enum RubricTrialReply {
    Rules(RubricTrialAnswer),
    /// The question for the model, still to be sent.
    Model(Box<RubricTrialQuestion>),
}

/// A question to a model, with the rule that pays for it.
pub(super) struct RubricTrialQuestion {
    subject: RubricTrialSubject,
    prompt: JudgePrompt,
    rule: String,
    daily_budget_usd: Option<f64>,
    judge: Arc<ModelJudge>,
}

/// A prompt as the judge would get it, truncated for the page.
pub(super) struct RubricPromptPreview {
    pub(super) system: String,
    pub(super) user: String,
    pub(super) notes: Vec<&'static str>,
}

/// The judge of a project.
pub(super) enum RubricTrialJudge<'r> {
    Model(&'r GradingRule, &'r Arc<ModelJudge>),
    Rules(&'r GradingRule, Box<Evaluator>),
    /// No judge; the reason as a sentence.
    Nobody(&'static str),
}

impl RubricTrialJudge<'_> {
    /// Returns the displayed name of the judge; None without one.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            RubricTrialJudge::Model(_, judge) => Some(text::format_display_line(&judge.name())),
            RubricTrialJudge::Rules(..) => Some("the rules".to_owned()),
            RubricTrialJudge::Nobody(_) => None,
        }
    }
}

impl RubricTrialSubject {
    /// Loads the trajectory with the tools on offer, as judges get it, and calls `make` with it. Both run on the pool
    /// for large queries: assembling a trace and rendering a prompt take time.
    pub(super) async fn load_with<T: Send + 'static>(
        server: &Arc<ServerState>,
        rubric: &Rubric,
        id: &str,
        step: Option<u32>,
        make: impl FnOnce(RubricTrialSubject, &Rubric, &ReloadableSettings) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let of_steps = rubric.subject == RubricSubject::Step;
        if of_steps && step.is_none() {
            return Err(ApiError::bad_request("Enter a step: this rubric applies to one step."));
        }
        let (id, rubric) = (id.to_owned(), rubric.clone());
        run_large_query(server, move |server| {
            let missing = || ApiError::not_found("No trajectory has this id.");
            let trace = server.store.trace_of_trajectory(&id)?.ok_or_else(missing)?;
            let row = server.store.trace(trace)?.ok_or_else(missing)?;
            let all = TraceGroupView::load(&server.store, row.trace_group)?.trajectories;
            let found = all.into_iter().find(|one| one.trajectory_id == id).ok_or_else(missing)?;
            let settings = server.reloadable();
            let mut texts = find_project_rule(&settings, &row.project).map(GradingRule::tool_texts).unwrap_or_default();
            let tools = texts.get_or_render(&found.tools);
            let at = step.filter(|_| of_steps).map(|number| {
                found.steps.iter().position(|step| step.index == number).ok_or_else(|| {
                    let steps = found.steps.len();
                    ApiError::not_found(format!("This trajectory has no step {number} (number of steps: {steps})."))
                })
            });
            let subject = RubricTrialSubject { step: at.transpose()?, trajectory: found, tools, project: row.project };
            Ok(make(subject, &rubric, &settings))
        })
        .await
    }

    fn as_evaluation_case(&self) -> EvaluationCase<'_> {
        EvaluationCase { trajectory: &self.trajectory, step: self.step, tools: &self.tools }
    }

    /// Selects the judge of the first rule that matches the project. Offline rules judge unchanged rubrics only: they
    /// do not read the prompt.
    pub(super) fn select_judge<'r>(
        &self,
        settings: &'r ReloadableSettings,
        rubric: &Rubric,
        is_changed: bool,
    ) -> RubricTrialJudge<'r> {
        let Some(rule) = find_project_rule(settings, &self.project) else {
            return RubricTrialJudge::Nobody("No rule matches this project, so it has no judge.");
        };
        match (&rule.judge, Evaluator::with_offline_rules(rubric)) {
            (Some(judge), _) => RubricTrialJudge::Model(rule, judge),
            (None, Some(_)) if is_changed => RubricTrialJudge::Nobody(
                "The rule of this project uses the offline judge, which does not read prompts.",
            ),
            (None, Some(evaluator)) => RubricTrialJudge::Rules(rule, Box::new(evaluator)),
            (None, None) => RubricTrialJudge::Nobody(
                "The rule of this project uses the offline judge, which has no rules for this rubric.",
            ),
        }
    }

    /// Renders the prompt, fitted to the context window of the judge.
    pub(super) fn preview_prompt(
        &self,
        rubric: &Rubric,
        who: &RubricTrialJudge<'_>,
    ) -> Result<RubricPromptPreview, RubricTrialError> {
        if let Some(reason) = explain_not_applicable(rubric, &self.as_evaluation_case()) {
            return Err(RubricTrialError::NotApplicable { reason });
        }
        let window = match who {
            RubricTrialJudge::Model(_, judge) => judge.settings.window,
            _ => PromptWindow::from_tokens(PREVIEW_WINDOW_TOKENS),
        };
        let prompt = self.render_prompt(rubric, window);
        let is_cut = [&*prompt.system, &*prompt.user].iter().any(|part| part.len() > MAX_SHOWN_PROMPT_BYTES);
        Ok(RubricPromptPreview {
            system: truncate_for_page(&prompt.system),
            user: truncate_for_page(&prompt.user),
            notes: [
                (!prompt.shortened.is_empty())
                    .then_some("The prompt exceeds the judge's context window. Omitted parts are marked."),
                is_cut.then_some("This page shows the first 60,000 bytes of each part. The judge receives all of it."),
            ]
            .into_iter()
            .flatten()
            .collect(),
        })
    }

    /// Renders the prompt. `window` bounds it; values that do not fit are shortened and marked.
    fn render_prompt(&self, rubric: &Rubric, window: PromptWindow) -> JudgePrompt {
        let case = self.as_evaluation_case();
        CachedPromptRenderer::new(rubric, &case, window).render(&case)
    }

    /// Asks the rules, or builds the question for the model.
    pub(super) fn begin_trial(
        self,
        rubric: &Rubric,
        who: &RubricTrialJudge<'_>,
    ) -> Result<RubricTrialReply, RubricTrialError> {
        if let Some(reason) = explain_not_applicable(rubric, &self.as_evaluation_case()) {
            return Err(RubricTrialError::NotApplicable { reason });
        }
        match who {
            RubricTrialJudge::Model(rule, judge) => Ok(RubricTrialReply::Model(Box::new(RubricTrialQuestion {
                prompt: self.render_prompt(rubric, judge.settings.window),
                subject: self,
                rule: rule.name.clone(),
                daily_budget_usd: rule.daily_budget_usd,
                judge: Arc::clone(judge),
            }))),
            RubricTrialJudge::Rules(rule, evaluator) => self.ask_rules(rule, evaluator).map(RubricTrialReply::Rules),
            RubricTrialJudge::Nobody(reason) => Err(RubricTrialError::NoJudge { reason }),
        }
    }

    /// Judges the whole trajectory, as live grading does, and picks the verdict on the step.
    fn ask_rules(&self, rule: &GradingRule, evaluator: &Evaluator) -> Result<RubricTrialAnswer, RubricTrialError> {
        let mut judge = RulesJudge::new("trial", std::slice::from_ref(evaluator), rule.tool_texts());
        let step = self.step.and_then(|at| self.trajectory.steps.get(at)).map(|step| step.index);
        let lines = judge.judge(self.trajectory.clone());
        let line = lines.into_iter().find(|line| line.step_index == step);
        let line = line.ok_or(RubricTrialError::NoRuleVerdict)?;
        let words = line.explanation.as_deref().or(line.reason.as_deref()).unwrap_or_default();
        let is_best = line.label.as_deref() == Some(evaluator.labels.best());
        Ok(RubricTrialAnswer {
            class: match (line.outcome, is_best) {
                (OutcomeKind::Scored, true) => "pass",
                (OutcomeKind::Scored, false) if line.score.is_some() => "fail",
                (OutcomeKind::Failed, _) => "unsure",
                _ => "na",
            },
            label: match (line.outcome, &line.label) {
                (_, Some(label)) => text::format_display_line(label),
                (OutcomeKind::NotApplicable, None) => "not applicable".to_owned(),
                (OutcomeKind::Abstained, None) => "cannot judge".to_owned(),
                (_, None) => "could not be judged".to_owned(),
            },
            explanation: text::format_display_block(words),
            by: "rules".to_owned(),
            cost: "free".to_owned(),
        })
    }
}

impl RubricTrialQuestion {
    /// Asks the model. The cost is charged to the rule and limited by its daily budget.
    pub(super) async fn ask_judge(
        self,
        server: &Arc<ServerState>,
        rubric: &Rubric,
    ) -> Result<RubricTrialAnswer, RubricTrialError> {
        let RubricTrialQuestion { subject, prompt, rule, daily_budget_usd, judge } = self;
        let most_usd = judge.max_question_cost_usd(&prompt);
        // With a budget only one question is asked at a time: its cost has to be known before the next one is allowed.
        let _turn = match daily_budget_usd {
            Some(_) => Some(server.rubric_trials.asking.lock().await),
            None => None,
        };
        let call = JudgeCall {
            key: None,
            rule: rule.clone(),
            project: subject.project.clone(),
            trajectory_id: subject.trajectory.trajectory_id.clone(),
            step: subject.step.and_then(|at| subject.trajectory.steps.get(at)).map(|step| step.index),
            rubric_hash: rubric.hash.clone(),
            judge: judge.name(),
            max_cost_usd: most_usd.unwrap_or_default(),
            daily_budget_usd,
        };
        let mut hold = CallReservation::reserve(&server.store, call).await.map_err(|error| match error {
            CallReservationError::Budget { spent_usd } => RubricTrialError::Budget {
                budget: number::format_usd(daily_budget_usd.unwrap_or_default()),
                spent: number::format_usd(spent_usd),
            },
            CallReservationError::Store(error) => RubricTrialError::Query(error.into()),
        })?;
        let form = build_answer_form(rubric, judge.settings.structured);
        let render = |window: PromptWindow| subject.render_prompt(rubric, window);
        let judgement = judge.judge(&form, &rubric.labels, prompt, render).await;
        let known_usd = judge.price.zip(judgement.usage).map(|(price, usage)| price.cost_of_usage(usage));
        // If the endpoint does not report all usage, the maximum is charged.
        let cost_usd = if judgement.is_usage_partial { most_usd.or(known_usd) } else { known_usd };
        let calls = u64::from(judgement.calls);
        // Calls without a price are counted, so that the sum is known to be incomplete.
        let unpriced = if cost_usd.is_some() { 0 } else { calls };
        server.meters.record_call_pricing(calls, cost_usd.is_some());
        let spend = JudgeSpend { rule, calls, unpriced, cost_usd: cost_usd.unwrap_or_default() };
        // The answer is already paid for, so it is shown even if its cost could not be stored.
        if let Err(error) = hold.settle(spend, None).await {
            tracing::error!(%error, "failed to record the cost of a rubric trial");
        }
        let reading = judgement.result.map_err(RubricTrialError::Judge)?;
        Ok(RubricTrialAnswer {
            class: if rubric.labels.best() == reading.label { "pass" } else { "fail" },
            label: text::format_display_line(&reading.label),
            explanation: text::format_display_block(&reading.explanation),
            by: text::format_display_line(&judge.name()),
            cost: cost_usd.map_or_else(|| "cost not known".to_owned(), number::format_usd),
        })
    }
}

/// Finds the rule of a project: the first that matches, as in live grading.
fn find_project_rule<'r>(settings: &'r ReloadableSettings, project: &str) -> Option<&'r GradingRule> {
    settings.rules.iter().find(|rule| rule.matches_project(project))
}

/// Returns the beginning of a text, truncated at a character boundary and without control characters.
pub(super) fn truncate_for_page(whole: &str) -> String {
    make_printable(&whole[..whole.floor_char_boundary(MAX_SHOWN_PROMPT_BYTES)]).into_owned()
}
