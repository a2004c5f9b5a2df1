//! Assembles stored records into trajectories and grades them with the offline judge: a few threads that claim complete
//! trace groups from the queue.
//!
//! An attempt is written to the store before a group is read. If the group crashes the process, the next start knows
//! which one it was, tries it once more alone, and then quarantines it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::thread::Thread;
use std::time::{Duration, Instant};

use gradus_core::trajectory::Trajectory;
use gradus_eval::runner::RulesJudge;
use gradus_store::{
    AssembledTraceGroup, ReadyQuery, ReadyTraceGroup, Store, StoreError, StoreSnapshot, TrajectoryRecord, WriteHandle,
};

use super::assembly_failure::{AssemblyFailure, catch_assembly_panic};
use super::assembly_queue::{AssemblyClaim, AssemblyQueue};
use super::record::{EvaluatorScales, build_outcome_record, build_trajectory_record};
use crate::clock::now_ns;
use crate::grading_rule::GradingRule;
use crate::settings::ReloadableSettings;
use crate::state::ServerState;
use crate::thread_priority::ThreadPriority;
use crate::throttled_log::ThrottledLog;
use crate::trace_group::{TraceGroupSize, read_trace_group};

/// Maximum number of bytes of assembled groups that are stored in one transaction.
const MAX_BATCH_TRANSACTION_BYTES: usize = 8 << 20;
/// Maximum number of trajectories of a group in one transaction. A larger group is stored in several, so that ingest
/// does not wait for it.
const MAX_TRANSACTION_TRAJECTORIES: usize = 200;
/// How long a thread sleeps when no group is ready.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a stop waits for groups that are being assembled. Unfinished ones are assembled after the next start.
const MAX_STOP_WAIT: Duration = Duration::from_secs(3);

/// Maximum number of quarantined traces that the log names at the start; the page `/server` lists all of them.
const MAX_LOGGED_TRACES: usize = 10;

/// The assembly threads.
pub(super) struct AssemblyPool {
    queue: Arc<AssemblyQueue>,
    /// For waking them when the server stops.
    threads: Vec<Thread>,
    /// Each thread drops its sender when it ends, so `recv` fails when all have ended. The mutex only makes the type
    /// `Sync`.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl AssemblyPool {
    /// Counts attempts that the last process did not finish as failed, and starts the threads.
    pub(super) async fn start(server: &Arc<ServerState>) -> Result<AssemblyPool, StoreError> {
        let (unfinished, quarantined) = server.store.fail_unfinished_attempts(now_ns())?.wait_async().await?;
        if unfinished > 0 {
            tracing::warn!(
                unfinished,
                quarantined,
                "the previous server process ended while assembling traces; each is retried once, alone, and quarantined if it ends the process again"
            );
        }
        for trace in server.store.quarantined_traces(MAX_LOGGED_TRACES)? {
            tracing::warn!(
                trace_id = %trace.trace_id,
                project = trace.project,
                reason = trace.reason,
                "a trace is quarantined and not graded; retry it on /server, or with `gradus store retry`"
            );
        }
        let queue = Arc::new(AssemblyQueue::default());
        let (running, ended) = mpsc::channel();
        // At least two, so that one thread takes small groups while another one has a large group.
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        let mut started = Vec::new();
        for number in 0..threads {
            let (server, queue, running) = (Arc::clone(server), Arc::clone(&queue), running.clone());
            let thread = std::thread::Builder::new()
                .name(format!("assembler-{number}"))
                .spawn(move || {
                    let _running = running;
                    ThreadPriority::Background.apply_to_thread();
                    run_assembly_worker(&server, &queue);
                })
                .map_err(|error| StoreError::Sql(format!("a thread could not be started: {error}")))?;
            started.push(thread.thread().clone());
        }
        server.settling.set_assemblers(&started);
        Ok(AssemblyPool { queue, threads: started, ended: Mutex::new(ended) })
    }

    /// Waits up to [`MAX_STOP_WAIT`]. Attempts of unfinished groups are cancelled, since a stop is not their failure.
    /// The flag `is_stopping` of the server must be set before.
    pub(super) fn stop(self, server: &ServerState) {
        self.threads.iter().for_each(Thread::unpark);
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(MAX_STOP_WAIT) == Err(mpsc::RecvTimeoutError::Disconnected) {
            return;
        }
        let unfinished = self.queue.claimed_trace_groups();
        tracing::info!(traces = unfinished.len(), "traces in progress are left for the next start");
        // Otherwise the next start would count them as failed.
        if let Err(error) = server.store.cancel_attempts(unfinished).and_then(WriteHandle::wait) {
            tracing::error!(%error, "failed to cancel attempts to assemble traces");
        }
    }
}

static ASSEMBLY_FAILURE_LOG: LazyLock<ThrottledLog> = LazyLock::new(ThrottledLog::default);
static CANCELLATION_FAILURE_LOG: LazyLock<ThrottledLog> = LazyLock::new(ThrottledLog::default);

/// The loop of one thread. A panic outside of a single group, such as in the queue, is logged and the loop goes on.
fn run_assembly_worker(server: &ServerState, queue: &AssemblyQueue) {
    let mut judges = RuleJudges::default();
    while !server.is_stopping.load(Ordering::Relaxed) {
        let pause = match catch_assembly_panic(|| assemble_next(server, queue, &mut judges)) {
            Ok(false) => IDLE_PAUSE,
            Ok(true) => Duration::ZERO,
            Err(failure) => {
                server.meters.record_assembly_failure(failure.kind());
                // While a database is unreachable, several threads fail repeatedly.
                if let Some(times) = ASSEMBLY_FAILURE_LOG.record_occurrence() {
                    tracing::error!(error = %failure, times, "failed to assemble traces; retrying");
                }
                // A judge that panicked may be in an inconsistent state.
                judges = RuleJudges::default();
                PAUSE_AFTER_FAILURE
            }
        };
        // A stop wakes it: experiments start and stop a collector for every trial.
        std::thread::park_timeout(pause);
    }
}

/// Claims and assembles the next trace groups. Returns false when none is ready.
fn assemble_next(server: &ServerState, queue: &AssemblyQueue, judges: &mut RuleJudges) -> Result<bool, StoreError> {
    let (quiet_ns, give_up_ns) = server.settling.completion_waits_ns(&server.settings);
    if server.settling.has_pending() {
        queue.end_rests();
    }
    let query = ReadyQuery { now_ns: now_ns(), quiet_ns, give_up_ns, after_project: 0, limit: 0 };
    let Some(claim) = queue.claim(&server.store, query)? else { return Ok(false) };
    let mut batch = AssemblyBatch {
        server,
        queue,
        is_large: claim.is_large,
        waiting: reverse_claimed_groups(&claim),
        done: Vec::new(),
    };
    batch.assemble(judges)?;
    Ok(true)
}

/// Reversed, because the batch takes groups from the end.
fn reverse_claimed_groups(claim: &AssemblyClaim) -> Vec<ReadyTraceGroup> {
    claim.trace_groups.iter().rev().copied().collect()
}

/// Trace groups that one thread has claimed together. However the batch ends, by an error or a panic, `drop` returns
/// the rest to the queue.
struct AssemblyBatch<'s> {
    server: &'s ServerState,
    queue: &'s AssemblyQueue,
    is_large: bool,
    /// Not assembled yet; the next one is the last.
    waiting: Vec<ReadyTraceGroup>,
    /// Assembled and not stored yet, with the time that it took.
    done: Vec<(AssembledTraceGroup, Duration)>,
}

impl Drop for AssemblyBatch<'_> {
    fn drop(&mut self) {
        let waiting = self.waiting.drain(..).map(|ready| ready.trace_group);
        let trace_groups = waiting.chain(self.done.drain(..).map(|(trace_group, _)| trace_group.trace_group)).collect();
        self.cancel_and_release(trace_groups);
    }
}

impl AssemblyBatch<'_> {
    /// Assembles the groups one by one. A failing group is recorded and skipped; an error that concerns the whole store
    /// ends the batch.
    fn assemble(&mut self, judges: &mut RuleJudges) -> Result<(), StoreError> {
        let server = self.server;
        // Written before anything is read: if a group crashes the process, the next start finds its attempt.
        let trace_groups = self.waiting.iter().map(|ready| ready.trace_group).collect();
        let claimed = server.store.begin_attempts(trace_groups)?.wait()?;
        // Another server on the same database has claimed the others.
        let (waiting, lost) = self.waiting.drain(..).partition(|ready| claimed.contains(&ready.trace_group));
        self.waiting = waiting;
        let lost: Vec<ReadyTraceGroup> = lost;
        for ready in lost {
            self.queue.release(ready.trace_group, self.is_large, Duration::ZERO);
        }
        let reloadable = server.reloadable();
        judges.clear_if_reloaded(&reloadable);
        let mut snapshot = SharedSnapshot::new(&server.store);
        let mut bytes = 0;
        while let Some(ready) = self.waiting.last().copied() {
            if server.is_stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            let began = Instant::now();
            let size = if self.is_large { TraceGroupSize::Large } else { TraceGroupSize::Small };
            let assembled = catch_assembly_panic(|| {
                link_and_assemble(server, &mut snapshot, &reloadable, judges, ready.trace_group, size)
            });
            self.waiting.pop();
            if self.is_large || !matches!(assembled, Ok(AssemblyOutcome::Assembled(_))) {
                // What follows waits for the writer.
                snapshot.close();
            }
            match assembled {
                Ok(AssemblyOutcome::Assembled(trace_group)) => {
                    bytes += trace_group.memory_bytes();
                    self.done.push((trace_group, began.elapsed()));
                }
                // Linking made it part of another group, which enters the ready queue by itself.
                Ok(AssemblyOutcome::LinkedToOthers) => self.cancel_and_release(vec![ready.trace_group]),
                Ok(AssemblyOutcome::TooLarge) => {
                    let cancelled = server.store.cancel_attempts(vec![ready.trace_group]).and_then(WriteHandle::wait);
                    if let Err(error) = cancelled {
                        self.queue.release(ready.trace_group, self.is_large, Duration::ZERO);
                        return Err(error);
                    }
                    self.queue.defer_large(ready);
                }
                Err(failure) => {
                    judges.by_rule.clear();
                    self.record_failed_attempt(ready.trace_group, failure)?;
                }
            }
            if bytes > MAX_BATCH_TRANSACTION_BYTES {
                snapshot.close();
                self.store_assembled()?;
                bytes = 0;
            }
        }
        drop(snapshot);
        self.store_assembled()
    }

    /// Stores the assembled groups: small ones in one transaction, large ones in parts.
    fn store_assembled(&mut self) -> Result<(), StoreError> {
        let is_alone = |(trace_group, _): &(AssembledTraceGroup, Duration)| {
            trace_group.records.len() > MAX_TRANSACTION_TRAJECTORIES
        };
        // One by one, so that the rest is still in `done` and can be returned if the store fails.
        while let Some(at) = self.done.iter().position(is_alone) {
            let (trace_group, time) = self.done.swap_remove(at);
            let number = trace_group.trace_group;
            self.release_trace_group(number, time, self.server.store.store_assembled_in_parts(trace_group, now_ns()))?;
        }
        if self.done.is_empty() {
            return Ok(());
        }
        let took: Vec<(i64, Duration)> =
            self.done.iter().map(|(trace_group, time)| (trace_group.trace_group, *time)).collect();
        let together = self.done.drain(..).map(|(trace_group, _)| trace_group).collect();
        match self.server.store.store_assembled_groups(together, now_ns()).and_then(WriteHandle::wait) {
            Ok(count) => {
                self.server.meters.record_assembled(count);
                took.iter().for_each(|(number, time)| self.queue.release(*number, self.is_large, *time));
                self.server.settling.notify_progress();
                Ok(())
            }
            // Groups in one transaction fail together. Each one is a retry now and is claimed alone next time, which
            // finds the bad one.
            Err(error) if error.is_data_error() => {
                let reason = error.to_string();
                let fail = |(number, _): &(i64, Duration)| {
                    self.record_failed_attempt(*number, StoreError::Sql(reason.clone()).into())
                };
                // All of them are recorded, even after recording one of them failed.
                took.iter().map(fail).fold(Ok(()), Result::and)
            }
            Err(error) => {
                self.cancel_and_release(took.into_iter().map(|(number, _)| number).collect());
                Err(error)
            }
        }
    }

    /// Releases a group that was stored on its own, or records its failure.
    fn release_trace_group(
        &self,
        trace_group: i64,
        took: Duration,
        stored: Result<usize, StoreError>,
    ) -> Result<(), StoreError> {
        match stored {
            Ok(count) => {
                self.server.meters.record_assembled(count);
                self.queue.release(trace_group, self.is_large, took);
                self.server.settling.notify_progress();
                Ok(())
            }
            Err(error) => self.record_failed_attempt(trace_group, error.into()),
        }
    }

    /// Cancels attempts that failed through no fault of their groups, and releases the groups.
    fn cancel_and_release(&self, trace_groups: Vec<i64>) {
        if trace_groups.is_empty() {
            return;
        }
        let cancelled = self.server.store.cancel_attempts(trace_groups.clone()).and_then(WriteHandle::wait);
        if let Err(error) = cancelled
            && let Some(times) = CANCELLATION_FAILURE_LOG.record_occurrence()
        {
            tracing::error!(%error, times, "failed to cancel attempts to assemble traces");
        }
        for trace_group in trace_groups {
            self.queue.release(trace_group, self.is_large, Duration::ZERO);
        }
    }

    /// Records a failed attempt and goes on without the group: the second failure quarantines it. Returns an error only
    /// if the whole store is affected, and then the attempt is not counted.
    fn record_failed_attempt(&self, trace_group: i64, failure: AssemblyFailure) -> Result<(), StoreError> {
        let server = self.server;
        let failed = failure.into_group_failure().and_then(|failure| {
            server.meters.record_assembly_failure(failure.kind());
            let reason = failure.to_string();
            let is_quarantined = server.store.fail_attempt(trace_group, &reason, now_ns())?.wait()?;
            if is_quarantined {
                tracing::error!(
                    trace_group,
                    error = reason,
                    "a trace is quarantined after two failed attempts to assemble it; retry it on /server"
                );
            } else {
                tracing::error!(trace_group, error = reason, "failed to assemble a trace; retrying once");
            }
            Ok(())
        });
        match failed {
            Ok(()) => {
                self.queue.release(trace_group, self.is_large, Duration::ZERO);
                server.settling.notify_progress();
            }
            Err(_) => self.cancel_and_release(vec![trace_group]),
        }
        failed
    }
}

/// The result of one group.
enum AssemblyOutcome {
    Assembled(AssembledTraceGroup),
    /// New links tied it to other groups, and it is assembled with them.
    LinkedToOthers,
    /// It exceeds the limits of small groups and moves to the large lane.
    TooLarge,
}

/// Reads, links, assembles and grades one group. Only the offline judge runs here: questions for a model are queued
/// through `ungraded_by`.
fn link_and_assemble(
    server: &ServerState,
    snapshot: &mut SharedSnapshot<'_>,
    reloadable: &ReloadableSettings,
    judges: &mut RuleJudges,
    number: i64,
    size: TraceGroupSize,
) -> Result<AssemblyOutcome, StoreError> {
    let trace_group = snapshot.current()?.trace_group_within(number, size.limits(&server.settings))?;
    if size == TraceGroupSize::Large {
        snapshot.close();
    }
    if trace_group.is_cut && size == TraceGroupSize::Small {
        return Ok(AssemblyOutcome::TooLarge);
    }
    let due_ns = trace_group.due_ns;
    let (mut trajectories, links) = read_trace_group(trace_group)?;
    if !links.is_empty() {
        // Linking waits for the writer.
        snapshot.close();
        if server.store.link_traces(links, now_ns())?.wait()? {
            return Ok(AssemblyOutcome::LinkedToOthers);
        }
    }
    server.sessions.link_group(snapshot.current()?, &mut trajectories)?;
    let mut records = Vec::with_capacity(trajectories.len());
    for mut trajectory in trajectories {
        let rule = reloadable.rules.iter().find(|rule| rule.matches_project(project_or_default(&trajectory)));
        let record = build_trajectory_record(&mut trajectory, &reloadable.prices);
        records.push(match rule.filter(|rule| rule.should_grade(&trajectory)) {
            Some(rule) => judges.grade_offline(server, rule, trajectory, record),
            None => record,
        });
    }
    Ok(AssemblyOutcome::Assembled(AssembledTraceGroup { trace_group: number, due_ns, records }))
}

/// The snapshot in which the small groups of a batch are read. It is renewed now and then, because the write-ahead log
/// cannot be reset while it is open.
struct SharedSnapshot<'s> {
    store: &'s Store,
    opened: Option<(StoreSnapshot<'s>, Instant)>,
}

impl<'s> SharedSnapshot<'s> {
    const MAX_AGE: Duration = Duration::from_millis(50);

    fn new(store: &'s Store) -> Self {
        SharedSnapshot { store, opened: None }
    }

    fn current(&mut self) -> Result<&StoreSnapshot<'s>, StoreError> {
        let is_fresh = |opened_at: &Instant| opened_at.elapsed() <= Self::MAX_AGE;
        let fresh = self.opened.take().filter(|(_, opened_at)| is_fresh(opened_at));
        let opened = match fresh {
            Some(opened) => opened,
            None => (self.store.open_snapshot()?, Instant::now()),
        };
        Ok(&self.opened.insert(opened).0)
    }

    fn close(&mut self) {
        self.opened = None;
    }
}

/// Returns the project, or the name under which spans without a project are stored.
fn project_or_default(trajectory: &Trajectory) -> &str {
    trajectory.project.as_deref().unwrap_or("default")
}

/// Offline judges by rule name, kept between groups because building one copies the evaluators and tools of its rule.
/// They are dropped when the settings change.
#[derive(Default)]
struct RuleJudges {
    made_for: Option<Arc<ReloadableSettings>>,
    by_rule: HashMap<String, RulesJudge>,
}

impl RuleJudges {
    /// Drops the judges if the settings were reloaded. A reload replaces the `Arc`, so comparing pointers detects
    /// every change.
    fn clear_if_reloaded(&mut self, reloadable: &Arc<ReloadableSettings>) {
        if self.made_for.as_ref().is_none_or(|known| !Arc::ptr_eq(known, reloadable)) {
            self.by_rule.clear();
            self.made_for = Some(Arc::clone(reloadable));
        }
    }

    /// Grades one trajectory and marks it for the rule's model if the rule asks one.
    fn grade_offline(
        &mut self,
        server: &ServerState,
        rule: &GradingRule,
        trajectory: Trajectory,
        mut record: TrajectoryRecord,
    ) -> TrajectoryRecord {
        let judge = self
            .by_rule
            .entry(rule.name.clone())
            .or_insert_with(|| RulesJudge::new(&rule.run_id(), &rule.evaluators, rule.tool_texts()));
        let tools: HashMap<u32, String> = trajectory.steps.iter().map(|step| (step.index, step.tool.clone())).collect();
        let scales = EvaluatorScales::from_evaluators(&rule.evaluators);
        for line in judge.judge(trajectory) {
            server.meters.record_outcome(&line);
            record.outcomes.push(build_outcome_record(&line, &tools, &scales));
        }
        record.ungraded_by = rule.asks_model().then(|| rule.name.clone());
        record
    }
}
