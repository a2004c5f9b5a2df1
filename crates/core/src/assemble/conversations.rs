//! Plain clients create one trace per model call. This module links such calls into conversations, and splits
//! conversations into requests.

use std::collections::{HashMap, HashSet, VecDeque};

use xxhash_rust::xxh3::xxh3_64;

use crate::dialect::OperationKind;
use crate::message::{ChatMessage, MessageRole};
use crate::react;
use crate::short_text::cut_name;
use crate::span::TraceId;
use crate::trajectory::{DefectKind, ExtractionDefect};

use super::link::ConversationDigests;
use super::request_and_answer;
use super::tree::SpanTree;
use crate::assemble::agent_run::RequestSpans;

/// A conversation: calls that continue each other, each in a trace of its own.
struct ConversationThread {
    calls: Vec<usize>,
    session: Option<String>,
    last_request: LastRequest,
    /// Digests of the conversation after its last reply, as the next request would repeat it.
    leaves: Vec<u64>,
    weak_leaves: Vec<u64>,
    /// Digest of the conversation as it was last sent, if no reply came. The next call may be a retry.
    unanswered: Option<u64>,
}

/// What the next call of the session is compared with. Computed once per call, because every later call of the session
/// may look at it.
#[derive(Clone, Copy, Default)]
struct LastRequest {
    messages: usize,
    /// Digest of the user's last message.
    asked: Option<u64>,
}

impl LastRequest {
    /// Hashes the last message of the user once.
    fn new(input: &[ChatMessage<'_>]) -> LastRequest {
        let asked =
            request_and_answer::find_last_user_message(input).map(|at| xxh3_64(input[at].joined_text().as_bytes()));
        LastRequest { messages: input.len(), asked }
    }
}

/// Finds the runs among model calls and tool runs that have no spans around them. `bare` is in order of time.
pub(super) fn find_conversation_runs(
    tree: &SpanTree<'_>,
    bare: &[usize],
    runs: &mut Vec<RequestSpans>,
    defects: &mut Vec<ExtractionDefect>,
) {
    let mut open = ConversationIndex::default();
    for &at in bare {
        let node = &tree.nodes[at];
        // Tool runs are assigned at the end, when the turns are known.
        if node.facts.kind != OperationKind::Model || node.folded_into.is_some() {
            continue;
        }
        if !node.facts.has_content() {
            let detail = format!("{}: no messages recorded", cut_name(&node.span.name));
            let kind = DefectKind::ModelCallWithoutContent;
            defects.extend(node.span_ids().map(|id| ExtractionDefect::new(kind, detail.as_str(), Some(id))));
            continue;
        }
        open.add_call(tree, at);
    }
    let tools = bare.iter().copied().filter(|at| tree.nodes[*at].facts.kind == OperationKind::Tool);
    let mut found: Vec<RequestSpans> =
        open.all.iter().enumerate().flat_map(|(thread, all)| split_into_turns(tree, thread, all)).collect();
    attach_tools(tree, tools, &mut found);
    runs.extend(found);
}

/// Maximum number of conversations in the same state that are considered when a call continues one of them. Few
/// sessions ever say the same.
const MAX_WAITING_CANDIDATES: usize = 64;

/// The conversations so far, and the states in which each can be continued.
#[derive(Default)]
struct ConversationIndex {
    all: Vec<ConversationThread>,
    /// By the digest that a next call would repeat: the conversation after its last reply, or as it was last sent.
    /// Those that have waited longest come first.
    by_digest: HashMap<u64, VecDeque<usize>>,
    by_session: HashMap<String, Vec<usize>>,
}

impl ConversationIndex {
    /// Adds a call to the conversation that it continues, or begins a new one.
    fn add_call(&mut self, tree: &SpanTree<'_>, at: usize) {
        let facts = &tree.nodes[at].facts;
        let chain = ConversationDigests::from_span(facts);
        let session = facts.session.as_deref();
        let continued = self.find_continued(&chain, session).or_else(|| self.find_weakly_continued(&chain, session));
        // Only calls of a session are compared by their request.
        let request = session.map(|_| LastRequest::new(&facts.input)).unwrap_or_default();
        let index = continued.or_else(|| self.find_rewritten(request, &facts.input, session));
        let index = index.unwrap_or_else(|| {
            let (session, calls) = (session.map(str::to_owned), Vec::new());
            if let Some(session) = &session {
                self.by_session.entry(session.clone()).or_default().push(self.all.len());
            }
            let last_request = LastRequest::default();
            let (leaves, weak_leaves) = (Vec::new(), Vec::new());
            self.all.push(ConversationThread { calls, session, last_request, leaves, weak_leaves, unanswered: None });
            self.all.len() - 1
        });
        let conversation = &mut self.all[index];
        conversation.last_request = request;
        conversation.calls.push(at);
        if facts.output.is_empty() {
            conversation.unanswered = Some(chain.asked);
            self.by_digest.entry(chain.asked).or_default().push_back(index);
        } else {
            conversation.unanswered = None;
            for leaf in chain.leaves.iter().chain(&chain.weak_leaves) {
                self.by_digest.entry(*leaf).or_default().push_back(index);
            }
            conversation.leaves = chain.leaves;
            conversation.weak_leaves = chain.weak_leaves;
        }
    }

    /// The conversation that a call continues. The latest reply in its input decides. Only conversations of the same
    /// session, or of none, are considered.
    fn find_continued(&mut self, chain: &ConversationDigests, session: Option<&str>) -> Option<usize> {
        let all = &self.all;
        let mut waiting = |digest: &u64, is_open: &dyn Fn(&ConversationThread) -> bool| {
            let list = self.by_digest.get_mut(digest)?;
            // Conversations that have gone on since are removed from the front.
            while list.front().is_some_and(|index| !is_open(&all[*index])) {
                list.pop_front();
            }
            let place = list.iter().take(MAX_WAITING_CANDIDATES).position(|index| {
                let conversation = &all[*index];
                conversation.session.as_deref() == session && is_open(conversation)
            })?;
            list.remove(place)
        };
        waiting(&chain.asked, &|conversation| conversation.unanswered == Some(chain.asked)).or_else(|| {
            chain
                .continues
                .iter()
                .rev()
                .find_map(|digest| waiting(digest, &|conversation| conversation.leaves.contains(digest)))
        })
    }

    /// The only conversation that a call may continue by parts of its last reply. With several, nothing is guessed.
    fn find_weakly_continued(&self, chain: &ConversationDigests, session: Option<&str>) -> Option<usize> {
        chain.weak_continues.iter().rev().find_map(|digest| {
            let waiting = self.by_digest.get(digest)?.iter().rev().take(MAX_WAITING_CANDIDATES);
            let mut open = waiting.filter(|index| {
                let conversation = &self.all[**index];
                conversation.session.as_deref() == session && conversation.weak_leaves.contains(digest)
            });
            open.next().copied().filter(|_| open.next().is_none())
        })
    }

    /// Within a session, a message list that was rewritten (shortened or summarised) still continues the turn with the
    /// same question.
    fn find_rewritten(&self, request: LastRequest, input: &[ChatMessage<'_>], session: Option<&str>) -> Option<usize> {
        // Maximum number of conversations of one session that are compared. Older ones are finished in practice.
        const MAX_REWRITTEN_CANDIDATES: usize = 32;
        let known = self.by_session.get(session?)?;
        if request.asked.is_none() {
            // Only the results of the last calls were sent: the service stores the rest of the conversation.
            return known.last().copied().filter(|_| input.iter().any(|message| message.role == MessageRole::Tool));
        }
        known.iter().rev().take(MAX_REWRITTEN_CANDIDATES).copied().find(|index| {
            let last = &self.all[*index].last_request;
            request.messages > last.messages && request.asked == last.asked
        })
    }
}

/// Splits a conversation where the user speaks again after an answer.
fn split_into_turns(tree: &SpanTree<'_>, thread: usize, conversation: &ConversationThread) -> Vec<RequestSpans> {
    let mut runs: Vec<RequestSpans> = Vec::new();
    let mut place = None;
    let mut answered = true;
    for &at in &conversation.calls {
        let facts = &tree.nodes[at].facts;
        let user = request_and_answer::find_last_user_message(&facts.input)
            .map(|at| (at, facts.input[at].joined_text().into_owned()));
        // Where the service stores the conversation, each request contains only the new messages.
        let spoke_again = user.is_some() && (user != place || facts.previous_response_id.is_some());
        match runs.last_mut() {
            Some(run) if !(answered && spoke_again) => run.calls.push(at),
            _ => runs.push(RequestSpans { calls: vec![at], ..RequestSpans::default() }),
        }
        place = user.or(place);
        // A reply that asks for a tool does not end the turn, natively or as ReAct text.
        let acts = facts.output.iter().any(|message| {
            message.has_tool_calls() || !react::read_react_transcript(&message.joined_text()).steps.is_empty()
        });
        answered = !acts && !facts.output.is_empty();
    }
    for run in &mut runs {
        run.thread = Some(thread);
        let mut known: HashSet<TraceId> = HashSet::new();
        let traces = run.calls.iter().map(|at| tree.nodes[*at].span.trace_id);
        run.traces = traces.filter(|trace| known.insert(*trace)).collect();
    }
    runs
}

/// Assigns tool spans in traces of their own to the turn of their session that was under way. Without such a turn they
/// become runs of their own.
fn attach_tools(tree: &SpanTree<'_>, tools: impl Iterator<Item = usize>, runs: &mut Vec<RequestSpans>) {
    // The turns of each session, in order of their first call, for binary search.
    let mut turns: HashMap<Option<&str>, Vec<usize>> = HashMap::new();
    for (number, run) in runs.iter().enumerate() {
        if let Some(first) = run.calls.first() {
            turns.entry(tree.nodes[*first].facts.session.as_deref()).or_default().push(number);
        }
    }
    for numbers in turns.values_mut() {
        numbers.sort_by_key(|number| tree.nodes[runs[*number].calls[0]].sort_key());
    }
    let mut known: HashSet<(usize, TraceId)> = HashSet::new();
    for (number, run) in runs.iter().enumerate() {
        known.extend(run.traces.iter().map(|trace| (number, *trace)));
    }
    for tool in tools {
        let node = &tree.nodes[tool];
        let trace = node.span.trace_id;
        let begun = turns.get(&node.facts.session.as_deref()).and_then(|turns| {
            let starts = |number: &usize| tree.nodes[runs[*number].calls[0]].span.start_ns;
            let after = turns.partition_point(|number| starts(number) <= node.span.start_ns);
            turns[..after].last().copied()
        });
        match begun {
            Some(number) => {
                runs[number].tools.push(tool);
                if known.insert((number, trace)) {
                    runs[number].traces.push(trace);
                }
            }
            None => runs.push(RequestSpans { tools: vec![tool], traces: vec![trace], ..RequestSpans::default() }),
        }
    }
}
