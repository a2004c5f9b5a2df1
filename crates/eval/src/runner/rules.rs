//! Judging without waiting: what rules can answer is answered at once.

use gradus_core::trajectory::Trajectory;

use super::done::AnsweredQuestions;
use super::plan::QuestionPlanner;
use crate::evaluator::Evaluator;
use crate::outcome::OutcomeLine;
use crate::prompt::ToolTexts;

/// Answers the questions that need no model.
#[derive(Debug)]
pub struct RulesJudge(QuestionPlanner);

impl RulesJudge {
    /// Takes those of the evaluators that ask no model.
    pub fn new(run_id: &str, evaluators: &[Evaluator], tools: ToolTexts) -> RulesJudge {
        let own = evaluators.iter().filter(|evaluator| !evaluator.asks_a_model()).cloned().collect();
        RulesJudge(QuestionPlanner::new(run_id, own, tools, None, AnsweredQuestions::default()))
    }

    pub fn judge(&mut self, trajectory: Trajectory) -> Vec<OutcomeLine> {
        self.0.plan(trajectory, false).answered
    }
}
