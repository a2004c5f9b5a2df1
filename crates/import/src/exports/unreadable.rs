//! Files of known tools that hold no runs, or runs in a form that is not read. They are named, with what to export
//! instead.

use serde_json::{Map, Value as Json};

use super::langfuse;

type JsonObject = Map<String, Json>;

/// Whether all of these fields exist. Values of null count: exports write all fields.
fn has_all(object: &JsonObject, fields: &[&str]) -> bool {
    fields.iter().all(|field| object.contains_key(*field))
}

/// Counts how many of these fields exist.
fn count_fields(object: &JsonObject, fields: &[&str]) -> usize {
    fields.iter().filter(|field| object.contains_key(**field)).count()
}

fn has_text(object: &JsonObject, field: &str, values: &[&str]) -> bool {
    object.get(field).and_then(Json::as_str).is_some_and(|text| values.contains(&text))
}

pub(crate) fn is_langsmith_dataset(object: &JsonObject) -> bool {
    has_all(object, &["example_count", "session_count"])
}

pub(crate) fn is_langsmith_example(object: &JsonObject) -> bool {
    !object.contains_key("run_type")
        && has_all(object, &["dataset_id", "inputs"])
        && count_fields(object, &["outputs", "source_run_id", "modified_at", "attachment_urls", "split"]) >= 2
}

pub(crate) fn is_langsmith_feedback(object: &JsonObject) -> bool {
    has_all(object, &["key", "run_id", "score"])
        && count_fields(object, &["feedback_source", "correction", "comment", "comparative_experiment_id"]) >= 2
}

pub(crate) fn is_langsmith_project(object: &JsonObject) -> bool {
    let marks = ["tenant_id", "run_count", "latency_p50", "latency_p99", "reference_dataset_id", "trace_tier"];
    !object.contains_key("run_type") && count_fields(object, &marks) >= 3
}

pub(crate) fn is_langchain_prompt(object: &JsonObject) -> bool {
    let class = object.get("id").and_then(Json::as_array).and_then(|path| path.last()?.as_str());
    object.contains_key("lc") && class.is_some_and(|class| class.ends_with("PromptTemplate"))
}

pub(crate) fn is_langfuse_trace_list(object: &JsonObject) -> bool {
    langfuse::matches_bare_trace(object)
}

pub(crate) fn is_langfuse_score(object: &JsonObject) -> bool {
    has_text(object, "dataType", &["NUMERIC", "CATEGORICAL", "BOOLEAN", "CORRECTION", "TEXT"])
        && has_text(object, "source", &["API", "EVAL", "ANNOTATION"])
        && object.contains_key("name")
}

pub(crate) fn is_langfuse_prompt(object: &JsonObject) -> bool {
    has_text(object, "type", &["text", "chat"]) && has_all(object, &["prompt", "version", "labels", "config"])
}

pub(crate) fn is_langfuse_dataset(object: &JsonObject) -> bool {
    has_all(object, &["datasetId", "datasetName"])
        || (has_all(object, &["projectId", "createdAt"])
            && count_fields(object, &["inputSchema", "expectedOutputSchema"]) == 2)
        || has_all(object, &["datasetRunItems", "datasetName"])
}

pub(crate) fn is_langfuse_session(object: &JsonObject) -> bool {
    has_all(object, &["id", "createdAt", "projectId", "environment"]) && object.len() <= 6
}

pub(crate) fn is_mlflow_run(object: &JsonObject) -> bool {
    let run = object.get("run").and_then(Json::as_object).unwrap_or(object);
    let info = run.get("info").and_then(Json::as_object);
    let is_run =
        |info: &JsonObject| info.contains_key("artifact_uri") && count_fields(info, &["run_id", "run_uuid"]) >= 1;
    info.is_some_and(is_run)
}

pub(crate) fn is_mlflow_experiment(object: &JsonObject) -> bool {
    has_all(object, &["experiment_id", "artifact_location", "lifecycle_stage"])
}

pub(crate) fn is_mlflow_metric(object: &JsonObject) -> bool {
    has_all(object, &["key", "value", "timestamp", "step"]) && object.len() <= 8
}

pub(crate) fn is_mlflow_trace_info(object: &JsonObject) -> bool {
    let marks = ["trace_location", "request_preview", "response_preview", "execution_duration", "client_request_id"];
    let older = ["request_id", "experiment_id", "timestamp_ms", "execution_time_ms", "request_metadata"];
    !object.contains_key("spans")
        && !object.contains_key("data")
        && (count_fields(object, &marks) >= 2 && object.contains_key("trace_id") || has_all(object, &older))
}

pub(crate) fn is_braintrust_dataset(object: &JsonObject) -> bool {
    object.get("dataset_id").is_some_and(Json::is_string) && has_all(object, &["_xact_id", "input"])
}

pub(crate) fn is_braintrust_experiment(object: &JsonObject) -> bool {
    (object.contains_key("project_id")
        && count_fields(object, &["repo_info", "base_exp_id", "commit", "ensure_new"]) >= 2)
        || has_all(object, &["experiment_name", "project_name", "scores"])
}

pub(crate) fn is_otel_metrics(object: &JsonObject) -> bool {
    object.contains_key("resourceMetrics") || object.contains_key("resource_metrics")
}

/// Whether an object is a list of services and operations: `{"data": ["checkout", ...], "total", "limit", "offset",
/// "errors"}`.
pub(crate) fn is_jaeger_list(object: &JsonObject) -> bool {
    let has_names = object.get("data").and_then(Json::as_array).is_some_and(|list| list.iter().all(Json::is_string));
    has_names && has_all(object, &["total", "limit", "offset", "errors"])
}

pub(crate) fn is_dependency_link(object: &JsonObject) -> bool {
    has_all(object, &["parent", "child", "callCount"])
}

pub(crate) fn is_weave_call(object: &JsonObject) -> bool {
    has_all(object, &["op_name", "trace_id", "project_id"])
        && count_fields(object, &["started_at", "inputs", "wb_run_id"]) >= 2
}

pub(crate) fn is_wandb_run(object: &JsonObject) -> bool {
    object.contains_key("_wandb") || has_all(object, &["_runtime", "_timestamp", "_step"])
}

pub(crate) fn is_helicone_request(object: &JsonObject) -> bool {
    has_all(object, &["request_id", "request_body", "response_body"])
        || count_fields(object, &["helicone_user", "request_created_at", "response_id", "request_path"]) >= 3
}

pub(crate) fn is_agentops_event(object: &JsonObject) -> bool {
    has_text(object, "event_type", &["llms", "tools", "actions", "errors"])
        && count_fields(object, &["init_timestamp", "end_timestamp", "agent_id", "returns"]) >= 2
}

pub(crate) fn is_opik_record(object: &JsonObject) -> bool {
    let marks =
        ["project_id", "project_name", "total_estimated_cost", "feedback_scores", "last_updated_by", "span_count"];
    let is_span = has_text(object, "type", &["llm", "tool", "general", "guardrail"]) && object.contains_key("trace_id");
    (is_span || object.contains_key("span_count")) && count_fields(object, &marks) >= 2
}

pub(crate) fn is_datadog_span(object: &JsonObject) -> bool {
    has_all(object, &["ml_app", "meta"]) && count_fields(object, &["span_id", "trace_id", "start_ns"]) >= 2
}

pub(crate) fn is_chat_completion(object: &JsonObject) -> bool {
    has_text(object, "object", &["chat.completion", "chat.completion.chunk", "text_completion"])
        && object.contains_key("choices")
}

pub(crate) fn is_openai_batch(object: &JsonObject) -> bool {
    object.contains_key("custom_id") && count_fields(object, &["response", "method", "url", "body"]) >= 1
}

pub(crate) fn is_assistants_object(object: &JsonObject) -> bool {
    has_text(object, "object", &["thread", "thread.run", "thread.run.step", "thread.message", "assistant"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_list::{DOCUMENT_FORMATS, UNREADABLE_FORMATS};
    use serde_json::json;

    fn name_of(value: &Json) -> Option<&'static str> {
        let object = value.as_object().expect("an object");
        UNREADABLE_FORMATS.iter().find(|format| (format.matches)(object)).map(|format| format.name)
    }

    #[test]
    fn files_without_runs_are_named() {
        let cases = [
            (json!({"id": "1", "name": "d", "example_count": 3, "session_count": 0}), "LangSmith dataset"),
            (
                json!({"id": "1", "dataset_id": "2", "inputs": {}, "outputs": {}, "source_run_id": null}),
                "LangSmith example",
            ),
            (
                json!({"id": "1", "key": "good", "run_id": "2", "score": 1, "comment": null, "correction": null}),
                "LangSmith feedback",
            ),
            (
                json!({"id": "1", "timestamp": "2026-01-01", "observations": ["a"], "userId": "u", "sessionId": null}),
                "Langfuse trace without observations",
            ),
            (json!({"info": {"run_id": "r", "artifact_uri": "x"}, "data": {"metrics": []}}), "MLflow run"),
            (json!({"data": ["a"], "total": 1, "limit": 0, "offset": 0, "errors": null}), "Jaeger list of names"),
            (json!({"op_name": "o", "trace_id": "t", "project_id": "p", "started_at": "", "inputs": {}}), "Weave call"),
        ];
        for (value, name) in cases {
            assert_eq!(name_of(&value), Some(name), "{value}");
        }
    }

    #[test]
    fn ordinary_objects_are_of_no_format() {
        let ordinary = [
            json!({}),
            json!({"id": "1", "name": "x", "type": "tool", "input": {}, "output": {}}),
            json!({"role": "user", "content": "hi"}),
            json!({"messages": [{"role": "user", "content": "hi"}], "id": "1"}),
            json!({"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331", "name": "x"}),
            json!({"data": [], "traceID": "1", "spans": []}),
            json!({"info": {}, "data": {}}),
            json!({"object": "response"}),
        ];
        for value in ordinary {
            let object = value.as_object().expect("an object");
            assert_eq!(name_of(&value), None, "{value}");
            assert!(!DOCUMENT_FORMATS.iter().any(|format| (format.matches)(object)), "{value}");
        }
    }
}
