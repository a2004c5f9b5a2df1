//! The files that `gradus init` writes. Texts of the project go into comments only, and are names from our own tables
//! or plain identifiers: no file of the project can add a setting.

use std::fmt::Write as _;

use super::project_scan::{CiSystem, GITLAB_INCLUDE_PATH, ProjectScan, ProjectTools};
use crate::config::CONFIG_FILE_NAME;

/// The first dataset.
pub(super) const DATASET_PATH: &str = "evals/dataset.jsonl";
const GITHUB_PATH: &str = ".github/workflows/gradus.yml";
const GITLAB_PATH: &str = ".gitlab-ci.yml";
/// The repository with the action, at the tag of this version. Who owns it is for the user to say: a name that somebody
/// else may hold must not be run with the rights of a job.
const ACTION: &str = concat!("OWNER/gradus@v", env!("CARGO_PKG_VERSION"));
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file with its text.
#[derive(Clone, Debug)]
pub(super) struct PlannedFile {
    pub(super) path: String,
    pub(super) text: String,
}

/// Plans the files for a project.
pub(super) fn plan_files(scan: &ProjectScan) -> Vec<PlannedFile> {
    let file = |path: &str, text: String| PlannedFile { path: path.to_owned(), text };
    let mut files = vec![file(CONFIG_FILE_NAME, render_settings(scan)), file(DATASET_PATH, DATASET.to_owned())];
    match scan.ci {
        CiSystem::GitHub => files.push(file(GITHUB_PATH, render_github_workflow(scan))),
        CiSystem::GitLab if scan.has_gitlab_file => files.push(file(GITLAB_INCLUDE_PATH, render_gitlab_job(scan))),
        CiSystem::GitLab => files.push(file(GITLAB_PATH, render_gitlab_job(scan))),
        CiSystem::Nothing => {}
    }
    files
}

/// JSON Lines have no comments, so the items explain themselves. `cat` in place of an agent passes both.
const DATASET: &str = r#"{"id": "say-hello", "request": "Say hello to Ada.", "answer_contains": ["Ada"], "tags": ["first"], "metadata": {"note": "Replace these items by requests for your agent."}}
{"id": "no-tools", "request": "Thank you!", "answer_matches": "(?i)thank", "tags": ["first"], "metadata": {"note": "Add \"expected_tools\": [\"find_order\", \"refund\"] or \"must_not_call\": [\"delete_order\"] to check tool calls."}}
"#;

fn render_settings(scan: &ProjectScan) -> String {
    let mut text = String::from(
        "# Settings of Gradus for this project, written by `gradus init`.\n\
         # `gradus config show` prints every value and where it came from, `gradus config reference` all keys.\n",
    );
    if !scan.frameworks.is_empty() || !scan.variables.is_empty() {
        text.push_str("#\n# Found in this project:\n");
    }
    for found in &scan.frameworks {
        let _ = writeln!(
            text,
            "#   {} ({} in {}). To trace it: {}",
            found.framework.title, found.package, found.file, found.framework.tracing
        );
    }
    for name in &scan.variables {
        let _ = writeln!(text, "#   {name} is set");
    }
    text.push_str(JUDGE_AND_EVAL);
    if scan.variables.iter().any(|name| name.starts_with("PHOENIX_")) {
        text.push_str(PHOENIX);
    }
    text.push_str(SERVE);
    text
}

const JUDGE_AND_EVAL: &str = r#"
# state_dir = ".gradus"        # runs, verdict cache and store; not for git

[judge]
# Rules, without a model: the same result every time, at no cost.
# A model judges more. Name it, set its key in the environment (never here), and run `gradus trust`:
#   name = "gpt-4o"                        with OPENAI_API_KEY
#   name = "anthropic:claude-sonnet-5-5"   with ANTHROPIC_API_KEY
#   name = "ollama:MODEL"                  on this machine, without a key (`gradus judge list`)
name = "offline"

[eval]
# A run ends with exit code 3 if one of these is missed. Raise the bar as the agent gets better.
# For agents with tools, add "call_validity >= 0.95" and "argument_provenance >= 0.9".
gates = ["outcome >= 0.8"]
# evaluators = ["core"]        # `gradus rubrics list` lists them
# rubrics = ["rubrics"]        # files and folders of your own
# tools = "tools.json"         # definitions of the agent's tools, if traces do not have them
"#;

const PHOENIX: &str = r#"
[phoenix]
# The address and the key of Phoenix are taken from PHOENIX_COLLECTOR_ENDPOINT and PHOENIX_API_KEY:
#   gradus eval --project NAME                     grade a project
#   gradus eval --project NAME --log-to-phoenix    and write the verdicts back
# trajectory_target = "span"   # or "trace"
"#;

const SERVE: &str = r#"
[serve]
# `gradus serve` receives and grades traces while agents run. Point their OTLP exporter at it:
#   OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
# http = "127.0.0.1:4318"
# grpc = "127.0.0.1:4317"
# retention.max_age = "30d"    # needs `gradus trust`, since it deletes traces
"#;

/// Comments with the steps that install what the agent needs.
fn setup_comments(tools: ProjectTools) -> &'static str {
    match tools {
        ProjectTools::Uv => "      # - uses: astral-sh/setup-uv@v6\n      # - run: uv sync\n",
        ProjectTools::Pip => {
            "      # - uses: actions/setup-python@v5\n      #   with: { python-version: \"3.12\" }\n      # - run: pip install -r requirements.txt\n"
        }
        ProjectTools::Npm => "      # - uses: actions/setup-node@v4\n      # - run: npm ci\n",
        ProjectTools::Unknown => "      # - run: ./install-my-agent.sh\n",
    }
}

fn suggested_agent(scan: &ProjectScan) -> &str {
    scan.agent_command.as_deref().unwrap_or("python agent.py")
}

fn render_github_workflow(scan: &ProjectScan) -> String {
    let (branch, setup, agent) = (scan.branch, setup_comments(scan.tools), suggested_agent(scan));
    format!(
        r#"# Grades the agent on each pull request. Written by `gradus init`.
name: gradus
on:
  pull_request:
  push:
    branches: [{branch}]
permissions:
  contents: read
  pull-requests: write # for the comment
jobs:
  gradus:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      # What your agent needs:
{setup}      - uses: {ACTION}
        with:
          command: experiment
          source: {DATASET_PATH}
          # Put the command of your agent in place of `cat`, for example '{agent}'. It gets the request on
          # standard input and in GRADUS_REQUEST; --pass-env OPENAI_API_KEY passes it a key.
          args: "--agent cat --gate 'pass >= 0.8'"
          baseline: cache
          comment: "true"
          version: "{VERSION}"
"#
    )
}

fn render_gitlab_job(scan: &ProjectScan) -> String {
    let agent = suggested_agent(scan);
    format!(
        r#"# Grades the agent. Written by `gradus init`.
gradus:
  image: python:3.12-slim
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
  script:
    # WHEEL is a CI/CD variable: the path or the address of the wheel that scripts/dist makes.
    - pip install "$WHEEL"
    # Put the command of your agent in place of `cat`, for example '{agent}'. It gets the request on
    # standard input and in GRADUS_REQUEST; --pass-env OPENAI_API_KEY passes it a key.
    - >-
      gradus experiment {DATASET_PATH} --agent cat --gate 'pass >= 0.8'
      --junit gradus-junit.xml --html gradus-report.html
  artifacts:
    when: always
    paths: [gradus-report.html]
    reports:
      junit: gradus-junit.xml
"#
    )
}
