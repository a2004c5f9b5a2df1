//! `gradus experiment`: runs any agent on the items of a dataset, several times each, checks the expectations of the
//! dataset, and grades the trajectories as `gradus eval` does.

mod addition;
mod arguments;
mod attempt;
mod experiment_plan;
mod folder;
mod http_agent;
mod masked_text;
mod plan;
mod results;
mod setup_command;
mod span_attribution;
mod trial_pool;

pub(super) use addition::ExperimentAddition;
pub(super) use arguments::ExperimentArguments;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gradus_core::visible::printable_line;
use gradus_report::format_counted_noun;
use gradus_server::{RunningServer, ServerStartError};

use super::CommandExit;
use super::eval::{EvalArguments, PreparedRun};
use super::interrupt_listener::{ExitActionSlot, InterruptListener};
use super::sources::print_diagnostic;
use super::trial_progress::create_progress_bar;
use crate::experiment_report::{ExperimentReport, group_by_item};
use crate::process_groups::ProcessGroupRegistry;
use crate::program_runner::{ProgramRunner, collector_variables};
use attempt::ExperimentAgent;
use folder::{AttemptMap, ExperimentFolder, TRAJECTORIES_FILE, TRIALS_FILE};
use plan::{AgentChoice, PreparedExperiment};
use results::{AnswerSource, ExperimentResults};
use setup_command::{SetupCommand, SetupError};
use span_attribution::{AttributedTraces, attribute_traces};
use trial_pool::{ExperimentStop, TrialSchedule};

/// Entry point of the command: prepare, run trials, check, write the folder, grade.
pub(super) fn run_experiment_command(arguments: &ExperimentArguments) -> anyhow::Result<CommandExit> {
    let prepared = match PreparedExperiment::new(arguments) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(reject_experiment_input(&error.to_string())),
    };
    let choice = prepared.choose_folder(arguments);
    let trajectories = choice.path.join(TRAJECTORIES_FILE).display().to_string();
    let graded = EvalArguments::for_sources(vec![trajectories], prepared.grading_options(arguments))
        .without_judging(arguments.no_grading);
    let tags = prepared.items.iter().flat_map(|item| item.tags.clone()).collect();
    let names = ExperimentReport::metric_names(arguments.trials, tags);
    // Settings of grading are checked before hours of trials.
    if let Err(error) = PreparedRun::new(&graded, Some(&names)) {
        return Ok(reject_experiment_input(&error.to_string()));
    }
    let (mut folder, mut attempts) = match ExperimentFolder::open(&choice, &prepared.plan) {
        Ok(opened) => opened,
        Err(error) => return Ok(reject_experiment_input(&error.to_string())),
    };
    let (received, stopped) = match run_trials(arguments, &prepared, &mut folder, &mut attempts)? {
        Ok(outcome) => outcome,
        Err(error) => return Ok(reject_experiment_input(&error.to_string())),
    };
    let (spans, traces) = (received.unattributed_spans, received.unattributed_traces);
    let answer_source = if arguments.answer_path.is_some() { AnswerSource::Agent } else { AnswerSource::Trace };
    let results = ExperimentResults::from_attempts(
        &prepared.items,
        arguments.trials,
        &folder.plan.id,
        &attempts,
        received,
        answer_source,
    );
    let digest = folder.write_lines(TRAJECTORIES_FILE, &results.trajectories)?;
    folder.write_lines(TRIALS_FILE, &results.trials)?;
    let graded = graded.with_seed(digest as u64);
    let run = match PreparedRun::new(&graded, Some(&names)) {
        Ok(run) => run,
        Err(error) => return Ok(reject_experiment_input(&error.to_string())),
    };
    let report = ExperimentReport {
        dataset: folder.plan.dataset.clone(),
        agent: folder.plan.agent.clone(),
        folder: folder.path().display().to_string(),
        k: group_by_item(&results.trials).iter().map(|(_, own)| own.len() as u32).min().unwrap_or(0),
        unattributed_spans: spans,
        unattributed_traces: traces,
        refused_exports: results.refused_exports,
        trials: results.trials,
    };
    let mut addition = ExperimentAddition { report };
    if let Some(stop) = stopped {
        let mut exit = exit_for_stop(&stop);
        // Trials that were finished are reported, without grading.
        if !addition.report.trials.is_empty() {
            exit = exit.unless_undecided(run.report_without_judging(&mut addition, Some(stop.to_string()))?);
        }
        print_diagnostic(&printable_line(&stop.to_string()));
        if !matches!(stop, ExperimentStop::AgentMissing { .. }) {
            print_diagnostic("finished trials are kept; the same command continues from there");
        }
        return Ok(exit);
    }
    print_diagnostic(&format!("results are in {}", folder.path().display()));
    let exit = match arguments.no_grading {
        true => run.report_without_judging(&mut addition, None)?,
        false => run.judge(&mut addition)?,
    };
    // If grading was cut off, the same command continues with it and runs no trial again.
    if !matches!(exit, CommandExit::Interrupted | CommandExit::Unexpected) {
        folder.mark_finished()?;
    }
    Ok(exit)
}

/// Why no trial could begin.
#[derive(Debug, thiserror::Error)]
enum TrialsStartError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("collector not started: {address}: {source}; hint: name a free address of this machine with --collector")]
    Collector { address: SocketAddr, source: ServerStartError },
}

/// Spans of agents behind HTTP, and why not all attempts were made.
type TrialsOutcome = Result<(AttributedTraces, Option<ExperimentStop>), TrialsStartError>;

/// Makes the attempts that are left, between setup and teardown.
fn run_trials(
    arguments: &ExperimentArguments,
    prepared: &PreparedExperiment,
    folder: &mut ExperimentFolder,
    attempts: &mut AttemptMap,
) -> anyhow::Result<TrialsOutcome> {
    let schedule = TrialSchedule { items: &prepared.items, trials: arguments.trials, jobs: prepared.jobs };
    let left = schedule.remaining_attempts(attempts).len();
    if !attempts.is_empty() {
        let done = format_counted_noun(attempts.len() as u64, "trial is", "trials are");
        print_diagnostic(&format!("continuing in {}: {done} done, {left} left", folder.path().display()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stop = Arc::new(AtomicBool::new(false));
    let programs = ProcessGroupRegistry::default();
    let hint = "finished trials are kept; the same command continues from there".to_owned();
    // What setup leaves behind; teardown may need it after the agents are ended.
    let surroundings = ProcessGroupRegistry::default();
    let exit_action = ExitActionSlot::default();
    let listener = InterruptListener::start(&stop, &programs, &exit_action, hint);
    let bar = create_progress_bar(arguments.grading.quiet, left);
    let outcome = runtime.block_on(async {
        let collector = match &prepared.agent {
            AgentChoice::Command(_) => None,
            AgentChoice::Http { collector, .. } => {
                match RunningServer::start_private_at(&folder.collector_path(), *collector).await {
                    Ok(running) => Some(running),
                    Err(source) => return Ok(Err(TrialsStartError::Collector { address: *collector, source })),
                }
            }
        };
        if let Some(collector) = &collector {
            print_diagnostic(&format!("the collector listens on http://{}", collector.http));
        }
        let agent = match &prepared.agent {
            AgentChoice::Command(text) => ExperimentAgent::Program(ProgramRunner {
                command: text.clone(),
                timeout: prepared.timeout,
                passed_variables: arguments.pass_env.clone(),
                programs: programs.clone(),
            }),
            AgentChoice::Http { request, .. } => ExperimentAgent::Http {
                request: request.clone(),
                client: gradus_http::http_client_builder().build()?,
                timeout: prepared.timeout,
            },
        };
        let command = |option, text: &Option<String>| {
            text.as_ref().filter(|_| left > 0).map(|text| SetupCommand {
                option,
                command: text.clone(),
                variables: setup_variables(folder, collector.as_ref()),
                passed_variables: arguments.pass_env.clone(),
                timeout: prepared.timeout,
                log: folder.path().join(".setup.log"),
            })
        };
        let (teardown, all_left) = (command("--teardown", &arguments.teardown), surroundings.clone());
        // From here on something may be set up.
        exit_action.set(async move {
            if let Some(teardown) = teardown {
                teardown.run_or_warn(&all_left).await;
            }
            all_left.end_all();
        });
        let setup = match command("--setup", &arguments.setup) {
            Some(setup) => match setup.run(&surroundings).await {
                Ok(group) => Some(group),
                Err(error) => {
                    run_exit_action(&exit_action).await;
                    return Ok(Err(error.into()));
                }
            },
            None => None,
        };
        let done = schedule.run(Arc::new(agent), folder, attempts, &stop, bar.as_ref()).await;
        if let (Some(collector), AgentChoice::Http { span_wait, .. }, true) = (&collector, &prepared.agent, left > 0) {
            wait_for_spans(collector, left as u64, *span_wait).await;
        }
        run_exit_action(&exit_action).await;
        drop(setup);
        if let Some(collector) = collector {
            collector.stop().await;
        }
        anyhow::Ok(Ok(done.err()))
    });
    drop(listener);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let stopped = match outcome? {
        Ok(stopped) => stopped,
        Err(error) => return Ok(Err(error)),
    };
    let received = match &prepared.agent {
        AgentChoice::Command(_) => AttributedTraces::default(),
        AgentChoice::Http { .. } => attribute_traces(&folder.collector_path(), attempts)?,
    };
    Ok(Ok((received, stopped)))
}

/// Runs the action that a signal would run before the end.
async fn run_exit_action(exit_action: &ExitActionSlot) {
    if let Some(action) = exit_action.take() {
        action.await;
    }
}

/// Waits until spans of the last answers have arrived: SDKs export in batches, every five seconds by default. It ends
/// early when there are at least as many spans as answers and no more of them come.
async fn wait_for_spans(collector: &RunningServer, expected: u64, wait: Duration) {
    const SPAN_POLL_INTERVAL: Duration = Duration::from_millis(100);
    /// Time without new spans after which every batch of a default SDK has arrived.
    const QUIET_PERIOD: Duration = Duration::from_millis(5_500);
    let begun = Instant::now();
    let (mut seen, mut changed) = (collector.stored_span_count(), Instant::now());
    while begun.elapsed() < wait {
        tokio::time::sleep(SPAN_POLL_INTERVAL).await;
        let now = collector.stored_span_count();
        if now != seen {
            (seen, changed) = (now, Instant::now());
        }
        if seen >= expected && changed.elapsed() >= QUIET_PERIOD {
            return;
        }
    }
}

fn setup_variables(folder: &ExperimentFolder, collector: Option<&RunningServer>) -> Vec<(&'static str, String)> {
    let mut variables = vec![("GRADUS_EXPERIMENT_ID", folder.plan.id.clone())];
    variables.extend(collector.into_iter().flat_map(collector_variables));
    variables
}

fn exit_for_stop(stop: &ExperimentStop) -> CommandExit {
    match stop {
        ExperimentStop::Interrupted => CommandExit::Interrupted,
        ExperimentStop::AgentMissing { .. } => CommandExit::BadInput,
        ExperimentStop::Folder(_) | ExperimentStop::Attempt(_) | ExperimentStop::Task(_) => CommandExit::Unexpected,
    }
}

fn reject_experiment_input(reason: &str) -> CommandExit {
    print_diagnostic(&printable_line(reason));
    CommandExit::BadInput
}
