//! A folder to work in, cases to judge, and the command to judge them with.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use gradus_test_endpoint::{Answer, Endpoint, Incoming};
use serde_json::{Value as Json, json};

use crate::place::Place;
pub(crate) use crate::place::Ran;

pub(crate) struct Lab {
    place: Place,
}

impl std::ops::Deref for Lab {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab { place: Place::new() }
    }

    /// With this many trajectories of one step in `cases.jsonl`.
    pub(crate) fn with_cases(count: usize) -> Lab {
        let lab = Lab::new();
        let lines: Vec<String> = (0..count).map(|number| case(number).to_string() + "\n").collect();
        lab.write("cases.jsonl", &lines.concat());
        lab
    }

    /// Runs with a model at this endpoint.
    pub(crate) fn run_at(&self, endpoint: &Endpoint, arguments: &[&str]) -> Ran {
        Ran::from_output(self.command_at(endpoint, arguments).output().unwrap())
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
