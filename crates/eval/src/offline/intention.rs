//! Compares the intention of a thought that names no tool with what the called tool does. A call is judged wrong only
//! if the thought clearly describes another tool's action. Long deliberations mention too much for that.

use gradus_core::trajectory::TrajectoryStep;

use super::excerpt::quote_excerpt;
use super::identifiers::{IdentifierShape, TextIdentifier};
use super::tools::IndexedTool;
use super::values::ScalarArgument;
use super::vocabulary::{self, ActionFlags, RETRIEVE, are_actions_compatible};
use super::words::{AnalyzedText, AnalyzedWord};
use super::{OfflineJudge, OfflineVerdict};

/// Maximum number of words of a thought that still expresses a single intention.
const SHORT: usize = 60;
/// How many words after its verb the object of a plan may stand.
const REACH: usize = 7;

/// The last part of `thought_to_tool`. `index` is the position of `tool` in the tool index; `notes` become the
/// evidence.
pub(super) fn judge_intention(
    offline: &OfflineJudge<'_>,
    at: usize,
    index: usize,
    tool: &IndexedTool,
    thought: &AnalyzedText<'_>,
    notes: Vec<String>,
) -> OfflineVerdict {
    let name = quote_excerpt(&tool.name);
    if tool.serves_any() {
        return OfflineVerdict::good(format!("{name} can serve any intention, so nothing speaks against it."), notes);
    }
    let Some(step) = offline.step(at) else {
        return OfflineVerdict::not_applicable("There is no such step.");
    };
    let plan = AnnouncedPlan::from_thought(thought);
    let does = deeds_of_call(tool, step);
    // "Look at it and close it" announces only the look, but mentions closing as well.
    let against = plan.deeds != 0
        && does != 0
        && !are_actions_compatible(plan.deeds, does)
        && thought.deeds & does == 0
        && plan.is_clear;
    // Announces to read only, and calls a tool that changes something.
    let harms = against && plan.deeds & !RETRIEVE == 0 && does & RETRIEVE == 0;
    let fits = offline.index.with_deeds(thought, offline.thought_fits(at));
    let found = find_announced_tool(offline, at, index, tool, &plan, &fits, &IntentConflict { does, against, harms })
        .or_else(|| find_mentioned_tool(offline, at, index, tool, &plan, &fits));
    let in_reply = |name: &str| offline.same_reply(at).any(|(other, step)| other != at && step.tool == name);
    if let Some(better) = found.filter(|better| !in_reply(&better.name) && !comes_later(offline, at, better, thought)) {
        let explanation =
            format!("The thought speaks of what {} does, but {name} is called.", quote_excerpt(&better.name));
        return OfflineVerdict::bad(explanation, notes);
    }
    let fit = fits.get(index).copied().unwrap_or_default();
    let best_fit = fits.iter().copied().fold(0.0, f32::max);
    if tool.named_nouns(thought) > 0.0 || thought.deeds & does != 0 || fit > 0.35 * best_fit && fit > 0.0 {
        return OfflineVerdict::good(format!("{name} does what the thought speaks of."), notes);
    }
    if at > 0 && offline.step(at - 1).is_some_and(|step| step.tool == tool.name) {
        return OfflineVerdict::good(format!("The thought goes on with {name}, called just before."), notes);
    }
    if harms {
        return OfflineVerdict::bad(
            format!("The thought announces to look at something, but {name} changes things."),
            notes,
        );
    }
    if are_actions_compatible(thought.deeds, does) || shares_values(offline, at, thought) {
        return OfflineVerdict::good(format!("Nothing in the thought speaks against calling {name}."), notes);
    }
    OfflineVerdict::cannot_judge(format!("The thought shares no word with {name} that a rule could go by."))
}

/// How the call conflicts with the announced action.
struct IntentConflict {
    does: ActionFlags,
    against: bool,
    harms: bool,
}

/// The tool that the thought announces, if it is clearly not the called one. The thresholds were chosen on labelled
/// data.
fn find_announced_tool<'o>(
    offline: &'o OfflineJudge<'_>,
    at: usize,
    index: usize,
    tool: &IndexedTool,
    plan: &AnnouncedPlan,
    fits: &[f32],
    call: &IntentConflict,
) -> Option<&'o IndexedTool> {
    if !plan.is_clear {
        return None;
    }
    let thought = offline.thought(at)?;
    let words = offline.thought_fits(at);
    let nouns = tool.named_nouns(thought);
    let fit = fits.get(index).copied().unwrap_or_default();
    let candidates = offline.index.tools.iter().enumerate().filter(|(other, _)| *other != index);
    let better = candidates.filter(|(other, better)| {
        let same_deed = plan.deeds & better.deeds != 0;
        let far_better = fits.get(*other).copied().unwrap_or_default() > 2.0 * fit + 0.5;
        if call.harms && same_deed && words.get(*other) >= words.get(index) && fit > 0.0 {
            return true;
        }
        if !plan.is_about(better, thought) || is_given(offline, at, better) {
            return false;
        }
        if nouns < 0.34 {
            // Another subject. Where the called tool does what was announced as well, only a tool that does just
            // that, and to what the thought names, is a better choice.
            let exact = plan.deeds & call.does != 0;
            far_better && (plan.deeds == 0 || same_deed) && (!exact || better.deeds == tool.deeds)
        } else {
            // The same subject; the deed is another tool's.
            call.against && same_deed
        }
    });
    better.max_by(|one, other| fits[one.0].total_cmp(&fits[other.0])).map(|(_, better)| better)
}

/// The tool that the thought names, if the called one is about something that neither the thought nor the request nor
/// an earlier call mentioned.
fn find_mentioned_tool<'o>(
    offline: &'o OfflineJudge<'_>,
    at: usize,
    index: usize,
    tool: &IndexedTool,
    plan: &AnnouncedPlan,
    fits: &[f32],
) -> Option<&'o IndexedTool> {
    let (thought, query) = (offline.thought(at)?, offline.query()?);
    // A path speaks of a file without saying the word.
    let has_file = |text: &AnalyzedText<'_>| {
        text.identifiers.iter().any(|said| matches!(said.shape, IdentifierShape::File | IdentifierShape::Path))
    };
    let is_of_files = |tool: &IndexedTool| tool.nouns.iter().any(|noun| &**noun == "fil");
    let speaks_of = |text: &AnalyzedText<'_>| tool.named_nouns(text) > 0.0 || is_of_files(tool) && has_file(text);
    let called_before = |tool: &IndexedTool| offline.steps_before(at).any(|(_, step)| step.tool == tool.name);
    let brought_up = tool.nouns.is_empty() || speaks_of(thought) || speaks_of(query) || called_before(tool);
    if brought_up || !plan.is_clear {
        return None;
    }
    let fit = fits.get(index).copied().unwrap_or_default();
    let named = |other: &IndexedTool| {
        let is_file = other.nouns.len() == 1 && is_of_files(other) && has_file(thought);
        // What was called before may be what the thought looks back on.
        (other.named_nouns(thought) > 0.99 || is_file) && !called_before(other)
    };
    let candidates = offline.index.tools.iter().enumerate().filter(|(other, better)| {
        *other != index
            && !better.serves_any()
            && named(better)
            && are_actions_compatible(thought.deeds, better.deeds)
            && fits.get(*other).copied().unwrap_or_default() > 1.5 * fit + 0.5
    });
    candidates.max_by(|one, other| fits[one.0].total_cmp(&fits[other.0])).map(|(_, better)| better)
}

/// Whether the subject of the other tool is a parameter of this call: "set its deadline" calls `update_task(deadline)`.
fn is_given(offline: &OfflineJudge<'_>, at: usize, better: &IndexedTool) -> bool {
    let mut given: Vec<String> = Vec::new();
    for scalar in offline.scalar_arguments(at) {
        super::words::split_words(scalar.parameter, |word| {
            given.push(super::words::stem_word(&word.to_lowercase()));
        });
    }
    better.nouns.iter().all(|noun| given.iter().any(|word| **word == **noun))
}

/// Tools with a `command` or `action` parameter do what its value says.
fn deeds_of_call(tool: &IndexedTool, step: &TrajectoryStep) -> ActionFlags {
    let selects = |name: &str| matches!(name, "command" | "action" | "method" | "operation" | "mode" | "cmd" | "op");
    let arguments = step.arguments.as_ref().and_then(|arguments| arguments.as_object());
    let selected = arguments.into_iter().flatten().find(|(name, value)| selects(name) && value.is_string());
    match selected.and_then(|(_, value)| value.as_str()) {
        Some(command) => {
            let mut deeds = 0;
            super::words::split_words(super::excerpt::take_prefix(command, 80), |word| {
                deeds |= vocabulary::lookup_actions(&super::words::stem_word(&word.to_lowercase()));
            });
            deeds
        }
        None => tool.deeds,
    }
}

/// Whether the call takes a value, or a word of one, from the thought.
pub(super) fn shares_values(offline: &OfflineJudge<'_>, at: usize, thought: &AnalyzedText<'_>) -> bool {
    let said = thought.stems();
    offline.scalar_arguments(at).iter().take(20).any(|ScalarArgument { value, .. }| {
        let named = |said: &TextIdentifier| said.text.len() > 2 && value.contains(&said.text);
        let mut shared = value.len() > 2 && thought.source.contains(&**value) || thought.identifiers.iter().any(named);
        super::words::split_words(value, |word| {
            shared |= word.len() > 3 && said.contains(super::words::stem_word(&word.to_lowercase()).as_str());
        });
        shared
    })
}

/// "I need to find the ticket to close it": the later part of a plan does not make the first call wrong.
fn comes_later(offline: &OfflineJudge<'_>, at: usize, better: &IndexedTool, thought: &AnalyzedText<'_>) -> bool {
    let stages = |word: &str| matches!(word, "first" | "before" | "then" | "afterwards" | "later");
    let staged = thought.words.iter().any(|word| stages(&word.plain));
    staged && offline.trajectory.steps.iter().skip(at + 1).take(5).any(|step| step.tool == better.name)
}

/// The last sentence in which the thought says what it will do; earlier sentences lead to it.
struct AnnouncedPlan {
    /// Positions of its verbs among the words.
    verbs: Vec<usize>,
    deeds: ActionFlags,
    /// Whether the thought is short enough to be taken literally.
    is_clear: bool,
}

impl AnnouncedPlan {
    fn from_thought(thought: &AnalyzedText<'_>) -> AnnouncedPlan {
        let announced = &thought.announced;
        let last = announced.iter().map(|(at, _)| thought.words[*at].sentence).max();
        let in_last = announced.iter().filter(|(at, _)| Some(thought.words[*at].sentence) == last);
        let mut plan = AnnouncedPlan { verbs: Vec::new(), deeds: 0, is_clear: thought.words.len() <= SHORT };
        for (at, deeds) in in_last {
            plan.verbs.push(*at);
            plan.deeds |= deeds;
        }
        if plan.verbs.is_empty() {
            // "I need the log": a plan without a verb, but with an object.
            let needs = |word: &str| matches!(word, "need" | "needs" | "want" | "wants");
            let needed = |pair: &[AnalyzedWord<'_>]| needs(&pair[0].plain) && &*pair[1].plain != "to";
            plan.verbs.extend(thought.words.windows(2).position(needed));
        }
        plan
    }

    /// Whether the tool's subject is the object of one of the plan's verbs.
    fn is_about(&self, tool: &IndexedTool, thought: &AnalyzedText<'_>) -> bool {
        self.verbs.iter().any(|verb| {
            let sentence = thought.words.get(*verb).map(|word| word.sentence);
            // "Look at the log of the run": the log is looked at, not the run.
            let object = thought.words.iter().skip(verb + 1).take(REACH).enumerate();
            let object: Vec<&AnalyzedWord<'_>> = object
                .take_while(|(at, word)| {
                    Some(word.sentence) == sentence && (*at == 0 || !word.traits.has(vocabulary::IS_PREPOSITION))
                })
                .map(|(_, word)| word)
                .collect();
            tool.is_named_by(&object)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_the_plan_tells_the_tool() {
        let index = super::super::ToolIndex::new(&[]);
        assert!(index.tools.is_empty());
        let text = AnalyzedText::new("The guest is late. I will cancel the dinner reservation of Ann.");
        let plan = AnnouncedPlan::from_thought(&text);
        assert_eq!(plan.deeds & vocabulary::CANCEL, vocabulary::CANCEL);
        let tool = |name: &str| super::super::ToolIndex::with_called(&[], std::iter::once(name)).tools.pop().unwrap();
        assert!(plan.is_about(&tool("cancel_reservation"), &text));
        assert!(!plan.is_about(&tool("cancel_guest"), &text));
    }

    #[test]
    fn a_command_says_what_a_tool_does() {
        let tool = super::super::ToolIndex::with_called(&[], std::iter::once("replace_editor")).tools.pop().unwrap();
        let call = |command: &str| TrajectoryStep {
            arguments: Some(serde_json::json!({"command": command})),
            ..TrajectoryStep::default()
        };
        assert_eq!(deeds_of_call(&tool, &call("view")) & vocabulary::UPDATE, 0);
        assert_eq!(deeds_of_call(&tool, &TrajectoryStep::default()), vocabulary::UPDATE);
    }
}
