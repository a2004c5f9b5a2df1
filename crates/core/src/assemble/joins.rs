//! Joins spans of tools to the calls that they answer: by call id, by name and arguments, by position.
//!
//! Every step is near linear in spans and calls: candidates are looked up in an index, and comparisons are bounded.

use crate::assemble::agent_run::{find_reply_before, find_requesting_call};
use std::collections::{HashMap, VecDeque};

use serde_json::Value as Json;

use crate::short_text::cut_name;
use crate::trajectory::{DefectKind, ExtractionDefect};

use super::code;
use super::tools;
use super::tree::SpanTree;
use crate::assemble::agent_run::RequestSpans;
use crate::assemble::code_reply::CodeReply;
use crate::assemble::requested_call::{RequestedCall, read_arguments};

/// Replies in plain words, by the index of their model call.
pub(super) type TextReplies = HashMap<usize, String>;

/// Joins the tool spans of a run to the requested calls, the most certain evidence first. Spans that no call explains
/// become calls of their own, or defects if they have no usable name.
pub(super) fn join_tool_spans(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    requested_calls: &mut Vec<RequestedCall>,
    code: &[CodeReply],
    spoken: &TextReplies,
    defects: &mut Vec<ExtractionDefect>,
) {
    // Five passes, the most certain evidence first; each takes only what the ones before left.
    let mut left = join_by_id(tree, run, requested_calls);
    let mut open = UnansweredCalls::new(requested_calls);
    left.retain(|&at| !open.join_tool_span(tree, run, at, requested_calls));
    let answered = AnsweredCalls::new(requested_calls);
    left.retain(|&at| !answered.join_retry(tree, run, at, requested_calls));
    let mut open_turns = OpenTurns::new(requested_calls);
    left.retain(|&at| !open_turns.join_only_open_call(tree, run, at, requested_calls));
    code::extract_code_calls(tree, run, requested_calls, code, &mut left);
    let (named, unnamed): (Vec<usize>, Vec<usize>) =
        left.into_iter().partition(|at| tree.nodes[*at].facts.tool.name.as_deref().is_some_and(tools::can_be_called));
    insert_unrequested_calls(tree, run, requested_calls, &named, spoken);
    for at in unnamed {
        let node = &tree.nodes[at];
        let detail = format!("{}: answers no call of the model", cut_name(&node.span.name));
        let told =
            node.span_ids().map(|id| ExtractionDefect::new(DefectKind::ToolRunOutsideSteps, detail.as_str(), Some(id)));
        defects.extend(told);
    }
}

/// Joins spans that carry the id of a call; returns the others.
fn join_by_id(tree: &SpanTree<'_>, run: &RequestSpans, requested_calls: &mut [RequestedCall]) -> Vec<usize> {
    // Ids may repeat: the first open call takes the first span.
    let mut by_id: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, requested_call) in requested_calls.iter().enumerate().rev() {
        for id in [&requested_call.id, &requested_call.other_id].into_iter().flatten() {
            by_id.entry(id.clone()).or_default().push(index);
        }
    }
    let mut left = Vec::new();
    for &at in &run.tools {
        let tool = &tree.nodes[at].facts.tool;
        if tool.name.as_deref().is_some_and(tools::is_final_answer) {
            continue;
        }
        let requested_call = tool.call_id.as_deref().and_then(|id| by_id.get_mut(id)?.pop());
        match requested_call {
            Some(index) => requested_calls[index].runs.push(at),
            None => left.push(at),
        }
    }
    left
}

/// Calls that no span has answered yet, by the name of their tool. The first call is last in its list, so that it can
/// be popped.
struct UnansweredCalls {
    by_tool: HashMap<String, Vec<usize>>,
}

/// Maximum number of calls of one tool whose arguments are compared with a span. More open calls do not occur in
/// practice.
const MAX_COMPARED: usize = 64;

impl UnansweredCalls {
    /// Indexes the calls without a span. Reversed, so that the first call is at the end of its list.
    fn new(requested_calls: &[RequestedCall]) -> UnansweredCalls {
        let mut by_tool: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, requested_call) in
            requested_calls.iter().enumerate().rev().filter(|(_, requested_call)| requested_call.runs.is_empty())
        {
            by_tool.entry(requested_call.tool.clone()).or_default().push(index);
        }
        UnansweredCalls { by_tool }
    }

    /// Joins a span to an open call of the same tool, preferably to one with the same arguments.
    fn join_tool_span(
        &mut self,
        tree: &SpanTree<'_>,
        run: &RequestSpans,
        at: usize,
        requested_calls: &mut [RequestedCall],
    ) -> bool {
        let tool = &tree.nodes[at].facts.tool;
        let open = tool.name.as_deref().and_then(|name| self.by_tool.get_mut(name));
        let Some(open) = open.filter(|open| !open.is_empty()) else { return false };
        let (arguments, raw, _) = read_arguments(tool.arguments.as_ref());
        let same = |requested_call: &RequestedCall| match (&requested_call.arguments, &arguments) {
            (Some(a), Some(b)) => a == b || only_value(a) == Some(b) || requested_call.raw == raw,
            (a, b) => a.is_none() && b.as_ref().is_none_or(is_empty),
        };
        let near = open.len().saturating_sub(MAX_COMPARED);
        let in_time = |index: usize| began_before(tree, run, &requested_calls[index], at);
        // A call with another id is not the right one, unless the arguments agree.
        let other_id =
            |index: usize| matches!((&requested_calls[index].id, &tool.call_id), (Some(a), Some(b)) if a != b);
        let places = || (near..open.len()).rev();
        let place = places()
            .find(|place| in_time(open[*place]) && !other_id(open[*place]) && same(&requested_calls[open[*place]]));
        let place = place.or_else(|| places().find(|place| in_time(open[*place]) && !other_id(open[*place])));
        // Clocks of two services may differ, and so may the ids of two layers.
        let place =
            place.or_else(|| places().find(|place| arguments.is_some() && same(&requested_calls[open[*place]])));
        match place {
            Some(place) => {
                requested_calls[open.remove(place)].runs.push(at);
                true
            }
            None => false,
        }
    }
}

/// Calls that a span answers already, by model call and tool, in order.
struct AnsweredCalls {
    by_turn: HashMap<(usize, String), Vec<usize>>,
}

impl AnsweredCalls {
    /// Indexes the calls that have a span.
    fn new(requested_calls: &[RequestedCall]) -> AnsweredCalls {
        let mut by_turn: HashMap<(usize, String), Vec<usize>> = HashMap::new();
        for (index, requested_call) in
            requested_calls.iter().enumerate().filter(|(_, requested_call)| !requested_call.runs.is_empty())
        {
            if let Some(turn) = requested_call.call {
                by_turn.entry((turn, requested_call.tool.clone())).or_default().push(index);
            }
        }
        AnsweredCalls { by_turn }
    }

    /// Joins the span of a retry: the framework repeated a failed tool with the same arguments before the model spoke
    /// again.
    fn join_retry(
        &self,
        tree: &SpanTree<'_>,
        run: &RequestSpans,
        at: usize,
        requested_calls: &mut [RequestedCall],
    ) -> bool {
        let tool = &tree.nodes[at].facts.tool;
        let key = find_requesting_call(tree, run, at).zip(tool.name.as_deref().map(str::to_owned));
        let Some(answered) = key.and_then(|key| self.by_turn.get(&key)) else { return false };
        let (arguments, _, _) = read_arguments(tool.arguments.as_ref());
        let mut latest = answered.iter().rev().take(MAX_COMPARED);
        match latest.find(|index| requested_calls[**index].arguments == arguments) {
            Some(&index) => {
                requested_calls[index].runs.push(at);
                true
            }
            None => false,
        }
    }
}

/// Calls that no span answers, by model call, in order.
struct OpenTurns {
    by_turn: HashMap<Option<usize>, VecDeque<usize>>,
}

impl OpenTurns {
    /// Indexes the calls that are still without a span after the earlier passes.
    fn new(requested_calls: &[RequestedCall]) -> OpenTurns {
        let mut by_turn: HashMap<Option<usize>, VecDeque<usize>> = HashMap::new();
        for (index, requested_call) in
            requested_calls.iter().enumerate().filter(|(_, requested_call)| requested_call.runs.is_empty())
        {
            by_turn.entry(requested_call.call).or_default().push_back(index);
        }
        OpenTurns { by_turn }
    }

    /// Joins a span with another name, or without one, to the only call that is still open in its turn: unknown tools
    /// and hand-overs.
    fn join_only_open_call(
        &mut self,
        tree: &SpanTree<'_>,
        run: &RequestSpans,
        at: usize,
        requested_calls: &mut [RequestedCall],
    ) -> bool {
        let Some(open) = self.by_turn.get_mut(&find_requesting_call(tree, run, at)) else { return false };
        let Some(&requested_call) = open.front().filter(|_| open.len() == 1) else { return false };
        let tool = &tree.nodes[at].facts.tool;
        let requested = match read_arguments(tool.arguments.as_ref()).0 {
            Some(Json::Object(object)) => object.get("requested_tool_name").and_then(Json::as_str).map(str::to_owned),
            _ => None,
        };
        let is_odd = tool.name.as_deref().is_none_or(|name| !tools::can_be_called(name)) || requested.is_some();
        if !is_odd || requested.is_some_and(|name| name != requested_calls[requested_call].tool) {
            return false;
        }
        requested_calls[requested_call].runs.push(at);
        open.clear();
        true
    }
}

/// Whether a call was made before a tool's span began. A tool cannot run before the model asks for it.
fn began_before(tree: &SpanTree<'_>, run: &RequestSpans, requested_call: &RequestedCall, at: usize) -> bool {
    // A call that only the history shows was made before the request that shows it.
    requested_call.from_history
        || requested_call
            .call
            .is_none_or(|number| tree.nodes[run.calls[number]].span.start_ns <= tree.nodes[at].span.start_ns)
}

/// The value of an object with one field: some tools take a plain text that the model writes as an object.
fn only_value(json: &Json) -> Option<&Json> {
    let object = json.as_object()?;
    if object.len() == 1 { object.values().next() } else { None }
}

/// Arguments that say nothing, however they are written.
fn is_empty(json: &Json) -> bool {
    json.as_object().is_some_and(serde_json::Map::is_empty) || json.as_str().is_some_and(str::is_empty)
}

/// Adds calls for tool spans without a requested call: the call was not recorded in the reply, or the tool ran on its
/// own. If a reply in plain words came just before, it is the thought. `spans` are in order of time; each is inserted
/// before the first call that began later.
fn insert_unrequested_calls(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    requested_calls: &mut Vec<RequestedCall>,
    spans: &[usize],
    spoken: &TextReplies,
) {
    if spans.is_empty() {
        return;
    }
    let begins = |requested_call: &RequestedCall| {
        let first = requested_call.runs.first().copied().or(requested_call.call.map(|number| run.calls[number]));
        first.map_or(0, |at| tree.nodes[at].span.start_ns)
    };
    let mut merged: Vec<RequestedCall> = Vec::with_capacity(requested_calls.len() + spans.len());
    let mut asked = requested_calls.drain(..).peekable();
    let mut shown: Option<usize> = None;
    for &at in spans {
        let start = tree.nodes[at].span.start_ns;
        while let Some(requested_call) = asked.next_if(|requested_call| begins(requested_call) <= start) {
            merged.push(requested_call);
        }
        let turn = find_reply_before(tree, run, at).filter(|turn| spoken.contains_key(turn));
        let thought = turn.and_then(|turn| {
            let text = &spoken[&turn];
            // The first call of a turn gets a copy of the words; further ones share them within the budget.
            if shown.replace(turn) == Some(turn) { tree.budget.share_text(text) } else { Some(text.clone()) }
        });
        merged.push(RequestedCall {
            tool: tree.nodes[at].facts.tool.name.as_deref().unwrap_or_default().to_owned(),
            thought: thought.or_else(|| tree.budget.share_text(tree.nodes[at].facts.tool.thought.as_deref()?)),
            call: turn,
            parallel: turn.is_some() && merged.last().is_some_and(|before| before.call == turn),
            runs: vec![at],
            ..RequestedCall::default()
        });
    }
    merged.extend(asked);
    *requested_calls = merged;
}
