//! Joins the spans of tools to the calls they answer: by the call's id, by name and arguments, by place.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::trajectory::{Defect, DefectKind};

use super::code::{self, CodeReply};
use super::runs::Run;
use super::steps::{Ask, read_arguments};
use super::tools;
use super::tree::Tree;

/// Replies of plain words, by the number of their model call.
pub(super) type SpokenReplies = HashMap<usize, String>;

/// Joins the run's tool spans to the asks; spans that no ask explains become asks of their own.
pub(super) fn join(
    tree: &Tree<'_>,
    run: &Run,
    asks: &mut Vec<Ask>,
    code: &[CodeReply],
    spoken: &SpokenReplies,
    defects: &mut Vec<Defect>,
) {
    let mut left = join_by_id(tree, run, asks);
    let mut open = OpenAsks::of(asks);
    left.retain(|&at| !open.join(tree, run, at, asks));
    left.retain(|&at| !join_repeat(tree, run, at, asks));
    left.retain(|&at| !join_odd_one(tree, run, at, asks));
    code::read(tree, run, asks, code, &mut left);
    for at in left {
        let node = &tree.nodes[at];
        let name = node.facts.tool.name.as_deref();
        match name.filter(|name| tools::can_be_called(name)) {
            Some(name) => insert_run(tree, run, asks, at, name, spoken),
            None => {
                let detail = format!("{}: answers no call of the model", node.span.name);
                let told = node
                    .span_ids()
                    .map(|id| Defect::new(DefectKind::ToolRunOutsideSteps, detail.as_str(), Some(id)));
                defects.extend(told);
            }
        }
    }
}

/// Joins spans that carry the call's id; returns the others.
fn join_by_id(tree: &Tree<'_>, run: &Run, asks: &mut [Ask]) -> Vec<usize> {
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

/// How many open asks of one tool are compared by their arguments.
const MAX_COMPARED: usize = 64;

impl OpenAsks {
    fn of(asks: &[Ask]) -> OpenAsks {
        let mut by_tool: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, ask) in asks.iter().enumerate().rev().filter(|(_, ask)| ask.runs.is_empty()) {
            by_tool.entry(ask.tool.clone()).or_default().push(index);
        }
        OpenAsks { by_tool }
    }

    /// Gives a span to the first open ask of the same tool, best to one with the same arguments.
    fn join(&mut self, tree: &Tree<'_>, run: &Run, at: usize, asks: &mut [Ask]) -> bool {
        let tool = &tree.nodes[at].facts.tool;
        let Some(open) = tool.name.as_deref().and_then(|name| self.by_tool.get_mut(name)) else {
            return false;
        };
        let (arguments, raw, _) = read_arguments(tool.arguments.as_ref());
        let same = |ask: &Ask| match (&ask.arguments, &arguments) {
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

/// A framework that tries a failing tool again: the same call once more before the model speaks.
fn join_repeat(tree: &Tree<'_>, run: &Run, at: usize, asks: &mut [Ask]) -> bool {
    let node = &tree.nodes[at];
    let Some(name) = node.facts.tool.name.as_deref() else { return false };
    let (arguments, _, _) = read_arguments(node.facts.tool.arguments.as_ref());
    let Some(turn) = turn_of(tree, run, at) else { return false };
    let ask = asks.iter_mut().rev().find(|ask| {
        ask.call == Some(turn) && ask.tool == name && ask.arguments == arguments && !ask.runs.is_empty()
    });
    match ask {
        Some(ask) => {
            ask.runs.push(at);
            true
        }
        None => false,
    }
}

/// A span under another name, or none, for the only call that is still open: unknown tools, hand-overs.
fn join_odd_one(tree: &Tree<'_>, run: &Run, at: usize, asks: &mut [Ask]) -> bool {
    let node = &tree.nodes[at];
    let requested = match &node.facts.tool.arguments {
        Some(arguments) => match read_arguments(Some(arguments)).0 {
            Some(Json::Object(object)) => {
                object.get("requested_tool_name").and_then(Json::as_str).map(str::to_owned)
            }
            _ => None,
        },
        None => None,
    };
    let odd =
        node.facts.tool.name.as_deref().is_none_or(|name| !tools::can_be_called(name)) || requested.is_some();
    let turn = turn_of(tree, run, at);
    let mut open = asks.iter_mut().filter(|ask| ask.runs.is_empty() && ask.call == turn);
    let Some(ask) = open.next() else { return false };
    if open.next().is_some() || !odd || requested.is_some_and(|name| name != ask.tool) {
        return false;
    }
    ask.runs.push(at);
    true
}

/// The number of the model call that was the last to begin before a tool's span.
pub(super) fn turn_of(tree: &Tree<'_>, run: &Run, at: usize) -> Option<usize> {
    let start = tree.nodes[at].span.start_ns;
    // Calls are in order of time.
    run.calls.partition_point(|call| tree.nodes[*call].span.start_ns <= start).checked_sub(1)
}

fn began_before(tree: &Tree<'_>, run: &Run, ask: &Ask, at: usize) -> bool {
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

/// A tool's span without an ask: the call was not recorded in the model's reply, or the tool ran on its own. Where a
/// reply of plain words came just before, those were the thought.
fn insert_run(
    tree: &Tree<'_>,
    run: &Run,
    asks: &mut Vec<Ask>,
    at: usize,
    name: &str,
    spoken: &SpokenReplies,
) {
    let turn = turn_of(tree, run, at).filter(|turn| spoken.contains_key(turn));
    let start = tree.nodes[at].span.start_ns;
    let begins = |ask: &Ask| {
        let first = ask.runs.first().copied().or(ask.call.map(|number| run.calls[number]));
        first.map_or(0, |at| tree.nodes[at].span.start_ns)
    };
    let place = asks.iter().position(|ask| begins(ask) > start).unwrap_or(asks.len());
    let parallel = turn.is_some() && place.checked_sub(1).is_some_and(|before| asks[before].call == turn);
    let thought = turn.and_then(|turn| spoken.get(&turn).cloned());
    asks.insert(
        place,
        Ask { tool: name.to_owned(), thought, call: turn, parallel, runs: vec![at], ..Ask::default() },
    );
}
