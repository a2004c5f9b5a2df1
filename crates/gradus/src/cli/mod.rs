//! The command line: one module per command, and the exit codes. Commands print errors of the user's input themselves,
//! as one line, and return `BadInput`; an `Err` is an unexpected failure, which `run_cli` prints with its causes.

mod agent;
#[cfg(feature = "parquet")]
mod archive_sources;
mod baseline;
mod bench;
mod calibration_options;
mod code_version;
mod compare;
mod completions;
mod config_command;
mod dataset;
mod demo;
mod destinations;
mod discover;
mod doctor;
mod eval;
mod experiment;
mod export;
mod gates;
mod git_folder;
mod health;
mod init;
mod interrupt_listener;
mod judge;
mod judge_options;
mod keys;
mod label_file;
mod mcp;
mod model;
mod outputs;
mod replay;
mod report;
mod report_addition;
mod rubrics;
mod run_lookup;
mod runs;
mod s3_support;
mod serve;
mod simulate;
mod sources;
mod store;
mod store_archive;
mod tools;
mod traces;
mod trial_progress;
mod trust;
mod version_details;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

pub(crate) use sources::print_diagnostic;

/// Exit codes, the same for every command. They are part of the interface: CI jobs branch on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandExit {
    /// Done; gates passed.
    Pass = 0,
    /// The command broke off: a full disk, an unreachable endpoint, an error of this program.
    Unexpected = 1,
    /// Arguments, settings or input files are wrong. clap uses the same code.
    BadInput = 2,
    /// The work is done, and a gate failed.
    GateFailed = 3,
    /// The input is readable and has no trajectories.
    NothingFound = 4,
    /// The work is done, but not every outcome or span could be exported.
    NotWritten = 5,
    /// The run ended early, so its gates are not decided.
    GateIncomplete = 6,
    /// SIGINT or SIGTERM; 128 + 2, as shells have it.
    Interrupted = 130,
}

impl CommandExit {
    /// Returns this exit code for a run that ended early, unless gates are undecided: a CI job must learn that first.
    fn unless_undecided(self, of_gates: CommandExit) -> CommandExit {
        if of_gates == CommandExit::GateIncomplete { of_gates } else { self }
    }
}

/// Grades every step a tool-using AI agent takes.
#[derive(Parser)]
#[command(name = "gradus", max_term_width = 100, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<CliCommand>,
    /// Print version.
    // Our own flag: clap's would print at once, and never see a later `--verbose`.
    #[arg(short = 'V', long)]
    version: bool,
    /// With --version: also commit, target, profile, features, store schema and SQLite.
    #[arg(long, requires = "version")]
    verbose: bool,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Write a configuration file, a CI job and a first dataset for the project in this folder.
    Init(init::InitArguments),
    /// Lists the trajectories in traces, or shows one as a transcript.
    Traces(traces::TraceArguments),
    /// Judges every step of every trajectory: does the tool fit the thought, the thought the request, is the path
    /// short?
    Eval(Box<eval::EvalArguments>),
    /// Prints a run's results again, in any form.
    Report(report::ReportArguments),
    /// Lists the runs of a state folder with their scores over time.
    Runs(runs::RunsArguments),
    /// Compares versions of an agent over the same tasks: better, worse, the same, or too few runs to tell?
    Compare(compare::CompareArguments),
    /// Create, check, split and dedupe datasets of requests with expectations.
    Dataset(Box<dataset::DatasetArguments>),
    /// Run an agent on every item of a dataset, check its answers and tool calls, and grade its steps.
    Experiment(Box<experiment::ExperimentArguments>),
    /// List the sessions of coding agents on this machine.
    Discover(discover::DiscoverArguments),
    /// Write trajectories and verdicts for other tools, and as training data.
    Export(Box<export::ExportArguments>),
    /// Lists, shows and checks rubrics: what is asked, and what the answers are worth.
    Rubrics(rubrics::RubricArguments),
    /// Measure how far a judge can be trusted: test it, calibrate it, list the local ones.
    Judge(Box<judge::JudgeArguments>),
    /// Receives traces, keeps them and grades them as they come.
    Serve(serve::ServeArguments),
    /// Answer questions of an assistant about graded runs: an MCP server on standard input and output.
    Mcp(mcp::McpArguments),
    /// An agent that works on GitHub: says what it thinks, calls tools, and answers.
    Agent(Box<agent::AgentArguments>),
    /// Plays tasks on the simulated GitHub, many times, and measures: done, safe, reliable, short, cheap.
    Bench(Box<bench::BenchArguments>),
    /// Everything at once, with no key and no network: agents with known mistakes are run, traced, graded and reported.
    Demo(demo::DemoArguments),
    /// A GitHub to practise on: its REST API, with a known state, on this machine only.
    Simulate(simulate::SimulateArguments),
    /// What the agent can do: the tools for GitHub, and those of MCP servers.
    Tools(tools::ToolsCommandArguments),
    /// Says which steps of a benchmark's runs were needed, by playing them again without the others.
    Replay(replay::ReplayArguments),
    /// Looks after a server's store: check, copy, export, import, archive, backup, compact, retry.
    Store(store::StoreArguments),
    /// API keys of a server that others can reach.
    Keys(keys::KeyArguments),
    /// Checks what a server needs: ports, disk, settings, the judge's endpoint and key, the clock.
    Doctor(doctor::DoctorArguments),
    /// Check that a running server answers and accepts spans.
    Health(health::HealthArguments),
    /// Show every setting with its value and source.
    Config(config_command::ConfigArguments),
    /// Trust the gradus.toml of a folder: show what it asks for, and allow it.
    Trust(trust::TrustArguments),
    /// Print the completion script of a shell.
    Completions(completions::CompletionArguments),
    /// Write manual pages into a folder.
    Man(completions::ManArguments),
}

/// Runs a command line, whose first word is the name of the program, and returns the exit code of the process. Errors
/// are printed here.
pub fn run_cli(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::output_failure::exit_on_print_failure();
    let cli = match CommandLine::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` are errors for clap, with exit code 0 and standard output.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
        }
    };
    let command = match &cli.command {
        Some(command) if !cli.version => command,
        // Without a command there is at least `--version`: clap shows the help if there is nothing at all.
        _ => {
            print_version(cli.verbose);
            return ExitCode::from(CommandExit::Pass as u8);
        }
    };
    let done = match command {
        CliCommand::Init(arguments) => Ok(init::run_init_command(arguments)),
        CliCommand::Traces(arguments) => traces::run_traces_command(arguments),
        CliCommand::Eval(arguments) => eval::run_eval_command(arguments),
        CliCommand::Report(arguments) => report::run_report_command(arguments),
        CliCommand::Runs(arguments) => runs::run_runs_command(arguments),
        CliCommand::Compare(arguments) => compare::run_compare_command(arguments),
        CliCommand::Dataset(arguments) => dataset::run_dataset_command(arguments),
        CliCommand::Experiment(arguments) => experiment::run_experiment_command(arguments),
        CliCommand::Discover(arguments) => discover::run_discover_command(arguments),
        CliCommand::Export(arguments) => export::run_export_command(arguments),
        CliCommand::Rubrics(arguments) => rubrics::run_rubrics_command(arguments),
        CliCommand::Judge(arguments) => judge::run_judge_command(arguments),
        CliCommand::Serve(arguments) => Ok(serve::run_serve_command(arguments)),
        CliCommand::Mcp(arguments) => mcp::run_mcp_command(arguments),
        CliCommand::Agent(arguments) => agent::run_agent_command(arguments),
        CliCommand::Bench(arguments) => bench::run_bench_command(arguments),
        CliCommand::Demo(arguments) => demo::run_demo_command(arguments),
        CliCommand::Simulate(arguments) => simulate::run_simulate_command(arguments),
        CliCommand::Tools(arguments) => tools::run_tools_command(arguments),
        CliCommand::Replay(arguments) => replay::run_replay_command(arguments),
        CliCommand::Store(arguments) => store::run_store_command(arguments),
        CliCommand::Keys(arguments) => keys::run_keys_command(arguments),
        CliCommand::Doctor(arguments) => doctor::run_doctor_command(arguments),
        CliCommand::Health(arguments) => Ok(health::run_health_command(arguments)),
        CliCommand::Config(arguments) => config_command::run_config_command(arguments),
        CliCommand::Trust(arguments) => trust::run_trust_command(arguments),
        CliCommand::Completions(arguments) => completions::run_completions_command(arguments, CommandLine::command()),
        CliCommand::Man(arguments) => completions::run_man_command(arguments, CommandLine::command()),
    };
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        // The reader of standard output has closed it (`| head`), which is not a failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::from(CommandExit::Pass as u8),
        Err(error) => {
            anstream::eprintln!("gradus: {error:#}");
            ExitCode::from(CommandExit::Unexpected as u8)
        }
    }
}

fn print_version(is_verbose: bool) {
    match is_verbose {
        true => anstream::println!("{}", version_details::VersionDetails),
        false => anstream::println!("{}", version_details::format_version()),
    }
}

/// Whether a cause of the error is EPIPE, also inside a `serde_json::Error`, which hides the error of its writer.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io.map(std::io::Error::kind).or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}
