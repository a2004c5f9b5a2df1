//! What a judge said of scripted runs, held against what is true of them.

use std::collections::BTreeMap;

use crate::trial::TrialLine;
use gradus_core::trajectory::Trajectory;
use gradus_eval::evaluator::{CALL_VALIDITY, QUERY_TO_THOUGHT, SEQUENCE_OPTIMALITY, THOUGHT_TO_TOOL};
use gradus_eval::outcome::OutcomeLine;
use serde::Serialize;

/// The evaluations that have a truth, and the label of what is wrong.
pub(super) const DIMENSIONS: [(&str, &str); 4] = [
    (THOUGHT_TO_TOOL, "incorrect"),
    (QUERY_TO_THOUGHT, "incorrect"),
    (SEQUENCE_OPTIMALITY, "suboptimal"),
    (CALL_VALIDITY, "incorrect"),
];

/// How verdicts and truth go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictConfusionMatrix {
    /// Wrong, and said to be wrong.
    pub found: u64,
    /// Wrong, and said to be right.
    pub missed: u64,
    /// Right, and said to be wrong.
    pub alarms: u64,
    /// Right, and said to be right.
    pub right: u64,
    /// The judge said nothing.
    pub unjudged: u64,
}

impl VerdictConfusionMatrix {
    fn add_verdict(&mut self, is_wrong: bool, said_wrong: Option<bool>) {
        *match (is_wrong, said_wrong) {
            (_, None) => &mut self.unjudged,
            (true, Some(true)) => &mut self.found,
            (true, Some(false)) => &mut self.missed,
            (false, Some(true)) => &mut self.alarms,
            (false, Some(false)) => &mut self.right,
        } += 1;
    }

    /// Of what it called wrong, the share that is.
    pub fn precision(&self) -> Option<f64> {
        compute_ratio(self.found, self.found + self.alarms)
    }

    /// Of what is wrong, the share that it called wrong.
    pub fn recall(&self) -> Option<f64> {
        compute_ratio(self.found, self.found + self.missed)
    }

    /// The mean of the shares it gets right of what is wrong and of what is right; guessing gives a half.
    pub fn balanced_accuracy(&self) -> Option<f64> {
        let right = compute_ratio(self.right, self.right + self.alarms)?;
        Some(f64::midpoint(self.recall()?, right))
    }
}

fn compute_ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Who noticed one kind of mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DetectionCounts {
    pub runs: u64,
    /// The judge, in a dimension and at a step where something is wrong. Of the oracle: anywhere.
    pub by_judge: u64,
    /// The rules R1 to R24.
    pub by_rules: u64,
    /// The task was not done.
    pub by_verifier: u64,
    /// A replay, of those that were replayed.
    pub by_replay: u64,
    pub by_anyone: u64,
    /// Runs that came out otherwise than scripted.
    pub unexpected: u64,
    /// Runs of which a replay could not tell what is true, which is no finding.
    pub untold: u64,
    /// Runs in which verifier, rules and replay have nothing to find, and found nothing.
    pub unobservable: u64,
}

/// The judge's opinion of sequences beside what replays found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplayComparison {
    /// Steps could be left out, and the judge says suboptimal.
    pub both: u64,
    pub only_replay: u64,
    /// The judge may have another reason: a failure that was passed over, say.
    pub only_judge: u64,
    pub neither: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgeAccuracy {
    /// By evaluation.
    pub dimensions: BTreeMap<&'static str, VerdictConfusionMatrix>,
    /// By policy.
    pub policies: BTreeMap<String, DetectionCounts>,
    pub replay: ReplayComparison,
    /// Runs whose trace does not show the steps that were scripted.
    pub misread: u64,
}

impl JudgeAccuracy {
    pub fn add_trial(&mut self, line: &TrialLine, trajectory: &Trajectory, outcomes: &[OutcomeLine]) {
        let sequence = said_wrong(outcomes, SEQUENCE_OPTIMALITY, None);
        if let (Some(replay), Some(said), true) = (&line.replay, sequence, line.passed) {
            let beside = &mut self.replay;
            *match (!replay.needless.is_empty(), said) {
                (true, true) => &mut beside.both,
                (true, false) => &mut beside.only_replay,
                (false, true) => &mut beside.only_judge,
                (false, false) => &mut beside.neither,
            } += 1;
        }
        let Some(truth) = &line.truth else { return };
        if trajectory.steps.len() != truth.steps.len() {
            self.misread += 1;
            return;
        }
        let mut noticed = false;
        let mut alarmed = false;
        let mut hold = |name: &'static str, is_wrong: bool, said: Option<bool>| {
            self.dimensions.entry(name).or_default().add_verdict(is_wrong, said);
            noticed |= is_wrong && said == Some(true);
            alarmed |= said == Some(true);
        };
        for (step, true_step) in trajectory.steps.iter().zip(&truth.steps) {
            for (name, is_right) in [
                (THOUGHT_TO_TOOL, true_step.tool_fits_thought),
                (QUERY_TO_THOUGHT, true_step.thought_fits_request),
                (CALL_VALIDITY, true_step.is_valid),
            ] {
                hold(name, !is_right, said_wrong(outcomes, name, Some(step.index)));
            }
        }
        if !truth.steps.is_empty() {
            hold(SEQUENCE_OPTIMALITY, !truth.is_optimal(), sequence);
        }
        let is_oracle = truth.step.is_none() && truth.is_optimal();
        let row = self.policies.entry(truth.policy.clone()).or_default();
        let by_judge = if is_oracle { alarmed } else { noticed };
        let by_replay = line.replay.as_ref().is_some_and(|replay| !replay.needless.is_empty());
        row.runs += 1;
        row.by_judge += u64::from(by_judge);
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

/// None where the judge gave no verdict.
fn said_wrong(outcomes: &[OutcomeLine], evaluator: &str, step: Option<u32>) -> Option<bool> {
    let (_, wrong) = DIMENSIONS.iter().find(|(name, _)| *name == evaluator)?;
    let outcome = outcomes.iter().find(|line| *line.evaluator == *evaluator && line.step_index == step)?;
    outcome.is_scored().then(|| outcome.label.as_deref() == Some(*wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let mut confusion = VerdictConfusionMatrix::default();
        for (is_wrong, said) in [
            (true, Some(true)),
            (true, Some(false)),
            (false, Some(true)),
            (false, Some(false)),
            (false, Some(false)),
            (true, None),
        ] {
            confusion.add_verdict(is_wrong, said);
        }
        assert_eq!((confusion.precision(), confusion.recall()), (Some(0.5), Some(0.5)));
        assert!(confusion.balanced_accuracy().is_some_and(|share| (share - 7.0 / 12.0).abs() < 1e-12));
        assert_eq!(VerdictConfusionMatrix::default().precision(), None);
    }
}
