//! Records of coding agents that are recognised and hold no session: parts of one, summaries, histories of prompts.

use serde_json::{Map, Value as Json};

type JsonObject = Map<String, Json>;

fn has_text(object: &JsonObject, key: &str) -> bool {
    object.get(key).is_some_and(Json::is_string)
}

fn has_only(object: &JsonObject, keys: &[&str]) -> bool {
    object.keys().all(|key| keys.contains(&key.as_str()))
}

/// Whether an object is the output of `claude --output-format json`: the result without the steps.
pub(crate) fn is_claude_result(object: &JsonObject) -> bool {
    object.get("type").is_some_and(|kind| kind == "result")
        && has_text(object, "session_id")
        && object.contains_key("num_turns")
        && object.contains_key("total_cost_usd")
}

/// Whether an object is a line of `~/.claude/history.jsonl`.
pub(crate) fn is_claude_history(object: &JsonObject) -> bool {
    has_text(object, "display") && object.contains_key("pastedContents") && object.contains_key("timestamp")
}

/// Whether an object is a line of `~/.codex/history.jsonl`.
pub(crate) fn is_codex_history(object: &JsonObject) -> bool {
    has_text(object, "session_id")
        && has_text(object, "text")
        && object.get("ts").is_some_and(Json::is_number)
        && object.len() == 3
}

/// Whether an object is an entry of Gemini CLI's `logs.json`.
pub(crate) fn is_gemini_log(object: &JsonObject) -> bool {
    has_text(object, "sessionId")
        && object.get("messageId").is_some_and(Json::is_number)
        && has_text(object, "message")
        && has_only(object, &["sessionId", "messageId", "type", "message", "timestamp"])
}

/// Whether an object is a file below OpenCode's `storage`: one message, one part or the description of a session.
pub(crate) fn is_opencode_storage(object: &JsonObject) -> bool {
    let is_message = has_text(object, "sessionID") && has_text(object, "role") && object.contains_key("time");
    let is_part = has_text(object, "messageID") && has_text(object, "type") && object.contains_key("id");
    let is_session = has_text(object, "directory") && has_text(object, "version") && object.contains_key("time");
    has_text(object, "id") && (is_message || is_part || is_session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_without_a_session_are_told_apart() {
        let kinds = [is_claude_result, is_claude_history, is_codex_history, is_gemini_log, is_opencode_storage];
        let records = [
            json!({"type": "result", "session_id": "s", "num_turns": 2, "total_cost_usd": 0.1, "result": "done"}),
            json!({"display": "fix it", "pastedContents": {}, "timestamp": 1, "project": "/w"}),
            json!({"session_id": "s", "ts": 1, "text": "fix it"}),
            json!({"sessionId": "s", "messageId": 0, "type": "user", "message": "hi", "timestamp": "t"}),
            json!({"id": "prt_1", "sessionID": "s", "messageID": "m", "type": "text", "text": "hi"}),
        ];
        for (row, record) in records.iter().enumerate() {
            for (column, kind) in kinds.iter().enumerate() {
                assert_eq!(kind(record.as_object().unwrap()), row == column, "{record}");
            }
        }
    }
}
