//! The right tool with wrong arguments: two of them swapped, one corrupted, an identifier invented.

use serde_json::Value;

use super::argument_slot::{ArgumentSlot, corrupt_value, invent_identifier, list_grounded_slots, list_slots};
use super::draft::{PlantingSite, RunDraft};
use super::planted_run::FlawedRun;
use crate::run_text::{has_thought, query_mentions, thought_mentions};
use crate::seeded_choice::SeededChoice;

/// Swaps the values of two arguments of one call.
pub(super) fn plant_swapped_argument(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let pairs = |at: usize| {
        let slots = list_slots(&site.steps()[at]);
        let grounded = list_grounded_slots(site, at);
        let mut pairs = Vec::new();
        for (position, first) in slots.iter().enumerate() {
            for second in &slots[position + 1..] {
                let is_seen = grounded.contains(first) || grounded.contains(second);
                if first.is_number == second.is_number && first.value != second.value && is_seen {
                    pairs.push((first.clone(), second.clone()));
                }
            }
        }
        pairs
    };
    let (at, (first, second)) = choose_slot(site, choice, &pairs)?;
    let changes = [(first.clone(), second.value.clone()), (second.clone(), first.value.clone())];
    let note = format!("step {}: {} and {} are swapped", at + 1, first.name, second.name);
    // The values themselves have a source; only their arguments are wrong.
    Some(change_arguments(site, at, &changes, note, false))
}

/// Misspells a known value, or replaces it by a similar one.
pub(super) fn plant_corrupted_argument(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let (at, slot) = choose_slot(site, choice, &|at| list_grounded_slots(site, at))?;
    let other = corrupt_value(site, &slot, choice)?;
    let note = format!("step {}: {} is {other}, and should be {}", at + 1, slot.name, slot.value);
    Some(change_arguments(site, at, &[(slot, other)], note, true))
}

/// Replaces an identifier by an invented one.
pub(super) fn plant_invented_id(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let identifiers =
        |at: usize| list_grounded_slots(site, at).into_iter().filter(ArgumentSlot::is_identifier).collect();
    let (at, slot) = choose_slot(site, choice, &identifiers)?;
    let other = invent_identifier(site, &slot, choice)?;
    let note =
        format!("step {}: {} is {other}, which comes from nowhere; it should be {}", at + 1, slot.name, slot.value);
    Some(change_arguments(site, at, &[(slot, other)], note, true))
}

/// Chooses a step and one of its slots, as `places` lists them. Calls that fail in the right run are skipped.
fn choose_slot<T: Clone>(
    site: &PlantingSite<'_>,
    choice: &mut SeededChoice,
    places: &dyn Fn(usize) -> Vec<T>,
) -> Option<(usize, T)> {
    let mut steps: Vec<usize> = (0..site.steps().len()).filter(|at| !site.steps()[*at].is_error).collect();
    choice.shuffle(&mut steps);
    steps.into_iter().find_map(|at| choice.pick(&places(at)).cloned().map(|place| (at, place)))
}

/// Sets arguments of step `at`. `is_new` means that the new values occur nowhere else in the run.
fn change_arguments(
    site: &PlantingSite<'_>,
    at: usize,
    changes: &[(ArgumentSlot, String)],
    note: String,
    is_new: bool,
) -> FlawedRun {
    let step = &site.steps()[at];
    let mut arguments = step.arguments.clone().unwrap_or_default();
    if let Value::Object(all) = &mut arguments {
        for (slot, value) in changes {
            all.insert(slot.name.clone(), slot.to_json(value));
        }
    }
    let original = RunDraft::new(site.run);
    let mut draft = original.clone();
    draft.change_call(at, &step.tool, arguments);
    let number = RunDraft::number(at);
    let in_thought = changes.iter().any(|(slot, _)| thought_mentions(step, &slot.value));
    let in_query = changes.iter().any(|(slot, _)| query_mentions(&site.run.trajectory, &slot.value));
    draft
        .finish(site, original, number, number, note)
        .with_step_expectation("parameter_quality", true)
        .with_step_expectation("argument_provenance", is_new)
        .with_step_expectation("thought_to_tool", in_thought)
        .with_step_expectation("request_to_tool", !has_thought(step) && (in_query || is_new))
}
