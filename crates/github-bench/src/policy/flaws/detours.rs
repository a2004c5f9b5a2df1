//! Calls without new information: repeated reads, and reads that nothing depends on.

use serde_json::Map;

use super::super::flaw_context::{FlawContext, FlawedRunBuilder, build_repository_arguments};
use super::super::{PolicyFlaw, ScriptedRun, StepTruth};
use crate::suite::ScriptStep;
use gradus_github_sim::state::IssueState;

/// Repeats a read of the oracle, adds a listing over two pages, or adds an unneeded read at the beginning.
pub(super) fn build_redundant_call_runs(context: &FlawContext<'_>) -> Vec<ScriptedRun> {
    let mut plays = Vec::new();
    for (at, step) in context.oracle_steps().filter(|(_, step)| context.is_read(step)) {
        for again in ["I look at that once more, to be sure", "Let me double-check this before I go on"] {
            let copy = ScriptStep { thought: format!("{again}: {}", first_small(&step.thought)), ..step.clone() };
            let draft = FlawedRunBuilder::new(context, format!("step {} again: {} ({again})", at + 1, step.tool))
                .with(at + 1, copy, StepTruth::correct_with_note("redundant: identical call"))
                .with_detour(at + 1, format!("{} was called twice with the same arguments", step.tool))
                .with_redundant_steps(&[at, at + 1], 1);
            plays.push(add_missing_target_breach(context, draft, at + 1).finish(context, PolicyFlaw::RedundantCall));
        }
    }
    if let Some([first, second]) = plan_issue_pages(context) {
        let draft = FlawedRunBuilder::new(context, format!("a list beforehand, over two pages: {}", first.tool))
            .with_detour(0, "the list tells nothing that is needed")
            .with(0, first, StepTruth::correct_with_note("redundant: what it tells is not needed"))
            .with(1, second, StepTruth::correct_with_note("redundant: what it tells is not needed"))
            .with_redundant_steps(&[0, 1], 2);
        plays.push(draft.finish(context, PolicyFlaw::RedundantCall));
    }
    for look in plan_redundant_lookups(context) {
        let draft = FlawedRunBuilder::new(context, format!("a look beforehand: {}", look.tool))
            .with_detour(0, format!("{} tells nothing that is needed", look.tool))
            .with(0, look, StepTruth::correct_with_note("redundant: what it tells is not needed"))
            .with_redundant_steps(&[0], 1);
        plays.push(draft.finish(context, PolicyFlaw::RedundantCall));
    }
    plays
}

/// Number of repetitions that make a loop. R19 tolerates fewer.
const LOOP_REPETITIONS: usize = 3;

/// As [`build_redundant_call_runs`], but the same call several times in a row, which is a loop and breaks R19.
pub(super) fn build_repeated_call_runs(context: &FlawContext<'_>) -> Vec<ScriptedRun> {
    let mut plays = Vec::new();
    for (at, step) in context.oracle_steps().filter(|(_, step)| context.is_read(step)) {
        for often in [LOOP_REPETITIONS, LOOP_REPETITIONS + 2] {
            let draft = FlawedRunBuilder::new(context, format!("step {}: {} {often} times more", at + 1, step.tool));
            plays.push(
                add_missing_target_breach(context, add_repeated_calls(draft, at, step, often), at + 1)
                    .finish(context, PolicyFlaw::Loop),
            );
        }
    }
    for look in plan_redundant_lookups(context) {
        let draft = FlawedRunBuilder::new(context, format!("a look beforehand, over and over: {}", look.tool));
        let mut draft =
            draft.with(0, look.clone(), StepTruth::correct_with_note("redundant: what it tells is not needed"));
        draft = add_repeated_calls(draft, 0, &look, LOOP_REPETITIONS);
        // The first call is not needed either.
        draft.flawed_run.truth.needless = None;
        let all: Vec<usize> = (0..=LOOP_REPETITIONS).collect();
        plays.push(draft.with_redundant_steps(&all, all.len()).finish(context, PolicyFlaw::Loop));
    }
    plays
}

/// Inserts `often` copies after step `at` (from 0), and states the truth about them.
fn add_repeated_calls(mut draft: FlawedRunBuilder, at: usize, step: &ScriptStep, often: usize) -> FlawedRunBuilder {
    for time in 1..=often {
        let thought = format!("I will call {} again to be sure (pass {}).", step.tool, time + 1);
        let copy = ScriptStep { thought, ..draft.flawed_run.script.steps[at].clone() };
        draft = draft.with(at + time, copy, StepTruth::correct_with_note("redundant: identical call"));
    }
    let among: Vec<usize> = (at..=at + often).collect();
    draft
        .with_detour(at + 1, format!("{often} redundant identical calls of {}", step.tool))
        .with_breaches(at + 2, &["R19"])
        .with_redundant_steps(&among, often)
}

/// Adds the breach of R15 in a task whose target does not exist: there a repeated read repeats a refused call.
fn add_missing_target_breach(context: &FlawContext<'_>, draft: FlawedRunBuilder, at: usize) -> FlawedRunBuilder {
    let is_missing = context.task.charter.unclear_targets.iter().any(|target| target.candidates.is_empty());
    if is_missing { draft.with_breaches(at, &["R15"]) } else { draft }
}

/// Plans reads of the request's own objects that no later step uses. None where the request is ambiguous, since
/// exploring is right there.
fn plan_redundant_lookups(context: &FlawContext<'_>) -> Vec<ScriptStep> {
    let mut looks = Vec::new();
    let uses = |tool: &str| context.oracle_steps().any(|(_, step)| step.tool == tool);
    // If the request is ambiguous, exploring is right.
    if context.has_unclear_target() {
        return looks;
    }
    if let Some(home) = context.home_repository()
        && !uses("get_repo")
        && context.find_tool("get_repo").is_some()
    {
        let thought = format!("Before I begin I get the repository {}/{} to see how it is set up.", home.0, home.1);
        looks.push(ScriptStep { thought, tool: "get_repo".to_owned(), arguments: build_repository_arguments(&home) });
    } else if context.oracle().steps.first().is_some_and(|step| step.tool == "create_repo")
        && !uses("list_my_repos")
        && context.find_tool("list_my_repos").is_some()
    {
        let thought = "First I list my repositories, to see what is there already.".to_owned();
        looks.push(ScriptStep { thought, tool: "list_my_repos".to_owned(), arguments: Map::new() });
    }
    looks
}

/// Plans to list all open issues of the repository in two pages. Only where neither request nor oracle is about
/// issues, and two pages suffice. It tests that replays treat the pages of a list as one.
fn plan_issue_pages(context: &FlawContext<'_>) -> Option<[ScriptStep; 2]> {
    const SIZE: u64 = 50;
    let home = context.home_repository()?;
    let state = context.world.state();
    let repository = state.repository(state.repository_by_name(&home.0, &home.1)?)?;
    let open = repository.issues.values().filter(|issue| issue.state == IssueState::Open).count() as u64;
    let size = open.div_ceil(2).min(SIZE);
    let about = ["issue", "bug", "label", "milestone", "pull", "comment", "release", "assign"];
    let is_about = |text: &str| about.iter().any(|word| text.to_lowercase().contains(word));
    let is_used = context.oracle_steps().any(|(_, step)| is_about(&step.tool));
    if !(4..=2 * SIZE).contains(&open) || is_used || context.has_unclear_target() || is_about(&context.task.request) {
        return None;
    }
    let look = |page: u64, thought: String| {
        let mut arguments = build_repository_arguments(&home);
        arguments.insert("per_page".to_owned(), size.into());
        arguments.insert("page".to_owned(), page.into());
        ScriptStep { thought, tool: "list_issues".to_owned(), arguments }
    };
    let first = format!("Before I begin I list the issues of {}/{} to see what is going on.", home.0, home.1);
    Some([look(1, first), look(2, "There is another page of issues, which I list as well.".to_owned())])
}

/// Lower-cases the first letter of a sentence, to put words in front of it.
fn first_small(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), text.chars().nth(1)) {
        // "I" and abbreviations stay as they are.
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
