//! The options of `gradus judge test`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::judge_options::JudgeCallOptions;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli::judge) struct JudgeTestArguments {
    /// The judge to test, as for `gradus eval`: `offline`, a model's name, `openai:MODEL` or `anthropic:MODEL`. Given
    /// twice, both are tested on the same cases and compared.
    #[arg(long, value_name = "JUDGE", help_heading = "Judge")]
    pub(super) judge: Vec<String>,
    #[command(flatten)]
    pub(super) call: JudgeCallOptions,

    /// A rubric to test: a name, a file, or the sets `core` and `all`; may be given several times [default: core].
    #[arg(long, value_name = "NAME|FILE", help_heading = "What is tested")]
    pub(super) rubric: Vec<String>,
    /// Plant this flaw only; may be given several times. A rubric of your own must notice every flaw that you name.
    #[arg(long, value_name = "FLAW", help_heading = "What is tested")]
    pub(super) flaw: Vec<String>,
    /// Cases for each rubric: half of them with a flaw, half of them right.
    #[arg(long, value_name = "N", default_value_t = 60, help_heading = "What is tested")]
    pub(super) cases: usize,
    /// Runs that you know to be right, as a source for `gradus eval`; may be given several times.
    #[arg(long, value_name = "SOURCE", help_heading = "What is tested")]
    pub(super) right: Vec<String>,
    /// Use the runs of --right only, and none of the benchmark.
    #[arg(long, requires = "right", help_heading = "What is tested")]
    pub(super) no_bench: bool,
    /// The same seed gives the same cases.
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "What is tested")]
    pub(super) seed: u64,
    /// Ask every question this many times, to measure how often verdicts flip.
    #[arg(long, value_name = "K", default_value_t = 1, help_heading = "What is tested")]
    pub(super) repeats: u32,
    /// Also ask with changes that must not matter, and count flips: all probes, or the named ones.
    #[arg(long, value_name = "PROBE", num_args = 0..=1, require_equals = true, default_missing_value = "all",
        value_delimiter = ',', help_heading = "What is tested")]
    pub(super) probes: Vec<String>,

    /// Show the number of cases and calls and what they would cost, and stop.
    #[arg(long, help_heading = "Limits")]
    pub(super) dry_run: bool,
    /// Stop before the test costs more than this.
    #[arg(long, value_name = "DOLLARS", help_heading = "Limits")]
    pub(super) max_cost: Option<f64>,
    /// Send no more requests than this to each judge.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(super) max_calls: Option<u64>,

    /// Exit with 3 unless every rubric is fit for gating.
    #[arg(long, help_heading = "Outputs (- is standard output)")]
    pub(super) require_fit: bool,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    pub(super) json: Option<PathBuf>,
    /// Write the report as Markdown, for the summary page of a CI job.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    pub(super) markdown: Option<PathBuf>,
    /// Write the cases as JSON Lines; with --dry-run nothing else is done.
    #[arg(long, value_name = "FILE", help_heading = "Outputs (- is standard output)")]
    pub(super) write_cases: Option<PathBuf>,

    /// Where verdicts and unfinished tests are stored [default: .gradus].
    #[arg(long, value_name = "DIR", help_heading = "Runs")]
    pub(super) state_dir: Option<PathBuf>,
    /// Ask everything anew: continue no earlier test, use no earlier verdict.
    #[arg(long, help_heading = "Runs")]
    pub(super) fresh: bool,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE", help_heading = "Runs")]
    pub(super) config: Option<PathBuf>,
    /// No progress.
    #[arg(long, short, help_heading = "Runs")]
    pub(super) quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  gradus judge test --judge gpt-4o --dry-run                  how many calls, at what price?
  gradus judge test --judge gpt-4o                            the core rubrics, 60 cases each
  gradus judge test --judge gpt-4o --judge gpt-4o-mini        which one is better?
  gradus judge test --judge gpt-4o --repeats 3 --probes       flips, and what must not matter
  gradus judge test --judge gpt-4o --right good-runs.jsonl    flaws planted into your own runs
  gradus judge test --judge offline --rubric all --cases 200
  gradus judge test --rubric own.md --flaw wrong_tool         a rubric of your own

Every case is a right run, or the same run with one planted flaw, so that the right verdict is \
known. A rubric is fit for gating if the judge detects at least 80 % of the flaws and accepts at \
least 80 % of the right runs (lower ends of the 95 % intervals), judges at least 90 % of the cases, \
and changes at most 5 % of its verdicts when asked again.

A test that was cut off is continued by the same command. Verdicts are cached: the same question is \
never paid for twice.

Exit codes: 0 done, 1 the judge did not answer, 2 bad input or settings, 3 not fit with \
--require-fit, 4 no usable runs, 130 interrupted. What was judged by then is reported in every case.";
