//! The texts of a model's reply: what it says, and the reasoning beside it.

use crate::message::ChatMessage;
use crate::react;

/// The words of a reply: its text, otherwise the content of its `<think>` block, otherwise its reasoning.
pub(super) fn extract_reply_text(output: &[ChatMessage<'_>]) -> Option<String> {
    let text = join_texts(output);
    let (think, rest) = react::split_think(&text);
    let rest = rest.trim();
    if !rest.is_empty() {
        // Models with native tool calls sometimes keep the label of ReAct.
        let rest = rest.strip_prefix("Thought:").unwrap_or(rest).trim();
        if !rest.is_empty() {
            return Some(rest.to_owned());
        }
    }
    if let Some(think) = think {
        return Some(think.to_owned());
    }
    join_reasoning(output)
}

/// The reasoning of a reply beside its text: a `<think>` block, otherwise what the provider keeps apart.
pub(super) fn extract_reasoning(output: &[ChatMessage<'_>]) -> Option<String> {
    let text = join_texts(output);
    if let (Some(think), _) = react::split_think(&text) {
        return Some(think.to_owned());
    }
    join_reasoning(output)
}

/// The reasoning parts of all messages, joined by line feeds.
fn join_reasoning(output: &[ChatMessage<'_>]) -> Option<String> {
    let reasoning: Vec<_> =
        output.iter().map(ChatMessage::joined_reasoning).filter(|text| !text.trim().is_empty()).collect();
    (!reasoning.is_empty()).then(|| reasoning.join("\n").trim().to_owned())
}

/// The texts of all messages, joined by line feeds.
pub(super) fn join_texts(output: &[ChatMessage<'_>]) -> String {
    let texts: Vec<_> = output.iter().map(ChatMessage::joined_text).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}
