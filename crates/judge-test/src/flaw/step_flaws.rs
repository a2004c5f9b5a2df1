//! Steps that are missing, repeated or needless.

use gradus_core::trajectory::TrajectoryStep;

use super::draft::{PlantingSite, RunDraft};
use super::planted_run::FlawedRun;
use crate::seeded_choice::SeededChoice;
use crate::tool_words::{is_reading, is_repeatable, is_writing, tool_phrase};

/// Removes a requested change and keeps the answer.
pub(super) fn plant_missing_step(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let steps = site.steps();
    let changes: Vec<usize> =
        (0..steps.len()).filter(|at| is_writing(&steps[*at].tool) && !steps[*at].is_error).collect();
    let at = *choice.pick(&changes)?;
    let original = RunDraft::new(site.run);
    let mut draft = original.clone();
    draft.remove_step(at);
    let note = format!("step {} is missing: {}", at + 1, steps[at].tool);
    // For user rubrics, the flaw is located at the step after the missing one.
    let number = (at < draft.trajectory.steps.len()).then(|| RunDraft::number(at)).flatten();
    let run = draft.finish(site, original, number, RunDraft::number(at), note);
    Some(run.with_trajectory_expectation("task_completion", true))
}

const REPEAT_THOUGHTS: [&str; 4] = [
    "I do that once more, to be on the safe side.",
    "Before I go on I run the same call again.",
    "Let me repeat this request and look at the result a second time.",
    "I want to see that result again.",
];

/// Repeats a call that only reads.
pub(super) fn plant_repeated_step(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let steps = site.steps();
    let is_repeated = |at: &usize| {
        let step = &steps[*at];
        is_repeatable(&step.tool) && !step.is_error && step.observation.is_some()
    };
    let reads: Vec<usize> = (0..steps.len()).filter(is_repeated).collect();
    let at = *choice.pick(&reads)?;
    let thought = choice.pick(&REPEAT_THOUGHTS).filter(|_| site.run.has_thoughts()).map(|text| (*text).to_owned());
    let copy = TrajectoryStep { thought, tool_call_id: None, ..steps[at].clone() };
    let original = RunDraft::new(site.run);
    let mut draft = original.clone();
    draft.insert_step(at + 1, copy);
    let note = format!("step {} repeats step {}: {}", at + 2, at + 1, steps[at].tool);
    let is_silent = !site.run.has_thoughts();
    let run = draft.finish(site, original, RunDraft::number(at + 1), RunDraft::number(at), note);
    Some(
        run.with_trajectory_expectation("sequence_optimality", true)
            .with_step_expectation("request_to_tool", is_silent),
    )
}

/// Thoughts of needless steps, with the verb and the object of their tool.
const DETOUR_THOUGHTS: [&str; 4] = [
    "Before I go on I {verb} {object} as well.",
    "I also {verb} {object}, which may be interesting.",
    "Let me {verb} {object}, too.",
    "First I {verb} {object} to get an overview.",
];

/// Inserts a call that another task needed and this one does not.
pub(super) fn plant_needless_step(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let detour = choose_detour(site, choice)?;
    let at = choice.below(site.steps().len());
    let original = RunDraft::new(site.run);
    let mut draft = original.clone();
    let note = format!("step {} is needless: {}", at + 1, detour.tool);
    draft.insert_step(at, detour);
    let is_silent = !site.run.has_thoughts();
    let run = draft.finish(site, original, RunDraft::number(at), RunDraft::number(at), note);
    Some(
        run.with_trajectory_expectation("sequence_optimality", true)
            .with_step_expectation("request_to_tool", is_silent),
    )
}

/// Chooses a reading step of a run on another task, with a matching thought if the run has thoughts.
pub(super) fn choose_detour(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<TrajectoryStep> {
    let reads: Vec<&TrajectoryStep> = site
        .foreign_steps()
        .into_iter()
        .filter(|step| is_reading(&step.tool) && tool_phrase(&step.tool).is_some())
        .collect();
    let step = *choice.pick(&reads)?;
    let (verb, object) = tool_phrase(&step.tool)?;
    let wording = choice.pick(&DETOUR_THOUGHTS).filter(|_| site.run.has_thoughts());
    let thought = wording.map(|text| text.replace("{verb}", &verb).replace("{object}", &object));
    Some(TrajectoryStep { thought, tool_call_id: None, ..step.clone() })
}
