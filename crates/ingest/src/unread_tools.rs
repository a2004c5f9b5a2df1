//! Messages that name a tool in a form that is not read. Without their calls, the conversation looks as if the agent had
//! done nothing.

use gradus_core::message::{ChatMessage, MessageRole, messages_from_json};
use serde_json::{Map, Value as Json};

/// Whether an object names a tool, or says that it is the call or the result of one.
pub(crate) fn names_tool(object: &Map<String, Json>) -> bool {
    // Some wrappers put the record of another program below `raw`.
    let raw = object.get("raw").and_then(Json::as_object);
    ["tool_name", "toolName"].iter().any(|key| object.get(*key).is_some_and(Json::is_string))
        || has_tool_kind(object)
        || raw.is_some_and(has_tool_kind)
}

/// Whether the type of a record is that of a tool call or result: `tool_use`, `agent.tool_result`,
/// `tool.execution_start`.
fn has_tool_kind(object: &Map<String, Json>) -> bool {
    let kinds = ["type", "kind"].iter().filter_map(|key| object.get(*key)?.as_str());
    kinds.flat_map(|kind| kind.split(['.', '-', ':', '/'])).any(|part| part == "tool" || part.starts_with("tool_"))
}

/// Whether no message has a call or a result.
pub(crate) fn lack_tool_parts(messages: &[ChatMessage<'_>]) -> bool {
    let shows_tool = |message: &ChatMessage<'_>| {
        message.role == MessageRole::Tool || message.has_tool_calls() || message.tool_results().next().is_some()
    };
    !messages.iter().any(shows_tool)
}

/// Whether a message names a tool in a form that is not read.
pub(crate) fn has_unread_tool(message: &Json) -> bool {
    message.as_object().is_some_and(names_tool) && lack_tool_parts(&messages_from_json(message.clone()))
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::{DefectKind, Trajectory};
    use serde_json::json;

    use crate::intake::RecordIntake;
    use crate::json::read_json_input;
    use crate::limits::SourceLimits;

    fn is_marked(text: &str) -> bool {
        let mut found = Vec::new();
        let mut sink = |_: usize, trajectory: Trajectory| {
            found.push(trajectory);
            Ok(())
        };
        let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
        read_json_input(&mut text.as_bytes(), &mut intake).unwrap();
        intake.finish().unwrap();
        assert!(!found.is_empty());
        let is_lost = |turn: &Trajectory| turn.defects.iter().any(|defect| defect.kind == DefectKind::UnreadableRecord);
        assert!(found.iter().all(|turn| is_lost(turn) == is_lost(&found[0])));
        is_lost(&found[0])
    }

    #[test]
    fn conversations_with_unread_calls_are_marked() {
        let asked = json!({"role": "user", "content": "Look."});
        let wrapped = json!({"role": "agent", "kind": "tool_use", "tool": "bash", "raw": {"input": {}}});
        let event = json!({"role": "", "content": "", "raw": {"type": "tool.execution_start", "data": {}}});
        let no_message = json!({"type": "tool_use", "tool_name": "bash", "parameters": {}});
        for record in [wrapped, event, no_message] {
            assert!(is_marked(&format!("{asked}\n{record}\n")), "{record}");
        }
        assert!(is_marked(&format!("{asked}\n{{\"role\": \"assistant\", \"content\": [GONE]}}\n{asked}\n")));
        assert!(is_marked(&json!([asked, {"role": "agent", "kind": "tool_use", "tool": "bash"}]).to_string()));
    }

    #[test]
    fn calls_that_are_read_are_no_loss() {
        let asked = json!({"role": "user", "content": "Look."});
        let call = json!({"type": "tool_use", "id": "c", "name": "look", "input": {}});
        let called = json!({"role": "assistant", "content": [call]});
        let result = json!({"role": "tool", "type": "tool", "tool_name": "look", "tool_call_id": "c", "content": "ok"});
        let note = json!({"type": "metadata", "version": 3});
        assert!(!is_marked(&format!("{asked}\n{called}\n{result}\n{note}\n")));
        assert!(!is_marked(&json!([asked, called, result]).to_string()));
    }
}
