//! `gradus bench`: plays tasks on the simulator, judges what was done, and says what that comes to.

mod arguments;
mod plan;

pub(super) use arguments::Arguments;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use gradus_eval::report::{Metric, RunReader};
use gradus_github::bench::{
    BenchFolder, Contestant, Finished, FolderError, OwnAgent, Player, Pool, TrialLine, run_all,
};
use gradus_github::suite::Suite;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Exit;
use super::eval::{self, Prepared};
use super::outputs::Addition;
use super::sources::complain;
use crate::bench::foreign::{ForeignAgent, trajectories};
use crate::bench::labels;
use crate::bench::report::BenchReport;
use crate::bench::truth::Scores;
use crate::output::printable_line;
use plan::Planned;
pub(super) use plan::{Who, jobs, worlds};

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let suite = match Suite::find(&arguments.suite) {
        Ok(suite) => suite,
        Err(error) => return Ok(refuse(&error.to_string())),
    };
    if arguments.list {
        return list(&suite);
    }
    let chosen = match &arguments.tasks {
        Some(words) => suite.select(words).map_err(|error| error.to_string()),
        None => Ok(suite.tasks.iter().collect()),
    };
    let chosen = chosen.and_then(|tasks| Ok((worlds(&tasks)?, tasks)));
    let (worlds, tasks) = match chosen {
        Ok(chosen) => chosen,
        Err(reason) => return Ok(refuse(&reason)),
    };
    let planned = match Planned::new(arguments, &suite, &tasks, &worlds) {
        Ok(planned) => planned,
        Err(reason) => return Ok(refuse(&reason)),
    };
    let opened = BenchFolder::open(&planned.folder, &planned.plan, planned.goes_on);
    let (mut folder, lines) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(refuse(&error.to_string())),
    };
    // What can be wrong about judging is found before anything is played.
    let graded = eval::Arguments::of(vec![folder.traces().display().to_string()], planned.grading(arguments));
    let names = BenchReport::metric_names(arguments.trials);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let prepared = match Prepared::new(&graded, &names).and_then(|prepared| {
        prepare_outputs(arguments)?;
        Ok(prepared)
    }) {
        Ok(prepared) => prepared,
        Err(reason) => return Ok(refuse(&reason)),
    };
    let (report, interrupted) = match play(arguments, &planned, &mut folder, lines) {
        Ok((lines, interrupted)) => (planned.report(&folder, lines), interrupted),
        Err(error) => {
            complain(&printable_line(&error.to_string()));
            complain(&format!(
                "what was played is kept in {}; --resume goes on from there",
                folder.path().display()
            ));
            return Ok(Exit::Unexpected);
        }
    };
    if let Some(path) = &arguments.traces {
        write_traces(path, &folder, report.lines())?;
    }
    if let Some(path) = &arguments.emit_labels {
        emit_labels(path, &folder, report.lines())?;
    }
    let mut addition = BenchAddition { report };
    if interrupted {
        addition.print(&mut anstream::stdout().lock())?;
        complain(&format!("interrupted; --resume --out {} goes on from there", folder.path().display()));
        return Ok(Exit::Interrupted);
    }
    let has_traces = addition.report.lines().iter().any(|line| trace_of(&folder, line).is_file());
    if arguments.no_grading || !has_traces {
        addition.print(&mut anstream::stdout().lock())?;
        return Ok(if addition.report.lines().is_empty() { Exit::NothingFound } else { Exit::Pass });
    }
    prepared.judge(&mut addition)
}

fn refuse(reason: &str) -> Exit {
    complain(&printable_line(reason));
    Exit::BadInput
}

fn list(suite: &Suite) -> anyhow::Result<Exit> {
    let mut out = anstream::stdout().lock();
    for task in &suite.tasks {
        writeln!(
            out,
            "{:>3}  {}  {:<36} {:>2} calls  {}",
            task.number,
            task.level.name(),
            printable_line(&task.id),
            task.minimal_calls,
            printable_line(&task.title)
        )?;
    }
    Ok(Exit::Pass)
}

fn prepare_outputs(arguments: &Arguments) -> Result<(), String> {
    for path in [&arguments.traces, &arguments.emit_labels].into_iter().flatten() {
        let is_folder = Some(path) == arguments.emit_labels.as_ref() && !is_lines(path);
        let made = if is_folder {
            std::fs::create_dir_all(path)
        } else {
            File::options().append(true).create(true).open(path).map(drop)
        };
        made.map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
    }
    Ok(())
}

fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "jsonl")
}

/// Plays what is still to be played. True when it was interrupted.
fn play(
    arguments: &Arguments,
    planned: &Planned<'_>,
    folder: &mut BenchFolder,
    mut lines: Vec<TrialLine>,
) -> Result<(Vec<TrialLine>, bool), FolderError> {
    lines.retain(|line| planned.jobs.iter().any(|job| job.task.id == line.task && job.trial == line.trial));
    let is_played =
        |task: &str, trial: u32| lines.iter().any(|line| line.task == task && line.trial == trial);
    let jobs: Vec<_> =
        planned.jobs.iter().copied().filter(|job| !is_played(&job.task.id, job.trial)).collect();
    if !lines.is_empty() {
        complain(&format!("{} trials were played before, {} are left", lines.len(), jobs.len()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    listen_for_interrupts(&stop);
    let bar = bar(arguments.grading.quiet, jobs.len());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let contestants: Vec<Contestant<'_>>;
    let own: OwnAgent<'_>;
    let foreign: ForeignAgent;
    let (player, pool): (&dyn Player, Pool) = match &planned.who {
        Who::Policies(policies) => {
            contestants = policies.iter().copied().map(Contestant::Policy).collect();
            own = own_agent(arguments, &contestants);
            (&own, Pool { threads: arguments.parallel.unwrap_or(cores), slots: 1 })
        }
        Who::Model { client, price } => {
            contestants = vec![Contestant::Model { model: client.as_ref(), price: *price }];
            own = own_agent(arguments, &contestants);
            // All waiting: one thread does.
            (&own, Pool { threads: 1, slots: arguments.parallel.unwrap_or(8) })
        }
        Who::Command(command) => {
            let timeout = Duration::from_secs_f64(arguments.agent_timeout);
            foreign = ForeignAgent { command: command.clone(), timeout };
            (&foreign, Pool { threads: 1, slots: arguments.parallel.unwrap_or(cores) })
        }
    };
    let mut take = |finished: Finished| {
        folder.keep(&finished)?;
        lines.push(finished.line);
        if let Some(bar) = &bar {
            bar.inc(1);
        }
        Ok(())
    };
    let done: Result<(), FolderError> = run_all(pool, &jobs, player, &stop, &mut take);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    done?;
    lines.sort_by_key(|line| (line.number, line.trial));
    Ok((lines, stop.load(Ordering::Relaxed)))
}

fn own_agent<'a>(arguments: &Arguments, contestants: &'a [Contestant<'a>]) -> OwnAgent<'a> {
    OwnAgent {
        contestants,
        form: arguments.react.map(Into::into),
        replays: arguments.replay,
        project: "gradus-bench",
    }
}

fn bar(quiet: bool, length: usize) -> Option<ProgressBar> {
    if quiet || !io::IsTerminal::is_terminal(&io::stderr()) {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} trials") {
        bar.set_style(style.progress_chars("=> "));
    }
    Some(bar)
}

/// The first Ctrl-C lets trials that are under way end; the second one ends the program.
fn listen_for_interrupts(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    let listen = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(Exit::Interrupted as i32);
                }
                complain("finishing the trials that are under way; once more ends at once");
            }
        });
    };
    // Without it Ctrl-C ends the program, and --resume goes on all the same.
    let _ = std::thread::Builder::new().name("interrupts".to_owned()).spawn(listen);
}

fn trace_of(folder: &BenchFolder, line: &TrialLine) -> std::path::PathBuf {
    folder.traces().join(format!("{}.bin", line.name()))
}

fn write_traces(path: &Path, folder: &BenchFolder, lines: &[TrialLine]) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        for line in lines {
            // One behind the other they are one request again.
            if let Ok(mut trace) = File::open(trace_of(folder, line)) {
                io::copy(&mut trace, &mut out)?;
            }
        }
        out.flush()
    };
    write().with_context(|| path.display().to_string())
}

fn emit_labels(path: &Path, folder: &BenchFolder, lines: &[TrialLine]) -> anyhow::Result<()> {
    let mut out = match is_lines(path) {
        true => Some(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?)),
        false => None,
    };
    for line in lines.iter().filter(|line| line.truth.is_some()) {
        let otlp = std::fs::read(trace_of(folder, line)).unwrap_or_default();
        match &mut out {
            Some(out) => {
                for trajectory in trajectories(&otlp)? {
                    labels::write_lines(out, line, &trajectory)?;
                }
            }
            None => {
                let record = folder.record(&line.task, line.trial)?;
                labels::write_folder(path, line, &record, &otlp)
                    .with_context(|| path.display().to_string())?;
            }
        }
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    Ok(())
}

/// A bench's own numbers, beside those of the judge.
pub(super) struct BenchAddition {
    pub(super) report: BenchReport,
}

impl Addition for BenchAddition {
    fn metrics(&mut self, reader: &mut RunReader) -> anyhow::Result<Vec<Metric>> {
        let mut scores = Scores::default();
        let by_session: std::collections::HashMap<&str, &TrialLine> =
            self.report.lines().iter().map(|line| (line.session.as_str(), line)).collect();
        reader.visit(|trajectory, outcomes| {
            let session = trajectory.session_id.as_deref().unwrap_or_default();
            if let Some(line) = by_session.get(session) {
                scores.add(line, trajectory, outcomes);
            }
            anyhow::Ok(())
        })?;
        self.report.scores = Some(scores);
        Ok(self.report.metrics())
    }

    fn document(&self) -> anyhow::Result<Option<(&'static str, serde_json::Value)>> {
        Ok(Some(("bench", serde_json::to_value(&self.report)?)))
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.report.print(out)
    }
}
