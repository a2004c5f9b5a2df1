//! Thoughts that a framework stores in its memory and does not record with its model calls, as VoltAgent does.

use std::collections::HashMap;

use crate::dialect::{OperationKind, StoredReply, read_stored_replies};
use crate::span::TraceId;

use super::tree::SpanTree;

/// Gives the words before a call, as a stored message has them, to the span of the tool that the call ran. Every message is
/// read once; it repeats those before it.
pub(super) fn attach_stored_thoughts(tree: &mut SpanTree<'_>) {
    let stored: Vec<_> = tree
        .nodes
        .iter()
        .filter_map(|node| node.facts.stored_message.map(|message| (node.span.trace_id, message)))
        .collect();
    if stored.is_empty() {
        return;
    }
    let runs = tree.nodes.iter().enumerate().filter(|(_, node)| node.facts.kind == OperationKind::Tool);
    let by_id: HashMap<(TraceId, String), usize> = runs
        .filter_map(|(at, node)| Some(((node.span.trace_id, node.facts.tool.call_id.as_deref()?.to_owned()), at)))
        .collect();
    for (trace, message) in stored {
        for reply in read_stored_replies(message) {
            attach_thought(tree, &by_id, trace, reply);
        }
    }
}

/// Gives the words of one reply to the spans of its calls. Calls beyond the first must have run beside those before them.
fn attach_thought(
    tree: &mut SpanTree<'_>,
    by_id: &HashMap<(TraceId, String), usize>,
    trace: TraceId,
    StoredReply { text, calls }: StoredReply,
) {
    let mut ends: Option<u64> = None;
    for id in calls {
        let Some(&at) = by_id.get(&(trace, id)) else { break };
        // A tool that began when all before it had ended may answer a later reply, which said nothing.
        let span = tree.nodes[at].span;
        if ends.is_some_and(|ends| span.start_ns > ends) {
            break;
        }
        let is_first = ends.is_none();
        ends = ends.max(Some(span.end_ns));
        if tree.nodes[at].facts.tool.thought.is_none() {
            let thought = if is_first { Some(text.clone()) } else { tree.budget.share_text(&text) };
            tree.nodes[at].facts.tool.thought = thought;
        }
    }
}
