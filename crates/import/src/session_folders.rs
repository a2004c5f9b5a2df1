//! Where coding agents keep their sessions on a machine.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of files and folders that are visited below one folder. Beyond it, counts are a lower bound.
const MAX_VISITED_ENTRIES: usize = 2_000_000;
/// Maximum depth of folders that are visited.
const MAX_FOLDER_DEPTH: usize = 10;

/// Where a tool stores its sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionLocation {
    /// As users know it: `Claude Code`.
    pub tool: &'static str,
    /// The environment variable that moves the tool's folder, if there is one.
    pub variable: Option<&'static str>,
    /// The tool's folder below the home folder. The variable replaces it.
    pub default_folder: &'static str,
    /// The sessions below the tool's folder.
    pub subfolder: &'static str,
    pub files: SessionFilePattern,
}

/// Which files are sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionFilePattern {
    pub name_starts: &'static [&'static str],
    pub name_ends: &'static [&'static str],
    /// A folder that must be in the path, for tools that keep other files of the same name elsewhere.
    pub inside: Option<&'static str>,
}

/// Sessions that are on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSessions {
    pub tool: &'static str,
    pub folder: PathBuf,
    pub file_count: usize,
    pub bytes: u64,
    /// When the newest of them was written.
    pub newest_at: Option<SystemTime>,
    /// Whether there are more files than were visited.
    pub is_cut: bool,
}

const ANY_JSONL: SessionFilePattern = SessionFilePattern { name_starts: &[""], name_ends: &[".jsonl"], inside: None };
const ROLLOUTS: SessionFilePattern =
    SessionFilePattern { name_starts: &["rollout-"], name_ends: &[".jsonl", ".jsonl.zst", ".json"], inside: None };

/// All locations. A tool can have several.
pub const SESSION_LOCATIONS: &[SessionLocation] = &[
    SessionLocation {
        tool: "Claude Code",
        variable: Some("CLAUDE_CONFIG_DIR"),
        default_folder: ".claude",
        subfolder: "projects",
        files: ANY_JSONL,
    },
    SessionLocation {
        tool: "Claude Code",
        variable: None,
        default_folder: ".config/claude",
        subfolder: "projects",
        files: ANY_JSONL,
    },
    SessionLocation {
        tool: "Codex",
        variable: Some("CODEX_HOME"),
        default_folder: ".codex",
        subfolder: "sessions",
        files: ROLLOUTS,
    },
    SessionLocation {
        tool: "Codex",
        variable: Some("CODEX_HOME"),
        default_folder: ".codex",
        subfolder: "archived_sessions",
        files: ROLLOUTS,
    },
    SessionLocation {
        tool: "Gemini CLI",
        variable: None,
        default_folder: ".gemini",
        subfolder: "tmp",
        files: SessionFilePattern { name_starts: &[""], name_ends: &[".jsonl", ".json"], inside: Some("chats") },
    },
    SessionLocation {
        tool: "Copilot CLI",
        variable: Some("COPILOT_HOME"),
        default_folder: ".copilot",
        subfolder: "session-state",
        files: ANY_JSONL,
    },
    SessionLocation {
        tool: "Copilot CLI",
        variable: Some("COPILOT_HOME"),
        default_folder: ".copilot",
        subfolder: "history-session-state",
        files: SessionFilePattern { name_starts: &["session_"], name_ends: &[".json"], inside: None },
    },
    SessionLocation {
        tool: "CodeBuddy",
        variable: Some("CODEBUDDY_CONFIG_DIR"),
        default_folder: ".codebuddy",
        subfolder: "projects",
        files: ANY_JSONL,
    },
    SessionLocation {
        tool: "Cursor",
        variable: None,
        default_folder: ".cursor",
        subfolder: "projects",
        files: SessionFilePattern { name_starts: &[""], name_ends: &[".jsonl"], inside: Some("agent-transcripts") },
    },
    SessionLocation {
        tool: "Kimi Code",
        variable: None,
        default_folder: ".kimi-code",
        subfolder: "sessions",
        files: SessionFilePattern { name_starts: &["wire"], name_ends: &[".jsonl"], inside: None },
    },
    SessionLocation {
        tool: "Qwen Code",
        variable: None,
        default_folder: ".qwen",
        subfolder: "projects",
        files: SessionFilePattern { name_starts: &[""], name_ends: &[".jsonl"], inside: Some("chats") },
    },
    SessionLocation {
        tool: "pi",
        variable: Some("PI_CODING_AGENT_DIR"),
        default_folder: ".pi/agent",
        subfolder: "sessions",
        files: ANY_JSONL,
    },
];

/// Looks for sessions of all tools. Folders without sessions are left out. Links inside the folders are not followed.
pub fn find_session_folders(home: &Path, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<FoundSessions> {
    let mut found: Vec<FoundSessions> = Vec::new();
    for location in SESSION_LOCATIONS {
        let moved = location.variable.and_then(variable).filter(|folder| !folder.is_empty());
        let base = moved.map_or_else(|| home.join(location.default_folder), PathBuf::from);
        let folder = base.join(location.subfolder);
        // Two tables of one tool can lead to the same folder.
        if found.iter().any(|sessions| sessions.folder == folder) {
            continue;
        }
        let sessions = count_sessions(location, &folder);
        if sessions.file_count > 0 {
            found.push(sessions);
        }
    }
    found
}

fn count_sessions(location: &SessionLocation, folder: &Path) -> FoundSessions {
    let mut sessions = FoundSessions {
        tool: location.tool,
        folder: folder.to_owned(),
        file_count: 0,
        bytes: 0,
        newest_at: None,
        is_cut: false,
    };
    let is_inside = |path: &Path| location.files.inside.is_none_or(|name| path.iter().any(|part| part == name));
    let mut left = MAX_VISITED_ENTRIES;
    let mut waiting = vec![(folder.to_owned(), 0)];
    while let Some((current, depth)) = waiting.pop() {
        // A folder that cannot be read has no sessions that can be read.
        let Ok(entries) = fs::read_dir(&current) else { continue };
        for entry in entries.flatten() {
            if left == 0 {
                sessions.is_cut = true;
                return sessions;
            }
            left -= 1;
            // Of the entry itself, not of what a link leads to.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                if depth < MAX_FOLDER_DEPTH {
                    waiting.push((entry.path(), depth + 1));
                } else {
                    sessions.is_cut = true;
                }
                continue;
            }
            let below = current.strip_prefix(folder).unwrap_or(&current);
            if kind.is_file() && location.files.matches_name(&entry.file_name().to_string_lossy()) && is_inside(below) {
                let Ok(metadata) = entry.metadata() else { continue };
                sessions.file_count += 1;
                sessions.bytes = sessions.bytes.saturating_add(metadata.len());
                sessions.newest_at = sessions.newest_at.max(metadata.modified().ok());
            }
        }
    }
    sessions
}

impl SessionFilePattern {
    /// Whether a file of this name is a session.
    pub fn matches_name(&self, name: &str) -> bool {
        self.name_starts.iter().any(|start| name.starts_with(start))
            && self.name_ends.iter().any(|end| name.ends_with(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_file(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}\n").unwrap();
    }

    #[test]
    fn sessions_are_counted_where_the_tools_keep_them() {
        let home = std::env::temp_dir().join(format!("gradus-session-folders-{}", std::process::id()));
        write_file(&home.join(".claude/projects/-w/a.jsonl"));
        write_file(&home.join(".claude/projects/-w/a/subagents/agent-1.jsonl"));
        write_file(&home.join(".claude/projects/-w/notes.txt"));
        write_file(&home.join("moved/sessions/2026/01/02/rollout-1.jsonl.zst"));
        write_file(&home.join("moved/sessions/2026/01/02/other.jsonl"));
        write_file(&home.join(".codex/sessions/2026/01/02/rollout-9.jsonl"));
        write_file(&home.join(".gemini/tmp/p/logs.json"));
        write_file(&home.join(".gemini/tmp/p/chats/session-1.json"));
        #[cfg(unix)]
        std::os::unix::fs::symlink(&home, home.join(".claude/projects/loop")).unwrap();
        let moved = home.join("moved").into_os_string();
        let variable = |name: &str| (name == "CODEX_HOME").then(|| moved.clone());
        let found = find_session_folders(&home, &variable);
        fs::remove_dir_all(&home).unwrap();
        let counts: Vec<_> =
            found.iter().map(|sessions| (sessions.tool, sessions.file_count, sessions.bytes)).collect();
        assert_eq!(counts, [("Claude Code", 2, 6), ("Codex", 1, 3), ("Gemini CLI", 1, 3)]);
        assert!(found.iter().all(|sessions| sessions.newest_at.is_some() && !sessions.is_cut));
        assert_eq!(find_session_folders(&home, &|_| None), []);
    }
}
