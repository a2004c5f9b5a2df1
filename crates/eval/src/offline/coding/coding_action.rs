//! Classifies the steps of coding agents by the tools of the common agents: Claude Code, Codex, Gemini CLI, Cursor,
//! OpenCode, Copilot CLI, SWE-agent, OpenHands.

use gradus_core::trajectory::TrajectoryStep;
use serde_json::Value as Json;

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum CodingAction {
    /// Shows a file.
    Read(String),
    /// Changes parts of files that exist.
    Edit(Vec<String>),
    /// Writes whole files.
    Write(Vec<String>),
    /// Runs a command of a shell.
    Command(String),
    Other,
}

/// Maximum number of files of one patch that are analysed.
const MAX_PATCH_FILES: usize = 50;

impl CodingAction {
    pub(super) fn from_step(step: &TrajectoryStep) -> CodingAction {
        let tool = step.tool.to_ascii_lowercase();
        let arguments = step.arguments.as_ref();
        let path =
            || find_text(arguments, &["file_path", "path", "absolute_path", "filePath", "notebook_path", "filename"]);
        let read = || path().map_or(CodingAction::Other, CodingAction::Read);
        let edit = || path().map_or(CodingAction::Other, |path| CodingAction::Edit(vec![path]));
        let write = || path().map_or(CodingAction::Other, |path| CodingAction::Write(vec![path]));
        match tool.as_str() {
            "read" | "read_file" | "view" | "readtoolcall" | "open_file" | "cat" | "notebookread" => read(),
            "edit" | "multiedit" | "replace" | "edit_file" | "search_replace" if is_creation(arguments) => write(),
            "edit" | "multiedit" | "replace" | "edit_file" | "edittoolcall" | "notebookedit" | "search_replace" => {
                edit()
            }
            "write" | "write_file" | "create_file" | "writetoolcall" | "create" => write(),
            "apply_patch" | "patch" => read_patch(step),
            "exec" if code_mode_script(step).is_some() => read_script(code_mode_script(step).unwrap_or_default()),
            "file_change" => read_changes(arguments),
            "str_replace_editor" | "str_replace_based_edit_tool" => match find_text(arguments, &["command"]).as_deref()
            {
                Some("view") => read(),
                Some("create") => write(),
                Some("str_replace" | "insert") => edit(),
                _ => CodingAction::Other,
            },
            "bash" | "shell" | "shell_command" | "exec_command" | "local_shell" | "run_shell_command"
            | "execute_bash" | "shelltoolcall" | "run_command" | "terminal" | "container.exec"
            | "command_execution" | "developer__shell" | "powershell" | "pwsh" | "run_in_terminal" | "exec" => {
                read_command(step)
            }
            _ => CodingAction::Other,
        }
    }

    /// Whether it changes files.
    pub(super) fn is_change(&self) -> bool {
        matches!(self, CodingAction::Edit(_) | CodingAction::Write(_))
    }
}

/// Returns the first of these arguments that is a text.
fn find_text(arguments: Option<&Json>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| arguments?.get(name)?.as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Argument names of the text that an edit replaces.
const OLD_TEXT_NAMES: [&str; 7] =
    ["old_string", "oldString", "old_str", "oldText", "old_text", "search", "old_content"];

/// Returns the texts that an edit replaces. A tool that takes a list of edits has one in each.
pub(super) fn replaced_texts(arguments: &Json) -> impl Iterator<Item = &str> {
    let edits = arguments.get("edits").and_then(Json::as_array).into_iter().flatten();
    std::iter::once(arguments)
        .chain(edits)
        .filter_map(|edit| OLD_TEXT_NAMES.iter().find_map(|name| edit.get(name)?.as_str()))
}

/// Whether an edit replaces nothing: it creates the file.
fn is_creation(arguments: Option<&Json>) -> bool {
    arguments.and_then(|arguments| replaced_texts(arguments).next()).is_some_and(str::is_empty)
}

/// Whether an edit names the text that it replaces. If it succeeded, the agent knew the file: the tool compares the text,
/// and most tools also refuse the edit of a file that was not read.
pub(super) fn names_old_text(step: &TrajectoryStep) -> bool {
    let Some(arguments) = step.arguments.as_ref() else { return false };
    let is_known_line = |line: &str| line.len() > 1 && line.starts_with([' ', '-']);
    let patch = ["input", "patch", "patchText"].iter().find_map(|name| arguments.get(name)?.as_str());
    let patch = patch.or(arguments.as_str()).or(step.arguments_raw.as_deref());
    // Codex applies patches through its shell, as one word of the command.
    let words = arguments.get("command").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let command = arguments.get("command").and_then(Json::as_str);
    replaced_texts(arguments).any(|text| !text.is_empty())
        || patch.into_iter().chain(words).chain(command).any(|patch| patch.lines().any(is_known_line))
}

/// The files of a change of `codex exec`: `{"changes": [{"path", "kind"}]}`.
fn read_changes(arguments: Option<&Json>) -> CodingAction {
    let changes = arguments.and_then(|arguments| arguments.get("changes")).and_then(Json::as_array);
    let of_kind = |wanted: bool| {
        let is_it = |change: &&Json| (change.get("kind").and_then(Json::as_str) == Some("update")) == wanted;
        let path = |change: &Json| change.get("path").and_then(Json::as_str).map(str::to_owned);
        changes.into_iter().flatten().filter(is_it).filter_map(path).take(MAX_PATCH_FILES).collect::<Vec<_>>()
    };
    match (of_kind(true), of_kind(false)) {
        (updated, _) if !updated.is_empty() => CodingAction::Edit(updated),
        (_, written) if !written.is_empty() => CodingAction::Write(written),
        _ => CodingAction::Other,
    }
}

/// The script of Codex's code mode, in which the model calls tools from JavaScript: `await tools.exec_command({...})`.
pub(super) fn code_mode_script(step: &TrajectoryStep) -> Option<&str> {
    let script = step.arguments.as_ref()?.get("input")?.as_str()?;
    (step.tool == "exec" && script.contains("tools.")).then_some(script)
}

/// Whether a script only polls a running process.
pub(super) fn only_waits(script: &str) -> bool {
    let calls = || script.match_indices("tools.").map(|(at, found)| &script[at + found.len()..]);
    calls().next().is_some() && calls().all(|call| call.starts_with("write_stdin(") || call.starts_with("wait"))
}

/// Classifies a script: the commands that it runs, or the files that it patches. A script with both, or with a
/// command that is built at run time, is `Other`.
fn read_script(script: &str) -> CodingAction {
    let calls: Vec<&str> = script.split("tools.").skip(1).collect();
    let is_patch = |call: &&str| call.starts_with("apply_patch(");
    let is_command = |call: &&str| call.starts_with("exec_command(");
    if !calls.is_empty() && calls.iter().all(is_patch) {
        return read_script_text(script).map_or(CodingAction::Other, |patch| patch_files(&patch));
    }
    if calls.is_empty() || !calls.iter().all(is_command) {
        return CodingAction::Other;
    }
    let command = |call: &&str| {
        let (_, value) = call.split_once("cmd")?;
        read_script_text(value.trim_start_matches(['"', '\'', ' ']).strip_prefix(':')?)
    };
    match calls.iter().map(command).collect::<Option<Vec<String>>>() {
        Some(commands) => CodingAction::Command(commands.join("\n")),
        None => CodingAction::Other,
    }
}

/// Returns the first quoted text of a script, unescaped. `None` if there is none, or if it is a template with values
/// in it.
fn read_script_text(script: &str) -> Option<String> {
    let start = script.find(['"', '\'', '`'])?;
    let mark = script[start..].chars().next()?;
    let mut text = String::new();
    let mut letters = script[start + 1..].chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter == mark => return Some(text),
            '$' if mark == '`' && letters.peek() == Some(&'{') => return None,
            '\\' => match letters.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                other => text.push(other),
            },
            letter => text.push(letter),
        }
    }
    None
}

/// Reads a command as text. Codex records it as a list: `["bash", "-lc", "ls"]`.
fn read_command(step: &TrajectoryStep) -> CodingAction {
    let value = step.arguments.as_ref().and_then(|arguments| arguments.get("command").or_else(|| arguments.get("cmd")));
    let text = match value {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(words)) => {
            let words: Vec<&str> = words.iter().filter_map(Json::as_str).collect();
            match words.as_slice() {
                ["bash" | "sh" | "zsh" | "/bin/bash" | "/bin/sh", "-lc" | "-c", script] => (*script).to_owned(),
                words => words.join(" "),
            }
        }
        _ => return CodingAction::Other,
    };
    // Codex applies patches through its shell.
    if text.trim_start().starts_with("apply_patch") {
        return patch_files(&text);
    }
    CodingAction::Command(text)
}

fn read_patch(step: &TrajectoryStep) -> CodingAction {
    let text = find_text(step.arguments.as_ref(), &["input", "patch", "patchText"]);
    let whole = step.arguments.as_ref().and_then(Json::as_str).map(str::to_owned);
    let raw = || step.arguments_raw.clone();
    text.or(whole).or_else(raw).map_or(CodingAction::Other, |text| patch_files(&text))
}

/// The files of a patch in the form of `apply_patch`.
fn patch_files(text: &str) -> CodingAction {
    let named = |mark: &str| {
        let files = text.lines().filter_map(|line| line.trim().strip_prefix(mark)).map(|path| path.trim().to_owned());
        files.take(MAX_PATCH_FILES).collect::<Vec<_>>()
    };
    let (updated, added) = (named("*** Update File:"), named("*** Add File:"));
    match (updated.is_empty(), added.is_empty()) {
        (false, _) => CodingAction::Edit(updated),
        (true, false) => CodingAction::Write(added),
        (true, true) => CodingAction::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn action(tool: &str, arguments: Json) -> CodingAction {
        CodingAction::from_step(&TrajectoryStep {
            tool: tool.to_owned(),
            arguments: Some(arguments),
            ..TrajectoryStep::default()
        })
    }

    #[test]
    fn tools_of_different_agents() {
        assert_eq!(action("Read", json!({"file_path": "/a.rs"})), CodingAction::Read("/a.rs".to_owned()));
        assert_eq!(action("Edit", json!({"file_path": "/a.rs"})), CodingAction::Edit(vec!["/a.rs".to_owned()]));
        let listed = json!({"command": ["bash", "-lc", "cargo test"]});
        assert_eq!(action("shell", listed), CodingAction::Command("cargo test".to_owned()));
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+y\n*** End Patch";
        let edited = CodingAction::Edit(vec!["src/a.rs".to_owned()]);
        assert_eq!(action("apply_patch", json!({"input": patch})), edited);
        assert_eq!(action("shell", json!({"command": ["apply_patch", patch]})), edited);
        assert_eq!(
            action("str_replace_editor", json!({"command": "create", "path": "/b"})),
            CodingAction::Write(vec!["/b".to_owned()])
        );
        assert_eq!(action("get_issue", json!({"path": "x"})), CodingAction::Other);
        assert_eq!(action("PowerShell", json!({"command": "ls"})), CodingAction::Command("ls".to_owned()));
        let created = json!({"file_path": "/b", "edits": [{"old_string": "", "new_string": "x"}]});
        assert_eq!(action("MultiEdit", created), CodingAction::Write(vec!["/b".to_owned()]));
        let created = json!({"filePath": "/b", "oldString": "", "newString": "x"});
        assert_eq!(action("edit", created), CodingAction::Write(vec!["/b".to_owned()]));
    }
}
