//! Results of earlier calls as later requests show them, and the choice between two records of one result.

use std::collections::{HashMap, VecDeque};

use serde_json::value::RawValue;

use crate::dialect::{RecordedToolRun, unwrap_result};
use crate::message::{ChatMessage, MessageRole};
use crate::react;

use super::tree::SpanTree;
use crate::assemble::agent_run::RequestSpans;
use crate::assemble::requested_call::{RequestedCall, RequestedCallIds};

/// Reads the results that a request shows behind the user's query.
///
/// `text_requested_calls` are the calls that were written as text, in order.
pub(super) fn read_observations(
    input: &[ChatMessage<'_>],
    requested_calls: &mut [RequestedCall],
    ids: &RequestedCallIds,
    text_requested_calls: &[usize],
) {
    let mut occurrences: HashMap<&str, usize> = HashMap::new();
    let mut unnamed = 0;
    // For text agents: the replies that the history has not repeated yet, and the one that waits for its observation.
    let mut open = OpenReplies { nearest: VecDeque::new(), further: text_requested_calls.iter() };
    let mut waiting: Option<usize> = None;
    for message in input {
        for result in message.tool_results() {
            let index = match result.id.as_deref().or_else(|| parse_labelled_id(&result.content)) {
                Some(id) => {
                    let nth = occurrences.entry(id).or_default();
                    *nth += 1;
                    ids.nth(id, *nth - 1)
                }
                None => Some(unnamed),
            };
            // A label is not always there, so results with one count among those without.
            unnamed += usize::from(result.id.is_none());
            if let Some(requested_call) = index.and_then(|index| requested_calls.get_mut(index)) {
                let fits = result.name.as_deref().is_none_or(|name| name == requested_call.tool);
                // Every later request repeats the result; the first one counts.
                if (fits || result.id.is_some()) && !(requested_call.seen_by_id && requested_call.seen.is_some()) {
                    let shown = unwrap_result(&result.content);
                    requested_call.seen_is_error |= result.is_error || shown.is_error;
                    requested_call.seen = Some(without_label(&shown.text).to_owned());
                    requested_call.seen_by_id = result.id.is_some();
                }
            }
        }
        match message.role {
            MessageRole::User => {
                let text = message.joined_text();
                if let Some(index) = waiting.take() {
                    // A text that is not an observation is the framework's complaint about the reply.
                    requested_calls[index].seen_is_error |= !react::starts_like_observation(&text);
                    requested_calls[index].seen = Some(without_label(&text).to_owned());
                }
            }
            MessageRole::Assistant => {
                let text = message.joined_text();
                waiting = open.take_repeated(requested_calls, text.trim());
                if let Some(index) = waiting
                    && let Some(observation) = parse_glued_observation(&requested_calls[index], &text)
                {
                    requested_calls[index].seen = Some(observation);
                    waiting = None;
                }
            }
            _ => {}
        }
    }
}

/// Calls written as text that the history has not repeated yet. Only the next few are considered, so that a request
/// after each of many calls does not look at all of them.
struct OpenReplies<'a> {
    nearest: VecDeque<usize>,
    further: std::slice::Iter<'a, usize>,
}

impl OpenReplies<'_> {
    const MAX_OPEN_REPLIES: usize = 64;

    /// The call that a message of the history repeats: literally, with its observation behind it, or rewritten by the
    /// framework with the same thought and tool.
    fn take_repeated(&mut self, requested_calls: &[RequestedCall], text: &str) -> Option<usize> {
        let missing = Self::MAX_OPEN_REPLIES - self.nearest.len();
        self.nearest.extend(self.further.by_ref().take(missing));
        if self.nearest.is_empty() {
            return None;
        }
        let find = |fits: &dyn Fn(&RequestedCall) -> bool| {
            self.nearest.iter().position(|index| fits(&requested_calls[*index]))
        };
        let literal =
            find(&|requested_call| requested_call.reply.as_deref().is_some_and(|reply| text.starts_with(reply)));
        let place = literal.or_else(|| {
            let transcript = react::read_react_transcript(text);
            let step = transcript.steps.first()?;
            find(&|requested_call| {
                requested_call.tool == step.tool && requested_call.thought.as_deref() == step.thought.as_deref()
            })
        })?;
        self.nearest.remove(place)
    }
}

/// CrewAI repeats a reply and its observation in one message.
fn parse_glued_observation(requested_call: &RequestedCall, text: &str) -> Option<String> {
    let behind = text.trim_start().strip_prefix(requested_call.reply.as_deref()?)?;
    Some(behind.trim_start().strip_prefix("Observation:")?.trim().to_owned())
}

/// The id in front of an observation of smolagents: `Call id: x\nObservation:\ntext`.
fn parse_labelled_id(text: &str) -> Option<&str> {
    let (id, rest) = text.trim_start().strip_prefix("Call id:")?.split_once('\n')?;
    ["Observation:", "Error:"].iter().any(|label| rest.starts_with(label)).then_some(id.trim())
}

/// Removes the label from `Observation: text` and `Call id: x\nObservation:\ntext`.
pub(super) fn without_label(text: &str) -> &str {
    let trimmed = text.trim_start();
    // smolagents puts the id of the call in front.
    let trimmed = match trimmed.strip_prefix("Call id:").and_then(|rest| rest.split_once('\n')) {
        Some((_, rest)) if rest.starts_with("Observation:") => rest,
        _ => trimmed,
    };
    match trimmed.strip_prefix("Observation:") {
        Some(rest) => rest.trim(),
        None => text,
    }
}

/// Finds observations for agents that write the whole run into one prompt, where the observation follows the repeated
/// reply.
pub(super) fn find_prompt_observations(tree: &SpanTree<'_>, run: &RequestSpans, requested_calls: &mut [RequestedCall]) {
    // Calls of one reply have the same observation. It is searched once, and shared within the budget.
    let mut found: Option<(usize, Option<String>)> = None;
    for requested_call in requested_calls.iter_mut().filter(|requested_call| requested_call.seen.is_none()) {
        let (Some(reply), Some(number)) = (&requested_call.reply, requested_call.call) else { continue };
        match &found {
            Some((known, observation)) if *known == number => {
                requested_call.seen = observation.as_deref().and_then(|text| tree.budget.share_text(text));
            }
            _ => {
                let observation = find_observation_behind(tree, run, number, reply, &requested_call.tool);
                requested_call.seen.clone_from(&observation);
                found = Some((number, observation));
            }
        }
    }
}

/// The observation behind the last occurrence of a reply in the next prompt, up to the label of the next thought.
fn find_observation_behind(
    tree: &SpanTree<'_>,
    run: &RequestSpans,
    call: usize,
    reply: &str,
    tool: &str,
) -> Option<String> {
    let next = run.calls.get(call + 1)?;
    let input = &tree.nodes[*next].facts.input;
    let prompt = input.iter().rev().find(|message| message.role == MessageRole::User).map(ChatMessage::joined_text)?;
    let Some(at) = prompt.rfind(reply) else { return parse_dspy_observation(&prompt, tool) };
    let behind = prompt[at + reply.len()..].trim_start();
    Some(strip_prompt_tail(behind.strip_prefix("Observation:")?).to_owned())
}

/// The latest observation in a prompt of DSPy, which writes the run so far as fields: `[[ ## tool_name_0 ## ]]`, then the
/// name, and `[[ ## observation_0 ## ]]`. The name must be that of the tool.
fn parse_dspy_observation(prompt: &str, tool: &str) -> Option<String> {
    const FIELD: &str = "[[ ## observation_";
    let (number, behind) = prompt[prompt.rfind(FIELD)? + FIELD.len()..].split_once(" ## ]]\n")?;
    if !prompt.contains(&format!("[[ ## tool_name_{number} ## ]]\n{tool}\n")) {
        return None;
    }
    let end = ["\n\n[[ ## ", "\n\nRespond with the corresponding output fields"];
    let end = end.iter().filter_map(|end| behind.find(end)).min().unwrap_or(behind.len());
    let observation = behind[..end].trim();
    // A text of several lines, and the only item of a list, are enclosed in guillemets.
    let quoted = observation.strip_prefix('«').and_then(|text| text.strip_suffix('»'));
    Some(quoted.filter(|text| !text.contains('«')).unwrap_or(observation).to_owned())
}

/// An observation without the text that a prompt puts behind the run so far: the label of the next thought, and
/// LangChain's reminder of the format.
fn strip_prompt_tail(observation: &str) -> &str {
    let observation = observation.trim();
    let observation = match observation.rfind("(reminder to ") {
        Some(at) if !observation[at..].contains('\n') => observation[..at].trim_end(),
        _ => observation,
    };
    observation.strip_suffix("Thought:").unwrap_or(observation).trim()
}

/// Some frameworks put the results of parallel calls into one message, under the id of the last call. Where the spans of the
/// tools have them apart, each call gets its own.
pub(super) fn split_joined_results(tree: &SpanTree<'_>, requested_calls: &mut [RequestedCall]) {
    let recorded = |requested_call: &RequestedCall| {
        let tool = &tree.nodes[*requested_call.runs.last()?].facts.tool;
        tool.result.as_deref().filter(|result| !result.is_empty())
    };
    for at in 1..requested_calls.len() {
        let (before, from) = requested_calls.split_at_mut(at);
        let (Some(other), this) = (before.last(), &mut from[0]) else { continue };
        if !this.parallel || !this.seen_by_id {
            continue;
        }
        let (Some(own), Some(others), Some(seen)) = (recorded(this), recorded(other), &this.seen) else { continue };
        if seen.strip_suffix(own).is_some_and(|rest| rest.trim_end().ends_with(others)) {
            this.seen = Some(own.to_owned());
        }
    }
}

/// Chooses the observation of a step, and whether it is an error. A tool message with the id of the call shows exactly
/// what the model saw. The span of the tool may have wrapped it. In a prompt of a text agent the borders are guessed.
pub(super) fn choose_observation(
    requested_call: &RequestedCall,
    tool: Option<&RecordedToolRun<'_>>,
) -> (Option<String>, bool) {
    let recorded = tool.and_then(|tool| tool.result.as_deref());
    let shown = requested_call.seen.as_deref();
    let observation = match (shown, recorded) {
        // JavaScript prints the exception of the span with this prefix.
        (Some(shown), Some(recorded)) if shown.strip_prefix("Error: ") == Some(recorded) => Some(recorded),
        (Some(shown), Some(recorded)) if is_encoded_twice(shown, recorded) => Some(recorded),
        // Python's way to write that nothing was returned, where the tool failed.
        (Some(shown), Some("None")) if !shown.is_empty() => Some(shown),
        (Some(shown), _) if requested_call.seen_by_id && !shown.is_empty() => Some(shown),
        _ => recorded.or(shown),
    };
    let observation = observation.or_else(|| tool?.failure.as_deref());
    let mut is_error = requested_call.seen_is_error || tool.is_some_and(|tool| tool.is_error);
    if tool.is_none() {
        // Without a span of the tool, only the text shows an error.
        is_error |= observation.is_some_and(is_error_text);
    }
    (observation.map(str::to_owned), is_error)
}

/// Whether a result begins as a failure does, also as Claude Code writes those of its tools and of commands.
fn is_error_text(text: &str) -> bool {
    let has_failed = |code: &str| code.starts_with(|digit: char| ('1'..='9').contains(&digit));
    ["Error:", "Error ", "<tool_use_error>"].iter().any(|opening| text.starts_with(opening))
        || text.strip_prefix("Exit code ").is_some_and(has_failed)
}

/// Whether a shown list is the recorded one with each item encoded as a text, as early versions of Agent Framework write it.
fn is_encoded_twice(shown: &str, recorded: &str) -> bool {
    if !shown.starts_with("[\"{") || !recorded.starts_with("[{") {
        return false;
    }
    let (Ok(shown), Ok(recorded)) =
        (serde_json::from_str::<Vec<String>>(shown), serde_json::from_str::<Vec<Box<RawValue>>>(recorded))
    else {
        return false;
    };
    shown.len() == recorded.len() && shown.iter().zip(&recorded).all(|(shown, recorded)| shown == recorded.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_the_prompt_is_no_part_of_an_observation() {
        for text in [
            " berth 7",
            "berth 7\nThought:",
            "berth 7\nThought: \n\n(reminder to respond in a JSON blob no matter what)",
            "berth 7\nThought:\n (reminder to always answer in JSON)\n",
        ] {
            assert_eq!(strip_prompt_tail(text), "berth 7", "{text:?}");
        }
        let quoted = "a note (reminder to pay)\nberth 7";
        assert_eq!(strip_prompt_tail(quoted), quoted);
    }
}
