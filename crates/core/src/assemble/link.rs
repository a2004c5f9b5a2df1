//! Decides which traces belong together, before they are assembled.
//!
//! Most traces stand alone. A plain client without a root span creates one trace per model call; those are linked by
//! their session, or by the message list that grows from call to call. Texts are never compared across sessions: the
//! same question asked twice stays two conversations.

use std::collections::HashMap;
use std::hash::Hasher;

use xxhash_rust::xxh3::Xxh3;

use crate::dialect::{self, NormalizedSpan, OperationKind};
use crate::message::{ChatMessage, MessageRole};
use crate::short_text::cut_name;
use crate::span::Span;

/// Maximum number of conversations that a trace can continue: the longest ones of its input.
const MAX_CONTINUED: usize = 64;

/// Maximum number of consecutive results that are compared with the calls of one reply.
const MAX_JOINED_RESULTS: usize = 16;

/// The features by which a trace is linked to others, as 64-bit hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceLink {
    session: Option<u64>,
    /// The conversation after this call's reply.
    leaves: Vec<u64>,
    /// The conversations that this call's input contains.
    continues: Vec<u64>,
    /// The same by parts of the messages. They link only what nothing else links, and only if they are unique.
    weak_leaves: Vec<u64>,
    weak_continues: Vec<u64>,
}

impl TraceLink {
    /// Reads the link from a root span. `None` if its trace stands alone, as traces with an agent or chain as their
    /// root do.
    pub fn from_root_span(span: &Span<'_>) -> Option<TraceLink> {
        if span.parent_id.is_some() {
            return None;
        }
        let by_session = |session: &str| hash_in_project(span, session);
        // Fast path: most roots state a kind that is not a call, and many calls state their session.
        match (span.attribute_text("openinference.span.kind"), span.attribute_text("session.id")) {
            (Some("LLM" | "TOOL"), Some(session)) => {
                return Some(TraceLink { session: Some(by_session(session)), ..TraceLink::default() });
            }
            (Some("CHAIN" | "AGENT" | "PROMPT" | "RETRIEVER"), _) => return None,
            _ => {}
        }
        let mut facts = dialect::normalize_span(span);
        facts.read_free_text();
        if !matches!(facts.kind, OperationKind::Model | OperationKind::Tool) {
            return None;
        }
        let session = facts.session.as_deref().map(by_session);
        if facts.kind == OperationKind::Tool {
            return session.map(|session| TraceLink { session: Some(session), ..TraceLink::default() });
        }
        let ConversationDigests { leaves, mut continues, weak_leaves, mut weak_continues, .. } =
            ConversationDigests::from_span(&facts);
        // A call continues the last reply before it, or one shortly before that. The oldest are dropped.
        continues.drain(..continues.len().saturating_sub(MAX_CONTINUED));
        weak_continues.drain(..weak_continues.len().saturating_sub(MAX_CONTINUED));
        let linked = session.is_some() || !leaves.is_empty() || !continues.is_empty() || !weak_continues.is_empty();
        linked.then_some(TraceLink { session, leaves, continues, weak_leaves, weak_continues })
    }
}

/// The session that a span states, as a hash together with its project.
pub fn hash_session(span: &Span<'_>) -> Option<u64> {
    dialect::normalize_span(span).session.as_deref().map(|session| hash_in_project(span, session))
}

fn hash_in_project(span: &Span<'_>, session: &str) -> u64 {
    // Hashed for every span, so its length is bounded.
    let project = cut_name(span.resource.project().unwrap_or_default());
    hash_parts(&[project.as_bytes(), session.as_bytes()])
}

/// One feature of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKey {
    /// Links all traces that have it.
    Session(u64),
    /// The conversation after a trace.
    Leaves(u64),
    /// A conversation that a trace continues. Links it to the trace that has the same key in `Leaves`.
    Continues(u64),
}

impl TraceLink {
    /// The features of the link, for a store that keeps them beyond one reading. As in [`TraceLinker::add_link`], a
    /// session makes the others unnecessary.
    pub fn keys(&self) -> Vec<LinkKey> {
        match self.session {
            Some(session) => vec![LinkKey::Session(session)],
            None => {
                let leaves = self.leaves.iter().map(|key| LinkKey::Leaves(*key));
                leaves.chain(self.continues.iter().map(|key| LinkKey::Continues(*key))).collect()
            }
        }
    }
}

/// The position of a call in its conversation, as digests.
#[derive(Clone, Debug, Default)]
pub(super) struct ConversationDigests {
    /// The conversation with this call's reply; empty if there was none.
    pub leaves: Vec<u64>,
    /// The conversations that the call's input contains, oldest first.
    pub continues: Vec<u64>,
    /// The conversation as it was sent.
    pub asked: u64,
    /// As `leaves` and `continues`, for instrumentations that write a reply and its repetition in later requests
    /// differently: by its text and tools without ids, by the ids of its calls alone, and by the names of its tools. They
    /// are chained to the conversation before the reply like the others.
    pub weak_leaves: Vec<u64>,
    pub weak_continues: Vec<u64>,
}

impl ConversationDigests {
    /// Digests of a model call, from its messages and from the ids of replies.
    pub(super) fn from_span(facts: &NormalizedSpan<'_>) -> ConversationDigests {
        let mut chain = ConversationDigests::from_messages(&facts.input, &facts.output);
        // A service that stores the conversation gets the id of its last reply instead of the messages.
        let reply = |id: &str| hash_parts(&[b"response", id.as_bytes()]);
        if let Some(id) = &facts.previous_response_id {
            chain.continues.push(reply(id));
        }
        if let Some(id) = &facts.response_id {
            chain.leaves.push(reply(id));
        }
        chain
    }

    /// A chain of digests: each covers all messages before it, so equal digests mean equal conversations. System
    /// messages are left out, because frameworks change them from call to call.
    fn from_messages(input: &[ChatMessage<'_>], output: &[ChatMessage<'_>]) -> ConversationDigests {
        let mut so_far = 0u64;
        let (mut continues, mut weak_continues) = (Vec::new(), Vec::new());
        // A reply may be recorded as one message or as several (reasoning, text, calls): neighbours count as one.
        let spoken: Vec<&ChatMessage<'_>> =
            input.iter().filter(|message| message.role != MessageRole::System).collect();
        let mut at = 0;
        // The conversation before the reply whose results come next.
        let mut before_reply = so_far;
        let mut has_calls = false;
        for turn in spoken.chunk_by(|a, b| a.role == MessageRole::Assistant && b.role == MessageRole::Assistant) {
            let digest = digest_messages(turn);
            let is_reply = turn[0].role == MessageRole::Assistant;
            if is_reply {
                // Tried from the end: the weaker evidence comes first.
                // Some instrumentations record the text of a reply and not its calls, or repeat only its text.
                let text = digest_text(turn);
                weak_continues.extend(text.map(|text| combine_digests(so_far, text)));
                let key = digest_words(turn);
                weak_continues.push(combine_digests(so_far, key));
                continues.push(combine_digests(so_far, digest));
                (before_reply, has_calls) = (so_far, turn.iter().any(|message| message.has_tool_calls()));
            } else if turn[0].tool_results().next().is_some() {
                // A history without the calls still has their results. Those of several replies may follow each other, so
                // the last reply may begin with any of them.
                if !has_calls {
                    let is_after_reply = at > 0 && spoken[at - 1].role == MessageRole::Assistant;
                    let before = if is_after_reply { before_reply } else { so_far };
                    let results = spoken[at..].iter().take_while(|message| message.tool_results().next().is_some());
                    let results = results.take(MAX_JOINED_RESULTS);
                    weak_continues.extend(CalledTools::from_results(results).keys(before));
                }
            } else {
                has_calls = false;
            }
            so_far = combine_digests(so_far, digest);
            at += turn.len();
        }
        let reply: Vec<&ChatMessage<'_>> = output.iter().filter(|message| !message.is_empty()).collect();
        let (mut leaves, mut weak_leaves) = (Vec::new(), Vec::new());
        if !reply.is_empty() {
            leaves.push(combine_digests(so_far, digest_messages(&reply)));
            weak_leaves.push(combine_digests(so_far, digest_words(&reply)));
            weak_leaves.extend(digest_text(&reply).map(|text| combine_digests(so_far, text)));
            weak_leaves.extend(CalledTools::from_calls(&reply).keys(so_far));
        }
        ConversationDigests { leaves, continues, asked: so_far, weak_leaves, weak_continues }
    }
}

/// The tools that a reply called, as its calls or their results show them.
#[derive(Default)]
struct CalledTools<'m> {
    ids: Vec<&'m str>,
    names: Vec<&'m str>,
}

impl<'m> CalledTools<'m> {
    fn from_calls(reply: &[&'m ChatMessage<'_>]) -> CalledTools<'m> {
        let calls = || reply.iter().flat_map(|message| message.tool_calls());
        CalledTools {
            ids: calls().filter_map(|call| call.id.as_deref()).collect(),
            names: calls().map(|call| call.name.as_ref()).collect(),
        }
    }

    fn from_results<'r>(messages: impl Iterator<Item = &'r &'m ChatMessage<'m>>) -> CalledTools<'m>
    where
        'm: 'r,
    {
        let mut tools = CalledTools::default();
        for result in messages.flat_map(|message| message.tool_results()) {
            tools.ids.extend(result.id.as_deref());
            tools.names.extend(result.name.as_deref());
        }
        tools
    }

    /// A key by the ids, and one by the names, behind a conversation.
    fn keys(&self, before: u64) -> impl Iterator<Item = u64> {
        [("names", &self.names), ("ids", &self.ids)].into_iter().filter(|(_, list)| !list.is_empty()).map(
            move |(kind, list)| {
                let mut hasher = Xxh3::new();
                hasher.update(kind.as_bytes());
                for text in list {
                    hasher.update(text.as_bytes());
                    hasher.update(&[0]);
                }
                combine_digests(before, hasher.finish())
            },
        )
    }
}

/// The words of a reply that calls tools, as if it called none. `None` if it says nothing or calls nothing.
fn digest_text(messages: &[&ChatMessage<'_>]) -> Option<u64> {
    let mut hasher = Xxh3::new();
    hasher.update(b"words");
    let mut is_said = false;
    for message in messages {
        let text = message.joined_text();
        is_said |= !text.trim().is_empty();
        hasher.update(text.trim().as_bytes());
    }
    let has_calls = messages.iter().any(|message| message.has_tool_calls());
    (is_said && has_calls).then(|| hasher.finish())
}

/// The words and tools of a reply, without ids.
fn digest_words(messages: &[&ChatMessage<'_>]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(b"words");
    for message in messages {
        hasher.update(message.joined_text().trim().as_bytes());
        for call in message.tool_calls() {
            hasher.update(call.name.as_bytes());
            hasher.update(&[0]);
        }
    }
    hasher.finish()
}

/// The identity of one message, or of one reply in several messages. Calls and results are identified by their ids,
/// because senders drop or change the texts around them.
fn digest_messages(messages: &[&ChatMessage<'_>]) -> u64 {
    let mut hasher = Xxh3::new();
    let mut any = false;
    for message in messages {
        let ids = message.tool_calls().filter_map(|call| call.id.as_deref());
        for id in ids.chain(message.tool_results().filter_map(|result| result.id.as_deref())) {
            hasher.update(id.as_bytes());
            hasher.update(&[0]);
            any = true;
        }
    }
    if !any {
        for message in messages {
            hasher.update(message.joined_text().trim().as_bytes());
            for call in message.tool_calls() {
                hasher.update(call.name.as_bytes());
            }
            for result in message.tool_results() {
                hasher.update(result.content.as_bytes());
            }
        }
    }
    let speaker = messages.first().map(|message| message.role as u8).unwrap_or_default();
    hasher.write_u8(if messages.len() > 1 { MessageRole::Assistant as u8 } else { speaker });
    hasher.finish()
}

/// Appends a message to a conversation.
fn combine_digests(before: u64, digest: u64) -> u64 {
    hash_parts(&[&before.to_le_bytes(), &digest.to_le_bytes()])
}

/// Hashes a list of parts; the separator keeps ("a", "bc") and ("ab", "c") apart.
fn hash_parts(parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in parts {
        hasher.update(part);
        hasher.update(&[0]);
    }
    hasher.finish()
}

/// Collects links and computes the groups, as a union-find structure over trace numbers.
#[derive(Clone, Debug, Default)]
pub struct TraceLinker {
    parents: Vec<usize>,
    sessions: HashMap<u64, usize>,
    /// Traces by the state of their conversation after a reply.
    leaves: HashMap<u64, usize>,
    /// Traces with the conversations they continue, by strong and by weak keys.
    continuing: Vec<(usize, Vec<u64>, Vec<u64>)>,
    /// The trace that leaves a weak key; `None` if there are several.
    weak_leaves: HashMap<u64, Option<usize>>,
}

impl TraceLinker {
    /// Adds a trace under the next number, counting from 0.
    pub fn add_trace(&mut self) -> usize {
        self.parents.push(self.parents.len());
        self.parents.len() - 1
    }

    /// Links a trace to those that share a session or a conversation with it.
    pub fn add_link(&mut self, trace: usize, link: TraceLink) {
        if let Some(session) = link.session {
            let other = *self.sessions.entry(session).or_insert(trace);
            self.union(trace, other);
            return;
        }
        for leaf in link.leaves {
            let other = *self.leaves.entry(leaf).or_insert(trace);
            self.union(trace, other);
        }
        for leaf in link.weak_leaves {
            let known = self.weak_leaves.entry(leaf).or_insert(Some(trace));
            *known = known.filter(|other| *other == trace);
        }
        if !link.continues.is_empty() || !link.weak_continues.is_empty() {
            self.continuing.push((trace, link.continues, link.weak_continues));
        }
    }

    /// Groups of trace numbers. Each group is ascending, and groups are ordered by their first number.
    pub fn into_groups(mut self) -> Vec<Vec<usize>> {
        // Only a reply that some trace gave can be continued: a greeting that every history begins with links nothing.
        for (trace, continues, weak_continues) in std::mem::take(&mut self.continuing) {
            let mut is_linked = false;
            for key in continues {
                if let Some(&other) = self.leaves.get(&key) {
                    self.union(trace, other);
                    is_linked = true;
                }
            }
            let weak = weak_continues.iter().rev().find_map(|key| self.weak_leaves.get(key).copied().flatten());
            if let Some(other) = weak.filter(|_| !is_linked) {
                self.union(trace, other);
            }
        }
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.parents.len()];
        for trace in 0..self.parents.len() {
            let root = self.find_root(trace);
            groups[root].push(trace);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// Unites the groups of two traces.
    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find_root(a), self.find_root(b));
        // The smaller number stays the root, so that groups come out in order.
        let (low, high) = (a.min(b), a.max(b));
        self.parents[high] = low;
    }

    /// Finds the root with path halving, which keeps long chains cheap.
    fn find_root(&mut self, trace: usize) -> usize {
        let mut at = trace;
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }
}
