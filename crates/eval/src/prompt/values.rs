//! What stands for a rubric's variables in one case.

use std::borrow::Cow;

use gradus_core::trajectory::Step;

use super::shorten::{self, Shortened};
use super::{Case, Variable};

const NOT_RECORDED: &str = "(not recorded)";
/// How much of a result is shown of each earlier step; the thought that followed says what mattered of it.
const EARLIER_RESULT: usize = 400;

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

/// One value in the making: whole, or lines that can be cut one by one.
enum Value<'t> {
    Text(Cow<'t, str>),
    Steps(Vec<String>),
}

impl Value<'_> {
    fn len(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Steps(lines) => lines.iter().map(|line| line.len() + 1).sum(),
        }
    }
}

/// The values of these variables, shortened so that together they fit.
pub(super) fn fill<'t>(
    variables: &[Variable],
    case: &Case<'t>,
    room: usize,
    shortened: &mut Vec<Shortened>,
) -> Vec<Cow<'t, str>> {
    let values: Vec<Value<'t>> = variables.iter().map(|variable| value(*variable, case)).collect();
    let sizes: Vec<usize> = values.iter().map(Value::len).collect();
    let each = shorten::share(&sizes, room);
    let fit = |(variable, value): (&Variable, Value<'t>)| match value {
        Value::Text(Cow::Borrowed(text)) => shorten::shorten(*variable, text, each, shortened),
        Value::Text(Cow::Owned(text)) => {
            Cow::Owned(shorten::shorten(*variable, &text, each, shortened).into_owned())
        }
        Value::Steps(lines) => {
            let total_bytes = lines.iter().map(|line| line.len() + 1).sum();
            let text = shorten::steps(&lines, each);
            if text.len() + 1 < total_bytes {
                let variable = variable.name().to_owned();
                shortened.push(Shortened { variable, shown_bytes: text.len(), total_bytes });
            }
            Cow::Owned(text)
        }
    };
    variables.iter().zip(values).map(fit).collect()
}

fn value<'t>(variable: Variable, case: &Case<'t>) -> Value<'t> {
    let trajectory = case.trajectory;
    let step = case.step.and_then(|step| trajectory.steps.get(step));
    let text = |text: Option<&'t str>| Value::Text(Cow::Borrowed(text.unwrap_or(NOT_RECORDED)));
    match variable {
        Variable::OriginalQuestion => text(trajectory.query.as_deref()),
        Variable::FinalAnswer => text(trajectory.final_answer.as_deref()),
        Variable::Thought => text(step.and_then(|step| step.thought.as_deref())),
        Variable::ToolCall => text(step.map(|step| step.tool.as_str())),
        Variable::Observation => text(step.and_then(|step| step.observation.as_deref())),
        Variable::ActionInput => Value::Text(step.map_or(Cow::Borrowed(NOT_RECORDED), arguments)),
        Variable::ToolDefinitions => text(Some(case.tools.text())),
        Variable::ThoughtSequence => Value::Steps(trajectory.steps.iter().map(thought_line).collect()),
        Variable::ToolSequence => Value::Steps(trajectory.steps.iter().map(call_line).collect()),
        Variable::PreviousSteps => match case.step {
            None | Some(0) => text(Some("(nothing: this is the first step)")),
            Some(step) => Value::Steps(trajectory.steps.iter().take(step).map(whole_step).collect()),
        },
    }
}

fn arguments(step: &Step) -> Cow<'_, str> {
    step.arguments_text().unwrap_or(Cow::Borrowed("(none)"))
}

fn thought_line(step: &Step) -> String {
    format!("Step {}: {}", step.index, step.thought.as_deref().unwrap_or("(no thought)"))
}

fn call_line(step: &Step) -> String {
    let failed = if step.is_error { " (failed)" } else { "" };
    format!("Step {}: {} - {}{failed}", step.index, step.tool, arguments(step))
}

fn whole_step(step: &Step) -> String {
    let result = match &step.observation {
        Some(text) => shorten::cut(text, EARLIER_RESULT),
        None => NOT_RECORDED.to_owned(),
    };
    let how = if step.is_error { "failed" } else { "returned" };
    format!(
        "Step {}: {} | called {} with {} | it {how}: {result}",
        step.index,
        step.thought.as_deref().unwrap_or("(no thought)"),
        step.tool,
        arguments(step)
    )
}
