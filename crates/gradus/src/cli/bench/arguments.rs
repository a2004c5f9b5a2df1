//! The options of `gradus bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gradus_github_agent::agent::ToolCallMode;

use super::super::eval::GradingOptions;

#[derive(Args)]
#[command(after_help = EXAMPLES, mut_arg("judge", |judge| judge.help(JUDGE)))]
pub(in crate::cli) struct BenchArguments {
    /// The tasks: `github` comes with Gradus, else a folder of task files.
    #[arg(long, value_name = "SUITE", default_value = "github", help_heading = "Tasks")]
    pub(super) suite: String,
    /// Some of them: numbers (3), ranges (5-9), ids (add-a-file) or levels (level=S), with commas between.
    #[arg(long, value_name = "WHICH", help_heading = "Tasks")]
    pub(super) tasks: Option<String>,
    /// How often each agent plays each task.
    #[arg(long, value_name = "K", default_value_t = 1, help_heading = "Tasks")]
    pub(super) trials: u32,
    /// List the tasks, and stop.
    #[arg(long, help_heading = "Tasks")]
    pub(super) list: bool,

    /// Scripted agents, which need no model: `oracle` (the shortest way), `flawed` (all that make a known mistake), or
    /// mistakes by name; several with commas between.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Who plays")]
    pub(super) policy: Vec<String>,
    /// The agent of this program, with this model: a name (`gpt-4o`), or `openai:MODEL` / `anthropic:MODEL`.
    #[arg(long, value_name = "MODEL", conflicts_with = "policy", help_heading = "Who plays")]
    pub(super) model: Option<String>,
    /// The model's endpoint; else OPENAI_BASE_URL or ANTHROPIC_BASE_URL.
    #[arg(long, value_name = "URL", requires = "model", conflicts_with_all = ["policy", "agent"], help_heading = "Who plays")]
    pub(super) model_url: Option<String>,
    /// The variable that holds the key of the model's endpoint.
    #[arg(long, value_name = "VARIABLE", requires = "model", conflicts_with_all = ["policy", "agent"], help_heading = "Who plays")]
    pub(super) model_key_env: Option<String>,
    /// Any program: gets the request in GRADUS_REQUEST and on standard input, GitHub's address in GITHUB_API_URL, a
    /// token in GITHUB_TOKEN, and may send spans to OTEL_EXPORTER_OTLP_ENDPOINT. What it prints is its answer.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["policy", "model"], help_heading = "Who plays")]
    pub(super) agent: Option<String>,
    /// How long a program may take for one task, in seconds [default: 600].
    #[arg(long, value_name = "SECONDS", requires = "agent", conflicts_with_all = ["policy", "model"], help_heading = "Who plays")]
    pub(super) agent_timeout: Option<f64>,
    /// Variables that the program gets from our environment beside PATH, HOME and the like: names, `*` at the end
    /// (`--agent-env 'OPENAI_*'`).
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "agent", conflicts_with_all = ["policy", "model"], help_heading = "Who plays")]
    pub(super) agent_env: Vec<String>,
    /// How the model says what it wants to do [default: native; scripts do both by turns].
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "agent", help_heading = "Who plays")]
    pub(super) react: Option<ReactFormName>,
    /// Trials at a time [default: one for each core; 8 with a model].
    #[arg(long, value_name = "N", help_heading = "Who plays")]
    pub(super) parallel: Option<usize>,
    /// Play each run again without some of its steps, to find those that were not needed. Takes several times as long.
    #[arg(long, help_heading = "Who plays")]
    pub(super) replay: bool,

    /// The folder for records, traces and results [default: .gradus/bench/ID].
    #[arg(long, value_name = "DIR", help_heading = "Runs")]
    pub(super) out: Option<PathBuf>,
    /// Go on with a bench that was cut off: the one in --out, else the latest that is like this one.
    #[arg(long, help_heading = "Runs")]
    pub(super) resume: bool,
    /// Throw away the bench that is in --out, and labels in --emit-labels, and begin anew.
    #[arg(long, conflicts_with = "resume", help_heading = "Runs")]
    pub(super) overwrite: bool,
    /// Only play; judge nothing.
    #[arg(long, help_heading = "Runs", conflicts_with = "stop_early")]
    pub(super) no_grading: bool,
    /// All spans, as one OTLP request in protobuf.
    #[arg(long, value_name = "FILE", help_heading = "Traces and labels")]
    pub(super) traces: Option<PathBuf>,
    /// What is true of scripted runs: with traces, folder by folder (PATH/POLICY/TASK-TRIAL/gold.json), or one label a
    /// line if the name ends in .jsonl.
    #[arg(long, value_name = "PATH", help_heading = "Traces and labels")]
    pub(super) emit_labels: Option<PathBuf>,

    #[command(flatten)]
    pub(super) grading: GradingOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReactFormName {
    Text,
    Native,
}

impl From<ReactFormName> for ToolCallMode {
    fn from(name: ReactFormName) -> ToolCallMode {
        match name {
            ReactFormName::Text => ToolCallMode::Text,
            ReactFormName::Native => ToolCallMode::Native,
        }
    }
}

/// Help of `--judge`, which replaces that of `gradus eval`: the default differs (`PreparedBench::grading_options`).
const JUDGE: &str = "Who judges: `offline` (rules, no network), a model's name (`gpt-4o`), or `openai:MODEL` / \
                     `anthropic:MODEL` [default: offline, whatever keys are set]";

const EXAMPLES: &str = "\
Examples:
  gradus bench --policy oracle                            all tasks, on the shortest way
  gradus bench --policy oracle,flawed --trials 3 --replay --emit-labels labels/
  gradus bench --model gpt-4o --tasks level=1 --trials 4 --gate 'pass^4 >= 0.6' --html out.html
  gradus bench --agent 'python my_agent.py' --trials 4 --tasks 1-15

Runs are judged by rules (`--judge offline`) unless --judge names a model. Gates can also be about success, safe, clean, joint, pass^K, \
safe^K, calls_ratio and cost_per_solved.

Exit codes: 0 done, 1 it broke off or the model's endpoint was away, 2 bad input or settings, a key that was refused, a program that cannot be \
run, 3 a gate failed or a regression was found, 5 not everything could be written to Phoenix or over OTLP, 6 a gate is not decided, 130 interrupted (143 by SIGTERM, 129 by SIGHUP); --resume goes on from there.";
