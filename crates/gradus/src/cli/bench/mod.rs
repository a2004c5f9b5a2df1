//! `gradus bench`: runs agents on tasks of the simulated GitHub, grades their traces, and reports success rate, safety,
//! reliability and cost. Playing and grading are two phases: grading is a run of `gradus eval` on the traces, with the
//! results of the trials as an addition.

mod addition;
mod arguments;
mod files;
mod plan;
mod play;

pub(super) use addition::BenchAddition;
pub(super) use arguments::BenchArguments;
pub(super) use plan::{BenchAgents, load_worlds, plan_jobs};

use std::io::Write as _;

use gradus_github_bench::suite::{BenchTask, TaskSuite};
use gradus_github_bench::trial::{BenchFolder, ExistingBenchAction};

use super::CommandExit;
use super::eval::{self, PreparedRun};
use super::sources::print_diagnostic;
use gradus_core::visible::printable_line;
use gradus_github_bench::results::BenchReport;
use gradus_report::format_counted_noun;
use plan::{BenchPlanError, PreparedBench};

/// Entry point of the command: select tasks, prepare, run trials, write files, grade. A benchmark that stopped early is
/// reported without grading and keeps its folder for `--resume`.
pub(super) fn run_bench_command(arguments: &BenchArguments) -> anyhow::Result<CommandExit> {
    let suite = match TaskSuite::load(&arguments.suite) {
        Ok(suite) => suite,
        Err(error) => return Ok(reject_bench_input(&error.to_string())),
    };
    let chosen = match &arguments.tasks {
        Some(words) => suite.select(words),
        None => Ok(suite.tasks.iter().collect()),
    };
    let tasks = match chosen {
        Ok(tasks) => tasks,
        Err(error) => return Ok(reject_bench_input(&error.to_string())),
    };
    if arguments.list {
        return list_tasks(&tasks);
    }
    let worlds = match load_worlds(&tasks) {
        Ok(worlds) => worlds,
        Err(error) => return Ok(reject_bench_input(&error.to_string())),
    };
    let planned = match PreparedBench::new(arguments, &suite, &tasks, &worlds) {
        Ok(planned) => planned,
        Err(error) => return Ok(reject_bench_input(&error.to_string())),
    };
    // Grading reads the traces from the folder, as `gradus eval FOLDER/traces` would.
    let traces = planned.folder.join("traces").display().to_string();
    let graded = eval::EvalArguments::for_sources(vec![traces], planned.grading_options(arguments))
        .without_judging(arguments.no_grading);
    let levels = tasks.iter().map(|task| task.level.name());
    let names = BenchReport::metric_names(planned.agents().len(), arguments.trials, levels);
    let prepare = || -> Result<PreparedRun<'_>, BenchPlanError> {
        files::prepare_outputs(arguments)?;
        plan::check_gates(arguments, planned.agents().len())?;
        Ok(PreparedRun::new(&graded, Some(&names))?)
    };
    let prepared = match prepare() {
        Ok(prepared) => prepared,
        Err(error) => return Ok(reject_bench_input(&error.to_string())),
    };
    let (mut folder, lines) = match BenchFolder::open(&planned.folder, &planned.plan, planned.earlier) {
        Ok(opened) => opened,
        Err(error) => return Ok(reject_bench_input(&error.to_string())),
    };
    if let Err(error) = files::clear_old_labels(arguments) {
        return Ok(reject_bench_input(&error.to_string()));
    }
    if planned.earlier == ExistingBenchAction::Resume && lines.is_empty() {
        print_diagnostic(&format!("there is nothing to go on with; a bench begins in {}", folder.path().display()));
    }
    let played = play::run_trials(arguments, &planned, &mut folder, lines);
    let report = planned.build_report(&folder, played.lines);
    files::write_outputs(arguments, &folder, report.lines())?;
    let has_traces = report.lines().iter().any(|line| files::trial_trace_path(&folder, line).is_file());
    let mut addition = BenchAddition::new(report);
    if let Some(stopped) = played.stopped {
        // Trials that were finished are reported, without grading.
        let mut exit = stopped.command_exit();
        if !addition.report.lines().is_empty() {
            exit = exit.unless_undecided(prepared.report_without_judging(&mut addition, Some(stopped.reason()))?);
        }
        print_diagnostic(&printable_line(&stopped.advice(&planned.who)));
        print_diagnostic(&format!("--resume --out {} goes on from there", folder.path().display()));
        return Ok(exit);
    }
    if arguments.no_grading || !has_traces {
        return prepared.report_without_judging(&mut addition, None);
    }
    prepared.judge(&mut addition)
}

fn reject_bench_input(reason: &str) -> CommandExit {
    print_diagnostic(&printable_line(reason));
    CommandExit::BadInput
}

/// Prints `--list`: number, level, id, calls of the shortest solution, title.
fn list_tasks(tasks: &[&BenchTask]) -> anyhow::Result<CommandExit> {
    let mut out = anstream::stdout().lock();
    for task in tasks {
        writeln!(
            out,
            "{:>3}  {}  {:<36} {:>8}  {}",
            task.number,
            task.level.name(),
            printable_line(&task.id),
            format_counted_noun(task.minimal_calls as u64, "call", "calls"),
            printable_line(&task.title)
        )?;
    }
    Ok(CommandExit::Pass)
}
