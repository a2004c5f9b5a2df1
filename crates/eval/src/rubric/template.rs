//! Prompt templates: text with `{variable}` places. A template is split once; what is filled in is never read again,
//! so braces in data are only braces.

/// What can stand in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
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
}

const ALL: [Variable; 10] = [
    Variable::OriginalQuestion,
    Variable::Thought,
    Variable::ToolCall,
    Variable::ActionInput,
    Variable::Observation,
    Variable::PreviousSteps,
    Variable::ThoughtSequence,
    Variable::ToolSequence,
    Variable::FinalAnswer,
    Variable::ToolDefinitions,
];

impl Variable {
    pub fn name(self) -> &'static str {
        match self {
            Variable::OriginalQuestion => "original_question",
            Variable::Thought => "thought",
            Variable::ToolCall => "tool_call",
            Variable::ActionInput => "action_input",
            Variable::Observation => "observation",
            Variable::PreviousSteps => "previous_steps",
            Variable::ThoughtSequence => "thought_sequence",
            Variable::ToolSequence => "tool_sequence",
            Variable::FinalAnswer => "final_answer",
            Variable::ToolDefinitions => "tool_definitions",
        }
    }

    pub fn from_name(name: &str) -> Option<Variable> {
        ALL.into_iter().find(|variable| variable.name() == name)
    }

    pub(super) fn all_names() -> String {
        ALL.map(Variable::name).join(", ")
    }

    /// Whether it belongs to one step and not to the whole trajectory.
    pub fn is_of_step(self) -> bool {
        matches!(
            self,
            Variable::Thought
                | Variable::ToolCall
                | Variable::ActionInput
                | Variable::Observation
                | Variable::PreviousSteps
        )
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    Variable(Variable),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub pieces: Vec<Piece>,
}

#[derive(Debug, thiserror::Error)]
#[error("line {line} of the prompt uses `{{{name}}}`, which is no variable; there are {known}", known = Variable::all_names())]
pub struct TemplateError {
    name: String,
    line: usize,
}

impl Template {
    /// Splits a prompt. `{name}` and `{{name}}` are places when the name is one of ours; a name that is none of ours
    /// is an error; braces around anything else (JSON, code) are text.
    pub(super) fn parse(prompt: &str) -> Result<Template, TemplateError> {
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
            let is_place = !name.is_empty()
                && after.starts_with(close)
                && !name.starts_with(|c: char| c.is_ascii_digit());
            if !is_place {
                let kept = if double { "{{" } else { "{" };
                text.push_str(kept);
                rest = inner;
                continue;
            }
            let Some(variable) = Variable::from_name(name) else {
                let line = prompt[..prompt.len() - rest.len()].matches('\n').count() + 1;
                return Err(TemplateError { name: name.to_owned(), line });
            };
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Variable(variable));
            rest = &after[close.len()..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Template { pieces })
    }

    pub fn variables(&self) -> impl Iterator<Item = Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(*variable),
            Piece::Text(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_once_and_keeps_other_braces() {
        let template =
            Template::parse("a {thought} {\"json\": {}} {{tool_call}} {} {1} f{").expect("a template");
        let text = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(
            template.pieces,
            [
                text("a "),
                Piece::Variable(Variable::Thought),
                text(" {\"json\": {}} "),
                Piece::Variable(Variable::ToolCall),
                text(" {} {1} f{")
            ]
        );
    }

    #[test]
    fn names_the_line_of_an_unknown_variable() {
        let error = Template::parse("a\nb {question}").expect_err("unknown");
        assert!(error.to_string().starts_with("line 2 of the prompt uses `{question}`"), "{error}");
    }
}
