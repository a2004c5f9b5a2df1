//! Reads a reply in ReAct's text form, as models really write it: labels with stars or numbers, fenced JSON, no input,
//! the input on the action's line, several actions, observations that the model made up; and calls without labels
//! (`markup`). Linear in the text's length.
//!
//! Traces hold the reply, and whoever grades it reads it with a reader of his own: what is accepted here has to be read
//! in the same way there (`gradus/tests/agent/forms.rs`).

mod action;
mod labels;
mod markup;

use std::borrow::Cow;

use action::{TextAction, build_text_call};
use labels::{ReplyLabel, ReplySection, parse_line_label, split_reply_sections};

/// More calls than this are not even looked at.
pub(super) const MAX_CALLS: usize = 500;

/// What a reply comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TextReply<'t> {
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
    /// Another action stands behind, or another call.
    pub(super) has_more: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextCall<'t> {
    pub(super) name: Cow<'t, str>,
    /// The text that should be JSON; empty if there is none.
    pub(super) input: Cow<'t, str>,
}

pub(super) fn parse_text_reply(text: &str) -> TextReply<'_> {
    let (thinking, text) = split_thinking(text);
    if text.trim().is_empty() {
        return TextReply::Unreadable("it was empty");
    }
    let sections = split_reply_sections(text);
    // `Answer:` and `Observation:` stand in any text; as labels they count in one that thinks, acts or finishes, or that
    // is an answer from the start.
    let is_labelled = sections.iter().any(|mark| !matches!(mark.label, ReplyLabel::Answer | ReplyLabel::Observation))
        || sections
            .first()
            .is_some_and(|mark| mark.label == ReplyLabel::Answer && text[..mark.start].trim().is_empty());
    let reading = if is_labelled {
        parse_labeled_reply(text, &sections, thinking)
    } else {
        TextReply::Unreadable("it has neither an Action nor a Final Answer")
    };
    match reading {
        TextReply::Unreadable(problem) => {
            markup::parse_markup_reply(text, thinking).unwrap_or(TextReply::Unreadable(problem))
        }
        reading => reading,
    }
}

/// What the labels say: the first action, else the last answer.
fn parse_labeled_reply<'t>(text: &'t str, sections: &[ReplySection], thinking: Option<&'t str>) -> TextReply<'t> {
    let end_of = |index: usize| sections.get(index + 1).map_or(text.len(), |next| next.start);
    let mut thought = ThoughtBuilder::new(text, sections, thinking);
    let (mut answer, mut nameless, mut inputs) = (None, false, false);
    // A tool's name that waits for its input.
    let mut pending: Option<&'t str> = None;
    for (index, mark) in sections.iter().enumerate() {
        let content = &text[mark.content..end_of(index)];
        let next = sections.get(index + 1).map(|next| next.label);
        // What is carried out, and the last section that belongs to it.
        let mut found: Option<(Vec<TextCall<'t>>, usize)> = None;
        match mark.label {
            ReplyLabel::Action => {
                if let Some(name) = pending.take() {
                    // Of two actions before one input, the first is said and not done.
                    thought.add_action(name);
                }
                match action::parse_text_action(content, next == Some(ReplyLabel::Input)) {
                    TextAction::Name(name) if action::is_nothing(name) => {}
                    TextAction::Name(name) => pending = Some(name),
                    TextAction::Calls(calls) => found = Some((calls, index)),
                    TextAction::Nothing if next == Some(ReplyLabel::Action) => thought.add_action(content.trim()),
                    TextAction::Nothing => nameless = nameless || content.trim().is_empty(),
                }
            }
            ReplyLabel::Input => match pending.take() {
                Some(name) => found = Some((vec![build_text_call(name, action::extract_action_input(content))], index)),
                None => inputs = true,
            },
            // Whatever stands behind it, a name without an input is a call without arguments.
            _ => found = pending.take().map(|name| (vec![build_text_call(name, "")], index - 1)),
        }
        if found.is_none() && next.is_none() {
            found = pending.take().map(|name| (vec![build_text_call(name, "")], index));
        }
        if let Some((calls, last)) = found {
            let (finishing, calls): (Vec<_>, Vec<_>) =
                calls.into_iter().partition(|call| action::is_answer(&call.name));
            if !calls.is_empty() {
                let has_more = sections[last + 1..].iter().any(|mark| mark.label == ReplyLabel::Action);
                let kept = text[..end_of(last)].trim();
                return TextReply::Calls(TextCalls { thought: thought.into_thought(), calls, kept, has_more });
            }
            if let Some(finishing) = finishing.last() {
                answer = Some(Cow::Owned(action::extract_final_answer(&finishing.input).into_owned()));
                thought = ThoughtBuilder::default();
            }
        }
        match mark.label {
            ReplyLabel::Thought => thought.add(content.trim()),
            ReplyLabel::FinalAnswer | ReplyLabel::Answer => {
                answer = Some(Cow::Borrowed(without_observation(content)));
                thought = ThoughtBuilder::default();
            }
            _ => {}
        }
    }
    TextReply::Unreadable(match answer {
        Some(answer) if !answer.is_empty() => return TextReply::Answer(answer),
        Some(_) => "its Final Answer is empty",
        None if nameless => "its Action names no tool",
        None if inputs => "it has an Action Input without an Action",
        None => "it has neither an Action nor a Final Answer",
    })
}

/// An observation behind an answer is what a model writes that goes on dreaming.
fn without_observation(answer: &str) -> &str {
    let (mut end, mut start) = (answer.len(), 0);
    for line in answer.split_inclusive('\n') {
        if parse_line_label(line).is_some_and(|(label, _)| label == ReplyLabel::Observation) {
            end = start;
            break;
        }
        start += line.len();
    }
    answer[..end].trim()
}

/// What was said before an action: behind each `Thought:`, else what the model thought aloud, else what stands before the
/// first label.
#[derive(Default)]
struct ThoughtBuilder<'t> {
    said: Cow<'t, str>,
    beside: Option<&'t str>,
}

impl<'t> ThoughtBuilder<'t> {
    fn new(text: &'t str, sections: &[ReplySection], thinking: Option<&'t str>) -> ThoughtBuilder<'t> {
        let before = sections.first().map_or("", |first| text[..first.start].trim());
        ThoughtBuilder { said: Cow::Borrowed(""), beside: thinking.or_else(|| (!before.is_empty()).then_some(before)) }
    }

    fn add(&mut self, said: &'t str) {
        if self.said.is_empty() {
            self.said = Cow::Borrowed(said);
        } else if !said.is_empty() {
            self.said.to_mut().push('\n');
            self.said.to_mut().push_str(said);
        }
    }

    /// An action that is not carried out.
    fn add_action(&mut self, said: &str) {
        let line = if self.said.is_empty() { "Action: " } else { "\nAction: " };
        self.said.to_mut().push_str(line);
        self.said.to_mut().push_str(said);
    }

    fn into_thought(self) -> Option<Cow<'t, str>> {
        if self.said.is_empty() { self.beside.map(Cow::Borrowed) } else { Some(self.said) }
    }
}

/// Reasoning models think aloud first: what they thought, and what they say then.
pub(super) fn split_thinking(text: &str) -> (Option<&str>, &str) {
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>")] {
        if let Some((thinking, behind)) = text.trim_start().strip_prefix(open).and_then(|rest| rest.split_once(close)) {
            let thinking = thinking.trim();
            return ((!thinking.is_empty()).then_some(thinking), behind);
        }
    }
    (None, text)
}

#[cfg(test)]
mod tests;
