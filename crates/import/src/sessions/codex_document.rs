//! The first rollouts of Codex: `sessions/rollout-<date>-<id>.json`, one object with a description of the session and
//! its items. The items are those of the first generation of lines.

use serde_json::{Map, Value as Json};

use super::codex_rollout::open_codex_rollout;
use crate::import_sink::{ImportError, ImportSink};

/// Whether an object is a Codex session of the first version.
pub(crate) fn is_codex_document(object: &Map<String, Json>) -> bool {
    let Some(session) = object.get("session").filter(|session| session["id"].is_string()) else { return false };
    let is_item = |item: &Json| {
        item["role"].is_string() && item.get("content").is_some()
            || matches!(
                item["type"].as_str(),
                Some("message" | "reasoning" | "function_call" | "function_call_output" | "local_shell_call")
            )
    };
    session["timestamp"].is_string()
        && object
            .get("items")
            .and_then(Json::as_array)
            .is_some_and(|items| items.iter().any(is_item) || items.is_empty() && session.get("instructions").is_some())
}

/// Reads a session as the lines that later versions write.
pub(crate) fn read_codex_document(object: Map<String, Json>, sink: &mut dyn ImportSink) -> Result<(), ImportError> {
    let mut reader = open_codex_rollout();
    let mut document = Json::Object(object);
    reader.read_record(document["session"].to_string().as_bytes(), sink);
    let Json::Array(items) = document["items"].take() else { return Err(ImportError::new("the items are no list")) };
    for mut item in items {
        // A line without a type describes a session.
        if item.is_object() && item.get("type").is_none() {
            item["type"] = "message".into();
        }
        reader.read_record(item.to_string().as_bytes(), sink);
    }
    reader.finish(sink);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_sessions_with_items_are_taken() {
        let is_document = |json: Json| is_codex_document(json.as_object().unwrap());
        let session = json!({"id": "s", "timestamp": "2025-05-01T09:00:00.000Z", "instructions": ""});
        let message = json!({"role": "user", "content": []});
        assert!(is_document(json!({"session": session, "items": [message]})));
        assert!(is_document(json!({"session": session, "items": [{"type": "reasoning", "summary": []}]})));
        assert!(is_document(json!({"session": session, "items": []})));
        assert!(!is_document(json!({"session": session, "items": [{"name": "hammer"}]})));
        assert!(!is_document(json!({"session": {"id": "s"}, "items": [message]})));
        assert!(!is_document(json!({"session": "s", "items": [message]})));
    }
}
