//! Finds the requests in a tree of spans: one run for each thing a user (or a calling agent) asked for.

use std::collections::BTreeMap;

use crate::dialect::Kind;
use crate::message::{Message, Role};
use crate::react;
use crate::span::TraceId;
use crate::trajectory::{Defect, DefectKind, Trajectory};

use super::link::Chain;
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
    conversations(tree, &bare, &mut runs, &mut defects);
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
    for at in 0..runs.len() {
        let Some(below) = runs[at].below else { continue };
        let owns = |run: &Run, node: usize| {
            run.tools.contains(&node) || run.calls.contains(&node) || run.frames.contains(&node)
        };
        let above: Vec<usize> = std::iter::once(below).chain(tree.ancestors(below)).collect();
        let parent =
            (0..runs.len()).find(|other| *other != at && above.iter().any(|node| owns(&runs[*other], *node)));
        let Some(parent) = parent else { continue };
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

/// A trace with spans around the work: one run, and one more for each agent that was given another task.
fn split_trace(tree: &Tree<'_>, nodes: &[usize], runs: &mut Vec<Run>) {
    let territory: Vec<usize> =
        nodes.iter().copied().filter(|at| tree.nodes[*at].folded_into.is_none()).collect();
    let mut waiting = vec![(None, territory)];
    while let Some((below, nodes)) = waiting.pop() {
        let (own, inner) = separate(tree, below, &nodes);
        waiting.extend(inner.into_iter().map(|(boundary, nodes)| (Some(boundary), nodes)));
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
                    run.calls.iter().map(|at| outside_steps(tree, *at, "a tool's own call of a model")),
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

pub(super) fn outside_steps(tree: &Tree<'_>, at: usize, why: &str) -> Defect {
    let node = &tree.nodes[at];
    Defect::new(
        DefectKind::ModelCallOutsideSteps,
        format!("{}: {why}", node.span.name),
        Some(node.span.span_id),
    )
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
fn boundaries(tree: &Tree<'_>, below: Option<usize>, nodes: &[usize]) -> Vec<usize> {
    let calls: Vec<usize> = nodes
        .iter()
        .copied()
        .filter(|at| tree.nodes[*at].facts.kind == Kind::Model && tree.nodes[*at].facts.has_content())
        .collect();
    let mut found = Vec::new();
    for &call in &calls {
        let inside = tree.ancestors(call).take_while(|at| Some(*at) != below);
        found.extend(inside.filter(|at| tree.nodes[*at].facts.kind == Kind::Tool));
    }
    let in_tool = |at: usize| tree.ancestors(at).any(|ancestor| found.contains(&ancestor));
    let direct: Vec<usize> = calls.iter().copied().filter(|at| !in_tool(*at)).collect();
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
    for &call in calls {
        let agent = tree
            .ancestors(call)
            .take_while(|at| Some(*at) != below)
            .filter(|at| tree.nodes[*at].facts.kind == Kind::Agent)
            .last();
        let Some(agent) = agent else { return Vec::new() };
        if !outermost.contains(&agent) {
            outermost.push(agent);
        }
    }
    if outermost.len() < 2 {
        return Vec::new();
    }
    let requests: Vec<Option<String>> =
        outermost.iter().map(|at| request::of_frame(&tree.nodes[*at].facts)).collect();
    let distinct = requests
        .iter()
        .enumerate()
        .all(|(index, request)| request.is_some() && !requests[..index].contains(request));
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

/// A conversation of a plain client: calls that continue each other, each in a trace of its own.
struct Conversation {
    calls: Vec<usize>,
    session: Option<String>,
    /// Digests of the conversation after its last reply.
    leaves: Vec<u64>,
    /// The conversation as it was last sent, if no reply came.
    unanswered: Option<u64>,
}

/// Ties bare calls into conversations and splits those into turns.
fn conversations(tree: &Tree<'_>, bare: &[usize], runs: &mut Vec<Run>, defects: &mut Vec<Defect>) {
    let mut open: Vec<Conversation> = Vec::new();
    for &at in bare {
        let node = &tree.nodes[at];
        if node.facts.kind != Kind::Model || node.folded_into.is_some() {
            continue;
        }
        if !node.facts.has_content() {
            let detail = format!("{}: no messages recorded", node.span.name);
            defects.push(Defect::new(DefectKind::ModelCallWithoutContent, detail, Some(node.span.span_id)));
            continue;
        }
        join_conversation(tree, at, &mut open);
    }
    let tools: Vec<usize> =
        bare.iter().copied().filter(|at| tree.nodes[*at].facts.kind == Kind::Tool).collect();
    let mut found: Vec<Run> = open.iter().flat_map(|conversation| turns(tree, conversation)).collect();
    for tool in tools {
        attach_tool(tree, tool, &mut found);
    }
    runs.extend(found);
}

fn join_conversation(tree: &Tree<'_>, at: usize, open: &mut Vec<Conversation>) {
    let facts = &tree.nodes[at].facts;
    let session = facts.session.as_deref();
    let Chain { leaves, continues, asked } = Chain::of(facts);
    // The latest reply in the input decides; among equals the conversation that waited longest.
    let place = |conversation: &Conversation| {
        let latest = continues.iter().rposition(|key| conversation.leaves.contains(key));
        latest.or((conversation.unanswered == Some(asked)).then_some(usize::MAX))
    };
    let fitting =
        open.iter().enumerate().filter(|(_, conversation)| conversation.session.as_deref() == session);
    let best =
        fitting.filter_map(|(index, conversation)| Some((place(conversation)?, usize::MAX - index))).max();
    let found = match best {
        Some((_, index)) => Some(usize::MAX - index),
        // Within a session a list that was rewritten still continues the turn with the same question.
        None if session.is_some() => open.iter().rposition(|conversation| {
            let last = conversation.calls.last().map(|last| &tree.nodes[*last].facts.input);
            conversation.session.as_deref() == session
                && last.is_some_and(|last| continues_turn(last, &facts.input))
        }),
        None => None,
    };
    let index = found.unwrap_or_else(|| {
        open.push(Conversation {
            calls: Vec::new(),
            session: session.map(str::to_owned),
            leaves: Vec::new(),
            unanswered: None,
        });
        open.len() - 1
    });
    let conversation = &mut open[index];
    conversation.calls.push(at);
    if facts.output.is_empty() {
        conversation.unanswered = Some(asked);
    } else {
        conversation.leaves = leaves;
        conversation.unanswered = None;
    }
}

fn continues_turn(before: &[Message<'_>], after: &[Message<'_>]) -> bool {
    match (request::last_user(before), request::last_user(after)) {
        (Some(a), Some(b)) => after.len() > before.len() && before[a].joined_text() == after[b].joined_text(),
        // Only the results of the last calls were sent: the server keeps the rest of the conversation.
        (_, None) => after.iter().any(|message| message.role == Role::Tool),
        _ => false,
    }
}

/// Splits a conversation where the user speaks again after an answer.
fn turns(tree: &Tree<'_>, conversation: &Conversation) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut place = None;
    let mut answered = true;
    for &at in &conversation.calls {
        let facts = &tree.nodes[at].facts;
        let user =
            request::last_user(&facts.input).map(|at| (at, facts.input[at].joined_text().into_owned()));
        // Where the service keeps the conversation, each request begins anew.
        let spoke_again = user.is_some() && (user != place || facts.previous_response_id.is_some());
        match runs.last_mut() {
            Some(run) if !(answered && spoke_again) => run.calls.push(at),
            _ => runs.push(Run { calls: vec![at], ..Run::default() }),
        }
        place = user.or(place);
        let acts = facts
            .output
            .iter()
            .any(|message| message.has_tool_calls() || !react::read(&message.joined_text()).steps.is_empty());
        answered = !acts && !facts.output.is_empty();
    }
    for run in &mut runs {
        let mut traces: Vec<TraceId> = Vec::new();
        for at in &run.calls {
            let trace = tree.nodes[*at].span.trace_id;
            if !traces.contains(&trace) {
                traces.push(trace);
            }
        }
        run.traces = traces;
    }
    runs
}

/// A tool's span in a trace of its own belongs to the turn of its session that was under way.
fn attach_tool(tree: &Tree<'_>, tool: usize, runs: &mut Vec<Run>) {
    let node = &tree.nodes[tool];
    let before = runs.iter_mut().filter(|run| {
        run.calls.first().is_some_and(|first| {
            let call = &tree.nodes[*first];
            call.facts.session == node.facts.session && call.span.start_ns <= node.span.start_ns
        })
    });
    match before.max_by_key(|run| tree.nodes[run.calls[0]].order()) {
        Some(run) => {
            run.tools.push(tool);
            if !run.traces.contains(&node.span.trace_id) {
                run.traces.push(node.span.trace_id);
            }
        }
        None => runs.push(Run { tools: vec![tool], traces: vec![node.span.trace_id], ..Run::default() }),
    }
}
