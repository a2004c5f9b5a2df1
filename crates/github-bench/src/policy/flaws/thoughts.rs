//! Thoughts that have nothing to do with the request, with a call that fits the thought or with the right call.

use serde_json::Value;

use super::super::flaw_context::{FlawContext, FlawedRunBuilder};
use super::super::{PolicyFlaw, ScriptedRun, StepTruth};
use crate::suite::ScriptStep;

/// A topic, a thought about it, and the search that fits the thought. A request that mentions the topic excludes it.
const OFF_TOPIC_SEARCHES: [(&str, &str, &str, &str); 4] = [
    (
        "chess",
        "I have been meaning to find a good chess engine. Let me search the repositories for one.",
        "search_repositories",
        "chess engine",
    ),
    (
        "sourdough",
        "Sourdough bread would be nice this weekend, so I search the repositories for recipes.",
        "search_repositories",
        "sourdough",
    ),
    (
        "weather",
        "I wonder how weather dashboards are built these days; a search for such repositories will tell.",
        "search_repositories",
        "weather dashboard",
    ),
    (
        "galaxies",
        "Somebody must have asked about simulating galaxies. I look for issues that mention them.",
        "search_issues",
        "galaxies",
    ),
];

/// A topic and a thought that no tool fits. The call of the step stays right, so that only a judge of thoughts can
/// notice.
const OFF_TOPIC_THOUGHTS: [(&str, &str); 3] = [
    ("picnic", "The weekend in Lisbon should be sunny, so a picnic by the river is the best plan."),
    ("piano", "Learning the piano takes patience; scales first, then a short waltz."),
    ("marathon", "A marathon plan should begin with slow runs and end with a week of rest."),
];

/// Builds two kinds of variants: an extra step that follows the thought, and a step of the oracle whose thought is
/// replaced.
pub(super) fn build_off_topic_runs(context: &FlawContext<'_>) -> Vec<ScriptedRun> {
    let mut plays = Vec::new();
    for (at, step) in context.oracle_steps() {
        for (word, thought, tool, query) in OFF_TOPIC_SEARCHES {
            if context.request_contains_word(word) || context.find_tool(tool).is_none() {
                continue;
            }
            let arguments = [("query".to_owned(), Value::String(query.to_owned()))].into_iter().collect();
            let wandering = ScriptStep { thought: thought.to_owned(), tool: tool.to_owned(), arguments };
            let truth = StepTruth {
                thought_fits_request: false,
                ..StepTruth::correct_with_note(format!("nobody asked about {word}; the call fits the thought"))
            };
            let draft = FlawedRunBuilder::new(context, format!("before step {}: a search about {word}", at + 1))
                .with(at, wandering, truth)
                .with_detour(at, format!("the search about {word} was not needed"))
                .with_redundant_steps(&[at], 1);
            plays.push(draft.finish(context, PolicyFlaw::OffTopicThought));
        }
        for (word, thought) in OFF_TOPIC_THOUGHTS {
            if context.request_contains_word(word) {
                continue;
            }
            let mut draft = FlawedRunBuilder::new(context, format!("step {}: a thought about a {word}", at + 1));
            thought.clone_into(&mut draft.flawed_run.script.steps[at].thought);
            draft.flawed_run.truth.steps[at] = StepTruth {
                thought_fits_request: false,
                tool_fits_thought: false,
                ..StepTruth::correct_with_note(format!("the thought is about a {word}, {} is called", step.tool))
            };
            // The calls are still those of the shortest solution.
            draft.flawed_run.truth.step = Some(at + 1);
            plays.push(draft.finish(context, PolicyFlaw::OffTopicThought));
        }
    }
    plays
}

#[cfg(test)]
#[test]
fn wanderings_are_what_their_words_say() {
    for (word, thought, _, query) in OFF_TOPIC_SEARCHES {
        assert!(thought.to_lowercase().contains(word) && query.contains(word));
    }
}
