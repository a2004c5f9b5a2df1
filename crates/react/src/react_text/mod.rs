//! Reads ReAct text: `Thought` / `Action` / `Action Input` / `Observation` / `Final Answer` in the styles that
//! LlamaIndex, LangChain, CrewAI, smolagents and the papers use.
//!
//! One reader serves a model's single reply and a whole transcript. It first finds the labelled lines (`labels`), then
//! folds them into steps (`transcript`), and reads each action's form (`action`). Every pass is linear in the text:
//! there is no backtracking, and the search for the end of an argument has a budget.

mod action;
mod code;
mod console;
mod labels;
mod markup;
mod reply;
mod text_step;
mod transcript;

pub use crate::react_text::text_step::{ReactTranscript, TextStep};
pub use action::{ActionInput, read_input};
pub use code::{CodeCall, find_code_block, find_code_calls};
pub use console::split_console_runs;
pub use reply::{MAX_REPLY_CALLS, TextCall, TextCalls, TextReply, read_text_reply};
pub use transcript::{read_react_transcript, split_runs, starts_like_observation};

use std::borrow::Cow;

/// A defect of a ReAct text. The rest of the text is still read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextDefect {
    TextAfterArguments,
    MalformedArguments,
    MissingToolName,
    UnusualToolName,
}

/// Splits a text into the model's hidden reasoning in front of it, `<think>...</think>`, and the rest.
pub fn split_think(text: &str) -> (Option<&str>, &str) {
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<reasoning>", "</reasoning>")] {
        if let Some(rest) = text.trim_start().strip_prefix(open)
            && let Some(end) = rest.find(close)
        {
            let think = rest[..end].trim();
            return ((!think.is_empty()).then_some(think), &rest[end + close.len()..]);
        }
    }
    (None, text)
}

/// Removes decoration that models put around names: quotes, back-ticks, asterisks.
fn strip_decoration(text: &str) -> &str {
    text.trim().trim_matches(|c: char| matches!(c, '`' | '*' | '"' | '\'')).trim()
}

fn non_empty(text: &str) -> Option<Cow<'_, str>> {
    let text = text.trim();
    (!text.is_empty()).then_some(Cow::Borrowed(text))
}

#[cfg(test)]
mod reply_tests;
#[cfg(test)]
mod tests;
