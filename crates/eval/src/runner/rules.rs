//! Judges without a model and without waiting.

use gradus_core::trajectory::Trajectory;

use super::plan::QuestionPlanner;
use super::progress_order::AnsweredQuestions;
use crate::evaluator::Evaluator;
use crate::outcome::OutcomeLine;
use crate::prompt::ToolTexts;

/// Answers the evaluators that need no model. The server uses it while it assembles, before any model is asked.
#[derive(Debug)]
pub struct RulesJudge(QuestionPlanner);

impl RulesJudge {
    /// Keeps the evaluators that need no model and ignores the others.
    pub fn new(run_id: &str, evaluators: &[Evaluator], tools: ToolTexts) -> RulesJudge {
        let own = evaluators.iter().filter(|evaluator| !evaluator.asks_a_model()).cloned().collect();
        RulesJudge(QuestionPlanner::new(run_id, own, tools, None, AnsweredQuestions::default()))
    }

    /// One outcome per evaluator and step or trajectory.
    pub fn judge(&mut self, trajectory: Trajectory) -> Vec<OutcomeLine> {
        self.0.plan(trajectory, false).answered
    }
}
