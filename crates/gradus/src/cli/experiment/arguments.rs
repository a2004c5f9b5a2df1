//! The options of `gradus experiment`.

use std::path::PathBuf;

use clap::Args;

use super::super::eval::GradingOptions;

#[derive(Args)]
#[command(after_help = EXAMPLES, mut_arg("judge", |judge| judge.help(JUDGE)), mut_arg("fresh", |fresh| fresh.help(FRESH)))]
pub(in crate::cli) struct ExperimentArguments {
    /// The dataset: one item a line, see `gradus dataset`.
    #[arg(value_name = "DATASET")]
    pub(super) dataset: PathBuf,
    /// Only items with one of these tags.
    #[arg(long = "item-tag", value_name = "TAG", help_heading = "Trials")]
    pub(super) tags: Vec<String>,
    /// How often the agent works on each item.
    #[arg(long, value_name = "K", default_value_t = 1, help_heading = "Trials")]
    pub(super) trials: u32,
    /// Trials at a time [default: one for each core].
    #[arg(long, value_name = "N", help_heading = "Trials")]
    pub(super) jobs: Option<usize>,

    /// A program: gets the request in GRADUS_REQUEST and on standard input, messages as JSON in GRADUS_MESSAGES, and
    /// may send spans to OTEL_EXPORTER_OTLP_ENDPOINT. Standard output is its answer.
    #[arg(
        long,
        value_name = "COMMAND",
        required_unless_present = "agent_url",
        conflicts_with = "agent_url",
        help_heading = "Agent"
    )]
    pub(super) agent: Option<String>,
    /// An agent behind HTTP: gets a POST with `traceparent` and `baggage` headers for each trial.
    #[arg(long, value_name = "URL", help_heading = "Agent")]
    pub(super) agent_url: Option<String>,
    /// The JSON body for --agent-url; @FILE reads it. {request} and {item_id} are replaced inside of texts, and the
    /// text "{messages}" by the list of messages [default: {"request": "{request}", "messages": "{messages}"}].
    #[arg(long, value_name = "JSON", requires = "agent_url", help_heading = "Agent")]
    pub(super) body_template: Option<String>,
    /// Where the answer is in the response, as a JSON pointer (/choices/0/text); it counts, whatever the trace says
    /// [default: the whole body, if the trace has no answer].
    #[arg(long, value_name = "POINTER", requires = "agent_url", help_heading = "Agent")]
    pub(super) answer_path: Option<String>,
    /// A header for --agent-url, as 'Authorization: Bearer $TOKEN'; may be given several times. Variables are replaced by
    /// values of the environment, which are never stored.
    #[arg(long, value_name = "HEADER", requires = "agent_url", help_heading = "Agent")]
    pub(super) agent_header: Vec<String>,
    /// Where an agent behind HTTP sends its spans; port 0 is any free port.
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:0",
        requires = "agent_url",
        help_heading = "Agent"
    )]
    pub(super) collector: String,
    /// How long to wait for the spans of an agent behind HTTP after the last answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, requires = "agent_url", help_heading = "Agent")]
    pub(super) span_wait: f64,
    /// How long one trial may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, help_heading = "Agent")]
    pub(super) agent_timeout: f64,
    /// Variables that programs get from our environment beside PATH, HOME and the like: names, `*` at the end
    /// (`--pass-env 'OPENAI_*'`).
    #[arg(long, value_name = "NAME", value_delimiter = ',', alias = "agent-env", help_heading = "Agent")]
    pub(super) pass_env: Vec<String>,
    /// Run this before the first trial. Processes that it leaves in the background are ended after the last one.
    #[arg(long, value_name = "COMMAND", help_heading = "Agent")]
    pub(super) setup: Option<String>,
    /// Run this after the last trial, also if setup failed or the experiment stopped early.
    #[arg(long, value_name = "COMMAND", help_heading = "Agent")]
    pub(super) teardown: Option<String>,

    /// The folder for results and trajectories [default: .gradus/experiments/ID]. An experiment in it is continued.
    #[arg(long, value_name = "DIR", help_heading = "Runs")]
    pub(super) out: Option<PathBuf>,
    /// Only run the agent and the checks of the dataset; judge nothing.
    #[arg(long, help_heading = "Runs", conflicts_with = "stop_early")]
    pub(super) no_grading: bool,

    #[command(flatten)]
    pub(super) grading: GradingOptions,
}

/// Help of `--judge`, which replaces that of `gradus eval`: the default differs.
const JUDGE: &str = "Who judges: `offline` (rules, no network), a model's name (`gpt-4o`), or `openai:MODEL` / \
                     `anthropic:MODEL` [default: offline, whatever keys are set]";

/// Help of `--fresh`, which also concerns the trials.
const FRESH: &str = "Start anew: continue no earlier experiment, and use no earlier verdict";

const EXAMPLES: &str = "\
Examples:
  gradus experiment items.jsonl --agent 'python my_agent.py' --trials 5
  gradus experiment items.jsonl --agent 'python my_agent.py' --pass-env OPENAI_API_KEY --gate 'pass >= 0.9'
  gradus experiment items.jsonl --agent-url http://127.0.0.1:8000/chat --body-template '{\"input\": \"{request}\"}' --answer-path /output
  gradus eval .gradus/experiments/ID --judge gpt-4o        judge the same trajectories again

The same command continues an experiment that was cut off; finished trials are not run again. --fresh starts anew. Gates can also be \
about pass, answered, pass^K, pass@K (at least one of K) and the checks of the dataset (expected_tools, must_not_call, \
answer_contains, answer_matches).

Exit codes: 0 done, 1 unexpected failure, 2 bad input or settings, an agent or a setup command that cannot be run, 3 a gate failed \
or a regression was found, 5 not everything could be written to Phoenix or over OTLP, 6 a gate is not decided, 130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.";
