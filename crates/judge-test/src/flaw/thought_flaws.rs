//! Thoughts that contradict the call or the request: another action, another object, a false claim that all is done,
//! a thought of another task.

use gradus_core::trajectory::TrajectoryStep;

use super::argument_slot::{ArgumentSlot, find_other_object, list_slots};
use super::draft::{PlantingSite, RunDraft};
use super::planted_run::FlawedRun;
use crate::run_text::{has_thought, mentions_any_word, query_mentions, replace_value, thought_mentions};
use crate::seeded_choice::SeededChoice;
use crate::tool_words::{is_writing, object_words, split_tool_name, tool_phrase};

const OTHER_ACTION_THOUGHTS: [&str; 3] = [
    "The next thing to do is to {verb} {object}.",
    "What I need now is to {verb} {object}, so that is what I do.",
    "I will {verb} {object} at this point.",
];

const ALREADY_DONE_THOUGHTS: [&str; 3] = [
    "Everything that was asked for is done already, so I can answer now.",
    "There is nothing left to do; I go straight to the answer.",
    "The task is finished, and no further call is needed.",
];

/// A replacement for a right thought.
struct OtherThought {
    text: String,
    note: String,
}

pub(super) fn plant_contradicting_thought(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let steps = site.steps();
    let mut places: Vec<usize> = (0..steps.len()).filter(|at| has_thought(&steps[*at])).collect();
    choice.shuffle(&mut places);
    let first_variant = choice.below(4);
    for at in places {
        for variant in 0..4 {
            let thought = match (first_variant + variant) % 4 {
                0 => name_other_action(site, at, choice),
                1 => name_other_object(site, at, choice),
                2 => claim_to_be_done(site, at, choice),
                _ => borrow_thought(site, at, choice),
            };
            let Some(OtherThought { text, note }) = thought else { continue };
            let original = RunDraft::new(site.run);
            let mut draft = original.clone();
            draft.trajectory.steps[at].thought = Some(text);
            let number = RunDraft::number(at);
            let note = format!("step {}: {note}", at + 1);
            let run = draft.finish(site, original, number, number, note);
            return Some(
                run.with_step_expectation("query_to_thought", true).with_step_expectation("thought_to_tool", true),
            );
        }
    }
    None
}

/// Makes the thought announce the action of another tool that the request does not mention.
fn name_other_action(site: &PlantingSite<'_>, at: usize, choice: &mut SeededChoice) -> Option<OtherThought> {
    let step = &site.steps()[at];
    let query = site.run.trajectory.query.as_deref().unwrap_or_default();
    let own = split_tool_name(&step.tool);
    let tools = site.offered_tools();
    let others: Vec<(String, String)> = tools
        .iter()
        .filter(|tool| {
            let words = object_words(&tool.name);
            !words.is_empty()
                && !mentions_any_word(query, &words)
                && split_tool_name(&tool.name).iter().all(|word| !own.contains(word))
        })
        .filter_map(|tool| tool_phrase(&tool.name))
        .collect();
    let (verb, object) = choice.pick(&others)?;
    let text = choice.pick(&OTHER_ACTION_THOUGHTS)?.replace("{verb}", verb).replace("{object}", object);
    Some(OtherThought { text, note: format!("the thought is about another action: {verb} {object}") })
}

/// Makes the thought name another object than request and call.
fn name_other_object(site: &PlantingSite<'_>, at: usize, choice: &mut SeededChoice) -> Option<OtherThought> {
    let step = &site.steps()[at];
    let is_named =
        |slot: &ArgumentSlot| thought_mentions(step, &slot.value) && query_mentions(&site.run.trajectory, &slot.value);
    let slots: Vec<ArgumentSlot> = list_slots(step).into_iter().filter(is_named).collect();
    let slot = choice.pick(&slots)?;
    let other = find_other_object(site, slot, choice)?;
    let text = replace_value(step.thought.as_deref()?, &slot.value, &other);
    Some(OtherThought { text, note: format!("the thought names {other} instead of {}", slot.value) })
}

/// Makes the thought claim that all is done before the requested changes are made.
fn claim_to_be_done(site: &PlantingSite<'_>, at: usize, choice: &mut SeededChoice) -> Option<OtherThought> {
    site.steps()[at..].iter().find(|step| is_writing(&step.tool))?;
    let text = (*choice.pick(&ALREADY_DONE_THOUGHTS)?).to_owned();
    Some(OtherThought { text, note: "the thought claims to be done, and a call follows".to_owned() })
}

/// Minimum bytes of a borrowed thought, so that it has a recognizable subject.
const MIN_BORROWED_BYTES: usize = 40;

/// Borrows a thought of another task about another subject.
fn borrow_thought(site: &PlantingSite<'_>, at: usize, choice: &mut SeededChoice) -> Option<OtherThought> {
    let step = &site.steps()[at];
    let own = split_tool_name(&step.tool);
    let query = site.run.trajectory.query.as_deref().unwrap_or_default();
    let is_foreign = |other: &&TrajectoryStep| {
        let words = object_words(&other.tool);
        let thought = other.thought.as_deref().unwrap_or_default();
        thought.len() >= MIN_BORROWED_BYTES
            && !words.is_empty()
            && mentions_any_word(thought, &words)
            && !mentions_any_word(query, &words)
            && split_tool_name(&other.tool).iter().all(|word| !own.contains(word))
    };
    let others: Vec<&TrajectoryStep> = site.foreign_steps().into_iter().filter(is_foreign).collect();
    let text = choice.pick(&others)?.thought.clone()?;
    Some(OtherThought { text, note: "the thought is of another task".to_owned() })
}
