//! Classifies texts and results in a Codex rollout: what the user asked, what Codex added, how a call ended.

use serde_json::Value as Json;

use crate::json_fields::content_text;
use crate::turn_draft::ResultStatus;

/// Prefixes of texts that Codex adds in the name of the user.
const ADDED_TEXT_PREFIXES: &[&str] = &[
    "# AGENTS.md instructions",
    "These AGENTS.md instructions replace",
    "The previously provided AGENTS.md instructions",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "<environment_context>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<user_action>",
    "<skill>",
    "<skills_instructions>",
    "<apps_instructions>",
    "<plugins_instructions>",
    "<recommended_plugins>",
    "<subagent_notification>",
    "<multi_agent_role>",
    "<model_switch>",
    "<personality_spec>",
    "<current_time_reminder>",
    "<image_resize_notice>",
    "<realtime_delegation>",
    "<goal_context>",
    "<hook_prompt",
    "<guardian_sync_review>",
    "<image name=",
    "<image>",
    "</image>",
    "Warning: apply_patch was requested via",
];

/// Heading after which the editor extensions put the request.
const EDITOR_REQUEST: &str = "## My request for Codex:";

/// Prefixes of results of calls that failed before the tool ran.
const FAILED_RESULT_PREFIXES: &[&str] = &[
    "failed to parse",
    "failed in sandbox",
    "unsupported call",
    "unsupported custom tool call",
    "execution error",
    "apply_patch verification failed",
    "apply_patch handler received",
    "exec_command failed",
    "write_stdin failed",
    "tool call error",
    "aborted by user",
    "aborted",
    "collab ",
];

/// Returns the request in a text; `None` if Codex wrote it.
pub(crate) fn request_text(text: &str) -> Option<&str> {
    let start = text.trim_start();
    if start.is_empty() || ADDED_TEXT_PREFIXES.iter().any(|added| start.starts_with(added)) {
        return None;
    }
    if start.starts_with("# Context from my IDE setup:")
        && let Some((_, request)) = text.split_once(EDITOR_REQUEST)
    {
        return Some(request.trim()).filter(|request| !request.is_empty());
    }
    Some(text)
}

/// Returns the text of a result as the agent saw it, and how the call ended.
pub(crate) fn read_output(output: Option<&str>) -> (String, ResultStatus) {
    let Some(output) = output else { return (String::new(), ResultStatus::Success) };
    let Ok(json) = serde_json::from_str::<Json>(output) else { return (output.to_owned(), ResultStatus::Success) };
    let is_text = json.is_string();
    let (mut text, mut has_failed) = match json {
        Json::Object(object) if object.contains_key("output") || object.contains_key("content") => {
            open_output_object(Json::Object(object))
        }
        other => (output_text(other), false),
    };
    // Older versions put the output of commands into a JSON text, and that into an object or a part.
    let inner = text.starts_with('{').then(|| serde_json::from_str::<Json>(&text).ok()).flatten();
    if let Some(inner) = inner {
        let states_exit = inner["metadata"].get("exit_code").is_some();
        if inner.get("output").is_some() && (is_text || states_exit) {
            let (inner_text, inner_has_failed) = open_output_object(inner);
            text = inner_text;
            has_failed |= inner_has_failed;
        } else {
            has_failed |= is_failed_exit(&inner);
        }
    }
    let status = match classify_output(&text) {
        ResultStatus::Success if has_failed => ResultStatus::Error,
        status => status,
    };
    (text, status)
}

/// Returns the text of an object with an output, and whether the object says that the call failed.
fn open_output_object(mut object: Json) -> (String, bool) {
    let has_failed = is_failed_exit(&object) || object["success"] == Json::Bool(false);
    let key = if object.get("output").is_some() { "output" } else { "content" };
    (output_text(object[key].take()), has_failed)
}

/// Whether an object describes a program that ended with another exit code than 0.
fn is_failed_exit(object: &Json) -> bool {
    object["metadata"]["exit_code"].as_f64().is_some_and(|code| code != 0.0)
}

/// Whether the result of a call that applies a patch reports an error. Nothing else of such a call begins so.
pub(crate) fn is_patch_error(tool: &str, arguments: Option<&str>, result: &str) -> bool {
    result.starts_with("error: ")
        && (tool == "apply_patch" || arguments.is_some_and(|arguments| arguments.contains("*** Begin Patch")))
}

/// Returns the text of an output: a plain text, or the texts of its parts, which carry details that the model does
/// not see.
fn output_text(output: Json) -> String {
    let part_text = |part: &Json| -> Option<String> {
        match part["type"].as_str()? {
            "input_text" | "output_text" | "text" => Some(part["text"].as_str()?.to_owned()),
            "input_image" | "image" => Some("[image]".to_owned()),
            _ => None,
        }
    };
    match output {
        Json::Array(parts) if !parts.is_empty() => {
            let texts = parts.iter().map(|part| part_text(part).unwrap_or_else(|| part.to_string()));
            texts.collect::<Vec<_>>().join("\n")
        }
        other => part_text(&other).unwrap_or_else(|| content_text(other)),
    }
}

/// Returns how a call ended, from the text of its result.
fn classify_output(text: &str) -> ResultStatus {
    let start = text.trim_start();
    let first_line = start.lines().next().unwrap_or_default();
    if first_line.len() < 200 && (first_line.contains("rejected by user") || first_line.starts_with("rejected: "))
        || first_line.starts_with("patch rejected:")
        || first_line.starts_with("exec command rejected")
    {
        return ResultStatus::Denied;
    }
    if FAILED_RESULT_PREFIXES.iter().any(|failure| start.starts_with(failure)) {
        return ResultStatus::Error;
    }
    // The header of a command ends at `Output:`. What follows is text that the command wrote.
    for line in start.lines().take(8) {
        let code = line.strip_prefix("Exit code: ").or_else(|| line.strip_prefix("Process exited with code "));
        if let Some(code) = code {
            return if code.trim() == "0" { ResultStatus::Success } else { ResultStatus::Error };
        }
        if line == "aborted by user" {
            return ResultStatus::Error;
        }
        if line.starts_with("Output:") || !is_header_line(line) {
            break;
        }
    }
    ResultStatus::Success
}

fn is_header_line(line: &str) -> bool {
    ["Chunk ID:", "Wall time", "Process ", "Original token count:", "Total output lines:", "Script "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Returns the id of the session that `spawn_agent` started, from its result.
pub(crate) fn started_agent_id(content: &str) -> Option<String> {
    if !content.starts_with('{') || content.len() > 10_000 {
        return None;
    }
    let json: Json = serde_json::from_str(content).ok()?;
    Some(json.get("agent_id").or(json.get("thread_id"))?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_added_texts() {
        assert_eq!(request_text("# AGENTS.md instructions for /a\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>"), None);
        assert_eq!(request_text("<environment_context>\n<cwd>/a</cwd>\n</environment_context>"), None);
        assert_eq!(request_text("  "), None);
        let editor = "# Context from my IDE setup:\n\n## Open tabs:\n- a.rs\n\n## My request for Codex:\nfix a.rs\n";
        assert_eq!(request_text(editor), Some("fix a.rs"));
        assert_eq!(request_text("<b> is bold"), Some("<b> is bold"));
    }

    #[test]
    fn outputs_of_all_versions_tell_how_the_call_ended() {
        let read = |output: &str| read_output(Some(output));
        let old = r#""{\"output\":\"no such file\\n\",\"metadata\":{\"exit_code\":2,\"duration_seconds\":0.1}}""#;
        assert_eq!(read(old), ("no such file\n".into(), ResultStatus::Error));
        assert_eq!(read(r#"{"content":"ok","success":true}"#), ("ok".into(), ResultStatus::Success));
        assert_eq!(read(r#"{"content":"no","success":false}"#), ("no".into(), ResultStatus::Error));
        let new = r#""Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\nx""#;
        assert_eq!(read(new).1, ResultStatus::Error);
        assert_eq!(read(r#""Exit code: 0\nWall time: 1 seconds\nOutput:\nExit code: 7""#).1, ResultStatus::Success);
        assert_eq!(read(r#""Wall time: 1 seconds\nOutput:\nProcess exited with code 7""#).1, ResultStatus::Success);
        assert_eq!(read(r#""exec command rejected by user""#).1, ResultStatus::Denied);
        assert_eq!(read(r#"[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]"#).0, "a\nb");
        assert_eq!(read(r#""{\"rows\":[1]}""#).0, r#"{"rows":[1]}"#, "JSON that a tool returned");
        assert_eq!(read("[[["), ("[[[".into(), ResultStatus::Success));
    }

    #[test]
    fn failures_of_early_versions_are_errors() {
        let read = |output: &str| read_output(Some(output));
        assert_eq!(read(r#""failed in sandbox LinuxSeccomp with execution error: denied""#).1, ResultStatus::Error);
        let exit = r#""{\"metadata\":{\"exit_code\":1}}""#;
        assert_eq!(read(exit), (r#"{"metadata":{"exit_code":1}}"#.into(), ResultStatus::Error));
        let nested = r#"{"content":"{\"output\":\"no rule\",\"metadata\":{\"exit_code\":2}}"}"#;
        assert_eq!(read(nested), ("no rule".into(), ResultStatus::Error));
        let part = r#"[{"type":"input_text","text":"{\"output\":\"no rule\",\"metadata\":{\"exit_code\":2.0}}"}]"#;
        assert_eq!(read(part), ("no rule".into(), ResultStatus::Error));
        assert_eq!(read(r#""{\"metadata\":{\"exit_code\":0}}""#).1, ResultStatus::Success);
        // What a program printed is its own.
        let printed = r#"{"output":"{\"output\":\"x\"}","metadata":{"exit_code":0}}"#;
        assert_eq!(read(printed), (r#"{"output":"x"}"#.into(), ResultStatus::Success));
    }

    #[test]
    fn errors_of_patches_are_told_from_output() {
        let patch = r#"{"command":["apply_patch","*** Begin Patch\n*** End Patch"]}"#;
        assert!(is_patch_error("apply_patch", None, "error: no such file"));
        assert!(is_patch_error("shell", Some(patch), "error: no such file"));
        assert!(!is_patch_error("shell", Some(r#"{"command":["make"]}"#), "error: no rule"));
        assert!(!is_patch_error("apply_patch", None, "Success. Updated the following files:"));
    }
}
