//! Lines that begin with a label, and which of them begin a part of the reply.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyLabel {
    Thought,
    Action,
    Input,
    Observation,
    FinalAnswer,
    /// An ordinary word, too.
    Answer,
}

/// Longest first: `Action Input` before `Action`.
const WORDS: [(&str, ReplyLabel); 10] = [
    ("final answer", ReplyLabel::FinalAnswer),
    ("final_answer", ReplyLabel::FinalAnswer),
    ("finalanswer", ReplyLabel::FinalAnswer),
    ("action input", ReplyLabel::Input),
    ("action_input", ReplyLabel::Input),
    ("actioninput", ReplyLabel::Input),
    ("observation", ReplyLabel::Observation),
    ("thought", ReplyLabel::Thought),
    ("action", ReplyLabel::Action),
    ("answer", ReplyLabel::Answer),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct ReplySection {
    pub(super) label: ReplyLabel,
    /// Where its line begins.
    pub(super) start: usize,
    /// Where the text behind the label begins.
    pub(super) content: usize,
}

/// Leaves out labels that are only words where they stand: what was begun decides what may come next.
pub(super) fn split_reply_sections(text: &str) -> Vec<ReplySection> {
    let marks = find_label_lines(text);
    use ReplyLabel::{Action, Answer, FinalAnswer, Input, Observation, Thought};
    let last = marks.len().saturating_sub(1);
    let mut sections: Vec<ReplySection> = Vec::with_capacity(marks.len());
    for (index, mark) in outside_thoughts(marks) {
        let Some(current) = sections.last() else {
            sections.push(mark);
            continue;
        };
        let is_word = match (current.label, mark.label) {
            // Nothing was done yet, or it was told already.
            (Thought | Observation, Observation) | (Observation, Input) => true,
            // A tool's result may have answers in it.
            (Observation, Answer) => index != last,
            (FinalAnswer | Answer, label) => label != Thought,
            (Action | Input, Answer) => true,
            _ => false,
        };
        if !is_word {
            sections.push(mark);
        }
    }
    sections
}

/// Leaves out an answer's label that an action with its input still follows: whoever goes on to act was not done, and has
/// only thought of the answer. Each mark with its number among all.
fn outside_thoughts(marks: Vec<ReplySection>) -> Vec<(usize, ReplySection)> {
    let (mut input_ahead, mut action_ahead) = (false, false);
    let mut outside: Vec<(usize, ReplySection)> = Vec::with_capacity(marks.len());
    for (index, mark) in marks.into_iter().enumerate().rev() {
        match mark.label {
            ReplyLabel::Observation => (input_ahead, action_ahead) = (false, false),
            ReplyLabel::Input => (input_ahead, action_ahead) = (true, false),
            ReplyLabel::Action => action_ahead = action_ahead || input_ahead,
            ReplyLabel::FinalAnswer | ReplyLabel::Answer if action_ahead => continue,
            _ => {}
        }
        outside.push((index, mark));
    }
    outside.reverse();
    outside
}

/// Lines that begin with a label. Those in a code fence are only text, unless everything is fenced.
fn find_label_lines(text: &str) -> Vec<ReplySection> {
    let mut found: Vec<(ReplySection, bool)> = Vec::new();
    let (mut start, mut in_fence, mut fences) = (0, false, 0_usize);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            fences += 1;
        } else if let Some((label, length)) = parse_line_label(line) {
            found.push((ReplySection { label, start, content: start + length }, in_fence));
        }
        start += line.len();
    }
    // A fence that never closes cannot be trusted to have begun.
    let fences_count = fences.is_multiple_of(2) && found.iter().any(|(_, fenced)| !fenced);
    let found = found.into_iter().filter(|(_, fenced)| !(fences_count && *fenced)).map(|(mark, _)| mark);
    outside_arguments(text, found)
}

/// Those that do not stand inside an argument: a text in it may have lines of its own.
fn outside_arguments(text: &str, marks: impl Iterator<Item = ReplySection>) -> Vec<ReplySection> {
    // Keeps it all linear on texts full of brackets that never close.
    let mut budget = 4 * text.len();
    let mut end = 0;
    let mut outside = Vec::new();
    for mark in marks {
        if mark.start < end {
            continue;
        }
        if matches!(mark.label, ReplyLabel::Action | ReplyLabel::Input) {
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
pub(super) fn parse_line_label(line: &str) -> Option<(ReplyLabel, usize)> {
    let bare = line.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '_' | '#' | '>'));
    let (word, label) = WORDS
        .iter()
        .find(|(word, _)| bare.get(..word.len()).is_some_and(|written| written.eq_ignore_ascii_case(word)))?;
    // `Thought 3:`, `**Action**:`, `**Action:**`
    let behind = bare[word.len()..].trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ' ' | '*' | '_'));
    let content = behind.strip_prefix(':')?;
    let content = content.strip_prefix("**").unwrap_or(content);
    Some((*label, line.len() - content.len()))
}
