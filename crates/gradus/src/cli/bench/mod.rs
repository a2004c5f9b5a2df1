//! `gradus bench`: plays tasks on the simulator, judges what was done, and says what that comes to.

mod addition;
mod arguments;
mod files;
mod plan;
mod play;

pub(super) use addition::BenchAddition;
pub(super) use arguments::BenchArguments;
pub(super) use plan::{BenchAgents, jobs, worlds};

use std::io::Write as _;

use gradus_github_bench::suite::{BenchTask, TaskSuite};
use gradus_github_bench::trial::{BenchFolder, ExistingBenchAction};

use super::CommandExit;
use super::eval::{self, PreparedRun};
use super::sources::complain;
use gradus_core::visible::printable_line;
use gradus_github_bench::results::BenchReport;
use gradus_report::counted;
use plan::PreparedBench;

pub(super) fn run(arguments: &BenchArguments) -> anyhow::Result<CommandExit> {
    let suite = match TaskSuite::find(&arguments.suite) {
        Ok(suite) => suite,
        Err(error) => return Ok(refuse(&error.to_string())),
    };
    let chosen = match &arguments.tasks {
        Some(words) => suite.select(words).map_err(|error| error.to_string()),
        None => Ok(suite.tasks.iter().collect()),
    };
    let tasks = match chosen {
        Ok(tasks) => tasks,
        Err(reason) => return Ok(refuse(&reason)),
    };
    if arguments.list {
        return list(&tasks);
    }
    let worlds = match worlds(&tasks) {
        Ok(worlds) => worlds,
        Err(reason) => return Ok(refuse(&reason)),
    };
    let planned = match PreparedBench::new(arguments, &suite, &tasks, &worlds) {
        Ok(planned) => planned,
        Err(reason) => return Ok(refuse(&reason)),
    };
    // All that can be wrong is found before anything is played, and before anything in the folder is touched.
    let traces = planned.folder.join("traces").display().to_string();
    let graded = eval::EvalArguments::for_sources(vec![traces], planned.grading(arguments));
    let names = BenchReport::metric_names(planned.agents().len(), arguments.trials);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let prepared = files::prepare(arguments).and_then(|()| {
        plan::check_gates(arguments, planned.agents().len())?;
        PreparedRun::new(&graded, &names)
    });
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(reason) => return Ok(refuse(&reason)),
    };
    let (mut folder, lines) = match BenchFolder::open(&planned.folder, &planned.plan, planned.earlier) {
        Ok(opened) => opened,
        Err(error) => return Ok(refuse(&error.to_string())),
    };
    if let Err(reason) = files::clear(arguments) {
        return Ok(refuse(&reason));
    }
    if planned.earlier == ExistingBenchAction::GoOn && lines.is_empty() {
        complain(&format!("there is nothing to go on with; a bench begins in {}", folder.path().display()));
    }
    let played = play::play(arguments, &planned, &mut folder, lines);
    let report = planned.report(&folder, played.lines);
    files::write(arguments, &folder, report.lines())?;
    let has_traces = report.lines().iter().any(|line| files::trace_of(&folder, line).is_file());
    let mut addition = BenchAddition::new(report);
    if let Some(stopped) = played.stopped {
        // What was played is told all the same.
        if !addition.report.lines().is_empty() {
            prepared.conclude(&mut addition, Some(stopped.reason()))?;
        }
        complain(&printable_line(&stopped.advice(&planned.who)));
        complain(&format!("--resume --out {} goes on from there", folder.path().display()));
        return Ok(stopped.exit());
    }
    if arguments.no_grading || !has_traces {
        return prepared.conclude(&mut addition, None);
    }
    prepared.judge(&mut addition)
}

fn refuse(reason: &str) -> CommandExit {
    complain(&printable_line(reason));
    CommandExit::BadInput
}

fn list(tasks: &[&BenchTask]) -> anyhow::Result<CommandExit> {
    let mut out = anstream::stdout().lock();
    for task in tasks {
        writeln!(
            out,
            "{:>3}  {}  {:<36} {:>8}  {}",
            task.number,
            task.level.name(),
            printable_line(&task.id),
            counted(task.minimal_calls as u64, "call", "calls"),
            printable_line(&task.title)
        )?;
    }
    Ok(CommandExit::Pass)
}
