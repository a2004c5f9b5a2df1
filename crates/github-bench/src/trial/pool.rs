//! Runs trials concurrently: threads with a single-threaded runtime each, and several slots per thread. A simulator and
//! its agent on the same thread are faster than passing every request between threads; slots let trials wait for models
//! together.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::{BenchError, TrialEnvironment, TrialLine};
use crate::record::TrialRecord;
use crate::suite::BenchTask;
use gradus_github_agent::tools::BoxFuture;
use gradus_github_sim::World;

/// One trial to run. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct TrialJob<'j> {
    pub task: &'j BenchTask,
    /// Initial world; built once per task and cloned per trial.
    pub world: &'j World,
    /// Unique among the task's trials.
    pub trial: u32,
    /// Index of the contestant.
    pub contestant: usize,
    /// Number of earlier trials of this task with this contestant. Scripted policies choose their variant by it.
    pub round: u32,
}

/// A trial that was run.
#[derive(Clone, Debug)]
pub struct FinishedTrial {
    pub line: TrialLine,
    pub record: TrialRecord,
    /// An OTLP `ExportTraceServiceRequest` in protobuf; empty if there are no traces.
    pub otlp: Vec<u8>,
}

/// Runs one trial in a prepared environment.
pub trait TrialRunner: Sync {
    /// Whether an external program is run. It waits in real time, and its processes may outlive the trial, so that each
    /// trial gets an environment of its own.
    fn is_program(&self) -> bool {
        false
    }

    fn run_trial_job<'p>(
        &'p self,
        environment: &'p mut TrialEnvironment,
        job: &'p TrialJob<'_>,
    ) -> BoxFuture<'p, Result<FinishedTrial, BenchError>>;
}

/// How many trials run at the same time: `threads × slots`.
#[derive(Clone, Copy, Debug)]
pub struct TrialConcurrency {
    /// At least one is used, and no more than there are jobs.
    pub threads: usize,
    /// Trials at a time on each thread.
    pub slots: usize,
}

/// As [`run_each`], but ends with the first trial that could not be run.
pub fn run_all<E: From<BenchError>>(
    pool: TrialConcurrency,
    jobs: &[TrialJob<'_>],
    player: &dyn TrialRunner,
    stop: &AtomicBool,
    take: &mut dyn FnMut(FinishedTrial) -> Result<(), E>,
) -> Result<(), E> {
    run_each(pool, jobs, player, stop, &mut |finished| take(finished?))
}

/// Runs all jobs, roughly in order, and passes each finished trial or its error to `take` on the calling thread. No job
/// is started after `stop` is set or `take` fails; trials under way are still delivered.
pub fn run_each<E>(
    pool: TrialConcurrency,
    jobs: &[TrialJob<'_>],
    player: &dyn TrialRunner,
    stop: &AtomicBool,
    take: &mut dyn FnMut(Result<FinishedTrial, BenchError>) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let ends = AtomicBool::new(false);
    // Bounded: a slow `take` blocks the workers instead of accumulating finished trials.
    let (sender, receiver) = mpsc::sync_channel::<Result<FinishedTrial, BenchError>>(64);
    let may_go_on = || !stop.load(Ordering::Relaxed) && !ends.load(Ordering::Relaxed);
    let take_next = || may_go_on().then(|| jobs.get(next.fetch_add(1, Ordering::Relaxed))).flatten();
    std::thread::scope(|scope| {
        for _ in 0..pool.threads.max(1).min(jobs.len()) {
            let sender = sender.clone();
            let take_next = &take_next;
            scope.spawn(move || {
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = sender.send(Err(BenchError::Agent(error.to_string())));
                        return;
                    }
                };
                runtime.block_on(async {
                    let slots = (0..pool.slots.max(1)).map(|_| run_slot(player, take_next, &sender));
                    join_all(slots.collect()).await;
                });
            });
        }
        drop(sender);
        let mut result = Ok(());
        // The loop goes on after an error, so that workers that wait for the channel can end.
        for finished in receiver {
            let taken = take(finished);
            if result.is_ok() && taken.is_err() {
                ends.store(true, Ordering::Relaxed);
                result = taken;
            }
        }
        result
    })
}

/// Runs one slot: takes jobs until none is left. The environment is reused between jobs of our own agent.
async fn run_slot<'j>(
    player: &dyn TrialRunner,
    take_next: &(dyn Fn() -> Option<&'j TrialJob<'j>> + Sync),
    sender: &mpsc::SyncSender<Result<FinishedTrial, BenchError>>,
) {
    let mut environment: Option<TrialEnvironment> = None;
    while let Some(job) = take_next() {
        let is_program = player.is_program();
        let opened = match environment.take().filter(|_| !is_program) {
            Some(environment) => Ok(environment),
            None => TrialEnvironment::open(job.world.clone(), is_program).await,
        };
        let finished = match opened {
            Ok(opened) => {
                let opened = environment.insert(opened);
                opened.reset_world(job.world.clone());
                player.run_trial_job(opened, job).await
            }
            Err(error) => Err(error),
        };
        if sender.send(finished).is_err() {
            return;
        }
    }
}

/// Polls all futures until each is done. It polls all of them on each wake-up, which is fine for the few slots of a
/// thread.
async fn join_all<F: Future<Output = ()>>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(|context| {
        for place in &mut futures {
            if place.as_mut().is_some_and(|future| future.as_mut().poll(context).is_ready()) {
                *place = None;
            }
        }
        if futures.iter().all(Option::is_none) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
