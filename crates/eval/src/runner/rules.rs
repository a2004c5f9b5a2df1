//! Judges without a model and without waiting.

use gradus_core::trajectory::Trajectory;

use super::answered_questions::AnsweredQuestions;
use super::plan::QuestionPlanner;
use crate::evaluator::Evaluator;
use crate::outcome::OutcomeLine;
use crate::prompt::ToolTexts;

/// Answers the evaluators that need no model. The server uses it while it assembles, before any model is asked.
#[derive(Debug)]
pub struct RulesJudge(QuestionPlanner);

impl RulesJudge {
    /// Keeps the evaluators that need no model and ignores the others.
    pub fn new(run_id: &str, evaluators: &[Evaluator], tools: ToolTexts) -> RulesJudge {
        let own = evaluators.iter().filter(|evaluator| !evaluator.asks_model()).cloned().collect();
        RulesJudge(QuestionPlanner::new(run_id, own, tools, None, AnsweredQuestions::default()))
    }

    /// One outcome per evaluator and step or trajectory.
    pub fn judge(&mut self, trajectory: Trajectory) -> Vec<OutcomeLine> {
        self.0.plan(trajectory, false).answered
    }
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::TrajectoryStep;

    use super::*;
    use crate::evaluator_selection::select_evaluators;
    use crate::outcome::OutcomeKind;
    use crate::rubric::RubricLibrary;

    /// The row has the number after the last step, and steps may have gaps.
    #[test]
    fn the_rules_abstain_from_the_final_thought() {
        let names = ["query_to_thought".to_owned(), "call_validity".to_owned()];
        let selection = select_evaluators(&RubricLibrary::built_in(), &names, None, true, false).expect("evaluators");
        let step = TrajectoryStep { index: 4, tool: "read".to_owned(), ..TrajectoryStep::default() };
        let trajectory = Trajectory {
            query: Some("What is in a.txt?".to_owned()),
            steps: vec![step],
            final_thought: Some("I know enough.".to_owned()),
            ..Trajectory::default()
        };
        let mut judge = RulesJudge::new("run", &selection.evaluators, ToolTexts::default());
        let lines = judge.judge(trajectory.clone());
        let rows: Vec<(&str, Option<u32>)> = lines.iter().map(|line| (&*line.evaluator, line.step_index)).collect();
        assert_eq!(rows, [("query_to_thought", Some(4)), ("query_to_thought", Some(5)), ("call_validity", Some(4))]);
        assert_eq!(lines[1].outcome, OutcomeKind::Abstained);
        let lines = judge.judge(Trajectory { final_thought: Some("  ".to_owned()), ..trajectory });
        assert_eq!(lines.len(), 2, "a blank thought is none");
    }
}
