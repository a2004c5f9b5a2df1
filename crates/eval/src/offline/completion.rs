//! Detects requested changes that were never made: the request clearly orders an action, no call did anything, and
//! the answer does not admit it.

use super::answer_text::{asks_user, find_failure_admission, is_cut_off};
use super::excerpt::{quote_excerpt, take_prefix};
use super::rule_catalog::COMPLETION_DEED_MISSING;
use super::tools::IndexedTool;
use super::vocabulary::{
    ActionFlags, BUY, CANCEL, CHANGES, CLOSE, COMPUTE, CREATE, DELETE, MERGE, MOVE, RETRIEVE, RUN, SEND, UPDATE,
    contains_phrase,
};
use super::{OfflineJudge, OfflineVerdict};

/// Words that make an order depend on something the rules cannot know.
const CONDITIONS: &[&str] = &[
    "if",
    "unless",
    "whether",
    "when",
    "whenever",
    "otherwise",
    "case",
    "check",
    "ensure",
    "make sure",
    "depending",
    "provided",
    "should",
    "whichever",
    "either",
    "until",
    "as long as",
    "only",
    "verify",
];

/// Phrases by which an answer says that there was nothing to do, in lower case.
const NOTHING_TO_DO: &str = "there are no|there is no|there were no|there was no|found no|no matching|no results|none of|already|no need|no changes|not needed";

/// Phrases by which an answer claims that something was done.
const CLAIMS: &str = "successfully|has been|have been|i have |i've ";

/// Phrases that admit a failure whatever else the answer says.
const CLEAR_ADMISSIONS: &str = "sorry|unable|could not|couldn't|cannot|can't|not able|failed|not found|unfortunately|not possible|was not|were not";

/// Returns all actions that a tool with these actions may perform: an update can close, and sending can create.
fn possible_actions(action_flags: ActionFlags) -> ActionFlags {
    let also = |has: ActionFlags, more: ActionFlags| if action_flags & has != 0 { more } else { 0 };
    action_flags
        | also(UPDATE, MOVE | CLOSE | CANCEL | DELETE | MERGE)
        | also(CREATE, BUY | SEND)
        | also(DELETE, CANCEL | CLOSE)
        | also(MOVE, UPDATE)
        | also(RUN, CHANGES)
}

/// The verdict of `task_completion`.
pub(super) fn judge_completion(offline: &OfflineJudge<'_>) -> OfflineVerdict {
    let trajectory = offline.trajectory;
    let Some(query) = offline.query() else {
        return OfflineVerdict::not_applicable("The trace does not hold the request.");
    };
    // "Plot the visits" computes something, but the user wants the plot.
    let is_order = |action_flags: &ActionFlags| action_flags & CHANGES != 0 && action_flags & RETRIEVE & !COMPUTE == 0;
    let orders = query.announced.iter().map(|(_, action_flags)| *action_flags).filter(is_order);
    let asked: ActionFlags = orders.fold(0, |all, action_flags| all | action_flags) & CHANGES;
    // "Open an issue and label it": "open" alone may be a wish to see it, but a call that opens one can set the label, too.
    let accepted: ActionFlags =
        query.announced.iter().fold(asked, |all, (_, action_flags)| all | action_flags & CHANGES);
    if asked == 0 {
        return OfflineVerdict::cannot_judge("The request does not order a change outright.");
    }
    let is_conditional = query.words.iter().any(|word| CONDITIONS.contains(&&*word.plain))
        || CONDITIONS.iter().any(|phrase| phrase.contains(' ') && query.lower.contains(phrase));
    if is_conditional {
        return OfflineVerdict::cannot_judge("The request is conditional: it may be right to change nothing.");
    }
    let can = offline.index.tools.iter().any(|tool| tool.action_flags & asked != 0 && tool.surely_changes());
    let did = (0..trajectory.steps.len()).any(|at| {
        let tool = offline.step(at).and_then(|step| offline.find_tool(step));
        let may_do = |tool: &IndexedTool| {
            tool.serves_any() || tool.action_flags == 0 || possible_actions(tool.action_flags) & accepted != 0
        };
        offline.failure(at).is_none() && tool.is_none_or(|(_, tool)| may_do(tool))
    });
    let did_before = trajectory.earlier_turns.iter().any(|turn| !turn.calls.is_empty());
    if !can || did || did_before {
        return OfflineVerdict::cannot_judge("No rule can tell whether the task is done.");
    }
    let answer = trajectory.final_answer.as_deref().map(str::trim).filter(|answer| !answer.is_empty());
    let Some(answer) = answer else {
        return OfflineVerdict::cannot_judge("There is no answer; see the outcome of the run.");
    };
    let lower = take_prefix(answer, 3_000).to_lowercase();
    let claims = contains_phrase(&lower, CLAIMS);
    let nothing_to_do = contains_phrase(&lower, NOTHING_TO_DO);
    // Next to a claim of success, "however" and the like admit nothing.
    let find_failure_admission =
        if claims { contains_phrase(&lower, CLEAR_ADMISSIONS) } else { find_failure_admission(answer).is_some() };
    let admits = asks_user(answer) || find_failure_admission || nothing_to_do;
    // A thought, or an action that never ran, is not a report to the user.
    let admits_clearly = nothing_to_do || contains_phrase(&lower, CLEAR_ADMISSIONS);
    if admits_clearly || admits && !is_cut_off(trajectory) {
        return OfflineVerdict::cannot_judge("Nothing was changed, and the answer says so or asks back.");
    }
    let explanation =
        "The request orders a change, no call that could make it succeeded, and the answer does not say so.";
    let evidence = vec![
        format!("request: {}", quote_excerpt(&query.source)),
        format!("answer: {}", quote_excerpt(answer)),
        match trajectory.steps.len() {
            0 => "no call was made".to_owned(),
            calls => format!("{calls} call(s), none of which could do it"),
        },
    ];
    OfflineVerdict::bad(COMPLETION_DEED_MISSING, explanation, evidence)
}
