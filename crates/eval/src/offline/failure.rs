//! Classifies failures of calls. Many tools report errors as plain text, so the text counts as well as the error
//! status in the trace.

use gradus_core::trajectory::TrajectoryStep;
use serde_json::Value as Json;

use super::excerpt::take_prefix;
use super::vocabulary::contains_phrase;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolFailureKind {
    /// The tool did not exist.
    NoSuchTool,
    /// The call was wrong: a parameter was missing, unknown or malformed.
    BadCall,
    /// The service was busy or unreachable, so a retry is right.
    Passing,
    /// The call was well formed, and the service refused: not found, not allowed, not possible.
    Refused,
}

/// Classifies the failure of a call; `None` if it succeeded, or if nothing was recorded.
pub(super) fn classify_tool_failure(step: &TrajectoryStep) -> Option<ToolFailureKind> {
    let text = step.observation.as_deref().unwrap_or_default().trim_start();
    if !step.is_error && !reads_as_error(text) {
        return None;
    }
    let text = take_prefix(text, 1_200).to_lowercase();
    let has = |signs: &str| contains_phrase(&text, signs);
    Some(if has(NO_SUCH_TOOL) {
        ToolFailureKind::NoSuchTool
    } else if has(BAD_CALL) {
        ToolFailureKind::BadCall
    } else if has(PASSING) {
        ToolFailureKind::Passing
    } else {
        ToolFailureKind::Refused
    })
}

/// Whether the error comes from the program that runs the tools, not from a program that a tool ran.
pub(super) fn is_harness_error(step: &TrajectoryStep) -> bool {
    const SIGNS: &str = "inputvalidationerror|<tool_use_error>|-32602|no such tool available|unsupported call|\
        failed to parse function arguments|invalid arguments for tool|tool input validation";
    let text = take_prefix(step.observation.as_deref().unwrap_or_default(), 600).to_lowercase();
    contains_phrase(&text, SIGNS)
}

/// Phrases of frameworks and servers, in lower case, separated by `|`.
const NO_SUCH_TOOL: &str = "\
    unknown tool|no such tool|there is no tool|no tool with that name|no tool with the name|unknown tool name|\
    not a valid tool|tool not found|unavailable tool|unknown function|no tool named|\
    tool does not exist|not found in any workbench|invalid tool name|is not an available tool|\
    no function named|please select a tool|forbidden function evaluation|\
    not among the available tools|tool is not available|available tools:";

/// Phrases of validators: Pydantic, Zod, Python, JSON Schema, JSON-RPC.
const BAD_CALL: &str = "\
    missing a required|missing required|missing 1 required|missing 2 required|field required|\
    required property|required parameter|required argument|is a required|is required|\
    unexpected keyword|unexpected argument|unexpected parameter|additional properties|extra inputs|\
    extra fields|unrecognized key|unknown parameter|unknown argument|unknown field|invalid json|\
    not valid json|json parsing|jsondecode|unterminated string|expecting value|\
    expecting property name|validation error|validationerror|invalid arguments|invalid argument|\
    invalid input for tool|invalid parameter|invalid_type|input should be|type=missing|not of type|\
    positional argument|failed to parse|could not parse|missing parameter|missing argument|\
    schema validation|-32602|does not match schema|tried reusing the same input|\
    must stop using this action input|invalid or incomplete response|invalid format: missing|\
    not a valid key, value|must be a valid json";

/// Phrases of transient failures.
const PASSING: &str = "\
    timed out|timeout|rate limit|too many requests|429|502|503|504|temporarily|connection reset|\
    connection refused|connection error|service unavailable|overloaded|econnreset|try again later|\
    sibling tool call errored|cancelled: parallel tool call";

/// Phrases that mark a short text as an error. Long texts may be documents about errors.
const SHORT_ERRORS: &str = "\
    not found|does not exist|no such|permission denied|access denied|not permitted|is disabled|are disabled|not allowed to|not authorized|\
    unauthorized|an error occurred|validation error|missing a required|missing required|\
    unexpected keyword|not a valid tool|invalid json|timed out|rate limit|could not be found|\
    doesn't exist|forbidden|bad request|failed to |unknown tool|invalid input for tool|\
    tried reusing the same input|must stop using this action input|invalid or incomplete response|\
    invalid format: missing|could not parse|not a valid key, value|is not valid json|not provided|\
    must be one of|is invalid|invalid value|invalid id";
/// Beginnings that mark a text of any length as an error.
const OPENINGS: &str = "\
    encountered an error|error while trying|error occurred while|error executing tool|\
    error running tool|tool execution failed";
/// Maximum length of a short text, in bytes.
const MAX_SHORT_BYTES: usize = 400;

/// Whether a text is an error message rather than content that mentions errors.
pub(super) fn reads_as_error(text: &str) -> bool {
    let text = text.trim_start();
    if text.starts_with('{') {
        return text.len() < 20_000 && serde_json::from_str::<Json>(text).is_ok_and(|json| is_json_error(&json));
    }
    if text.starts_with('[') {
        return false;
    }
    let start = take_prefix(text, MAX_SHORT_BYTES);
    // `404: Not Found` at the beginning of a short text.
    if let Some(code) = start.get(..3)
        && (code.starts_with('4') || code.starts_with('5'))
        && code.bytes().all(|byte| byte.is_ascii_digit())
        && start[3..].trim_start_matches([' ', ':', '-']).starts_with(char::is_uppercase)
        && start.len() < MAX_SHORT_BYTES
    {
        return true;
    }
    let first = start
        .split(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | '.')))
        .next()
        .unwrap_or_default();
    let rest = &start[first.len()..];
    let first = first.to_ascii_lowercase();
    let names_error = first.ends_with("error")
        || first.ends_with("exception")
        || matches!(&*first, "failed" | "failure" | "fatal" | "traceback");
    if names_error
        && (rest.is_empty()
            || rest.starts_with([':', '(', '\n', '!'])
            || first == "traceback"
            || (text.len() < 200 && !text.trim_end().contains('\n') && rest.starts_with(' ')))
    {
        return true;
    }
    let opening = take_prefix(start, 160).to_lowercase();
    if contains_phrase(&opening, OPENINGS) {
        return true;
    }
    // "Invalid address.": a sentence of its own, not a document about it.
    if first == "invalid" && text.len() < 120 && !text.trim_end().contains('\n') {
        return true;
    }
    if text.len() >= MAX_SHORT_BYTES || text.matches('\n').count() > 6 {
        return false;
    }
    let lower = start.to_lowercase();
    contains_phrase(&lower, SHORT_ERRORS) || names_status(start)
}

/// Whether a text contains an HTTP status with its name: "(410 Gone)", "HTTP 403".
fn names_status(text: &str) -> bool {
    const STATUSES: &str = "400 401 402 403 404 405 406 408 409 410 412 413 415 422 423 429 500 501 502 503 504";
    let mut before = "";
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        // A number in a path or a name is not a status: `/tmp/claude-502/-Users`.
        let is_part = text[..at].ends_with(['-', '/', '\\', '_', '.', '#']);
        let next = text[at + word.len()..].trim_start_matches([' ', ':', '-', ')', '"']);
        let is_named = next.starts_with(char::is_uppercase);
        if word.len() == 3 && STATUSES.contains(word) && !is_part && (is_named || before == "HTTP") {
            return true;
        }
        before = word;
    }
    false
}

/// Whether a JSON result reports an error by the fields that APIs commonly use.
fn is_json_error(json: &Json) -> bool {
    let Some(object) = json.as_object() else { return false };
    let told = |key: &str| {
        object.get(key).is_some_and(|error| match error {
            Json::Null | Json::Bool(false) => false,
            Json::String(text) => !text.is_empty(),
            Json::Array(items) => !items.is_empty(),
            Json::Object(fields) => !fields.is_empty(),
            _ => true,
        })
    };
    let is = |key: &str, value: bool| object.get(key).and_then(Json::as_bool) == Some(value);
    let status = object.get("status").is_some_and(|status| {
        status
            .as_str()
            .is_some_and(|status| matches!(status.to_ascii_lowercase().as_str(), "error" | "failed" | "failure"))
            || status.as_u64().is_some_and(|status| (400..600).contains(&status))
    });
    // A wrapper object around a text, as `{"result": "..."}`, or a message of the Model Context Protocol.
    let is_message = object.get("type").and_then(Json::as_str) == Some("text");
    let content = object.get("content").and_then(Json::as_array).filter(|parts| parts.len() == 1);
    let inner = match (object.get("text"), content) {
        (Some(text), _) if is_message => Some(text),
        (_, Some(parts)) => parts[0].get("text"),
        _ => (object.len() == 1).then(|| object.values().next()).flatten(),
    };
    told("error")
        || is("success", false)
        || is("ok", false)
        || is("isError", true)
        || is("is_error", true)
        || status && object.contains_key("message")
        || inner.and_then(Json::as_str).is_some_and(|inner| {
            (is_message || inner.len() < MAX_SHORT_BYTES && !inner.starts_with('{')) && reads_as_error(inner)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_content() {
        for error in [
            "Error: no seat left",
            "404 Not Found: menu.pdf does not exist",
            "KeyError('city')",
            r#"{"error": {"status": 409, "message": "Seat taken"}}"#,
            r#"{"success": false}"#,
            "psycopg2.errors.UndefinedTable.Error: relation",
            "The table guests does not exist.",
            "Orders are closed for today (410 Gone)",
            "Invalid seat number.",
            "Guest name not provided.",
            r#"{"type": "text", "text": "{\"meta\": null, \"content\": [{\"type\": \"text\", \"text\": \"Error: no seat\"}], \"isError\": false}"}"#,
        ] {
            assert!(reads_as_error(error), "{error}");
        }
        for content in [
            r#"[{"title": "Error 500 on login"}]"#,
            r#"{"number": 17, "title": "Fails with error"}"#,
            r#"{"error": null, "rows": []}"#,
            "# Errors\n\nHow we handle errors.",
            "Error handling in our shop is described here.\n\n\n\n\n\n\n\nFirst...",
            "450 g of flour",
            "Output is being written to /private/tmp/claude-502/-Users-ann/tasks/b1.output",
            "Sunny, 21 degrees",
        ] {
            assert!(!reads_as_error(content), "{content}");
        }
    }

    #[test]
    fn failures_are_told_apart() {
        let failed = |text: &str| {
            classify_tool_failure(&TrajectoryStep {
                observation: Some(text.into()),
                is_error: true,
                ..TrajectoryStep::default()
            })
        };
        assert_eq!(failed("Error: unknown tool fly_home"), Some(ToolFailureKind::NoSuchTool));
        assert_eq!(failed("TypeError: got an unexpected keyword argument 'pets'"), Some(ToolFailureKind::BadCall));
        assert_eq!(failed("Request timed out"), Some(ToolFailureKind::Passing));
        assert_eq!(failed("404 no such guest"), Some(ToolFailureKind::Refused));
        assert_eq!(
            classify_tool_failure(&TrajectoryStep { observation: Some("ok".into()), ..TrajectoryStep::default() }),
            None
        );
    }
}
