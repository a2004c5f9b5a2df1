//! What one assembly may keep beyond the spans themselves.
//!
//! Most texts of a trajectory are copied once from the spans, so they cost what the spans cost. Two things multiply: a
//! parsed tree of arguments takes up to 90 times its text, and one text can be shared by many steps (a thought by all
//! calls of its reply). Both are charged here; what does not fit is left out and reported as a defect.

use std::cell::Cell;

use serde_json::Value as Json;

use crate::bounded_json::count_nodes;

/// Values of all arguments that are kept as trees.
const MAX_ARGUMENT_NODES: usize = 400_000;
/// Bytes of texts that are copied for a second time.
const MAX_SHARED_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct AssemblyBudget {
    nodes_left: Cell<usize>,
    shared_bytes_left: Cell<usize>,
    exceeded: Cell<bool>,
}

impl Default for AssemblyBudget {
    fn default() -> Self {
        AssemblyBudget {
            nodes_left: Cell::new(MAX_ARGUMENT_NODES),
            shared_bytes_left: Cell::new(MAX_SHARED_BYTES),
            exceeded: Cell::new(false),
        }
    }
}

impl AssemblyBudget {
    /// Arguments that a step keeps, if there is room for them.
    pub(super) fn keep_arguments(&self, json: Option<Json>) -> Option<Json> {
        let json = json?;
        self.charge(&self.nodes_left, count_nodes(&json)).then_some(json)
    }

    /// Another copy of a text that some step has already.
    pub(super) fn share_text(&self, text: &str) -> Option<String> {
        self.charge(&self.shared_bytes_left, text.len()).then(|| text.to_owned())
    }

    /// Whether something was left out since this was asked last.
    pub(super) fn take_exceeded(&self) -> bool {
        self.exceeded.replace(false)
    }

    fn charge(&self, left: &Cell<usize>, amount: usize) -> bool {
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
