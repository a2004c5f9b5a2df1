//! Agents that act by writing code. Spans of the tools that the code ran are its calls. A call without a span failed
//! before it ran. Code that calls no tool is a step of the interpreter.

use crate::assemble::code_reply::CodeReply;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use serde_json::json;

use crate::message::{ChatMessage, MessageRole};
use crate::react::{self, CodeCall};

use super::observations::without_label;
use super::tools;
use super::tree::SpanTree;
use crate::assemble::agent_run::RequestSpans;
use crate::assemble::agent_run::find_requesting_call;
use crate::assemble::requested_call::{RequestedCall, read_arguments};

/// Name of the tool that runs the code of an agent, as smolagents calls it.
const INTERPRETER: &str = "python_interpreter";

/// Maximum number of calls in one piece of code that are compared with the functions that the prompt declares.
const MAX_CODE_CALLS: usize = 256;

/// Turns replies that are code into requested calls, and takes the tool spans that belong to them out of `left`.
pub(super) fn extract_code_calls(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    requested_calls: &mut Vec<RequestedCall>,
    code: &[CodeReply],
    left: &mut Vec<usize>,
) {
    let calls: HashSet<usize> = code.iter().map(|reply| reply.call).collect();
    let mut by_call: HashMap<usize, Vec<usize>> = HashMap::new();
    left.retain(|&at| {
        let is_named = tree.nodes[at].facts.tool.name.is_some();
        let call = find_requesting_call(tree, run, at).filter(|call| is_named && calls.contains(call));
        call.is_none_or(|call| {
            by_call.entry(call).or_default().push(at);
            false
        })
    });
    // Parsed at most once, and only if a reply needs it.
    let declared = OnceCell::new();
    let is_declared = |call: &CodeCall<'_>| {
        declared.get_or_init(|| parse_declared_functions(&system_prompt(tree, run))).contains(call.name)
    };
    for reply in code {
        let mine = by_call.remove(&reply.call).unwrap_or_default();
        // The first call gets a copy of the thought; further calls of the same code share it within the budget.
        let requested_call =
            || RequestedCall { thought: reply.thought.clone(), call: Some(reply.call), ..RequestedCall::default() };
        let next_requested_call = || RequestedCall {
            thought: reply.thought.as_deref().and_then(|thought| tree.budget.share_text(thought)),
            call: Some(reply.call),
            ..RequestedCall::default()
        };
        for (index, at) in mine.iter().enumerate() {
            let tool = &tree.nodes[*at].facts.tool;
            let Some(name) = tool.name.as_deref() else { continue };
            let (arguments, raw, _) = read_arguments(tool.arguments.as_ref());
            requested_calls.push(RequestedCall {
                tool: name.to_owned(),
                arguments: tree.budget.keep_arguments(arguments),
                raw,
                parallel: index > 0,
                runs: vec![*at],
                ..if index == 0 { requested_call() } else { next_requested_call() }
            });
        }
        if mine.is_empty() {
            requested_calls.extend(step_without_tool_span(tree, run, reply, &is_declared, requested_call));
        }
    }
    requested_calls.sort_by_key(|requested_call| requested_call.call.unwrap_or(usize::MAX));
}

/// Returns the step of a reply whose code has no tool span; `None` if it only gives the answer.
fn step_without_tool_span(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    reply: &CodeReply,
    is_declared: &dyn Fn(&CodeCall<'_>) -> bool,
    requested_call: impl Fn() -> RequestedCall,
) -> Option<RequestedCall> {
    let mut calls = react::find_code_calls(&reply.code);
    calls.truncate(MAX_CODE_CALLS);
    let seen = find_observation_after(tree, run, reply.call);
    // smolagents reports exceptions of the interpreter in this form.
    let failure = seen.as_deref().is_some_and(|text| text.starts_with("Error") || text.contains("\nError:"));
    let answers = calls.iter().any(|call| tools::is_final_answer(call.name));
    // Without a later request, nothing shows whether the code ran.
    let over = reply.call + 1 == run.calls.len();
    let tool = calls.iter().filter(|call| !tools::is_final_answer(call.name)).find(|call| {
        let blamed = seen.as_deref().is_some_and(|text| failure && text.contains(call.name));
        blamed || is_declared(call)
    });
    match tool {
        Some(call) if failure || over => Some(RequestedCall {
            tool: call.name.to_owned(),
            arguments: tree.budget.keep_arguments(call.arguments.clone()),
            raw: Some(call.raw.to_owned()),
            seen,
            seen_is_error: failure,
            ..requested_call()
        }),
        // Code that only gives the answer is not a step.
        _ if answers && only_answers(&reply.code) => None,
        _ => Some(RequestedCall {
            tool: INTERPRETER.to_owned(),
            arguments: Some(json!({"code": reply.code})),
            raw: Some(reply.code.clone()),
            seen,
            seen_is_error: failure,
            ..requested_call()
        }),
    }
}

/// Whether code does nothing except give the final answer. Comments do not count.
fn only_answers(code: &str) -> bool {
    let mut lines = code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_none_or(|line| line.starts_with("final_answer("))
}

/// The first system message, in which smolagents declares the functions.
fn system_prompt<'t>(tree: &'t SpanTree<'_>, run: &RequestSpans) -> Cow<'t, str> {
    let input = run.calls.iter().map(|at| &tree.nodes[*at].facts.input).find(|input| !input.is_empty());
    let system = input.and_then(|input| input.iter().find(|message| message.role == MessageRole::System));
    system.map(ChatMessage::joined_text).unwrap_or_default()
}

/// Names of the functions that a prompt declares as `def list_issues(`. Computed once per run, because each reply may
/// call many.
fn parse_declared_functions(prompt: &str) -> HashSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let declared = prompt.match_indices("def ").filter_map(|(at, keyword)| {
        let rest = &prompt[at + keyword.len()..];
        let name = &rest[..rest.find(|c| !is_part(c))?];
        rest[name.len()..].starts_with('(').then(|| name.to_owned())
    });
    declared.collect()
}

/// Returns the observation that the next request shows after a reply.
fn find_observation_after(tree: &SpanTree<'_>, run: &RequestSpans, call: usize) -> Option<String> {
    let next = run.calls.get(call + 1)?;
    let last = tree.nodes[*next].facts.input.last().filter(|message| message.role != MessageRole::Assistant)?;
    let text = match last.tool_results().next() {
        Some(result) => Cow::Borrowed(result.content.as_ref()),
        None => last.joined_text(),
    };
    Some(without_label(&text).trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_a_prompt_are_found() {
        let prompt = "def a(x): ..\n  def def b_2(\nundef c(\ndef d (\ndef é(\ndef ";
        let mut declared: Vec<_> = parse_declared_functions(prompt).into_iter().collect();
        declared.sort();
        assert_eq!(declared, ["a", "b_2", "c"]);
    }
}
