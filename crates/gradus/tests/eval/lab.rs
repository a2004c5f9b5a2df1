//! A folder to work in, cases to judge, and the command to judge them with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use serde_json::{Value as Json, json};

pub(crate) struct Lab {
    folder: tempfile::TempDir,
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts the exit code, and shows what was said if it is another one.
    pub(crate) fn exits_with(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab { folder: tempfile::tempdir().unwrap() }
    }

    /// With this many trajectories of one step in `cases.jsonl`.
    pub(crate) fn with_cases(count: usize) -> Lab {
        let lab = Lab::new();
        let lines: Vec<String> = (0..count).map(|number| case(number).to_string() + "\n").collect();
        lab.write("cases.jsonl", &lines.concat());
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
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

    pub(crate) fn lines(&self, name: &str) -> Vec<Json> {
        self.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(arguments).current_dir(self.folder.path());
        for variable in [
            "CLICOLOR_FORCE",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "OPENAI_MODEL",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "GRADUS_STATE_DIR",
            "GRADUS_CONFIG",
            "HTTP_PROXY",
            "http_proxy",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs without a key: the judge is offline unless an endpoint is named.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// Runs with a model at this endpoint.
    pub(crate) fn run_at(&self, endpoint: &Endpoint, arguments: &[&str]) -> Ran {
        Ran::of(self.command_at(endpoint, arguments).output().unwrap())
    }

    pub(crate) fn command_at(&self, endpoint: &Endpoint, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", "sk-test");
        command
    }
}

/// One trajectory of one step.
pub(crate) fn case(number: usize) -> Json {
    json!({
        "trajectory_id": format!("case-{number}"), "trace_ids": [], "session_id": null, "project": null,
        "agent": null, "agent_version": null, "model": null,
        "query": format!("Show me file {number} of the demo repository"), "final_answer": "Here it is.",
        "steps": [step(1, &format!("I will read file {number}.md in the demo repository."), number)],
        "tools": [{"name": "read_file", "description": "Reads a file of a repository.", "schema": {
            "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}],
        "tokens": {"prompt": 0, "completion": 0}, "cost_usd": null, "defects": [],
        "parent_trajectory_id": null, "parent_step_index": null, "answer_span_ids": [], "root_span_id": null,
        "start": null, "end": null, "is_error": false,
    })
}

pub(crate) fn step(index: usize, thought: &str, file: usize) -> Json {
    json!({
        "index": index, "thought": thought, "tool": "read_file", "tool_call_id": null,
        "arguments": {"path": format!("{file}.md")}, "arguments_raw": null, "observation": "# text",
        "is_error": false, "parallel_with_previous": false, "agent": null, "span_ids": [], "start": null,
        "end": null, "tokens": {"prompt": 0, "completion": 0},
    })
}

pub(crate) fn endpoint(script: impl Fn(&Incoming<'_>) -> Answer + Send + Sync + 'static) -> Endpoint {
    Endpoint::start(Arc::new(script)).unwrap()
}

/// Says that everything is right.
pub(crate) fn kind_endpoint() -> Endpoint {
    endpoint(|incoming| incoming.verdict("correct"))
}

/// The number of the case that a request is about.
pub(crate) fn case_of(incoming: &Incoming<'_>) -> usize {
    let text = String::from_utf8_lossy(incoming.body);
    let at = text.rfind("I will read file ").unwrap() + "I will read file ".len();
    text[at..].split('.').next().unwrap().parse().unwrap()
}

/// Only the question about the tool's choice: one for each case.
pub(crate) const ONE_QUESTION: [&str; 2] = ["--evaluators", "thought_to_tool"];

pub(crate) fn fixture(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(path).display().to_string()
}

/// `eval cases.jsonl` with one question a case, the outcomes in `out.jsonl`, and more.
pub(crate) fn eval<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["eval", "cases.jsonl", "--jsonl", "out.jsonl"];
    arguments.extend(ONE_QUESTION);
    arguments.extend(more);
    arguments
}
