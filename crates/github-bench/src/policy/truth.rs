//! The truth about a scripted run, known by construction: which steps are right, whether the sequence is optimal,
//! whether the task passes, which rules break. [`RunTruth::compare`] holds it against what was found.

use serde::{Deserialize, Serialize};

use crate::rules::RuleFinding;

/// Written to `trials.jsonl` and, as labels, next to traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTruth {
    /// `oracle`, or the flaw's name.
    pub policy: String,
    /// The variant of the mistake in this task.
    pub variant: String,
    /// The step with the mistake, from 1. None if there is none, or if the mistake is to have done nothing.
    pub step: Option<usize>,
    /// One entry per step of the script.
    pub steps: Vec<StepTruth>,
    /// Why the sequence is not optimal; none if it is.
    pub detour: Option<String>,
    /// Whether the verifier must accept the run.
    pub passes: bool,
    /// Rules that must report a breach. Any other breach is a false alarm.
    pub broken: Vec<ExpectedBreach>,
    /// Rules that may or may not report the same mistake, depending on the world. Neither outcome is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concerned: Vec<String>,
    /// Steps that a replay must find unnecessary. None if the run fails, since replays of failed runs only find
    /// repetitions.
    pub needless: Option<Vec<RedundantSteps>>,
}

/// A rule and where it must report the breach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExpectedBreach {
    /// `R1` to `R24`.
    pub rule: String,
    /// The step that must be named, from 1; none if the final message breaks the rule.
    pub step: Option<usize>,
}

/// Of these interchangeable steps (from 1), this number can be left out. Which ones does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedundantSteps {
    /// Step numbers, from 1.
    pub among: Vec<usize>,
    pub count: usize,
}

/// The right verdicts on one step, in the dimensions of the judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTruth {
    /// Whether the call does what the thought says, on the objects that it names.
    pub tool_fits_thought: bool,
    /// Whether the thought is about the request.
    pub thought_fits_request: bool,
    /// Whether the call satisfies the schema of the tool.
    pub is_valid: bool,
    /// What is wrong, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl StepTruth {
    pub(super) fn correct() -> StepTruth {
        StepTruth { tool_fits_thought: true, thought_fits_request: true, is_valid: true, note: String::new() }
    }

    /// Returns a truth that is right in all dimensions, with a note for the reader of the labels.
    pub(super) fn correct_with_note(note: impl Into<String>) -> StepTruth {
        StepTruth { note: note.into(), ..StepTruth::correct() }
    }
}

/// What verifier, rules and replay found in a run.
#[derive(Clone, Copy, Debug)]
pub struct RunAssessment<'f> {
    pub steps: usize,
    pub passed: bool,
    /// The rules that were broken.
    pub broken: &'f [RuleFinding],
    /// Steps that a replay calls unnecessary, from 1; none if there was no replay.
    pub needless: Option<&'f [usize]>,
    /// Steps about which the replay could not decide.
    pub unknown: &'f [usize],
}

/// The result of a comparison. Differences are errors of a measuring instrument; open questions are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TruthComparison {
    /// Findings that contradict the truth, one line each.
    pub differences: Vec<String>,
    /// True statements that the replay left undecided.
    pub untold: Vec<String>,
}

impl RunTruth {
    /// Whether no shorter sequence solves the task.
    pub fn is_optimal(&self) -> bool {
        self.detour.is_none()
    }

    /// Whether verifier, rules or a replay can find anything. An off-topic thought changes nothing that they see, so
    /// such a run says nothing about them and is counted apart.
    pub fn is_observable(&self) -> bool {
        let is_needless = self.needless.as_ref().is_some_and(|groups| !groups.is_empty());
        !self.passes || !self.broken.is_empty() || is_needless
    }

    /// Compares findings with the truth. Every line names one difference.
    pub fn compare(&self, found: &RunAssessment<'_>) -> TruthComparison {
        let mut differences = Vec::new();
        if found.steps != self.steps.len() {
            differences.push(format!("{} steps, {} were scripted", found.steps, self.steps.len()));
        }
        match (self.passes, found.passed) {
            (true, false) => differences.push("it should pass, and fails".to_owned()),
            (false, true) => differences.push("it should fail, and passes".to_owned()),
            _ => {}
        }
        for ExpectedBreach { rule, step } in &self.broken {
            match (found.broken.iter().find(|finding| finding.rule == *rule), step) {
                (None, _) => differences.push(format!("{rule} should be broken, and is not")),
                (Some(finding), Some(step)) if !finding.steps.contains(step) => {
                    differences.push(format!("{rule} should be broken by step {step}, not by {:?}", finding.steps))
                }
                (Some(_), _) => {}
            }
        }
        let is_expected =
            |rule: &str| self.broken.iter().any(|one| one.rule == rule) || self.concerned.iter().any(|one| one == rule);
        let alarms = found.broken.iter().filter(|finding| !is_expected(&finding.rule));
        differences.extend(alarms.map(|finding| format!("{} is broken, and should not be", finding.rule)));
        let mut untold = Vec::new();
        if let (Some(truth), Some(said)) = (&self.needless, found.needless) {
            let mut rest: Vec<usize> = said.to_vec();
            for RedundantSteps { among, count } in truth {
                let within = |steps: &[usize]| steps.iter().filter(|step| among.contains(step)).count();
                let (named, unknown) = (within(said), within(found.unknown));
                let is = if *count == 1 { "is" } else { "are" };
                let text =
                    format!("of {}, {count} {is} needless; the replay names {named}", format_step_numbers(among));
                // The replay left the missing steps undecided.
                if named < *count && named + unknown >= *count {
                    untold.push(format!("{text} and cannot tell of {unknown}"));
                } else if named != *count {
                    differences.push(text);
                }
                rest.retain(|step| !among.contains(step));
            }
            if !rest.is_empty() {
                let is = if rest.len() == 1 { "is" } else { "are" };
                differences.push(format!("the replay calls {} needless, which {is} not", format_step_numbers(&rest)));
            }
        }
        TruthComparison { differences, untold }
    }
}

/// Formats step numbers: "step 6", "steps 1, 2 and 5".
fn format_step_numbers(numbers: &[usize]) -> String {
    let told: Vec<String> = numbers.iter().map(usize::to_string).collect();
    match told.as_slice() {
        [only] => format!("step {only}"),
        [before @ .., last] => format!("steps {} and {last}", before.join(", ")),
        [] => "no steps".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RuleOutcome, RuleSeverity};

    fn broken(rules: &[(&str, &[usize])]) -> Vec<RuleFinding> {
        let finding = |(rule, steps): &(&str, &[usize])| RuleFinding {
            rule: (*rule).to_owned(),
            name: String::new(),
            severity: RuleSeverity::Minor,
            outcome: RuleOutcome::Fail,
            steps: steps.to_vec(),
            why: String::new(),
        };
        rules.iter().map(finding).collect()
    }

    #[test]
    fn differences_are_found() {
        let truth = RunTruth {
            steps: vec![StepTruth::correct(); 3],
            passes: true,
            broken: vec![ExpectedBreach { rule: "R19".to_owned(), step: Some(2) }],
            concerned: vec!["R12".to_owned()],
            needless: Some(vec![RedundantSteps { among: vec![1, 2], count: 1 }]),
            ..RunTruth::default()
        };
        let check = |steps, passed, rules: &[(&str, &[usize])], needless: Option<&[usize]>, unknown: &[usize]| {
            let found = RunAssessment { steps, passed, broken: &broken(rules), needless, unknown };
            let TruthComparison { differences, untold } = truth.compare(&found);
            (differences.len(), untold.len())
        };
        assert!(truth.is_observable());
        assert_eq!(check(3, true, &[("R19", &[2, 3])], Some(&[2]), &[]), (0, 0));
        assert_eq!(check(3, true, &[("R19", &[2]), ("R12", &[])], None, &[]), (0, 0));
        assert_eq!(check(3, false, &[("R19", &[2])], Some(&[1]), &[]), (1, 0));
        assert_eq!(check(2, true, &[("R1", &[])], Some(&[1, 2, 3]), &[]), (5, 0));
        assert_eq!(check(3, true, &[("R19", &[3])], Some(&[1]), &[]), (1, 0), "broken elsewhere");
        assert_eq!(check(3, true, &[("R19", &[2])], Some(&[]), &[]), (1, 0), "called needed");
        assert_eq!(check(3, true, &[("R19", &[2])], Some(&[]), &[1, 2]), (0, 1), "not told is not found");
    }

    #[test]
    fn steps_are_told_in_plain_words() {
        let told = |among: &[usize], count, said: &[usize], unknown: &[usize]| {
            let needless = Some(vec![RedundantSteps { among: among.to_vec(), count }]);
            let truth = RunTruth { passes: true, needless, ..RunTruth::default() };
            let found = RunAssessment { steps: 0, passed: true, broken: &[], needless: Some(said), unknown };
            let TruthComparison { differences, untold } = truth.compare(&found);
            [differences, untold].concat().join(" | ")
        };
        assert_eq!(told(&[6], 1, &[], &[6]), "of step 6, 1 is needless; the replay names 0 and cannot tell of 1");
        assert_eq!(
            told(&[1, 2, 5], 2, &[1, 7], &[]),
            "of steps 1, 2 and 5, 2 are needless; the replay names 1 | the replay calls step 7 needless, which is not"
        );
        assert_eq!(told(&[], 0, &[3, 4], &[]), "the replay calls steps 3 and 4 needless, which are not");
    }

    #[test]
    fn a_thought_alone_cannot_be_observed() {
        let truth = RunTruth { step: Some(1), passes: true, needless: Some(Vec::new()), ..RunTruth::default() };
        assert!(!truth.is_observable());
        assert!(RunTruth { passes: false, needless: None, ..truth }.is_observable());
    }
}
