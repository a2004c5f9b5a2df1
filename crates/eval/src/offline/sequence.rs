//! Judges whether the steps led to the answer without detours: no wrong tools, no invalid calls, no repetitions, no
//! wrong order, no unreported failure.

use std::collections::HashMap;

use gradus_core::trajectory::TrajectoryStep;

use super::call;
use super::excerpt::{quote_excerpt, take_prefix, take_suffix};
use super::failure::ToolFailureKind;
use super::repetition::{ComparedCall, is_repetition};
use super::vocabulary::OWNS_UP;
use super::{OfflineJudge, OfflineVerdict};

/// Detours that one verdict lists.
const MAX_REASONS: usize = 8;
/// Steps whose own verdicts are taken into account.
const MAX_STEPS: usize = 2_000;

/// The verdict of `sequence_optimality`. The first finding becomes the explanation, all of them the evidence.
pub(super) fn judge_sequence(offline: &OfflineJudge<'_>) -> OfflineVerdict {
    let trajectory = offline.trajectory;
    if trajectory.steps.is_empty() {
        return OfflineVerdict::not_applicable("The run made no calls.");
    }
    let failures: Vec<Option<ToolFailureKind>> = (0..trajectory.steps.len()).map(|at| offline.failure(at)).collect();
    let mut detours: Vec<String> = Vec::new();
    detours.extend(wrong_steps(offline, &failures));
    detours.extend(find_repeated_call(offline, &failures));
    detours.extend(wrong_order(offline, &failures));
    detours.extend(broken_off(offline, &failures));
    detours.extend(passed_over(offline, &failures));
    detours.truncate(MAX_REASONS);
    if let Some(first) = detours.first().cloned() {
        let more =
            if detours.len() > 1 { format!(" ({} more such findings.)", detours.len() - 1) } else { String::new() };
        return OfflineVerdict::bad(format!("{first}{more}"), detours);
    }
    let seen = trajectory
        .steps
        .iter()
        .any(|step| step.arguments.is_some() || step.thought.is_some() || step.arguments_raw.is_some());
    if !seen && (trajectory.steps.len() > 1 || failures.iter().any(Option::is_some)) {
        return OfflineVerdict::cannot_judge(
            "The trace holds neither thoughts nor arguments, so needless calls cannot be told from needed ones.",
        );
    }
    let calls = trajectory.steps.len();
    let explanation = match failures.iter().flatten().count() {
        0 => format!("{calls} call(s), none of them needless, failed or repeated."),
        failed => {
            format!("{calls} call(s); {failed} failed for reasons the agent could not know, and it dealt with that.")
        }
    };
    OfflineVerdict::good(explanation, Vec::new())
}

/// Steps that are wrong on their own.
fn wrong_steps(offline: &OfflineJudge<'_>, failures: &[Option<ToolFailureKind>]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, step) in offline.trajectory.steps.iter().enumerate().take(MAX_STEPS) {
        if found.len() >= MAX_REASONS {
            break;
        }
        let number = step.index;
        if let call::ToolExistence::Missing(why) = call::check_tool_existence(offline, at) {
            found.push(format!("Step {number}: {why}"));
        } else if let Some(problem) = offline.schema_violations(at).first() {
            found.push(format!(
                "Step {number} calls {} with arguments that it cannot take. {}",
                quote_excerpt(&step.tool),
                call::describe_violation(problem)
            ));
        } else if call::is_malformed(step) {
            found.push(format!("Step {number} calls {} with arguments that are no JSON.", quote_excerpt(&step.tool)));
        } else if failures[at] == Some(ToolFailureKind::BadCall) {
            let observation = quote_excerpt(step.observation.as_deref().unwrap_or_default());
            found.push(format!("Step {number}: {} rejected its arguments: {observation}.", quote_excerpt(&step.tool)));
        } else if failures[at].is_some() && completed_later(offline, at) {
            found.push(format!(
                "Step {number} failed for want of a parameter that the next call of {} adds.",
                quote_excerpt(&step.tool)
            ));
        } else if let Some(OfflineVerdict::Bad { explanation, .. }) = offline.tool_choice_verdict(at) {
            found.push(format!("Step {number}: {explanation}"));
        } else if let Some(OfflineVerdict::Bad { explanation, .. }) = offline.topic_verdict(at) {
            found.push(format!("Step {number}: {explanation}"));
        } else if offline.thought(at).is_none()
            && let Some(OfflineVerdict::Bad { explanation, .. }) = offline.validity_verdict(at)
        {
            found.push(format!("Step {number}: {explanation}"));
        }
    }
    found
}

/// Whether the next step repeats the call with one more parameter and succeeds: the agent knew the missing value.
fn completed_later(offline: &OfflineJudge<'_>, at: usize) -> bool {
    let (Some(step), Some(next)) = (offline.step(at), offline.step(at + 1)) else { return false };
    let (Some(before), Some(after)) =
        (step.arguments.as_ref().and_then(|a| a.as_object()), next.arguments.as_ref().and_then(|a| a.as_object()))
    else {
        return false;
    };
    step.tool == next.tool
        && offline.failure(at + 1).is_none()
        && after.len() > before.len()
        && before.iter().all(|(name, value)| after.get(name) == Some(value))
}

/// A call that was made before, with no change in between that could have given another result.
fn find_repeated_call(offline: &OfflineJudge<'_>, failures: &[Option<ToolFailureKind>]) -> Option<String> {
    let steps = &offline.trajectory.steps;
    let mut last: HashMap<u64, usize> = HashMap::new();
    // Prefix sums: how many calls up to each step may have changed something.
    let mut changes = vec![0u32; steps.len() + 1];
    for (at, step) in steps.iter().enumerate() {
        let may_change = failures[at].is_none() && offline.find_tool(step).is_none_or(|(_, tool)| tool.may_change());
        changes[at + 1] = changes[at] + u32::from(may_change);
        let call = ComparedCall::from(step);
        let earlier = call.fingerprint().and_then(|print| last.insert(print, at));
        let near = || {
            at.checked_sub(1).filter(|before| {
                is_repetition(ComparedCall::from(&steps[*before]), call) && same_answer(&steps[*before], step)
            })
        };
        let shorter = || {
            at.checked_sub(1).filter(|before| {
                failures[*before].is_none() && failures[at].is_none() && is_narrowed_repeat(&steps[*before], step)
            })
        };
        let Some(before) = earlier.or_else(near).or_else(shorter) else { continue };
        // The change by the repeated call itself does not count, otherwise no writing call could be a repetition.
        let changed_between = changes[at] > changes[before + 1];
        let waiting = matches!(failures[before], Some(ToolFailureKind::Passing))
            || failures[before].is_some() && failures[at].is_none();
        let told_new = step.observation.is_some() && !same_answer(&steps[before], step) && failures[at].is_none();
        if !changed_between && !waiting && !told_new {
            let (first, second) = (steps[before].index, step.index);
            return Some(format!(
                "Step {second} repeats step {first}: {} with the same arguments, and nothing had changed.",
                quote_excerpt(&step.tool)
            ));
        }
    }
    None
}

/// Equal apart from white space. A missing result counts as equal.
fn same_answer(before: &TrajectoryStep, after: &TrajectoryStep) -> bool {
    match (&before.observation, &after.observation) {
        (Some(before), Some(after)) => before.split_whitespace().eq(after.split_whitespace()),
        _ => true,
    }
}

/// The same call with fewer parameters, and exactly the same result.
fn is_narrowed_repeat(before: &TrajectoryStep, after: &TrajectoryStep) -> bool {
    let (Some(more), Some(less)) =
        (before.arguments.as_ref().and_then(|a| a.as_object()), after.arguments.as_ref().and_then(|a| a.as_object()))
    else {
        return false;
    };
    let answered = before.observation.is_some() && after.observation.is_some();
    before.tool == after.tool
        && answered
        && less.len() < more.len()
        && !less.is_empty()
        && less.iter().all(|(name, value)| more.get(name) == Some(value))
        && same_answer(before, after)
}

/// A call that failed and succeeded later, after another call had created what it needed.
fn wrong_order(offline: &OfflineJudge<'_>, failures: &[Option<ToolFailureKind>]) -> Option<String> {
    let steps = &offline.trajectory.steps;
    let mut failed: HashMap<&str, usize> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if failures[at].is_some_and(|failure| failure != ToolFailureKind::Passing) {
            failed.insert(&step.tool, at);
            continue;
        }
        let Some(before) = failed.get(step.tool.as_str()).copied() else { continue };
        failed.remove(step.tool.as_str());
        if at - before > 50 || !same_target(offline, before, at) {
            continue;
        }
        let maker = (before + 1..at).find(|between| {
            failures[*between].is_none()
                && offline.find_tool(&steps[*between]).is_some_and(|(_, tool)| tool.may_change() && tool.deeds != 0)
        });
        if let Some(maker) = maker {
            return Some(format!(
                "Step {} failed because step {} ({}) had not been done yet; {} had to be called again in step {}.",
                steps[before].index,
                steps[maker].index,
                quote_excerpt(&steps[maker].tool),
                quote_excerpt(&step.tool),
                step.index
            ));
        }
    }
    None
}

/// Whether two calls share most of their short values; longer texts may differ.
fn same_target(offline: &OfflineJudge<'_>, before: usize, after: usize) -> bool {
    let short = |at| offline.scalar_arguments(at).iter().filter(|one| one.value.len() <= 60).collect::<Vec<_>>();
    let (before, after) = (short(before), short(after));
    let same = before.iter().filter(|one| after.contains(one)).count();
    !before.is_empty() && same * 3 >= before.len() * 2
}

/// The run ended in the middle of a call instead of with an answer.
fn broken_off(offline: &OfflineJudge<'_>, failures: &[Option<ToolFailureKind>]) -> Option<String> {
    let trajectory = offline.trajectory;
    let last = trajectory.steps.last()?;
    let answer = trajectory.final_answer.as_deref().unwrap_or_default().trim();
    if trajectory.is_error && failures.last().copied().flatten().is_some() && answer.is_empty() {
        return Some(format!(
            "The run was ended by the failure of {} in step {}.",
            quote_excerpt(&last.tool),
            last.index
        ));
    }
    let has_content = last.thought.is_some() || last.arguments.is_some();
    if last.observation.is_some()
        || !has_content
        || offline.find_tool(last).is_some_and(|(_, tool)| tool.hands_over || tool.ends_run)
    {
        return None;
    }
    let is_thought = last.thought.as_deref().is_some_and(|thought| !answer.is_empty() && thought.trim() == answer);
    let is_call = answer.contains(last.tool.as_str()) && answer.starts_with("Action");
    if trajectory.is_error || is_thought || is_call || answer.is_empty() {
        return Some(format!(
            "The run ended at step {} before {} gave a result.",
            last.index,
            quote_excerpt(&last.tool)
        ));
    }
    None
}

/// Numbers that are HTTP error statuses.
fn find_http_errors(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| word.len() == 3 && word.parse::<u16>().is_ok_and(|number| (400..600).contains(&number)))
}

/// A call failed, no later call made up for it, and the answer does not mention it.
fn passed_over(offline: &OfflineJudge<'_>, failures: &[Option<ToolFailureKind>]) -> Option<String> {
    let steps = &offline.trajectory.steps;
    let answer = offline.trajectory.final_answer.as_deref().filter(|answer| !answer.trim().is_empty())?;
    let at = failures.iter().rposition(Option::is_some)?;
    let made_up_for = steps.iter().enumerate().skip(at + 1).take(200).any(|(later, step)| {
        let changes = |step: &TrajectoryStep| offline.find_tool(step).is_some_and(|(_, tool)| tool.may_change());
        failures[later].is_none() && (step.tool == steps[at].tool || changes(step) || !changes(&steps[at]))
    });
    let looked_at = format!("{} {}", take_prefix(answer, 3_000), take_suffix(answer, 1_000)).to_lowercase();
    // Words of the request do not count as a report of a failure: "the ticket 'Login error' was opened".
    let asked = offline.query().map(|query| query.lower.as_str()).unwrap_or_default();
    let owns_up = OWNS_UP.split('|').any(|phrase| looked_at.contains(phrase) && !asked.contains(phrase));
    let observation = steps[at].observation.as_deref().unwrap_or_default();
    // "The first answer was a 502": the status itself is reported.
    let tells_status = find_http_errors(take_prefix(observation, 400))
        .any(|status| !asked.contains(status) && find_http_errors(&looked_at).any(|told| told == status));
    if made_up_for || owns_up || tells_status || offline.trajectory.is_error {
        return None;
    }
    let observation = quote_excerpt(observation);
    Some(format!(
        "Step {} failed ({observation}), nothing made up for it, and the answer does not say so: {}.",
        steps[at].index,
        quote_excerpt(answer)
    ))
}
