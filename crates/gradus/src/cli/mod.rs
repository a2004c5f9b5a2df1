//! The command line: what can be said, and what each outcome's exit code is.

mod agent;
mod bench;
mod demo;
mod destinations;
mod doctor;
mod eval;
mod judge_options;
mod keys;
mod model;
mod outputs;
mod replay;
mod report;
mod rubrics;
mod serve;
mod simulate;
mod sources;
mod store;
mod tools;
mod traces;
mod trust;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub(crate) use sources::complain;

/// Exit codes, the same for every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Pass = 0,
    Unexpected = 1,
    BadInput = 2,
    GateFailed = 3,
    NothingFound = 4,
    /// All went well, but not every outcome could be written where it should go.
    NotWritten = 5,
    Interrupted = 130,
}

/// Grades every step a tool-using AI agent takes.
#[derive(Parser)]
#[command(name = "gradus", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the trajectories in traces, or shows one as a transcript.
    Traces(traces::Arguments),
    /// Judges every step of every trajectory: does the tool fit the thought, the thought the request, is the path short?
    Eval(Box<eval::Arguments>),
    /// Prints a run's results again, in any form.
    Report(report::Arguments),
    /// Lists, shows and checks rubrics: what is asked, and what the answers are worth.
    Rubrics(rubrics::Arguments),
    /// Receives traces, keeps them and grades them as they come.
    Serve(serve::Arguments),
    /// An agent that works on GitHub: says what it thinks, calls tools, and answers.
    Agent(Box<agent::Arguments>),
    /// Plays tasks on the simulated GitHub, many times, and measures: done, safe, reliable, short, cheap.
    Bench(Box<bench::Arguments>),
    /// Everything at once, with no key and no network: agents with known mistakes are run, traced, graded and reported.
    Demo(demo::Arguments),
    /// A GitHub to practise on: its REST API, with a known state, on this machine only.
    Simulate(simulate::Arguments),
    /// What the agent can do: the tools for GitHub, and those of MCP servers.
    Tools(tools::Arguments),
    /// Says which steps of a benchmark's runs were needed, by playing them again without the others.
    Replay(replay::Arguments),
    /// Looks after a server's store: check, compact, export, import, backup.
    Store(store::Arguments),
    /// API keys of a server that others can reach.
    Keys(keys::Arguments),
    /// Checks what a server needs: ports, disk, settings, the judge's endpoint and key, the clock.
    Doctor(doctor::Arguments),
    /// Trust the gradus.toml of a folder: show what it asks for, and allow it.
    Trust(trust::Arguments),
}

/// Runs the command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; clap knows which is which.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
        }
    };
    let done = match &cli.command {
        Command::Traces(arguments) => traces::run(arguments),
        Command::Eval(arguments) => eval::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Rubrics(arguments) => rubrics::run(arguments),
        Command::Serve(arguments) => Ok(serve::run(arguments)),
        Command::Agent(arguments) => agent::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Tools(arguments) => tools::run(arguments),
        Command::Replay(arguments) => replay::run(arguments),
        Command::Store(arguments) => store::run(arguments),
        Command::Keys(arguments) => keys::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Trust(arguments) => trust::run(arguments),
    };
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        // A reader that went away (`| head`) is no failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::from(Exit::Pass as u8),
        Err(error) => {
            anstream::eprintln!("gradus: {error:#}");
            ExitCode::from(Exit::Unexpected as u8)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io.map(std::io::Error::kind).or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}
