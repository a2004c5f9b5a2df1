//! Changes of files that the agent had not looked at, as far as the session proves it.

use gradus_core::trajectory::{DefectKind, TrajectoryStep};

use super::super::excerpt::{quote_excerpt, take_prefix};
use super::super::rule_catalog::CODING_UNREAD_EDIT;
use super::super::{OfflineJudge, OfflineVerdict};
use super::coding_action::{CodingAction, names_old_text};
use super::user_consent::was_asked_for;
use super::{MAX_LOOKBACK, edits_files};

/// A longer result is no refusal.
const MAX_REFUSAL_BYTES: usize = 400;
/// Lines of a replaced text that are looked for in earlier results.
const MAX_SHOWN_LINES: usize = 40;

/// An edit of a file that was never shown: its name occurs in no request and no result before.
pub(super) fn find_unread_edit(
    offline: &OfflineJudge<'_>,
    actions: &[CodingAction],
    at: usize,
    paths: &[String],
) -> Option<OfflineVerdict> {
    if let Some(refused) = find_refused_edit(offline, actions, at, paths) {
        return Some(refused);
    }
    // What happened before the first step of a cut-off session is not known.
    if at >= MAX_LOOKBACK || is_continued_elsewhere(offline) || is_cut(offline, at) {
        return None;
    }
    let step = offline.step(at)?;
    // The text was not there, and nothing was edited; or it was, and the agent knew it.
    if step.is_error || names_old_text(step) {
        return None;
    }
    let unread = paths.iter().find(|path| {
        let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
        !name.is_empty() && !was_seen(offline, actions, at, name)
    })?;
    let explanation = "The file is edited, and neither a request nor a result before shows it.".to_owned();
    Some(OfflineVerdict::bad(CODING_UNREAD_EDIT, explanation, vec![quote_excerpt(unread)]))
}

/// A change that the tool refused because the agent had not read the file with it.
pub(super) fn find_refused_edit(
    offline: &OfflineJudge<'_>,
    actions: &[CodingAction],
    at: usize,
    paths: &[String],
) -> Option<OfflineVerdict> {
    const REFUSALS: [&str; 2] = ["File has not been read yet", "must read the file before"];
    let step = offline.step(at)?;
    let result = take_prefix(step.observation.as_deref().unwrap_or_default(), MAX_REFUSAL_BYTES);
    let is_refused = step.is_error && REFUSALS.iter().any(|refusal| result.contains(refusal));
    let path = paths.first().filter(|_| is_refused)?;
    if at >= MAX_LOOKBACK
        || is_continued_elsewhere(offline)
        || was_handled(offline, actions, at, path)
        || was_shown(offline, at, path)
        || is_new_to_agent(offline, actions, at, path)
    {
        return None;
    }
    let explanation = "The tool refused the change, because the agent had not read the file with it.".to_owned();
    Some(OfflineVerdict::bad(CODING_UNREAD_EDIT, explanation, vec![quote_excerpt(path)]))
}

/// Whether the agent had no reason to look first: the request orders to create the file, an earlier attempt to write it
/// was refused for another reason, so that it may have appeared since, or a look at it afterwards shows that it is empty.
fn is_new_to_agent(offline: &OfflineJudge<'_>, actions: &[CodingAction], at: usize, path: &str) -> bool {
    const EMPTY: [&str; 2] = ["contents are empty", "shorter than the provided offset (1)"];
    let is_ordered = offline.trajectory.query.as_deref().is_some_and(|query| query.contains(path))
        && was_asked_for(offline, &["create", "new file", "write"]);
    let others =
        |range: std::ops::Range<usize>| actions.iter().zip(&offline.trajectory.steps).take(range.end).skip(range.start);
    let was_tried = others(0..at).any(|(action, step)| {
        matches!(action, CodingAction::Write(paths) if paths.iter().any(|other| other == path)) && step.is_denied
    });
    let is_empty = |step: &TrajectoryStep| {
        let result = step.observation.as_deref().unwrap_or_default();
        result.trim().is_empty() || result.len() < MAX_REFUSAL_BYTES && EMPTY.iter().any(|sign| result.contains(sign))
    };
    // The same edit succeeds later: the agent knew the text from where the record does not reach.
    let is_known_text = |step: &TrajectoryStep| {
        !step.is_error
            && names_old_text(step)
            && offline.step(at).is_some_and(|refused| refused.arguments == step.arguments)
    };
    let mut reads = others(at + 1..actions.len().min(at + 1 + MAX_LOOKBACK))
        .filter(|(action, _)| matches!(action, CodingAction::Read(read) if read == path));
    is_ordered
        || was_tried
        || others(at + 1..actions.len().min(at + 1 + MAX_LOOKBACK)).any(|(_, step)| is_known_text(step))
        || reads.next().is_some_and(|(_, step)| step.observation.is_some() && is_empty(step))
}

/// Whether the agent read, wrote or moved a file before. Then it was the tool that had forgotten: after a resumed or
/// shortened session, or because agents that run side by side share what it remembers.
fn was_handled(offline: &OfflineJudge<'_>, actions: &[CodingAction], at: usize, path: &str) -> bool {
    // A path may be told from the folder of the project.
    let is_it =
        |other: &String| path.strip_suffix(other.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    let is_moved =
        |command: &str| command.split(|letter: char| !letter.is_alphanumeric()).any(|word| matches!(word, "mv" | "cp"));
    let before = actions.iter().zip(&offline.trajectory.steps).take(at);
    let in_turn = before.filter(|(_, step)| !step.is_error && !step.is_denied).any(|(action, _)| match action {
        CodingAction::Read(read) => is_it(read),
        CodingAction::Edit(paths) | CodingAction::Write(paths) => paths.iter().any(is_it),
        CodingAction::Command(command) => is_moved(command),
        CodingAction::Other => false,
    });
    // What earlier turns did is known as text. A shell is not what the tool remembers, except where it moves files.
    in_turn
        || offline.trajectory.earlier_turns.iter().flat_map(|turn| &turn.calls).any(|call| {
            let arguments = call.arguments.as_deref().unwrap_or_default();
            is_moved(arguments) || arguments.contains(path) && !arguments.contains("\"command\"")
        })
}

/// Whether something else showed the agent what it changes: a search, a command or a subagent. Of an edit, each line that it
/// replaces stands in an earlier result; of a whole file, an earlier call that was no change names it.
fn was_shown(offline: &OfflineJudge<'_>, at: usize, path: &str) -> bool {
    let (trajectory, Some(step)) = (offline.trajectory, offline.step(at)) else { return false };
    let turns = || trajectory.earlier_turns.iter().flat_map(|turn| &turn.calls);
    let looks = || trajectory.steps.iter().take(at).filter(|step| !step.is_error && !edits_files(step));
    let old = step.arguments.as_ref().and_then(|arguments| {
        ["old_string", "old_str", "oldString", "oldText"].iter().find_map(|key| arguments.get(*key)?.as_str())
    });
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match old.filter(|old| !old.trim().is_empty()) {
        Some(old) => {
            let holds = |result: &Option<String>, line: &str| result.as_ref().is_some_and(|text| text.contains(line));
            let is_shown = |line: &str| {
                looks().any(|step| holds(&step.observation, line)) || turns().any(|call| holds(&call.observation, line))
            };
            old.lines().map(str::trim).filter(|line| !line.is_empty()).take(MAX_SHOWN_LINES).all(is_shown)
        }
        None => {
            looks().any(|step| step.arguments.as_ref().is_some_and(|json| json.to_string().contains(name)))
                || turns().any(|call| call.arguments.as_ref().is_some_and(|text| text.contains(name)))
        }
    }
}

/// Whether a turn before this one is missing from the record, or a subagent's context is in another session.
fn is_continued_elsewhere(offline: &OfflineJudge<'_>) -> bool {
    let trajectory = offline.trajectory;
    let has_gap = trajectory.turn_index.is_some_and(|turn| turn as usize > trajectory.earlier_turns.len() + 1);
    has_gap
        || trajectory.query.is_none()
        || trajectory.previous_trajectory_id.is_some() && trajectory.earlier_turns.is_empty()
}

/// Whether the record lacks a part of what the agent saw before this step.
fn is_cut(offline: &OfflineJudge<'_>, at: usize) -> bool {
    let is_cut = |kind: DefectKind| {
        matches!(kind, DefectKind::TooLarge | DefectKind::UnreadableRecord | DefectKind::MissingTurn)
    };
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
        // A pattern or a generator can show any file.
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
