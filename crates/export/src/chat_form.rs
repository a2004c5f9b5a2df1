//! Trajectories as chat messages with tool calls.

use std::io::{self, Write};

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use serde_json::{Map, Value as Json, json};

use crate::graded_runs::{GradedRun, GradedRuns, split_replies};

/// Which libraries and services read the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatShape {
    /// Hugging Face TRL: tools as one JSON text, because Arrow would merge their schemas.
    #[default]
    Trl,
    /// OpenAI, Fireworks and Together: tools as a list, `parallel_tool_calls`.
    OpenAi,
}

/// How the arguments of calls are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentForm {
    /// As an object, which chat templates expect.
    Object,
    /// As JSON text, as OpenAI's API has it.
    Text,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatForm {
    pub shape: ChatShape,
    pub arguments: ArgumentForm,
}

impl ChatForm {
    /// Returns the form that readers of this shape expect.
    pub fn for_shape(shape: ChatShape) -> Self {
        let arguments = match shape {
            ChatShape::Trl => ArgumentForm::Object,
            ChatShape::OpenAi => ArgumentForm::Text,
        };
        ChatForm { shape, arguments }
    }

    /// Returns the system prompt as the first message, if there is one.
    pub(crate) fn system_message(trajectory: &Trajectory) -> Option<Json> {
        trajectory.system_prompt.as_deref().map(|prompt| json!({"role": "system", "content": prompt}))
    }

    /// Returns all messages of one turn: request, replies, results, answer.
    pub(crate) fn turn_messages(self, trajectory: &Trajectory) -> Vec<Json> {
        let mut messages = self.messages_before(trajectory, u32::MAX);
        if let Some(answer) = &trajectory.final_answer {
            messages.push(json!({"role": "assistant", "content": answer}));
        }
        messages
    }

    /// Returns the messages of a turn before the reply that made this step.
    pub(crate) fn messages_before(self, trajectory: &Trajectory, step_index: u32) -> Vec<Json> {
        let mut messages = Vec::new();
        if let Some(query) = &trajectory.query {
            messages.push(json!({"role": "user", "content": query}));
        }
        for reply in split_replies(&trajectory.steps) {
            if reply.iter().any(|step| step.index >= step_index) {
                break;
            }
            messages.push(self.reply_message(reply, true));
            messages.extend(reply.iter().map(result_message));
        }
        messages
    }

    /// Returns one reply of the model: its thought, and its calls.
    pub(crate) fn reply_message(self, reply: &[TrajectoryStep], with_thought: bool) -> Json {
        let thought = reply.first().and_then(|step| step.thought.as_deref()).filter(|_| with_thought);
        let calls: Vec<Json> = reply.iter().map(|step| self.tool_call(step)).collect();
        json!({"role": "assistant", "content": thought.unwrap_or_default(), "tool_calls": calls})
    }

    fn tool_call(self, step: &TrajectoryStep) -> Json {
        let arguments = match self.arguments {
            ArgumentForm::Object => match &step.arguments {
                Some(arguments) => arguments.clone(),
                None => step.arguments_raw.clone().map_or_else(|| Json::Object(Map::new()), Json::String),
            },
            ArgumentForm::Text => {
                Json::String(step.arguments_text().map_or("{}".to_owned(), std::borrow::Cow::into_owned))
            }
        };
        json!({"id": call_id(step), "type": "function", "function": {"name": step.tool, "arguments": arguments}})
    }

    /// Returns the available tools in the form of the shape; `None` if the record has none.
    pub(crate) fn tools_field(self, trajectory: &Trajectory) -> Option<Json> {
        let tools = tool_schemas(trajectory)?;
        Some(match self.shape {
            ChatShape::Trl => Json::String(Json::Array(tools).to_string()),
            ChatShape::OpenAi => Json::Array(tools),
        })
    }
}

/// Returns the available tools as function schemas.
pub(crate) fn tool_schemas(trajectory: &Trajectory) -> Option<Vec<Json>> {
    let schema = |tool: &gradus_core::trajectory::ToolDefinition| {
        let parameters = tool.schema.as_ref().and_then(|schema| serde_json::to_value(schema).ok());
        let parameters = parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        let description = tool.description.as_deref().unwrap_or_default();
        json!({"type": "function", "function": {"name": tool.name, "description": description, "parameters": parameters}})
    };
    (!trajectory.tools.is_empty()).then(|| trajectory.tools.iter().map(schema).collect())
}

/// Returns the id of a call, or one made from its position if the record has none.
pub(crate) fn call_id(step: &TrajectoryStep) -> String {
    step.tool_call_id.clone().unwrap_or_else(|| format!("call_{}", step.index))
}

pub(crate) fn result_message(step: &TrajectoryStep) -> Json {
    let content = step.observation.as_deref().unwrap_or_default();
    json!({"role": "tool", "tool_call_id": call_id(step), "name": step.tool, "content": content})
}

/// Returns the turns before a run as messages, the system prompt first.
pub(crate) fn context_messages(runs: &GradedRuns, run: &GradedRun, form: ChatForm) -> Vec<Json> {
    let mut messages: Vec<Json> = ChatForm::system_message(&run.trajectory).into_iter().collect();
    for turn in runs.earlier_turns(run) {
        messages.extend(form.turn_messages(&turn.trajectory));
    }
    messages
}

/// Writes one row for each conversation: its messages, its tools, its ids. Returns the number of rows.
pub fn write_message_rows(runs: &GradedRuns, form: ChatForm, out: &mut dyn Write) -> io::Result<u64> {
    let mut rows = 0;
    for turns in runs.conversations() {
        let Some(first) = turns.first() else { continue };
        let mut messages: Vec<Json> = ChatForm::system_message(&first.trajectory).into_iter().collect();
        for turn in &turns {
            messages.extend(form.turn_messages(&turn.trajectory));
        }
        let mut row = json!({"id": first.trajectory.trajectory_id, "messages": messages});
        if let Some(tools) = form.tools_field(&first.trajectory) {
            row["tools"] = tools;
        }
        if let Some(session) = &first.trajectory.session_id {
            row["session_id"] = json!(session);
        }
        writeln!(out, "{row}")?;
        rows += 1;
    }
    Ok(rows)
}
