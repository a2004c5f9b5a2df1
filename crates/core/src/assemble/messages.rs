//! Message lists and plain transcripts, which have no spans, as trajectories.

use std::sync::Arc;

use crate::message::{ChatMessage, MessageRole};
use crate::react::{self, ReactTranscript};
use crate::short_text::cut_name;
use crate::trajectory::{DefectKind, ExtractionDefect, ToolDefinition, Trajectory, TrajectoryStep};

use super::budget::{AssemblyBudget, LEFT_OUT};
use super::observations;
use super::request;
use super::steps::{extract_reply_text, join_texts};
use crate::assemble::requested_call::{RequestedCall, RequestedCallIds, read_arguments};

/// Reads a message list. Each time the user speaks and the assistant acts or answers is one trajectory.
pub fn assemble_messages(messages: &[ChatMessage<'_>], tools: &[ToolDefinition]) -> Vec<Trajectory> {
    let tools: Arc<[ToolDefinition]> = tools.into();
    let budget = AssemblyBudget::default();
    let speaks = |message: &ChatMessage<'_>| request::last_user(std::slice::from_ref(message)).is_some();
    let mut trajectories: Vec<Trajectory> = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        // Consecutive messages of the user are one request.
        let asked = messages[at..].iter().take_while(|message| speaks(message)).count();
        let query: Vec<_> =
            messages[at..at + asked].iter().map(|message| message.joined_text().trim().to_owned()).collect();
        let begin = at + asked;
        let length = messages[begin..].iter().take_while(|message| !speaks(message)).count();
        let turn = &messages[begin..begin + length];
        let query = (!query.is_empty()).then(|| query.join("\n"));
        if query.is_some() || turn.iter().any(|message| message.role == MessageRole::Assistant) {
            trajectories.push(read_turn(query, turn, &tools, &budget));
        }
        at = begin + length.max(usize::from(asked == 0));
    }
    trajectories
}

/// Reads a plain ReAct transcript. Each question in it is one trajectory.
pub fn assemble_transcript(text: &str) -> Vec<Trajectory> {
    // Files from Windows have other line ends and may begin with a byte order mark.
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let consoles = react::console_runs(&text);
    // A transcript may be copied from a terminal, and may contain several runs.
    let runs = consoles.iter().flat_map(|console| react::split_runs(console));
    let budget = AssemblyBudget::default();
    runs.map(|run| from_transcript(react::read_react_transcript(run), &budget)).collect()
}

/// Reads the messages between one request and the next.
fn read_turn(
    query: Option<String>,
    turn: &[ChatMessage<'_>],
    tools: &Arc<[ToolDefinition]>,
    budget: &AssemblyBudget,
) -> Trajectory {
    let mut trajectory = Trajectory { query, tools: Arc::clone(tools), ..Trajectory::default() };
    let mut requested_calls: Vec<RequestedCall> = Vec::new();
    // A reply may be several messages: reasoning, text, calls.
    for reply in turn.chunk_by(|a, b| a.role == MessageRole::Assistant && b.role == MessageRole::Assistant) {
        if reply[0].role == MessageRole::Assistant {
            read_reply(reply, &mut trajectory, &mut requested_calls, budget);
        }
    }
    let ids = RequestedCallIds::from_calls(&requested_calls);
    let text_requested_calls: Vec<usize> =
        (0..requested_calls.len()).filter(|index| requested_calls[*index].reply.is_some()).collect();
    observations::read_observations(turn, &mut requested_calls, &ids, &text_requested_calls);
    for (index, requested_call) in requested_calls.into_iter().enumerate() {
        let (observation, is_error) = observations::choose_observation(&requested_call, None);
        trajectory.steps.push(TrajectoryStep {
            index: index as u32 + 1,
            thought: requested_call.thought,
            tool: requested_call.tool,
            tool_call_id: requested_call.id,
            arguments: requested_call.arguments,
            arguments_raw: requested_call.raw,
            observation,
            is_error,
            parallel_with_previous: requested_call.parallel,
            ..TrajectoryStep::default()
        });
    }
    record_missing_parts(&mut trajectory, budget);
    trajectory
}

/// Reads one reply: structured calls, otherwise ReAct text, otherwise an answer.
fn read_reply(
    reply: &[ChatMessage<'_>],
    trajectory: &mut Trajectory,
    requested_calls: &mut Vec<RequestedCall>,
    budget: &AssemblyBudget,
) {
    let thought = extract_reply_text(reply);
    let mut parallel = false;
    for call in reply.iter().flat_map(ChatMessage::tool_calls) {
        let (arguments, raw, malformed) = read_arguments(call.arguments.as_ref());
        if malformed {
            let detail = raw.as_deref().unwrap_or_default();
            trajectory.defects.push(ExtractionDefect::new(DefectKind::MalformedArguments, detail, None));
        }
        let id = call.id.as_deref().map(str::to_owned);
        let (thought, tool) = (copy_step_text(thought.as_deref(), parallel, budget), call.name.to_string());
        let arguments = budget.keep_arguments(arguments);
        requested_calls.push(RequestedCall { thought, tool, id, arguments, raw, parallel, ..RequestedCall::default() });
        parallel = true;
    }
    // Only text behind the last call is the answer.
    trajectory.final_answer = None;
    if parallel {
        return;
    }
    let text = join_texts(reply);
    // Without structured calls, the reply may be ReAct text.
    let transcript = react::read_react_transcript(&text);
    for (kind, detail) in transcript.defects {
        trajectory.defects.push(ExtractionDefect::new(kind.into(), detail, None));
    }
    if transcript.steps.is_empty() {
        trajectory.final_answer = transcript.answer.map(std::borrow::Cow::into_owned).or(thought);
        return;
    }
    let reply: Arc<str> = text.trim().into();
    for (index, step) in transcript.steps.into_iter().enumerate() {
        // The first action counts, with those beside it. What the model wrote behind it did not happen.
        if index > 0 && !step.parallel {
            let detail = "the reply goes on behind its action";
            trajectory.defects.push(ExtractionDefect::new(DefectKind::SelfWrittenObservation, detail, None));
            break;
        }
        requested_calls.push(RequestedCall {
            thought: copy_step_text(step.thought.as_deref(), step.parallel, budget),
            tool: step.tool.into_owned(),
            arguments: budget.keep_arguments(step.input.json),
            raw: Some(step.input.raw.into_owned()).filter(|raw| !raw.is_empty()),
            reply: Some(Arc::clone(&reply)),
            parallel: step.parallel,
            ..RequestedCall::default()
        });
    }
}

/// A text for a step. The first step of a reply gets a copy; those beside it get one within the budget.
fn copy_step_text(text: Option<&str>, is_beside: bool, budget: &AssemblyBudget) -> Option<String> {
    if is_beside { budget.share_text(text?) } else { text.map(str::to_owned) }
}

/// A transcript has no ids, times or tools; what it lacks is reported as defects like anywhere else.
fn from_transcript(transcript: ReactTranscript<'_>, budget: &AssemblyBudget) -> Trajectory {
    let mut trajectory = Trajectory {
        query: transcript.question.map(std::borrow::Cow::into_owned),
        final_answer: transcript.answer.map(std::borrow::Cow::into_owned),
        ..Trajectory::default()
    };
    for (kind, detail) in transcript.defects {
        trajectory.defects.push(ExtractionDefect::new(kind.into(), detail, None));
    }
    for (index, step) in transcript.steps.into_iter().enumerate() {
        trajectory.steps.push(TrajectoryStep {
            index: index as u32 + 1,
            thought: copy_step_text(step.thought.as_deref(), step.parallel, budget),
            tool: step.tool.into_owned(),
            arguments: budget.keep_arguments(step.input.json),
            arguments_raw: Some(step.input.raw.into_owned()).filter(|raw| !raw.is_empty()),
            observation: copy_step_text(step.observation.as_deref(), step.parallel, budget),
            parallel_with_previous: step.parallel,
            ..TrajectoryStep::default()
        });
    }
    record_missing_parts(&mut trajectory, budget);
    trajectory
}

/// Adds defects for thoughts, observations, the query and the answer that are missing.
fn record_missing_parts(trajectory: &mut Trajectory, budget: &AssemblyBudget) {
    for step in &trajectory.steps {
        let mut miss = |kind, what: &str| {
            trajectory.defects.push(ExtractionDefect::new(
                kind,
                format!("step {} ({}) has no {what}", step.index, cut_name(&step.tool)),
                None,
            ));
        };
        if step.thought.is_none() {
            miss(DefectKind::MissingThought, "thought");
        }
        if step.observation.is_none() {
            miss(DefectKind::MissingObservation, "observation");
        }
    }
    if budget.take_exceeded() {
        trajectory.defects.push(ExtractionDefect::new(DefectKind::TooLarge, LEFT_OUT, None));
    }
    if trajectory.query.is_none() {
        trajectory.defects.push(ExtractionDefect::new(
            DefectKind::MissingQuery,
            "the request is not in the text",
            None,
        ));
    }
    if trajectory.final_answer.is_none() {
        trajectory.defects.push(ExtractionDefect::new(DefectKind::MissingAnswer, "there is no final answer", None));
    }
}
