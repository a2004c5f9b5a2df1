//! Combines the answers on one step, and those on a whole trajectory.

use crate::evaluator::REQUEST_TO_TOOL;
use crate::evaluator::{QUERY_TO_THOUGHT, THOUGHT_TO_TOOL};

/// The status of one question, for combining several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QuestionStatus {
    Right,
    Wrong,
    Failed,
    /// The judge cannot decide it, or gave a label without a score.
    Abstained,
    /// The question does not apply, or the run has no such evaluator.
    Absent,
    /// The run stopped before the question was asked.
    Unasked,
}

/// The answers on one step.
pub(super) struct StepStatuses {
    /// Those about its thought: `thought_to_tool` and `query_to_thought`.
    of_thought: [QuestionStatus; 2],
    /// `request_to_tool`, which applies where there is no thought.
    of_request: QuestionStatus,
}

impl StepStatuses {
    /// Looks the questions up by the names of their evaluators.
    pub(super) fn from_questions(status_of: impl Fn(&str) -> QuestionStatus) -> StepStatuses {
        StepStatuses {
            of_thought: [status_of(THOUGHT_TO_TOOL), status_of(QUERY_TO_THOUGHT)],
            of_request: status_of(REQUEST_TO_TOOL),
        }
    }

    /// All answers, in no particular order.
    pub(super) fn all(&self) -> [QuestionStatus; 3] {
        [self.of_thought[0], self.of_thought[1], self.of_request]
    }

    /// Combines the answers. A step with a thought needs both answers about it; one without is judged by the request
    /// alone.
    pub(super) fn combine(&self) -> QuestionStatus {
        if self.all().contains(&QuestionStatus::Unasked) {
            return QuestionStatus::Unasked;
        }
        if self.of_thought == [QuestionStatus::Absent; 2] {
            return self.of_request;
        }
        let decided = combine_all(&self.of_thought);
        let is_partial = self.of_thought.contains(&QuestionStatus::Absent);
        if is_partial && matches!(decided, QuestionStatus::Right | QuestionStatus::Wrong) {
            return QuestionStatus::Absent;
        }
        decided
    }
}

/// Combines how a run ended with the answers on its steps and its sequence. A run that crashed is never right. One
/// that ended well is right only if another question was answered: an answer without any step proves nothing.
pub(super) fn combine_trajectory(ending: QuestionStatus, others: &[QuestionStatus]) -> QuestionStatus {
    match (combine_all(others), ending) {
        (QuestionStatus::Unasked, _) | (_, QuestionStatus::Unasked) => QuestionStatus::Unasked,
        (QuestionStatus::Absent, QuestionStatus::Wrong) => QuestionStatus::Wrong,
        (QuestionStatus::Absent, _) => QuestionStatus::Absent,
        (decided, ending) => combine_all(&[decided, ending]),
    }
}

/// Returns `Right` if all applicable questions are right. A failed or undecided question leaves the result open, even
/// if another one is wrong: otherwise missing answers could only lower the share.
fn combine_all(statuses: &[QuestionStatus]) -> QuestionStatus {
    use QuestionStatus::{Absent, Abstained, Failed, Right, Unasked, Wrong};
    let precedence = [Unasked, Failed, Abstained, Wrong, Right];
    precedence.into_iter().find(|status| statuses.contains(status)).unwrap_or(Absent)
}

#[cfg(test)]
mod tests {
    use super::QuestionStatus::{Absent, Abstained, Failed, Right, Unasked, Wrong};
    use super::*;

    fn step(thought: QuestionStatus, query: QuestionStatus, request: QuestionStatus) -> QuestionStatus {
        StepStatuses { of_thought: [thought, query], of_request: request }.combine()
    }

    #[test]
    fn a_step_is_right_in_the_dimensions_that_apply() {
        assert_eq!(step(Right, Right, Absent), Right);
        assert_eq!(step(Right, Wrong, Absent), Wrong);
        assert_eq!(step(Absent, Absent, Right), Right);
        assert_eq!(step(Absent, Absent, Wrong), Wrong);
        assert_eq!(step(Absent, Absent, Abstained), Abstained);
        assert_eq!(step(Absent, Absent, Absent), Absent);
    }

    #[test]
    fn a_step_without_all_answers_is_neither_right_nor_wrong() {
        assert_eq!(step(Right, Absent, Absent), Absent);
        assert_eq!(step(Wrong, Abstained, Absent), Abstained);
        assert_eq!(step(Abstained, Failed, Absent), Failed);
        assert_eq!(step(Right, Right, Unasked), Unasked);
    }

    #[test]
    fn a_dead_run_is_never_right() {
        for others in [vec![Right, Right], vec![Right, Absent], vec![], vec![Absent], vec![Abstained, Right]] {
            assert_ne!(combine_trajectory(Wrong, &others), Right, "{others:?}");
        }
        assert_eq!(combine_trajectory(Wrong, &[Right]), Wrong);
        assert_eq!(combine_trajectory(Wrong, &[]), Wrong);
    }

    #[test]
    fn an_ending_alone_does_not_make_a_run_right() {
        assert_eq!(combine_trajectory(Right, &[Right, Absent]), Right);
        assert_eq!(combine_trajectory(Right, &[Absent]), Absent);
        assert_eq!(combine_trajectory(Absent, &[Right]), Right);
        assert_eq!(combine_trajectory(Abstained, &[Right]), Abstained);
        assert_eq!(combine_trajectory(Right, &[Right, Abstained]), Abstained);
        assert_eq!(combine_trajectory(Right, &[Right, Unasked]), Unasked);
    }
}
