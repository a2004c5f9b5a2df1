//! One run of an agent: the spans that belong to one request.

use super::tree::SpanTree;
use crate::span::TraceId;
use crate::trajectory::ExtractionDefect;

/// The model calls and tool runs that answer one request, as indices of nodes in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestSpans {
    pub calls: Vec<usize>,
    pub tools: Vec<usize>,
    /// Spans around the work, outermost first. Empty for plain clients, which record model calls only.
    pub frames: Vec<usize>,
    pub traces: Vec<TraceId>,
    /// The node of another run that this run is nested in.
    pub below: Option<usize>,
    pub defects: Vec<ExtractionDefect>,
    /// Number of the conversation that this run is a turn of, for plain clients.
    pub thread: Option<usize>,
}

impl RequestSpans {
    /// Whether the run has no calls and no tools. Such a run is only reported if its agent failed.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.tools.is_empty()
    }

    /// Start and end of the earliest span, by which runs are ordered.
    pub(super) fn first_span_times(&self, tree: &SpanTree<'_>) -> (u64, u64) {
        let first = self.calls.iter().chain(&self.tools).chain(&self.frames).map(|at| tree.nodes[*at].sort_key());
        first.min().map_or((u64::MAX, 0), |(start, end, _)| (start, end))
    }
}

/// Returns the index of the last model call whose reply came before a tool's span. A tool that ran inside of a call,
/// as with automatic function calling, ran before that call's reply.
pub(super) fn find_reply_before(tree: &SpanTree<'_>, run: &RequestSpans, at: usize) -> Option<usize> {
    // Deeper chains between a call and its tool do not occur.
    const MAX_LEVELS: usize = 16;
    let turn = find_requesting_call(tree, run, at)?;
    let call = run.calls[turn];
    let around = std::iter::successors(tree.nodes[at].parent, |at| tree.nodes[*at].parent);
    let is_inside = tree.nodes[at].span.end_ns <= tree.nodes[call].span.end_ns
        && around.take(MAX_LEVELS).any(|around| around == call || tree.nodes[around].folded_into == Some(call));
    if is_inside { turn.checked_sub(1) } else { Some(turn) }
}

/// Returns the index of the last model call that began before a tool's span: the call that probably asked for it.
pub(super) fn find_requesting_call(tree: &SpanTree<'_>, run: &RequestSpans, at: usize) -> Option<usize> {
    let start = tree.nodes[at].span.start_ns;
    // Calls are in order of time, so a binary search is enough.
    run.calls.partition_point(|call| tree.nodes[*call].span.start_ns <= start).checked_sub(1)
}
