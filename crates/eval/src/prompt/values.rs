//! What stands for a rubric's variables in one case.

use std::borrow::Cow;

use gradus_core::trajectory::Step;

use super::recording::{Entry, EntryField, Recording, write_entries};
use super::shorten::{Shortened, share};
use super::{Case, Variable, tools};

const NOT_RECORDED: &str = "(not recorded)";
const NO_THOUGHT: &str = "(no thought)";
/// How much of a result is shown of each earlier step; the thought that followed says what mattered of it.
const MAX_EARLIER_RESULT_BYTES: usize = 400;

pub(super) fn is_there(variable: Variable, case: &Case<'_>) -> bool {
    let has = |text: Option<&str>| text.is_some_and(|text| !text.trim().is_empty());
    let step = case.step.and_then(|step| case.trajectory.steps.get(step));
    match variable {
        Variable::OriginalQuestion => has(case.trajectory.query.as_deref()),
        Variable::Thought => has(step.and_then(|step| step.thought.as_deref())),
        Variable::ToolCall => has(step.map(|step| step.tool.as_str())),
        Variable::ActionInput => {
            step.is_some_and(|step| step.arguments.is_some() || step.arguments_raw.is_some())
        }
        Variable::Observation => has(step.and_then(|step| step.observation.as_deref())),
        Variable::PreviousSteps => case.step.is_some_and(|step| step > 0),
        Variable::ThoughtSequence | Variable::ToolSequence => !case.trajectory.steps.is_empty(),
        Variable::FinalAnswer => has(case.trajectory.final_answer.as_deref()),
        Variable::ToolDefinitions => !case.tools.tools().is_empty(),
    }
}

/// One value in the making.
enum Value<'t> {
    Text(Recording<'t>),
    /// Nothing was recorded; this is said in its place, outside of any quotation.
    Absent(&'static str),
    Entries(Vec<Entry<'t>>),
}

impl Value<'_> {
    fn len(&self) -> usize {
        match self {
            Value::Text(recording) => recording.len(),
            Value::Absent(note) => note.len(),
            Value::Entries(entries) => entries.iter().map(|entry| entry.len() + 1).sum(),
        }
    }

    /// The value as it stands in a prompt, no longer than this.
    fn write(&self, variable: Variable, room: usize, shortened: &mut Vec<Shortened>) -> String {
        let text = match self {
            Value::Text(recording) => {
                let mut out = String::with_capacity(recording.len().min(room));
                recording.quote(&mut out, room);
                out
            }
            Value::Absent(note) => (*note).to_owned(),
            Value::Entries(entries) => write_entries(entries, room),
        };
        if self.len() > room {
            let variable = variable.name().to_owned();
            shortened.push(Shortened { variable, shown_bytes: text.len(), total_bytes: self.len() });
        }
        text
    }
}

/// The values of these variables, shortened so that together they fit.
pub(super) fn fill(
    variables: &[Variable],
    case: &Case<'_>,
    room: usize,
    shortened: &mut Vec<Shortened>,
) -> Vec<String> {
    let values: Vec<Value<'_>> = variables.iter().map(|variable| value(*variable, case)).collect();
    let sizes: Vec<usize> = values.iter().map(Value::len).collect();
    let each = share(&sizes, room);
    variables.iter().zip(values).map(|(variable, value)| value.write(*variable, each, shortened)).collect()
}

/// The tools on offer, which are rendered apart from the other values.
pub(super) fn tool_text(tools: &tools::ToolText, room: usize, shortened: &mut Vec<Shortened>) -> String {
    tool_value(tools).write(Variable::ToolDefinitions, room, shortened)
}

fn tool_value(tools: &tools::ToolText) -> Value<'_> {
    match tools.entries() {
        entries if entries.is_empty() => Value::Absent(NOT_RECORDED),
        entries => Value::Entries(entries),
    }
}

fn value<'t>(variable: Variable, case: &Case<'t>) -> Value<'t> {
    let trajectory = case.trajectory;
    let step = case.step.and_then(|step| trajectory.steps.get(step));
    let text = |text: Option<&'t str>| {
        text.map_or(Value::Absent(NOT_RECORDED), |text| Value::Text(Recording::new(text)))
    };
    let steps = |fields: fn(&'t Step) -> Vec<EntryField<'t>>, count: usize| {
        let steps = trajectory.steps.iter().take(count);
        Value::Entries(steps.map(|step| Entry::new("step", step.index as usize, fields(step))).collect())
    };
    match variable {
        Variable::OriginalQuestion => text(trajectory.query.as_deref()),
        Variable::FinalAnswer => text(trajectory.final_answer.as_deref()),
        Variable::Thought => text(step.and_then(|step| step.thought.as_deref())),
        Variable::ToolCall => text(step.map(|step| step.tool.as_str())),
        Variable::Observation => text(step.and_then(|step| step.observation.as_deref())),
        Variable::ActionInput => match step.map(Step::arguments_text) {
            None => Value::Absent(NOT_RECORDED),
            Some(None) => Value::Absent("(none)"),
            Some(Some(arguments)) => Value::Text(Recording::new(arguments)),
        },
        Variable::ToolDefinitions => tool_value(case.tools),
        Variable::ThoughtSequence => steps(|step| vec![thought_field("", step)], usize::MAX),
        Variable::ToolSequence => steps(call_fields, usize::MAX),
        Variable::PreviousSteps => match case.step {
            None | Some(0) => Value::Absent("(nothing: this is the first step)"),
            Some(step) => steps(whole_step, step),
        },
    }
}

fn thought_field<'t>(name: &'static str, step: &'t Step) -> EntryField<'t> {
    EntryField::new(name, step.thought.as_deref().map(Cow::Borrowed), NO_THOUGHT)
}

fn call_fields(step: &Step) -> Vec<EntryField<'_>> {
    let tool = if step.is_error { "tool (the call failed)" } else { "tool" };
    vec![
        EntryField::new(tool, Some(Cow::Borrowed(step.tool.as_str())), NOT_RECORDED),
        EntryField::new("arguments", step.arguments_text(), "(none)"),
    ]
}

fn whole_step(step: &Step) -> Vec<EntryField<'_>> {
    let result = if step.is_error { "result (the call failed)" } else { "result" };
    let result = EntryField::new(result, step.observation.as_deref().map(Cow::Borrowed), NOT_RECORDED);
    vec![
        thought_field("thought", step),
        EntryField::new("tool", Some(Cow::Borrowed(step.tool.as_str())), NOT_RECORDED),
        EntryField::new("arguments", step.arguments_text(), "(none)"),
        result.with_max_bytes(MAX_EARLIER_RESULT_BYTES),
    ]
}
