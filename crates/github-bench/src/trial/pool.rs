//! Many trials at a time: threads with a runtime each, since a simulator and its agent side by side on one thread are
//! faster than handing every request to another; and on each thread as many trials as shall wait for models together.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::{BenchError, TrialEnvironment, TrialLine};
use crate::record::TrialRecord;
use crate::suite::BenchTask;
use gradus_github_agent::tools::BoxFuture;
use gradus_github_sim::World;

/// One trial that is to be played.
#[derive(Clone, Copy, Debug)]
pub struct TrialJob<'j> {
    pub task: &'j BenchTask,
    /// As the task begins; made once, and cloned for each trial.
    pub world: &'j World,
    /// Unique among the task's trials.
    pub trial: u32,
    /// Which of several contestants plays it.
    pub contestant: usize,
    /// How often this contestant has played this task before.
    pub round: u32,
}

/// A trial that was played.
#[derive(Clone, Debug)]
pub struct FinishedTrial {
    pub line: TrialLine,
    pub record: TrialRecord,
    /// Its traces: an OTLP export request in protobuf; empty if there are none.
    pub otlp: Vec<u8>,
}

/// Who plays.
pub trait TrialRunner: Sync {
    /// Whether it is a program of its own: it waits in real time, and something of it may still be at work when its trial
    /// is over, so each trial gets a place of its own.
    fn is_program(&self) -> bool {
        false
    }

    fn play<'p>(
        &'p self,
        arena: &'p mut TrialEnvironment,
        job: &'p TrialJob<'_>,
    ) -> BoxFuture<'p, Result<FinishedTrial, BenchError>>;
}

#[derive(Clone, Copy, Debug)]
pub struct TrialConcurrency {
    pub threads: usize,
    /// Trials at a time on each thread.
    pub slots: usize,
}

/// As `run_each`, up to the first trial that could not be carried out.
pub fn run_all<E: From<BenchError>>(
    pool: TrialConcurrency,
    jobs: &[TrialJob<'_>],
    player: &dyn TrialRunner,
    stop: &AtomicBool,
    take: &mut dyn FnMut(FinishedTrial) -> Result<(), E>,
) -> Result<(), E> {
    run_each(pool, jobs, player, stop, &mut |finished| take(finished?))
}

/// Plays all jobs, in their order as far as several at a time allow, and hands over each trial when it is finished, or
/// why it could not be carried out. Nothing new is begun once `stop` is true or `take` has failed; what was under way by
/// then is still handed over.
pub fn run_each<E>(
    pool: TrialConcurrency,
    jobs: &[TrialJob<'_>],
    player: &dyn TrialRunner,
    stop: &AtomicBool,
    take: &mut dyn FnMut(Result<FinishedTrial, BenchError>) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let ends = AtomicBool::new(false);
    // A reader that is slower than the players holds them up, so that finished trials do not pile up.
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
                    let slots = (0..pool.slots.max(1)).map(|_| play_on(player, take_next, &sender));
                    join_all(slots.collect()).await;
                });
            });
        }
        drop(sender);
        let mut result = Ok(());
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

async fn play_on<'j>(
    player: &dyn TrialRunner,
    take_next: &(dyn Fn() -> Option<&'j TrialJob<'j>> + Sync),
    sender: &mpsc::SyncSender<Result<FinishedTrial, BenchError>>,
) {
    let mut arena: Option<TrialEnvironment> = None;
    while let Some(job) = take_next() {
        let is_program = player.is_program();
        let opened = match arena.take().filter(|_| !is_program) {
            Some(arena) => Ok(arena),
            None => TrialEnvironment::open(job.world.clone(), is_program).await,
        };
        let finished = match opened {
            Ok(opened) => {
                let opened = arena.insert(opened);
                opened.reset_world(job.world.clone());
                player.play(opened, job).await
            }
            Err(error) => Err(error),
        };
        if sender.send(finished).is_err() {
            return;
        }
    }
}

/// Polls all of them until each is done.
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
