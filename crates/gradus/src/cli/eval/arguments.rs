//! The options of `gradus eval`; those of grading are shared with `bench` and `demo`.

use std::path::PathBuf;

use clap::Args;

use super::super::destinations::DestinationOptions;
use super::super::outputs::OutputOptions;
use super::super::sources::SourceOptions;
use crate::cli::judge_options::JudgeOptions;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct EvalArguments {
    /// Files, folders, - for standard input, store:PROJECT, gradus://HOST:PORT/PROJECT or phoenix://HOST:PORT/PROJECT,
    /// as for `gradus traces`.
    #[arg(value_name = "SOURCE")]
    pub(super) sources: Vec<String>,
    #[command(flatten)]
    pub(super) which: SourceOptions,

    /// Judge N trajectories only, chosen at random.
    #[arg(long, value_name = "N", help_heading = "What is judged")]
    pub(super) sample: Option<usize>,
    /// The same seed chooses the same trajectories.
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "What is judged")]
    pub(super) seed: u64,
    /// Say what would be asked and what it would cost, and stop.
    #[arg(long, help_heading = "Limits")]
    pub(super) dry_run: bool,

    #[command(flatten)]
    pub(super) grading: GradingOptions,
}

/// How trajectories are judged, wherever they come from, and what becomes of that: the same for `eval` and `bench`.
#[derive(Args, Clone)]
pub(in crate::cli) struct GradingOptions {
    #[command(flatten)]
    pub(in crate::cli) judge: JudgeOptions,

    /// Which evaluations to run, by name [default: all].
    #[arg(long, short, value_name = "NAME", value_delimiter = ',', help_heading = "What is judged")]
    pub(super) evaluators: Vec<String>,
    /// A rubric's file or a folder of them; they add to those that are built in, or replace them.
    #[arg(long, value_name = "PATH", help_heading = "What is judged")]
    pub(super) rubrics: Vec<PathBuf>,
    /// The tools the agent had: OpenAI tools JSON, an MCP tools/list, or lines of `name: description`.
    #[arg(long, value_name = "FILE", help_heading = "What is judged")]
    pub(super) tools: Option<PathBuf>,
    /// Lines of `name: text`, added to the descriptions of tools.
    #[arg(long, value_name = "FILE", help_heading = "What is judged")]
    pub(super) tool_notes: Option<PathBuf>,

    /// Stop before the run costs more than this.
    #[arg(long, value_name = "DOLLARS", help_heading = "Limits")]
    pub(super) max_cost: Option<f64>,
    /// Send no more requests than this.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(super) max_calls: Option<u64>,
    /// Ask nothing more after this time, in seconds; calls in flight get 5 more.
    #[arg(long, value_name = "SECONDS", help_heading = "Limits")]
    pub(super) max_time: Option<f64>,

    /// Where runs and verdicts are kept [default: .gradus].
    #[arg(long, value_name = "DIR", help_heading = "Runs")]
    pub(in crate::cli) state_dir: Option<PathBuf>,
    /// Judge everything anew: take up no earlier run or read, use no earlier verdict.
    #[arg(long, help_heading = "Runs")]
    pub(in crate::cli) fresh: bool,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE", help_heading = "Runs")]
    pub(in crate::cli) config: Option<PathBuf>,
    /// No progress.
    #[arg(long, short, help_heading = "Runs")]
    pub(in crate::cli) quiet: bool,

    #[command(flatten)]
    pub(in crate::cli) outputs: OutputOptions,
    #[command(flatten)]
    pub(super) destinations: DestinationOptions,
}

impl EvalArguments {
    /// Arguments for all trajectories of these sources, without filters and samples.
    pub(in crate::cli) fn for_sources(sources: Vec<String>, grading: GradingOptions) -> EvalArguments {
        EvalArguments { sources, which: SourceOptions::default(), sample: None, seed: 0, dry_run: false, grading }
    }
}

const EXAMPLES: &str = "\
Examples:
  gradus eval traces/ --judge offline                  rules only: no key, no network
  gradus eval traces/ --dry-run                        what would it cost?
  gradus eval traces/ --html report.html               judge with gpt-4o, look at the result
  gradus eval traces/ --gate 'thought_to_tool >= 0.85' --gate 'cost <= 5' --junit out.xml
  gradus eval phoenix://localhost:6006/shop --from 24h --log-to-phoenix
  OPENAI_BASE_URL=http://127.0.0.1:11434/v1 gradus eval traces/ --judge llama3.1:8b

A run that was cut off is taken up by the same command. Verdicts are kept: the same question is never paid for twice.

Exit codes: 0 done (gates passed or inconclusive), 1 the run broke off or nothing was answered, 2 bad input or settings, 3 a gate failed,
4 nothing to judge, 5 judged but not everything could be written to Phoenix or over OTLP, 130 interrupted; what was judged by then is reported in every case.";
