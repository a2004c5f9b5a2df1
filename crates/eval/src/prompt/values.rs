//! Values of a rubric's variables for one case.

use std::borrow::Cow;

use gradus_core::trajectory::TrajectoryStep;

use super::conversation::ConversationValue;
use super::recording::{EntryField, PromptEntry, QuotedText, write_entries};
use super::shorten::{TruncatedValue, compute_size_limit};
use super::tool_selection::ToolListing;
use super::{EvaluationCase, MAX_EARLIER_RESULT_BYTES, RubricVariable};

const NOT_RECORDED: &str = "(not recorded)";
const NO_THOUGHT: &str = "(no thought)";
/// Maximum bytes shown of the result of a failed call: messages often have their reason at the end.
const MAX_FAILURE_BYTES: usize = 2_000;
/// The tool of the last row: the agent thought, and then it answered.
const NO_TOOL: &str = "(No tool used)";

/// Whether the trace recorded a non-blank value, for the `requires` of a rubric.
pub(super) fn is_value_recorded(variable: RubricVariable, case: &EvaluationCase<'_>) -> bool {
    let has = |text: Option<&str>| text.is_some_and(|text| !text.trim().is_empty());
    let step = case.step.and_then(|step| case.trajectory.steps.get(step));
    match variable {
        RubricVariable::OriginalQuestion => has(case.trajectory.query.as_deref()),
        RubricVariable::Thought => has(find_case_thought(case)),
        RubricVariable::ToolCall => has(step.map(|step| step.tool.as_str())),
        RubricVariable::ActionInput => {
            step.is_some_and(|step| step.arguments.is_some() || step.arguments_raw.is_some())
        }
        RubricVariable::Observation => has(step.and_then(|step| step.observation.as_deref())),
        RubricVariable::PreviousSteps => case.step.is_some_and(|step| step > 0),
        RubricVariable::ThoughtSequence => case.trajectory.steps.iter().any(|step| has(step.thought.as_deref())),
        RubricVariable::ToolSequence | RubricVariable::StepSequence => !case.trajectory.steps.is_empty(),
        RubricVariable::FailedCalls => case.trajectory.steps.iter().any(may_have_failed),
        RubricVariable::NextStep => build_next_step(case).is_some(),
        RubricVariable::FinalAnswer => has(case.trajectory.final_answer.as_deref()),
        RubricVariable::ToolDefinitions => !case.tools.tools().is_empty(),
        RubricVariable::SystemPrompt => has(case.trajectory.system_prompt.as_deref()),
        RubricVariable::Conversation => !case.trajectory.earlier_turns.is_empty(),
        RubricVariable::FinalThought => has(case.trajectory.final_thought.as_deref()),
        RubricVariable::ReferenceAnswer => has(case.trajectory.reference_answer.as_deref()),
    }
}

/// Returns the thought that a question is about: that of its step, or the one before the final answer.
fn find_case_thought<'t>(case: &EvaluationCase<'t>) -> Option<&'t str> {
    let trajectory = case.trajectory;
    if case.is_final_thought() {
        return trajectory.final_thought.as_deref();
    }
    case.step.and_then(|step| trajectory.steps.get(step)).and_then(|step| step.thought.as_deref())
}

/// A value before it is shortened.
enum PromptValue<'t> {
    Text(QuotedText<'t>),
    /// Nothing was recorded. Our own text replaces it, outside of any quotation.
    Absent(&'static str),
    Entries(Vec<PromptEntry<'t>>),
    Tools(ToolListing<'t>),
    Conversation(ConversationValue<'t>),
}

impl PromptValue<'_> {
    /// Bytes in the prompt if nothing is left out.
    fn len(&self) -> usize {
        match self {
            PromptValue::Text(recording) => recording.len(),
            PromptValue::Absent(note) => note.len(),
            PromptValue::Entries(entries) => entries.iter().map(|entry| entry.len() + 1).sum(),
            PromptValue::Tools(tools) => tools.len(),
            PromptValue::Conversation(conversation) => conversation.len(),
        }
    }

    /// Writes the value for a prompt, in at most `room` bytes. A value that is cut is added to `shortened`.
    fn write(&self, variable: RubricVariable, room: usize, shortened: &mut Vec<TruncatedValue>) -> String {
        let mut is_cut = self.len() > room;
        let text = match self {
            PromptValue::Text(recording) => {
                let mut out = String::with_capacity(recording.len().min(room));
                recording.write_quoted(&mut out, room);
                out
            }
            PromptValue::Absent(note) => (*note).to_owned(),
            PromptValue::Entries(entries) => write_entries(entries, room),
            PromptValue::Tools(tools) => tools.write(room),
            PromptValue::Conversation(conversation) => {
                let (text, has_left_out) = conversation.write(room);
                is_cut = has_left_out;
                text
            }
        };
        if is_cut {
            let variable = variable.name().to_owned();
            shortened.push(TruncatedValue { variable, shown_bytes: text.len(), total_bytes: self.len() });
        }
        text
    }
}

/// Returns the values of these variables, shortened so that together they take at most `room` bytes.
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
        RubricVariable::Thought => text(find_case_thought(case)),
        RubricVariable::ToolCall if case.is_final_thought() => PromptValue::Absent(NO_TOOL),
        RubricVariable::ToolCall => text(step.map(|step| step.tool.as_str())),
        RubricVariable::Observation => text(step.and_then(|step| step.observation.as_deref())),
        RubricVariable::ActionInput => match step.map(TrajectoryStep::arguments_text) {
            None if !case.is_final_thought() => PromptValue::Absent(NOT_RECORDED),
            None | Some(None) => PromptValue::Absent("(none)"),
            Some(Some(arguments)) => PromptValue::Text(QuotedText::new(arguments)),
        },
        RubricVariable::ToolDefinitions => match case.tools.tools() {
            tools if tools.is_empty() => PromptValue::Absent(NOT_RECORDED),
            tools => PromptValue::Tools(ToolListing::new(tools, trajectory)),
        },
        RubricVariable::SystemPrompt => match trajectory.system_prompt.as_deref() {
            Some(prompt) if !prompt.trim().is_empty() => PromptValue::Text(QuotedText::new(prompt)),
            _ => PromptValue::Absent("(none recorded)"),
        },
        RubricVariable::Conversation => ConversationValue::from_trajectory(trajectory)
            .map_or(PromptValue::Absent("(nothing: this is the first turn)"), PromptValue::Conversation),
        RubricVariable::FinalThought => text(trajectory.final_thought.as_deref()),
        RubricVariable::ReferenceAnswer => match trajectory.reference_answer.as_deref() {
            Some(reference) if !reference.trim().is_empty() => PromptValue::Text(QuotedText::new(reference)),
            _ => PromptValue::Absent("(none is known)"),
        },
        RubricVariable::ThoughtSequence => steps(|step| vec![thought_field("", step)], usize::MAX),
        RubricVariable::ToolSequence => steps(call_fields, usize::MAX),
        RubricVariable::StepSequence => match trajectory.steps.as_slice() {
            [] => PromptValue::Absent("(the agent called no tool)"),
            _ => steps(earlier_step_fields, usize::MAX),
        },
        RubricVariable::FailedCalls => {
            let failed = trajectory.steps.iter().filter(|step| may_have_failed(step));
            let entries = failed.map(|step| PromptEntry::new("step", step.index as usize, result_fields(step)));
            match entries.collect::<Vec<_>>() {
                entries if entries.is_empty() => PromptValue::Absent("(none)"),
                entries => PromptValue::Entries(entries),
            }
        }
        RubricVariable::NextStep => match build_next_step(case) {
            Some(entry) => PromptValue::Entries(vec![entry]),
            None => PromptValue::Absent(NOT_RECORDED),
        },
        RubricVariable::PreviousSteps => match case.step {
            // A later turn of a conversation is not the beginning: `{conversation}` has what came before.
            None | Some(0) if !trajectory.earlier_turns.is_empty() => PromptValue::Absent("(nothing in this turn)"),
            None | Some(0) => PromptValue::Absent("(nothing: this is the first step)"),
            Some(step) => steps(earlier_step_fields, step),
        },
    }
}

/// Builds the entry of what the agent did with a result: its next reply, which is a call or the answer. Calls of the
/// same reply as the judged one were made before the result was known. `None` if nothing follows.
fn build_next_step<'t>(case: &EvaluationCase<'t>) -> Option<PromptEntry<'t>> {
    let trajectory = case.trajectory;
    let after = trajectory.steps.get(case.step? + 1..)?;
    if let Some(step) = after.iter().find(|step| !step.parallel_with_previous) {
        let mut fields = vec![thought_field("thought", step)];
        fields.extend(call_fields(step));
        return Some(PromptEntry::new("step", step.index as usize, fields));
    }
    let text = |text: &'t Option<String>| text.as_deref().filter(|text| !text.trim().is_empty()).map(Cow::Borrowed);
    let (thought, answer) = (text(&trajectory.final_thought), text(&trajectory.final_answer));
    if thought.is_none() && answer.is_none() {
        return None;
    }
    let number = trajectory.steps.last().map_or(0, |step| step.index) as usize + 1;
    let fields = vec![
        EntryField::new("thought", thought, NO_THOUGHT),
        EntryField::new("tool", None, NO_TOOL),
        EntryField::new("answer", answer, NOT_RECORDED),
    ];
    Some(PromptEntry::new("step", number, fields))
}

/// Whether a call failed, or its result begins like an error. This only decides what a judge is asked about, so it
/// errs towards too many calls: many frameworks report errors as ordinary text.
fn may_have_failed(step: &TrajectoryStep) -> bool {
    const WORDS: [&str; 8] = ["error", "exception", "failed", "failure", "not found", "invalid", "denied", "traceback"];
    let Some(observation) = step.observation.as_deref() else { return step.is_error };
    let mut end = observation.len().min(200);
    while !observation.is_char_boundary(end) {
        end -= 1;
    }
    let beginning = observation[..end].to_lowercase();
    step.is_error || beginning.trim().is_empty() || WORDS.iter().any(|word| beginning.contains(word))
}

/// Returns the fields of a call, with more of its result than for an earlier step.
fn result_fields(step: &TrajectoryStep) -> Vec<EntryField<'_>> {
    let result = EntryField::new("result", step.observation.as_deref().map(Cow::Borrowed), NOT_RECORDED);
    let mut fields = call_fields(step);
    fields.push(result.with_max_bytes(MAX_FAILURE_BYTES));
    fields
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

/// Returns the fields of an earlier step as context. Its result is cut so that a long history fits.
fn earlier_step_fields(step: &TrajectoryStep) -> Vec<EntryField<'_>> {
    let result = if step.is_error { "result (the call failed)" } else { "result" };
    let result = EntryField::new(result, step.observation.as_deref().map(Cow::Borrowed), NOT_RECORDED);
    vec![
        thought_field("thought", step),
        EntryField::new("tool", Some(Cow::Borrowed(step.tool.as_str())), NOT_RECORDED),
        EntryField::new("arguments", step.arguments_text(), "(none)"),
        result.with_max_bytes(MAX_EARLIER_RESULT_BYTES),
    ]
}
