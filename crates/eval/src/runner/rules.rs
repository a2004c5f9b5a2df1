//! Judging without waiting: what rules can answer is answered at once.

use gradus_core::trajectory::Trajectory;

use super::done::Done;
use super::plan::Planner;
use crate::evaluator::Evaluator;
use crate::outcome::OutcomeLine;
use crate::prompt::ToolTexts;

/// Answers the questions that need no model.
#[derive(Debug)]
pub struct RulesJudge(Planner);

impl RulesJudge {
    /// Takes those of the evaluators that ask no model.
    pub fn new(run_id: &str, evaluators: &[Evaluator], tools: ToolTexts) -> RulesJudge {
        let own = evaluators.iter().filter(|evaluator| !evaluator.asks_a_model()).cloned().collect();
        RulesJudge(Planner::new(run_id, own, tools, None, Done::default()))
    }

    pub fn judge(&mut self, trajectory: Trajectory) -> Vec<OutcomeLine> {
        self.0.plan(trajectory, false).answered
    }
}
