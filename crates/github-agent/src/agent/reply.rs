//! Interprets a reply of the model: calls, an answer, a refusal, or something unusable.

use std::borrow::Cow;

use gradus_llm::{ChatReply, FinishReason};
use gradus_react::react_text::{MAX_REPLY_CALLS, TextCall, TextCalls, TextReply, read_text_reply, split_think};

use super::state::ToolCallMode;

#[derive(Debug, PartialEq)]
pub(super) enum ReplyIntent {
    Calls {
        thought: Option<String>,
        /// What of the reply's text stays in the conversation.
        text: String,
        calls: Vec<ReplyToolCall>,
        /// The reply had more calls, which were dropped.
        has_more: bool,
        /// The calls were written as text, so their results are returned as text.
        is_written: bool,
    },
    Answer {
        /// What of the reply's text stays in the conversation.
        text: String,
        answer: String,
    },
    Problem(String),
    Refused(String),
}

#[derive(Debug, PartialEq)]
pub(super) struct ReplyToolCall {
    /// As the endpoint sent it; may be empty or a duplicate.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// Interprets a reply. `is_tool` returns whether a tool with this name exists.
pub(super) fn interpret_reply(
    form: ToolCallMode,
    reply: &ChatReply,
    max_tokens: u32,
    is_tool: impl Fn(&str) -> bool,
) -> ReplyIntent {
    if reply.stop == FinishReason::Refused {
        return ReplyIntent::Refused(reply.text.trim().to_owned());
    }
    let cut = || format!("it was cut off after {max_tokens} tokens; write less at once");
    let is_cut = reply.stop == FinishReason::Length;
    match form {
        // A truncated reply is neither an answer nor a call that could be made.
        ToolCallMode::Native if is_cut && reply.calls.len() < 2 => ReplyIntent::Problem(cut()),
        ToolCallMode::Native if !reply.calls.is_empty() => read_native_reply(reply, is_cut),
        ToolCallMode::Native => match read_text_reply(&reply.text) {
            TextReply::Calls(read) if is_call_in_text(&read, &reply.text, is_tool) => build_calls_intent(read),
            _ => parse_answer_intent(&reply.text),
        },
        ToolCallMode::Text => match read_text_reply(&reply.text) {
            TextReply::Unreadable(_) if is_cut => ReplyIntent::Problem(cut()),
            TextReply::Unreadable(problem) => ReplyIntent::Problem(problem.to_owned()),
            TextReply::Answer(_) if is_cut => ReplyIntent::Problem(cut()),
            TextReply::Calls(read) if is_cut && read.calls.last().is_none_or(is_call_truncated) => {
                ReplyIntent::Problem(cut())
            }
            TextReply::Calls(read) => build_calls_intent(read),
            TextReply::Answer(answer) => ReplyIntent::Answer { text: reply.text.clone(), answer: answer.into_owned() },
        },
    }
}

/// Whether calls in a text without native calls are meant as calls, and not an answer that mentions calls.
fn is_call_in_text(read: &TextCalls<'_>, text: &str, is_tool: impl Fn(&str) -> bool) -> bool {
    text.contains("<tool_call>") || read.calls.iter().all(|call| is_tool(&call.name))
}

fn build_calls_intent(read: TextCalls<'_>) -> ReplyIntent {
    ReplyIntent::Calls {
        thought: read.thought.map(Cow::into_owned),
        text: read.reply_prefix.to_owned(),
        // A JSON list may have more calls. Its text stays whole, since a part of it would not be JSON.
        has_more: read.has_more || read.calls.len() > MAX_REPLY_CALLS,
        calls: read.calls.into_iter().take(MAX_REPLY_CALLS).map(to_reply_call).collect(),
        is_written: true,
    }
}

/// Takes the text after the model's thinking as the answer.
fn parse_answer_intent(text: &str) -> ReplyIntent {
    let (thinking, answer) = split_think(text);
    match answer.trim() {
        "" if thinking.is_some() => ReplyIntent::Problem("it has a thought and nothing else".to_owned()),
        "" => ReplyIntent::Problem("it was empty".to_owned()),
        answer => ReplyIntent::Answer { text: text.to_owned(), answer: answer.to_owned() },
    }
}

fn is_call_truncated(call: &TextCall<'_>) -> bool {
    call.input.is_empty() || super::arguments::parse_tool_arguments(&call.input).is_err()
}

fn to_reply_call(call: TextCall<'_>) -> ReplyToolCall {
    ReplyToolCall { id: String::new(), name: call.name.into_owned(), arguments: call.input.into_owned() }
}

fn read_native_reply(reply: &ChatReply, is_cut: bool) -> ReplyIntent {
    // The last call may be truncated; some endpoints close its JSON, which hides that.
    let whole = reply.calls.len() - usize::from(is_cut);
    // Some models write thinking or the label even with native calls.
    let (thinking, said) = split_think(&reply.text);
    let said = said.trim();
    let said = said.strip_prefix("Thought:").unwrap_or(said).trim();
    let thought = if said.is_empty() { thinking } else { Some(said) };
    let calls = reply.calls[..whole].iter().take(MAX_REPLY_CALLS).map(|call| ReplyToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    });
    ReplyIntent::Calls {
        thought: thought.map(str::to_owned),
        text: reply.text.clone(),
        calls: calls.collect(),
        has_more: is_cut || whole > MAX_REPLY_CALLS,
        is_written: false,
    }
}
