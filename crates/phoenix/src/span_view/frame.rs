//! Attributes as columns of Phoenix's data frames. A name of the OpenInference convention is one column with a tree
//! below it; other attributes become a tree from their first dot on.

use serde_json::{Map, Value as Json};

use gradus_core::bounded_json;
use gradus_core::path_budget::PathBudget;

use super::JSON_TEXTS;
use super::flat::count_list_values;
use super::unflatten::AttributeTree;

/// Regroups the tree of attributes by the names of the convention.
pub(super) fn build_frame_columns(attributes: &Map<String, Json>) -> Map<String, Json> {
    let mut tree = AttributeTree::default();
    add_object("", attributes, &mut PathBudget::default(), &mut tree);
    tree.into_map()
}

/// Flattens an object and inserts its values under convention names. The budget bounds how many paths hostile nesting
/// can create.
fn add_object(prefix: &str, object: &Map<String, Json>, budget: &mut PathBudget, tree: &mut AttributeTree) {
    for (key, value) in object {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let is_json = JSON_TEXTS.iter().any(|name| path.ends_with(name));
        match value {
            Json::Object(below) if !is_json && budget.try_open_path(&path, below.len()) => {
                add_object(&path, below, budget, tree);
            }
            Json::Array(items)
                if items.iter().any(Json::is_object) && budget.try_open_path(&path, count_list_values(items)) =>
            {
                for (index, item) in items.iter().enumerate() {
                    if let Json::Object(below) = item {
                        add_object(&format!("{path}.{index}"), below, budget, tree);
                    }
                }
            }
            Json::String(text) if is_json => {
                let json = bounded_json::parse_bounded_json(text).unwrap_or_else(|| value.clone());
                tree.insert_by(&path, json, split_convention_key);
            }
            other => tree.insert_by(&path, other.clone(), split_convention_key),
        }
    }
}

/// Splits a key into its first name and the rest. A name of the convention counts as one name despite its dots. None if
/// the key is one name.
fn split_convention_key(key: &str) -> Option<(&str, &str)> {
    for name in CONVENTION_NAMES {
        match key.strip_prefix(name) {
            Some("") => return None,
            Some(rest) if rest.starts_with('.') => return Some((name, &rest[1..])),
            _ => {}
        }
    }
    key.split_once('.')
}

/// Names of the OpenInference semantic conventions, longest first, because some are prefixes of others.
const CONVENTION_NAMES: &[&str] = &[
    "llm.token_count.completion_details.reasoning",
    "llm.token_count.prompt_details.cache_input",
    "llm.token_count.prompt_details.cache_write",
    "llm.token_count.prompt_details.cache_read",
    "llm.token_count.completion_details.audio",
    "llm.cost.completion_details.reasoning",
    "llm.token_count.prompt_details.audio",
    "message.function_call_arguments_json",
    "llm.cost.prompt_details.cache_input",
    "llm.cost.prompt_details.cache_write",
    "llm.cost.completion_details.output",
    "llm.cost.prompt_details.cache_read",
    "llm.cost.completion_details.audio",
    "message_content.encrypted_content",
    "embedding.invocation_parameters",
    "llm.token_count.prompt_details",
    "llm.cost.prompt_details.audio",
    "llm.cost.prompt_details.input",
    "llm.prompt_template.variables",
    "tool_call.reasoning_signature",
    "decision.response.model_name",
    "llm.prompt_template.template",
    "tool_call.function.arguments",
    "decision.request.model_name",
    "decision.token_count.output",
    "llm.cost.completion_details",
    "llm.prompt_template.version",
    "decision.token_count.input",
    "llm.token_count.completion",
    "message.function_call_name",
    "annotation.annotator_kind",
    "evaluation.annotator_kind",
    "llm.invocation_parameters",
    "message_content.signature",
    "reranker.output_documents",
    "message_content.document",
    "reranker.input_documents",
    "llm.cost.prompt_details",
    "llm.response.model_name",
    "openinference.span.kind",
    "tool_call.function.name",
    "annotation.explanation",
    "evaluation.explanation",
    "llm.request.model_name",
    "llm.token_count.prompt",
    "annotation.identifier",
    "evaluation.identifier",
    "llm.token_count.total",
    "message_content.audio",
    "message_content.image",
    "message_content.video",
    "embedding.embeddings",
    "embedding.model_name",
    "graph.node.parent_id",
    "message.tool_call_id",
    "message_content.data",
    "message_content.text",
    "message_content.type",
    "annotation.metadata",
    "decision.model_name",
    "evaluation.metadata",
    "llm.cost.completion",
    "llm.output_messages",
    "reranker.model_name",
    "retrieval.documents",
    "session.annotations",
    "session.evaluations",
    "document.mime_type",
    "llm.input_messages",
    "message.tool_calls",
    "message_content.id",
    "decision.provider",
    "document.metadata",
    "llm.finish_reason",
    "llm.function_call",
    "trace.annotations",
    "trace.evaluations",
    "annotation.label",
    "annotation.score",
    "audio.transcript",
    "document.content",
    "embedding.vector",
    "evaluation.label",
    "evaluation.score",
    "message.contents",
    "output.documents",
    "output.mime_type",
    "tool.description",
    "tool.json_schema",
    "annotation.name",
    "audio.mime_type",
    "completion.text",
    "decision.system",
    "evaluation.name",
    "graph.node.name",
    "input.documents",
    "input.mime_type",
    "llm.cost.prompt",
    "message.content",
    "tool.parameters",
    "document.score",
    "embedding.text",
    "llm.cost.total",
    "llm.model_name",
    "reranker.query",
    "reranker.top_k",
    "document.name",
    "graph.node.id",
    "output.images",
    "prompt.vendor",
    "document.url",
    "input.images",
    "llm.provider",
    "message.name",
    "message.role",
    "output.value",
    "tool_call.id",
    "annotations",
    "document.id",
    "evaluations",
    "input.value",
    "llm.choices",
    "llm.prompts",
    "prompt.text",
    "agent.name",
    "llm.system",
    "prompt.url",
    "session.id",
    "audio.url",
    "image.url",
    "llm.tools",
    "prompt.id",
    "tool.name",
    "video.url",
    "metadata",
    "tag.tags",
    "tool.id",
    "user.id",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_the_convention_stay_whole() {
        let attributes = json!({
            "llm": {
                "model_name": "m",
                "token_count": {"prompt": 3, "prompt_details": {"cache_read": 1}},
                "output_messages": [
                    {"message": {"role": "assistant", "tool_calls": [{"tool_call": {"function": {"name": "f"}}}]}},
                ],
            },
            "metadata": {"k": {"deep": 1}},
            "mine": {"a": {"b": 1}, "list": ["x"]},
            "tool": {"parameters": "{\"a\": 1}"},
        });
        let wanted = json!({
            "llm.model_name": "m",
            "llm.token_count.prompt": 3,
            "llm.token_count.prompt_details.cache_read": 1,
            "llm.output_messages": [
                {"message.role": "assistant", "message.tool_calls": [{"tool_call.function.name": "f"}]},
            ],
            "metadata": {"k": {"deep": 1}},
            "mine": {"a": {"b": 1}, "list": ["x"]},
            "tool.parameters": {"a": 1},
        });
        assert_eq!(Json::Object(build_frame_columns(attributes.as_object().unwrap())), wanted);
    }

    #[test]
    fn longer_names_come_first() {
        assert!(CONVENTION_NAMES.windows(2).all(|two| two[0].len() >= two[1].len()));
    }
}
