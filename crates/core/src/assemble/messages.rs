//! Message lists and plain transcripts, which have no spans, as trajectories.

use std::collections::HashSet;
use std::sync::Arc;

use crate::message::{ChatMessage, MessageRole};
use crate::react::{self, ReactTranscript};
use crate::short_text::cut_name;
use crate::trajectory::{DefectKind, EarlierTurn, ExtractionDefect, ToolDefinition, Trajectory, TrajectoryStep};

use super::budget::{AssemblyBudget, LEFT_OUT_DETAIL};
use super::observations;
use super::reply_text::{extract_reasoning, extract_reply_text, join_texts};
use super::turns::{SystemPromptBuilder, TurnWindow, is_user_turn};
use crate::assemble::requested_call::{RequestedCall, RequestedCallIds, read_arguments};

/// Claude Code's tool that loads a skill, and how the text of a skill begins.
const SKILL_TOOL: &str = "Skill";
const SKILL_START: &str = "Base directory for this skill:";

/// Reads a message list. Each time the user speaks and the assistant acts or answers is one trajectory. Later ones
/// share the earlier turns and the system prompt with those before them. Ids are left to the caller.
pub fn assemble_messages(messages: &[ChatMessage<'_>], tools: &[ToolDefinition]) -> Vec<Trajectory> {
    let mut reader = TurnReader {
        tools: tools.into(),
        budget: AssemblyBudget::default(),
        has_native_calls: !tools.is_empty() || messages.iter().any(ChatMessage::has_tool_calls),
        has_run_text_calls: false,
    };
    let mut system_prompt = SystemPromptBuilder::default();
    let mut window = TurnWindow::default();
    let mut trajectories: Vec<Trajectory> = Vec::new();
    let is_request = find_requests(messages);
    let mut at = 0;
    while at < messages.len() {
        // Consecutive messages of the user are one request.
        let asked = is_request[at..].iter().take_while(|is_request| **is_request).count();
        let mut query: Vec<_> =
            messages[at..at + asked].iter().map(|message| message.joined_text().trim().to_owned()).collect();
        // Exports of coding agents keep the mark with which the program told that the user stopped the turn before.
        if query.first().is_some_and(|text| is_interruption(text)) {
            query.remove(0);
            if let Some(stopped) = trajectories.last_mut().filter(|before| before.final_answer.is_none()) {
                let detail = "the user interrupted the request";
                stopped.defects.push(ExtractionDefect::new(DefectKind::MissingAnswer, detail, None));
            }
        }
        let begin = at + asked;
        let length = is_request[begin..].iter().take_while(|is_request| !**is_request).count();
        let turn = &messages[begin..begin + length];
        let query = (!query.is_empty()).then(|| query.join("\n"));
        // Instructions that come with the request count for it; later ones for the next turn.
        let reply = turn.iter().position(|message| message.role == MessageRole::Assistant);
        let (before, after) = turn.split_at(reply.unwrap_or(turn.len()));
        system_prompt.add_messages(before);
        if query.is_some() || reply.is_some() {
            if let Some(previous) = trajectories.last() {
                window.push_turn(Arc::new(EarlierTurn::from_trajectory(previous)));
            }
            let mut trajectory = reader.read_turn(query, turn);
            trajectory.system_prompt = system_prompt.current_prompt(&reader.budget, &mut trajectory.defects);
            trajectory.earlier_turns = window.to_turns();
            trajectories.push(trajectory);
        }
        system_prompt.add_messages(after);
        at = begin + length.max(usize::from(asked == 0));
    }
    // A list in which no user speaks has no turns.
    if trajectories.iter().any(|trajectory| trajectory.query.is_some()) {
        (1..).zip(&mut trajectories).for_each(|(number, trajectory)| trajectory.turn_index = Some(number));
    }
    trajectories
}

/// Which messages are requests: the user really speaks, and not Claude Code, which shows the model the text of a skill
/// in the name of the user, directly behind the result of the call that loads it.
fn find_requests(messages: &[ChatMessage<'_>]) -> Vec<bool> {
    let mut skill_calls: HashSet<&str> = HashSet::new();
    let mut is_behind_skill = false;
    let mut is_request = Vec::with_capacity(messages.len());
    for message in messages {
        let loads = message.tool_calls().filter(|call| call.name == SKILL_TOOL);
        skill_calls.extend(loads.filter_map(|call| call.id.as_deref()));
        let is_turn = is_user_turn(message);
        // Skills that are loaded together have their texts behind each other.
        let is_skill_text = is_turn && is_behind_skill && message.joined_text().trim_start().starts_with(SKILL_START);
        is_behind_skill = is_skill_text
            || message.tool_results().any(|result| {
                let has_id = result.id.as_deref().is_some_and(|id| skill_calls.contains(id));
                has_id || result.name.as_deref() == Some(SKILL_TOOL)
            });
        is_request.push(is_turn && !is_skill_text);
    }
    is_request
}

/// Whether a message of the user is a mark of the program: of Claude Code, or of Codex.
fn is_interruption(text: &str) -> bool {
    text.starts_with("[Request interrupted by user") || text.starts_with("<turn_aborted>")
}

/// Reads a plain ReAct transcript. Each question in it is one trajectory.
pub fn assemble_transcript(text: &str) -> Vec<Trajectory> {
    // Files from Windows have other line ends and may begin with a byte order mark.
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let consoles = react::split_console_runs(&text);
    // A transcript may be copied from a terminal, and may contain several runs.
    let runs = consoles.iter().flat_map(|console| react::split_runs(console));
    let budget = AssemblyBudget::default();
    runs.map(|run| from_transcript(react::read_react_transcript(run), &budget)).collect()
}

/// What is common to the turns of a message list while they are read in order.
struct TurnReader {
    tools: Arc<[ToolDefinition]>,
    budget: AssemblyBudget,
    /// The agent calls tools natively: the list has such calls, or the tools that were sent with it.
    has_native_calls: bool,
    /// A call that was written as text got an observation.
    has_run_text_calls: bool,
}

impl TurnReader {
    /// Reads the messages between one request and the next.
    fn read_turn(&mut self, query: Option<String>, turn: &[ChatMessage<'_>]) -> Trajectory {
        let mut trajectory = Trajectory { query, tools: Arc::clone(&self.tools), ..Trajectory::default() };
        let mut requested_calls: Vec<RequestedCall> = Vec::new();
        // Defects before the last reply.
        let mut earlier_defects = 0;
        // A reply may be several messages: reasoning, text, calls.
        for reply in turn.chunk_by(|a, b| a.role == MessageRole::Assistant && b.role == MessageRole::Assistant) {
            if reply[0].role == MessageRole::Assistant {
                earlier_defects = trajectory.defects.len();
                read_assistant_reply(reply, &mut trajectory, &mut requested_calls, &self.budget);
            }
        }
        let ids = RequestedCallIds::from_calls(&requested_calls);
        let text_requested_calls: Vec<usize> =
            (0..requested_calls.len()).filter(|index| requested_calls[*index].reply.is_some()).collect();
        observations::read_observations(turn, &mut requested_calls, &ids, &text_requested_calls);
        self.has_run_text_calls |= requested_calls.iter().any(|call| call.reply.is_some() && call.seen.is_some());
        // Only the reply that ends the turn: a later answer would follow an action that ran.
        let may_be_unrun = self.has_native_calls && !self.has_run_text_calls && trajectory.final_answer.is_none();
        if may_be_unrun && let Some(reply) = remove_unrun_text_calls(&mut requested_calls) {
            trajectory.defects.truncate(earlier_defects);
            trajectory.defects.push(ExtractionDefect::new(DefectKind::ActionNeverRan, &*reply, None));
            trajectory.final_answer = Some(reply.as_ref().to_owned());
        }
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
        record_missing_parts(&mut trajectory);
        record_exceeded_budget(&mut trajectory, &self.budget);
        trajectory
    }
}

/// Reads one reply: structured calls, otherwise ReAct text, otherwise an answer.
fn read_assistant_reply(
    reply: &[ChatMessage<'_>],
    trajectory: &mut Trajectory,
    requested_calls: &mut Vec<RequestedCall>,
    budget: &AssemblyBudget,
) {
    let thought = extract_reply_text(reply);
    let (mut parallel, mut has_nameless_call) = (false, false);
    for call in reply.iter().flat_map(ChatMessage::tool_calls) {
        let (arguments, raw, malformed) = read_arguments(call.arguments.as_ref());
        if malformed {
            let detail = raw.as_deref().unwrap_or_default();
            trajectory.defects.push(ExtractionDefect::new(DefectKind::MalformedArguments, detail, None));
        }
        if call.name.is_empty() {
            // Without a tool there is no step.
            let detail = raw.as_deref().unwrap_or_default();
            trajectory.defects.push(ExtractionDefect::new(DefectKind::MissingToolName, detail, None));
            has_nameless_call = true;
            continue;
        }
        let id = call.id.as_deref().map(str::to_owned);
        let (thought, tool) = (share_step_text(thought.as_deref(), parallel, budget), call.name.to_string());
        let arguments = budget.keep_arguments(arguments);
        requested_calls.push(RequestedCall { thought, tool, id, arguments, raw, parallel, ..RequestedCall::default() });
        parallel = true;
    }
    // Only text behind the last call is the answer.
    (trajectory.final_answer, trajectory.final_thought) = (None, None);
    if parallel || has_nameless_call {
        return;
    }
    let text = join_texts(reply);
    // Without structured calls, the reply may be ReAct text.
    let transcript = react::read_react_transcript(&text);
    for (kind, detail) in transcript.defects {
        trajectory.defects.push(ExtractionDefect::new(kind.into(), detail, None));
    }
    if transcript.steps.is_empty() {
        let answer = transcript.answer.map(std::borrow::Cow::into_owned);
        trajectory.final_thought = match &answer {
            Some(_) => transcript.last_thought.map(std::borrow::Cow::into_owned).or_else(|| extract_reasoning(reply)),
            None => extract_reasoning(reply),
        };
        trajectory.final_answer = answer.or(thought);
        drop_redundant_final_thought(trajectory);
        return;
    }
    let reply: Arc<str> = text.trim().into();
    for (index, step) in transcript.steps.into_iter().enumerate() {
        // The first action counts, with its parallel calls. What the model wrote after it did not happen.
        if index > 0 && !step.parallel {
            let detail = "the reply goes on behind its action";
            trajectory.defects.push(ExtractionDefect::new(DefectKind::SelfWrittenObservation, detail, None));
            break;
        }
        requested_calls.push(RequestedCall {
            thought: share_step_text(step.thought.as_deref(), step.parallel, budget),
            tool: step.tool.into_owned(),
            arguments: budget.keep_arguments(step.input.json),
            raw: Some(step.input.raw.into_owned()).filter(|raw| !raw.is_empty()),
            reply: Some(Arc::clone(&reply)),
            parallel: step.parallel,
            ..RequestedCall::default()
        });
    }
}

/// Removes the calls that the last reply wrote as text and that nothing followed. Returns the reply.
pub(super) fn remove_unrun_text_calls(requested_calls: &mut Vec<RequestedCall>) -> Option<Arc<str>> {
    let reply = requested_calls.last()?.reply.clone()?;
    let is_of_reply = |call: &RequestedCall| call.reply.as_ref().is_some_and(|other| Arc::ptr_eq(other, &reply));
    let first = requested_calls.iter().rposition(|call| !is_of_reply(call)).map_or(0, |at| at + 1);
    if requested_calls[first..].iter().any(|call| call.seen.is_some() || !call.runs.is_empty()) {
        return None;
    }
    requested_calls.truncate(first);
    Some(reply)
}

/// Removes the thought before the answer unless there is an answer and it is another text: in a reply that is only
/// reasoning, the reasoning is the answer and not its own thought.
pub(super) fn drop_redundant_final_thought(trajectory: &mut Trajectory) {
    let answer = trajectory.final_answer.as_deref().map(str::trim);
    let is_thought = |thought: &String| !thought.trim().is_empty() && Some(thought.trim()) != answer;
    trajectory.final_thought =
        trajectory.final_thought.take().filter(|thought| answer.is_some() && is_thought(thought));
}

/// Returns a text for a step. The first step of a reply gets a copy; parallel steps get one within the budget.
fn share_step_text(text: Option<&str>, is_parallel: bool, budget: &AssemblyBudget) -> Option<String> {
    if is_parallel { budget.share_text(text?) } else { text.map(str::to_owned) }
}

/// A transcript has no ids, times or tools; what it lacks is reported as defects like anywhere else.
fn from_transcript(transcript: ReactTranscript<'_>, budget: &AssemblyBudget) -> Trajectory {
    let mut trajectory = Trajectory {
        query: transcript.question.map(std::borrow::Cow::into_owned),
        // Without an answer, the last thought led to nothing.
        final_thought: transcript
            .last_thought
            .filter(|_| transcript.answer.is_some())
            .map(std::borrow::Cow::into_owned),
        final_answer: transcript.answer.map(std::borrow::Cow::into_owned),
        ..Trajectory::default()
    };
    drop_redundant_final_thought(&mut trajectory);
    for (kind, detail) in transcript.defects {
        trajectory.defects.push(ExtractionDefect::new(kind.into(), detail, None));
    }
    for (index, step) in transcript.steps.into_iter().enumerate() {
        trajectory.steps.push(TrajectoryStep {
            index: index as u32 + 1,
            thought: share_step_text(step.thought.as_deref(), step.parallel, budget),
            tool: step.tool.into_owned(),
            arguments: budget.keep_arguments(step.input.json),
            arguments_raw: Some(step.input.raw.into_owned()).filter(|raw| !raw.is_empty()),
            observation: share_step_text(step.observation.as_deref(), step.parallel, budget),
            parallel_with_previous: step.parallel,
            ..TrajectoryStep::default()
        });
    }
    record_missing_parts(&mut trajectory);
    record_exceeded_budget(&mut trajectory, budget);
    trajectory
}

/// Adds defects for thoughts, observations, the query and the answer that are missing.
pub fn record_missing_parts(trajectory: &mut Trajectory) {
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

fn record_exceeded_budget(trajectory: &mut Trajectory, budget: &AssemblyBudget) {
    if budget.take_exceeded() {
        trajectory.defects.push(ExtractionDefect::new(DefectKind::TooLarge, LEFT_OUT_DETAIL, None));
    }
}
