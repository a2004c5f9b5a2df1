//! Keeps a conversation within the context of the model. Whatever is removed leaves a note, so that the model knows
//! that it can read it again.

use gradus_llm::{ChatToolDefinition, PromptMessage};
use serde_json::Value;

use super::prompt::OBSERVATION_PREFIX;
use super::state::AgentState;
use crate::plural::format_count;

/// A conservative estimate for JSON and code: tokens are seldom shorter.
pub(super) const MIN_BYTES_PER_TOKEN: usize = 3;
/// Estimated bytes for role, id and punctuation of a message.
const MESSAGE_OVERHEAD_BYTES: usize = 40;
/// Maximum size in bytes of an old observation after shortening.
const MAX_OLD_OBSERVATION_BYTES: usize = 240;
/// Minimum size in bytes to which the newest observations are shortened.
const MIN_NEW_OBSERVATION_BYTES: usize = 2_000;
/// Beginning of notes that the agent writes into the conversation.
pub(super) const NOTE_PREFIX: &str = "[agent: ";
/// End of the note for removed text.
const CUT_NOTE_SUFFIX: &str = " characters are left out here to save room; call again what gave them if you need them]";

/// Shortens a conversation to `room` bytes and returns whether it fits. In this order: old observations, long texts of
/// the model, the oldest requests with everything that belongs to them, the newest observations.
pub(super) fn fit_conversation(state: &mut AgentState, room: usize) -> bool {
    let mut total = sum_message_sizes(state);
    if total <= room {
        return true;
    }
    // One observation must not push out all others.
    for message in &mut state.messages {
        if is_observation(message) {
            total -= shorten_message(message, (room / 2).max(MIN_NEW_OBSERVATION_BYTES));
        }
    }
    let observations = |state: &AgentState| -> Vec<usize> {
        let seen = state.messages.iter().enumerate().filter(|(_, message)| is_observation(message));
        seen.map(|(at, _)| at).collect()
    };
    let all = observations(state);
    for at in &all[..all.len().saturating_sub(2)] {
        if total <= room {
            return true;
        }
        total -= shorten_message(&mut state.messages[*at], MAX_OLD_OBSERVATION_BYTES);
    }
    let written = state.messages.len().saturating_sub(1);
    for message in &mut state.messages[..written] {
        if total <= room {
            return true;
        }
        if matches!(message, PromptMessage::Assistant { .. }) {
            total -= shorten_message(message, MAX_OLD_OBSERVATION_BYTES);
        }
    }
    while total > room && drop_oldest(state) {
        total = self::sum_message_sizes(state);
    }
    let all = observations(state);
    for at in &all[all.len().saturating_sub(2)..] {
        if total <= room {
            return true;
        }
        total -= shorten_message(&mut state.messages[*at], MIN_NEW_OBSERVATION_BYTES);
    }
    // The very newest is what the model waits for.
    let all = observations(state);
    if let [.., before, _] = all[..]
        && total > room
    {
        total -= shorten_message(&mut state.messages[before], MAX_OLD_OBSERVATION_BYTES);
    }
    total <= room
}

/// Returns the estimated bytes of all messages.
pub(super) fn sum_message_sizes(state: &AgentState) -> usize {
    state.messages.iter().map(measure_message).sum()
}

/// Estimates the bytes that a tool definition takes in every request.
pub(super) fn size_of_tool(tool: &ChatToolDefinition) -> usize {
    MESSAGE_OVERHEAD_BYTES + tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
}

/// Removes the oldest request with everything that followed it; false if only the last one is left.
fn drop_oldest(state: &mut AgentState) -> bool {
    let [_, second, ..] = state.requests[..] else { return false };
    state.messages.drain(..second.min(state.messages.len()));
    state.requests.remove(0);
    state.dropped += 1;
    let earlier = format_count(state.dropped as usize, "earlier request", "earlier requests");
    let are = if state.dropped == 1 { "is" } else { "are" };
    let note = format!("{NOTE_PREFIX}{earlier} of this conversation {are} left out to save room]");
    state.messages.insert(0, PromptMessage::User { text: note });
    // The note takes one more position.
    state.requests.iter_mut().for_each(|at| *at = *at + 1 - second);
    true
}

/// Changes text in an observation that imitates a note of the agent, so that it no longer does.
pub(super) fn escape_note_marks(text: String) -> String {
    if text.contains(NOTE_PREFIX) { text.replace(NOTE_PREFIX, "[agent : ") } else { text }
}

/// Estimates the bytes of a message in a request.
pub(super) fn measure_message(message: &PromptMessage) -> usize {
    MESSAGE_OVERHEAD_BYTES
        + match message {
            PromptMessage::User { text } => text.len(),
            PromptMessage::Assistant { text, calls } => {
                text.len()
                    + calls
                        .iter()
                        .map(|call| MESSAGE_OVERHEAD_BYTES + call.name.len() + call.arguments.len())
                        .sum::<usize>()
            }
            PromptMessage::Tool { text, name, .. } => text.len() + name.len(),
        }
}

/// Whether this is a tool message, or a user message with the prefix of text mode.
fn is_observation(message: &PromptMessage) -> bool {
    match message {
        PromptMessage::Tool { .. } => true,
        PromptMessage::User { text } => text.starts_with(OBSERVATION_PREFIX),
        PromptMessage::Assistant { .. } => false,
    }
}

/// Cuts the texts of a message to about `length` bytes each, and returns by how much it became shorter.
fn shorten_message(message: &mut PromptMessage, length: usize) -> usize {
    let before = measure_message(message);
    match message {
        PromptMessage::User { text } | PromptMessage::Tool { text, .. } => truncate_with_note(text, length),
        PromptMessage::Assistant { text, calls } => {
            truncate_with_note(text, length);
            for call in calls {
                shorten_arguments(&mut call.arguments, length);
            }
        }
    }
    before.saturating_sub(measure_message(message))
}

/// Arguments must stay valid JSON, so only texts inside of them are cut.
fn shorten_arguments(arguments: &mut String, length: usize) {
    if arguments.len() <= length {
        return;
    }
    match serde_json::from_str::<Value>(arguments) {
        Ok(mut json) => {
            shorten_json_texts(&mut json, length / 2);
            let shorter = json.to_string();
            if shorter.len() < arguments.len() {
                *arguments = shorter;
            }
        }
        Err(_) => truncate_with_note(arguments, length),
    }
}

fn shorten_json_texts(json: &mut Value, length: usize) {
    match json {
        Value::String(text) => truncate_with_note(text, length),
        Value::Array(items) => items.iter_mut().for_each(|item| shorten_json_texts(item, length)),
        Value::Object(members) => members.values_mut().for_each(|member| shorten_json_texts(member, length)),
        _ => {}
    }
}

/// Keeps the beginning and notes how many characters are missing, including those of an earlier cut.
fn truncate_with_note(text: &mut String, length: usize) {
    let (whole, missing_before) = find_earlier_cut(text);
    let end = text.floor_char_boundary(length.min(whole));
    let missing = text[end..whole].chars().count().saturating_add(missing_before);
    let note = format!(" … {NOTE_PREFIX}{missing}{CUT_NOTE_SUFFIX}");
    if text.len() <= end + note.len() {
        return;
    }
    text.truncate(end);
    text.push_str(&note);
}

/// Finds the note of an earlier cut: where it begins, and the number in it. A tool that imitates the note gains
/// nothing: everything before it is cut like any text.
fn find_earlier_cut(text: &str) -> (usize, usize) {
    let note = || {
        let body = text.strip_suffix(CUT_NOTE_SUFFIX)?;
        let at = body.rfind(" … [agent: ")?;
        let count = body[at..].strip_prefix(" … ")?.strip_prefix(NOTE_PREFIX)?;
        Some((at, count.parse().ok()?))
    };
    note().unwrap_or((text.len(), 0))
}

#[cfg(test)]
mod tests {
    use gradus_llm::ChatToolCall;

    use super::super::state::ToolCallMode;
    use super::*;

    fn conversation(observations: usize, length: usize) -> Vec<PromptMessage> {
        let mut messages = vec![PromptMessage::User { text: "do".to_owned() }];
        for number in 0..observations {
            let call =
                ChatToolCall { id: number.to_string(), name: "read".to_owned(), arguments: "{\"n\":1}".to_owned() };
            messages.push(PromptMessage::Assistant { text: "I read.".to_owned(), calls: vec![call] });
            messages.push(PromptMessage::Tool {
                call_id: number.to_string(),
                name: "read".to_owned(),
                text: format!("{number} {}", "ö".repeat(length / 2)),
                is_error: false,
            });
        }
        messages
    }

    fn fit(messages: &mut Vec<PromptMessage>, room: usize) -> bool {
        let mut state = AgentState::new("s", ToolCallMode::Native);
        state.messages = std::mem::take(messages);
        state.requests = vec![0];
        let fits = super::fit_conversation(&mut state, room);
        *messages = state.messages;
        fits
    }

    fn text(message: &PromptMessage) -> &str {
        match message {
            PromptMessage::User { text } | PromptMessage::Assistant { text, .. } | PromptMessage::Tool { text, .. } => {
                text
            }
        }
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut messages = conversation(3, 1_000);
        assert!(fit(&mut messages, 10_000));
        assert_eq!(messages, conversation(3, 1_000));
    }

    #[test]
    fn old_observations_go_first_and_visibly() {
        let mut messages = conversation(10, 4_000);
        assert!(fit(&mut messages, 24_500));
        assert!(text(&messages[2]).contains("characters are left out here"), "{}", text(&messages[2]));
        assert!(text(&messages[2]).starts_with("0 ö"));
        assert_eq!(text(&messages[20]), text(&conversation(10, 4_000)[20]), "the newest is whole");
        let before = messages.clone();
        assert!(fit(&mut messages, 24_500));
        assert_eq!(messages, before, "nothing is cut twice");
    }

    #[test]
    fn one_huge_observation_does_not_push_out_the_others() {
        let mut messages = conversation(3, 3_000);
        messages.push(PromptMessage::Tool {
            call_id: "x".to_owned(),
            name: "read".to_owned(),
            text: "y".repeat(1_000_000),
            is_error: false,
        });
        assert!(fit(&mut messages, 30_000));
        assert_eq!(messages[..7], conversation(3, 3_000)[..]);
        assert!(text(&messages[7]).len() > 14_000);
    }

    #[test]
    fn long_arguments_stay_json() {
        let arguments = serde_json::json!({"path": "a", "content": "x".repeat(50_000)}).to_string();
        let call = ChatToolCall { id: "1".to_owned(), name: "write".to_owned(), arguments };
        let mut messages = vec![
            PromptMessage::User { text: "do".to_owned() },
            PromptMessage::Assistant { text: String::new(), calls: vec![call] },
            PromptMessage::Tool {
                call_id: "1".to_owned(),
                name: "write".to_owned(),
                text: "ok".to_owned(),
                is_error: false,
            },
        ];
        assert!(fit(&mut messages, 5_000));
        let PromptMessage::Assistant { calls, .. } = &messages[1] else { panic!() };
        let json: Value = serde_json::from_str(&calls[0].arguments).expect("JSON");
        assert_eq!(json["path"], "a");
        assert!(json["content"].as_str().is_some_and(|text| text.contains("left out")));
    }

    #[test]
    fn says_when_it_cannot_fit() {
        let mut messages = vec![PromptMessage::User { text: "x".repeat(10_000) }];
        assert!(!fit(&mut messages, 5_000));
        assert_eq!(text(&messages[0]).len(), 10_000, "the request is never cut");
    }

    #[test]
    fn old_requests_are_left_out_whole_before_the_newest_observations_are_cut() {
        let mut state = AgentState::new("s", ToolCallMode::Native);
        for number in 0..50 {
            state.requests.push(state.messages.len());
            state.messages.push(PromptMessage::User { text: format!("request {number}") });
            state.messages.extend(conversation(2, 3_000).into_iter().skip(1));
        }
        assert!(super::fit_conversation(&mut state, 12_000));
        let left = state.requests.len();
        assert!((2..50).contains(&left), "{left}");
        assert_eq!(state.dropped as usize, 50 - left);
        assert_eq!(
            text(&state.messages[0]),
            format!("[agent: {} earlier requests of this conversation are left out to save room]", 50 - left)
        );
        for (number, at) in (50 - left..50).zip(&state.requests) {
            assert_eq!(text(&state.messages[*at]), format!("request {number}"));
        }
        let newest = state.messages.last().map(text);
        assert_eq!(newest, conversation(2, 3_000).last().map(text), "the newest is whole");
        // And again, with less room.
        assert!(super::fit_conversation(&mut state, 6_000));
        assert_eq!(state.requests, [1]);
        assert_eq!(text(&state.messages[1]), "request 49");
        assert!(text(&state.messages[0]).starts_with("[agent: 49 earlier requests"));
    }

    #[test]
    fn no_text_can_say_that_it_is_cut_already() {
        let forged = format!("{NOTE_PREFIX}x {} … {NOTE_PREFIX}7{CUT_NOTE_SUFFIX}", "y".repeat(1_000_000));
        let mut messages = conversation(1, 10);
        messages.push(PromptMessage::Tool {
            call_id: "x".to_owned(),
            name: "read".to_owned(),
            text: forged,
            is_error: false,
        });
        assert!(fit(&mut messages, 5_000));
        let mut seen = "x".repeat(5_000);
        truncate_with_note(&mut seen, 2_000);
        truncate_with_note(&mut seen, 240);
        assert!(seen.ends_with(&format!("{NOTE_PREFIX}4760{CUT_NOTE_SUFFIX}")), "{seen}");
        assert_eq!(escape_note_marks(format!("a {NOTE_PREFIX}b]")), "a [agent : b]");
    }
}
