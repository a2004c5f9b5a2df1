//! `gradus demo`: the whole chain at once, on this machine only. Scripted agents with known mistakes work on a
//! simulated GitHub, their traces go over OTLP into a private server, the offline judge grades them, and its verdicts
//! are compared with the truth.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, Parser};
use gradus_eval::report::{MetricResult, RunReader};
use gradus_github_bench::policy::ScriptedPolicy;
use gradus_github_bench::suite::TaskSuite;
use gradus_github_bench::trial::{
    BenchError, FinishedTrial, OwnAgent, TrialConcurrency, TrialContestant, TrialLine, run_all,
};

use super::bench::{BenchAddition, BenchAgents, load_worlds, plan_jobs};
use super::eval::{self, GradingOptions, PreparedRun};
use super::report_addition::ReportAddition;
use super::{CommandExit, print_diagnostic};
use gradus_core::visible::printable_line;
use gradus_github_bench::results::{BenchReport, BenchResults};
use gradus_report::ReportTable;
use gradus_report::{BOLD, DIM, format_counted_noun};
use gradus_server::{DemoLoadError, DemoSink};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DemoArguments {
    /// Where the report goes.
    #[arg(long, value_name = "FILE", default_value = "gradus-demo.html")]
    html: PathBuf,
    /// Keep the traces in this folder, for `gradus traces` and `gradus serve --data`; else they are gone afterwards.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gradus demo                            a dozen tasks, twelve agents, a few seconds
  gradus demo --keep demo                and look around afterwards: gradus serve --data demo

Needs no key and no network. Exit codes: 0 done, 1 it broke off, 2 the report or the folder cannot be written.";

/// A dozen tasks of all kinds: reading, writing, working through pull requests, and two with a trap.
const DEMO_TASKS: &str = "4,7,9,11,12,14,15,16,17,28,48,49";
const PROJECT: &str = "gradus-demo";
/// Size in bytes from which collected traces are sent as one export request.
const REQUEST_FLUSH_BYTES: usize = 4 << 20;

/// Entry point of the command. Without `--keep` everything but the report is in a temporary folder, which is removed at
/// the end.
pub(super) fn run_demo_command(arguments: &DemoArguments) -> anyhow::Result<CommandExit> {
    let temporary = tempfile::tempdir().context("a temporary folder")?;
    let data = arguments.keep.clone().unwrap_or_else(|| temporary.path().join("data"));
    if let Err(error) = std::fs::create_dir_all(&data) {
        print_diagnostic(&format!(
            "--keep: {}: {error}; name a folder that is new, or one of an earlier demo",
            data.display()
        ));
        return Ok(CommandExit::BadInput);
    }
    // An empty settings file: a `gradus.toml` in the working directory must not change the demo.
    let config = temporary.path().join("gradus.toml");
    std::fs::write(&config, "")?;
    let store = data.join(gradus_store::DATABASE_FILE_NAME);
    // The options of grading, as a user would type them.
    let words = [
        "gradus".as_ref(),
        "--judge".as_ref(),
        "offline".as_ref(),
        "--quiet".as_ref(),
        "--config".as_ref(),
        config.as_os_str(),
        "--state-dir".as_ref(),
        data.as_os_str(),
        "--html".as_ref(),
        arguments.html.as_os_str(),
    ];
    let grading = GradingOnlyAddition::try_parse_from(words)?.grading;
    let graded = eval::EvalArguments::for_sources(vec![store.display().to_string()], grading);

    // Checked before any trial: the report may not be writable.
    let prepared = match PreparedRun::new(&graded, None) {
        Ok(prepared) => prepared,
        Err(error) => {
            print_diagnostic(&printable_line(&error.to_string()));
            return Ok(CommandExit::BadInput);
        }
    };

    print_demo_line(
        "Gradus demo: a dozen GitHub tasks; one agent does them right, eleven others make one known mistake each.",
    )?;
    print_demo_line("No key, no network: all of it happens on this machine.\n")?;
    let begun = Instant::now();
    let (lines, address, bytes) = run_demo_trials(&data)?;
    print_demo_step(
        "Played and traced",
        &format!(
            "{} on a simulated GitHub, {:.1} MB of spans over OTLP to {address}",
            format_counted_noun(lines.len() as u64, "run", "runs"),
            bytes as f64 / 1e6
        ),
        begun,
    )?;

    let begun = Instant::now();
    let names: Vec<String> = ScriptedPolicy::all().map(|policy| policy.name().to_owned()).collect();
    let report = BenchReport::from_results(BenchResults {
        suite: gradus_github_bench::suite::BUILT_IN_SUITE.to_owned(),
        folder: data.display().to_string(),
        agents: names,
        not_applicable: Vec::new(),
        lines,
    });
    let inner = BenchAddition::new(report);
    let mut addition = DemoAddition { inner, begun, html: arguments.html.clone(), is_kept: arguments.keep.is_some() };
    let exit = prepared.judge(&mut addition)?;
    if let Some(kept) = &arguments.keep {
        print_demo_line(&format!(
            "The traces are in {0}: `gradus serve --data {0}` shows them on a page, `gradus traces {0}/{1}` here",
            kept.display(),
            gradus_store::DATABASE_FILE_NAME
        ))?;
    }
    Ok(exit)
}

// Parses the options of grading from words, so that their defaults are those of `gradus eval`.
#[derive(Parser)]
struct GradingOnlyAddition {
    #[command(flatten)]
    grading: GradingOptions,
}

fn print_demo_line(text: &str) -> io::Result<()> {
    writeln!(anstream::stdout(), "{text}")
}

fn print_demo_step(what: &str, text: &str, begun: Instant) -> io::Result<()> {
    writeln!(anstream::stdout(), "{BOLD}{what:<18}{BOLD:#} {text} {DIM}({:.1} s){DIM:#}", begun.elapsed().as_secs_f64())
}

/// Runs all trials and sends their traces to a private server whose store is in `data`. Returns the results, the
/// address of the server, and the number of bytes sent. The server is stopped before it returns, also after an error.
fn run_demo_trials(data: &Path) -> anyhow::Result<(Vec<TrialLine>, String, usize)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = runtime.block_on(gradus_server::RunningServer::start_private(data)).map_err(anyhow::Error::msg)?;
    let address = server.http.to_string();
    let http = gradus_http::http_client_builder().build()?;
    let mut bytes = 0;
    let played = play_demo(&mut |spans: Vec<u8>| {
        bytes += spans.len();
        let request = http
            .post(format!("http://{address}/v1/traces"))
            .header("content-type", "application/x-protobuf")
            .body(spans);
        let answer = runtime.block_on(request.send())?;
        anyhow::ensure!(answer.status().is_success(), "the server did not take the spans: {}", answer.status());
        Ok(())
    });
    runtime.block_on(server.stop());
    Ok((played?, address.clone(), bytes))
}

/// Runs the demo for a running server, which stores the spans itself.
pub(super) fn send_demo_traces(sink: DemoSink<'_>) -> Result<(), DemoLoadError> {
    let played = play_demo(&mut |spans| Ok(sink(spans)?));
    played.map(drop).map_err(|error| DemoLoadError(printable_line(&format!("{error:#}"))))
}

/// Runs all trials and passes their spans on as OTLP export requests of some megabytes.
fn play_demo(send: &mut dyn FnMut(Vec<u8>) -> anyhow::Result<()>) -> anyhow::Result<Vec<TrialLine>> {
    let suite = TaskSuite::built_in()?;
    let tasks = suite.select(DEMO_TASKS)?;
    let worlds = load_worlds(&tasks).map_err(anyhow::Error::msg)?;
    let policies: Vec<ScriptedPolicy> = ScriptedPolicy::all().collect();
    let contestants: Vec<TrialContestant<'_>> = policies.iter().copied().map(TrialContestant::Policy).collect();
    let (jobs, _) = plan_jobs(&BenchAgents::Policies(policies), &tasks, &worlds, 1);
    // Part of the session ids: traces of an earlier demo may be in the same folder.
    let bench = format!("{:08x}", fastrand::u32(..));
    let player = OwnAgent { contestants: &contestants, form: None, replays: true, project: PROJECT, bench: &bench };
    let (mut lines, mut waiting) = (Vec::new(), Vec::new());
    let mut take = |finished: FinishedTrial| -> Result<(), DemoError> {
        // Protobuf messages of one type concatenate, so several export requests are one.
        waiting.extend_from_slice(&finished.otlp);
        lines.push(finished.line);
        if waiting.len() >= REQUEST_FLUSH_BYTES {
            send(std::mem::take(&mut waiting))?;
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    run_all(TrialConcurrency { threads, slots: 1 }, &jobs, &player, &AtomicBool::new(false), &mut take)
        .map_err(|error| error.0)?;
    send(waiting)?;
    lines.sort_by_key(|line: &TrialLine| (line.number, line.trial));
    Ok(lines)
}

/// The error of the callback of `run_all`: of a trial, or of sending its trace.
struct DemoError(anyhow::Error);

impl From<BenchError> for DemoError {
    fn from(error: BenchError) -> DemoError {
        DemoError(error.into())
    }
}

impl From<anyhow::Error> for DemoError {
    fn from(error: anyhow::Error) -> DemoError {
        DemoError(error)
    }
}

/// The results of the benchmark, with the comparison of verdicts and truth, and a list of commands to try next. It
/// replaces the summary on the terminal.
struct DemoAddition {
    inner: BenchAddition,
    /// When grading began.
    begun: Instant,
    html: PathBuf,
    /// Whether the traces stay in a folder of the user (`--keep`).
    is_kept: bool,
}

impl ReportAddition for DemoAddition {
    fn metrics(&mut self, reader: &mut RunReader) -> anyhow::Result<Vec<MetricResult>> {
        self.inner.metrics(reader)
    }

    fn tables(&self) -> Vec<ReportTable> {
        self.inner.tables()
    }

    fn replaces_summary(&self) -> bool {
        true
    }

    /// Returns a text in place of the path: a temporary folder is deleted before anybody reads the report.
    fn source(&self) -> Option<String> {
        (!self.is_kept).then(|| "the traces of `gradus demo`, which were not kept (--keep FOLDER)".to_owned())
    }

    fn save_for_report(&self, folder: &Path) -> anyhow::Result<()> {
        self.inner.save_for_report(folder)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = &self.inner.report;
        let steps = report.lines().iter().map(|line| line.calls as u64).sum();
        let steps = format_counted_noun(steps, "step", "steps");
        let seconds = self.begun.elapsed().as_secs_f64();
        writeln!(
            out,
            "{BOLD}{:<18}{BOLD:#} {}, {steps}, by rules alone (`--judge offline`) {DIM}({seconds:.1} s){DIM:#}",
            "Graded",
            format_counted_noun(report.lines().len() as u64, "run", "runs")
        )?;
        writeln!(out, "{BOLD}{:<18}{BOLD:#} {}", "Report", self.html.display())?;
        if let Some(scores) = &report.scores {
            report.print_truth(scores, out)?;
        }
        writeln!(out, "\n{BOLD}What next{BOLD:#}")?;
        for (command, what) in [
            ("gradus eval traces/ --html report.html", "grade traces of your own agent"),
            ("gradus serve", "receive traces over OTLP and grade them as they come"),
            ("gradus bench --agent 'python my_agent.py'", "play these tasks with your own agent"),
            ("gradus bench --model gpt-4o --trials 4", "or with a model, to see how reliable it is"),
        ] {
            writeln!(out, "  {command:<44} {DIM}{what}{DIM:#}")?;
        }
        Ok(())
    }
}
