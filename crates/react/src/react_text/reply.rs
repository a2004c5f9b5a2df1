//! Reads one reply of a model as an agent does: the calls to carry out next, or the answer.
//!
//! It is a view of the transcript that traces are read with, so a call that an agent carries out is the call that its
//! grader sees.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::labels::starts_observation;
use super::split_think;
use super::text_step::TextStep;
use super::transcript::fold_transcript;

/// Maximum number of consecutive calls that are taken from one reply.
pub const MAX_REPLY_CALLS: usize = 500;

/// The result of reading a reply in ReAct's text form.
#[derive(Clone, Debug, PartialEq)]
pub enum TextReply<'t> {
    Calls(TextCalls<'t>),
    Answer(Cow<'t, str>),
    /// Neither an action nor an answer; holds what is missing, in words for the model.
    Unreadable(&'static str),
}

/// The first action of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct TextCalls<'t> {
    pub thought: Option<Cow<'t, str>>,
    /// One, or several that were written as one action; never empty.
    pub calls: Vec<TextCall<'t>>,
    /// The reply up to the end of this action, without hidden reasoning. The model wrote everything behind it without
    /// having seen the observation.
    pub reply_prefix: &'t str,
    /// Whether another action follows.
    pub has_more: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TextCall<'t> {
    pub name: Cow<'t, str>,
    /// The text that should be a JSON object; empty if the action has no input.
    pub input: Cow<'t, str>,
}

/// Reads a reply. Linear in the text's length; any text gives a result.
pub fn read_text_reply(text: &str) -> TextReply<'_> {
    let (_, body) = split_think(text);
    if body.trim().is_empty() {
        return TextReply::Unreadable("it was empty");
    }
    let (transcript, gaps) = fold_transcript(text);
    let mut steps = transcript.steps.into_iter().peekable();
    if let Some(first) = steps.next() {
        let (thought, mut end) = (first.thought.clone(), first.end);
        let mut calls = vec![TextCall::from_step(first)];
        // A list of calls is one piece of JSON, which cannot be cut; elements behind the bound are left for the next turn.
        while let Some(step) = steps.next_if(|step| step.parallel && (calls.len() < MAX_REPLY_CALLS || step.end == end))
        {
            end = step.end;
            calls.push(TextCall::from_step(step));
        }
        let reply_prefix = text[text.len() - body.len()..end].trim();
        return TextReply::Calls(TextCalls { thought, calls, reply_prefix, has_more: steps.peek().is_some() });
    }
    TextReply::Unreadable(match transcript.answer.map(cut_observation) {
        Some(answer) if !answer.is_empty() => return TextReply::Answer(answer),
        Some(_) => "its Final Answer is empty",
        None if gaps.has_empty_answer => "its Final Answer is empty",
        None if gaps.has_nameless_action => "its Action names no tool",
        None if gaps.has_stray_input => "it has an Action Input without an Action",
        None => "it has neither an Action nor a Final Answer",
    })
}

impl<'t> TextCall<'t> {
    fn from_step(step: TextStep<'t>) -> TextCall<'t> {
        let is_written_as_object = step.input.raw.trim_start().starts_with('{') && step.input.defect.is_none();
        let input = match step.input.json {
            // `tool(path="a")` and `{..}, along those lines.`: the arguments are clear, only their text is not JSON.
            // Positional arguments stay as written, so that the error asks the model to name them.
            Some(Json::Object(object))
                if !is_written_as_object && !object.is_empty() && !object.contains_key("args") =>
            {
                Cow::Owned(Json::Object(object).to_string())
            }
            _ => step.input.raw,
        };
        TextCall { name: step.tool, input }
    }
}

/// An observation behind an answer is invented: nothing was called.
fn cut_observation(answer: Cow<'_, str>) -> Cow<'_, str> {
    let mut start = 0;
    for line in answer.split_inclusive('\n') {
        if starts_observation(line) {
            return match answer {
                Cow::Borrowed(answer) => Cow::Borrowed(answer[..start].trim()),
                Cow::Owned(answer) => Cow::Owned(answer[..start].trim().to_owned()),
            };
        }
        start += line.len();
    }
    answer
}
