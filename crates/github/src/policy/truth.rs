//! What is true of a scripted run, since it was made so: which steps are right, whether the way is the shortest, whether
//! the task is done in the end, which rules are broken.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// `oracle`, or the flaw's name.
    pub policy: String,
    /// Which of the ways to make this mistake in this task.
    pub variant: String,
    /// Where the mistake is, from 1; none where there is none, or where nothing was done at all.
    pub step: Option<usize>,
    pub steps: Vec<StepTruth>,
    /// Why the sequence is not the best there is; none where it is.
    pub detour: Option<String>,
    /// Whether the task is done in the end, and nothing else.
    pub passes: bool,
    /// Rules that are broken for certain.
    pub broken: Vec<String>,
    /// Rules that may count as broken by the same mistake, depending on how far its effects are followed.
    pub concerned: Vec<String>,
    /// Steps without which the run comes to the same; none where the run fails, and nothing is said about that.
    pub needless: Option<Vec<Needless>>,
}

/// Of a set of equal steps, so many can be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needless {
    pub among: Vec<usize>,
    pub count: usize,
    /// Whether a replay must see it: what was refused may be what the final message tells of.
    pub is_plain: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTruth {
    /// The tool, on these things, does what the thought says.
    pub tool_fits_thought: bool,
    /// The thought is about the request.
    pub thought_fits_request: bool,
    /// The tool can take the call.
    pub is_valid: bool,
    /// What is wrong, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl StepTruth {
    pub(super) fn right() -> StepTruth {
        StepTruth { tool_fits_thought: true, thought_fits_request: true, is_valid: true, note: String::new() }
    }

    pub(super) fn noted(note: impl Into<String>) -> StepTruth {
        StepTruth { note: note.into(), ..StepTruth::right() }
    }
}

/// What was found of a run, to be held against its truth.
#[derive(Clone, Copy, Debug)]
pub struct Found<'f> {
    pub steps: usize,
    pub passed: bool,
    /// The rules that were broken.
    pub broken: &'f [String],
    /// What a replay calls unnecessary, from 1; none if there was none.
    pub needless: Option<&'f [usize]>,
    /// Of which steps it says that it cannot tell.
    pub unknown: &'f [usize],
}

impl Truth {
    pub fn is_optimal(&self) -> bool {
        self.detour.is_none()
    }

    /// Where what was found differs from what is true, one line each.
    pub fn differences(&self, found: &Found<'_>) -> Vec<String> {
        let mut differences = Vec::new();
        if found.steps != self.steps.len() {
            differences.push(format!("{} steps, {} were scripted", found.steps, self.steps.len()));
        }
        match (self.passes, found.passed) {
            (true, false) => differences.push("it should pass, and fails".to_owned()),
            (false, true) => differences.push("it should fail, and passes".to_owned()),
            _ => {}
        }
        let missed = self.broken.iter().filter(|rule| !found.broken.contains(rule));
        differences.extend(missed.map(|rule| format!("{rule} should be broken, and is not")));
        let is_expected = |rule: &&String| self.broken.contains(rule) || self.concerned.contains(rule);
        let alarms = found.broken.iter().filter(|rule| !is_expected(rule));
        differences.extend(alarms.map(|rule| format!("{rule} is broken, and should not be")));
        if let (Some(truth), Some(said)) = (&self.needless, found.needless) {
            let mut rest: Vec<usize> = said.to_vec();
            for group in truth {
                let named = rest.iter().filter(|step| group.among.contains(step)).count();
                let unknown = found.unknown.iter().filter(|step| group.among.contains(step)).count();
                let least = if group.is_plain { group.count } else { 0 };
                if named > group.count || named + unknown < least {
                    let Needless { among, count, .. } = group;
                    differences
                        .push(format!("{count} of steps {among:?} are needless, the replay names {named}"));
                }
                rest.retain(|step| !group.among.contains(step));
            }
            if !rest.is_empty() {
                differences.push(format!("the replay calls steps {rest:?} needless, which are not"));
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found() {
        let truth = Truth {
            steps: vec![StepTruth::right(); 3],
            passes: true,
            broken: vec!["R19".to_owned()],
            concerned: vec!["R12".to_owned()],
            needless: Some(vec![Needless { among: vec![1, 2], count: 1, is_plain: true }]),
            ..Truth::default()
        };
        let rules = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let check = |steps, passed, broken: &[&str], needless: Option<&[usize]>| {
            truth.differences(&Found { steps, passed, broken: &rules(broken), needless, unknown: &[] })
        };
        assert!(check(3, true, &["R19"], Some(&[2])).is_empty());
        assert!(check(3, true, &["R19", "R12"], None).is_empty());
        assert_eq!(check(3, false, &["R19"], Some(&[1])).len(), 1);
        assert_eq!(check(2, true, &["R1"], Some(&[1, 2, 3])).len(), 5);
    }
}
