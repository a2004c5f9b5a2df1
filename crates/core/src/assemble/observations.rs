//! Joins tool spans and tool messages to the calls they answer.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::dialect::{ToolFacts, unwrap_result};
use crate::message::{Message, Role};
use crate::react;
use crate::trajectory::{Defect, DefectKind};

use super::runs::Run;
use super::steps::{Ask, CodeReply, read_arguments};
use super::tools;
use super::tree::Tree;

/// Reads the results that a request shows behind the user's query.
pub(super) fn see(input: &[Message<'_>], asks: &mut [Ask]) {
    let mut occurrences: Vec<(&str, usize)> = Vec::new();
    let mut unnamed = 0;
    // Text agents: the replies that were repeated so far, and the one that waits for its observation.
    let mut repeated = vec![false; asks.len()];
    let mut waiting: Option<usize> = None;
    for message in input {
        for result in message.tool_results() {
            let index = match result.id.as_deref() {
                Some(id) => nth_with_id(asks, id, &mut occurrences),
                None => {
                    unnamed += 1;
                    Some(unnamed - 1)
                }
            };
            if let Some(ask) = index.and_then(|index| asks.get_mut(index)) {
                let fits = result.name.as_deref().is_none_or(|name| name == ask.tool);
                // Every later request repeats it; once is enough.
                if (fits || result.id.is_some()) && !(ask.seen_by_id && ask.seen.is_some()) {
                    let shown = unwrap_result(&result.content);
                    ask.seen_is_error |= result.is_error || shown.is_error;
                    ask.seen = Some(without_label(&shown.text).to_owned());
                    ask.seen_by_id = result.id.is_some();
                }
            }
        }
        match message.role {
            Role::User => {
                let text = message.joined_text();
                if let Some(index) = waiting.take() {
                    // What is no observation is a framework's complaint about the reply.
                    asks[index].seen_is_error |= !react::starts_like_observation(&text);
                    asks[index].seen = Some(without_label(&text).to_owned());
                }
            }
            Role::Assistant => {
                let text = message.joined_text();
                waiting = repeated_ask(asks, &repeated, text.trim());
                if let Some(index) = waiting {
                    repeated[index] = true;
                    if let Some(observation) = glued_observation(&asks[index], &text) {
                        asks[index].seen = Some(observation);
                        waiting = None;
                    }
                }
            }
            _ => {}
        }
    }
}

/// The ask that a result's id means: ids may come again, in the same order as their calls.
fn nth_with_id<'m>(asks: &[Ask], id: &'m str, occurrences: &mut Vec<(&'m str, usize)>) -> Option<usize> {
    let nth = match occurrences.iter_mut().find(|(known, _)| *known == id) {
        Some((_, count)) => {
            *count += 1;
            *count
        }
        None => {
            occurrences.push((id, 0));
            0
        }
    };
    let mut same = asks.iter().enumerate().filter(|(_, ask)| ask.id.as_deref() == Some(id));
    same.nth(nth).map(|(index, _)| index)
}

/// Which text ask a message of the history repeats: to the letter, with its observation behind it, or rewritten by the
/// framework with the same thought and tool.
fn repeated_ask(asks: &[Ask], repeated: &[bool], text: &str) -> Option<usize> {
    let open = || asks.iter().enumerate().filter(|(index, ask)| !repeated[*index] && ask.reply.is_some());
    let literal = open().find(|(_, ask)| ask.reply.as_deref().is_some_and(|reply| text.starts_with(reply)));
    if let Some((index, _)) = literal {
        return Some(index);
    }
    open().next()?;
    let transcript = react::read(text);
    let step = transcript.steps.first()?;
    let same = |ask: &Ask| ask.tool == step.tool && (ask.thought.as_deref() == step.thought.as_deref());
    open().find(|(_, ask)| same(ask)).map(|(index, _)| index)
}

/// CrewAI repeats a reply with its observation behind it, in one message.
fn glued_observation(ask: &Ask, text: &str) -> Option<String> {
    let behind = text.trim_start().strip_prefix(ask.reply.as_deref()?)?;
    Some(behind.trim_start().strip_prefix("Observation:")?.trim().to_owned())
}

/// `Observation: text`, `Call id: x\nObservation:\ntext`: the text.
fn without_label(text: &str) -> &str {
    let trimmed = text.trim_start();
    match trimmed.strip_prefix("Observation:") {
        Some(rest) => rest.trim(),
        None => text,
    }
}

/// Joins the run's tool spans to the asks; spans that no ask explains become asks of their own.
pub(super) fn join(
    tree: &Tree<'_>,
    run: &Run,
    asks: &mut Vec<Ask>,
    code: &[CodeReply],
    defects: &mut Vec<Defect>,
) {
    see_in_prompts(tree, run, asks);
    let mut left = Vec::new();
    for &at in &run.tools {
        let tool = &tree.nodes[at].facts.tool;
        if tool.name.as_deref().is_some_and(tools::is_final_answer) {
            continue;
        }
        let by_id = tool
            .call_id
            .as_deref()
            .and_then(|id| asks.iter().position(|ask| ask.id.as_deref() == Some(id) && ask.runs.is_empty()));
        match by_id {
            Some(index) => asks[index].runs.push(at),
            None => left.push(at),
        }
    }
    left.retain(|&at| !join_by_name(tree, run, at, asks));
    left.retain(|&at| !join_repeat(tree, run, at, asks));
    left.retain(|&at| !join_odd_one(tree, run, at, asks));
    read_code(tree, run, asks, code, &mut left);
    for at in left {
        let node = &tree.nodes[at];
        let name = node.facts.tool.name.as_deref();
        match name.filter(|name| tools::can_be_called(name)) {
            Some(name) => insert_run(tree, run, asks, at, name),
            None => {
                let detail = format!("{}: answers no call of the model", node.span.name);
                defects.push(Defect::new(DefectKind::ToolRunOutsideSteps, detail, Some(node.span.span_id)));
            }
        }
    }
}

/// The first unanswered ask of the same tool, best with the same arguments.
fn join_by_name(tree: &Tree<'_>, run: &Run, at: usize, asks: &mut [Ask]) -> bool {
    let node = &tree.nodes[at];
    let Some(name) = node.facts.tool.name.as_deref() else { return false };
    let (arguments, raw, _) = read_arguments(node.facts.tool.arguments.as_ref());
    let open = |ask: &&mut Ask| ask.runs.is_empty() && ask.tool == name && began_before(tree, run, ask, at);
    let same = |ask: &&mut Ask| match (&ask.arguments, &arguments) {
        (Some(a), Some(b)) => a == b || only_value(a) == Some(b) || ask.raw == raw,
        (a, b) => a.is_none() && b.as_ref().is_none_or(is_empty),
    };
    let found = asks.iter_mut().filter(open).find(same);
    let found = match found {
        Some(ask) => Some(ask),
        None => asks.iter_mut().find(|ask| open(&ask)),
    };
    match found {
        Some(ask) => {
            ask.runs.push(at);
            true
        }
        None => false,
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
fn turn_of(tree: &Tree<'_>, run: &Run, at: usize) -> Option<usize> {
    let start = tree.nodes[at].span.start_ns;
    run.calls.iter().rposition(|call| tree.nodes[*call].span.start_ns <= start)
}

fn began_before(tree: &Tree<'_>, run: &Run, ask: &Ask, at: usize) -> bool {
    ask.call.is_none_or(|number| tree.nodes[run.calls[number]].span.start_ns <= tree.nodes[at].span.start_ns)
}

fn only_value(json: &Json) -> Option<&Json> {
    let object = json.as_object()?;
    if object.len() == 1 { object.values().next() } else { None }
}

fn is_empty(json: &Json) -> bool {
    json.as_object().is_some_and(serde_json::Map::is_empty) || json.as_str().is_some_and(str::is_empty)
}

/// A tool's span without an ask: the model's reply was not recorded, or the tool ran on its own.
fn insert_run(tree: &Tree<'_>, run: &Run, asks: &mut Vec<Ask>, at: usize, name: &str) {
    let turn = turn_of(tree, run, at);
    let start = tree.nodes[at].span.start_ns;
    let begins = |ask: &Ask| {
        let first = ask.runs.first().copied().or(ask.call.map(|number| run.calls[number]));
        first.map_or(0, |at| tree.nodes[at].span.start_ns)
    };
    let place = asks.iter().position(|ask| begins(ask) > start).unwrap_or(asks.len());
    asks.insert(
        place,
        Ask { tool: name.to_owned(), call: turn.filter(|_| false), runs: vec![at], ..Ask::default() },
    );
}

/// Code agents: the spans of the tools are the calls; a call in the code that has none failed before it ran.
fn read_code(tree: &Tree<'_>, run: &Run, asks: &mut Vec<Ask>, code: &[CodeReply], left: &mut Vec<usize>) {
    for reply in code {
        let mut parallel = false;
        let mine: Vec<usize> =
            left.iter().copied().filter(|at| turn_of(tree, run, *at) == Some(reply.call)).collect();
        left.retain(|at| !mine.contains(at));
        let calls = react::code_calls(&reply.code);
        let mut ran = 0;
        for at in mine {
            let tool = &tree.nodes[at].facts.tool;
            let Some(name) = tool.name.as_deref() else { continue };
            let (arguments, raw, _) = read_arguments(tool.arguments.as_ref());
            asks.push(Ask {
                thought: reply.thought.clone(),
                tool: name.to_owned(),
                arguments,
                raw,
                parallel,
                call: Some(reply.call),
                runs: vec![at],
                ..Ask::default()
            });
            parallel = true;
            ran += 1;
        }
        if ran > 0 {
            continue;
        }
        // Nothing ran: the code failed before its first call, or the run was over.
        let failure = failure_after(tree, run, reply.call);
        let answers = calls.iter().any(|call| tools::is_final_answer(call.name));
        let over = reply.call + 1 == run.calls.len() && !answers;
        if let Some(call) = calls.iter().find(|call| !tools::is_final_answer(call.name))
            && (failure.is_some() || over)
        {
            asks.push(Ask {
                thought: reply.thought.clone(),
                tool: call.name.to_owned(),
                arguments: call.arguments.clone(),
                raw: Some(call.raw.to_owned()),
                call: Some(reply.call),
                seen_is_error: failure.is_some(),
                seen: failure,
                ..Ask::default()
            });
        }
    }
    asks.sort_by_key(|ask| ask.call.unwrap_or(usize::MAX));
}

/// What the next request says went wrong with the code of a reply.
fn failure_after(tree: &Tree<'_>, run: &Run, call: usize) -> Option<String> {
    let next = run.calls.get(call + 1)?;
    let last = tree.nodes[*next].facts.input.last()?;
    let text = match last.tool_results().next() {
        Some(result) => Cow::Borrowed(result.content.as_ref()),
        None => last.joined_text(),
    };
    (text.starts_with("Error") || text.contains("\nError:")).then(|| text.trim().to_owned())
}

/// Agents that write the whole run into one prompt: the observation stands behind the repeated reply.
fn see_in_prompts(tree: &Tree<'_>, run: &Run, asks: &mut [Ask]) {
    for ask in asks.iter_mut().filter(|ask| ask.seen.is_none()) {
        let (Some(reply), Some(number)) = (&ask.reply, ask.call) else { continue };
        let Some(next) = run.calls.get(number + 1) else { continue };
        let input = &tree.nodes[*next].facts.input;
        let Some(prompt) =
            input.iter().rev().find(|message| message.role == Role::User).map(Message::joined_text)
        else {
            continue;
        };
        let Some(place) = prompt.rfind(reply.as_str()) else { continue };
        let behind = prompt[place + reply.len()..].trim_start();
        if let Some(observation) = behind.strip_prefix("Observation:") {
            let observation = observation.trim();
            let observation = observation.strip_suffix("Thought:").unwrap_or(observation);
            ask.seen = Some(observation.trim().to_owned());
        }
    }
}

/// What the step's observation is. A tool message that carries the call's id shows it exactly; a tool's span may have
/// wrapped it; what a text agent's prompt shows has guessed borders.
pub(super) fn choose(ask: &Ask, tool: Option<&ToolFacts<'_>>) -> (Option<String>, bool) {
    let recorded = tool.and_then(|tool| tool.result.as_deref());
    let shown = ask.seen.as_deref();
    let observation = match (shown, recorded) {
        // How JavaScript prints the exception that the span has.
        (Some(shown), Some(recorded)) if shown.strip_prefix("Error: ") == Some(recorded) => Some(recorded),
        (Some(shown), _) if ask.seen_by_id && !shown.is_empty() => Some(shown),
        _ => recorded.or(shown),
    };
    let mut is_error = ask.seen_is_error || tool.is_some_and(|tool| tool.is_error);
    if tool.is_none() {
        // Without a span of the tool only the text can tell.
        is_error |= observation.is_some_and(|text| text.starts_with("Error:") || text.starts_with("Error "));
    }
    (observation.map(str::to_owned), is_error)
}
