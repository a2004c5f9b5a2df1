//! The judge's verdicts on scripted runs compared with the truth about them.

use std::collections::BTreeMap;

use crate::trial::TrialLine;
use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::{
    ARGUMENT_PROVENANCE, CALL_VALIDITY, ERROR_RECOVERY, OUTCOME, QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY,
    TASK_COMPLETION, THOUGHT_TO_TOOL,
};
use gradus_eval::outcome::{OutcomeKind, OutcomeLine};
use serde::Serialize;

/// Evaluators with a known truth, and the label that means "wrong". Wrong is the positive class throughout.
pub(super) const DIMENSIONS: [(&str, &str); 4] = [
    (THOUGHT_TO_TOOL, "incorrect"),
    (QUERY_TO_THOUGHT, "incorrect"),
    (SEQUENCE_OPTIMALITY, "suboptimal"),
    (CALL_VALIDITY, "incorrect"),
];

/// Evaluators of whole runs. Whether they are right about a scripted run is only known if it failed: then a bad verdict is true.
const WHOLE_RUN_EVALUATORS: [&str; 3] = [OUTCOME, TASK_COMPLETION, ERROR_RECOVERY];

/// A confusion matrix. The positive class is "something is wrong".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictConfusionMatrix {
    /// True positives.
    pub found: u64,
    /// False negatives.
    pub missed: u64,
    /// False positives.
    pub alarms: u64,
    /// True negatives.
    pub right: u64,
    /// Cases that the judge could not decide. Not part of any ratio.
    pub abstained: u64,
    /// Of those, the cases in which something is wrong.
    pub abstained_wrong: u64,
    /// No verdict: the question did not apply, or the judge failed. Not part of any ratio.
    pub unjudged: u64,
}

/// The judge's verdict on one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JudgedAs {
    Wrong,
    Right,
    /// The judge cannot decide.
    Undecided,
    /// The question did not apply, was not asked, or failed.
    Unjudged,
}

impl VerdictConfusionMatrix {
    fn add_verdict(&mut self, is_wrong: bool, judged: JudgedAs) {
        *match (is_wrong, judged) {
            (_, JudgedAs::Undecided) => &mut self.abstained,
            (_, JudgedAs::Unjudged) => &mut self.unjudged,
            (true, JudgedAs::Wrong) => &mut self.found,
            (true, JudgedAs::Right) => &mut self.missed,
            (false, JudgedAs::Wrong) => &mut self.alarms,
            (false, JudgedAs::Right) => &mut self.right,
        } += 1;
        self.abstained_wrong += u64::from(is_wrong && judged == JudgedAs::Undecided);
    }

    /// Returns the share of true positives among verdicts of "wrong"; none if there are no such verdicts.
    pub fn precision(&self) -> Option<f64> {
        compute_ratio(self.found, self.found + self.alarms)
    }

    /// Returns the share of true positives among wrong cases; none if no case is wrong.
    pub fn recall(&self) -> Option<f64> {
        compute_ratio(self.found, self.found + self.missed)
    }

    /// Returns the mean of sensitivity and specificity, which is ½ for guessing however rare mistakes are. None if
    /// one class is empty.
    pub fn balanced_accuracy(&self) -> Option<f64> {
        let right = compute_ratio(self.right, self.right + self.alarms)?;
        Some(f64::midpoint(self.recall()?, right))
    }
}

/// Computes a ratio; none if the denominator is zero.
fn compute_ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// How many runs with one kind of mistake were noticed, and by whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DetectionCounts {
    pub runs: u64,
    /// Runs noticed by the judge: in a dimension and at a step that is wrong, or as a whole if the verifier failed them. For
    /// the oracle: runs with any alarm.
    pub by_judge: u64,
    /// Runs in which the judge noticed nothing, and could not decide about something that is wrong.
    pub judge_abstained: u64,
    /// Runs that broke one of the rules R1 to R24.
    pub by_rules: u64,
    /// Runs that the verifier failed.
    pub by_verifier: u64,
    /// Runs in which a replay found unnecessary steps.
    pub by_replay: u64,
    /// Runs noticed by at least one of the four.
    pub by_anyone: u64,
    /// Runs whose findings contradict the script.
    pub unexpected: u64,
    /// Runs about which a replay could not decide, which is not a contradiction.
    pub untold: u64,
    /// Runs whose mistake neither verifier, rules nor replay can see, such as an off-topic thought.
    pub unobservable: u64,
}

/// Agreement of judge and replay on whether a sequence has detours, over passed runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplayComparison {
    /// The replay found unnecessary steps, and the judge says suboptimal.
    pub both: u64,
    pub only_replay: u64,
    /// Only the judge says suboptimal. It may have another reason, such as an ignored error.
    pub only_judge: u64,
    pub neither: u64,
}

/// All comparisons of one benchmark.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgeAccuracy {
    /// By evaluation.
    pub dimensions: BTreeMap<&'static str, VerdictConfusionMatrix>,
    /// By policy.
    pub policies: BTreeMap<String, DetectionCounts>,
    pub replay: ReplayComparison,
    /// Runs whose trace has another number of steps than the script. They are left out of the matrices.
    pub misread: u64,
}

impl JudgeAccuracy {
    /// Adds one judged trial. Runs without a truth count for the comparison with replays only.
    pub fn add_trial(&mut self, line: &TrialLine, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let sequence = find_judgment(outcomes, SEQUENCE_OPTIMALITY, None);
        if let (Some(replay), true) = (&line.replay, line.passed) {
            let beside = &mut self.replay;
            let cell = match (!replay.needless.is_empty(), sequence) {
                (true, JudgedAs::Wrong) => Some(&mut beside.both),
                (true, JudgedAs::Right) => Some(&mut beside.only_replay),
                (false, JudgedAs::Wrong) => Some(&mut beside.only_judge),
                (false, JudgedAs::Right) => Some(&mut beside.neither),
                (_, JudgedAs::Undecided | JudgedAs::Unjudged) => None,
            };
            if let Some(count) = cell {
                *count += 1;
            }
        }
        let Some(truth) = &line.truth else { return };
        if trajectory.steps.len() != truth.steps.len() {
            self.misread += 1;
            return;
        }
        let (mut noticed, mut alarmed, mut undecided) = (false, false, false);
        let mut hold = |name: &'static str, is_wrong: bool, judged: JudgedAs| {
            self.dimensions.entry(name).or_default().add_verdict(is_wrong, judged);
            noticed |= is_wrong && judged == JudgedAs::Wrong;
            undecided |= is_wrong && judged == JudgedAs::Undecided;
            alarmed |= judged == JudgedAs::Wrong;
        };
        let provenance = |step: u32| find_judgment(outcomes, ARGUMENT_PROVENANCE, Some(step)) == JudgedAs::Wrong;
        let mut is_value_flagged = (false, false);
        for (step, true_step) in trajectory.steps.iter().zip(&truth.steps) {
            let is_step_right = true_step.tool_fits_thought && true_step.thought_fits_request && true_step.is_valid;
            is_value_flagged.0 |= provenance(step.index);
            is_value_flagged.1 |= provenance(step.index) && !is_step_right;
            for (name, is_right) in [
                (THOUGHT_TO_TOOL, true_step.tool_fits_thought),
                (QUERY_TO_THOUGHT, true_step.thought_fits_request),
                (CALL_VALIDITY, true_step.is_valid),
            ] {
                hold(name, !is_right, find_judgment(outcomes, name, Some(step.index)));
            }
        }
        // A run without steps has no sequence that could be judged.
        if !truth.steps.is_empty() {
            hold(SEQUENCE_OPTIMALITY, !truth.is_optimal(), sequence);
        }
        let whole = || WHOLE_RUN_EVALUATORS.iter().map(|name| find_judgment(outcomes, name, None));
        let is_run_flagged = whole().any(|judged| judged == JudgedAs::Wrong);
        alarmed |= is_run_flagged || is_value_flagged.0;
        noticed |= (is_run_flagged && !line.passed) || is_value_flagged.1;
        undecided |= !line.passed && whole().any(|judged| judged == JudgedAs::Undecided);
        let is_oracle = truth.step.is_none() && truth.is_optimal();
        let row = self.policies.entry(truth.policy.clone()).or_default();
        let by_judge = if is_oracle { alarmed } else { noticed };
        let by_replay = line.replay.as_ref().is_some_and(|replay| !replay.needless.is_empty());
        row.runs += 1;
        row.by_judge += u64::from(by_judge);
        row.judge_abstained += u64::from(!by_judge && undecided);
        row.by_rules += u64::from(!line.clean);
        row.by_verifier += u64::from(!line.passed);
        row.by_replay += u64::from(by_replay);
        row.by_anyone += u64::from(by_judge || !line.clean || !line.passed || by_replay);
        let is_unexpected = !line.differences.is_empty();
        row.unexpected += u64::from(is_unexpected);
        row.untold += u64::from(!is_unexpected && !line.untold.is_empty());
        row.unobservable += u64::from(!is_unexpected && !is_oracle && !truth.is_observable());
    }
}

/// Finds the judge's verdict on a step, or on the whole run.
fn find_judgment(outcomes: &[OutcomeLine], evaluator: &str, step: Option<u32>) -> JudgedAs {
    let Some(line) = outcomes.iter().find(|line| *line.evaluator == *evaluator && line.step_index == step) else {
        return JudgedAs::Unjudged;
    };
    let wrong_label = DIMENSIONS.iter().find(|(name, _)| *name == evaluator).map(|(_, wrong)| *wrong);
    let is_wrong = match wrong_label {
        Some(wrong) => line.label.as_deref() == Some(wrong),
        // The scales of the other built-in evaluators end at 1.
        None => line.score.is_some_and(|score| score < 1.0),
    };
    match line.outcome {
        OutcomeKind::Scored if is_wrong => JudgedAs::Wrong,
        OutcomeKind::Scored => JudgedAs::Right,
        OutcomeKind::Abstained => JudgedAs::Undecided,
        OutcomeKind::NotApplicable | OutcomeKind::Failed => JudgedAs::Unjudged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let mut confusion = VerdictConfusionMatrix::default();
        for (is_wrong, judged) in [
            (true, JudgedAs::Wrong),
            (true, JudgedAs::Right),
            (false, JudgedAs::Wrong),
            (false, JudgedAs::Right),
            (false, JudgedAs::Right),
            (true, JudgedAs::Unjudged),
            (true, JudgedAs::Undecided),
            (false, JudgedAs::Undecided),
        ] {
            confusion.add_verdict(is_wrong, judged);
        }
        assert_eq!((confusion.abstained, confusion.abstained_wrong, confusion.unjudged), (2, 1, 1));
        assert_eq!((confusion.precision(), confusion.recall()), (Some(0.5), Some(0.5)));
        assert!(confusion.balanced_accuracy().is_some_and(|share| (share - 7.0 / 12.0).abs() < 1e-12));
        assert_eq!(VerdictConfusionMatrix::default().precision(), None);
    }
}
