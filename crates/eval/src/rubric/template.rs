//! Prompt templates: text with `{variable}` placeholders. A template is split once, and filled-in values are never
//! parsed again, so braces in recorded data have no effect.

/// The variables of a template. Variables that Phoenix's evaluators also have use their names, so that their prompts
/// can be reused unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RubricVariable {
    OriginalQuestion,
    Thought,
    ToolCall,
    ActionInput,
    Observation,
    PreviousSteps,
    ThoughtSequence,
    ToolSequence,
    FinalAnswer,
    ToolDefinitions,
    SystemPrompt,
    Conversation,
    FinalThought,
    StepSequence,
    FailedCalls,
    NextStep,
    ReferenceAnswer,
}

const ALL: [RubricVariable; 17] = [
    RubricVariable::OriginalQuestion,
    RubricVariable::Thought,
    RubricVariable::ToolCall,
    RubricVariable::ActionInput,
    RubricVariable::Observation,
    RubricVariable::PreviousSteps,
    RubricVariable::ThoughtSequence,
    RubricVariable::ToolSequence,
    RubricVariable::FinalAnswer,
    RubricVariable::ToolDefinitions,
    RubricVariable::SystemPrompt,
    RubricVariable::Conversation,
    RubricVariable::FinalThought,
    RubricVariable::StepSequence,
    RubricVariable::FailedCalls,
    RubricVariable::NextStep,
    RubricVariable::ReferenceAnswer,
];

impl RubricVariable {
    pub fn name(self) -> &'static str {
        match self {
            RubricVariable::OriginalQuestion => "original_question",
            RubricVariable::Thought => "thought",
            RubricVariable::ToolCall => "tool_call",
            RubricVariable::ActionInput => "action_input",
            RubricVariable::Observation => "observation",
            RubricVariable::PreviousSteps => "previous_steps",
            RubricVariable::ThoughtSequence => "thought_sequence",
            RubricVariable::ToolSequence => "tool_sequence",
            RubricVariable::FinalAnswer => "final_answer",
            RubricVariable::ToolDefinitions => "tool_definitions",
            RubricVariable::SystemPrompt => "system_prompt",
            RubricVariable::Conversation => "conversation",
            RubricVariable::FinalThought => "final_thought",
            RubricVariable::StepSequence => "step_sequence",
            RubricVariable::FailedCalls => "failed_calls",
            RubricVariable::NextStep => "next_step",
            RubricVariable::ReferenceAnswer => "reference_answer",
        }
    }

    /// `None` for a name that is not a variable.
    pub fn from_name(name: &str) -> Option<RubricVariable> {
        ALL.into_iter().find(|variable| variable.name() == name)
    }

    /// For error messages.
    pub(super) fn all_names() -> String {
        ALL.map(RubricVariable::name).join(", ")
    }

    /// Whether the variable exists only for a single step. Rubrics for trajectories may not use it.
    pub fn is_step_variable(self) -> bool {
        matches!(
            self,
            RubricVariable::Thought
                | RubricVariable::ToolCall
                | RubricVariable::ActionInput
                | RubricVariable::Observation
                | RubricVariable::PreviousSteps
                | RubricVariable::NextStep
        )
    }

    /// Whether many trajectories of an agent share its value, so that it can be part of a prompt's constant beginning.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, RubricVariable::ToolDefinitions | RubricVariable::SystemPrompt)
    }
}

/// A part of a template, in order of the prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum RubricTemplatePiece {
    Text(String),
    Variable(RubricVariable),
}

/// A prompt split into literal text and placeholders. Adjacent texts are merged.
#[derive(Clone, Debug, PartialEq)]
pub struct RubricTemplate {
    pub pieces: Vec<RubricTemplatePiece>,
}

/// An unknown variable. `line` counts from 1 within the prompt, without the front matter.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the prompt uses `{{{name}}}`, which is no variable; there are {known}", known = RubricVariable::all_names())]
pub struct RubricTemplateError {
    name: String,
    line: usize,
}

impl RubricTemplate {
    /// Splits a prompt. `{name}` and `{{name}}` are placeholders if the name looks like an identifier; an unknown
    /// identifier is an error. Braces around anything else (JSON, code) are text.
    pub(super) fn parse(prompt: &str) -> Result<RubricTemplate, RubricTemplateError> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = prompt;
        while let Some(at) = rest.find('{') {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            let (double, inner) = match rest.strip_prefix("{{") {
                Some(inner) => (true, inner),
                None => (false, &rest[1..]),
            };
            let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
            let (name, after) = inner.split_at(end);
            let close = if double { "}}" } else { "}" };
            let is_place =
                !name.is_empty() && after.starts_with(close) && !name.starts_with(|c: char| c.is_ascii_digit());
            if !is_place {
                let kept = if double { "{{" } else { "{" };
                text.push_str(kept);
                rest = inner;
                continue;
            }
            let Some(variable) = RubricVariable::from_name(name) else {
                let line = prompt[..prompt.len() - rest.len()].matches('\n').count() + 1;
                return Err(RubricTemplateError { name: name.to_owned(), line });
            };
            if !text.is_empty() {
                pieces.push(RubricTemplatePiece::Text(std::mem::take(&mut text)));
            }
            pieces.push(RubricTemplatePiece::Variable(variable));
            rest = &after[close.len()..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(RubricTemplatePiece::Text(text));
        }
        Ok(RubricTemplate { pieces })
    }

    /// In order of the prompt, with repetitions.
    pub fn variables(&self) -> impl Iterator<Item = RubricVariable> {
        self.pieces.iter().filter_map(|piece| match piece {
            RubricTemplatePiece::Variable(variable) => Some(*variable),
            RubricTemplatePiece::Text(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_once_and_keeps_other_braces() {
        let template = RubricTemplate::parse("a {thought} {\"json\": {}} {{tool_call}} {} {1} f{").expect("a template");
        let text = |text: &str| RubricTemplatePiece::Text(text.to_owned());
        assert_eq!(
            template.pieces,
            [
                text("a "),
                RubricTemplatePiece::Variable(RubricVariable::Thought),
                text(" {\"json\": {}} "),
                RubricTemplatePiece::Variable(RubricVariable::ToolCall),
                text(" {} {1} f{")
            ]
        );
    }

    #[test]
    fn names_the_line_of_an_unknown_variable() {
        let error = RubricTemplate::parse("a\nb {question}").expect_err("unknown");
        assert!(error.to_string().starts_with("line 2 of the prompt uses `{question}`"), "{error}");
    }
}
