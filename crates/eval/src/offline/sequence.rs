//! Judges whether the steps led to the answer without detours, by the flow of calls and results alone: a call that
//! repeats what is known is a detour; a result that nothing uses is a remark.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gradus_core::trajectory::TrajectoryStep;

use super::answer_text::{asks_user, find_failure_admission};
use super::call::is_malformed;
use super::excerpt::quote_name;
use super::failure::ToolFailureKind;
use super::repetition::ComparedCall;
use super::rule_catalog::{
    SEQUENCE_ALL_USED, SEQUENCE_CYCLE, SEQUENCE_NO_NEW_INFORMATION, SEQUENCE_REPEAT, SEQUENCE_UNUSED_RESULT,
};
use super::vocabulary::{ActionFlags, CANCEL, CLOSE, DELETE};
use super::words::AnalyzedText;
use super::{OfflineJudge, OfflineVerdict, coding};
use crate::rule_remark::RuleRemark;

/// Maximum number of detours in one verdict.
const MAX_REASONS: usize = 8;
/// Maximum number of steps in a remark.
const MAX_LISTED: usize = 10;
/// Minimum bytes of results that are compared. Shorter ones ("ok", "[]") are equal by chance.
const MIN_RESULT_BYTES: usize = 40;

/// The verdict of `sequence_optimality`. The first finding becomes the explanation, all of them the evidence.
pub(super) fn judge_sequence(offline: &OfflineJudge<'_>) -> OfflineVerdict {
    let steps = &offline.trajectory.steps;
    if steps.is_empty() {
        return OfflineVerdict::not_applicable("The run made no calls.");
    }
    let repeats = offline.repeats();
    let mut detours: Vec<String> = Vec::new();
    for (at, before) in repeats.iter().enumerate().filter_map(|(at, before)| Some((at, (*before)?))).take(MAX_REASONS) {
        detours.push(format!(
            "Step {} repeats step {}: {} with the same arguments, and nothing had changed.",
            steps[at].index,
            steps[before].index,
            quote_name(&steps[at].tool)
        ));
    }
    if let Some(first) = detours.first().cloned() {
        let (rule, explanation) = match find_cycle(repeats) {
            Some((at, period)) => {
                let calls: Vec<String> = steps[at..at + period].iter().map(|step| quote_name(&step.tool)).collect();
                (
                    SEQUENCE_CYCLE,
                    format!(
                        "From step {} on, {} are called in turn again with the same results.",
                        steps[at].index,
                        calls.join(" and ")
                    ),
                )
            }
            None => (SEQUENCE_REPEAT, first),
        };
        let count = repeats.iter().flatten().count();
        let more = if count > 1 { format!(" ({count} such steps.)") } else { String::new() };
        return OfflineVerdict::bad(rule, format!("{explanation}{more}"), detours);
    }
    let usage = offline.result_usage();
    let is_valid = |at: usize| offline.schema_violations(at).is_empty() && !is_malformed(&steps[at]);
    // A result that only the answer mentions may have been unnecessary, unless it was the last one.
    let is_needed = |at: usize| {
        usage.used_by_call[at]
            || at + 1 == steps.len() && usage.is_used(at)
            || offline.has_changed_something(at) && !is_unasked_deletion(offline, at)
    };
    let all_fine = (0..steps.len()).all(|at| is_valid(at) && offline.has_succeeded(at) && is_needed(at));
    // An agent that admits a failure or asks a question may have stopped too early.
    let is_answered = offline.trajectory.final_answer.as_deref().is_some_and(|answer| {
        !answer.trim().is_empty() && find_failure_admission(answer).is_none() && !asks_user(answer)
    });
    if all_fine && is_answered && !offline.trajectory.is_error {
        let explanation = match steps.len() {
            1 => "One call, which succeeded and whose result was used.".to_owned(),
            calls => format!(
                "{calls} calls: none failed or was repeated, and each result led to the next call or to the answer."
            ),
        };
        return OfflineVerdict::good(SEQUENCE_ALL_USED, explanation, Vec::new());
    }
    OfflineVerdict::cannot_judge("No call was repeated, but no rule can tell whether each one was needed.")
}

/// Whether a step deletes something that the request does not ask for. Such a step may be wrong, so it does not count
/// as needed.
fn is_unasked_deletion(offline: &OfflineJudge<'_>, at: usize) -> bool {
    const ENDINGS: ActionFlags = DELETE | CANCEL | CLOSE;
    let deletes =
        offline.find_tool(&offline.trajectory.steps[at]).is_some_and(|(_, tool)| tool.action_flags & DELETE != 0);
    let is_asked =
        |query: &AnalyzedText<'_>| query.announced.iter().any(|(_, action_flags)| action_flags & ENDINGS != 0);
    deletes && !offline.query().is_some_and(is_asked)
}

/// Returns remarks on results that nothing uses, and on results without new information.
pub(super) fn sequence_remarks(offline: &OfflineJudge<'_>) -> Vec<RuleRemark> {
    let steps = &offline.trajectory.steps;
    if steps.is_empty() {
        return Vec::new();
    }
    let usage = offline.result_usage();
    let list = |wanted: &dyn Fn(usize) -> bool| -> Vec<String> {
        (0..steps.len()).filter(|at| wanted(*at)).take(MAX_LISTED).map(|at| steps[at].index.to_string()).collect()
    };
    let unused = list(&|at| offline.has_succeeded(at) && !offline.has_changed_something(at) && !usage.is_used(at));
    let stale = list(&|at| usage.same_as[at].is_some() && offline.repeats()[at].is_none());
    let mut remarks = Vec::new();
    if !unused.is_empty() {
        remarks.push(RuleRemark {
            rule: SEQUENCE_UNUSED_RESULT.into(),
            text: format!("Nothing later uses the result of step {}.", unused.join(", ")),
        });
    }
    if !stale.is_empty() {
        remarks.push(RuleRemark {
            rule: SEQUENCE_NO_NEW_INFORMATION.into(),
            text: format!("Step {} returned exactly what an earlier step had returned.", stale.join(", ")),
        });
    }
    remarks
}

/// Returns for each step the earlier one that it repeats although nothing changed in between.
pub(super) fn find_repeats(offline: &OfflineJudge<'_>) -> Vec<Option<usize>> {
    let steps = &offline.trajectory.steps;
    let mut last: HashMap<u64, usize, RandomState> = HashMap::default();
    // Prefix sums: how many calls up to each step may have changed something, or made a repetition another call.
    let mut changes = vec![0u32; steps.len() + 1];
    let mut repeats = vec![None; steps.len()];
    let mut excused = vec![false; steps.len()];
    let mut compacted_at = 0;
    // When work in the background ends is not recorded reliably.
    let mut has_background_work =
        offline.trajectory.earlier_turns.iter().flat_map(|turn| &turn.calls).any(coding::started_background_work);
    for (at, step) in steps.iter().enumerate() {
        if step.after_compaction {
            compacted_at = at;
        }
        let failure = offline.failure(at);
        let may_change = failure.is_none() && offline.find_tool(step).is_none_or(|(_, tool)| tool.may_change())
            // A command that failed or was stopped may have done part of its work.
            || failure.is_some() && coding::runs_changing_command(step)
            // Waiting changes nothing itself, but what is waited for does. After an edit that failed, or an error that
            // demands another look, the next calls are not repetitions.
            || coding::is_waiting_step(step) || coding::excuses_reading(step);
        changes[at + 1] = changes[at] + u32::from(may_change);
        let is_look_at_background = has_background_work && coding::looks_for_progress(step);
        has_background_work = has_background_work || coding::starts_background_work(step);
        let call = ComparedCall::from(step);
        let Some(before) = call.fingerprint().and_then(|print| last.insert(print, at)) else { continue };
        // The change by the repeated call itself does not count, otherwise no writing call could be a repetition. A
        // compaction counts as a change: the summary may leave out the earlier result.
        let has_changed_between = changes[at] > changes[before + 1] || compacted_at > before;
        let is_retry = matches!(offline.failure(before), Some(ToolFailureKind::Passing))
            || at > before + 1 && coding::demands_reading(&steps[before])
            || offline.failure(before).is_some() && failure.is_none();
        // Without a result it is unknown whether the call returned anything useful.
        let is_same =
            step.observation.is_some() && steps[before].observation.is_some() && same_result(&steps[before], step);
        // An edit that succeeded twice changed something twice: the replaced text was present again.
        let is_done_again = failure.is_none() && coding::edits_files(step);
        // Calls of one reply were made without knowing each other's results.
        let is_parallel = offline.reply_calls(at).any(|(other, _)| other == before);
        if !has_changed_between
            && !is_retry
            && is_same
            && !is_parallel
            && !is_done_again
            && !is_look_at_background
            && !coding::is_waiting_step(step)
        {
            // One more look at a file before it is changed is no detour; a second one is.
            let is_first = repeats[before].is_none() && !excused[before];
            if is_first && failure.is_none() && coding::reads_before_edit(steps, at) {
                excused[at] = true;
            } else {
                repeats[at] = Some(before);
            }
        }
    }
    repeats
}

/// Finds a cycle of two or three steps that are repeated in turn. Returns its first step and its length.
fn find_cycle(repeats: &[Option<usize>]) -> Option<(usize, usize)> {
    [2, 3].into_iter().find_map(|period| {
        let is_cycle = |window: &[Option<usize>], at: usize| {
            window.iter().enumerate().all(|(offset, before)| *before == (at + offset).checked_sub(period))
        };
        (period..repeats.len())
            .find(|at| repeats.get(*at..at + period).is_some_and(|window| is_cycle(window, *at)))
            .map(|at| (at, period))
    })
}

/// Whether two results are equal apart from white space.
fn same_result(before: &TrajectoryStep, after: &TrajectoryStep) -> bool {
    match (&before.observation, &after.observation) {
        (Some(before), Some(after)) => before == after || before.split_whitespace().eq(after.split_whitespace()),
        _ => true,
    }
}

/// Which results were used later: a value that a result contained first occurs in a later call or in the answer.
#[derive(Debug)]
pub(super) struct ResultUsage {
    used: Vec<bool>,
    used_by_call: Vec<bool>,
    /// The earlier step with exactly the same result.
    same_as: Vec<Option<usize>>,
}

impl ResultUsage {
    pub(super) fn new(offline: &OfflineJudge<'_>) -> ResultUsage {
        let trajectory = offline.trajectory;
        let mut used_by_call = vec![false; trajectory.steps.len()];
        let index = offline.evidence();
        for (at, step) in trajectory.steps.iter().enumerate() {
            // Thoughts repeat results, so only calls and the answer count.
            if let Some(arguments) = step.arguments_text() {
                index.mark_used(&arguments, at, &mut used_by_call);
            }
        }
        let mut used = used_by_call.clone();
        index.mark_used(trajectory.final_answer.as_deref().unwrap_or_default(), trajectory.steps.len(), &mut used);
        let mut seen: HashMap<&str, usize, RandomState> = HashMap::default();
        let same_as = trajectory.steps.iter().enumerate().map(|(at, step)| {
            let result =
                step.observation.as_deref().map(str::trim).filter(|result| result.len() >= MIN_RESULT_BYTES)?;
            let before = *seen.entry(result).or_insert(at);
            (before != at).then_some(before)
        });
        let same_as = same_as.collect();
        ResultUsage { used, used_by_call, same_as }
    }

    /// Whether a result was used. A result without new words counts as used if it equals one that was used: it
    /// confirmed something.
    fn is_used(&self, at: usize) -> bool {
        self.used.get(at).copied().unwrap_or(false)
    }
}
