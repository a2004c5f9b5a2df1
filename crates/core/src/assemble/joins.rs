//! Joins the spans of tools to the calls they answer: by the call's id, by name and arguments, by place.
//!
//! Every step is near linear in spans and calls: what is looked for is indexed, never searched from the start.

use crate::assemble::agent_run::turn_of;
use std::collections::{HashMap, VecDeque};

use serde_json::Value as Json;

use crate::short_text::cut_name;
use crate::trajectory::{DefectKind, ExtractionDefect};

use super::code;
use super::tools;
use super::tree::SpanTree;
use crate::assemble::agent_run::RequestSpans;
use crate::assemble::ask::{RequestedCall, read_arguments};
use crate::assemble::code_reply::CodeReply;

/// Replies of plain words, by the number of their model call.
pub(super) type SpokenReplies = HashMap<usize, String>;

/// Joins the run's tool spans to the asks; spans that no ask explains become asks of their own.
pub(super) fn join(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    asks: &mut Vec<RequestedCall>,
    code: &[CodeReply],
    spoken: &SpokenReplies,
    defects: &mut Vec<ExtractionDefect>,
) {
    let mut left = join_by_id(tree, run, asks);
    let mut open = OpenAsks::new(asks);
    left.retain(|&at| !open.join(tree, run, at, asks));
    let answered = AnsweredAsks::new(asks);
    left.retain(|&at| !answered.join_retry(tree, run, at, asks));
    let mut open_turns = OpenTurns::new(asks);
    left.retain(|&at| !open_turns.join_odd_one(tree, run, at, asks));
    code::read(tree, run, asks, code, &mut left);
    let (named, unnamed): (Vec<usize>, Vec<usize>) = left
        .into_iter()
        .partition(|at| tree.nodes[*at].facts.tool.name.as_deref().is_some_and(tools::can_be_called));
    insert_runs(tree, run, asks, &named, spoken);
    for at in unnamed {
        let node = &tree.nodes[at];
        let detail = format!("{}: answers no call of the model", cut_name(&node.span.name));
        let told = node
            .span_ids()
            .map(|id| ExtractionDefect::new(DefectKind::ToolRunOutsideSteps, detail.as_str(), Some(id)));
        defects.extend(told);
    }
}

/// Joins spans that carry the call's id; returns the others.
fn join_by_id(tree: &SpanTree<'_>, run: &RequestSpans, asks: &mut [RequestedCall]) -> Vec<usize> {
    // Ids may come again: the first open ask takes the first span.
    let mut by_id: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, ask) in asks.iter().enumerate().rev() {
        if let Some(id) = &ask.id {
            by_id.entry(id.clone()).or_default().push(index);
        }
    }
    let mut left = Vec::new();
    for &at in &run.tools {
        let tool = &tree.nodes[at].facts.tool;
        if tool.name.as_deref().is_some_and(tools::is_final_answer) {
            continue;
        }
        let ask = tool.call_id.as_deref().and_then(|id| by_id.get_mut(id)?.pop());
        match ask {
            Some(index) => asks[index].runs.push(at),
            None => left.push(at),
        }
    }
    left
}

/// Asks that no span has answered yet, by the name of their tool, the first one last.
struct OpenAsks {
    by_tool: HashMap<String, Vec<usize>>,
}

/// How many asks of one tool are compared by their arguments.
const MAX_COMPARED: usize = 64;

impl OpenAsks {
    fn new(asks: &[RequestedCall]) -> OpenAsks {
        let mut by_tool: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, ask) in asks.iter().enumerate().rev().filter(|(_, ask)| ask.runs.is_empty()) {
            by_tool.entry(ask.tool.clone()).or_default().push(index);
        }
        OpenAsks { by_tool }
    }

    /// Gives a span to the first open ask of the same tool, best to one with the same arguments.
    fn join(
        &mut self,
        tree: &SpanTree<'_>,
        run: &RequestSpans,
        at: usize,
        asks: &mut [RequestedCall],
    ) -> bool {
        let tool = &tree.nodes[at].facts.tool;
        let open = tool.name.as_deref().and_then(|name| self.by_tool.get_mut(name));
        let Some(open) = open.filter(|open| !open.is_empty()) else { return false };
        let (arguments, raw, _) = read_arguments(tool.arguments.as_ref());
        let same = |ask: &RequestedCall| match (&ask.arguments, &arguments) {
            (Some(a), Some(b)) => a == b || only_value(a) == Some(b) || ask.raw == raw,
            (a, b) => a.is_none() && b.as_ref().is_none_or(is_empty),
        };
        let near = open.len().saturating_sub(MAX_COMPARED);
        let in_time = |index: usize| began_before(tree, run, &asks[index], at);
        // A call that is known by another id is not this one, unless the arguments say so.
        let other_id =
            |index: usize| matches!((&asks[index].id, &tool.call_id), (Some(a), Some(b)) if a != b);
        let places = || (near..open.len()).rev();
        let place = places()
            .find(|place| in_time(open[*place]) && !other_id(open[*place]) && same(&asks[open[*place]]));
        let place = place.or_else(|| places().find(|place| in_time(open[*place]) && !other_id(open[*place])));
        // Clocks of two services may differ; ids of two layers may, too.
        let place = place.or_else(|| places().find(|place| arguments.is_some() && same(&asks[open[*place]])));
        match place {
            Some(place) => {
                asks[open.remove(place)].runs.push(at);
                true
            }
            None => false,
        }
    }
}

/// Asks that a span answers already, by their model call and tool, in order.
struct AnsweredAsks {
    by_turn: HashMap<(usize, String), Vec<usize>>,
}

impl AnsweredAsks {
    fn new(asks: &[RequestedCall]) -> AnsweredAsks {
        let mut by_turn: HashMap<(usize, String), Vec<usize>> = HashMap::new();
        for (index, ask) in asks.iter().enumerate().filter(|(_, ask)| !ask.runs.is_empty()) {
            if let Some(turn) = ask.call {
                by_turn.entry((turn, ask.tool.clone())).or_default().push(index);
            }
        }
        AnsweredAsks { by_turn }
    }

    /// A framework that retries a failing tool: the same call once more before the model speaks.
    fn join_retry(
        &self,
        tree: &SpanTree<'_>,
        run: &RequestSpans,
        at: usize,
        asks: &mut [RequestedCall],
    ) -> bool {
        let tool = &tree.nodes[at].facts.tool;
        let key = turn_of(tree, run, at).zip(tool.name.as_deref().map(str::to_owned));
        let Some(answered) = key.and_then(|key| self.by_turn.get(&key)) else { return false };
        let (arguments, _, _) = read_arguments(tool.arguments.as_ref());
        let mut latest = answered.iter().rev().take(MAX_COMPARED);
        match latest.find(|index| asks[**index].arguments == arguments) {
            Some(&index) => {
                asks[index].runs.push(at);
                true
            }
            None => false,
        }
    }
}

/// Asks that no span answers, by their model call, in order.
struct OpenTurns {
    by_turn: HashMap<Option<usize>, VecDeque<usize>>,
}

impl OpenTurns {
    fn new(asks: &[RequestedCall]) -> OpenTurns {
        let mut by_turn: HashMap<Option<usize>, VecDeque<usize>> = HashMap::new();
        for (index, ask) in asks.iter().enumerate().filter(|(_, ask)| ask.runs.is_empty()) {
            by_turn.entry(ask.call).or_default().push_back(index);
        }
        OpenTurns { by_turn }
    }

    /// A span under another name, or none, for the only call that is still open: unknown tools, hand-overs.
    fn join_odd_one(
        &mut self,
        tree: &SpanTree<'_>,
        run: &RequestSpans,
        at: usize,
        asks: &mut [RequestedCall],
    ) -> bool {
        let Some(open) = self.by_turn.get_mut(&turn_of(tree, run, at)) else { return false };
        let Some(&ask) = open.front().filter(|_| open.len() == 1) else { return false };
        let tool = &tree.nodes[at].facts.tool;
        let requested = match read_arguments(tool.arguments.as_ref()).0 {
            Some(Json::Object(object)) => {
                object.get("requested_tool_name").and_then(Json::as_str).map(str::to_owned)
            }
            _ => None,
        };
        let is_odd =
            tool.name.as_deref().is_none_or(|name| !tools::can_be_called(name)) || requested.is_some();
        if !is_odd || requested.is_some_and(|name| name != asks[ask].tool) {
            return false;
        }
        asks[ask].runs.push(at);
        open.clear();
        true
    }
}

fn began_before(tree: &SpanTree<'_>, run: &RequestSpans, ask: &RequestedCall, at: usize) -> bool {
    // What only the history shows was asked before that request was made.
    ask.from_history
        || ask
            .call
            .is_none_or(|number| tree.nodes[run.calls[number]].span.start_ns <= tree.nodes[at].span.start_ns)
}

fn only_value(json: &Json) -> Option<&Json> {
    let object = json.as_object()?;
    if object.len() == 1 { object.values().next() } else { None }
}

fn is_empty(json: &Json) -> bool {
    json.as_object().is_some_and(serde_json::Map::is_empty) || json.as_str().is_some_and(str::is_empty)
}

/// Tool spans without an ask: the call was not recorded in the model's reply, or the tool ran on its own. Where a reply
/// of plain words came just before, those were the thought. `spans` are in order of time; each goes before the first ask
/// that began later.
fn insert_runs(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    asks: &mut Vec<RequestedCall>,
    spans: &[usize],
    spoken: &SpokenReplies,
) {
    if spans.is_empty() {
        return;
    }
    let begins = |ask: &RequestedCall| {
        let first = ask.runs.first().copied().or(ask.call.map(|number| run.calls[number]));
        first.map_or(0, |at| tree.nodes[at].span.start_ns)
    };
    let mut merged: Vec<RequestedCall> = Vec::with_capacity(asks.len() + spans.len());
    let mut asked = asks.drain(..).peekable();
    let mut shown: Option<usize> = None;
    for &at in spans {
        let start = tree.nodes[at].span.start_ns;
        while let Some(ask) = asked.next_if(|ask| begins(ask) <= start) {
            merged.push(ask);
        }
        let turn = turn_of(tree, run, at).filter(|turn| spoken.contains_key(turn));
        let thought = turn.and_then(|turn| {
            let text = &spoken[&turn];
            // The words of a reply are copied once; what else ran in its turn shares them while there is room.
            if shown.replace(turn) == Some(turn) { tree.budget.share_text(text) } else { Some(text.clone()) }
        });
        merged.push(RequestedCall {
            tool: tree.nodes[at].facts.tool.name.as_deref().unwrap_or_default().to_owned(),
            thought,
            call: turn,
            parallel: turn.is_some() && merged.last().is_some_and(|before| before.call == turn),
            runs: vec![at],
            ..RequestedCall::default()
        });
    }
    merged.extend(asked);
    *asks = merged;
}
