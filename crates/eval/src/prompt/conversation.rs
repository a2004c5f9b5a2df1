//! The earlier turns of a conversation in a prompt: numbered entries with the request, the calls and the answer.
//!
//! The judged turn follows the newest one, so the oldest turns are left out first. Everything that is left out is
//! noted in the prompt.

use std::borrow::Cow;
use std::sync::Arc;

use gradus_core::trajectory::{EarlierCall, EarlierTurn, Trajectory};

use super::MAX_EARLIER_RESULT_BYTES;
use super::recording::{EntryField, NOTE_BYTES, PromptEntry, format_left_out};
use super::shorten::compute_size_limit;

/// Maximum number of shown calls of one turn. Of longer turns the first and the last calls are shown, which contain
/// the request and the result.
const MAX_CALLS_PER_TURN: usize = 20;

/// The earlier turns of a trajectory, as a value of a prompt.
#[derive(Debug)]
pub(super) struct ConversationValue<'t> {
    turns: &'t [Arc<EarlierTurn>],
    /// The number of the first of `turns`: earlier ones may not be in the source.
    first_number: usize,
    /// Estimated bytes of all turns, since only the turns that fit are rendered.
    total_bytes: usize,
}

impl<'t> ConversationValue<'t> {
    /// `None` if this is the first turn, or the only one that is known.
    pub(super) fn from_trajectory(trajectory: &'t Trajectory) -> Option<ConversationValue<'t>> {
        let turns = trajectory.earlier_turns.as_slice();
        if turns.is_empty() {
            return None;
        }
        let newest = trajectory.turn_index.map_or(0, |index| (index as usize).saturating_sub(1));
        let first_number = newest.max(turns.len()) + 1 - turns.len();
        let total_bytes = turns.iter().map(|turn| estimate_turn_bytes(turn)).sum();
        Some(ConversationValue { turns, first_number, total_bytes })
    }

    /// Bytes in the prompt if nothing is left out.
    pub(super) fn len(&self) -> usize {
        self.total_bytes
    }

    /// Writes the turns in about `room` bytes. The second value is whether anything was cut for lack of space.
    pub(super) fn write(&self, room: usize) -> (String, bool) {
        let (entries, is_cut) = self.fit_entries(room.saturating_sub(NOTE_BYTES));
        let skipped = self.first_number - 1 + self.turns.len() - entries.len();
        let mut out = String::new();
        if skipped > 0 {
            let what = if skipped == 1 { "turn 1".to_owned() } else { format!("turns 1 to {skipped}") };
            out.push_str(&format_left_out(&what));
        }
        let min_bytes: usize = entries.iter().map(|entry| entry.min_len() + 1).sum();
        let extras: Vec<usize> = entries.iter().map(|entry| entry.len() - entry.min_len()).collect();
        // Each turn gets its shortest form, and the rest of the space is shared.
        let each = compute_size_limit(&extras, room.saturating_sub(NOTE_BYTES + min_bytes));
        for (entry, extra) in entries.iter().zip(extras) {
            if !out.is_empty() {
                out.push('\n');
            }
            entry.write(&mut out, entry.min_len() + extra.min(each));
        }
        let is_whole = !is_cut && each == usize::MAX;
        (out, !is_whole)
    }

    /// Returns the newest turns whose shortest forms fit, oldest first, and whether something was left out. The
    /// newest turn is always included, without its calls if necessary.
    fn fit_entries(&self, room: usize) -> (Vec<PromptEntry<'t>>, bool) {
        let mut entries = Vec::new();
        let (mut left, mut is_cut) = (room, false);
        for (at, turn) in self.turns.iter().enumerate().rev() {
            let mut entry = build_turn(self.first_number + at, turn, true);
            if entry.min_len() + 1 > left && entries.is_empty() {
                entry = build_turn(self.first_number + at, turn, false);
                is_cut = true;
            } else if entry.min_len() + 1 > left {
                is_cut = true;
                break;
            }
            left = left.saturating_sub(entry.min_len() + 1);
            entries.push(entry);
        }
        entries.reverse();
        (entries, is_cut)
    }
}

/// Builds the entry of a turn, with or without its calls.
fn build_turn(number: usize, turn: &EarlierTurn, with_calls: bool) -> PromptEntry<'_> {
    let mut fields = vec![EntryField::new("request", turn.query.as_deref().map(Cow::Borrowed), "(not recorded)")];
    let shown = if with_calls { turn.calls.len().min(MAX_CALLS_PER_TURN) } else { 0 };
    let (head, tail) = (shown.div_ceil(2), shown / 2);
    let left_out = turn.calls.len() - shown;
    turn.calls[..head].iter().for_each(|call| push_call(&mut fields, call));
    if left_out > 0 {
        let noun = if left_out == 1 { "call" } else { "calls" };
        fields.push(EntryField::left_out(&format!("{left_out} {noun}")));
    }
    turn.calls[turn.calls.len() - tail..].iter().for_each(|call| push_call(&mut fields, call));
    fields.push(EntryField::new("answer", turn.answer.as_deref().map(Cow::Borrowed), "(not recorded)"));
    PromptEntry::new("turn", number, fields)
}

fn push_call<'t>(fields: &mut Vec<EntryField<'t>>, call: &'t EarlierCall) {
    let result = if call.is_error { "result (the call failed)" } else { "result" };
    let result = EntryField::new(result, call.observation.as_deref().map(Cow::Borrowed), "(not recorded)");
    fields.push(EntryField::new("tool", Some(Cow::Borrowed(call.tool.as_str())), "(not recorded)"));
    fields.push(EntryField::new("arguments", call.arguments.as_deref().map(Cow::Borrowed), "(none)"));
    fields.push(result.with_max_bytes(MAX_EARLIER_RESULT_BYTES));
}

/// Estimates the bytes of a turn without rendering it, so that turns that are not shown cost nothing.
fn estimate_turn_bytes(turn: &EarlierTurn) -> usize {
    /// Estimated bytes of headings and quote marks of a call.
    const CALL_BYTES: usize = 40;
    let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let shown = turn.calls.len().min(MAX_CALLS_PER_TURN);
    let calls = turn.calls[..shown.div_ceil(2)].iter().chain(&turn.calls[turn.calls.len() - shown / 2..]);
    let of_call = |call: &EarlierCall| {
        CALL_BYTES + call.tool.len() + len(&call.arguments) + len(&call.observation).min(MAX_EARLIER_RESULT_BYTES)
    };
    len(&turn.query) + len(&turn.answer) + CALL_BYTES + calls.map(of_call).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: usize, calls: usize, text: &str) -> Arc<EarlierTurn> {
        let call = |call: usize| EarlierCall {
            tool: format!("tool_{call}"),
            arguments: Some("{}".to_owned()),
            observation: Some(text.to_owned()),
            is_error: call == 1,
        };
        Arc::new(EarlierTurn {
            query: Some(format!("request {number} {text}")),
            calls: (0..calls).map(call).collect(),
            answer: Some(format!("answer {number} {text}")),
        })
    }

    fn conversation(turns: Vec<Arc<EarlierTurn>>, turn_index: Option<u32>, room: usize) -> (String, bool) {
        let trajectory = Trajectory { earlier_turns: turns, turn_index, ..Trajectory::default() };
        ConversationValue::from_trajectory(&trajectory).expect("earlier turns").write(room)
    }

    #[test]
    fn turns_have_requests_calls_and_answers() {
        let (text, is_cut) = conversation(vec![turn(1, 2, "a"), turn(2, 0, "b")], None, usize::MAX);
        assert!(!is_cut);
        assert_eq!(
            text,
            "turn 1:\nrequest:\n> request 1 a\ntool:\n> tool_0\narguments:\n> {}\nresult:\n> a\ntool:\n> tool_1\n\
             arguments:\n> {}\nresult (the call failed):\n> a\nanswer:\n> answer 1 a\n\
             turn 2:\nrequest:\n> request 2 b\nanswer:\n> answer 2 b"
        );
    }

    #[test]
    fn the_oldest_turns_are_left_out_first() {
        let long = "long text ".repeat(500);
        for room in [1_000, 5_000, 20_000] {
            let turns = (1..=40).map(|number| turn(number, 3, &long)).collect();
            let (text, is_cut) = conversation(turns, None, room);
            assert!(is_cut && text.len() <= room, "{} of {room}", text.len());
            assert!(
                text.starts_with("[... turns 1 to ") && text.contains("turn 40:\nrequest:\n> request 40"),
                "{text}"
            );
        }
        let (text, _) = conversation(vec![turn(1, 1, "a")], Some(8), usize::MAX);
        assert!(text.starts_with("[... turns 1 to 6 left out by gradus ...]\nturn 7:\n"), "{text}");
    }

    #[test]
    fn a_turn_of_many_calls_loses_its_middle_and_then_all_calls() {
        let (text, _) = conversation(vec![turn(1, 1_000, "a")], None, usize::MAX);
        assert!(
            text.contains("> tool_9\n") && text.contains("\n[... 980 calls left out by gradus ...]\ntool:\n> tool_990")
        );
        let (text, is_cut) = conversation(vec![turn(1, 1_000, "a")], None, 400);
        assert!(is_cut && text.contains("[... 1000 calls left out by gradus ...]\nanswer:\n> answer 1 a"), "{text}");
    }
}
