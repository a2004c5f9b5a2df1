//! One turn of a conversation while it is read.

use std::collections::HashMap;

use gradus_core::message::ArgumentsText;
use gradus_core::react::split_think;
use gradus_core::trajectory::{DefectKind, ExtractionDefect, ModelUsage, TokenUsage, Trajectory, TrajectoryStep};
use serde_json::Value as Json;

use crate::import_sink::SubagentStart;

/// Maximum size of texts, arguments and results of one turn, in bytes. Later ones are left out.
const MAX_TURN_BYTES: usize = 64 << 20;
/// Maximum number of calls of one reply with the same id that are distinguished.
const MAX_CALLS_PER_ID: usize = 64;

/// A tool call as the session records it.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedCall<'a> {
    pub id: Option<&'a str>,
    pub name: &'a str,
    pub arguments: Option<ArgumentsText<'a>>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultStatus {
    #[default]
    Success,
    Error,
    /// The user or a policy did not allow it to run.
    Denied,
}

/// The result of a tool call as the session records it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedResult<'a> {
    /// The id of its call. Without one, the result is that of the oldest call that has none.
    pub id: Option<&'a str>,
    pub content: &'a str,
    pub status: ResultStatus,
    /// RFC 3339.
    pub at: Option<&'a str>,
}

/// One turn while it is read.
#[derive(Debug, Default)]
pub(crate) struct TurnDraft {
    pub(crate) trajectory: Trajectory,
    pub(crate) subagents: Vec<SubagentStart>,
    pub(crate) reply: ReplyDraft,
    pub(crate) has_reply: bool,
    /// The steps of each id, oldest first. Some providers restart ids with each reply, so that ids repeat.
    pub(crate) steps_by_id: HashMap<String, Vec<usize>>,
    pub(crate) usage_by_model: Vec<ModelUsage>,
    pub(crate) text_bytes: usize,
    pub(crate) is_cut: bool,
    /// All steps before this one have a result.
    pub(crate) first_open_step: usize,
}

/// One reply of the model while it is read.
#[derive(Debug, Default)]
pub(crate) struct ReplyDraft {
    pub(crate) texts: Vec<String>,
    pub(crate) reasoning: Vec<String>,
    /// Its calls are the steps from this one on.
    pub(crate) first_step: usize,
    pub(crate) usage: Option<(TokenUsage, Option<String>, Option<f64>)>,
}

impl TurnDraft {
    /// Extends the time of the turn.
    pub(crate) fn extend_time(&mut self, at: Option<&str>) {
        let Some(at) = at else { return };
        if self.trajectory.start.is_none() {
            self.trajectory.start = Some(at.to_owned());
        }
        self.trajectory.end = Some(at.to_owned());
    }

    pub(crate) fn add_call(&mut self, call: &ImportedCall<'_>, at: Option<&str>) -> u32 {
        let bytes = call.arguments.as_ref().map_or(0, |arguments| match arguments {
            ArgumentsText::Text(text) | ArgumentsText::Json(text) => text.len(),
        });
        let has_room = self.has_room(bytes);
        let (arguments, arguments_raw) = read_arguments(call.arguments.as_ref().filter(|_| has_room));
        let steps = &mut self.trajectory.steps;
        let index = steps.len() as u32 + 1;
        if let Some(id) = call.id {
            self.steps_by_id.entry(id.to_owned()).or_default().push(steps.len());
        }
        if arguments.is_none() && arguments_raw.is_some() {
            let detail = arguments_raw.as_deref().unwrap_or_default();
            self.trajectory.defects.push(ExtractionDefect::new(DefectKind::MalformedArguments, detail, None));
        }
        if has_room {
            self.text_bytes += bytes;
        }
        steps.push(TrajectoryStep {
            index,
            tool: call.name.to_owned(),
            tool_call_id: call.id.map(str::to_owned),
            arguments,
            arguments_raw,
            parallel_with_previous: steps.len() > self.reply.first_step,
            start: at.map(str::to_owned),
            ..TrajectoryStep::default()
        });
        index
    }

    pub(crate) fn add_result(&mut self, result: &ImportedResult<'_>) -> bool {
        let step = match result.id {
            Some(id) => self.find_answered_step(id),
            None => self.find_open_step(),
        };
        step.is_some_and(|step| self.set_result(step, result))
    }

    /// Returns the step that a result of this id answers. Calls of one reply that share an id are answered in their
    /// order; otherwise the last call of the id is meant, since results follow their reply.
    fn find_answered_step(&self, id: &str) -> Option<usize> {
        let steps = self.steps_by_id.get(id)?;
        let in_reply = &steps[steps.partition_point(|step| *step < self.reply.first_step)..];
        let is_open = |step: &&usize| self.trajectory.steps[**step].observation.is_none();
        in_reply.iter().take(MAX_CALLS_PER_ID).find(is_open).or(steps.last()).copied()
    }

    /// Returns the last step with this id.
    pub(crate) fn find_call(&self, id: &str) -> Option<usize> {
        self.steps_by_id.get(id)?.last().copied()
    }

    pub(crate) fn set_result(&mut self, step: usize, result: &ImportedResult<'_>) -> bool {
        let step = &mut self.trajectory.steps[step];
        step.is_error = result.status != ResultStatus::Success;
        step.is_denied = result.status == ResultStatus::Denied;
        step.end = result.at.map(str::to_owned).or(step.end.take());
        if self.text_bytes.saturating_add(result.content.len()) > MAX_TURN_BYTES {
            self.is_cut = true;
            step.observation = Some(String::new());
            return true;
        }
        self.text_bytes += result.content.len();
        step.observation = Some(result.content.to_owned());
        true
    }

    /// Returns the oldest step without a result. Results are never taken back, so the search continues where it
    /// ended.
    pub(crate) fn find_open_step(&mut self) -> Option<usize> {
        let steps = &self.trajectory.steps;
        let is_open = |index: &usize| steps[*index].observation.is_none();
        let found = (self.first_open_step..steps.len()).find(is_open);
        self.first_open_step = found.unwrap_or(steps.len());
        found
    }

    /// Records that a step started a subagent. A later record of the step names the subagent again.
    pub(crate) fn add_subagent(&mut self, step_index: u32, key: String) {
        if !self.subagents.iter().any(|start| start.step_index == step_index && start.key == key) {
            self.subagents.push(SubagentStart { step_index, key });
        }
    }

    /// Adds a defect, once, for a record in the turn or before it that could not be read.
    pub(crate) fn mark_unreadable_record(&mut self) {
        let defects = &mut self.trajectory.defects;
        if !defects.iter().any(|defect| defect.kind == DefectKind::UnreadableRecord) {
            let detail = "a record in this turn, or in the one before, could not be read";
            defects.push(ExtractionDefect::new(DefectKind::UnreadableRecord, detail, None));
        }
    }

    /// Whether there is an answer, and no call after it.
    pub(crate) fn has_answer(&self) -> bool {
        let is_last = self.trajectory.steps.len() == self.reply.first_step;
        is_last && (self.trajectory.final_answer.is_some() || self.reply.thought().is_some())
    }

    /// Whether another text fits into the turn. Marks the turn as cut if not, because the text is left out.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.text_bytes.saturating_add(bytes) <= MAX_TURN_BYTES;
        self.is_cut |= !has_room;
        has_room
    }

    /// Gives the texts of the reply to its steps, or makes them the answer so far.
    pub(crate) fn end_reply(&mut self) {
        let steps = self.trajectory.steps.len();
        self.count_reply_usage();
        let thought = self.reply.thought();
        if steps > self.reply.first_step {
            // Parallel calls share their thought. Many calls with a long one must not multiply it without a limit.
            for index in self.reply.first_step..steps {
                let bytes = thought.as_ref().map_or(0, String::len);
                if self.has_room(bytes) {
                    self.text_bytes += bytes;
                    self.trajectory.steps[index].thought.clone_from(&thought);
                }
            }
            (self.trajectory.final_answer, self.trajectory.final_thought) = (None, None);
            self.reply = ReplyDraft { first_step: steps, ..ReplyDraft::default() };
        } else if thought.is_some() {
            // Its texts stay: a reply that follows without a result between continues it.
            self.trajectory.final_thought = self.reply.separate_reasoning(thought.as_deref());
            self.trajectory.final_answer = thought;
        }
    }

    pub(crate) fn count_reply_usage(&mut self) {
        if let Some((tokens, model, cost_usd)) = self.reply.usage.take() {
            self.count_usage(tokens, model, cost_usd);
        }
    }

    pub(crate) fn count_usage(&mut self, tokens: TokenUsage, model: Option<String>, cost_usd: Option<f64>) {
        self.trajectory.tokens += tokens;
        if let Some(step) = self.trajectory.steps.get_mut(self.reply.first_step) {
            step.tokens += tokens;
        }
        if let Some(cost) = cost_usd {
            *self.trajectory.cost_usd.get_or_insert_default() += cost;
        }
        match self.usage_by_model.iter_mut().find(|usage| usage.model == model) {
            Some(usage) => usage.tokens += tokens,
            None => self.usage_by_model.push(ModelUsage { model, tokens }),
        }
    }

    /// Returns the model that wrote most; the first one of equal ones.
    pub(crate) fn main_model(&self) -> Option<String> {
        let most = self.usage_by_model.iter().rev().max_by_key(|usage| usage.tokens.completion)?;
        most.model.clone()
    }
}

impl ReplyDraft {
    /// Returns what the model said before it acted: its text, otherwise its reasoning.
    pub(crate) fn thought(&self) -> Option<String> {
        let text = self.texts.join("\n");
        let (think, rest) = split_think(&text);
        let spoken = rest.trim();
        if !spoken.is_empty() {
            return Some(spoken.to_owned());
        }
        think.map(str::to_owned).or_else(|| self.joined_reasoning())
    }

    /// Returns the reasoning if it differs from the text.
    pub(crate) fn separate_reasoning(&self, text: Option<&str>) -> Option<String> {
        let texts = self.texts.join("\n");
        let reasoning = split_think(&texts).0.map(str::to_owned).or_else(|| self.joined_reasoning());
        reasoning.filter(|reasoning| Some(reasoning.as_str()) != text)
    }

    pub(crate) fn joined_reasoning(&self) -> Option<String> {
        let reasoning = self.reasoning.join("\n");
        Some(reasoning.trim().to_owned()).filter(|reasoning| !reasoning.is_empty())
    }
}

/// Returns the arguments as JSON, and as the model wrote them if they are a text.
pub(crate) fn read_arguments(arguments: Option<&ArgumentsText<'_>>) -> (Option<Json>, Option<String>) {
    match arguments {
        None => (None, None),
        Some(ArgumentsText::Json(json)) => match serde_json::from_str(json) {
            Ok(arguments) => (Some(arguments), None),
            // Nested deeper than the parser allows.
            Err(_) => (None, Some(json.as_ref().to_owned())),
        },
        Some(ArgumentsText::Text(text)) => {
            let json = serde_json::from_str::<Json>(text).ok();
            (json, Some(text.as_ref().to_owned()).filter(|text| !text.is_empty()))
        }
    }
}
