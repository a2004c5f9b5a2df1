//! Why a JSON document is not read.

use std::fmt;

use crate::detect::describe_log;

/// Why a document is not read.
pub(crate) enum DocumentError {
    /// The text ends before the document does. It may continue on the next line.
    Incomplete,
    Malformed(String),
    /// A log that a program writes as plain text.
    ProgramLog(&'static str),
    /// A chat of several agents, without their tool calls.
    AgentChat,
    /// A record of a known tool that holds no runs: its name, and what to export instead.
    NotRuns(&'static str, &'static str),
    Unrecognised,
}

impl DocumentError {
    /// The message with the line in front: "line 3, column 7: ...".
    pub(crate) fn in_line(&self, line: u64) -> String {
        let text = self.to_string();
        let mark = if text.starts_with("column ") { "," } else { ":" };
        format!("line {line}{mark} {text}")
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocumentError::Incomplete => f.write_str("the JSON ends too early"),
            DocumentError::Malformed(reason) => f.write_str(reason),
            DocumentError::ProgramLog(program) => f.write_str(&describe_log(program)),
            DocumentError::AgentChat => f.write_str(
                "a chat log of several agents without tool calls (Who&When, MAST): there are no steps to grade",
            ),
            DocumentError::NotRuns(name, hint) => write!(f, "{name}: {hint}"),
            DocumentError::Unrecognised => f.write_str("JSON that is neither spans nor messages"),
        }
    }
}

impl From<serde_json::Error> for DocumentError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_eof() {
            DocumentError::Incomplete
        } else {
            DocumentError::Malformed(describe_json_error(&error, false))
        }
    }
}

/// The message of serde_json with the position in front. Where each line is a document, the line is known to the caller
/// and its number here is always 1, so it is left out.
pub(crate) fn describe_json_error(error: &serde_json::Error, with_line: bool) -> String {
    let text = error.to_string();
    let (line, column) = (error.line(), error.column());
    let reason = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    let limit = if reason.contains("recursion limit") { " (limit 128 levels)" } else { "" };
    match (with_line, line) {
        (_, 0) => format!("{reason}{limit}"),
        (true, _) => format!("line {line}, column {column}: {reason}{limit}"),
        (false, _) => format!("column {column}: {reason}{limit}"),
    }
}
