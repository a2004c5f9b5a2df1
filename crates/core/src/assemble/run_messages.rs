//! Messages that only the span of a whole run records. pydantic-ai writes those of each call into log records, which many
//! teams do not collect, and all of them onto the span of the run.

use std::collections::BTreeMap;

use crate::dialect::{OperationKind, read_run_messages};
use crate::message::MessageRole;

use super::tree::SpanTree;

/// Gives the messages of a run to its model calls, if none of these has a reply.
pub(super) fn fill_silent_calls(tree: &mut SpanTree<'_>) {
    if tree.nodes.iter().all(|node| node.facts.run_messages.is_none()) {
        return;
    }
    // The nearest run around each node, and the calls of each run.
    let mut nearest: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    let mut calls: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &at in &tree.top_down {
        let node = &tree.nodes[at];
        let around = node.parent.and_then(|parent| nearest[parent]);
        nearest[at] = node.facts.run_messages.is_some().then_some(at).or(around);
        if let (OperationKind::Model, Some(run)) = (node.facts.kind, around) {
            calls.entry(run).or_default().push(at);
        }
    }
    let silent: Vec<usize> = (0..tree.nodes.len())
        .filter(|at| tree.nodes[*at].facts.run_messages.is_some() && !calls.contains_key(at))
        .collect();
    for run in silent {
        read_run_as_call(tree, run);
    }
    for (run, mut calls) in calls {
        if calls.iter().all(|call| tree.nodes[*call].facts.output.is_empty()) {
            calls.sort_by_key(|call| tree.nodes[*call].sort_key());
            fill_calls(tree, run, &calls);
        }
    }
}

/// A run without a span for any of its model calls is read like its last call, whose request repeats all others. A run
/// that failed, or that states its answer, stays as it is.
fn read_run_as_call(tree: &mut SpanTree<'_>, run: usize) {
    let node = &mut tree.nodes[run];
    if node.span.is_error() || node.facts.answer.is_some() {
        return;
    }
    let mut messages = node.facts.run_messages.map(read_run_messages).unwrap_or_default();
    if messages.iter().all(|message| message.role != MessageRole::Assistant) {
        return;
    }
    // A run that a tool ended has no last reply.
    let reply = messages.pop_if(|message| message.role == MessageRole::Assistant);
    node.facts.kind = OperationKind::Model;
    (node.facts.input, node.facts.output) = (messages, reply.into_iter().collect());
    tree.budget.limit_messages(&mut node.facts, 0);
}

/// The last replies are those of the calls: a run that continues a conversation begins with the replies of earlier ones.
/// The first call gets the request, the last one everything before its reply, so that no text is kept for each call.
fn fill_calls(tree: &mut SpanTree<'_>, run: usize, calls: &[usize]) {
    let mut messages = tree.nodes[run].facts.run_messages.map(read_run_messages).unwrap_or_default();
    let is_reply = |at: &usize| messages[*at].role == MessageRole::Assistant;
    let replies: Vec<usize> = (0..messages.len()).filter(is_reply).collect();
    let Some(first) = replies.len().checked_sub(calls.len()) else { return };
    let replies = &replies[first..];
    for (place, (&call, &reply)) in calls.iter().zip(replies).enumerate() {
        let is_last = place + 1 == calls.len();
        let output = vec![if is_last { std::mem::take(&mut messages[reply]) } else { messages[reply].clone() }];
        let input = match place {
            _ if is_last => messages.drain(..reply).collect(),
            0 => messages[..reply].to_vec(),
            _ => Vec::new(),
        };
        let facts = &mut tree.nodes[call].facts;
        (facts.input, facts.output) = (input, output);
        tree.budget.limit_messages(facts, 0);
    }
}
