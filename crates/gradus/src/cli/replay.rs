//! `gradus replay`: which steps of a run on the simulator were needed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anstyle::{AnsiColor, Style};
use clap::Args;
use gradus_github_agent::tools::{GitHubTools, ToolRestrictions};
use gradus_github_bench::record::TrialRecord;
use gradus_github_bench::replay::{CheckResults, ReplayEnvironment, ReplayReport, StepNecessity, replay_trial};
use gradus_github_bench::suite::{BUILT_IN, BenchTask, TaskSuite};
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

/// A record is read whole; a larger one is not of ours.
const MAX_BYTES: u64 = 1 << 30;

pub(super) fn run_replay_command(arguments: &ReplayArguments) -> anyhow::Result<CommandExit> {
    let records = match find_trial_records(arguments) {
        Ok(records) => records,
        Err(error) => {
            print_diagnostic(&printable_line(&error));
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

/// The records with their tasks, in the order of tasks and trials.
fn find_trial_records(arguments: &ReplayArguments) -> Result<Vec<(TrialRecord, BenchTask)>, String> {
    let place = |path: &Path, reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let path = &arguments.run;
    let about = fs::metadata(path).map_err(|error| place(path, &error))?;
    let folder = if about.is_dir() { path.as_path() } else { path.parent().and_then(Path::parent).unwrap_or(path) };
    let mut files = Vec::new();
    if about.is_dir() {
        let records = path.join("records");
        let unreadable = |error: io::Error| {
            format!("{}: {error}; give the folder of a run of `gradus bench`, or one of its records", records.display())
        };
        let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        let entries = match fs::read_dir(&records) {
            // Nothing was left there, which is no mistake in what was given.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_empty() => return Ok(Vec::new()),
            entries => entries.map_err(unreadable)?,
        };
        for entry in entries {
            let file = entry.map_err(unreadable)?.path();
            if file.extension().is_some_and(|ending| ending == "json") {
                files.push(file);
            }
        }
    } else {
        files.push(path.clone());
    }
    let suite = TaskSuite::load(&suite_name(arguments, folder)?).map_err(|error| error.to_string())?;
    let wanted = match &arguments.task {
        Some(task) => Some(suite.select(task).map_err(|error| error.to_string())?),
        None => None,
    };
    let mut found = Vec::new();
    for file in files {
        let size = fs::metadata(&file).map_err(|error| place(&file, &error))?.len();
        if size > MAX_BYTES {
            return Err(place(&file, &"this is too large for a record of a run"));
        }
        let text = fs::read(&file).map_err(|error| place(&file, &error))?;
        let record: TrialRecord = serde_json::from_slice(&text)
            .map_err(|error| place(&file, &format!("this is no record of a run: {error}")))?;
        let Some(task) = suite.task(&record.task) else {
            let reason =
                format!("its task {:?} is not in the suite {:?}; name the suite with --suite", record.task, suite.name);
            return Err(place(&file, &reason));
        };
        if wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| one.id == task.id)) {
            found.push((record, task.clone()));
        }
    }
    found.sort_by_key(|(record, task)| (task.number, record.trial));
    Ok(found)
}

fn suite_name(arguments: &ReplayArguments, folder: &Path) -> Result<String, String> {
    if let Some(name) = &arguments.suite {
        return Ok(name.clone());
    }
    let path = folder.join("bench.json");
    match fs::read(&path) {
        Ok(text) => {
            let plan: TrialPlan =
                serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(plan.suite)
        }
        Err(_) => Ok(BUILT_IN.to_owned()),
    }
}

async fn replay_record(record: &TrialRecord, task: &BenchTask) -> anyhow::Result<ReplayReport> {
    let mut seed: World = task.world()?;
    for fault in &record.faults {
        seed.add_fault(fault.clone());
    }
    let world = Arc::new(Mutex::new(seed.clone()));
    let listener = gradus_github_sim::bind_loopback_port(0).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let serving = tokio::spawn(gradus_github_sim::serve_world(listener, Arc::clone(&world), false));
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
