//! Tool definitions and notes that a user provides as a file: OpenAI tools JSON, an MCP `tools/list` result, or plain
//! `name: description` lines. They complete traces that recorded no definitions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradus_core::raw_json::RawJson;
use gradus_core::trajectory::ToolDefinition;
use serde_json::Value as Json;

/// Why a file of tool definitions or notes is refused. Only the top message is printed, so it contains its cause.
#[derive(Debug, thiserror::Error)]
pub enum ToolFileError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// A line of the plain form has no colon. Lines count from 1.
    #[error("{}, line {line}: expected `name: description`", path.display())]
    Line { path: PathBuf, line: usize },
    /// The file was read, and no entry in it has a name. An empty tool list would silently disable `call_validity`.
    #[error(
        "{}: no tools found; expected OpenAI tools, an MCP tools/list or lines of `name: description`",
        path.display()
    )]
    NoTools { path: PathBuf },
}

/// Reads tool definitions. The form is detected from the first character: `[` or `{` begins JSON, anything else is the
/// plain form of `name: description` lines.
pub fn read_tools(path: &Path) -> Result<Vec<ToolDefinition>, ToolFileError> {
    let text = read_file_text(path)?;
    let tools = if text.trim_start().starts_with(['[', '{']) {
        let json =
            serde_json::from_str(&text).map_err(|source| ToolFileError::Json { path: path.to_owned(), source })?;
        parse_definition_list(&json)
    } else {
        let describe = |(name, description)| ToolDefinition { name, description: Some(description), schema: None };
        parse_description_lines(path, &text)?.into_iter().map(describe).collect()
    };
    if tools.is_empty() {
        return Err(ToolFileError::NoTools { path: path.to_owned() });
    }
    Ok(tools)
}

/// Reads notes, which are appended to tool descriptions in prompts: a map from tool name to text. Notes exist only in
/// the plain form of `name: description` lines. If a name occurs twice, the last note counts.
pub fn read_notes(path: &Path) -> Result<BTreeMap<String, String>, ToolFileError> {
    let text = read_file_text(path)?;
    Ok(parse_description_lines(path, &text)?.into_iter().collect())
}

fn read_file_text(path: &Path) -> Result<String, ToolFileError> {
    std::fs::read_to_string(path).map_err(|source| ToolFileError::Read { path: path.to_owned(), source })
}

/// Reads `name: description` lines. Indented lines continue the one before, `#` begins a comment, a leading `- ` is
/// ignored.
fn parse_description_lines(path: &Path, text: &str) -> Result<Vec<(String, String)>, ToolFileError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.starts_with(char::is_whitespace), found.last_mut()) {
            (true, Some((_, description))) => {
                description.push(' ');
                description.push_str(line.trim());
            }
            _ => {
                let (name, description) = line
                    .trim_start_matches("- ")
                    .split_once(':')
                    .ok_or_else(|| ToolFileError::Line { path: path.to_owned(), line: number + 1 })?;
                found.push((name.trim().to_owned(), description.trim().to_owned()));
            }
        }
    }
    Ok(found)
}

/// Reads a list of definitions, or an object that contains one: `tools` of a request, `result` of a JSON-RPC reply,
/// or OpenAI's old `functions`. Entries without a name are skipped.
fn parse_definition_list(json: &Json) -> Vec<ToolDefinition> {
    match json {
        Json::Array(list) => list.iter().filter_map(parse_definition).collect(),
        Json::Object(object) => {
            let inner = ["tools", "result", "functions"].iter().find_map(|name| object.get(*name));
            inner.map_or_else(|| parse_definition(json).into_iter().collect(), parse_definition_list)
        }
        _ => Vec::new(),
    }
}

/// Reads one definition. OpenAI's chat form nests it in `function` and names the schema `parameters`, MCP
/// `inputSchema`, Anthropic `input_schema`.
fn parse_definition(json: &Json) -> Option<ToolDefinition> {
    let function = json.get("function").unwrap_or(json);
    let schema = ["parameters", "inputSchema", "input_schema"].iter().find_map(|name| function.get(*name));
    Some(ToolDefinition {
        name: function.get("name")?.as_str()?.to_owned(),
        description: function.get("description").and_then(Json::as_str).map(str::to_owned),
        schema: schema.filter(|schema| schema.is_object()).map(RawJson::from_value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(text: &str) -> Result<Vec<(String, Option<String>, bool)>, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let tools = read_tools(file.path()).map_err(|error| error.to_string())?;
        Ok(tools.into_iter().map(|tool| (tool.name, tool.description, tool.schema.is_some())).collect())
    }

    #[test]
    fn reads_all_three_forms() {
        let expected = Ok(vec![("read".to_owned(), Some("Reads a file.".to_owned()), true)]);
        for text in [
            r#"[{"type":"function","function":{"name":"read","description":"Reads a file.","parameters":{"type":"object"}}}]"#,
            r#"[{"type":"function","name":"read","description":"Reads a file.","parameters":{}}]"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"read","description":"Reads a file.","inputSchema":{}}]}}"#,
            r#"{"tools":[{"name":"read","description":"Reads a file.","input_schema":{}}]}"#,
        ] {
            assert_eq!(tools(text), expected, "{text}");
        }
        let plain = "# tools\nread: Reads\n    a file.\n\n- list: Lists: all\n";
        let expected = vec![
            ("read".to_owned(), Some("Reads a file.".to_owned()), false),
            ("list".to_owned(), Some("Lists: all".to_owned()), false),
        ];
        assert_eq!(tools(plain), Ok(expected));
    }

    #[test]
    fn says_what_is_wrong() {
        assert!(tools("just words").expect_err("no list").contains("line 1: expected `name: description`"));
        assert!(tools("[1, 2]").expect_err("no tools").contains("no tools found"));
        assert!(tools("[{]").is_err());
    }
}
