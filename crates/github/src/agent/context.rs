//! Keeps a conversation within what the model can take in. What is left out is left out visibly.

use gradus_llm::Message;
use serde_json::Value;

use super::prompt::OBSERVATION;

/// A token is seldom less than this in JSON and code.
pub(super) const BYTES_OF_A_TOKEN: usize = 3;
/// So much of an old observation stays.
const OLD: usize = 240;
/// So much of the newest ones stays at least.
const NEW: usize = 2_000;
const MARK: &str = "[agent: ";

/// Shortens a conversation to `room` bytes, beside `fixed` bytes that are sent anyway. Old observations go first, then
/// what the model itself wrote at length, then the newest observations. Says whether it fits now.
pub(super) fn fit(messages: &mut [Message], fixed: usize, room: usize) -> bool {
    let room = room.saturating_sub(fixed);
    let mut total: usize = messages.iter().map(size).sum();
    if total <= room {
        return true;
    }
    // One observation must not push out all others.
    for message in messages.iter_mut() {
        if is_observation(message) {
            total -= shorten(message, (room / 2).max(NEW));
        }
    }
    let observations: Vec<usize> = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| is_observation(message))
        .map(|(at, _)| at)
        .collect();
    let (old, new) = observations.split_at(observations.len().saturating_sub(2));
    for at in old {
        if total <= room {
            return true;
        }
        total -= shorten(&mut messages[*at], OLD);
    }
    let written = messages.len().saturating_sub(1);
    for message in &mut messages[..written] {
        if total <= room {
            return true;
        }
        if matches!(message, Message::Assistant { .. }) {
            total -= shorten(message, OLD);
        }
    }
    for at in new {
        if total <= room {
            return true;
        }
        total -= shorten(&mut messages[*at], NEW);
    }
    total <= room
}

pub(super) fn size(message: &Message) -> usize {
    // Roles, ids and braces.
    const AROUND: usize = 40;
    AROUND
        + match message {
            Message::User { text } => text.len(),
            Message::Assistant { text, calls } => {
                text.len()
                    + calls.iter().map(|call| AROUND + call.name.len() + call.arguments.len()).sum::<usize>()
            }
            Message::Tool { text, name, .. } => text.len() + name.len(),
        }
}

fn is_observation(message: &Message) -> bool {
    match message {
        Message::Tool { .. } => true,
        Message::User { text } => text.starts_with(OBSERVATION),
        Message::Assistant { .. } => false,
    }
}

/// Cuts the texts of a message to about `length`, and says how much shorter it got.
fn shorten(message: &mut Message, length: usize) -> usize {
    let before = size(message);
    match message {
        Message::User { text } | Message::Tool { text, .. } => cut(text, length),
        Message::Assistant { text, calls } => {
            cut(text, length);
            for call in calls {
                shorten_arguments(&mut call.arguments, length);
            }
        }
    }
    before.saturating_sub(size(message))
}

/// Arguments must stay JSON: the texts in them are cut.
fn shorten_arguments(arguments: &mut String, length: usize) {
    if arguments.len() <= length {
        return;
    }
    match serde_json::from_str::<Value>(arguments) {
        Ok(mut json) => {
            cut_texts(&mut json, length / 2);
            let shorter = json.to_string();
            if shorter.len() < arguments.len() {
                *arguments = shorter;
            }
        }
        Err(_) => cut(arguments, length),
    }
}

fn cut_texts(json: &mut Value, length: usize) {
    match json {
        Value::String(text) => cut(text, length),
        Value::Array(items) => items.iter_mut().for_each(|item| cut_texts(item, length)),
        Value::Object(members) => members.values_mut().for_each(|member| cut_texts(member, length)),
        _ => {}
    }
}

/// Keeps the beginning, and says what is missing.
fn cut(text: &mut String, length: usize) {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // What was cut before is not measured by its note.
    let before = text.find(MARK).filter(|at| *at <= end && text.ends_with(']'));
    let missing = text[end..].chars().count();
    let note = format!(
        " … {MARK}{missing} characters are left out here to save room; call again what gave them if you need them]"
    );
    if before.is_some() || text.len() <= end + note.len() {
        return;
    }
    text.truncate(end);
    text.push_str(&note);
}

#[cfg(test)]
mod tests {
    use gradus_llm::ToolCall;

    use super::*;

    fn conversation(observations: usize, length: usize) -> Vec<Message> {
        let mut messages = vec![Message::User { text: "do".to_owned() }];
        for number in 0..observations {
            let call = ToolCall {
                id: number.to_string(),
                name: "read".to_owned(),
                arguments: "{\"n\":1}".to_owned(),
            };
            messages.push(Message::Assistant { text: "I read.".to_owned(), calls: vec![call] });
            messages.push(Message::Tool {
                call_id: number.to_string(),
                name: "read".to_owned(),
                text: format!("{number} {}", "ö".repeat(length / 2)),
                is_error: false,
            });
        }
        messages
    }

    fn text(message: &Message) -> &str {
        match message {
            Message::User { text } | Message::Assistant { text, .. } | Message::Tool { text, .. } => text,
        }
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut messages = conversation(3, 1_000);
        assert!(fit(&mut messages, 0, 10_000));
        assert_eq!(messages, conversation(3, 1_000));
    }

    #[test]
    fn old_observations_go_first_and_visibly() {
        let mut messages = conversation(10, 4_000);
        assert!(fit(&mut messages, 500, 25_000));
        assert!(text(&messages[2]).contains("characters are left out here"), "{}", text(&messages[2]));
        assert!(text(&messages[2]).starts_with("0 ö"));
        assert_eq!(text(&messages[20]), text(&conversation(10, 4_000)[20]), "the newest is whole");
        let before = messages.clone();
        assert!(fit(&mut messages, 500, 25_000));
        assert_eq!(messages, before, "nothing is cut twice");
    }

    #[test]
    fn one_huge_observation_does_not_push_out_the_others() {
        let mut messages = conversation(3, 3_000);
        messages.push(Message::Tool {
            call_id: "x".to_owned(),
            name: "read".to_owned(),
            text: "y".repeat(1_000_000),
            is_error: false,
        });
        assert!(fit(&mut messages, 0, 30_000));
        assert_eq!(messages[..7], conversation(3, 3_000)[..]);
        assert!(text(&messages[7]).len() > 14_000);
    }

    #[test]
    fn long_arguments_stay_json() {
        let arguments = serde_json::json!({"path": "a", "content": "x".repeat(50_000)}).to_string();
        let call = ToolCall { id: "1".to_owned(), name: "write".to_owned(), arguments };
        let mut messages = vec![
            Message::User { text: "do".to_owned() },
            Message::Assistant { text: String::new(), calls: vec![call] },
            Message::Tool {
                call_id: "1".to_owned(),
                name: "write".to_owned(),
                text: "ok".to_owned(),
                is_error: false,
            },
        ];
        assert!(fit(&mut messages, 0, 5_000));
        let Message::Assistant { calls, .. } = &messages[1] else { panic!() };
        let json: Value = serde_json::from_str(&calls[0].arguments).expect("JSON");
        assert_eq!(json["path"], "a");
        assert!(json["content"].as_str().is_some_and(|text| text.contains("left out")));
    }

    #[test]
    fn says_when_it_cannot_fit() {
        let mut messages = vec![Message::User { text: "x".repeat(10_000) }];
        assert!(!fit(&mut messages, 0, 5_000));
        assert_eq!(text(&messages[0]).len(), 10_000, "the request is never cut");
    }
}
