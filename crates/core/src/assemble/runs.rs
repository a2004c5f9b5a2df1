//! Finds the requests in a tree of spans: one run for each thing a user (or a calling agent) asked for.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::dialect::Kind;
use crate::message::{Message, Role};
use crate::react;
use crate::span::TraceId;
use crate::trajectory::{Defect, DefectKind, Trajectory};

use super::conversations;
use super::request;
use super::tree::Tree;

/// One request: the model calls and tool runs that answer it, as numbers of nodes in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub calls: Vec<usize>,
    pub tools: Vec<usize>,
    /// Spans around the work, outermost first. Empty for plain clients, which have none.
    pub frames: Vec<usize>,
    pub traces: Vec<TraceId>,
    /// The node in another run's territory that this run hangs below.
    pub below: Option<usize>,
    pub defects: Vec<Defect>,
}

impl Run {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.tools.is_empty()
    }

    pub(super) fn start(&self, tree: &Tree<'_>) -> (u64, u64) {
        let first =
            self.calls.iter().chain(&self.tools).chain(&self.frames).map(|at| tree.nodes[*at].order());
        first.min().map_or((u64::MAX, 0), |(start, end, _)| (start, end))
    }
}

/// Finds all runs, in order of time; defects are those of spans that are in none.
pub(super) fn find(tree: &Tree<'_>) -> (Vec<Run>, Vec<Defect>) {
    let mut by_trace: BTreeMap<TraceId, Vec<usize>> = BTreeMap::new();
    for (at, node) in tree.nodes.iter().enumerate() {
        by_trace.entry(node.span.trace_id).or_default().push(at);
    }
    let mut runs = Vec::new();
    let mut defects = Vec::new();
    let mut bare: Vec<usize> = Vec::new();
    for nodes in by_trace.values() {
        let is_bare = |at: &usize| {
            let node = &tree.nodes[*at];
            node.parent.is_some()
                || matches!(node.facts.kind, Kind::Model | Kind::Tool)
                || node.folded_into.is_some()
        };
        if nodes.iter().all(is_bare) {
            bare.extend(nodes);
        } else {
            split_trace(tree, nodes, &mut runs);
        }
    }
    bare.sort_by_key(|at| tree.nodes[*at].order());
    conversations::find(tree, &bare, &mut runs, &mut defects);
    runs.retain(|run| !run.is_empty() || failed_early(tree, run));
    runs.sort_by_key(|run| (run.start(tree), run.below.is_some()));
    (runs, defects)
}

/// An agent that was asked something and never came to call its model.
fn failed_early(tree: &Tree<'_>, run: &Run) -> bool {
    let frames = || run.frames.iter().map(|at| &tree.nodes[*at]);
    frames().any(|node| node.facts.kind == Kind::Agent)
        && frames().any(|node| request::of_frame(&node.facts).is_some())
}

/// Links runs that hang below others to the step they belong to, and gives every trajectory its id.
pub(super) fn connect(tree: &Tree<'_>, runs: &[Run], trajectories: &mut [Trajectory]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for trajectory in trajectories.iter_mut() {
        let base = trajectory.trace_ids.first().cloned().unwrap_or_default();
        let count = seen.entry(base.clone()).or_default();
        *count += 1;
        trajectory.trajectory_id = if *count == 1 { base } else { format!("{base}-{count}") };
    }
    let mut owner: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    for (number, run) in runs.iter().enumerate() {
        for at in run.calls.iter().chain(&run.tools).chain(&run.frames) {
            owner[*at] = Some(number);
        }
    }
    for at in 0..runs.len() {
        let Some(below) = runs[at].below else { continue };
        let mut above = std::iter::once(below).chain(tree.ancestors(below)).filter_map(|node| owner[node]);
        let Some(parent) = above.find(|parent| *parent != at) else { continue };
        let id = tree.nodes[below].span.span_id.to_string();
        let step = trajectories[parent].steps.iter().find(|step| step.span_ids.contains(&id));
        // A hand-over from code has no tool span of its own: take the step that was under way.
        let start = trajectories[at].start.clone();
        let step = step.or_else(|| {
            let mut before = trajectories[parent].steps.iter().filter(|step| step.start <= start);
            before.next_back()
        });
        let index = step.map(|step| step.index);
        trajectories[at].parent_trajectory_id = Some(trajectories[parent].trajectory_id.clone());
        trajectories[at].parent_step_index = index;
    }
}

/// How deep agents inside agents are told apart.
const MAX_NESTED_AGENTS: usize = 32;

/// A trace with spans around the work: one run, and one more for each agent that was given another task.
fn split_trace(tree: &Tree<'_>, nodes: &[usize], runs: &mut Vec<Run>) {
    let territory: Vec<usize> =
        nodes.iter().copied().filter(|at| tree.nodes[*at].folded_into.is_none()).collect();
    let mut waiting = vec![(None, territory, 0)];
    while let Some((below, nodes, depth)) = waiting.pop() {
        // Each level looks at all spans below it: past any real depth they stay together.
        let (own, inner) =
            if depth < MAX_NESTED_AGENTS { separate(tree, below, &nodes) } else { (nodes, Vec::new()) };
        waiting.extend(inner.into_iter().map(|(boundary, nodes)| (Some(boundary), nodes, depth + 1)));
        let mut run = Run { below, ..Run::default() };
        for at in own {
            match tree.nodes[at].facts.kind {
                Kind::Model => run.calls.push(at),
                Kind::Tool if Some(at) != below => run.tools.push(at),
                _ => run.frames.push(at),
            }
        }
        // A tool's own call of a model, without any tool of its own, is not an agent at work.
        if below.is_some_and(|at| tree.nodes[at].facts.kind == Kind::Tool)
            && run.tools.is_empty()
            && !asks_for_tools(tree, &run)
        {
            let owner = runs.iter_mut().rev().find(|other| below.is_some_and(|at| other.tools.contains(&at)));
            if let Some(owner) = owner {
                owner.defects.extend(
                    run.calls.iter().flat_map(|at| outside_steps(tree, *at, "a tool's own call of a model")),
                );
                continue;
            }
        }
        run.calls.sort_by_key(|at| tree.nodes[*at].order());
        run.tools.sort_by_key(|at| tree.nodes[*at].order());
        run.frames.sort_by_key(|at| tree.nodes[*at].order());
        if let Some(first) = run.calls.iter().chain(&run.tools).chain(&run.frames).next() {
            run.traces = vec![tree.nodes[*first].span.trace_id];
        }
        runs.push(run);
    }
}

fn asks_for_tools(tree: &Tree<'_>, run: &Run) -> bool {
    run.calls.iter().any(|at| {
        let output = &tree.nodes[*at].facts.output;
        output
            .iter()
            .any(|message| message.has_tool_calls() || !react::read(&message.joined_text()).steps.is_empty())
    })
}

/// One defect for each span that records a model call.
pub(super) fn outside_steps(tree: &Tree<'_>, at: usize, why: &str) -> Vec<Defect> {
    let node = &tree.nodes[at];
    let detail = format!("{}: {why}", node.span.name);
    let kind = DefectKind::ModelCallOutsideSteps;
    node.span_ids().map(|id| Defect::new(kind, detail.as_str(), Some(id))).collect()
}

/// Splits a territory into what belongs to its main agent and the territories of agents inside it.
fn separate(
    tree: &Tree<'_>,
    below: Option<usize>,
    nodes: &[usize],
) -> (Vec<usize>, Vec<(usize, Vec<usize>)>) {
    let boundaries = boundaries(tree, below, nodes);
    if boundaries.is_empty() {
        return (nodes.to_vec(), Vec::new());
    }
    let mut own = Vec::new();
    let mut inner: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &at in nodes {
        let chain = std::iter::once(at).chain(tree.ancestors(at));
        // The outermost boundary decides; a tool that is one stays with the agent that called it.
        let boundary = chain.filter(|node| boundaries.contains(node)).last();
        match boundary {
            Some(boundary) if boundary != at || tree.nodes[at].facts.kind != Kind::Tool => {
                inner.entry(boundary).or_default().push(at);
            }
            _ => own.push(at),
        }
    }
    (own, inner.into_iter().collect())
}

/// The nodes below which another agent is at work: tools that call models, and agents with a request of their own.
fn boundaries(tree: &Tree<'_>, below: Option<usize>, nodes: &[usize]) -> BTreeSet<usize> {
    let calls: Vec<usize> = nodes
        .iter()
        .copied()
        .filter(|at| tree.nodes[*at].facts.kind == Kind::Model && tree.nodes[*at].facts.has_content())
        .collect();
    let mut found = BTreeSet::new();
    let mut direct: Vec<usize> = Vec::new();
    for &call in &calls {
        let inside = tree.ancestors(call).take_while(|at| Some(*at) != below);
        // The outermost one: what is inside it is its own affair.
        match inside.filter(|at| tree.nodes[*at].facts.kind == Kind::Tool).last() {
            Some(tool) => drop(found.insert(tool)),
            None => direct.push(call),
        }
    }
    let Some(main) = direct.first().map(|at| opening(&tree.nodes[*at].facts.input)) else { return found };
    let mut agents: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for &call in &direct {
        let related = related(&opening(&tree.nodes[call].facts.input), &main);
        for at in tree.ancestors(call).take_while(|at| Some(*at) != below) {
            if tree.nodes[at].facts.kind == Kind::Agent {
                let (calls, strangers) = agents.entry(at).or_default();
                *calls += 1;
                *strangers += usize::from(!related);
            }
        }
    }
    found.extend(agents.iter().filter(|(_, (calls, strangers))| calls == strangers).map(|(at, _)| *at));
    found.extend(agents.keys().copied().filter(|at| has_other_request(tree, *at, below)));
    found.extend(sibling_requests(tree, &direct, below));
    found
}

/// An agent inside another, whose request has nothing to do with the outer one's.
fn has_other_request(tree: &Tree<'_>, agent: usize, below: Option<usize>) -> bool {
    let outer = tree.ancestors(agent).take_while(|at| Some(*at) != below);
    let outer = outer
        .filter(|at| tree.nodes[*at].facts.kind == Kind::Agent)
        .find_map(|at| request::of_frame(&tree.nodes[at].facts));
    match (request::of_frame(&tree.nodes[agent].facts), outer) {
        (Some(inner), Some(outer)) => !related(&inner, &outer),
        _ => false,
    }
}

/// Agents side by side, each with a request of its own: several turns under one span.
fn sibling_requests(tree: &Tree<'_>, calls: &[usize], below: Option<usize>) -> Vec<usize> {
    let mut outermost: Vec<usize> = Vec::new();
    let mut known: HashSet<usize> = HashSet::new();
    for &call in calls {
        let agent = tree
            .ancestors(call)
            .take_while(|at| Some(*at) != below)
            .filter(|at| tree.nodes[*at].facts.kind == Kind::Agent)
            .last();
        let Some(agent) = agent else { return Vec::new() };
        if known.insert(agent) {
            outermost.push(agent);
        }
    }
    if outermost.len() < 2 {
        return Vec::new();
    }
    let requests: Vec<Option<String>> =
        outermost.iter().map(|at| request::of_frame(&tree.nodes[*at].facts)).collect();
    let mut different: HashSet<&str> = HashSet::new();
    let distinct =
        requests.iter().all(|request| request.as_deref().is_some_and(|request| different.insert(request)));
    if distinct { outermost } else { Vec::new() }
}

/// The first thing a user said in a conversation.
fn opening<'m>(input: &'m [Message<'_>]) -> std::borrow::Cow<'m, str> {
    input.iter().find(|message| message.role == Role::User).map(Message::joined_text).unwrap_or_default()
}

/// Two openings of one conversation: the same, or one grown out of the other.
fn related(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim(), b.trim());
    if a.is_empty() || b.is_empty() {
        return true;
    }
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let shared = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    shared * 2 >= short.len() || long.contains(short)
}
