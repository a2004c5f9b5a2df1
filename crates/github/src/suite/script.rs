//! A way to do a task: calls with the thoughts before them, and a final answer. Arguments and answer are templates over
//! what earlier calls came to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::path::JsonPath;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Script {
    pub steps: Vec<ScriptStep>,
    pub answer: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptStep {
    pub thought: String,
    pub tool: String,
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("{template}: what follows is not written so: {{{{2.items.0.sha | replace: \"old\" => \"new\"}}}}")]
    Syntax { template: String },
    #[error("{template}: there is no step {step} before this one")]
    Later { template: String, step: usize },
    #[error("{template}: the observation of step {step} has nothing there")]
    Missing { template: String, step: usize },
    #[error("{template}: the text that is to be replaced is not there")]
    Unchanged { template: String },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    steps: Vec<ScriptStep>,
    answer: String,
}

impl TryFrom<Written> for Script {
    type Error = String;

    /// Templates are read once beforehand, so that a broken one is a broken file and not a broken run.
    fn try_from(written: Written) -> Result<Script, String> {
        let script = Script { steps: written.steps, answer: written.answer };
        for (index, step) in script.steps.iter().enumerate() {
            if step.thought.trim().is_empty() {
                return Err(format!("steps[{index}].thought is empty"));
            }
            for (name, value) in &step.arguments {
                check(value, index).map_err(|error| format!("steps[{index}].arguments.{name}: {error}"))?;
            }
        }
        check(&Value::String(script.answer.clone()), script.steps.len())
            .map_err(|error| format!("answer: {error}"))?;
        Ok(script)
    }
}

impl Script {
    /// The arguments of a step (from 0), with the observations of all steps before it.
    pub fn arguments(&self, step: usize, observations: &[Value]) -> Result<Value, TemplateError> {
        let arguments = self.steps.get(step).map(|step| step.arguments.clone()).unwrap_or_default();
        fill(&Value::Object(arguments), observations)
    }

    pub fn answer(&self, observations: &[Value]) -> Result<String, TemplateError> {
        fill_text(&self.answer, observations)
    }
}

/// A template: `{{step.path | replace: "a" => "b"}}`.
#[derive(Debug)]
struct Template<'t> {
    text: &'t str,
    /// From 1.
    step: usize,
    path: Option<JsonPath>,
    replacements: Vec<(String, String)>,
}

enum Piece<'t> {
    Text(&'t str),
    Template(Template<'t>),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, TemplateError> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let syntax = || TemplateError::Syntax { template: shortened(&rest[start..]) };
        let inner = &rest[start + 2..];
        let (template, after) = read(inner).ok_or_else(syntax)?;
        found.push(Piece::Text(&rest[..start]));
        let length = rest.len() - start - after.len();
        found.push(Piece::Template(Template { text: &rest[start..start + length], ..template }));
        rest = after;
    }
    found.push(Piece::Text(rest));
    Ok(found)
}

/// Reads up to the end of a template; gives what follows it.
fn read(text: &str) -> Option<(Template<'_>, &str)> {
    let end = text.find(['|', '}'])?;
    let name = text[..end].trim();
    let (step, path) = name.split_once('.').map_or((name, None), |(step, path)| (step, Some(path)));
    let step: usize = step.parse().ok().filter(|step| *step > 0)?;
    let path = path.map(JsonPath::parse).transpose().ok()?;
    let mut rest = &text[end..];
    let mut replacements = Vec::new();
    while let Some(filter) = rest.strip_prefix('|') {
        let filter = filter.trim_start().strip_prefix("replace:")?;
        let (old, filter) = quoted(filter)?;
        let (new, filter) = quoted(filter.trim_start().strip_prefix("=>")?)?;
        replacements.push((old, new));
        rest = filter.trim_start();
    }
    Some((Template { text: "", step, path, replacements }, rest.strip_prefix("}}")?))
}

/// A text in quotes, written as in JSON.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = values.next()?.ok()?;
    let used = values.byte_offset();
    Some((value, &text[used..]))
}

fn check(value: &Value, steps_before: usize) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => pieces(text)?.iter().try_for_each(|piece| match piece {
            Piece::Template(one) if one.step > steps_before => {
                Err(TemplateError::Later { template: one.text.to_owned(), step: one.step })
            }
            _ => Ok(()),
        }),
        Value::Array(items) => items.iter().try_for_each(|item| check(item, steps_before)),
        Value::Object(fields) => fields.values().try_for_each(|item| check(item, steps_before)),
        _ => Ok(()),
    }
}

fn fill(value: &Value, observations: &[Value]) -> Result<Value, TemplateError> {
    Ok(match value {
        Value::String(text) => match pieces(text)?.as_slice() {
            // Nothing but a template: the value as it is, a number stays a number.
            [Piece::Text(""), Piece::Template(only), Piece::Text("")] => only.value(observations)?,
            _ => Value::String(fill_text(text, observations)?),
        },
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill(item, observations)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let filled = fields.iter().map(|(name, item)| Ok((name.clone(), fill(item, observations)?)));
            Value::Object(filled.collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

fn fill_text(text: &str, observations: &[Value]) -> Result<String, TemplateError> {
    let mut filled = String::new();
    for piece in pieces(text)? {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Template(template) => match template.value(observations)? {
                Value::String(text) => filled.push_str(&text),
                other => filled.push_str(&other.to_string()),
            },
        }
    }
    Ok(filled)
}

impl Template<'_> {
    fn value(&self, observations: &[Value]) -> Result<Value, TemplateError> {
        let missing = || TemplateError::Missing { template: shortened(self.text), step: self.step };
        let observation = observations.get(self.step - 1).ok_or_else(missing)?;
        let mut value = match &self.path {
            Some(path) => path.find(observation).ok_or_else(missing)?,
            None => observation.clone(),
        };
        for (old, new) in &self.replacements {
            let text = value.as_str().filter(|text| text.contains(old.as_str()));
            let text = text.ok_or_else(|| TemplateError::Unchanged { template: shortened(self.text) })?;
            value = Value::String(text.replace(old.as_str(), new));
        }
        Ok(value)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn script(argument: &str) -> Result<Script, toml::de::Error> {
        let step = "[[steps]]\nthought = \"t\"\ntool = \"x\"\n";
        toml::from_str(&format!("answer = \"Done.\"\n{step}{step}arguments = {{ a = {argument} }}\n"))
    }

    fn filled(argument: &str, observation: Value) -> Result<Value, TemplateError> {
        Ok(script(argument).unwrap().arguments(1, &[observation])?["a"].clone())
    }

    #[test]
    fn values_keep_their_kind() {
        assert_eq!(filled("'{{1.n}}'", json!({"n": 5})), Ok(json!(5)));
        assert_eq!(filled("'Fixes #{{1.n}}.'", json!({"n": 5})), Ok(json!("Fixes #5.")));
        assert_eq!(filled("['{{1.items.0}}', 7]", json!({"items": ["a"]})), Ok(json!(["a", 7])));
    }

    #[test]
    fn texts_can_be_changed() {
        let argument = r#"'{{1.content | replace: "a\n" => "b}}|\n" | replace: "c" => "" }}!'"#;
        assert_eq!(filled(argument, json!({"content": "a\nc"})), Ok(json!("b}}|\n!")));
        let argument = r#"'{{1.content | replace: "x" => "y"}}'"#;
        assert!(matches!(filled(argument, json!({"content": "a"})), Err(TemplateError::Unchanged { .. })));
    }

    #[test]
    fn what_is_not_there_is_said() {
        assert!(matches!(filled("'{{1.sha}}'", json!({"error": "no"})), Err(TemplateError::Missing { .. })));
        for broken in ["'{{2.sha}}'", "'{{0.sha}}'", "'{{x}}'", "'{{1.sha'", "'{{1.a | upper}}'", "'{{1.a | replace: \"x\"}}'"] {
            assert!(script(broken).is_err(), "{broken}");
        }
    }
}
