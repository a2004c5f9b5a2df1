//! `gradus replay`: finds the steps of a benchmark run that were not needed, by running it again on the simulator
//! without some of them. Reads the records that `gradus bench` leaves in `records/` of its folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anstyle::{AnsiColor, Style};
use clap::Args;
use gradus_github_agent::tools::{GitHubTools, ToolRestrictions};
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::replay::{CheckResults, ReplayEnvironment, ReplayReport, StepNecessity, replay_trial};
use gradus_github_bench::suite::{BUILT_IN_SUITE, BenchTask, SuiteError, TaskSuite};
use gradus_github_bench::trial::TrialPlan;
use gradus_github_sim::World;
use gradus_github_sim::state::WorldState;

use super::{CommandExit, print_diagnostic};
use gradus_core::visible::printable_line;
use gradus_report::{format_counted_noun, json};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArguments {
    /// The folder of a benchmark's run, or one record of it.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Only the runs of this task: its id or number.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Where the tasks are; without it, the suite that the folder names.
    #[arg(long, value_name = "NAME|FOLDER")]
    suite: Option<String>,
    /// One run a line, as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gradus replay runs/bench                              every run in the folder
  gradus replay runs/bench --task add-a-file
  gradus replay runs/bench/records/add-a-file-0.json --json

A run is played again from its seed without some of its steps. A step is unnecessary if all checks of the task still
hold without it, and no later argument and nothing in the final message comes from it.

Exit codes: 0 all were played, 2 something cannot be read or is not there, 4 there is no run in the folder, or none of the task.";

/// Maximum size of a record that is read, in bytes. A record is read into memory as a whole; ours are far smaller.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Why records or their tasks could not be read; printed as one line, exit code 2.
#[derive(Debug, thiserror::Error)]
enum ReplayCommandError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The folder has no `records`, so it is probably not the folder of a benchmark.
    #[error("{}: {source}; give the folder of a run of `gradus bench`, or one of its records", path.display())]
    NoRecords { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Suite(#[from] SuiteError),
    #[error("{}: this is too large for a record of a run", path.display())]
    TooLarge { path: PathBuf },
    #[error("{}: this is no record of a run: {source}", path.display())]
    NotRecord { path: PathBuf, source: serde_json::Error },
    #[error("{}: its task {task:?} is not in the suite {suite:?}; name the suite with --suite", path.display())]
    UnknownTask { path: PathBuf, task: String, suite: String },
    /// `bench.json` of the folder, which names the suite.
    #[error("{}: {source}", path.display())]
    Plan { path: PathBuf, source: serde_json::Error },
}

/// Entry point of the command. Records are replayed one after the other and each result is printed at once.
pub(super) fn run_replay_command(arguments: &ReplayArguments) -> anyhow::Result<CommandExit> {
    let records = match find_trial_records(arguments) {
        Ok(records) => records,
        Err(error) => {
            print_diagnostic(&printable_line(&error.to_string()));
            return Ok(CommandExit::BadInput);
        }
    };
    if records.is_empty() {
        let which = arguments.task.as_ref().map(|task| format!(" of task {task}")).unwrap_or_default();
        let where_ = arguments.run.display();
        print_diagnostic(&printable_line(&format!(
            "{where_}: there is no run{which}; `gradus bench` leaves them in records/"
        )));
        return Ok(CommandExit::NothingFound);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for (record, task) in &records {
            let found = match replay_record(record, task).await {
                Ok(found) => found,
                Err(error) => {
                    print_diagnostic(&printable_line(&format!("{}-{}: {error:#}", record.task, record.trial)));
                    return Ok(CommandExit::BadInput);
                }
            };
            let mut out = anstream::stdout().lock();
            if arguments.json {
                json::write_line(&found, &mut out)?;
            } else {
                print_replay_report(&found, &mut out)?;
            }
        }
        Ok(CommandExit::Pass)
    })
}

/// Reads the records with their tasks, in the order of tasks and trials. Empty if the folder is empty or has no run
/// of the wanted task.
fn find_trial_records(arguments: &ReplayArguments) -> Result<Vec<(TrialRecord, BenchTask)>, ReplayCommandError> {
    let unreadable = |path: &Path, source: io::Error| ReplayCommandError::Unreadable { path: path.to_owned(), source };
    let path = &arguments.run;
    let about = fs::metadata(path).map_err(|error| unreadable(path, error))?;
    // A single record lies in FOLDER/records/, and FOLDER has the plan that names the suite.
    let folder = if about.is_dir() { path.as_path() } else { path.parent().and_then(Path::parent).unwrap_or(path) };
    let mut files = Vec::new();
    if about.is_dir() {
        let records = path.join("records");
        let no_records = |source: io::Error| ReplayCommandError::NoRecords { path: records.clone(), source };
        let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        let entries = match fs::read_dir(&records) {
            // An empty folder is a benchmark without runs (exit code 4), not a wrong argument.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_empty() => return Ok(Vec::new()),
            entries => entries.map_err(no_records)?,
        };
        for entry in entries {
            let file = entry.map_err(no_records)?.path();
            if file.extension().is_some_and(|ending| ending == "json") {
                files.push(file);
            }
        }
    } else {
        files.push(path.clone());
    }
    let suite = TaskSuite::load(&suite_name(arguments, folder)?)?;
    let wanted = match &arguments.task {
        Some(task) => Some(suite.select(task)?),
        None => None,
    };
    let mut found = Vec::new();
    for file in files {
        let size = fs::metadata(&file).map_err(|error| unreadable(&file, error))?.len();
        if size > MAX_RECORD_BYTES {
            return Err(ReplayCommandError::TooLarge { path: file });
        }
        let text = fs::read(&file).map_err(|error| unreadable(&file, error))?;
        let record: TrialRecord = serde_json::from_slice(&text)
            .map_err(|source| ReplayCommandError::NotRecord { path: file.clone(), source })?;
        let Some(task) = suite.task(&record.task) else {
            return Err(ReplayCommandError::UnknownTask { path: file, task: record.task, suite: suite.name.clone() });
        };
        if wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| one.id == task.id)) {
            found.push((record, task.clone()));
        }
    }
    found.sort_by_key(|(record, task)| (task.number, record.trial));
    Ok(found)
}

/// Returns the suite of `--suite`, else the one in the plan of the benchmark, else the built-in one: a record can be
/// anywhere.
fn suite_name(arguments: &ReplayArguments, folder: &Path) -> Result<String, ReplayCommandError> {
    if let Some(name) = &arguments.suite {
        return Ok(name.clone());
    }
    let path = folder.join("bench.json");
    match fs::read(&path) {
        Ok(text) => {
            let plan: TrialPlan =
                serde_json::from_slice(&text).map_err(|source| ReplayCommandError::Plan { path, source })?;
            Ok(plan.suite)
        }
        Err(_) => Ok(BUILT_IN_SUITE.to_owned()),
    }
}

/// Replays one record on a simulator of its own on a loopback port, with the seed of the task and the faults that were
/// active in the recorded run.
async fn replay_record(record: &TrialRecord, task: &BenchTask) -> anyhow::Result<ReplayReport> {
    let mut seed: World = task.world()?;
    for fault in &record.faults {
        seed.add_fault(fault.clone());
    }
    let world = Arc::new(Mutex::new(seed.clone()));
    let listener = gradus_github_sim::bind_loopback_port(0).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let serving = tokio::spawn(gradus_github_sim::serve_world(listener, Arc::clone(&world), false));
    // The recorded agent was allowed to make its calls, so the replay is as well; the world is simulated.
    let limits = ToolRestrictions { allow_destructive: true, ..ToolRestrictions::default() };
    let tools = GitHubTools::new(&url, Some(&task.token), limits)?;
    let verify = |after: &WorldState, record: &TrialRecord| -> CheckResults {
        task.verify(seed.state(), after, record).into_checks()
    };
    let stage = ReplayEnvironment { tools: &tools, world: &world, token: &task.token };
    let found = replay_trial(&seed, record, stage, &verify).await;
    serving.abort();
    Ok(found)
}

/// Prints a headline per run, then one line per step with the verdict and its reason. Tool names come from recorded
/// traces, so they are made printable and cut at 40 characters.
fn print_replay_report(found: &ReplayReport, out: &mut impl io::Write) -> io::Result<()> {
    let bold = Style::new().bold();
    let who = if found.agent.is_empty() { String::new() } else { format!(" ({})", found.agent) };
    let name = printable_line(&format!("{}, trial {}{who}", found.task, found.trial));
    let all = found.steps.len();
    let steps = format_counted_noun(all as u64, "step", "steps");
    let done = if found.passed { "" } else { ", the task is not done" };
    let enough = match found.shortest.len() {
        shortest if shortest == all => "none can be left out".to_owned(),
        shortest => format!("{shortest} would have done ({:.2} times as many)", found.ratio),
    };
    let cut = if found.cut_short { "; the search was cut short" } else { "" };
    writeln!(out, "{bold}{name}{bold:#}: {steps}{done}, {enough}{cut}")?;
    let width = found.steps.iter().map(|step| step.tool.chars().count().min(40)).max().unwrap_or(0);
    for step in &found.steps {
        let (word, color) = match step.need {
            StepNecessity::Needed => ("needed", AnsiColor::Green),
            StepNecessity::Unnecessary => ("unnecessary", AnsiColor::Red),
            StepNecessity::Unknown => ("unknown", AnsiColor::Yellow),
        };
        let style = color.on_default();
        let tool: String = printable_line(&step.tool).chars().take(40).collect();
        writeln!(out, "{:>4}  {tool:width$}  {style}{word:11}{style:#}  {}", step.step, printable_line(&step.why))?;
    }
    out.flush()
}
