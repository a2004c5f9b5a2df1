//! Reads a reply in ReAct's text form, as models really write it: labels with stars or numbers, fenced JSON, no input,
//! the input on the action's line, several actions, observations that the model made up; and calls without labels
//! (`markup`). Linear in the text's length.
//!
//! Traces hold the reply, and whoever grades it reads it with a reader of his own: what is accepted here has to be read
//! in the same way there (`gradus/tests/agent/forms.rs`).

mod action;
mod markup;

use std::borrow::Cow;

use action::Written;

/// What a reply comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reading<'t> {
    Calls(TextCalls<'t>),
    Answer(Cow<'t, str>),
    /// Neither an action nor an answer; holds what is missing.
    Unreadable(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextCalls<'t> {
    pub(super) thought: Option<Cow<'t, str>>,
    /// One, or several that were written as one action; never none.
    pub(super) calls: Vec<TextCall<'t>>,
    /// The reply up to where this action ends. What is behind was written without having seen what comes back.
    pub(super) kept: &'t str,
    /// Another action stands behind.
    pub(super) has_more: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextCall<'t> {
    pub(super) name: Cow<'t, str>,
    /// The text that should be JSON; empty if there is none.
    pub(super) input: Cow<'t, str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Thought,
    Action,
    Input,
    Observation,
    FinalAnswer,
    /// An ordinary word, too.
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
    match labelled(text, &marks, thinking) {
        Reading::Unreadable(problem) => markup::read(text, thinking).unwrap_or(Reading::Unreadable(problem)),
        reading => reading,
    }
}

/// What the labels say.
fn labelled<'t>(text: &'t str, marks: &[Mark], thinking: Option<&'t str>) -> Reading<'t> {
    let end_of = |index: usize| marks.get(index + 1).map_or(text.len(), |next| next.start);
    let last_action = marks.iter().rposition(|mark| mark.label == Label::Action);
    let mut nameless = false;
    for (index, mark) in marks.iter().enumerate() {
        match mark.label {
            Label::FinalAnswer | Label::Answer => return answer(text, marks, index),
            Label::Action => {}
            _ => continue,
        }
        let next = marks.get(index + 1);
        let behind = next.filter(|next| next.label == Label::Input);
        let calls = match action::read(&text[mark.content..end_of(index)], behind.is_some()) {
            Written::Name(name) if action::is_nothing(name) => continue,
            // Of two actions before one input, the first is said and not done.
            Written::Name(_) if next.is_some_and(|next| next.label == Label::Action) => continue,
            Written::Nothing => {
                nameless = nameless || text[mark.content..end_of(index)].trim().is_empty();
                continue;
            }
            Written::Name(name) => {
                let input = behind.map_or("", |input| &text[input.content..end_of(index + 1)]);
                vec![TextCall { name: name.into(), input: action::input(input).into() }]
            }
            Written::Calls(calls) => calls,
        };
        if let Some(finishing) = calls.iter().find(|call| action::is_answer(&call.name)) {
            let answer = action::answer(&finishing.input).into_owned();
            return given(answer.into());
        }
        let last = if behind.is_some() { index + 1 } else { index };
        return Reading::Calls(TextCalls {
            thought: thought(text, &marks[..index], mark.start, thinking),
            calls,
            kept: text[..end_of(last)].trim(),
            has_more: last_action.is_some_and(|action| action > last),
        });
    }
    Reading::Unreadable(if nameless {
        "its Action names no tool"
    } else if marks.iter().any(|mark| mark.label == Label::Input) {
        "it has an Action Input without an Action"
    } else {
        "it has neither an Action nor a Final Answer"
    })
}

/// Leaves out labels that are only words of a thought: an answer's that an action with its input still follows (whoever
/// goes on to act was not done), and an observation's where nothing was done yet.
fn outside_thoughts(marks: Vec<Mark>) -> Vec<Mark> {
    let (mut input_ahead, mut action_ahead) = (false, false);
    let mut outside: Vec<Mark> = Vec::with_capacity(marks.len());
    for mark in marks.into_iter().rev() {
        match mark.label {
            Label::Observation => (input_ahead, action_ahead) = (false, false),
            Label::Input => (input_ahead, action_ahead) = (true, false),
            Label::Action => action_ahead = action_ahead || input_ahead,
            Label::FinalAnswer | Label::Answer if action_ahead => continue,
            _ => {}
        }
        outside.push(mark);
    }
    outside.reverse();
    let mut before = None;
    outside.retain(|mark| {
        let is_word = mark.label == Label::Observation && before == Some(Label::Thought);
        if !is_word {
            before = Some(mark.label);
        }
        !is_word
    });
    outside
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
    let found = found.into_iter().filter(|(_, fenced)| !(fences_count && *fenced)).map(|(mark, _)| mark);
    outside_thoughts(outside_arguments(text, found))
}

/// Those that do not stand inside an argument: a text in it may have lines of its own.
fn outside_arguments(text: &str, marks: impl Iterator<Item = Mark>) -> Vec<Mark> {
    // Keeps it all linear on texts full of brackets that never close.
    let mut budget = 4 * text.len();
    let mut end = 0;
    let mut outside = Vec::new();
    for mark in marks {
        if mark.start < end {
            continue;
        }
        if matches!(mark.label, Label::Action | Label::Input) {
            end = end_of_brackets(text, mark.content, &mut budget).unwrap_or(end);
        }
        outside.push(mark);
    }
    outside
}

/// Where the brackets close that stand behind a label, also in a fence.
fn end_of_brackets(text: &str, start: usize, budget: &mut usize) -> Option<usize> {
    let mut body = text[start..].trim_start();
    if body.starts_with("```") {
        body = body[body.find('\n')?..].trim_start();
    }
    if !body.starts_with(['{', '[']) {
        return None;
    }
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    // An apostrophe opens a text only where a key or a value can begin.
    let mut before = b'{';
    for (at, byte) in body.bytes().enumerate() {
        *budget = budget.checked_sub(1)?;
        match (quote, byte) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(open), _) => quote = (byte != open).then_some(open),
            (None, b'"') => quote = Some(byte),
            (None, b'\'') if matches!(before, b'{' | b'[' | b',' | b':' | b'(') => quote = Some(byte),
            (None, b'{' | b'[') => depth += 1,
            (None, b'}' | b']') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(text.len() - body.len() + at + 1);
                }
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
    }
    None
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
    given(Cow::Borrowed(text[mark.content..end.map_or(text.len(), |next| next.start)].trim()))
}

fn given(answer: Cow<'_, str>) -> Reading<'_> {
    if answer.is_empty() {
        return Reading::Unreadable("its Final Answer is empty");
    }
    Reading::Answer(answer)
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
        let said = text[mark.content..end].trim();
        let said = match mark.label {
            Label::Thought => Cow::Borrowed(said),
            // Right before another action, one that is not carried out is a line of the thought.
            Label::Action if before.get(index + 1).is_none_or(|next| next.label == Label::Action) => {
                Cow::Owned(format!("Action: {said}"))
            }
            _ => continue,
        };
        if thought.is_empty() {
            thought = said;
        } else if !said.is_empty() {
            thought.to_mut().push('\n');
            thought.to_mut().push_str(&said);
        }
    }
    if thought.is_empty() { thinking.map(Cow::Borrowed) } else { Some(thought) }
}

#[cfg(test)]
mod tests;
