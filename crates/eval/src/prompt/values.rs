//! Values of a rubric's variables for one case.

use std::borrow::Cow;

use gradus_core::trajectory::TrajectoryStep;

use super::recording::{EntryField, PromptEntry, QuotedText, write_entries};
use super::shorten::{TruncatedValue, compute_size_limit};
use super::{EvaluationCase, RubricVariable, tools};

const NOT_RECORDED: &str = "(not recorded)";
const NO_THOUGHT: &str = "(no thought)";
/// How much of the result of each earlier step is shown, in bytes. The thought after it usually says what mattered.
const MAX_EARLIER_RESULT_BYTES: usize = 400;

/// Whether the trace recorded a non-blank value, for the `requires` of a rubric.
pub(super) fn is_there(variable: RubricVariable, case: &EvaluationCase<'_>) -> bool {
    let has = |text: Option<&str>| text.is_some_and(|text| !text.trim().is_empty());
    let step = case.step.and_then(|step| case.trajectory.steps.get(step));
    match variable {
        RubricVariable::OriginalQuestion => has(case.trajectory.query.as_deref()),
        RubricVariable::Thought => has(step.and_then(|step| step.thought.as_deref())),
        RubricVariable::ToolCall => has(step.map(|step| step.tool.as_str())),
        RubricVariable::ActionInput => {
            step.is_some_and(|step| step.arguments.is_some() || step.arguments_raw.is_some())
        }
        RubricVariable::Observation => has(step.and_then(|step| step.observation.as_deref())),
        RubricVariable::PreviousSteps => case.step.is_some_and(|step| step > 0),
        RubricVariable::ThoughtSequence | RubricVariable::ToolSequence => !case.trajectory.steps.is_empty(),
        RubricVariable::FinalAnswer => has(case.trajectory.final_answer.as_deref()),
        RubricVariable::ToolDefinitions => !case.tools.tools().is_empty(),
    }
}

/// A value before it is shortened.
enum PromptValue<'t> {
    Text(QuotedText<'t>),
    /// Nothing was recorded. This text of ours takes its place, outside of any quotation.
    Absent(&'static str),
    Entries(Vec<PromptEntry<'t>>),
}

impl PromptValue<'_> {
    /// Bytes in the prompt if nothing is left out.
    fn len(&self) -> usize {
        match self {
            PromptValue::Text(recording) => recording.len(),
            PromptValue::Absent(note) => note.len(),
            PromptValue::Entries(entries) => entries.iter().map(|entry| entry.len() + 1).sum(),
        }
    }

    /// The value as it stands in a prompt, in at most `room` bytes. A value that is cut is added to `shortened`.
    fn write(&self, variable: RubricVariable, room: usize, shortened: &mut Vec<TruncatedValue>) -> String {
        let text = match self {
            PromptValue::Text(recording) => {
                let mut out = String::with_capacity(recording.len().min(room));
                recording.write_quoted(&mut out, room);
                out
            }
            PromptValue::Absent(note) => (*note).to_owned(),
            PromptValue::Entries(entries) => write_entries(entries, room),
        };
        if self.len() > room {
            let variable = variable.name().to_owned();
            shortened.push(TruncatedValue { variable, shown_bytes: text.len(), total_bytes: self.len() });
        }
        text
    }
}

/// Values of these variables, shortened so that together they take at most `room` bytes.
pub(super) fn fill_variables(
    variables: &[RubricVariable],
    case: &EvaluationCase<'_>,
    room: usize,
    shortened: &mut Vec<TruncatedValue>,
) -> Vec<String> {
    let values: Vec<PromptValue<'_>> = variables.iter().map(|variable| resolve_variable(*variable, case)).collect();
    let sizes: Vec<usize> = values.iter().map(PromptValue::len).collect();
    let each = compute_size_limit(&sizes, room);
    variables.iter().zip(values).map(|(variable, value)| value.write(*variable, each, shortened)).collect()
}

/// The tool definitions, which are rendered apart because they belong to the constant part of a prompt.
pub(super) fn tool_text(tools: &tools::ToolText, room: usize, shortened: &mut Vec<TruncatedValue>) -> String {
    tool_value(tools).write(RubricVariable::ToolDefinitions, room, shortened)
}

fn tool_value(tools: &tools::ToolText) -> PromptValue<'_> {
    match tools.entries() {
        entries if entries.is_empty() => PromptValue::Absent(NOT_RECORDED),
        entries => PromptValue::Entries(entries),
    }
}

/// Collects a value without copying: everything borrows from the trajectory.
fn resolve_variable<'t>(variable: RubricVariable, case: &EvaluationCase<'t>) -> PromptValue<'t> {
    let trajectory = case.trajectory;
    let step = case.step.and_then(|step| trajectory.steps.get(step));
    let text = |text: Option<&'t str>| {
        text.map_or(PromptValue::Absent(NOT_RECORDED), |text| PromptValue::Text(QuotedText::new(text)))
    };
    let steps = |fields: fn(&'t TrajectoryStep) -> Vec<EntryField<'t>>, count: usize| {
        let steps = trajectory.steps.iter().take(count);
        PromptValue::Entries(steps.map(|step| PromptEntry::new("step", step.index as usize, fields(step))).collect())
    };
    match variable {
        RubricVariable::OriginalQuestion => text(trajectory.query.as_deref()),
        RubricVariable::FinalAnswer => text(trajectory.final_answer.as_deref()),
        RubricVariable::Thought => text(step.and_then(|step| step.thought.as_deref())),
        RubricVariable::ToolCall => text(step.map(|step| step.tool.as_str())),
        RubricVariable::Observation => text(step.and_then(|step| step.observation.as_deref())),
        RubricVariable::ActionInput => match step.map(TrajectoryStep::arguments_text) {
            None => PromptValue::Absent(NOT_RECORDED),
            Some(None) => PromptValue::Absent("(none)"),
            Some(Some(arguments)) => PromptValue::Text(QuotedText::new(arguments)),
        },
        RubricVariable::ToolDefinitions => tool_value(case.tools),
        RubricVariable::ThoughtSequence => steps(|step| vec![thought_field("", step)], usize::MAX),
        RubricVariable::ToolSequence => steps(call_fields, usize::MAX),
        RubricVariable::PreviousSteps => match case.step {
            None | Some(0) => PromptValue::Absent("(nothing: this is the first step)"),
            Some(step) => steps(whole_step, step),
        },
    }
}

fn thought_field<'t>(name: &'static str, step: &'t TrajectoryStep) -> EntryField<'t> {
    EntryField::new(name, step.thought.as_deref().map(Cow::Borrowed), NO_THOUGHT)
}

fn call_fields(step: &TrajectoryStep) -> Vec<EntryField<'_>> {
    let tool = if step.is_error { "tool (the call failed)" } else { "tool" };
    vec![
        EntryField::new(tool, Some(Cow::Borrowed(step.tool.as_str())), NOT_RECORDED),
        EntryField::new("arguments", step.arguments_text(), "(none)"),
    ]
}

/// An earlier step as context. Its result is cut short so that a long history fits.
fn whole_step(step: &TrajectoryStep) -> Vec<EntryField<'_>> {
    let result = if step.is_error { "result (the call failed)" } else { "result" };
    let result = EntryField::new(result, step.observation.as_deref().map(Cow::Borrowed), NOT_RECORDED);
    vec![
        thought_field("thought", step),
        EntryField::new("tool", Some(Cow::Borrowed(step.tool.as_str())), NOT_RECORDED),
        EntryField::new("arguments", step.arguments_text(), "(none)"),
        result.with_max_bytes(MAX_EARLIER_RESULT_BYTES),
    ]
}
