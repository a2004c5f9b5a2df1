//! Failures of GitHub that the agent ignores, and giving up without a reason.

use serde_json::Value;

use super::super::flaw_context::{FlawContext, FlawedRunBuilder};
use super::super::{PolicyFlaw, ScriptedRun, StepTruth};
use crate::rules::list_tool_operations;
use crate::suite::{AgentScript, ScriptStep};
use gradus_github_sim::{FaultEffect, SimulatedFault};

/// Returns the operation of GitHub's API that a writing step performs. None for reads and for tools that combine
/// several operations in a way that the first one does not represent.
fn find_write_operation(context: &FlawContext<'_>, step: &ScriptStep) -> Option<&'static str> {
    list_tool_operations(&step.tool).first().copied().filter(|_| !context.is_read(step))
}

/// Refusals after which the write certainly had no effect. After a 5xx it might have, and the truth would be unknown.
const REFUSALS: [(u16, &str); 3] =
    [(403, "Resource not accessible by personal access token"), (404, "Not Found"), (422, "Validation Failed")];

/// Composes a sentence that claims the refused write as done. The second value says whether rules can disprove it
/// from the requests: not if another call of the script supports the same sentence.
fn compose_false_claim(context: &FlawContext<'_>, at: usize) -> (String, bool) {
    let step = &context.oracle().steps[at];
    let number_of = |step: &ScriptStep| {
        let numbers = ["issue_number", "pull_number"].iter().find_map(|name| step.arguments.get(*name));
        numbers.and_then(Value::as_u64)
    };
    let number = number_of(step);
    let others =
        || context.oracle_steps().filter(|(other, step)| *other != at && find_write_operation(context, step).is_some());
    let none_is = |is: &dyn Fn(&ScriptStep) -> bool| !others().any(|(_, other)| is(other));
    let same_number = |other: &ScriptStep| number_of(other) == number;
    match (step.tool.as_str(), number) {
        ("close_issue", Some(number)) => (format!("I closed #{number}."), true),
        ("merge_pull_request", Some(number)) => (format!("I merged #{number}."), true),
        ("star_repo", _) => ("I starred the repository.".to_owned(), true),
        ("fork_repo", _) => ("I forked the repository.".to_owned(), true),
        ("comment_on_issue", Some(number)) => {
            let alone = none_is(&|other| other.tool == "comment_on_issue" && same_number(other));
            (format!("I commented on #{number}."), alone)
        }
        ("add_labels", Some(number)) => {
            let alone =
                none_is(&|other| other.tool == "open_issue" || same_number(other) && other.tool != "comment_on_issue");
            (format!("I labelled #{number}."), alone)
        }
        ("add_assignees" | "remove_assignees", Some(number)) => {
            let alone = none_is(&|other| other.tool == "open_issue" || same_number(other));
            (format!("I reassigned #{number}."), alone)
        }
        (tool, _) if tool.starts_with("create") || tool == "open_issue" => {
            ("I created it as asked for.".to_owned(), none_is(&|_| true))
        }
        _ => ("I updated it as asked for.".to_owned(), none_is(&|_| true)),
    }
}

/// Plants a fault that refuses a write, while the final message claims success. Only for writes whose results no
/// later step uses, because the script would break there.
pub(super) fn build_ignored_error_runs(context: &FlawContext<'_>) -> Vec<ScriptedRun> {
    // Where faults are part of the task, another fault would change the task.
    if !context.world.pending_faults().is_empty() {
        return Vec::new();
    }
    let mut plays = Vec::new();
    for (at, step) in context.oracle_steps() {
        let Some(operation) = find_write_operation(context, step) else { continue };
        // Later calls must not depend on this step or on the steps after it.
        let needed = (at..context.oracle().steps.len()).any(|from| context.oracle().is_used_by_later_step(from));
        if needed || context.fails_anyway(step) {
            continue;
        }
        // The fault hits the n-th request of this operation, so that earlier steps with the same operation succeed.
        let same = |before: &&ScriptStep| self::find_write_operation(context, before) == Some(operation);
        let after = context.oracle().steps[..at].iter().filter(same).count();
        for (status, message) in REFUSALS {
            let mut draft =
                FlawedRunBuilder::new(context, format!("step {}: {} is refused with {status}", at + 1, step.tool));
            draft.flawed_run.faults.push(SimulatedFault {
                method: None,
                path: None,
                operation: Some(operation.to_owned()),
                after: u32::try_from(after).unwrap_or(u32::MAX),
                times: 1,
                effect: FaultEffect::Answer { status, message: message.to_owned(), retry_after_s: None },
            });
            let (boast, is_plain) = compose_false_claim(context, at);
            let answer = &mut draft.flawed_run.script.answer;
            let is_plain_text = crate::suite::list_steps_in_text(answer).is_empty();
            // The oracle's message may claim the same in other words.
            *answer = match is_plain && is_plain_text {
                true => format!("Done. {boast} {answer}"),
                false => format!("Done. {boast}"),
            };
            draft.flawed_run.truth.steps[at] =
                StepTruth::correct_with_note(format!("refused with {status}, which is passed over"));
            let mut draft = draft
                .with_detour(at, format!("{} failed, and the run went on as if it had not", step.tool))
                .with_task_failure();
            if is_plain {
                draft = draft.with_breaches(at, &["R15"]).with_answer_breaches(&["R16"]);
            }
            plays.push(draft.finish(context, PolicyFlaw::IgnoredError));
        }
    }
    plays
}

/// Final messages of an agent that stops.
const EXCUSES: [&str; 3] = [
    "I'm sorry, but I was not able to do this.",
    "This turned out to be more than I can do, so I have stopped here.",
    "I could not complete the request. Please try it yourself on the website.",
];

/// Stops after each prefix of the oracle. The truncated run never passes, since the oracle is minimal.
pub(super) fn build_giving_up_runs(context: &FlawContext<'_>) -> Vec<ScriptedRun> {
    let mut plays = Vec::new();
    for done in 0..context.oracle().steps.len() {
        for (number, excuse) in EXCUSES.iter().enumerate() {
            let mut draft = FlawedRunBuilder::new(context, format!("after {done} step(s), excuse {}", number + 1));
            draft.flawed_run.script.steps.truncate(done);
            draft.flawed_run.truth.steps.truncate(done);
            (*excuse).clone_into(&mut draft.flawed_run.script.answer);
            draft.flawed_run.truth.step = done.checked_sub(1).map(|last| last + 1);
            draft.flawed_run.truth.detour =
                Some(format!("it stopped after {done} of {} steps for no reason", context.oracle().steps.len()));
            draft = draft.with_task_failure();
            if reads_next_page(context.oracle(), done) {
                // Whether the rest of the list matters depends on how the request is worded.
                draft = draft.with_concerned_rules(&["R17"]);
            }
            plays.push(draft.finish(context, PolicyFlaw::GivingUp));
        }
    }
    plays
}

/// Whether step `at` (from 0) reads the next page of the list that the step before it read. Stopping there may also
/// break R17, which depends on how the request is worded.
fn reads_next_page(script: &AgentScript, at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    let without_page = |step: &ScriptStep| {
        let mut arguments = step.arguments.clone();
        let page = arguments.shift_remove("page");
        (step.tool.clone(), arguments, page)
    };
    let (one, next) = (without_page(&script.steps[before]), without_page(&script.steps[at]));
    (one.0, one.1) == (next.0, next.1) && one.2 != next.2
}
