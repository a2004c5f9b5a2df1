//! Scripts: the thoughts, tool calls and final message of a scripted agent. Oracles, alternatives and planted mistakes
//! are scripts, so that a run with a known truth costs no model call.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::template::{self, ScriptTemplateError};

/// Steps and the final message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentScript {
    /// May be empty: some tasks are solved by an answer or a question alone.
    #[serde(default)]
    pub steps: Vec<ScriptStep>,
    /// The final message; a template.
    pub answer: String,
}

/// One step of a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptStep {
    /// A template.
    pub thought: String,
    pub tool: String,
    /// Strings in it are templates.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// The next message of a scripted agent, with templates filled in.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptReply {
    /// The next step with its arguments.
    Call {
        thought: String,
        tool: String,
        arguments: Value,
    },
    Answer(String),
}

impl AgentScript {
    /// Returns the reply after `played` steps with these observations. After the last step it is always the final
    /// message. It depends on nothing else, so that an interrupted run resumes at the same reply.
    pub fn reply_at(&self, played: usize, observations: &[Value]) -> Result<ScriptReply, ScriptTemplateError> {
        let Some(step) = self.steps.get(played) else {
            return Ok(ScriptReply::Answer(template::fill_text(&self.answer, observations)?));
        };
        Ok(ScriptReply::Call {
            thought: template::fill_text(&step.thought, observations)?,
            tool: step.tool.clone(),
            arguments: template::fill_template(&Value::Object(step.arguments.clone()), observations)?,
        })
    }

    /// Inserts a step so that it becomes step `at` (from 0), and adjusts the step numbers in later templates.
    pub fn insert(&mut self, at: usize, step: ScriptStep) {
        // Numbers count from 1, so that number `at` is the last step before the new one.
        let moved = |number: usize| if number > at { number + 1 } else { number };
        for later in self.steps.iter_mut().skip(at) {
            later.renumber(&moved);
        }
        self.answer = template::renumber_text(&self.answer, &moved);
        self.steps.insert(at, step);
    }

    /// Whether a later step uses the observation of step `at` (from 0). A flaw that drops or repeats a step must not
    /// break later ones.
    pub fn is_used_by_later_step(&self, at: usize) -> bool {
        self.steps.iter().skip(at + 1).any(|later| later.uses_observation_of(at + 1))
    }
}

impl ScriptStep {
    /// Whether thought or arguments use the observation of `step` (from 1).
    fn uses_observation_of(&self, step: usize) -> bool {
        template::list_steps_in_text(&self.thought).contains(&step)
            || template::list_referenced_steps(&Value::Object(self.arguments.clone())).contains(&step)
    }

    fn renumber(&mut self, number: &dyn Fn(usize) -> usize) {
        self.thought = template::renumber_text(&self.thought, number);
        for value in self.arguments.values_mut() {
            *value = template::renumber_steps(value, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(thought: &str, tool: &str, arguments: &Value) -> ScriptStep {
        ScriptStep {
            thought: thought.into(),
            tool: tool.into(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
        }
    }

    #[test]
    fn goes_on_where_it_was() {
        let script = AgentScript {
            steps: vec![
                step("Look.", "read_file", &json!({"path": "a"})),
                step("Write {{1.sha}}.", "w", &json!({"sha": "{{1.sha}}"})),
            ],
            answer: "Done: {{2.number}}".into(),
        };
        let seen = [json!({"sha": "f00"}), json!({"number": 4})];
        let second = script.reply_at(1, &seen[..1]).expect("a line");
        assert_eq!(
            second,
            ScriptReply::Call { thought: "Write f00.".into(), tool: "w".into(), arguments: json!({"sha": "f00"}) }
        );
        assert_eq!(script.reply_at(2, &seen).expect("an answer"), ScriptReply::Answer("Done: 4".into()));
        assert!(script.reply_at(1, &[]).is_err(), "what was not seen cannot be used");
        assert!(script.is_used_by_later_step(0) && !script.is_used_by_later_step(1));
    }

    #[test]
    fn a_step_put_in_moves_the_numbers_behind_it() {
        let mut script = AgentScript {
            steps: vec![
                step("", "a", &json!({})),
                step("", "b", &json!({"x": "{{1.x}}"})),
                step("", "c", &json!({"x": "{{1.x}} {{2.y}}"})),
            ],
            answer: "{{2.y}}{{3.z}}".into(),
        };
        script.insert(1, step("", "new", &json!({"x": "{{1.x}}"})));
        assert_eq!(script.steps[1].arguments["x"], "{{1.x}}");
        assert_eq!(script.steps[2].arguments["x"], "{{1.x}}");
        assert_eq!(script.steps[3].arguments["x"], "{{1.x}} {{3.y}}");
        assert_eq!(script.answer, "{{3.y}}{{4.z}}");
        assert!(!script.is_used_by_later_step(1) && script.is_used_by_later_step(2));
    }
}
