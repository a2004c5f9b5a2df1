//! Steps that a verdict on the whole trajectory mentions. Such a verdict belongs to no step, but its explanation
//! usually names the steps that caused it.

use std::collections::{BTreeMap, BTreeSet};

use gradus_core::trajectory::Trajectory;

use super::address::PageUrl;
use super::step::StepView;
use super::verdict::VerdictDetailView;
use crate::evaluators::find_evaluator_title;
use crate::page::address::format_step_anchor;
use crate::recorded_verdict::RecordedVerdict;
use crate::settings::ReloadableSettings;

/// Maximum number of steps that are taken from one verdict.
const MAX_MENTIONED_STEPS: usize = 20;
/// Maximum number of bytes of an explanation that are searched.
const MAX_EXPLANATION_SCAN_BYTES: usize = 20_000;

/// Mentions in wrong verdicts on the whole trajectory.
#[derive(Default)]
pub(super) struct StepMentions {
    /// Titles of evaluators by step. Steps with a wrong verdict of their own are left out: they are marked already.
    by_step: BTreeMap<u32, Vec<String>>,
    /// Mentioned steps by title of the evaluator, including those with a wrong verdict of their own.
    by_title: BTreeMap<String, Vec<u32>>,
}

impl StepMentions {
    /// Finds the mentions. Numbers that are not steps of the trajectory are ignored: explanations are text of a
    /// model.
    pub(super) fn from_outcomes(
        settings: &ReloadableSettings,
        trajectory: &Trajectory,
        outcomes: &[RecordedVerdict],
    ) -> StepMentions {
        let mut found = StepMentions::default();
        let own = outcomes.iter().filter(|given| given.is_wrong).filter_map(|given| given.line.step_index);
        let own: BTreeSet<u32> = own.collect();
        for given in outcomes.iter().filter(|given| given.is_wrong && given.line.step_index.is_none()) {
            let line = &given.line;
            let texts = line.explanation.iter().map(String::as_str).chain(line.evidence.iter().map(|one| &**one));
            let named: BTreeSet<u32> = texts
                .flat_map(find_mentioned_steps)
                .filter(|step| trajectory.steps.iter().any(|known| known.index == *step))
                .collect();
            let title = find_evaluator_title(settings, &line.evaluator);
            for step in named.difference(&own).take(MAX_MENTIONED_STEPS) {
                found.by_step.entry(*step).or_default().push(title.clone());
            }
            found.by_title.insert(title, named.into_iter().take(MAX_MENTIONED_STEPS).collect());
        }
        found
    }

    /// Sets `named_by` of each step.
    pub(super) fn mark_steps(&self, steps: &mut [StepView]) {
        for step in steps {
            step.named_by = self.by_step.get(&step.number).cloned().unwrap_or_default();
        }
    }

    /// Sets the links of wrong verdicts to the steps that they mention.
    pub(super) fn link_verdicts(&self, whole: &mut [VerdictDetailView], at: impl Fn(Option<u32>) -> PageUrl) {
        for verdict in whole.iter_mut().filter(|verdict| verdict.is_wrong()) {
            let named = self.by_title.get(&verdict.title).into_iter().flatten();
            verdict.mentions = named
                .map(|step| (*step, at(Some(*step)).with_fragment(format_step_anchor(Some(*step))).to_string()))
                .collect();
        }
    }
}

/// Finds the numbers after "step" or "steps" in a text: `step 2`, `Steps 3, 4 and 6`, `step #5`, `steps 2-4`. Ranges
/// are truncated, since a model may write `steps 1-4000000000`.
fn find_mentioned_steps(text: &str) -> Vec<u32> {
    let text = &text[..text.floor_char_boundary(MAX_EXPLANATION_SCAN_BYTES)];
    let mut found = Vec::new();
    let mut is_listed = false;
    let mut range_from = None;
    // Dashes stay inside words, so that a range is one word.
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '–');
    for word in words.filter(|word| !word.is_empty()) {
        let parts: Vec<&str> = word.split(['-', '–']).filter(|part| !part.is_empty()).collect();
        let numbers: Option<Vec<u32>> = parts.iter().map(|part| part.parse().ok()).collect();
        match (word.to_ascii_lowercase().as_str(), numbers.as_deref()) {
            ("step" | "steps", _) => (is_listed, range_from) = (true, None),
            ("and" | "or", _) => {}
            ("to", _) if is_listed && !found.is_empty() => range_from = found.last().copied(),
            (_, Some([one])) if is_listed => {
                let first = range_from.take().map_or(*one, |from: u32| from.saturating_add(1));
                found.extend((first..=*one).take(MAX_MENTIONED_STEPS));
            }
            (_, Some([first, last])) if is_listed => found.extend((*first..=*last).take(MAX_MENTIONED_STEPS)),
            _ => is_listed = false,
        }
        if found.len() >= 10 * MAX_MENTIONED_STEPS {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_what_is_said_of_them() {
        for (text, wanted) in [
            ("Step 2 repeats step 1.", vec![2, 1]),
            ("Steps 3, 4 and 6 are needless; order 77 was sent.", vec![3, 4, 6]),
            ("Needless were steps 2-4.", vec![2, 3, 4]),
            ("from step 2 to 4, and 9 orders", vec![2, 3, 4, 9]),
            ("(step #5)", vec![5]),
            ("In a step by 3 people", vec![]),
            ("the first step is right", vec![]),
            ("steps 9-1", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(find_mentioned_steps(text), wanted, "{text}");
        }
        assert!(find_mentioned_steps("steps 1-4000000000").len() <= MAX_MENTIONED_STEPS);
    }
}
