//! Estimates the questions and the cost of a run, without asking.

use std::collections::HashSet;

use gradus_core::trajectory::Trajectory;
use gradus_llm::CompletionUsage;

use super::answered_questions::AnsweredQuestions;
use super::panel::JudgePanel;
use super::plan::{PreparedQuestion, QuestionPlanner};
use super::question_selection::QuestionSelection;
use crate::evaluator::Evaluator;
use crate::judge::{ModelJudge, estimate_prompt_tokens};
use crate::prompt::ToolTexts;
use crate::run::{QuestionKey, RunFileError, VerdictCache};

/// Typical length of an answer in tokens: a few sentences and a label.
pub const TYPICAL_ANSWER_TOKENS: u64 = 150;

/// The questions of one evaluator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluatorEstimate {
    pub questions: u64,
    /// Answered by an earlier run or by an identical question of this one. With a panel: votes.
    pub cached: u64,
    /// With a panel: votes.
    pub to_ask: u64,
    /// Estimated tokens of all prompts in `to_ask`.
    pub prompt_tokens: u64,
    /// Estimated dollars, without the provider's prompt cache; the real cost is usually lower. `None` if the price of a
    /// judge is not known.
    pub cost_usd: Option<f64>,
    /// Estimated dollars if every question were escalated, beyond `cost_usd`; 0 without an escalation.
    pub escalation_usd: Option<f64>,
}

impl Default for EvaluatorEstimate {
    fn default() -> Self {
        EvaluatorEstimate {
            questions: 0,
            cached: 0,
            to_ask: 0,
            prompt_tokens: 0,
            cost_usd: Some(0.0),
            escalation_usd: Some(0.0),
        }
    }
}

/// Sums up the estimated cost of trajectories. It plans questions exactly as a run does, with the same cache keys.
#[derive(Debug)]
pub struct CostEstimator {
    planner: QuestionPlanner,
    panel: Option<JudgePanel>,
    cache: Option<VerdictCache>,
    asked: HashSet<QuestionKey>,
    repeat: u32,
    estimates: Vec<EvaluatorEstimate>,
}

impl CostEstimator {
    pub fn new(
        evaluators: Vec<Evaluator>,
        panel: Option<JudgePanel>,
        tools: ToolTexts,
        cache: Option<VerdictCache>,
    ) -> Self {
        let estimates = vec![EvaluatorEstimate::default(); evaluators.len()];
        let window = panel.as_ref().and_then(JudgePanel::window);
        let planner = QuestionPlanner::new("", evaluators, tools, window, AnsweredQuestions::default());
        CostEstimator { planner, panel, cache, asked: HashSet::new(), repeat: 0, estimates }
    }

    /// Estimates the selected questions only.
    #[must_use]
    pub fn with_selection(mut self, selection: QuestionSelection) -> Self {
        self.repeat = selection.repeat();
        self.planner.select_questions(Some(selection));
        self
    }

    /// Adds one trajectory. It fails only if the verdict cache cannot be read.
    pub fn add(&mut self, trajectory: Trajectory) -> Result<(), RunFileError> {
        let planned = self.planner.plan(trajectory, false);
        for line in &planned.answered {
            if let Some(number) = self.planner.evaluator_index(&line.evaluator) {
                self.estimates[number].questions += 1;
            }
        }
        let Some(panel) = self.panel.clone() else { return Ok(()) };
        for job in &planned.jobs {
            let question = self.planner.prepare_question(job);
            let number = job.evaluator_index();
            self.estimates[number].questions += 1;
            for judge in panel.members() {
                for repeat in 0..panel.max_repeats() {
                    let cost = self.add_ask(number, judge, &question, self.repeat + repeat, true)?;
                    add_cost(&mut self.estimates[number].cost_usd, cost);
                }
            }
            let Some(policy) = panel.escalation() else { continue };
            let line = self.planner.build_blank_line(job);
            let is_audited = policy.is_audited(&line.trajectory_id, line.step_index, &line.evaluator);
            let cost = self.add_ask(number, &policy.judge, &question, 0, is_audited)?;
            let estimate = &mut self.estimates[number];
            add_cost(if is_audited { &mut estimate.cost_usd } else { &mut estimate.escalation_usd }, cost);
        }
        Ok(())
    }

    /// Estimates the cost of one vote: 0 if it is already answered. Optional votes are not counted.
    fn add_ask(
        &mut self,
        number: usize,
        judge: &ModelJudge,
        question: &PreparedQuestion,
        repeat: u32,
        is_certain: bool,
    ) -> Result<Option<f64>, RunFileError> {
        let key = judge.question_key(&question.rubric.hash, &question.prompt, repeat);
        let is_cached = match &mut self.cache {
            Some(cache) => cache.get(key)?.is_some(),
            None => false,
        };
        let is_free = is_cached || !self.asked.insert(key);
        let prompt = estimate_prompt_tokens(&question.prompt);
        let estimate = &mut self.estimates[number];
        if is_certain {
            estimate.cached += u64::from(is_free);
            estimate.to_ask += u64::from(!is_free);
            estimate.prompt_tokens += if is_free { 0 } else { prompt };
        }
        let usage = CompletionUsage { prompt, completion: TYPICAL_ANSWER_TOKENS, cached_prompt: 0 };
        Ok(if is_free { Some(0.0) } else { judge.price.map(|price| price.cost_of_usage(usage)) })
    }

    /// One per evaluator, in their order.
    pub fn estimates(&self) -> &[EvaluatorEstimate] {
        &self.estimates
    }
}

/// The sum is unknown as soon as one part is.
fn add_cost(sum: &mut Option<f64>, more: Option<f64>) {
    *sum = sum.zip(more).map(|(sum, more)| sum + more);
}
