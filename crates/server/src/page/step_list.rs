//! Adjusts the steps of a page together.

use super::step::StepView;
use super::verdict::VerdictDetailView;

/// Maximum number of steps of one page that are unfolded because something is wrong with them.
const MAX_OPEN_STEPS: usize = 12;

/// Removes the colour of success from the verdicts of a failed run, whatever its single steps were like.
pub(super) fn mute_right_verdicts(whole: &mut [VerdictDetailView], steps: &mut [StepView]) {
    let verdicts = whole.iter_mut().chain(steps.iter_mut().flat_map(|step| &mut step.verdicts));
    for verdict in verdicts.filter(|verdict| verdict.class == "pass") {
        verdict.class = "ok";
    }
}

/// Folds all but the first flagged steps if there are many.
pub(super) fn fold_many_steps(steps: &mut [StepView]) {
    steps.iter_mut().filter(|step| step.is_open).skip(MAX_OPEN_STEPS).for_each(|step| step.is_open = false);
}
