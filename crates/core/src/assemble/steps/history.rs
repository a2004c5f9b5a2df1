//! Calls that the history of a request shows. Most are known from their replies; the spans of the others are lost.

use std::collections::{HashMap, HashSet};

use crate::assemble::reply_text::extract_reply_text;
use crate::assemble::requested_call::{RequestedCall, read_arguments};
use crate::message::{ChatMessage, MessageRole, ToolCall};

use super::StepExtractor;

/// Calls that are compared with one of the history by tool and arguments. Histories repeat calls in order.
const MAX_COMPARED: usize = 16;

/// What the history of one request has shown so far.
struct HistoryProgress<'h> {
    /// All ids of the history. A call with one of them is not the one of another id.
    ids: HashSet<&'h str>,
    /// Ids may repeat: the nth in the history is the nth that was asked for.
    seen: HashMap<&'h str, usize>,
    /// Calls so far.
    count: usize,
    /// The first requested call behind the last one that was recognised.
    next: usize,
}

impl StepExtractor<'_, '_> {
    /// Adds calls that the history shows and no reply did, and thoughts that only the history has.
    pub(super) fn read_history(&mut self, number: usize, input: &[ChatMessage<'_>]) {
        let spoken = || input.iter().filter(|message| message.role == MessageRole::Assistant);
        let mut progress = HistoryProgress {
            ids: spoken().flat_map(ChatMessage::tool_calls).filter_map(|call| call.id.as_deref()).collect(),
            seen: HashMap::new(),
            count: 0,
            next: 0,
        };
        let mut thought: Option<String> = None;
        // Whether the thought stands directly before the calls.
        let mut is_same_reply = false;
        for message in input {
            if message.role != MessageRole::Assistant {
                is_same_reply = false;
                continue;
            }
            if !message.has_tool_calls() {
                thought = extract_reply_text(std::slice::from_ref(message));
                is_same_reply = true;
                continue;
            }
            let mut said_here: Option<Option<String>> = None;
            // A call without a name is reported where its reply is read.
            for (index, call) in message.tool_calls().filter(|call| !call.name.is_empty()).enumerate() {
                let known = self.find_repeated(call, &mut progress);
                if known.is_some_and(|known| self.requested_calls[known].thought.is_some()) {
                    continue;
                }
                let said = match &said_here {
                    Some(said) => said.as_deref().and_then(|said| self.tree.budget.share_text(said)),
                    None => {
                        let said = extract_reply_text(std::slice::from_ref(message));
                        // A streamed reply may be recorded by its last piece, which has the call and not the words.
                        let said = if known.is_none() || is_same_reply { said.or(thought.take()) } else { said };
                        said_here = Some(said.clone());
                        said
                    }
                };
                match known {
                    // Some instrumentations leave the words out of a reply that calls a tool.
                    Some(known) => self.requested_calls[known].thought = said,
                    None => {
                        self.requested_call(number, said, call, index > 0);
                        if let Some(requested_call) = self.requested_calls.last_mut() {
                            requested_call.from_history = true;
                        }
                    }
                }
            }
        }
    }

    /// The requested call that one of the history repeats: by its id, by its position if it has none, or, if no reply had
    /// this id, by tool and arguments in order. Reply and history of one service may name a call by different ids.
    fn find_repeated<'h>(&mut self, call: &'h ToolCall<'_>, progress: &mut HistoryProgress<'h>) -> Option<usize> {
        progress.count += 1;
        let known = match call.id.as_deref() {
            Some(id) => {
                let nth = progress.seen.entry(id).or_default();
                *nth += 1;
                let nth = *nth - 1;
                self.ids.nth(id, nth).or_else(|| {
                    let alike = self.find_alike(call, progress)?;
                    self.ids.add(id, alike);
                    self.requested_calls[alike].other_id = Some(id.to_owned());
                    Some(alike)
                })
            }
            None => Some(progress.count - 1).filter(|at| *at < self.requested_calls.len()),
        };
        if let Some(known) = known {
            progress.next = progress.next.max(known + 1);
        }
        known
    }

    /// The next call with the same tool and arguments that the history does not show under its own id.
    fn find_alike(&self, call: &ToolCall<'_>, progress: &HistoryProgress<'_>) -> Option<usize> {
        let (arguments, raw, _) = read_arguments(call.arguments.as_ref());
        let is_alike = |known: &RequestedCall| {
            known.tool == call.name
                && known.other_id.is_none()
                && known.id.as_deref().is_none_or(|id| !progress.ids.contains(id))
                && (known.arguments == arguments || known.raw == raw)
        };
        let open = self.requested_calls.iter().enumerate().skip(progress.next).take(MAX_COMPARED);
        open.filter(|(_, known)| is_alike(known)).map(|(at, _)| at).next()
    }
}
