//! Detects changes of files that the agent had not read, as far as the session proves it.

use gradus_core::trajectory::{DefectKind, TrajectoryStep};
use serde_json::Value as Json;

use super::super::excerpt::{quote_excerpt, take_prefix};
use super::super::rule_catalog::{CODING_REFUSED_EDIT, CODING_UNREAD_EDIT};
use super::super::vocabulary::contains_name;
use super::super::{OfflineJudge, OfflineVerdict};
use super::coding_action::{CodingAction, names_old_text, replaced_texts};
use super::user_consent::was_asked_for;
use super::{MAX_LOOKBACK_STEPS, edits_files};
use crate::rule_remark::RuleRemark;

/// Maximum bytes of a refusal.
const MAX_REFUSAL_BYTES: usize = 400;
/// Maximum number of lines of a replaced text that are searched for in earlier results.
const MAX_SHOWN_LINES: usize = 40;

/// Finds an edit of a file that was never shown: its name occurs in no earlier request or result.
pub(super) fn find_unread_edit(
    offline: &OfflineJudge<'_>,
    actions: &[CodingAction],
    at: usize,
    paths: &[String],
) -> Option<OfflineVerdict> {
    // The steps before the beginning of a cut-off session are unknown.
    if at >= MAX_LOOKBACK_STEPS || is_continued_elsewhere(offline, at) || is_record_cut(offline, at) {
        return None;
    }
    let step = offline.step(at)?;
    // If the text did not match, nothing was edited; if it did, the agent knew it.
    if step.is_error || names_old_text(step) {
        return None;
    }
    let unread = paths.iter().find(|path| {
        let name = file_name(path);
        !name.is_empty() && !was_seen(offline, actions, at, name)
    })?;
    let explanation = "The file is edited, and neither a request nor a result before shows it.".to_owned();
    Some(OfflineVerdict::bad(CODING_UNREAD_EDIT, explanation, vec![quote_excerpt(unread)]))
}

/// Finds a change that the tool refused because the agent had not read the file. It is a remark: nothing was changed, and in
/// sessions that were read by hand, 10 of 31 such refusals were a mistake of the agent.
pub(super) fn find_refused_edit(
    offline: &OfflineJudge<'_>,
    actions: &[CodingAction],
    at: usize,
    paths: &[String],
) -> Option<RuleRemark> {
    const REFUSALS: [&str; 2] = ["File has not been read yet", "must read the file before"];
    let step = offline.step(at)?;
    let result = take_prefix(step.observation.as_deref().unwrap_or_default(), MAX_REFUSAL_BYTES);
    let is_refused = step.is_error && REFUSALS.iter().any(|refusal| result.contains(refusal));
    let path = paths.first().filter(|_| is_refused)?;
    if at >= MAX_LOOKBACK_STEPS
        || is_continued_elsewhere(offline, at)
        || was_handled(offline, actions, at, path)
        || was_shown(offline, actions, at, path)
        || needs_no_reading(offline, actions, at, path)
    {
        return None;
    }
    let text = format!(
        "The tool refused the change, because the agent had not read the file with it: {}",
        quote_excerpt(path)
    );
    Some(RuleRemark { rule: CODING_REFUSED_EDIT.into(), text })
}

/// Whether the agent had no reason to read first: a request orders to create or replace the file, an earlier attempt
/// to write it was refused for another reason, so that it may have appeared since, or later steps show that it is
/// empty or that the agent knew its text.
fn needs_no_reading(offline: &OfflineJudge<'_>, actions: &[CodingAction], at: usize, path: &str) -> bool {
    const EMPTY: [&str; 2] = ["contents are empty", "shorter than the provided offset (1)"];
    let others =
        |range: std::ops::Range<usize>| actions.iter().zip(&offline.trajectory.steps).take(range.end).skip(range.start);
    let later = || others(at + 1..actions.len().min(at + 1 + MAX_LOOKBACK_STEPS));
    let was_tried = others(0..at).any(|(action, step)| {
        matches!(action, CodingAction::Write(paths) if paths.iter().any(|other| other == path)) && step.is_denied
    });
    let is_empty = |step: &TrajectoryStep| {
        let result = step.observation.as_deref().unwrap_or_default();
        result.trim().is_empty() || result.len() < MAX_REFUSAL_BYTES && EMPTY.iter().any(|sign| result.contains(sign))
    };
    let Some(refused) = offline.step(at) else { return false };
    let lines = replaced_lines(refused);
    // The same edit succeeds later, or a later result shows the replaced text: the agent knew the text from an
    // unrecorded source.
    let is_known_text = |step: &TrajectoryStep| {
        let is_same_edit = names_old_text(step) && refused.arguments == step.arguments;
        let shows_text = || {
            let result = step.observation.as_deref().unwrap_or_default();
            !lines.is_empty() && !edits_files(step) && lines.iter().all(|line| result.contains(line))
        };
        !step.is_error && (is_same_edit || shows_text())
    };
    let mut reads = later().filter(|(action, _)| matches!(action, CodingAction::Read(read) if read == path));
    may_be_ordered(offline, &actions[at], path)
        || was_tried
        || later().any(|(_, step)| is_known_text(step))
        || reads.next().is_some_and(|(_, step)| step.observation.is_some() && is_empty(step))
}

/// Whether a request may order to create or replace the file: it names a file that is written as a whole, in any
/// language, or it has the path and mentions writing.
fn may_be_ordered(offline: &OfflineJudge<'_>, action: &CodingAction, path: &str) -> bool {
    let trajectory = offline.trajectory;
    let earlier = trajectory.earlier_turns.iter().filter_map(|turn| turn.query.as_ref());
    let name = file_name(path).to_lowercase();
    let mut requests = trajectory.query.iter().chain(earlier);
    matches!(action, CodingAction::Write(_)) && requests.any(|request| contains_name(&request.to_lowercase(), &name))
        || trajectory.query.as_deref().is_some_and(|query| query.contains(path))
            && was_asked_for(offline, &["create", "new file", "write"])
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Whether the agent read, wrote or moved a file before. Then the tool lost its state: after a resumed or shortened
/// session, or because parallel agents share it.
fn was_handled(offline: &OfflineJudge<'_>, actions: &[CodingAction], at: usize, path: &str) -> bool {
    let with_slashes = |path: &str| path.replace('\\', "/");
    let whole_path = with_slashes(path);
    // A path may be relative to the folder of the project.
    let is_it = |other: &String| {
        whole_path.strip_suffix(&with_slashes(other)).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    let is_moved =
        |command: &str| command.split(|letter: char| !letter.is_alphanumeric()).any(|word| matches!(word, "mv" | "cp"));
    let before = actions.iter().zip(&offline.trajectory.steps).take(at);
    let in_turn = before.filter(|(_, step)| !step.is_error && !step.is_denied).any(|(action, _)| match action {
        CodingAction::Read(read) => is_it(read),
        CodingAction::Edit(paths) | CodingAction::Write(paths) => paths.iter().any(is_it),
        CodingAction::Command(command) => is_moved(command),
        CodingAction::Other => false,
    });
    let path = ArgumentText::new(path);
    // Calls of earlier turns are known as text. The tool does not track reads by a shell, only moves.
    in_turn
        || offline.trajectory.earlier_turns.iter().flat_map(|turn| &turn.calls).any(|call| {
            let arguments = call.arguments.as_deref().unwrap_or_default();
            is_moved(arguments) || path.is_in(arguments) && !arguments.contains("\"command\"")
        })
}

/// A text as it occurs in the arguments of a call: unchanged, or in JSON, which escapes `\` and `"`.
struct ArgumentText<'a> {
    plain: &'a str,
    escaped: String,
}

impl ArgumentText<'_> {
    fn new(plain: &str) -> ArgumentText<'_> {
        let quoted = Json::from(plain).to_string();
        ArgumentText { plain, escaped: quoted[1..quoted.len() - 1].to_owned() }
    }

    fn is_in(&self, arguments: &str) -> bool {
        arguments.contains(self.plain) || arguments.contains(&self.escaped)
    }
}

/// Returns the lines that an edit replaces, without blank ones, and at most `MAX_SHOWN_LINES`.
fn replaced_lines(step: &TrajectoryStep) -> Vec<&str> {
    let texts = step.arguments.iter().flat_map(replaced_texts);
    texts.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty()).take(MAX_SHOWN_LINES).collect()
}

/// Whether something else showed the agent what it changes: a search, a command, a subagent, or its own text. For an
/// edit, each replaced line occurs in an earlier result, change or command; for a whole file, an earlier call other
/// than a change names it.
fn was_shown(offline: &OfflineJudge<'_>, actions: &[CodingAction], at: usize, path: &str) -> bool {
    let (trajectory, Some(step)) = (offline.trajectory, offline.step(at)) else { return false };
    let turns = || trajectory.earlier_turns.iter().flat_map(|turn| &turn.calls);
    let done = || trajectory.steps.iter().zip(actions).take(at).filter(|(step, _)| !step.is_error);
    let looks = || done().map(|(step, _)| step).filter(|step| !edits_files(step));
    let lines = replaced_lines(step);
    if lines.is_empty() {
        let name = file_name(path);
        return looks().any(|step| step.arguments.as_ref().is_some_and(|json| json.to_string().contains(name)))
            || turns().any(|call| call.arguments.as_ref().is_some_and(|text| text.contains(name)));
    }
    let writes = done().filter(|(_, action)| action.is_change() || matches!(action, CodingAction::Command(_)));
    let written: Vec<_> = writes.filter_map(|(step, _)| step.arguments_text()).collect();
    let holds = |result: &Option<String>, line: &str| result.as_ref().is_some_and(|text| text.contains(line));
    lines.into_iter().all(|line| {
        let text = ArgumentText::new(line);
        looks().any(|step| holds(&step.observation, line))
            || written.iter().any(|arguments| text.is_in(arguments))
            || turns().any(|call| {
                let arguments = call.arguments.as_deref().filter(|_| !call.is_error);
                holds(&call.observation, line) || arguments.is_some_and(|arguments| text.is_in(arguments))
            })
    })
}

/// Whether a turn before this one is missing from the record, a subagent's context is in another session, or the context
/// was compacted before this step.
fn is_continued_elsewhere(offline: &OfflineJudge<'_>, at: usize) -> bool {
    let trajectory = offline.trajectory;
    // A summary replaced what the agent saw, and may show what the record does not.
    let is_compacted = || trajectory.steps.iter().take(at + 1).any(|step| step.after_compaction);
    let has_gap = trajectory.turn_index.is_some_and(|turn| turn as usize > trajectory.earlier_turns.len() + 1);
    has_gap
        || offline.lacks_earlier_turn()
        || trajectory.query.is_none()
        || trajectory.previous_trajectory_id.is_some() && trajectory.earlier_turns.is_empty()
        || is_compacted()
}

/// Whether the record lacks a part of what the agent saw before this step.
fn is_record_cut(offline: &OfflineJudge<'_>, at: usize) -> bool {
    let is_cut = |kind: DefectKind| matches!(kind, DefectKind::TooLarge | DefectKind::UnreadableRecord);
    offline.has_lost_result(at) || offline.trajectory.defects.iter().any(|defect| is_cut(defect.kind))
}

/// Whether a name occurs in what the agent saw, read, wrote or was asked before.
fn was_seen(offline: &OfflineJudge<'_>, actions: &[CodingAction], at: usize, name: &str) -> bool {
    let trajectory = offline.trajectory;
    let holds = |text: Option<&str>| text.is_some_and(|text| text.contains(name));
    let in_request = holds(trajectory.query.as_deref()) || holds(trajectory.system_prompt.as_deref());
    let in_earlier = trajectory.earlier_turns.iter().any(|turn| {
        holds(turn.query.as_deref())
            || holds(turn.answer.as_deref())
            || turn.calls.iter().any(|call| holds(call.observation.as_deref()) || holds(call.arguments.as_deref()))
    });
    let mut before = trajectory.steps.iter().zip(actions).take(at);
    in_request || in_earlier || before.any(|(step, action)| {
        let touched = match action {
            CodingAction::Read(path) => path.contains(name),
            CodingAction::Edit(paths) | CodingAction::Write(paths) => paths.iter().any(|path| path.contains(name)),
            CodingAction::Command(command) => command.contains(name),
            CodingAction::Other => holds(step.arguments_text().as_deref()),
        };
        // A pattern or a generator can show or create any file.
        let is_broad =
            matches!(action, CodingAction::Command(command) if command.contains(['*', '$']) || is_generator(command));
        touched || is_broad || holds(step.observation.as_deref())
    })
}

/// Whether a command makes files that it does not name.
fn is_generator(command: &str) -> bool {
    ["create", "init", " new ", "generate", "scaffold", "clone", "checkout", "install"]
        .iter()
        .any(|word| command.contains(word))
}
