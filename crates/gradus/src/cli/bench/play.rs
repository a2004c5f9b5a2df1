//! Runs the trials that are not in the folder yet, several at a time, and stops on an interrupt or when the model's
//! endpoint is unreachable. Every finished trial is saved at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradus_github_bench::trial::{
    BenchError, BenchFolder, FinishedTrial, FolderError, OwnAgent, TrialConcurrency, TrialContestant, TrialLine,
    TrialRunner, run_each,
};
use gradus_llm::{CallError, ModelCallFailure};

use super::plan::{BenchAgents, PreparedBench};
use super::{BenchArguments, print_diagnostic};
use crate::cli::CommandExit;
use crate::cli::interrupt_listener::{ExitActionSlot, InterruptListener};
use crate::cli::trial_progress::create_progress_bar;
use crate::process_groups::ProcessGroupRegistry;
use crate::program_agent::ProgramAgent;
use crate::program_runner::ProgramRunner;
use gradus_report::format_counted_noun;

/// Number of consecutive trials without an answer of the model's endpoint after which the benchmark stops.
const MAX_CONSECUTIVE_OUTAGES: usize = 5;
/// Default time limit of a program for one task, in seconds.
const DEFAULT_PROGRAM_TIMEOUT_S: f64 = 600.0;
/// Maximum time limit, about three years in seconds: `Duration::from_secs_f64` panics on values that do not fit.
const MAX_TIMEOUT_S: f64 = 1e8;

/// The finished trials, and why the others were not run.
pub(super) struct CompletedTrials {
    /// By number of the task and of the trial, including those of an earlier call.
    pub(super) lines: Vec<TrialLine>,
    pub(super) stopped: Option<BenchStopReason>,
}

/// Why a benchmark ended before all trials were run.
pub(super) enum BenchStopReason {
    Interrupted,
    /// The endpoint did not answer in this many trials. They do not count, because the endpoint failed and not the
    /// agent.
    Away(ModelCallFailure, usize),
    Failed(FolderError),
}

/// Plays all trials that `lines`, the results in the folder, do not have. An unreachable endpoint ends the benchmark at
/// once if the error is final (a refused key), else after several trials in a row.
pub(super) fn run_trials(
    arguments: &BenchArguments,
    planned: &PreparedBench<'_>,
    folder: &mut BenchFolder,
    mut lines: Vec<TrialLine>,
) -> CompletedTrials {
    let has_worked = lines.iter().any(|line| line.calls > 0);
    // The folder may have trials that this call does not ask for, after a change of --tasks or --trials.
    lines.retain(|line| planned.jobs.iter().any(|job| job.task.id == line.task && job.trial == line.trial));
    let is_played = |task: &str, trial: u32| lines.iter().any(|line| line.task == task && line.trial == trial);
    let jobs: Vec<_> = planned.jobs.iter().copied().filter(|job| !is_played(&job.task.id, job.trial)).collect();
    if !lines.is_empty() {
        let played = format_counted_noun(lines.len() as u64, "trial was", "trials were");
        let left = format_counted_noun(jobs.len() as u64, "is", "are");
        print_diagnostic(&format!("{played} played before, {left} left"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let programs = ProcessGroupRegistry::default();
    let hint = format!("--resume --out {} goes on from there", folder.path().display());
    let listener = InterruptListener::start(&stop, &programs, &ExitActionSlot::default(), hint);
    let bar = create_progress_bar(arguments.grading.quiet, jobs.len());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let bench = folder.plan().id.clone();
    let contestants: Vec<TrialContestant<'_>>;
    let own: OwnAgent<'_>;
    let foreign: ProgramAgent;
    let (player, pool): (&dyn TrialRunner, TrialConcurrency) = match &planned.who {
        BenchAgents::Policies(policies) => {
            contestants = policies.iter().copied().map(TrialContestant::Policy).collect();
            own = build_own_agent(arguments, &contestants, &bench);
            (&own, TrialConcurrency { threads: arguments.parallel.unwrap_or(cores), slots: 1 })
        }
        BenchAgents::Model { client, price } => {
            contestants = vec![TrialContestant::Model { model: client.as_ref(), price: *price }];
            own = build_own_agent(arguments, &contestants, &bench);
            // A model's trials wait for its answers nearly all the time, so one thread is enough for all of them.
            (&own, TrialConcurrency { threads: 1, slots: arguments.parallel.unwrap_or(8) })
        }
        BenchAgents::Command(command) => {
            foreign = ProgramAgent {
                program: ProgramRunner {
                    command: command.clone(),
                    timeout: Duration::from_secs_f64(
                        arguments.agent_timeout.unwrap_or(DEFAULT_PROGRAM_TIMEOUT_S).min(MAX_TIMEOUT_S),
                    ),
                    passed_variables: arguments.agent_env.clone(),
                    programs,
                },
                replays: arguments.replay,
                bench: bench.clone(),
                has_worked: AtomicBool::new(has_worked),
            };
            (&foreign, TrialConcurrency { threads: 1, slots: arguments.parallel.unwrap_or(cores) })
        }
    };
    // Trials without an answer of the endpoint: all, and consecutive ones.
    let (mut away, mut in_a_row, mut last): (usize, usize, Option<ModelCallFailure>) = (0, 0, None);
    let mut take = |finished: Result<FinishedTrial, BenchError>| -> Result<(), FolderError> {
        match finished {
            Ok(finished) => {
                in_a_row = 0;
                folder.save_trial(&finished)?;
                lines.push(finished.line);
            }
            Err(BenchError::Endpoint(failure)) => {
                (away, in_a_row) = (away + 1, in_a_row + 1);
                last = Some(failure.clone());
                if failure.error.is_fatal() || in_a_row >= MAX_CONSECUTIVE_OUTAGES {
                    return Err(BenchError::Endpoint(failure).into());
                }
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(bar) = &bar {
            bar.inc(1);
        }
        Ok(())
    };
    let done = run_each(pool, &jobs, player, &stop, &mut take);
    // Grading has its own handling of interrupts, which reports what was judged by then.
    drop(listener);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    lines.sort_by_key(|line| (line.number, line.trial));
    let stopped = match (done, last) {
        (Err(FolderError::Bench(BenchError::Endpoint(failure))), _) => Some(BenchStopReason::Away(failure, away)),
        (Err(error), _) => Some(BenchStopReason::Failed(error)),
        (Ok(()), _) if stop.load(Ordering::Relaxed) => Some(BenchStopReason::Interrupted),
        (Ok(()), Some(failure)) => Some(BenchStopReason::Away(failure, away)),
        (Ok(()), None) => None,
    };
    CompletedTrials { lines, stopped }
}

impl BenchStopReason {
    /// Returns the reason in a few words, for the manifest and reports.
    pub(super) fn reason(&self) -> String {
        match self {
            BenchStopReason::Interrupted => "it was interrupted".to_owned(),
            BenchStopReason::Away(failure, trials) => {
                let trials = format_counted_noun(*trials as u64, "trial", "trials");
                format!("the model's endpoint gave no answer to {trials} ({failure}); that does not count")
            }
            BenchStopReason::Failed(error) => error.to_string(),
        }
    }

    /// Returns the reason with advice for the user: which option or account to check.
    pub(super) fn advice(&self, who: &BenchAgents) -> String {
        let (BenchStopReason::Away(failure, _), BenchAgents::Model { client, .. }) = (self, who) else {
            return self.reason();
        };
        let (url, model) = (client.shown_url(), &client.endpoint().model);
        let what = match &failure.error {
            CallError::Unauthorized { status: 402 | 429, .. } => {
                format!("{url} wants to be paid first ({failure}): fill up the account")
            }
            CallError::Unauthorized { .. } => {
                format!(
                    "{url} refused the key ({failure}): name the variable of one that is valid there with --model-key-env"
                )
            }
            CallError::NotFound { .. } => format!(
                "{url} has no model {model:?}, or is no model's address ({failure}): check --model and --model-url"
            ),
            CallError::Connect(_) => {
                format!("cannot reach {url} ({failure}): is it running? --model-url names another")
            }
            _ => format!("{url}: {failure}"),
        };
        format!("{what}; trials that it gave no answer to do not count")
    }

    /// Returns the exit code. A refused key, an unknown model and a program that cannot be run are bad input;
    /// everything else is unexpected.
    pub(super) fn command_exit(&self) -> CommandExit {
        match self {
            BenchStopReason::Interrupted => CommandExit::Interrupted,
            BenchStopReason::Away(failure, _) => match failure.error {
                CallError::Unauthorized { status: 401 | 403, .. } | CallError::NotFound { .. } => CommandExit::BadInput,
                _ => CommandExit::Unexpected,
            },
            BenchStopReason::Failed(FolderError::Bench(BenchError::Program(_))) => CommandExit::BadInput,
            BenchStopReason::Failed(_) => CommandExit::Unexpected,
        }
    }
}

/// Builds the built-in agent, for scripted policies and for models.
fn build_own_agent<'a>(
    arguments: &BenchArguments,
    contestants: &'a [TrialContestant<'a>],
    bench: &'a str,
) -> OwnAgent<'a> {
    OwnAgent {
        contestants,
        form: arguments.react.map(Into::into),
        replays: arguments.replay,
        project: "gradus-bench",
        bench,
    }
}
