//! Puts spans in order: duplicates dropped, children below parents, and spans that record one and the same call folded
//! into one.

use crate::dialect::{self, Facts, Kind};
use crate::span::{Span, SpanId, TraceId};

pub(super) struct Tree<'s> {
    pub nodes: Vec<Node<'s>>,
    /// Spans whose parent is not there.
    pub orphans: Vec<SpanId>,
    pub conflicting: Vec<SpanId>,
}

pub(super) struct Node<'s> {
    pub span: &'s Span<'s>,
    pub facts: Facts<'s>,
    pub parent: Option<usize>,
    /// Model calls with messages directly below.
    inner_calls: usize,
    /// This node records the same call as the one it names.
    pub folded_into: Option<usize>,
    /// Other spans that record this call, too.
    folded: Vec<SpanId>,
}

impl<'s> Tree<'s> {
    pub(super) fn build(spans: &'s [Span<'s>]) -> Tree<'s> {
        let (kept, conflicting) = without_duplicates(spans);
        let mut nodes: Vec<Node<'s>> = kept.into_iter().map(Node::new).collect();
        let mut index: Vec<((TraceId, SpanId), usize)> = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| ((node.span.trace_id, node.span.span_id), at))
            .collect();
        index.sort_unstable();
        let find = |key: (TraceId, SpanId)| {
            index.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| index[at].1)
        };
        let mut orphans = Vec::new();
        for at in 0..nodes.len() {
            let span = nodes[at].span;
            let parent = span.parent_id.map(|id| find((span.trace_id, id)));
            match parent {
                Some(Some(parent)) if parent != at && !is_ancestor(&nodes, at, parent) => {
                    nodes[at].parent = Some(parent);
                    let facts = &nodes[at].facts;
                    let is_call = facts.kind == Kind::Model && facts.has_content();
                    nodes[parent].inner_calls += usize::from(is_call);
                }
                Some(_) => orphans.push(span.span_id),
                None => {}
            }
        }
        let mut tree = Tree { nodes, orphans, conflicting };
        tree.fold_model_calls();
        tree.fold_tool_runs();
        for node in &mut tree.nodes {
            node.facts.read_free_text();
        }
        tree
    }

    /// One call of a model is often recorded twice, one span inside the other: by the framework and by the client's
    /// instrumentation, or by two layers of one framework.
    fn fold_model_calls(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].facts.kind != Kind::Model {
                continue;
            }
            let Some(outer) = self.enclosing(at, Kind::Model, |kind| kind == Kind::Other) else { continue };
            // An outer span with several inner calls stands for a loop, not for one call.
            if self.nodes[outer].inner_calls > 1 && self.nodes[at].facts.has_content() {
                if self.nodes[outer].facts.kind == Kind::Model && !self.nodes[outer].facts.has_content() {
                    self.nodes[outer].facts.kind = Kind::Agent;
                }
                continue;
            }
            // Keep the node that has the messages.
            let (keep, fold) = if self.nodes[outer].facts.has_content() { (outer, at) } else { (at, outer) };
            if self.nodes[fold].folded_into.is_some() || self.nodes[keep].folded_into.is_some() {
                continue;
            }
            self.fold(keep, fold);
        }
    }

    /// One run of a tool is recorded by the framework, by a protocol's client and by its server.
    fn fold_tool_runs(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].facts.kind != Kind::Tool {
                continue;
            }
            let Some(outer) = self.enclosing(at, Kind::Tool, |kind| kind == Kind::Other) else { continue };
            let outer = self.nodes[outer].folded_into.unwrap_or(outer);
            let name = |at: usize| self.nodes[at].facts.tool.name.as_deref();
            if name(at).is_none() || name(outer).is_none() || name(at) == name(outer) {
                self.fold(outer, at);
            }
        }
    }

    /// The nearest enclosing node of a kind, with only nodes that `pass` in between.
    fn enclosing(&self, at: usize, kind: Kind, pass: impl Fn(Kind) -> bool) -> Option<usize> {
        let mut at = self.nodes[at].parent?;
        // Folding only concerns neighbours; a long chain of wrappers is something else.
        for _ in 0..8 {
            let found = self.nodes[at].facts.kind;
            if found == kind {
                return Some(at);
            }
            if !pass(found) {
                return None;
            }
            at = self.nodes[at].parent?;
        }
        None
    }

    fn fold(&mut self, keep: usize, fold: usize) {
        let ids = std::mem::take(&mut self.nodes[fold].folded);
        let id = self.nodes[fold].span.span_id;
        let facts = std::mem::take(&mut self.nodes[fold].facts);
        self.nodes[fold].facts.kind = Kind::Other;
        self.nodes[fold].folded_into = Some(keep);
        let node = &mut self.nodes[keep];
        node.folded.push(id);
        node.folded.extend(ids);
        let into = &mut node.facts;
        into.tool.is_error |= facts.tool.is_error;
        into.tool.name = into.tool.name.take().or(facts.tool.name);
        into.tool.call_id = into.tool.call_id.take().or(facts.tool.call_id);
        into.tool.arguments = into.tool.arguments.take().or(facts.tool.arguments);
        into.tool.result = into.tool.result.take().or(facts.tool.result);
        into.tool.description = into.tool.description.take().or(facts.tool.description);
        into.tool.schema = into.tool.schema.take().or(facts.tool.schema);
        into.model = into.model.take().or(facts.model);
        into.session = into.session.take().or(facts.session);
        into.agent = into.agent.take().or(facts.agent);
        into.prompt_tokens = into.prompt_tokens.or(facts.prompt_tokens);
        into.completion_tokens = into.completion_tokens.or(facts.completion_tokens);
        into.cost_usd = into.cost_usd.or(facts.cost_usd);
        if into.input.is_empty() {
            into.input = facts.input;
        }
        if into.output.is_empty() {
            into.output = facts.output;
        }
        if into.offered_tools.is_empty() {
            into.offered_tools = facts.offered_tools;
        }
    }

    /// The node and its ancestors, from the inside out.
    pub(super) fn ancestors(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.nodes[at].parent, |at| self.nodes[*at].parent)
    }
}

impl<'s> Node<'s> {
    fn new(span: &'s Span<'s>) -> Self {
        let facts = dialect::read(span);
        Node { span, facts, parent: None, inner_calls: 0, folded_into: None, folded: Vec::new() }
    }

    /// All spans that record this call, its own first.
    pub(super) fn span_ids(&self) -> impl Iterator<Item = SpanId> {
        std::iter::once(self.span.span_id).chain(self.folded.iter().copied())
    }

    /// By time; the ids make the order the same for spans that began at the same moment.
    pub(super) fn order(&self) -> (u64, u64, SpanId) {
        (self.span.start_ns, self.span.end_ns, self.span.span_id)
    }
}

/// One version of each span, in order of time. The later version wins: the one that ended later, then the fuller one.
fn without_duplicates<'s>(spans: &'s [Span<'s>]) -> (Vec<&'s Span<'s>>, Vec<SpanId>) {
    let version = |span: &Span<'_>| (span.end_ns, span.attributes.0.len(), span.events.len());
    let mut kept: Vec<&Span<'_>> = spans.iter().collect();
    kept.sort_by_key(|span| (span.trace_id, span.span_id, std::cmp::Reverse(version(span))));
    let mut conflicting = Vec::new();
    kept.dedup_by(|later, first| {
        let same = (later.trace_id, later.span_id) == (first.trace_id, first.span_id);
        if same && later != first {
            conflicting.push(first.span_id);
        }
        same
    });
    kept.sort_by_key(|span| (span.start_ns, span.end_ns, span.trace_id, span.span_id));
    conflicting.sort_unstable();
    conflicting.dedup();
    (kept, conflicting)
}

/// Guards against spans that name each other as parents.
fn is_ancestor(nodes: &[Node<'_>], candidate: usize, of: usize) -> bool {
    let mut at = Some(of);
    let mut steps = 0;
    while let Some(index) = at {
        // Deeper than any real trace: treat it as broken.
        if index == candidate || steps > 10_000 {
            return true;
        }
        at = nodes[index].parent;
        steps += 1;
    }
    false
}
