//! Judges how a run ended, by the facts of the trace: with an answer, with a question, or without either.

use gradus_core::trajectory::{DefectKind, RUN_FAILED, Trajectory};

use super::answer_text::asks_user;
use super::excerpt::{quote_excerpt, quote_name, take_prefix};
use super::give_up::{GiveUpStatement, find_give_up_statement};
use super::rule_catalog::{
    OUTCOME_ANSWERED, OUTCOME_ASKED_USER, OUTCOME_CRASHED, OUTCOME_GAVE_UP, OUTCOME_LIMIT_REACHED, OUTCOME_NO_ANSWER,
    OUTCOME_UNSUPPORTED_VALUE, OUTCOME_WITHOUT_TOOLS,
};
use super::vocabulary::contains_phrase;
use super::{OfflineJudge, OfflineVerdict, RuleFinding, answer_text, coding};
use crate::rule_remark::RuleRemark;

/// The label of `outcome` that has no score.
pub const GAVE_UP: &str = "gave_up";
/// The labels of `outcome` with their scores. [`GAVE_UP`] has none: it is neither good nor bad, since the task may be
/// impossible.
pub(crate) const OUTCOME_LABELS: &[(&str, f64)] =
    &[("answered", 1.0), ("asked_user", 1.0), ("crashed", 0.0), ("limit_reached", 0.0), ("no_answer", 0.0)];

/// Texts by which frameworks end a run, in lower case.
const LIMIT_TEXTS: &str = "\
    agent stopped due to|iteration limit|max iterations|maximum iterations|maximum number of iterations|\
    need more steps to process|maximum number of steps|max steps|reached the maximum number|recursion limit|\
    recursion_limit|graphrecursionerror|max turns|max_turns|maxturnsexceeded|maximum number of turns|\
    reached maximum iteration|reached max session turns|maximum session turns exceeded|\
    usagelimitexceeded|context_length_exceeded|maximum context length|prompt is too long|token limit exceeded";
/// Maximum bytes of a limit text. A longer text is an answer, whatever it mentions.
const MAX_LIMIT_TEXT_BYTES: usize = 300;
/// Maximum characters of an error in an explanation.
const MAX_CAUSE_CHARS: usize = 240;

/// The reason for not judging the end of a run whose answer may be in an unreadable record.
const RECORD_LOST: &str = "A record of the run could not be read; the answer may have been in it.";

/// The verdict of `outcome`.
pub(super) fn judge_outcome(offline: &OfflineJudge<'_>) -> OfflineVerdict {
    let trajectory = offline.trajectory;
    let answer = trajectory.final_answer.as_deref().map(str::trim).unwrap_or_default();
    let failed = trajectory.defects.iter().find(|defect| defect.kind == DefectKind::RunFailed);
    let labelled = |label, rule, explanation: String, evidence: Vec<String>| OfflineVerdict::Labelled {
        label,
        finding: RuleFinding { rule, explanation, evidence },
    };
    let limit = |text: &str| contains_phrase(&take_prefix(text, 2_000).to_lowercase(), LIMIT_TEXTS);
    if answer.len() <= MAX_LIMIT_TEXT_BYTES && limit(answer) {
        let explanation = "The framework stopped the run at a limit before there was an answer.".to_owned();
        return labelled("limit_reached", OUTCOME_LIMIT_REACHED, explanation, vec![quote_excerpt(answer)]);
    }
    let is_handed_over = || {
        let last = trajectory.steps.last().and_then(|step| offline.find_tool(step));
        last.is_some_and(|(_, tool)| tool.hands_over || tool.ends_run)
    };
    let has_lost_record = || trajectory.defects.iter().any(|defect| defect.kind == DefectKind::UnreadableRecord);
    if answer.is_empty() {
        if let Some(failed) = failed.filter(|failed| limit(&failed.detail)) {
            let explanation = "The run was stopped at a limit before there was an answer.".to_owned();
            return labelled("limit_reached", OUTCOME_LIMIT_REACHED, explanation, vec![quote_excerpt(&failed.detail)]);
        }
        if is_ended_by_user(trajectory) {
            return OfflineVerdict::cannot_judge("The user interrupted the run.");
        }
        if trajectory.is_error {
            let evidence = failed.map(|failed| quote_excerpt(&failed.detail)).into_iter().collect();
            let cause = failed.and_then(|failed| describe_error(&failed.detail));
            let explanation = append_cause("The run ended in an error without an answer", cause);
            return labelled("crashed", OUTCOME_CRASHED, explanation, evidence);
        }
        if is_handed_over() {
            let explanation = "The run ended by handing over or by a tool that submits the answer.".to_owned();
            return labelled("answered", OUTCOME_ANSWERED, explanation, Vec::new());
        }
        if trajectory.defects.iter().any(|defect| defect.kind == DefectKind::MissingReply) {
            return OfflineVerdict::cannot_judge("The reply of the last model call is not recorded.");
        }
        if has_lost_record() {
            return OfflineVerdict::cannot_judge(RECORD_LOST);
        }
        if trajectory.steps.is_empty() && trajectory.turn_index.is_some_and(|turn| turn > 1) {
            return OfflineVerdict::not_applicable("The record ends with the user's message.");
        }
        // A session of a coding agent may have been saved in mid-turn, without a root span that shows its end.
        let is_session = trajectory.root_span_id.is_none() && coding::is_known_coding_agent(offline);
        let may_go_on = trajectory.turn_index.is_none() || is_session;
        if trajectory.steps.is_empty() && trajectory.session_id.is_some() && may_go_on {
            return OfflineVerdict::cannot_judge("Only the user's message is recorded; it may end a conversation.");
        }
        // A list of messages may be saved at any moment, and so may the calls of a client without a span around them. A
        // trace whose root span has ended is complete.
        let is_open = trajectory.steps.last().is_some_and(|last| last.observation.is_none());
        let is_root_call = |root: &String| trajectory.steps.iter().any(|step| step.span_ids.contains(root));
        if is_open && trajectory.root_span_id.as_ref().is_none_or(is_root_call) {
            return OfflineVerdict::cannot_judge("The record ends before the result of the last call.");
        }
        let explanation = match trajectory.steps.last() {
            Some(last) => {
                format!("The run ended after step {} ({}) without an answer.", last.index, quote_excerpt(&last.tool))
            }
            None => "There is neither a call nor an answer.".to_owned(),
        };
        return labelled("no_answer", OUTCOME_NO_ANSWER, explanation, Vec::new());
    }
    if answer_text::is_cut_off(trajectory) {
        if has_lost_record() {
            return OfflineVerdict::cannot_judge(RECORD_LOST);
        }
        let explanation =
            "The run broke off: its last words are a thought, or an action that was written as text and never ran."
                .to_owned();
        return labelled("no_answer", OUTCOME_NO_ANSWER, explanation, vec![quote_excerpt(answer)]);
    }
    if answer_text::is_exception(answer) {
        let explanation = append_cause("The answer is an error message of the program", describe_error(answer));
        return labelled("crashed", OUTCOME_CRASHED, explanation, vec![quote_excerpt(answer)]);
    }
    let asked_user = || {
        let explanation = "The run ended with a question to the user.".to_owned();
        labelled("asked_user", OUTCOME_ASKED_USER, explanation, vec![answer_text::quote_last_sentence(answer)])
    };
    if asks_user(answer) {
        return asked_user();
    }
    let changed = || (0..trajectory.steps.len().min(2_000)).any(|at| offline.has_changed_something(at));
    match find_give_up_statement(answer).filter(|_| !changed()) {
        Some(GiveUpStatement::Stated(words)) => {
            let explanation = "The answer says that the task was not done.".to_owned();
            return labelled(GAVE_UP, OUTCOME_GAVE_UP, explanation, vec![quote_excerpt(words)]);
        }
        Some(GiveUpStatement::AsksUser) => return asked_user(),
        Some(GiveUpStatement::Unclear) => {
            return OfflineVerdict::cannot_judge(
                "The answer says in another language than English that something is not possible; whether that is the task \
                 is not known.",
            );
        }
        None => {}
    }
    let explanation = "The run ended with an answer. Whether it is right is not part of this question.".to_owned();
    labelled("answered", OUTCOME_ANSWERED, explanation, Vec::new())
}

fn append_cause(sentence: &str, cause: Option<String>) -> String {
    match cause {
        Some(cause) => format!("{sentence}: {cause}."),
        None => format!("{sentence}."),
    }
}

/// Returns the line of an error that names it, for an explanation. Failure groups replace values by their kind, but
/// not names. A status such as 429 is treated as a name, since it distinguishes errors.
fn describe_error(detail: &str) -> Option<String> {
    let text = take_prefix(detail.strip_prefix(RUN_FAILED).unwrap_or(detail), 20_000);
    let mut lines = text.lines().map(|line| line.trim_matches([':', ' ', '\t', '\r'])).filter(|line| !line.is_empty());
    let first = lines.next()?;
    // The last line of a Python traceback is the error.
    let line = if first.starts_with("Traceback ") { lines.next_back().unwrap_or(first) } else { first };
    let mut cause = String::new();
    for word in line.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if cause.chars().count() + word.chars().count() >= MAX_CAUSE_CHARS {
            cause.push_str(if cause.is_empty() { "an error" } else { " …" });
            break;
        }
        if !cause.is_empty() {
            cause.push(' ');
        }
        let status = word.trim_matches(|c: char| c.is_ascii_punctuation());
        match is_error_status(status) {
            true => cause.push_str(&word.replacen(status, &quote_name(status), 1)),
            false => cause.push_str(word),
        }
    }
    Some(cause.trim_end_matches(['.', ':']).to_owned()).filter(|cause| !cause.is_empty())
}

/// Whether a word is an HTTP status of an error.
fn is_error_status(word: &str) -> bool {
    word.len() == 3 && word.starts_with(['4', '5']) && word.bytes().all(|digit| digit.is_ascii_digit())
}

/// Whether the record says that the user ended the run: by an interruption, or by another message before the answer.
/// The session readers record it as the reason of the missing answer.
fn is_ended_by_user(trajectory: &Trajectory) -> bool {
    trajectory
        .defects
        .iter()
        .any(|defect| defect.kind == DefectKind::MissingAnswer && defect.detail.starts_with("the user "))
}

/// Returns remarks on the end of the run, which decide nothing.
pub(super) fn outcome_remarks(offline: &OfflineJudge<'_>) -> Vec<RuleRemark> {
    let trajectory = offline.trajectory;
    let mut remarks = Vec::new();
    let Some(answer) = trajectory.final_answer.as_deref().filter(|answer| !answer.trim().is_empty()) else {
        return remarks;
    };
    let is_later_turn = trajectory.turn_index.is_none() && trajectory.session_id.is_some();
    let called_before = is_later_turn || trajectory.earlier_turns.iter().any(|turn| !turn.calls.is_empty());
    if trajectory.steps.is_empty() && !trajectory.tools.is_empty() && !called_before {
        remarks.push(RuleRemark {
            rule: OUTCOME_WITHOUT_TOOLS.into(),
            text: format!("The agent had {} tools and answered without calling one.", trajectory.tools.len()),
        });
    }
    let values = answer_text::find_unsupported_values(offline, answer);
    if !values.is_empty() {
        let list: Vec<String> = values.iter().map(|value| quote_excerpt(value)).collect();
        remarks.push(RuleRemark {
            rule: OUTCOME_UNSUPPORTED_VALUE.into(),
            text: format!("The answer contains what occurs nowhere before it: {}.", list.join(", ")),
        });
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_named_by_its_line_with_the_status() {
        for (detail, cause) in [
            (RUN_FAILED, None),
            ("", None),
            (
                "the run ended in an error: RateLimitError: 429 Too Many Requests.",
                Some("RateLimitError: `429` Too Many Requests"),
            ),
            ("Error code: 500 - {'error': 'x'}\nmore", Some("Error code: `500` - {'error': 'x'}")),
            (
                "Traceback (most recent call last):\n  File \"a.py\", line 3\nValueError: bad  day\n",
                Some("ValueError: bad day"),
            ),
        ] {
            assert_eq!(describe_error(detail).as_deref(), cause, "{detail}");
        }
        let long = describe_error(&"word ".repeat(10_000)).unwrap_or_default();
        assert!(long.ends_with(" …") && long.chars().count() <= MAX_CAUSE_CHARS + 2, "{long}");
    }
}
