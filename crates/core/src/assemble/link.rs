//! Which traces belong together, decided before they are assembled.
//!
//! Most traces stand alone. A plain client without a root span makes one trace a model call; those are tied by their
//! session, or by the message list that grows from call to call. Texts are never compared across sessions: the same
//! question asked twice stays two conversations.

use std::collections::HashMap;
use std::hash::Hasher;

use xxhash_rust::xxh3::Xxh3;

use crate::dialect::{self, Kind};
use crate::message::{Message, Role};
use crate::span::Span;

/// What ties a trace to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceLink {
    session: Option<u64>,
    /// The conversation as it stands after this call.
    leaves: Option<u64>,
    /// The conversations that this call continues.
    continues: Vec<u64>,
}

impl TraceLink {
    /// Reads the link of a span without a parent. `None` when its trace stands alone.
    pub fn of(span: &Span<'_>) -> Option<TraceLink> {
        if span.parent_id.is_some() {
            return None;
        }
        let facts = dialect::read(span);
        if !matches!(facts.kind, Kind::Model | Kind::Tool) {
            return None;
        }
        let project = span.resource.project().unwrap_or_default();
        let session = facts.session.as_ref().map(|session| hash(&[project.as_bytes(), session.as_bytes()]));
        if facts.kind == Kind::Tool {
            return session.map(|session| TraceLink { session: Some(session), ..TraceLink::default() });
        }
        let (leaves, continues) = chain(&facts.input, &facts.output);
        (session.is_some() || leaves.is_some()).then_some(TraceLink { session, leaves, continues })
    }
}

/// Digests of the conversation after a call, and of all conversations the call's input contains.
pub(super) fn chain(input: &[Message<'_>], output: &[Message<'_>]) -> (Option<u64>, Vec<u64>) {
    let mut so_far = 0u64;
    let mut continues = Vec::new();
    for message in input.iter().filter(|message| message.role != Role::System) {
        let digest = digest(message);
        if message.role == Role::Assistant {
            continues.push(combine(so_far, digest));
        }
        so_far = combine(so_far, digest);
    }
    let mut reply = Message::new(Role::Assistant);
    reply.parts = output.iter().flat_map(|message| message.parts.iter().cloned()).collect();
    let leaves = (!reply.is_empty()).then(|| combine(so_far, digest(&reply)));
    (leaves, continues)
}

/// A message's identity. Calls and results are known by their ids, because senders drop the texts around them.
fn digest(message: &Message<'_>) -> u64 {
    let mut hasher = Xxh3::new();
    let ids = message.tool_calls().filter_map(|call| call.id.as_deref());
    let ids = ids.chain(message.tool_results().filter_map(|result| result.id.as_deref()));
    let mut any = false;
    for id in ids {
        hasher.update(id.as_bytes());
        hasher.update(&[0]);
        any = true;
    }
    if !any {
        hasher.update(message.joined_text().trim().as_bytes());
        for call in message.tool_calls() {
            hasher.update(call.name.as_bytes());
        }
        for result in message.tool_results() {
            hasher.update(result.content.as_bytes());
        }
    }
    hasher.write_u8(message.role as u8);
    hasher.finish()
}

fn combine(before: u64, digest: u64) -> u64 {
    hash(&[&before.to_le_bytes(), &digest.to_le_bytes()])
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in parts {
        hasher.update(part);
        hasher.update(&[0]);
    }
    hasher.finish()
}

/// Collects links and finds the groups.
#[derive(Clone, Debug, Default)]
pub struct Linker {
    parents: Vec<usize>,
    sessions: HashMap<u64, usize>,
    conversations: HashMap<u64, usize>,
}

impl Linker {
    /// Adds a trace under the next number, counting from 0.
    pub fn add_trace(&mut self) -> usize {
        self.parents.push(self.parents.len());
        self.parents.len() - 1
    }

    /// Ties a trace to those that share a session or a conversation with it.
    pub fn add_link(&mut self, trace: usize, link: &TraceLink) {
        if let Some(session) = link.session {
            let other = *self.sessions.entry(session).or_insert(trace);
            self.union(trace, other);
            return;
        }
        for key in link.continues.iter().chain(link.leaves.as_ref()) {
            let other = *self.conversations.entry(*key).or_insert(trace);
            self.union(trace, other);
        }
    }

    /// Groups of trace numbers, each in ascending order, ordered by their first.
    pub fn groups(mut self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.parents.len()];
        for trace in 0..self.parents.len() {
            let root = self.root(trace);
            groups[root].push(trace);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        // The smaller number stays the root, so that groups come out in order.
        let (low, high) = (a.min(b), a.max(b));
        self.parents[high] = low;
    }

    fn root(&mut self, trace: usize) -> usize {
        let mut at = trace;
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }
}
