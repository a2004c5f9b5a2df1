//! Message lists and plain transcripts, which have no spans: read into trajectories all the same.

use std::sync::Arc;

use crate::message::{Message, Role};
use crate::react::{self, Transcript};
use crate::trajectory::{Defect, DefectKind, Step, ToolDefinition, Trajectory};

use super::observations;
use super::request;
use super::steps::{Ask, read_arguments, said};

/// Reads a message list: one trajectory for each time the user speaks and the assistant acts or answers.
pub fn assemble_messages(messages: &[Message<'_>], id: &str, tools: &[ToolDefinition]) -> Vec<Trajectory> {
    let tools: Arc<[ToolDefinition]> = tools.into();
    let mut trajectories: Vec<Trajectory> = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        let user = messages[at].role == Role::User && request::last_user(&messages[at..=at]).is_some();
        let next = messages[at + 1..].iter().enumerate().position(|(offset, message)| {
            let place = at + 1 + offset;
            message.role == Role::User && request::last_user(&messages[place..=place]).is_some()
        });
        let end = next.map_or(messages.len(), |offset| at + 1 + offset);
        let turn = &messages[if user { at + 1 } else { at }..end];
        if turn.iter().any(|message| message.role == Role::Assistant) || (user && end == messages.len()) {
            let query = user.then(|| messages[at].joined_text().trim().to_owned());
            trajectories.push(read_turn(query, turn, &tools));
        }
        at = end;
    }
    number(&mut trajectories, id);
    trajectories
}

/// Reads a plain ReAct transcript: one trajectory for each question in it.
pub fn assemble_transcript(text: &str, id: &str) -> Vec<Trajectory> {
    let consoles = react::console_runs(text);
    let runs = consoles.iter().flat_map(|console| react::split_runs(console));
    let mut trajectories: Vec<Trajectory> = runs.map(|run| from_transcript(react::read(run))).collect();
    number(&mut trajectories, id);
    trajectories
}

fn number(trajectories: &mut [Trajectory], id: &str) {
    for (index, trajectory) in trajectories.iter_mut().enumerate() {
        trajectory.trajectory_id = if index == 0 { id.to_owned() } else { format!("{id}-{}", index + 1) };
        trajectory.session_id = Some(id.to_owned());
    }
}

fn read_turn(query: Option<String>, turn: &[Message<'_>], tools: &Arc<[ToolDefinition]>) -> Trajectory {
    let mut trajectory = Trajectory { query, tools: Arc::clone(tools), ..Trajectory::default() };
    let mut asks: Vec<Ask> = Vec::new();
    for message in turn.iter().filter(|message| message.role == Role::Assistant) {
        let thought = said(std::slice::from_ref(message));
        if message.has_tool_calls() {
            for (index, call) in message.tool_calls().enumerate() {
                let (arguments, raw, malformed) = read_arguments(call.arguments.as_ref());
                if malformed {
                    trajectory.defects.push(Defect::new(
                        DefectKind::MalformedArguments,
                        raw.clone().unwrap_or_default(),
                        None,
                    ));
                }
                let id = call.id.as_deref().map(str::to_owned);
                let (thought, tool) = (thought.clone(), call.name.to_string());
                asks.push(Ask { thought, tool, id, arguments, raw, parallel: index > 0, ..Ask::default() });
            }
            trajectory.final_answer = None;
            continue;
        }
        let text = message.joined_text();
        let transcript = react::read(&text);
        let steps = transcript.steps.len();
        for step in transcript.steps.into_iter().take(1) {
            asks.push(Ask {
                thought: step.thought.map(std::borrow::Cow::into_owned),
                tool: step.tool.into_owned(),
                arguments: step.input.json,
                raw: Some(step.input.raw.into_owned()).filter(|raw| !raw.is_empty()),
                reply: Some(text.trim().to_owned()),
                ..Ask::default()
            });
        }
        if steps == 0 {
            trajectory.final_answer = transcript.answer.map(std::borrow::Cow::into_owned).or(thought);
        }
    }
    observations::see(turn, &mut asks);
    for (index, ask) in asks.into_iter().enumerate() {
        let (observation, is_error) = observations::choose(&ask, None);
        trajectory.steps.push(Step {
            index: index as u32 + 1,
            thought: ask.thought,
            tool: ask.tool,
            tool_call_id: ask.id,
            arguments: ask.arguments,
            arguments_raw: ask.raw,
            observation,
            is_error,
            parallel_with_previous: ask.parallel,
            ..Step::default()
        });
    }
    complain(&mut trajectory);
    trajectory
}

fn from_transcript(transcript: Transcript<'_>) -> Trajectory {
    let mut trajectory = Trajectory {
        query: transcript.question.map(std::borrow::Cow::into_owned),
        final_answer: transcript.answer.map(std::borrow::Cow::into_owned),
        ..Trajectory::default()
    };
    for (kind, detail) in transcript.defects {
        trajectory.defects.push(Defect::new(kind, detail, None));
    }
    for (index, step) in transcript.steps.into_iter().enumerate() {
        trajectory.steps.push(Step {
            index: index as u32 + 1,
            thought: step.thought.map(std::borrow::Cow::into_owned),
            tool: step.tool.into_owned(),
            arguments: step.input.json,
            arguments_raw: Some(step.input.raw.into_owned()).filter(|raw| !raw.is_empty()),
            observation: step.observation.map(std::borrow::Cow::into_owned),
            parallel_with_previous: step.parallel,
            ..Step::default()
        });
    }
    complain(&mut trajectory);
    trajectory
}

fn complain(trajectory: &mut Trajectory) {
    for step in &trajectory.steps {
        let mut miss = |kind, what: &str| {
            trajectory.defects.push(Defect::new(
                kind,
                format!("step {} ({}) has no {what}", step.index, step.tool),
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
    if trajectory.query.is_none() {
        trajectory.defects.push(Defect::new(
            DefectKind::MissingQuery,
            "the request is not in the text",
            None,
        ));
    }
    if trajectory.final_answer.is_none() {
        trajectory.defects.push(Defect::new(DefectKind::MissingAnswer, "there is no final answer", None));
    }
}
