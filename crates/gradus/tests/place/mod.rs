//! A folder to work in, and the command without what the surroundings would tell it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

/// What would change what the command does, or where it asks.
const VARIABLES: [&str; 12] = [
    "CLICOLOR_FORCE",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_MODEL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "GRADUS_STATE_DIR",
    "GRADUS_CONFIG",
    "GRADUS_TRUST_CONFIG",
    "GRADUS_URL",
    "HTTP_PROXY",
    "http_proxy",
];

pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    #[allow(dead_code, reason = "each test binary that has this file uses what it needs")]
    pub(crate) fn lines(&self, name: &str) -> Vec<Json> {
        self.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(arguments).current_dir(self.folder()).stdin(Stdio::null());
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        // What the user trusts is nothing to a test.
        command.env("XDG_STATE_HOME", self.path("user-state"));
        command
    }

    /// Runs without a key: the judge is offline unless an endpoint is named.
    #[allow(dead_code, reason = "tests of the server run commands in their own way")]
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from_output(self.command(arguments).output().unwrap())
    }
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn from_output(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts the exit code, and shows what was said if it is another one.
    pub(crate) fn exits_with(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }
}
