//! Calls in markup: `<tool>name</tool><tool_input>text</tool_input>` (LangChain's XML agent) and
//! `<tool_call>{"name": .., "arguments": ..}</tool_call>` (Hermes and its kin).

use std::borrow::Cow;

use serde_json::Value as Json;

use super::action::{ActionInput, InputBudget, input_from_json, read_input};
use super::{non_empty, split_think};
use crate::react_text::text_step::{CopyBudget, ReactTranscript, TextStep};

/// Maximum number of calls that are read from one text. No agent at work writes more.
const MAX_STEPS: usize = 50_000;

/// Reads a text that calls tools in markup; `None` if it has no markup call or answer.
pub(super) fn read_markup_transcript(text: &str) -> Option<ReactTranscript<'_>> {
    if !["<tool>", "<tool_call>", "<final_answer>"].iter().any(|mark| text.contains(mark)) {
        return None;
    }
    let (think, mut rest) = split_think(text);
    let mut thought = think.map(Cow::Borrowed);
    let mut transcript = ReactTranscript { is_react: true, ..ReactTranscript::default() };
    let mut inputs = InputBudget::default();
    // The earliest mark decides; each is searched once.
    while let Some((before, kind, inside, behind)) = next_element(rest)
        && transcript.steps.len() < MAX_STEPS
    {
        // Some write the label as well.
        let before = before.trim();
        let said = non_empty(before.strip_prefix("Thought:").unwrap_or(before)).or(thought.take());
        rest = behind;
        match kind {
            "tool" => {
                let (input, behind) = split_input_element(rest);
                rest = behind;
                let (tool, input) = (Cow::Borrowed(inside.trim()), inputs.drop_excess_json(read_input(input)));
                push_markup_step(&mut transcript, said, tool, input, text.len() - rest.len());
            }
            "tool_call" => {
                if let Some((name, input)) = parse_call_object(inside) {
                    let input = inputs.drop_excess_json(input);
                    push_markup_step(&mut transcript, said, Cow::Owned(name), input, text.len() - rest.len());
                }
            }
            "observation" | "tool_response" => {
                if let Some(step) = transcript.steps.last_mut() {
                    step.observation = Some(Cow::Borrowed(inside.trim()));
                }
            }
            _ => {
                transcript.last_thought = said;
                transcript.answer = Some(Cow::Borrowed(inside.trim()));
            }
        }
    }
    (!transcript.steps.is_empty() || transcript.answer.is_some()).then_some(transcript)
}

fn push_markup_step<'t>(
    transcript: &mut ReactTranscript<'t>,
    thought: Option<Cow<'t, str>>,
    tool: Cow<'t, str>,
    input: ActionInput<'t>,
    end: usize,
) {
    // Calls with no text in between were asked for together.
    let parallel = thought.is_none() && transcript.steps.last().is_some_and(|step| step.observation.is_none());
    let thought = match transcript.steps.last().filter(|_| parallel) {
        Some(step) => step.shared_thought(&mut CopyBudget::default()),
        None => thought,
    };
    if let Some(kind) = input.defect {
        transcript.defects.push((kind, input.raw.clone()));
    }
    transcript.steps.push(TextStep { thought, tool, input, observation: None, parallel, end });
}

/// Returns the text before the next element, its name, its content and the text after it.
fn next_element(text: &str) -> Option<(&str, &'static str, &str, &str)> {
    const NAMES: [&str; 5] = ["tool", "tool_call", "observation", "tool_response", "final_answer"];
    let mut from = 0;
    loop {
        let open = from + text[from..].find('<')?;
        let name = NAMES
            .into_iter()
            .find(|name| text[open + 1..].strip_prefix(name).is_some_and(|rest| rest.starts_with('>')));
        let Some(name) = name else {
            from = open + 1;
            continue;
        };
        let body = &text[open + name.len() + 2..];
        // A stop sequence may have swallowed the closing mark.
        let close = format!("</{name}>");
        let (inside, behind) = body.split_once(close.as_str()).unwrap_or((body, ""));
        return Some((&text[..open], name, inside, behind));
    }
}

fn split_input_element(text: &str) -> (&str, &str) {
    match text.trim_start().strip_prefix("<tool_input>") {
        Some(body) => body.split_once("</tool_input>").unwrap_or((body, "")),
        None => ("", text),
    }
}

fn parse_call_object(text: &str) -> Option<(String, ActionInput<'_>)> {
    let Some(Json::Object(mut object)) = crate::lenient_json::parse_lenient_json(text) else { return None };
    let name = object.remove("name")?.as_str()?.to_owned();
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"));
    Some((name, input_from_json(arguments.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn xml_agents_are_read() {
        let text = "I look.\n<tool>search</tool><tool_input>weather in SF</tool_input><observation>64 degrees</observation><final_answer>64</final_answer>";
        let transcript = super::read_markup_transcript(text).unwrap();
        let step = &transcript.steps[0];
        assert_eq!(
            (step.thought.as_deref(), step.tool.as_ref(), step.input.raw.as_ref()),
            (Some("I look."), "search", "weather in SF")
        );
        assert_eq!((step.observation.as_deref(), transcript.answer.as_deref()), (Some("64 degrees"), Some("64")));
    }

    #[test]
    fn tool_call_elements_are_read() {
        let text = "<think>two</think><tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"b\", \"arguments\": {}}";
        let transcript = super::read_markup_transcript(text).unwrap();
        assert_eq!(transcript.steps.len(), 2);
        assert_eq!(transcript.steps[0].input.json, Some(json!({"x": 1})));
        assert_eq!((transcript.steps[1].thought.as_deref(), transcript.steps[1].parallel), (Some("two"), true));
    }

    #[test]
    fn arguments_in_a_text_are_read_as_the_object_that_they_are() {
        let text = r#"<tool_call>{"name": "a", "arguments": "{\"x\": 1}"}</tool_call>"#;
        let transcript = super::read_markup_transcript(text).unwrap();
        assert_eq!(transcript.steps[0].input.json, Some(json!({"x": 1})));
        assert_eq!((&*transcript.steps[0].input.raw, transcript.defects.len()), (r#"{"x": 1}"#, 0));
        let text = r#"<tool_call>{"name": "a", "arguments": "octo/demo"}</tool_call>"#;
        assert_eq!(super::read_markup_transcript(text).unwrap().steps[0].input.json, Some(json!("octo/demo")));
    }
}
