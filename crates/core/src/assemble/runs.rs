//! Finds the requests in a tree of spans: one run for each thing that a user, or a calling agent, asked for.

use crate::assemble::agent_run::RequestSpans;
use std::collections::{BTreeMap, HashMap};

use crate::dialect::OperationKind;
use crate::react;
use crate::short_text::cut_name;
use crate::span::TraceId;
use crate::trajectory::{DefectKind, ExtractionDefect, Trajectory, TrajectoryStep};

use super::conversations;
use super::nested::{self, AgentSubtree};
use super::request_and_answer;
use super::tree::SpanTree;

/// Finds all runs, in order of time. The defects are those of spans that are in no run.
pub(super) fn find_runs(tree: &SpanTree<'_>) -> (Vec<RequestSpans>, Vec<ExtractionDefect>) {
    let mut by_trace: BTreeMap<TraceId, Vec<usize>> = BTreeMap::new();
    for &at in &tree.top_down {
        by_trace.entry(tree.nodes[at].span.trace_id).or_default().push(at);
    }
    let mut runs = Vec::new();
    let mut defects = Vec::new();
    let mut bare: Vec<usize> = Vec::new();
    for nodes in by_trace.into_values() {
        // A trace of a plain client: no roots but model calls and tool runs.
        let is_bare = |at: &usize| {
            let node = &tree.nodes[*at];
            node.parent.is_some()
                || matches!(node.facts.kind, OperationKind::Model | OperationKind::Tool)
                || node.folded_into.is_some()
        };
        if nodes.iter().all(is_bare) {
            bare.extend(nodes);
        } else {
            split_trace(tree, nodes, &mut runs);
        }
    }
    bare.sort_by_key(|at| tree.nodes[*at].sort_key());
    conversations::find_conversation_runs(tree, &bare, &mut runs, &mut defects);
    runs.retain(|run| !run.is_empty() || failed_early(tree, run));
    // By time; of runs that begin together, the outer one first.
    runs.sort_by_key(|run| (run.first_span_times(tree), run.below.is_some()));
    (runs, defects)
}

/// Whether an agent got a request and failed before it called its model. Such a run has no calls, and is reported.
fn failed_early(tree: &SpanTree<'_>, run: &RequestSpans) -> bool {
    let frames = || run.frames.iter().map(|at| &tree.nodes[*at]);
    frames().any(|node| node.facts.kind == OperationKind::Agent)
        && frames().any(|node| request_and_answer::extract_frame_query(&node.facts).is_some())
}

/// Links nested runs to the step that they belong to, and gives every trajectory its id: the id of its first trace,
/// with a number if the trace has several.
pub(super) fn link_nested_runs(tree: &SpanTree<'_>, runs: &[RequestSpans], trajectories: &mut [Trajectory]) {
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
    // For each node, the nearest node at or above it that belongs to a run.
    let mut nearest: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    for &at in &tree.top_down {
        let outer = || tree.nodes[at].parent.and_then(|parent| nearest[parent]);
        nearest[at] = if owner[at].is_some() { Some(at) } else { outer() };
    }
    let mut outer_steps: HashMap<usize, StepIndex> = HashMap::new();
    for at in 0..runs.len() {
        let Some(below) = runs[at].below else { continue };
        // An agent that a run is nested in belongs to that run itself; a tool belongs to the run that called it.
        let mut node = nearest[below];
        while let Some(own) = node.filter(|node| owner[*node] == Some(at)) {
            node = tree.nodes[own].parent.and_then(|parent| nearest[parent]);
        }
        let Some(parent) = node.and_then(|node| owner[node]) else { continue };
        let steps = outer_steps.entry(parent).or_insert_with(|| StepIndex::new(&trajectories[parent].steps));
        let id = tree.nodes[below].span.span_id.to_string();
        // A hand-over from code has no tool span of its own: the step that was under way is used.
        let step = steps.with_span(&id).or_else(|| steps.last_begun(trajectories[at].start.as_deref()));
        trajectories[at].parent_trajectory_id = Some(trajectories[parent].trajectory_id.clone());
        trajectories[at].parent_step_index = step;
    }
}

/// The steps of a trajectory, indexed for nested runs.
struct StepIndex {
    by_span: HashMap<String, u32>,
    /// For each step, its number and the earliest start of it and all steps behind it. Ascending, hence the binary
    /// search.
    earliest: Vec<(u32, Option<String>)>,
}

impl StepIndex {
    /// Builds both lookups in one pass each.
    fn new(steps: &[TrajectoryStep]) -> StepIndex {
        let mut by_span = HashMap::new();
        for step in steps {
            for id in &step.span_ids {
                by_span.entry(id.clone()).or_insert(step.index);
            }
        }
        let mut earliest: Vec<(u32, Option<String>)> = Vec::with_capacity(steps.len());
        for step in steps.iter().rev() {
            let start = match earliest.last() {
                Some((_, behind)) if *behind < step.start => behind.clone(),
                _ => step.start.clone(),
            };
            earliest.push((step.index, start));
        }
        earliest.reverse();
        StepIndex { by_span, earliest }
    }

    /// The step that has this span. If several have it, the first.
    fn with_span(&self, id: &str) -> Option<u32> {
        self.by_span.get(id).copied()
    }

    /// The last step that had begun by then.
    fn last_begun(&self, start: Option<&str>) -> Option<u32> {
        let after = self.earliest.partition_point(|(_, earliest)| earliest.as_deref() <= start);
        self.earliest[..after].last().map(|(index, _)| *index)
    }
}

/// Maximum depth to which agents inside agents are separated. Each level passes over all spans below it.
const MAX_NESTED_AGENTS: usize = 32;

/// Splits a trace with spans around the work: one run, and one more for each agent with a task of its own.
fn split_trace(tree: &SpanTree<'_>, nodes: AgentSubtree, runs: &mut Vec<RequestSpans>) {
    // The run of each tool span.
    let mut tool_runs: HashMap<usize, usize> = HashMap::new();
    let mut waiting = vec![(None, nodes, 0)];
    while let Some((below, nodes, depth)) = waiting.pop() {
        // Beyond any real depth, agents stay together.
        let (own, inner) = if depth < MAX_NESTED_AGENTS {
            nested::split_nested_agents(tree, below, nodes)
        } else {
            (nodes, Vec::new())
        };
        waiting.extend(inner.into_iter().map(|(boundary, nodes)| (Some(boundary), nodes, depth + 1)));
        let mut run = RequestSpans { below, ..RequestSpans::default() };
        for at in own.into_iter().filter(|at| tree.nodes[*at].folded_into.is_none()) {
            match tree.nodes[at].facts.kind {
                OperationKind::Model => run.calls.push(at),
                OperationKind::Tool if Some(at) != below => run.tools.push(at),
                _ => run.frames.push(at),
            }
        }
        // A tool that calls a model, without calling tools, is not an agent. Its calls are reported as defects of the
        // run that called the tool.
        if below.is_some_and(|at| tree.nodes[at].facts.kind == OperationKind::Tool)
            && run.tools.is_empty()
            && !has_tool_requests(tree, &run)
        {
            let owner = below.and_then(|at| tool_runs.get(&at));
            if let Some(owner) = owner.map(|owner| &mut runs[*owner]) {
                owner.defects.extend(
                    run.calls
                        .iter()
                        .flat_map(|at| report_calls_outside_steps(tree, *at, "a tool's own call of a model")),
                );
                continue;
            }
        }
        run.calls.sort_by_key(|at| tree.nodes[*at].sort_key());
        run.tools.sort_by_key(|at| tree.nodes[*at].sort_key());
        run.frames.sort_by_key(|at| tree.nodes[*at].sort_key());
        if let Some(first) = run.calls.iter().chain(&run.tools).chain(&run.frames).next() {
            run.traces = vec![tree.nodes[*first].span.trace_id];
        }
        tool_runs.extend(run.tools.iter().map(|tool| (*tool, runs.len())));
        runs.push(run);
    }
}

/// Whether any reply of the run asks for a tool, natively or as ReAct text.
fn has_tool_requests(tree: &SpanTree<'_>, run: &RequestSpans) -> bool {
    run.calls.iter().any(|at| {
        let output = &tree.nodes[*at].facts.output;
        output.iter().any(|message| {
            message.has_tool_calls() || !react::read_react_transcript(&message.joined_text()).steps.is_empty()
        })
    })
}

/// One defect for each span that records a model call.
pub(super) fn report_calls_outside_steps(tree: &SpanTree<'_>, at: usize, why: &str) -> Vec<ExtractionDefect> {
    let node = &tree.nodes[at];
    let detail = format!("{}: {why}", cut_name(&node.span.name));
    let kind = DefectKind::ModelCallOutsideSteps;
    node.span_ids().map(|id| ExtractionDefect::new(kind, detail.as_str(), Some(id))).collect()
}
