//! Plans the questions about a trajectory, and turns answers into outcome lines.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_llm::AnswerForm;
use gradus_llm::price::TokenPrice;

use super::answered_questions::AnsweredQuestions;
use super::question_selection::QuestionSelection;
use crate::evaluator::{EvaluationMethod, Evaluator};
use crate::judge::JudgeResponse;
use crate::offline::OfflineJudge;
use crate::outcome::{EvaluationOutcome, OutcomeKind, OutcomeLine, ScoredVerdict, TokenCount};
use crate::prompt::{
    self, CachedPromptRenderer, EvaluationCase, JudgePrompt, PromptWindow, ToolText, ToolTexts, TruncatedValue,
};
use crate::rubric::{Rubric, RubricLabels, RubricSubject, RubricVariable};
use crate::run::CachedVerdict;

/// One question to a model. Jobs of a trajectory share it.
#[derive(Clone, Debug)]
pub(super) struct JudgeJob {
    /// Index into the planner's evaluators.
    evaluator: usize,
    /// Index into the trajectory's steps; `None` for the whole trajectory, the number of steps for the final thought.
    step: Option<usize>,
    trajectory: Arc<Trajectory>,
    tools: Arc<ToolText>,
}

impl JudgeJob {
    pub(super) fn evaluator_index(&self) -> usize {
        self.evaluator
    }

    pub(super) fn trajectory_id(&self) -> &str {
        &self.trajectory.trajectory_id
    }

    fn case(&self) -> EvaluationCase<'_> {
        EvaluationCase { trajectory: &self.trajectory, step: self.step, tools: &self.tools }
    }
}

/// A job with its rendered prompt.
pub(super) struct PreparedQuestion {
    pub(super) rubric: Arc<Rubric>,
    pub(super) answer: AnswerForm,
    pub(super) prompt: JudgePrompt,
    pub(super) renderer: QuestionShortener,
}

/// Renders a question for a smaller window, after the endpoint rejected the prompt as too long.
pub(super) struct QuestionShortener(Arc<Rubric>);

impl QuestionShortener {
    pub(super) fn render_shortened(&self, job: &JudgeJob, window: PromptWindow) -> JudgePrompt {
        CachedPromptRenderer::new(&self.0, &job.case(), window).render(&job.case())
    }
}

/// The questions about one trajectory.
pub(super) struct TrajectoryPlan {
    pub(super) trajectory_id: Arc<str>,
    /// Outcomes that need no model: by rules, or because the question does not apply.
    pub(super) answered: Vec<OutcomeLine>,
    pub(super) jobs: Vec<JudgeJob>,
}

/// Plans trajectories. It caches the constant parts of prompts, so it is mutable, and used by one task only.
#[derive(Debug)]
pub(super) struct QuestionPlanner {
    run_id: Arc<str>,
    evaluators: Vec<Evaluator>,
    tools: ToolTexts,
    window: Option<PromptWindow>,
    done: AnsweredQuestions,
    /// `None` plans all questions.
    selection: Option<QuestionSelection>,
    /// Rendered constant parts, oldest first.
    renderers: Vec<CachedRenderer>,
}

/// A rendered constant part with what it was made from.
#[derive(Debug)]
struct CachedRenderer {
    evaluator: usize,
    tools: Arc<ToolText>,
    /// `None` also if the rubric does not use it.
    system_prompt: Option<Arc<str>>,
    /// The trajectory that decided which tools are shown; `None` if all of them are.
    trajectory_id: Option<String>,
    renderer: CachedPromptRenderer,
}

/// Maximum number of cached renderers: sources with many different agents would fill the memory.
const MAX_CACHED_RENDERERS: usize = 64;

impl QuestionPlanner {
    pub(super) fn new(
        run_id: &str,
        evaluators: Vec<Evaluator>,
        tools: ToolTexts,
        window: Option<PromptWindow>,
        done: AnsweredQuestions,
    ) -> Self {
        QuestionPlanner {
            run_id: run_id.into(),
            evaluators,
            tools,
            window,
            done,
            selection: None,
            renderers: Vec::new(),
        }
    }

    pub(super) fn select_questions(&mut self, selection: Option<QuestionSelection>) {
        self.selection = selection;
    }

    /// Plans a trajectory. `is_known` means that an earlier process of the run stored exactly this trajectory, so
    /// questions that it answered are skipped.
    pub(super) fn plan(&mut self, mut trajectory: Trajectory, is_known: bool) -> TrajectoryPlan {
        let tools = self.tools.get_or_render(&trajectory.tools);
        trajectory.tools = Arc::clone(tools.tools());
        let trajectory = Arc::new(trajectory);
        let trajectory_id: Arc<str> = trajectory.trajectory_id.as_str().into();
        let mut planned =
            TrajectoryPlan { trajectory_id: Arc::clone(&trajectory_id), answered: Vec::new(), jobs: Vec::new() };
        // Created on first use, since parsing the texts takes time that a pure model run does not need.
        let mut offline: Option<OfflineJudge<'_>> = None;
        let step_count = trajectory.steps.len();
        let has_final_thought = trajectory.final_thought_index().is_some();
        for (number, evaluator) in self.evaluators.iter().enumerate() {
            let subjects: Vec<Option<usize>> = match evaluator.subject {
                RubricSubject::Step => {
                    let rows = step_count + usize::from(has_final_thought && evaluator.judges_final_thought());
                    (0..rows).map(Some).collect()
                }
                RubricSubject::Trajectory => vec![None],
            };
            for step in subjects {
                let index = step_number(&trajectory, step);
                let has_question =
                    |selection: &QuestionSelection| selection.has(&trajectory_id, index, &evaluator.name);
                if !self.selection.as_ref().is_none_or(has_question) {
                    continue;
                }
                if is_known && self.done.has(&trajectory_id, index, &evaluator.name) {
                    continue;
                }
                match &evaluator.method {
                    EvaluationMethod::Rules(_) if step == Some(step_count) => {
                        let reason = "no rule judges the thought before the final answer".to_owned();
                        let line = self.blank_line(evaluator, &trajectory_id, index);
                        planned.answered.push(line.with(EvaluationOutcome::Abstained { reason }));
                    }
                    EvaluationMethod::Rules(question) => {
                        let offline =
                            offline.get_or_insert_with(|| OfflineJudge::with_index(&trajectory, tools.index()));
                        let outcome = evaluator.apply_rules(*question, offline, step);
                        let mut line = self.blank_line(evaluator, &trajectory_id, index).with(outcome);
                        line.remarks = evaluator.rule_remarks(*question, offline, step);
                        planned.answered.push(line);
                    }
                    EvaluationMethod::Model { rubric, .. } => {
                        let job = JudgeJob {
                            evaluator: number,
                            step,
                            trajectory: Arc::clone(&trajectory),
                            tools: Arc::clone(&tools),
                        };
                        match prompt::explain_not_applicable(rubric, &job.case()) {
                            Some(reason) => {
                                let line = self.blank_line(evaluator, &trajectory_id, index);
                                planned.answered.push(line.with(EvaluationOutcome::NotApplicable { reason }));
                            }
                            None => planned.jobs.push(job),
                        }
                    }
                }
            }
        }
        planned
    }

    pub(super) fn evaluator_index(&self, name: &str) -> Option<usize> {
        self.evaluators.iter().position(|evaluator| &*evaluator.name == name)
    }

    /// Renders the prompt of a job.
    pub(super) fn prepare_question(&mut self, job: &JudgeJob) -> PreparedQuestion {
        let EvaluationMethod::Model { rubric, answer } = &self.evaluators[job.evaluator].method else {
            unreachable!("jobs are made for models only");
        };
        let (rubric, answer) = (Arc::clone(rubric), answer.clone());
        let prompt = self.renderer_for_job(job, &rubric).render(&job.case());
        PreparedQuestion { answer, prompt, renderer: QuestionShortener(Arc::clone(&rubric)), rubric }
    }

    fn renderer_for_job(&mut self, job: &JudgeJob, rubric: &Rubric) -> &CachedPromptRenderer {
        let uses_prompt = rubric.template.variables().any(|variable| variable == RubricVariable::SystemPrompt);
        let system_prompt = job.trajectory.system_prompt.as_ref().filter(|_| uses_prompt);
        // Trajectories of one source share the text. Those from a store do not, so their texts are compared.
        let is_same = |cached: Option<&Arc<str>>| match (cached, system_prompt) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            (one, other) => one.is_none() && other.is_none(),
        };
        let known = self.renderers.iter().rposition(|cached| {
            cached.evaluator == job.evaluator
                && Arc::ptr_eq(&cached.tools, &job.tools)
                && is_same(cached.system_prompt.as_ref())
                && cached.trajectory_id.as_ref().is_none_or(|id| *id == job.trajectory.trajectory_id)
        });
        let at = known.unwrap_or_else(|| {
            let window = self.window.unwrap_or(PromptWindow { bytes: usize::MAX });
            let renderer = CachedPromptRenderer::new(rubric, &job.case(), window);
            if self.renderers.len() >= MAX_CACHED_RENDERERS {
                self.renderers.remove(0);
            }
            let (tools, system_prompt) = (Arc::clone(&job.tools), system_prompt.cloned());
            let is_bound = renderer.is_bound_to_trajectory();
            let trajectory_id = is_bound.then(|| job.trajectory.trajectory_id.clone());
            let evaluator = job.evaluator;
            self.renderers.push(CachedRenderer { evaluator, tools, system_prompt, trajectory_id, renderer });
            self.renderers.len() - 1
        });
        &self.renderers[at].renderer
    }

    /// The outcome line of a question that was sent.
    pub(super) fn judged_line(
        &self,
        job: &JudgeJob,
        judgement: &JudgeResponse,
        price: Option<TokenPrice>,
    ) -> OutcomeLine {
        let outcome = match &judgement.result {
            Ok(reading) => self.scored_outcome(job, reading.label.clone(), reading.explanation.clone()),
            Err(failure) => EvaluationOutcome::Failed { reason: failure.to_string() },
        };
        let mut line = self.build_blank_line(job).with(outcome);
        line.tokens = judgement.usage.map(TokenCount::from_usage);
        line.cost_usd = price.zip(judgement.usage).map(|(price, usage)| price.cost_of_usage(usage));
        line.label_probability = judgement.label_probability;
        line.answered_by.clone_from(&judgement.answered_by);
        line.calls = judgement.calls;
        line.shortened.clone_from(&judgement.prompt.shortened);
        line
    }

    /// The outcome line of a cached verdict. It cost nothing in this run.
    pub(super) fn cached_line(
        &self,
        job: &JudgeJob,
        verdict: CachedVerdict,
        shortened: Vec<TruncatedValue>,
    ) -> OutcomeLine {
        let outcome = self.scored_outcome(job, verdict.label, verdict.explanation);
        let mut line = self.build_blank_line(job).with(outcome);
        line.label_probability = verdict.label_probability;
        line.answered_by = verdict.answered_by;
        line.cached = true;
        line.cost_usd = Some(0.0);
        line.shortened = if verdict.shortened.is_empty() { shortened } else { verdict.shortened };
        line
    }

    /// The outcome line of a question that is identical to one that was sent. The cost stays with that one.
    pub(super) fn copied_line(&self, job: &JudgeJob, answered: &OutcomeLine) -> OutcomeLine {
        let blank = self.build_blank_line(job);
        OutcomeLine {
            run_id: blank.run_id,
            trajectory_id: blank.trajectory_id,
            step_index: blank.step_index,
            tokens: None,
            cost_usd: Some(0.0),
            cached: answered.is_scored(),
            calls: 0,
            ..answered.clone()
        }
    }

    fn scored_outcome(&self, job: &JudgeJob, label: String, explanation: String) -> EvaluationOutcome {
        let score = Some(self.evaluators[job.evaluator].labels.score(&label).unwrap_or_default());
        let verdict = ScoredVerdict { label, score, explanation, evidence: Vec::new(), rule: None };
        EvaluationOutcome::Scored(verdict)
    }

    /// The labels of the question of a job.
    pub(super) fn labels(&self, job: &JudgeJob) -> &RubricLabels {
        &self.evaluators[job.evaluator].labels
    }

    pub(super) fn label_score(&self, job: &JudgeJob, label: &str) -> Option<f64> {
        self.labels(job).score(label)
    }

    /// The line of a job without a result.
    pub(super) fn build_blank_line(&self, job: &JudgeJob) -> OutcomeLine {
        let index = step_number(&job.trajectory, job.step);
        self.blank_line(&self.evaluators[job.evaluator], &job.trajectory.trajectory_id.as_str().into(), index)
    }

    /// A line without a result. An evaluator that asks no model costs 0 dollars; for others the cost is unknown until
    /// asked.
    fn blank_line(&self, evaluator: &Evaluator, trajectory_id: &Arc<str>, step_index: Option<u32>) -> OutcomeLine {
        OutcomeLine {
            run_id: Arc::clone(&self.run_id),
            trajectory_id: Arc::clone(trajectory_id),
            step_index,
            evaluator: Arc::clone(&evaluator.name),
            outcome: OutcomeKind::Failed,
            label: None,
            score: None,
            label_probability: None,
            explanation: None,
            evidence: Vec::new(),
            rule: None,
            remarks: Vec::new(),
            reason: None,
            judge: Arc::clone(&evaluator.judge),
            rubric_hash: Arc::clone(&evaluator.hash),
            tokens: None,
            cost_usd: if evaluator.asks_model() { None } else { Some(0.0) },
            cached: false,
            calls: 0,
            shortened: Vec::new(),
            votes: Vec::new(),
            vote_count: None,
            disagreement: None,
            escalated: None,
            first_label: None,
            answered_by: None,
        }
    }
}

/// The number of a step in outcome lines, from its index; `None` for the whole trajectory.
fn step_number(trajectory: &Trajectory, step: Option<usize>) -> Option<u32> {
    match trajectory.steps.get(step?) {
        Some(step) => Some(step.index),
        None => trajectory.final_thought_index(),
    }
}

impl OutcomeLine {
    pub(super) fn with(mut self, outcome: EvaluationOutcome) -> OutcomeLine {
        match outcome {
            EvaluationOutcome::Scored(verdict) => {
                self.outcome = OutcomeKind::Scored;
                self.label = Some(verdict.label);
                self.score = verdict.score;
                self.explanation = Some(verdict.explanation);
                self.evidence = verdict.evidence;
                self.rule = verdict.rule.map(Cow::Borrowed);
            }
            EvaluationOutcome::NotApplicable { reason } => {
                self.outcome = OutcomeKind::NotApplicable;
                self.reason = Some(reason);
                self.cost_usd = Some(0.0);
            }
            EvaluationOutcome::Abstained { reason } => {
                self.outcome = OutcomeKind::Abstained;
                self.reason = Some(reason);
            }
            EvaluationOutcome::Failed { reason } => {
                self.outcome = OutcomeKind::Failed;
                self.reason = Some(reason);
            }
        }
        self
    }
}
