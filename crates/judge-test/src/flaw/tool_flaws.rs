//! Calls of the wrong tool: an unrelated one, or one that is easily confused with the right one.

use gradus_core::trajectory::{ToolDefinition, TrajectoryStep};

use super::draft::{PlantingSite, RunDraft};
use super::planted_run::FlawedRun;
use crate::run_text::{has_thought, mentions_any_word};
use crate::seeded_choice::SeededChoice;
use crate::tool_words::{ToolVerb, classify_tool, is_reading, is_writing, object_words, split_tool_name};

/// Replaces the tool by one that shares no word with it and whose subject neither thought nor request mentions.
pub(super) fn plant_wrong_tool(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let is_unrelated = |step: &TrajectoryStep, tool: &ToolDefinition| {
        let (right, other) = (split_tool_name(&step.tool), object_words(&tool.name));
        let texts = [site.run.trajectory.query.as_deref(), step.thought.as_deref()];
        !other.is_empty()
            && split_tool_name(&tool.name).iter().all(|word| !right.contains(word))
            && !texts.into_iter().flatten().any(|text| mentions_any_word(text, &other))
            && !mentions_any_word(&step.tool, &other)
    };
    let (at, tool) = choose_replacement(site, choice, &is_unrelated)?;
    replace_tool(site, at, &tool, true)
}

/// Replaces the tool by one that shares its verb or its object and does something else: lists other things, or
/// changes what should be read. Two tools that read the same thing are both right.
pub(super) fn plant_neighbouring_tool(site: &PlantingSite<'_>, choice: &mut SeededChoice) -> Option<FlawedRun> {
    let is_neighbour = |step: &TrajectoryStep, tool: &ToolDefinition| {
        let (right, other) = (object_words(&step.tool), object_words(&tool.name));
        let (right_verb, other_verb) = (classify_tool(&step.tool), classify_tool(&tool.name));
        if tool.name == step.tool || other.is_empty() || other_verb == ToolVerb::Unknown {
            return false;
        }
        if right == other {
            return is_opposite(right_verb, other_verb);
        }
        let new_words: Vec<String> = other.into_iter().filter(|word| !right.contains(word)).collect();
        let shares_verb = split_tool_name(&step.tool).first() == split_tool_name(&tool.name).first();
        let texts = [site.run.trajectory.query.as_deref(), step.thought.as_deref()];
        shares_verb
            && !new_words.is_empty()
            && !texts.into_iter().flatten().any(|text| mentions_any_word(text, &new_words))
    };
    let (at, tool) = choose_replacement(site, choice, &is_neighbour)?;
    // Reading an object before changing it is careful, never a flaw.
    let is_careful = is_writing(&site.steps()[at].tool) && is_reading(&tool.name);
    replace_tool(site, at, &tool, !is_careful)
}

/// Whether a tool with one verb cannot do the job of a tool with the other verb on the same object.
fn is_opposite(right: ToolVerb, other: ToolVerb) -> bool {
    let is_read = |verb| verb == ToolVerb::Read;
    is_read(right) != is_read(other)
        || (right == ToolVerb::Create && other == ToolVerb::Remove)
        || (right == ToolVerb::Remove && other == ToolVerb::Create)
}

/// Chooses a step and a tool to replace its tool, from all pairs that fit and whose required arguments can be filled.
fn choose_replacement(
    site: &PlantingSite<'_>,
    choice: &mut SeededChoice,
    fits: &dyn Fn(&TrajectoryStep, &ToolDefinition) -> bool,
) -> Option<(usize, ToolDefinition)> {
    let tools = site.offered_tools();
    let mut steps: Vec<usize> = (0..site.steps().len()).collect();
    choice.shuffle(&mut steps);
    for at in steps {
        let step = &site.steps()[at];
        // A call that fails in the right run is skipped: another tool might be as right.
        let is_candidate =
            |tool: &&ToolDefinition| !step.is_error && fits(step, tool) && site.fill_arguments(tool, step).is_some();
        let candidates: Vec<&ToolDefinition> = tools.iter().filter(is_candidate).collect();
        if let Some(tool) = choice.pick(&candidates) {
            return Some((at, (*tool).clone()));
        }
    }
    None
}

fn replace_tool(
    site: &PlantingSite<'_>,
    at: usize,
    tool: &ToolDefinition,
    is_wrong_for_request: bool,
) -> Option<FlawedRun> {
    let step = &site.steps()[at];
    let original = RunDraft::new(site.run);
    let mut draft = original.clone();
    draft.change_call(at, &tool.name, site.fill_arguments(tool, step)?);
    let note = format!("step {}: {} instead of {}", at + 1, tool.name, step.tool);
    let number = RunDraft::number(at);
    let has_thought = has_thought(step);
    let run = draft.finish(site, original, number, number, note);
    Some(
        run.with_step_expectation("thought_to_tool", has_thought)
            .with_step_expectation("request_to_tool", !has_thought && is_wrong_for_request),
    )
}
