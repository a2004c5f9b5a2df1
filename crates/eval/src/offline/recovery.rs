//! Judges how the agent reacted to errors of calls.

use gradus_core::trajectory::TrajectoryStep;

use super::answer_text::{asks_user, find_failure_admission, is_cut_off};
use super::excerpt::{quote_excerpt, take_prefix, take_suffix};
use super::failure::ToolFailureKind;
use super::repetition::ComparedCall;
use super::rule_catalog::{RECOVERY_CLAIMED_SUCCESS, RECOVERY_IGNORED, RECOVERY_REACTIONS, RECOVERY_RECOVERED};
use super::tools::IndexedTool;
use super::values::{ScalarArgument, names_number};
use super::vocabulary::{ADMISSION_PHRASES, contains_name, contains_phrase};
use super::words::AnalyzedText;
use super::{OfflineJudge, OfflineVerdict, RuleFinding, coding};
use crate::rule_remark::RuleRemark;

/// Labels of `error_recovery` with their scores.
pub(crate) const RECOVERY_LABELS: &[(&str, f64)] = &[("recovered", 1.0), ("claimed_success", 0.0), ("ignored", 0.0)];

/// Phrases in lower case, separated by `|`.
const PERMISSION: &str = "permission denied|access denied|not permitted|not allowed|not authorized|unauthorized|\
    forbidden|must have admin|insufficient scope|insufficient permission";
const NOTHING_FOUND: &str = "no results|no data found|no matches|no matching|nothing found|0 results|no records|\
    no items|no entries";

/// Maximum bytes of an answer that are searched for the object of a failed call.
const MAX_ANSWER_BYTES: usize = 8_000;
/// Maximum number of steps after an error that are searched for the reaction, so that long runs stay linear.
const MAX_REACTION_STEPS: usize = 50;

/// How the agent reacted to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ErrorReaction {
    SameAgain,
    Repaired,
    OtherTool,
    AskedUser,
    Admitted,
    /// The run has no answer, so it is unknown whether the error would have been admitted.
    Unanswered,
    /// A call that only reads failed, and the run continued without it.
    WentOn,
    /// A change failed that neither the request nor the answer mentions: it may have been unimportant.
    Unmentioned,
    Ignored,
    ClaimedSuccess,
}

impl ErrorReaction {
    fn name(self) -> &'static str {
        match self {
            ErrorReaction::SameAgain => "same call again",
            ErrorReaction::Repaired => "repaired",
            ErrorReaction::OtherTool => "other tool",
            ErrorReaction::AskedUser => "asked the user",
            ErrorReaction::Admitted => "admitted",
            ErrorReaction::Unanswered => "no answer",
            ErrorReaction::WentOn | ErrorReaction::Unmentioned => "went on without it",
            ErrorReaction::Ignored => "ignored",
            ErrorReaction::ClaimedSuccess => "claimed success",
        }
    }
}

fn failure_name(failure: ToolFailureKind, observation: &str) -> &'static str {
    match failure {
        ToolFailureKind::Passing => "transient",
        ToolFailureKind::NoSuchTool | ToolFailureKind::BadCall => "caller's fault",
        ToolFailureKind::Refused if is_permission_error(observation) => "permission",
        ToolFailureKind::Refused => "refused",
    }
}

/// The verdict of `error_recovery`. The last unrepaired error decides.
pub(super) fn judge_recovery(offline: &OfflineJudge<'_>) -> OfflineVerdict {
    let errors = find_reactions(offline);
    if errors.is_empty() {
        return OfflineVerdict::not_applicable("No call failed.");
    }
    let labelled = |label, rule, explanation: String, evidence| OfflineVerdict::Labelled {
        label,
        finding: RuleFinding { rule, explanation, evidence },
    };
    let worst = errors.iter().rev().max_by_key(|(_, _, reaction)| *reaction);
    let Some((at, _, reaction)) = worst.copied() else {
        return OfflineVerdict::not_applicable("No call failed.");
    };
    let step = &offline.trajectory.steps[at];
    let answer = offline.trajectory.final_answer.as_deref().unwrap_or_default();
    let evidence = || {
        vec![
            format!("step {}: {}", step.index, quote_excerpt(step.observation.as_deref().unwrap_or_default())),
            format!("answer: {}", quote_excerpt(answer)),
        ]
    };
    let tool = quote_excerpt(&step.tool);
    match reaction {
        // Their answers report work, and what failed is mostly bookkeeping around it. In sessions that were read by hand,
        // none of 15 such flags was right.
        ErrorReaction::ClaimedSuccess if coding::is_known_coding_agent(offline) => OfflineVerdict::cannot_judge(
            "Whether the answer claims what the failed call should have done is not certain.",
        ),
        ErrorReaction::ClaimedSuccess => {
            let explanation = format!(
                "Step {} ({tool}) failed, no later call did it, and the answer claims that it is done.",
                step.index
            );
            labelled("claimed_success", RECOVERY_CLAIMED_SUCCESS, explanation, evidence())
        }
        ErrorReaction::Ignored => {
            let explanation =
                format!("Step {} ({tool}) failed, nothing made up for it, and the answer does not say so.", step.index);
            labelled("ignored", RECOVERY_IGNORED, explanation, evidence())
        }
        ErrorReaction::Unanswered => OfflineVerdict::cannot_judge("The run has no answer that could admit the error."),
        ErrorReaction::WentOn => {
            OfflineVerdict::cannot_judge("A call that only reads failed; whether the answer needed it is unknown.")
        }
        ErrorReaction::Unmentioned => OfflineVerdict::cannot_judge(
            "A change failed, and neither the request nor the answer names what it was about.",
        ),
        ErrorReaction::SameAgain => OfflineVerdict::cannot_judge("The failed call was made again; see the sequence."),
        _ => {
            let explanation = format!("{} call(s) failed, and each was repaired, replaced or admitted.", errors.len());
            labelled("recovered", RECOVERY_RECOVERED, explanation, Vec::new())
        }
    }
}

/// Errors and reactions, counted.
pub(super) fn recovery_remarks(offline: &OfflineJudge<'_>) -> Vec<RuleRemark> {
    let mut counts: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    // A call that the user refused did not fail.
    for (at, step) in offline.trajectory.steps.iter().enumerate().filter(|(_, step)| !step.is_denied) {
        let observation = step.observation.as_deref().unwrap_or_default();
        let class = match offline.failure(at) {
            Some(failure) => failure_name(failure, observation),
            None if step.observation.is_some() && is_empty_result(observation) => "empty result",
            None => continue,
        };
        *counts.entry(format!("{class}, {}", find_reaction(offline, at).name())).or_default() += 1;
    }
    if counts.is_empty() {
        return Vec::new();
    }
    let list: Vec<String> = counts.into_iter().map(|(what, count)| format!("{count} × {what}")).collect();
    vec![RuleRemark { rule: RECOVERY_REACTIONS.into(), text: format!("Errors and reactions: {}.", list.join("; ")) }]
}

fn find_reactions(offline: &OfflineJudge<'_>) -> Vec<(usize, ToolFailureKind, ErrorReaction)> {
    let steps = &offline.trajectory.steps;
    // A call that the user refused needs no repair.
    let ran = (0..steps.len()).filter(|at| !steps[*at].is_denied);
    ran.filter_map(|at| Some((at, offline.failure(at)?, find_reaction(offline, at)))).collect()
}

fn find_reaction(offline: &OfflineJudge<'_>, at: usize) -> ErrorReaction {
    let steps = &offline.trajectory.steps;
    let failed = &steps[at];
    let changes = |step: &TrajectoryStep| offline.find_tool(step).is_none_or(|(_, tool)| tool.may_change());
    let print = ComparedCall::from(failed).fingerprint();
    let mut is_repeated = false;
    for (later, step) in steps.iter().enumerate().skip(at + 1).take(MAX_REACTION_STEPS) {
        let is_same = print.is_some() && ComparedCall::from(step).fingerprint() == print;
        is_repeated |= is_same;
        if offline.failure(later).is_some() {
            continue;
        }
        if step.tool == failed.tool {
            return ErrorReaction::Repaired;
        }
        if changes(step) || !changes(failed) {
            return ErrorReaction::OtherTool;
        }
    }
    let answer = offline.trajectory.final_answer.as_deref().map(str::trim).unwrap_or_default();
    if answer.is_empty() || offline.trajectory.is_error || is_cut_off(offline.trajectory) {
        return ErrorReaction::Unanswered;
    }
    if asks_user(answer) || asks_through_tool(failed) && has_question(answer) {
        return ErrorReaction::AskedUser;
    }
    if admits_failed_call(offline, failed, answer) {
        return ErrorReaction::Admitted;
    }
    if is_repeated {
        return ErrorReaction::SameAgain;
    }
    if coding::needs_no_mention(failed) || coding::was_stopped_by_signal(failed) {
        return ErrorReaction::WentOn;
    }
    match offline.find_tool(failed) {
        Some((_, tool)) if tool.surely_changes() => {
            if names_object(offline, at, tool, answer) {
                ErrorReaction::ClaimedSuccess
            } else {
                ErrorReaction::Unmentioned
            }
        }
        Some((_, tool)) if !tool.may_change() => ErrorReaction::WentOn,
        _ => ErrorReaction::Ignored,
    }
}

/// Whether a call would have asked the user a question: by the names of the tool and of its arguments.
fn asks_through_tool(step: &TrajectoryStep) -> bool {
    let has_questions = || {
        let arguments = step.arguments.as_ref();
        ["question", "questions"].iter().any(|name| arguments.is_some_and(|arguments| arguments.get(name).is_some()))
    };
    let name = step.tool.to_ascii_lowercase();
    coding::asks_person(step) || (name.contains("question") || name.contains("ask_user")) && has_questions()
}

/// Whether an answer asks something anywhere, as one that takes the place of a question through a tool.
fn has_question(answer: &str) -> bool {
    take_prefix(answer, MAX_ANSWER_BYTES)
        .split_whitespace()
        .any(|word| word.trim_end_matches(['*', '_', '"', '\'', ')', '”']).ends_with(['?', '？', '؟']))
}

/// Whether the request or the answer mentions the object of a call: one of its values, or all nouns of its tool's
/// name.
fn names_object(offline: &OfflineJudge<'_>, at: usize, tool: &IndexedTool, answer: &str) -> bool {
    let query = offline.query();
    let answer = AnalyzedText::new(take_prefix(answer, MAX_ANSWER_BYTES));
    let texts = || query.into_iter().chain(std::iter::once(&answer));
    let is_named = |value: &str| texts().any(|text| contains_name(&text.lower, value));
    let names_value = |scalar: &ScalarArgument<'_>| {
        let last_part = scalar.lower.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default();
        // A small number occurs in many texts, unless it is the number of a thing.
        let is_name = |value: &str| value.len() > 2 || names_number(scalar.parameter, None);
        // People write names, not addresses.
        let owner = scalar.lower.split_once('@').map_or("", |(owner, _)| owner);
        [&*scalar.lower, last_part, owner].into_iter().any(|value| is_name(value) && is_named(value))
    };
    let names_all =
        |text: &AnalyzedText<'_>| tool.nouns.iter().all(|noun| text.words.iter().any(|word| word.stem() == &**noun));
    offline.scalar_arguments(at).iter().any(names_value) || !tool.nouns.is_empty() && texts().any(names_all)
}

/// Whether the answer admits a failure in words that are not from the request, or repeats the status of the error.
fn admits_failed_call(offline: &OfflineJudge<'_>, failed: &TrajectoryStep, answer: &str) -> bool {
    // "No mail of Ann was found."
    if answer.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("no ")) {
        return true;
    }
    if find_failure_admission(answer).is_none() {
        let asked = offline.query().map(|query| query.lower.as_str()).unwrap_or_default();
        let looked_at = format!("{} {}", take_prefix(answer, 3_000), take_suffix(answer, 1_000)).to_lowercase();
        let observation = failed.observation.as_deref().unwrap_or_default();
        return find_http_errors(take_prefix(observation, 400))
            .any(|status| !asked.contains(status) && find_http_errors(&looked_at).any(|told| told == status));
    }
    let asked = offline.query().map(|query| query.lower.as_str()).unwrap_or_default();
    let looked_at = format!("{} {}", take_prefix(answer, 3_000), take_suffix(answer, 1_000)).to_lowercase();
    // Words of the request do not count as a report of a failure: "the ticket 'Login error' was opened".
    ADMISSION_PHRASES.split('|').any(|phrase| looked_at.contains(phrase) && !asked.contains(phrase))
}

fn is_permission_error(observation: &str) -> bool {
    let text = take_prefix(observation, 1_200).to_lowercase();
    contains_phrase(&text, PERMISSION) || find_http_errors(&text).any(|status| matches!(status, "401" | "403"))
}

/// Whether a call that did not fail returned nothing: an empty JSON value, or a short text that says so.
fn is_empty_result(observation: &str) -> bool {
    let text = observation.trim();
    matches!(text, "" | "[]" | "{}" | "\"\"" | "null" | "None")
        || text.len() <= 100 && contains_phrase(&text.to_lowercase(), NOTHING_FOUND)
}

/// Numbers that are HTTP error statuses.
fn find_http_errors(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| word.len() == 3 && word.parse::<u16>().is_ok_and(|number| (400..600).contains(&number)))
}
