//! Limits of what one assembly keeps beyond the spans themselves.
//!
//! Most texts of a trajectory are copied once from the spans, so they cost what the spans cost. Some things multiply: a
//! parsed tree of arguments takes up to 90 times its text, a message of one letter up to 40 times its own, and one text
//! can be shared by many steps (a thought by all calls of its reply). These are charged to this budget; what does not
//! fit is left out and reported as a defect. The time to compare the texts of many spans with each other is limited in
//! the same way.

use std::cell::Cell;

use serde_json::Value as Json;

use crate::bounded_json::count_nodes;
use crate::dialect::NormalizedSpan;
use crate::message::{ArgumentsText, ChatMessage, MessagePart};

/// Maximum number of JSON values in all arguments that are stored as trees.
const MAX_ARGUMENT_NODES: usize = 400_000;
/// Maximum bytes of texts that are copied a second time.
const MAX_SHARED_BYTES: usize = 8 << 20;
/// Maximum memory of messages and their parts beyond their texts: a million parts of one letter each.
const MAX_MESSAGE_OVERHEAD_BYTES: usize = 128 << 20;
/// Maximum bytes of texts of frames and of conversations that are searched in each other.
const MAX_COMPARED_BYTES: usize = 64 << 20;
/// Maximum bytes of earlier turns that requests repeat. Every request of a conversation repeats those before it.
const MAX_TURN_BYTES: usize = 32 << 20;

/// Text of the defect for a trajectory that lost something to the budget.
pub(super) const LEFT_OUT_DETAIL: &str =
    "some arguments and thoughts were left out: there is more than is kept of one trace";

/// What is left for one group of traces. `Cell`s, because the tree is shared while steps are read; one thread assembles
/// a group.
#[derive(Debug)]
pub(super) struct AssemblyBudget {
    nodes_left: Cell<usize>,
    shared_bytes_left: Cell<usize>,
    overhead_left: Cell<usize>,
    compared_bytes_left: Cell<usize>,
    turn_bytes_left: Cell<usize>,
    exceeded: Cell<bool>,
    /// Spans whose messages were left out.
    cut_spans: Cell<usize>,
}

impl Default for AssemblyBudget {
    fn default() -> Self {
        AssemblyBudget {
            nodes_left: Cell::new(MAX_ARGUMENT_NODES),
            shared_bytes_left: Cell::new(MAX_SHARED_BYTES),
            overhead_left: Cell::new(MAX_MESSAGE_OVERHEAD_BYTES),
            compared_bytes_left: Cell::new(MAX_COMPARED_BYTES),
            turn_bytes_left: Cell::new(MAX_TURN_BYTES),
            exceeded: Cell::new(false),
            cut_spans: Cell::new(0),
        }
    }
}

impl AssemblyBudget {
    /// Returns the arguments of a step if the budget allows it.
    pub(super) fn keep_arguments(&self, json: Option<Json>) -> Option<Json> {
        let json = json?;
        self.try_charge(&self.nodes_left, count_nodes(&json)).then_some(json)
    }

    /// A further copy of a text that another step has already; `None` if the budget is used up.
    pub(super) fn share_text(&self, text: &str) -> Option<String> {
        self.try_charge(&self.shared_bytes_left, text.len()).then(|| text.to_owned())
    }

    /// Whether texts of a conversation with this many bytes may be copied. Charges them if so.
    pub(super) fn try_charge_turn(&self, bytes: usize) -> bool {
        let left = self.turn_bytes_left.get().checked_sub(bytes);
        left.inspect(|left| self.turn_bytes_left.set(*left)).is_some()
    }

    /// Drops the messages of a span if the budget does not allow them. `charged` bytes of overhead were charged before.
    pub(super) fn limit_messages(&self, facts: &mut NormalizedSpan<'_>, charged: usize) {
        let new = message_overhead(facts).saturating_sub(charged);
        match self.overhead_left.get().checked_sub(new) {
            Some(left) => self.overhead_left.set(left),
            None => {
                (facts.input, facts.output) = (Vec::new(), Vec::new());
                self.cut_spans.set(self.cut_spans.get() + 1);
            }
        }
    }

    /// Number of spans that lost their messages.
    pub(super) fn cut_spans(&self) -> usize {
        self.cut_spans.get()
    }

    /// Whether texts with this many bytes may still be compared. Charges them if so.
    pub(super) fn try_charge_comparison(&self, bytes: usize) -> bool {
        let left = self.compared_bytes_left.get().checked_sub(bytes);
        left.inspect(|left| self.compared_bytes_left.set(*left)).is_some()
    }

    /// Whether something was left out since the last call.
    pub(super) fn take_exceeded(&self) -> bool {
        self.exceeded.replace(false)
    }

    /// Charges an amount, or records that the budget was exceeded.
    fn try_charge(&self, left: &Cell<usize>, amount: usize) -> bool {
        match left.get().checked_sub(amount) {
            Some(rest) => {
                left.set(rest);
                true
            }
            None => {
                self.exceeded.set(true);
                false
            }
        }
    }
}

/// Memory of a span's messages beyond their texts. A message that is longer than its own record is free: its memory is
/// proportional to what was sent.
pub(super) fn message_overhead(facts: &NormalizedSpan<'_>) -> usize {
    let overhead = |message: &ChatMessage<'_>| {
        let text: usize = message.parts.iter().map(text_bytes).sum();
        (size_of_val(message) + size_of_val(message.parts.as_slice())).saturating_sub(text)
    };
    facts.input.iter().chain(&facts.output).map(overhead).sum()
}

/// Bytes of text of a part, which are proportional to what was sent.
fn text_bytes(part: &MessagePart<'_>) -> usize {
    match part {
        MessagePart::Text(text) | MessagePart::Reasoning(text) => text.len(),
        MessagePart::ToolCall(call) => {
            let arguments = call.arguments.as_ref().map_or(0, |arguments| match arguments {
                ArgumentsText::Text(text) | ArgumentsText::Json(text) => text.len(),
            });
            call.name.len() + arguments
        }
        MessagePart::ToolResult(result) => result.content.len(),
    }
}
