//! Token sums over the descendants of a span.

use std::collections::HashMap;

use super::PhoenixSpan;
use gradus_core::span::Span;

/// Prompt and completion tokens of each span and all its descendants, in the order of `spans`. Linear, and safe for
/// parent cycles: spans in a cycle keep their own tokens plus those of branches that hang on it.
pub fn cumulative_tokens(spans: &[Span<'_>]) -> Vec<(i64, i64)> {
    let places: HashMap<_, usize> =
        spans.iter().enumerate().map(|(at, span)| ((span.trace_id, span.span_id), at)).collect();
    let own = |span: &Span<'_>| PhoenixSpan::new(span).own_tokens().unwrap_or_default();
    let mut sums: Vec<(i64, i64)> = spans.iter().map(own).collect();
    let parent_of = |at: usize| spans[at].parent_id.and_then(|id| places.get(&(spans[at].trace_id, id))).copied();
    let mut children = vec![0_usize; spans.len()];
    for at in 0..spans.len() {
        parent_of(at).into_iter().for_each(|parent| children[parent] += 1);
    }
    // From the leaves up, each span after all its children. Spans in a cycle never become leaves.
    let mut leaves: Vec<usize> = (0..spans.len()).filter(|at| children[*at] == 0).collect();
    while let Some(leaf) = leaves.pop() {
        let Some(parent) = parent_of(leaf) else { continue };
        let (prompt, completion) = sums[leaf];
        sums[parent] = (sums[parent].0.saturating_add(prompt), sums[parent].1.saturating_add(completion));
        children[parent] -= 1;
        if children[parent] == 0 {
            leaves.push(parent);
        }
    }
    sums
}
