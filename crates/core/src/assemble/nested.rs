//! Separates agents inside agents: where another agent is at work, and which spans belong to it.
//!
//! Everything that a span inherits from the spans around it is passed from parents to children in one pass, so a long
//! chain of spans costs no more than a short one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::dialect::OperationKind;
use crate::message::{ChatMessage, MessageRole};

use super::request_and_answer;
use super::tree::SpanTree;

/// Spans of one agent and of the agents inside it, parents before children. Spans that were folded into others are
/// included, because inherited values pass through them.
pub(super) type AgentSubtree = Vec<usize>;

/// Splits a subtree into the spans of its main agent and the subtrees of agents inside it, each with the span that it
/// is nested in.
pub(super) fn split_nested_agents(
    tree: &SpanTree<'_>,
    below: Option<usize>,
    nodes: AgentSubtree,
) -> (AgentSubtree, Vec<(usize, AgentSubtree)>) {
    let boundaries = find_agent_boundaries(tree, below, &nodes);
    if boundaries.is_empty() {
        return (nodes, Vec::new());
    }
    let mut own = Vec::new();
    let mut inner: BTreeMap<usize, AgentSubtree> = BTreeMap::new();
    let mut outermost: HashMap<usize, usize> = HashMap::new();
    for at in nodes {
        // The outermost boundary decides. A tool that is a boundary stays with the agent that called it.
        let inherited = tree.nodes[at].parent.and_then(|parent| outermost.get(&parent).copied());
        let boundary = inherited.or_else(|| boundaries.contains(&at).then_some(at));
        if let Some(boundary) = boundary {
            outermost.insert(at, boundary);
        }
        match boundary {
            Some(boundary) if boundary != at || tree.nodes[at].facts.kind != OperationKind::Tool => {
                inner.entry(boundary).or_default().push(at);
            }
            _ => own.push(at),
        }
    }
    (own, inner.into_iter().collect())
}

/// The outermost tool and the outermost agent around a span, the span itself included.
#[derive(Clone, Copy, Default)]
struct EnclosingSpans {
    tool: Option<usize>,
    agent: Option<usize>,
}

/// The spans inside of which another agent is at work: tools that call models, and agents with a request of their own.
fn find_agent_boundaries(tree: &SpanTree<'_>, below: Option<usize>, nodes: &[usize]) -> BTreeSet<usize> {
    let facts = |at: usize| &tree.nodes[at].facts;
    let mut calls: Vec<usize> = nodes
        .iter()
        .copied()
        .filter(|at| facts(*at).kind == OperationKind::Model && facts(*at).has_content())
        .collect();
    // Without tools and agents inside there is nothing to separate, which is the common case.
    let has_structure = nodes
        .iter()
        .any(|at| Some(*at) != below && matches!(facts(*at).kind, OperationKind::Tool | OperationKind::Agent));
    if calls.is_empty() || !has_structure {
        return BTreeSet::new();
    }
    // Indices of nodes are in order of time.
    calls.sort_unstable();
    let mut around: HashMap<usize, EnclosingSpans> = HashMap::with_capacity(nodes.len());
    for &at in nodes {
        // The span that the subtree is nested in is outside of it.
        if Some(at) == below {
            continue;
        }
        let outer = tree.nodes[at].parent.and_then(|parent| around.get(&parent).copied()).unwrap_or_default();
        let own = |kind: OperationKind| (facts(at).kind == kind).then_some(at);
        around.insert(
            at,
            EnclosingSpans {
                tool: outer.tool.or_else(|| own(OperationKind::Tool)),
                agent: outer.agent.or_else(|| own(OperationKind::Agent)),
            },
        );
    }
    let surroundings = |at: usize| around.get(&at).copied().unwrap_or_default();
    let mut found: BTreeSet<usize> = calls.iter().filter_map(|call| surroundings(*call).tool).collect();
    let direct: Vec<usize> = calls.into_iter().filter(|call| surroundings(*call).tool.is_none()).collect();
    let Some(first) = direct.first() else { return found };
    let agents = count_agent_calls(tree, below, nodes, &direct, &first_user_text(&facts(*first).input));
    found.extend(agents.iter().filter(|(_, counts)| counts.direct == counts.unrelated).map(|(agent, _)| *agent));
    found.extend(find_agents_with_other_request(tree, below, nodes, &agents));
    let outermost: Option<Vec<usize>> = direct.iter().map(|call| surroundings(*call).agent).collect();
    found.extend(outermost.map(|agents| find_sibling_agents(tree, agents)).unwrap_or_default());
    found
}

/// Number of model calls inside an agent that no tool made, and of those that have nothing to do with the main request.
#[derive(Clone, Copy, Default)]
struct CallCounts {
    direct: usize,
    unrelated: usize,
    /// One of these calls.
    example: Option<usize>,
}

/// The agents that contain direct calls. Counts are added up from children to parents.
fn count_agent_calls(
    tree: &SpanTree<'_>,
    below: Option<usize>,
    nodes: &[usize],
    direct: &[usize],
    main: &str,
) -> BTreeMap<usize, CallCounts> {
    let mut counts: HashMap<usize, CallCounts> = HashMap::new();
    for &call in direct {
        let is_related = is_related(&first_user_text(&tree.nodes[call].facts.input), main);
        counts.insert(call, CallCounts { direct: 1, unrelated: usize::from(!is_related), example: Some(call) });
    }
    let mut agents = BTreeMap::new();
    for &at in nodes.iter().rev() {
        let Some(inside) = counts.remove(&at) else { continue };
        if Some(at) == below {
            continue;
        }
        if tree.nodes[at].facts.kind == OperationKind::Agent {
            agents.insert(at, inside);
        }
        if let Some(parent) = tree.nodes[at].parent {
            let outer = counts.entry(parent).or_default();
            outer.direct += inside.direct;
            outer.unrelated += inside.unrelated;
            outer.example = outer.example.or(inside.example);
        }
    }
    agents
}

/// Agents inside others whose request has nothing to do with the request of the outer agent.
fn find_agents_with_other_request(
    tree: &SpanTree<'_>,
    below: Option<usize>,
    nodes: &[usize],
    agents: &BTreeMap<usize, CallCounts>,
) -> Vec<usize> {
    if agents.len() < 2 {
        return Vec::new();
    }
    // The nearest agent with a request, at or above a node.
    let mut nearest: HashMap<usize, usize> = HashMap::new();
    let mut requests: HashMap<usize, String> = HashMap::new();
    let mut found = Vec::new();
    for &at in nodes.iter().filter(|at| Some(**at) != below) {
        let outer = tree.nodes[at].parent.and_then(|parent| nearest.get(&parent).copied());
        let request =
            agents.contains_key(&at).then(|| request_and_answer::extract_frame_query(&tree.nodes[at].facts)).flatten();
        if let (Some(inner), Some(outer)) = (&request, outer.and_then(|outer| requests.get(&outer)))
            && !is_related(inner, outer)
            // In a later turn, a node of LangGraph shows the first request of the whole conversation as its own.
            && !agents[&at].example.is_some_and(|call| asks_for(&tree.nodes[call].facts.input, outer))
        {
            found.push(at);
        }
        if let Some(nearest_here) = request.is_some().then_some(at).or(outer) {
            nearest.insert(at, nearest_here);
        }
        if let Some(request) = request {
            requests.insert(at, request);
        }
    }
    found
}

/// Agents side by side, each with a request of its own: several turns under one span. `agents` are the outermost ones,
/// one for each call.
fn find_sibling_agents(tree: &SpanTree<'_>, agents: Vec<usize>) -> Vec<usize> {
    let mut known: HashSet<usize> = HashSet::new();
    let outermost: Vec<usize> = agents.into_iter().filter(|agent| known.insert(*agent)).collect();
    if outermost.len() < 2 {
        return Vec::new();
    }
    let mut different: HashSet<String> = HashSet::new();
    let is_distinct = outermost.iter().all(|agent| {
        request_and_answer::extract_frame_query(&tree.nodes[*agent].facts)
            .is_some_and(|request| different.insert(request))
    });
    if is_distinct { outermost } else { Vec::new() }
}

/// The first message of the user in a conversation.
fn first_user_text<'m>(input: &'m [ChatMessage<'_>]) -> std::borrow::Cow<'m, str> {
    input.iter().find(|message| message.role == MessageRole::User).map(ChatMessage::joined_text).unwrap_or_default()
}

/// Whether the latest message of the user is this request.
fn asks_for(input: &[ChatMessage<'_>], request: &str) -> bool {
    let latest = input.iter().rev().find(|message| message.role == MessageRole::User);
    latest.is_some_and(|message| message.joined_text().trim() == request.trim())
}

/// Maximum bytes of two openings that are compared. One opening is compared with those of all calls.
const MAX_COMPARED_BYTES: usize = 16 << 10;

/// Whether two openings belong to one conversation: they begin alike for at least half of the shorter one, or one
/// contains the other. A missing text is no evidence of a difference.
fn is_related(a: &str, b: &str) -> bool {
    let clip = |text: &'_ str| text.floor_char_boundary(MAX_COMPARED_BYTES);
    let (a, b) = (a.trim(), b.trim());
    let (a, b) = (&a[..clip(a)], &b[..clip(b)]);
    if a.is_empty() || b.is_empty() {
        return true;
    }
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let shared = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    shared * 2 >= short.len() || long.contains(short)
}
