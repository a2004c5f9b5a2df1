//! Orders the spans of a group: removes duplicates, puts children below parents, and folds spans that record the same
//! call into one.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Write};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::dialect::{self, NormalizedSpan, OperationKind};
use crate::span::{Span, SpanId, SpanResource, TraceId};

use super::budget::{AssemblyBudget, message_overhead};

/// The spans of one group as nodes. Nodes are in order of time and are referred to by index.
pub(super) struct SpanTree<'s> {
    pub nodes: Vec<SpanNode<'s>>,
    pub budget: AssemblyBudget,
    /// All nodes, parents before their children.
    pub top_down: Vec<usize>,
}

/// A span with its position in the tree and its normalized content.
pub(super) struct SpanNode<'s> {
    pub span: &'s Span<'s>,
    pub facts: NormalizedSpan<'s>,
    pub parent: Option<usize>,
    /// Number of model calls with messages directly below it.
    inner_calls: usize,
    /// It names a parent that is missing.
    pub is_orphan: bool,
    /// It arrived in several versions with different content.
    pub is_conflicting: bool,
    /// The node that records the same call and has taken over the content of this one.
    pub folded_into: Option<usize>,
    /// Spans that record the same call and were folded into this one.
    folded: VecDeque<SpanId>,
}

impl<'s> SpanTree<'s> {
    /// Builds the tree in O(n log n), for any input: missing parents, cycles and duplicates included.
    pub(super) fn build(spans: &'s [Span<'s>]) -> SpanTree<'s> {
        let budget = AssemblyBudget::default();
        let mut nodes: Vec<SpanNode<'s>> = without_duplicates(spans, &budget);
        let mut index: Vec<((TraceId, SpanId), usize)> =
            nodes.iter().enumerate().map(|(at, node)| ((node.span.trace_id, node.span.span_id), at)).collect();
        index.sort_unstable();
        let find =
            |key: (TraceId, SpanId)| index.binary_search_by_key(&key, |(key, _)| *key).ok().map(|at| index[at].1);
        for node in &mut nodes {
            let Some(parent) = node.span.parent_id else { continue };
            node.parent = find((node.span.trace_id, parent));
            node.is_orphan = node.parent.is_none();
        }
        cut_cycles(&mut nodes);
        for at in 0..nodes.len() {
            let facts = &nodes[at].facts;
            if let Some(parent) = nodes[at].parent
                && facts.kind == OperationKind::Model
                && ContentLevel::from_call(facts) >= ContentLevel::Texts
            {
                nodes[parent].inner_calls += 1;
            }
        }
        let top_down = parents_first(&nodes);
        let mut tree = SpanTree { nodes, budget, top_down };
        tree.fold_model_calls();
        tree.fold_tool_runs();
        tree
    }

    /// Reads the texts of model calls as messages where neither a folded span nor the run has messages.
    pub(super) fn read_free_texts(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.facts.kind == OperationKind::Model) {
            let charged = message_overhead(&node.facts);
            node.facts.read_free_text();
            self.budget.limit_messages(&mut node.facts, charged);
        }
    }

    /// Folds model calls that are recorded twice, one span inside the other: by the framework and by the
    /// instrumentation of the client, or by two layers of one framework.
    fn fold_model_calls(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].facts.kind != OperationKind::Model {
                continue;
            }
            let Some(outer) = self.find_enclosing(at, OperationKind::Model, |kind| kind == OperationKind::Other) else {
                continue;
            };
            // An outer span with several calls inside is a loop, not one call.
            let (around, inside) =
                (ContentLevel::from_call(&self.nodes[outer].facts), ContentLevel::from_call(&self.nodes[at].facts));
            if self.nodes[outer].inner_calls > 1 && inside >= ContentLevel::Texts {
                self.nodes[outer].facts.kind = OperationKind::Agent;
                continue;
            }
            // The node with the messages is kept.
            let (keep, fold) = if around > ContentLevel::None && around >= inside { (outer, at) } else { (at, outer) };
            if self.nodes[fold].folded_into.is_some() || self.nodes[keep].folded_into.is_some() {
                continue;
            }
            self.fold_node(keep, fold);
        }
    }

    /// Folds tool runs that are recorded several times: by the framework, by the client of a protocol such as MCP, and
    /// by its server.
    fn fold_tool_runs(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].facts.kind != OperationKind::Tool {
                continue;
            }
            let Some(outer) = self.find_enclosing(at, OperationKind::Tool, |kind| kind == OperationKind::Other) else {
                continue;
            };
            let outer = self.nodes[outer].folded_into.unwrap_or(outer);
            // The name of a span says little: an inner one may be called after an event of the outer one.
            let name = |at: usize| {
                let tool = &self.nodes[at].facts.tool;
                tool.name.as_deref().filter(|_| !tool.is_named_by_span)
            };
            if name(at).is_none() || name(outer).is_none() || name(at) == name(outer) {
                self.fold_node(outer, at);
            }
        }
    }

    /// The nearest node of a kind around this one, with only nodes that `pass` in between.
    fn find_enclosing(&self, at: usize, kind: OperationKind, pass: impl Fn(OperationKind) -> bool) -> Option<usize> {
        let mut at = self.nodes[at].parent?;
        // Only near spans record the same call. A long chain of wrappers is something else.
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

    /// Moves the ids and facts of one node into another. Facts of the node that is kept take precedence.
    fn fold_node(&mut self, keep: usize, fold: usize) {
        let mut ids = std::mem::take(&mut self.nodes[fold].folded);
        ids.push_front(self.nodes[fold].span.span_id);
        let facts = std::mem::take(&mut self.nodes[fold].facts);
        self.nodes[fold].facts.kind = OperationKind::Other;
        self.nodes[fold].folded_into = Some(keep);
        let node = &mut self.nodes[keep];
        // The shorter list is moved. In a long chain that folds from its end, moving the longer one would be quadratic.
        if node.folded.len() >= ids.len() {
            node.folded.extend(ids);
        } else {
            node.folded.drain(..).rev().for_each(|id| ids.push_front(id));
            node.folded = ids;
        }
        let into = &mut node.facts;
        into.tool.is_error |= facts.tool.is_error;
        if into.tool.name.is_none() || into.tool.is_named_by_span && !facts.tool.is_named_by_span {
            into.tool.is_named_by_span = facts.tool.is_named_by_span;
            into.tool.name = facts.tool.name.or(into.tool.name.take());
        }
        into.tool.call_id = into.tool.call_id.take().or(facts.tool.call_id);
        into.tool.arguments = into.tool.arguments.take().or(facts.tool.arguments);
        into.tool.result = into.tool.result.take().or(facts.tool.result);
        into.tool.failure = into.tool.failure.take().or(facts.tool.failure);
        into.tool.description = into.tool.description.take().or(facts.tool.description);
        into.tool.schema = into.tool.schema.take().or(facts.tool.schema);
        into.model = into.model.take().or(facts.model);
        into.session = into.session.take().or(facts.session);
        into.agent = into.agent.take().or(facts.agent);
        into.prompt_tokens = into.prompt_tokens.or(facts.prompt_tokens);
        into.completion_tokens = into.completion_tokens.or(facts.completion_tokens);
        into.cached_prompt_tokens = into.cached_prompt_tokens.or(facts.cached_prompt_tokens);
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
}

/// How much of a model call a span records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ContentLevel {
    None,
    /// Request or reply as a text: a piece of a stream, for example.
    OneText,
    /// Both as texts, in which messages may be found.
    Texts,
    Messages,
}

impl ContentLevel {
    fn from_call(facts: &NormalizedSpan<'_>) -> ContentLevel {
        if facts.has_content() {
            return ContentLevel::Messages;
        }
        match (facts.input_text.is_some(), facts.output_text.is_some()) {
            (true, true) => ContentLevel::Texts,
            (false, false) => ContentLevel::None,
            _ => ContentLevel::OneText,
        }
    }
}

impl<'s> SpanNode<'s> {
    /// Reads the span with its dialects. Messages over the budget are dropped here, before they pile up.
    fn new(span: &'s Span<'s>, budget: &AssemblyBudget) -> Self {
        let mut facts = dialect::normalize_span(span);
        budget.limit_messages(&mut facts, 0);
        SpanNode {
            span,
            facts,
            parent: None,
            is_orphan: false,
            is_conflicting: false,
            inner_calls: 0,
            folded_into: None,
            folded: VecDeque::new(),
        }
    }

    /// All spans that record this call, its own first.
    pub(super) fn span_ids(&self) -> impl Iterator<Item = SpanId> {
        std::iter::once(self.span.span_id).chain(self.folded.iter().copied())
    }

    /// Order by time. The id makes it the same for spans that began at the same moment.
    pub(super) fn sort_key(&self) -> (u64, u64, SpanId) {
        (self.span.start_ns, self.span.end_ns, self.span.span_id)
    }
}

/// One version of each span, in order of time. A span that is exported while it runs comes again when it has ended: the
/// version that ended later wins, then the one with more content.
fn without_duplicates<'s>(spans: &'s [Span<'s>], budget: &AssemblyBudget) -> Vec<SpanNode<'s>> {
    let version = |span: &Span<'_>| (span.end_ns, span.attributes.0.len(), span.events.len());
    let id = |span: &Span<'_>| (span.trace_id, span.span_id);
    let mut sorted: Vec<&Span<'_>> = spans.iter().collect();
    sorted.sort_by_key(|span| (id(span), Reverse(version(span))));
    // Versions of equal weight need an order that does not depend on their arrival.
    let mut resources = ResourceDigests::default();
    for same in sorted.chunk_by_mut(|a, b| id(a) == id(b) && version(a) == version(b)) {
        if same.iter().skip(1).any(|span| *span != same[0]) {
            same.sort_by_cached_key(|span| ContentKey::new(span, &mut resources));
        }
    }
    let mut nodes: Vec<SpanNode<'s>> = Vec::with_capacity(sorted.len());
    for span in sorted {
        match nodes.last_mut() {
            // Spans without an id cannot be recognised as versions of one span.
            Some(last)
                if last.span.span_id == span.span_id && last.span.trace_id == span.trace_id && span.span_id.0 != 0 =>
            {
                last.is_conflicting |= last.span != span;
            }
            _ => nodes.push(SpanNode::new(span, budget)),
        }
    }
    nodes.sort_by_key(|node| (node.span.start_ns, node.span.end_ns, node.span.trace_id, node.span.span_id));
    nodes
}

/// Orders versions of a span by content: by its beginning, then by a digest. A resource, which thousands of spans may
/// share, is digested once.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ContentKey {
    head: String,
    digest: u64,
    resource: u64,
}

/// By address: spans of one request share their resource.
type ResourceDigests = HashMap<*const SpanResource, u64>;

impl ContentKey {
    /// The fields that can differ between two versions of a span; ids and end are equal.
    fn new(span: &Span<'_>, resources: &mut ResourceDigests) -> ContentKey {
        let Span { parent_id, name, start_ns, status, attributes, events, scope, .. } = span;
        let ContentWriter { head, hasher } =
            ContentWriter::write(&(parent_id, name, start_ns, status, attributes, events, scope));
        let digest_resource = || ContentWriter::write(&span.resource).hasher.digest();
        let resource = *resources.entry(Arc::as_ptr(&span.resource)).or_insert_with(digest_resource);
        ContentKey { head, digest: hasher.digest(), resource }
    }
}

/// Receives the output of `Debug`: keeps the beginning as text and all of it as a digest, so that memory stays bounded.
#[derive(Default)]
struct ContentWriter {
    head: String,
    hasher: Xxh3,
}

impl ContentWriter {
    /// Text that is compared before the digest, so that the order is that of the content in ordinary cases.
    const MAX_HEAD_BYTES: usize = 1 << 10;

    /// Formats a value into the digest.
    fn write(content: &dyn fmt::Debug) -> ContentWriter {
        let mut writer = ContentWriter::default();
        // This writer has no errors.
        let _ = write!(writer, "{content:?}");
        writer
    }
}

impl Write for ContentWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.hasher.update(text.as_bytes());
        let room = Self::MAX_HEAD_BYTES.saturating_sub(self.head.len());
        self.head.push_str(&text[..text.floor_char_boundary(room)]);
        Ok(())
    }
}

/// An order in which every node comes after its parent. Cycles were cut before.
fn parents_first(nodes: &[SpanNode<'_>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(nodes.len());
    let mut is_placed = vec![false; nodes.len()];
    let mut path = Vec::new();
    for start in 0..nodes.len() {
        let mut at = Some(start);
        while let Some(index) = at.filter(|index| !is_placed[*index]) {
            is_placed[index] = true;
            path.push(index);
            at = nodes[index].parent;
        }
        order.extend(path.drain(..).rev());
    }
    order
}

/// Cuts cycles of spans that name each other as parents: one of them becomes a root.
fn cut_cycles(nodes: &mut [SpanNode<'_>]) {
    // 0: not seen, 1: on the present path, 2: leads to a root.
    let mut state = vec![0u8; nodes.len()];
    for start in 0..nodes.len() {
        let mut path = Vec::new();
        let mut at = Some(start);
        while let Some(index) = at.filter(|index| state[*index] == 0) {
            state[index] = 1;
            path.push(index);
            at = nodes[index].parent;
        }
        if at.is_some_and(|index| state[index] == 1)
            && let Some(last) = path.last()
        {
            nodes[*last].parent = None;
            nodes[*last].is_orphan = true;
        }
        path.iter().for_each(|index| state[*index] = 2);
    }
}
