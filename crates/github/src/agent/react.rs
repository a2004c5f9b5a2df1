//! Reads a reply in ReAct's text form, as models really write it: labels with stars or numbers, fenced JSON, no input,
//! the input on the action's line, several actions, observations that the model made up. Linear in the text's length.
//!
//! Traces hold the reply, and whoever grades it reads it with a reader of his own: what is accepted here has to be read
//! in the same way there (`gradus/tests/agent/forms.rs`).

use std::borrow::Cow;

/// What a reply comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reading<'t> {
    Call(TextCall<'t>),
    Answer(Cow<'t, str>),
    /// Neither an action nor an answer; holds what is missing.
    Unreadable(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextCall<'t> {
    pub(super) thought: Option<Cow<'t, str>>,
    pub(super) name: &'t str,
    /// The text that should be JSON; empty if there is none.
    pub(super) input: &'t str,
    /// The reply up to where this action ends. What is behind was written without having seen what comes back.
    pub(super) kept: &'t str,
    /// Another action stands behind.
    pub(super) has_more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Thought,
    Action,
    Input,
    Observation,
    FinalAnswer,
    /// An ordinary word, too: it counts only where no action stands behind it.
    Answer,
}

/// Longest first: `Action Input` before `Action`.
const WORDS: [(&str, Label); 10] = [
    ("final answer", Label::FinalAnswer),
    ("final_answer", Label::FinalAnswer),
    ("finalanswer", Label::FinalAnswer),
    ("action input", Label::Input),
    ("action_input", Label::Input),
    ("actioninput", Label::Input),
    ("observation", Label::Observation),
    ("thought", Label::Thought),
    ("action", Label::Action),
    ("answer", Label::Answer),
];

#[derive(Clone, Copy, Debug)]
struct Mark {
    label: Label,
    /// Where its line begins.
    start: usize,
    /// Where the text behind the label begins.
    content: usize,
}

pub(super) fn read(text: &str) -> Reading<'_> {
    let (thinking, text) = split_thinking(text);
    if text.trim().is_empty() {
        return Reading::Unreadable("it was empty");
    }
    let marks = marks(text);
    let end_of = |index: usize| marks.get(index + 1).map_or(text.len(), |next| next.start);
    let last_action = marks.iter().rposition(|mark| mark.label == Label::Action);
    let mut nameless = false;
    for (index, mark) in marks.iter().enumerate() {
        match mark.label {
            Label::FinalAnswer => return answer(text, &marks, index),
            Label::Answer if last_action.is_none_or(|last| last < index) => {
                return answer(text, &marks, index);
            }
            Label::Action => {
                let action = &text[mark.content..end_of(index)];
                let behind = marks.get(index + 1).filter(|next| next.label == Label::Input);
                let (head, inline) = split_inline_input(action);
                let (name, rest) = name_of(head);
                if is_nothing(name) {
                    nameless = nameless || name.is_empty();
                    continue;
                }
                let (input, last) = match (behind, inline) {
                    (Some(input), _) => (&text[input.content..end_of(index + 1)], index + 1),
                    (None, Some(inline)) => (inline, index),
                    (None, None) => (rest, index),
                };
                let input = unfence(input);
                if is_answer(name) {
                    return Reading::Answer(unquoted(input));
                }
                return Reading::Call(TextCall {
                    thought: thought(text, &marks[..index], mark.start, thinking),
                    name,
                    input: json_at_start(input).unwrap_or(input),
                    kept: text[..end_of(last)].trim(),
                    has_more: last_action.is_some_and(|action| action > last),
                });
            }
            _ => {}
        }
    }
    Reading::Unreadable(if nameless {
        "its Action names no tool"
    } else if marks.iter().any(|mark| mark.label == Label::Input) {
        "it has an Action Input without an Action"
    } else {
        "it has neither an Action nor a Final Answer"
    })
}

/// Reasoning models think aloud first: what they thought, and what they say then.
pub(super) fn split_thinking(text: &str) -> (Option<&str>, &str) {
    for (open, close) in
        [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>")]
    {
        if let Some((thinking, behind)) =
            text.trim_start().strip_prefix(open).and_then(|rest| rest.split_once(close))
        {
            let thinking = thinking.trim();
            return ((!thinking.is_empty()).then_some(thinking), behind);
        }
    }
    (None, text)
}

/// Lines that begin with a label. Those in a code fence are only text, unless everything is fenced.
fn marks(text: &str) -> Vec<Mark> {
    let mut found: Vec<(Mark, bool)> = Vec::new();
    let (mut start, mut in_fence, mut fences) = (0, false, 0_usize);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            fences += 1;
        } else if let Some((label, length)) = label(line) {
            found.push((Mark { label, start, content: start + length }, in_fence));
        }
        start += line.len();
    }
    // A fence that never closes cannot be trusted to have begun.
    let fences_count = fences.is_multiple_of(2) && found.iter().any(|(_, fenced)| !fenced);
    found.into_iter().filter(|(_, fenced)| !(fences_count && *fenced)).map(|(mark, _)| mark).collect()
}

/// The label that a line begins with, and how long it is with all that decorates it.
fn label(line: &str) -> Option<(Label, usize)> {
    let bare = line.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '_' | '#' | '>'));
    let (word, label) = WORDS
        .iter()
        .find(|(word, _)| bare.get(..word.len()).is_some_and(|written| written.eq_ignore_ascii_case(word)))?;
    // `Thought 3:`, `**Action**:`, `**Action:**`
    let behind =
        bare[word.len()..].trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ' ' | '*' | '_'));
    let content = behind.strip_prefix(':')?;
    let content = content.strip_prefix("**").unwrap_or(content);
    Some((*label, line.len() - content.len()))
}

fn answer<'t>(text: &'t str, marks: &[Mark], index: usize) -> Reading<'t> {
    let mark = marks[index];
    // Nothing ends an answer but an observation, which a model that goes on dreaming writes.
    let end = marks[index + 1..].iter().find(|next| next.label == Label::Observation);
    let answer = text[mark.content..end.map_or(text.len(), |next| next.start)].trim();
    if answer.is_empty() {
        return Reading::Unreadable("its Final Answer is empty");
    }
    Reading::Answer(Cow::Borrowed(answer))
}

/// What was said before an action: behind each `Thought:`, else what the model thought aloud, else all of it.
fn thought<'t>(
    text: &'t str,
    before: &[Mark],
    end: usize,
    thinking: Option<&'t str>,
) -> Option<Cow<'t, str>> {
    let Some(first) = before.iter().position(|mark| mark.label == Label::Thought) else {
        let all = text[..end].trim();
        return thinking.or((!all.is_empty()).then_some(all)).map(Cow::Borrowed);
    };
    let mut thought = Cow::Borrowed("");
    for (index, mark) in before.iter().enumerate().skip(first) {
        let end = before.get(index + 1).map_or(end, |next| next.start);
        let said = match mark.label {
            // An action that names no tool, as the actions before the one that counts are.
            Label::Action => "",
            Label::Thought => text[mark.content..end].trim(),
            _ => text[mark.start..end].trim(),
        };
        if thought.is_empty() {
            thought = Cow::Borrowed(said);
        } else if !said.is_empty() {
            thought.to_mut().push('\n');
            thought.to_mut().push_str(said);
        }
    }
    if thought.is_empty() { thinking.map(Cow::Borrowed) } else { Some(thought) }
}

/// An answer as a JSON text, as some models write it.
fn unquoted(answer: &str) -> Cow<'_, str> {
    match serde_json::from_str::<String>(answer) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(answer),
    }
}

/// `Action: tool Action Input: {..}`, all on one line.
fn split_inline_input(action: &str) -> (&str, Option<&str>) {
    let line = action.lines().next().unwrap_or_default();
    let lower = line.to_ascii_lowercase();
    // Behind a bracket it is a text among the arguments.
    let at = lower.find("action input:").filter(|at| !line[..*at].contains(['{', '(', '[']));
    match at {
        Some(at) => (&action[..at], Some(&action[at + "action input:".len()..])),
        None => (action, None),
    }
}

/// A tool's name behind `Action:`, and what follows it: `tool`, `` `tool` ``, `tool({..})`, `tool[..]`, or the name in
/// the JSON `{"action": "tool", ...}`.
fn name_of(action: &str) -> (&str, &str) {
    let body = unfence(action);
    if body.starts_with('{') {
        return name_in_json(body);
    }
    let (line, below) = body.split_once('\n').unwrap_or((body, ""));
    let line = line.trim().trim_matches(|c: char| matches!(c, '*' | '`' | '"' | '\''));
    if let Some(open) = line.find(['(', '[', '{']) {
        let name = line[..open].trim();
        // What is called may go on over the lines below.
        let rest = &body[body.find(['(', '[', '{']).unwrap_or(0)..];
        let inner = match line.as_bytes()[open] {
            b'(' => rest[1..].trim_end().trim_end_matches(['`', '*']).strip_suffix(')').unwrap_or(&rest[1..]),
            b'[' => rest[1..].trim_end().trim_end_matches(['`', '*']).strip_suffix(']').unwrap_or(&rest[1..]),
            _ => rest,
        };
        return (name, inner.trim());
    }
    (line.trim_end_matches(['.', ':']).trim(), below.trim())
}

/// The texts behind `"action"` and `"action_input"` and their other names. No JSON reader is needed to find where they
/// are, and whether the input is JSON is looked at later.
fn name_in_json(body: &str) -> (&str, &str) {
    let behind = |key: &str| {
        let at = body.find(key)? + key.len();
        Some(body[at..].trim_start().strip_prefix(':')?.trim_start())
    };
    let name = ["\"action\"", "\"tool\"", "\"name\"", "\"tool_name\""].iter().find_map(|key| {
        let value = behind(key)?.strip_prefix('"')?;
        value.split_once('"').map(|(name, _)| name)
    });
    let input =
        ["\"action_input\"", "\"tool_input\"", "\"arguments\"", "\"parameters\"", "\"input\"", "\"args\""]
            .iter()
            .find_map(|key| behind(key));
    let input = input.map(|input| json_at_start(input).unwrap_or(input));
    (name.unwrap_or_default(), input.unwrap_or_default())
}

/// The JSON value that a text begins with; what follows it is talk.
fn json_at_start(text: &str) -> Option<&str> {
    let text = text.trim_start();
    if !text.starts_with(['{', '[', '"']) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    Some(&text[..values.byte_offset()])
}

/// What is inside a code fence, if the text begins with one.
fn unfence(text: &str) -> &str {
    let text = text.trim();
    let Some(fenced) = text.strip_prefix("```") else {
        // One pair of backticks around it all.
        return text.strip_prefix('`').and_then(|text| text.strip_suffix('`')).unwrap_or(text).trim();
    };
    // The language stands behind the fence: `json`, or nothing.
    let body = fenced.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    body.split_once("```").map_or(body, |(body, _)| body).trim()
}

fn is_nothing(name: &str) -> bool {
    ["", "none", "n/a", "no action", "nothing", "-", "null"]
        .iter()
        .any(|nothing| name.eq_ignore_ascii_case(nothing))
}

fn is_answer(name: &str) -> bool {
    ["final answer", "final_answer", "finalanswer", "finish"]
        .iter()
        .any(|word| name.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> TextCall<'_> {
        match read(text) {
            Reading::Call(call) => call,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn reads_the_plain_form() {
        let text = "Thought: I look.\nAction: read_file\nAction Input: {\"path\": \"a\"}";
        assert_eq!(
            call(text),
            TextCall {
                thought: Some("I look.".into()),
                name: "read_file",
                input: "{\"path\": \"a\"}",
                kept: text,
                has_more: false
            }
        );
    }

    #[test]
    fn reads_actions_as_models_write_them() {
        for text in [
            "**Thought:** t\n**Action:** `read`\n**Action Input:** {\"a\": 1}",
            "Thought 1: t\nAction 1: read\nAction Input 1: {\"a\": 1}\n",
            "Thought: t\nAction: read\nAction Input:\n```json\n{\"a\": 1}\n```\n",
            "Thought: t\nAction: read\nAction Input: ```{\"a\": 1}```",
            "Thought: t\nAction: read\nAction Input: `{\"a\": 1}`",
            "Thought: t\nAction: read Action Input: {\"a\": 1}",
            "Thought: t\nAction: read\n{\"a\": 1}",
            "Thought: t\nAction: read({\"a\": 1})",
            "Thought: t\nAction:\n```json\n{\"action\": \"read\", \"action_input\": {\"a\": 1}}\n```",
            "Thought: t\nAction: {\"name\": \"read\", \"arguments\": {\"a\": 1}}",
            "thought: t\naction: read\naction_input: {\"a\": 1}",
            "t\n\nAction: read\nAction Input: {\"a\": 1}\nObservation: {\"made\": \"up\"}\nThought: nice\nFinal Answer: x",
            "Thought: t\nAction: read\nAction Input: {\"a\": 1}, along those lines.",
            "<think>\nAction: other\n</think>\nThought: t\nAction: read\nAction Input: {\"a\": 1}",
            "```\nThought: t\nAction: read\nAction Input: {\"a\": 1}\n```",
            "Thought: t\nAction: none\nThought: but\nAction: read\nAction Input: {\"a\": 1}",
            "Thought: t\nAction: {\"tool\": \"read\", \"tool_input\": {\"a\": 1}}",
        ] {
            let call = call(text);
            assert_eq!((call.name, call.input), ("read", "{\"a\": 1}"), "{text}");
            assert!(call.thought.is_some_and(|thought| thought.starts_with('t')), "{text}");
            assert!(!call.kept.contains("Observation"), "{text}");
        }
        assert_eq!(call("Action: get_me").input, "");
        assert_eq!(call("Action: get_me\nAction Input:").input, "");
        assert_eq!(call("Action: get_me\nAction Input: octo/demo").input, "octo/demo");
    }

    #[test]
    fn takes_the_first_of_several_actions() {
        let text = "Thought: both\nAction: a\nAction Input: {}\nAction: b\nAction Input: {\"x\": 1}";
        let first = call(text);
        assert_eq!((first.name, first.has_more), ("a", true));
        assert_eq!(first.kept, "Thought: both\nAction: a\nAction Input: {}");
    }

    #[test]
    fn labels_in_fences_and_files_are_text() {
        let text = "Thought: t\nAction: write\nAction Input: {\"content\": \"Final Answer: no\\nAction: x\"}";
        assert_eq!(call(text).name, "write");
        let text = "Action: write({\"content\": \"Action Input: no\"})";
        assert_eq!((call(text).name, call(text).input), ("write", "{\"content\": \"Action Input: no\"}"));
        let text = "Thought: I would do\n```\nAction: x\n```\nFinal Answer: no";
        assert_eq!(read(text), Reading::Answer("no".into()));
    }

    #[test]
    fn reads_answers_as_models_write_them() {
        for text in [
            "Thought: t\nFinal Answer: 42",
            "**Final Answer:** 42",
            "Thought: t\nFinal answer: 42\nObservation: made up",
            "FINAL_ANSWER: 42",
            "Thought: t\nAnswer: 42",
            "Thought: t\nAction: Final Answer\nAction Input: 42",
            "Thought: t\nAction: None\nFinal Answer: 42",
            "Thought: t\nAction: {\"action\": \"Final Answer\", \"action_input\": \"42\"}",
        ] {
            assert_eq!(read(text), Reading::Answer("42".into()), "{text}");
        }
        let long = "Final Answer: one\n\nThought: not a label here\n- two";
        assert!(matches!(read(long), Reading::Answer(answer) if answer.ends_with("two")));
        let later = "Answer: I must look first.\nAction: look\nAction Input: {}";
        assert_eq!(call(later).name, "look");
    }

    #[test]
    fn says_what_is_missing() {
        for (text, reason) in [
            ("", "empty"),
            (" \n", "empty"),
            ("<think>hm</think>", "empty"),
            ("I shall read the file.", "neither"),
            ("Thought: I shall read the file.", "neither"),
            ("Thought: t\nAction:\nAction Input: {}", "names no tool"),
            ("Thought: t\nAction Input: {}", "without an Action"),
            ("Thought: t\nFinal Answer:  ", "is empty"),
            ("Action: none", "neither"),
        ] {
            assert!(
                matches!(read(text), Reading::Unreadable(found) if found.contains(reason)),
                "{text}: {:?}",
                read(text)
            );
        }
    }

    #[test]
    fn long_texts_are_read_in_linear_time() {
        for part in [
            "Answer: x\n",
            "Thought: x\n",
            "Action: none\n",
            "```\n",
            "Action Input: {\n",
            "\"action\":",
            "[{",
        ] {
            let text = part.repeat(400_000 / part.len());
            let begun = std::time::Instant::now();
            let _ = read(&text);
            assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{part}");
            let _ = read(&format!("Action: {text}"));
            let _ = read(&format!("{text}\nAction: a"));
            assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{part}");
        }
    }
}
