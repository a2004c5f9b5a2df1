//! The tools as clients see them: names, descriptions, schemas and hints.

use std::sync::Arc;

use gradus_core::whitespace::collapse_whitespace;
use rmcp::handler::server::tool::schema_for_input;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;

use crate::arguments::{
    CompareToolArguments, ExplainGateArguments, FindRunsArguments, FlaggedArguments, GetRunArguments,
    LabelStepArguments, ListEvaluationsArguments,
};

/// The name of the only tool that writes.
pub(crate) const LABEL_STEP: &str = "label_step";

/// All tools, without `label_step` unless labels are allowed.
pub(crate) fn list_tools(allows_labels: bool) -> Vec<Tool> {
    let mut tools = vec![
        build_read_only_tool::<ListEvaluationsArguments>(
            "list_evaluations",
            "List evaluations",
            "Lists evaluations, latest first, with their scores and gates. An evaluation is a set of agent runs that \
             were judged together.",
        ),
        build_read_only_tool::<FindRunsArguments>(
            "find_runs",
            "Find runs",
            "Lists agent runs with their request and their wrong verdicts, by verdict, tool, words, time, project or \
             agent.",
        ),
        build_read_only_tool::<GetRunArguments>(
            "get_run",
            "Read a run",
            "Shows one run as a compact transcript: request, answer, and each step with thought, tool call, \
             observation and verdicts. Long runs and long texts continue with `from_step`, or with `step` and \
             `text_from`.",
        ),
        build_read_only_tool::<FlaggedArguments>(
            "failure_groups",
            "Group failures",
            "Groups wrong verdicts by evaluator, tool and reason, the largest group first, with example runs. The best \
             first question about what goes wrong.",
        ),
        build_read_only_tool::<FlaggedArguments>(
            "worst_steps",
            "List the worst steps",
            "Lists the steps with the most wrong verdicts, each with its call and why it is wrong.",
        ),
        build_read_only_tool::<CompareToolArguments>(
            "compare",
            "Compare evaluations",
            "Compares two evaluations over the same tasks, or two versions, models or agents of live traffic: better, \
             worse, the same or inconclusive for each score, and the tasks that changed.",
        ),
        build_read_only_tool::<ExplainGateArguments>(
            "explain_gate",
            "Explain a gate",
            "Says whether quality gates of an evaluation pass, by how much and how surely, and which failures decide \
             it.",
        ),
    ];
    if allows_labels {
        let hints = ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(false);
        tools.push(
            build_tool::<LabelStepArguments>(
                LABEL_STEP,
                "Label a step",
                "Stores a label that confirms or corrects a verdict on a step or a run. It replaces the label that the \
                 same labeller gave before. Call it only if the user asked for it.",
            )
            .with_annotations(hints),
        );
    }
    tools
}

fn build_read_only_tool<A: JsonSchema + 'static>(name: &'static str, title: &str, description: &'static str) -> Tool {
    let hints = ToolAnnotations::new().read_only(true).idempotent(true).open_world(false);
    build_tool::<A>(name, title, description).with_annotations(hints)
}

fn build_tool<A: JsonSchema + 'static>(name: &'static str, title: &str, description: &'static str) -> Tool {
    // Schemas of structs are objects, so this cannot fail; a test checks it.
    let schema = schema_for_input::<A>().unwrap_or_default();
    Tool::new(name, description, compact_schema(&schema)).with_title(title)
}

/// Shortens a schema for assistants: descriptions become one line, and formats of numbers are left out.
fn compact_schema(schema: &JsonObject) -> Arc<JsonObject> {
    let mut schema = schema.clone();
    schema.remove("$schema");
    if let Some(properties) = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
        for property in properties.values_mut().filter_map(serde_json::Value::as_object_mut) {
            property.remove("format");
            property.remove("default");
            // `null` is accepted, but some models support only one type per argument.
            let single =
                property.get("type").and_then(serde_json::Value::as_array).and_then(|types| types.first().cloned());
            if let Some(single) = single {
                property.insert("type".to_owned(), single);
            }
            if let Some(serde_json::Value::String(description)) = property.get_mut("description") {
                *description = collapse_whitespace(description);
            }
        }
    }
    Arc::new(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_labelling_tool_writes_and_only_if_allowed() {
        let names = |allows: bool| list_tools(allows).iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
        assert!(!names(false).contains(&LABEL_STEP.to_owned()) && names(true).contains(&LABEL_STEP.to_owned()));
        for tool in list_tools(true) {
            let hints = tool.annotations.clone().unwrap();
            assert_eq!(hints.read_only_hint, Some(tool.name != LABEL_STEP), "{}", tool.name);
            assert_eq!(hints.open_world_hint, Some(false));
            assert_eq!(tool.input_schema["type"], "object");
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            let properties = tool.input_schema["properties"].as_object().unwrap();
            assert!(properties.values().all(|one| one["description"].is_string() || one.get("$ref").is_some()));
        }
    }
}
