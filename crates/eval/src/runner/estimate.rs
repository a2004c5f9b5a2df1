//! Estimates what a run would ask and spend, without asking.

use std::collections::HashSet;
use std::sync::Arc;

use gradus_core::trajectory::Trajectory;
use gradus_llm::CompletionUsage;

use super::plan::QuestionPlanner;
use super::progress_order::AnsweredQuestions;
use crate::evaluator::Evaluator;
use crate::judge::{ModelJudge, estimated_tokens};
use crate::prompt::ToolTexts;
use crate::run::{QuestionKey, RunFileError, VerdictCache};

/// Typical length of an answer in tokens: a few sentences and a label.
pub const ANSWER_TOKENS: u64 = 150;

/// What one evaluator would ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvaluatorEstimate {
    pub questions: u64,
    /// Answered by an earlier run or by an identical question of this one.
    pub cached: u64,
    pub to_ask: u64,
    /// Estimated tokens of all prompts in `to_ask`.
    pub prompt_tokens: u64,
}

impl EvaluatorEstimate {
    /// Estimated usage, without the provider's prompt cache. The real cost is usually lower.
    pub fn usage(&self) -> CompletionUsage {
        CompletionUsage { prompt: self.prompt_tokens, completion: self.to_ask * ANSWER_TOKENS, cached_prompt: 0 }
    }
}

/// Sums up what trajectories would cost. It plans questions exactly as a run does, and shares its cache keys.
#[derive(Debug)]
pub struct CostEstimator {
    planner: QuestionPlanner,
    judge: Option<Arc<ModelJudge>>,
    cache: Option<VerdictCache>,
    asked: HashSet<QuestionKey>,
    estimates: Vec<EvaluatorEstimate>,
}

impl CostEstimator {
    pub fn new(
        evaluators: Vec<Evaluator>,
        judge: Option<Arc<ModelJudge>>,
        tools: ToolTexts,
        cache: Option<VerdictCache>,
    ) -> Self {
        let estimates = vec![EvaluatorEstimate::default(); evaluators.len()];
        let window = judge.as_ref().map(|judge| judge.settings.window);
        let planner = QuestionPlanner::new("", evaluators, tools, window, AnsweredQuestions::default());
        CostEstimator { planner, judge, cache, asked: HashSet::new(), estimates }
    }

    /// Adds one trajectory. It fails only if the verdict cache cannot be read.
    pub fn add(&mut self, trajectory: Trajectory) -> Result<(), RunFileError> {
        let planned = self.planner.plan(trajectory, false);
        for line in &planned.answered {
            if let Some(number) = self.planner.evaluator_index(&line.evaluator) {
                self.estimates[number].questions += 1;
            }
        }
        let Some(judge) = &self.judge else { return Ok(()) };
        for job in &planned.jobs {
            let question = self.planner.prepare_question(job);
            let key = judge.question_key(&question.rubric.hash, &question.prompt, 0);
            let estimate = &mut self.estimates[job.evaluator_index()];
            estimate.questions += 1;
            let is_cached = match &mut self.cache {
                Some(cache) => cache.get(key)?.is_some(),
                None => false,
            };
            if is_cached || !self.asked.insert(key) {
                estimate.cached += 1;
            } else {
                estimate.to_ask += 1;
                estimate.prompt_tokens += estimated_tokens(&question.prompt);
            }
        }
        Ok(())
    }

    /// One per evaluator, in their order.
    pub fn estimates(&self) -> &[EvaluatorEstimate] {
        &self.estimates
    }
}
