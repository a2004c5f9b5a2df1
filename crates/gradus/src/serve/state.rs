//! What all parts of the server share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use gradus_store::{NewAnnotation, Store, StoreError, Written};
use tokio::sync::Semaphore;

use super::auth::Caller;
use super::connections::ConnectionRegistry;
use super::live::{Readings, Standstills};
use super::memory::MemoryBudget;
use super::meters::Meters;
use super::page;
use super::settings::{Reloadable, Settings};
use super::signature;
use super::summaries::Summaries;
use super::work_pool::WorkPool;

/// Large responses that wait on disk, all together.
const MAX_SPILLED_BYTES: usize = 1 << 30;
/// Few: each thread holds tools for compression, and there are only so many cores.
const WORK_THREADS: usize = 2;

pub(super) struct Server {
    pub(super) store: Arc<Store>,
    pub(super) settings: Settings,
    reloadable: RwLock<Arc<Reloadable>>,
    /// What clients may make the server hold.
    pub(super) memory: MemoryBudget,
    /// The same for large responses, which wait on disk.
    pub(super) spilled: MemoryBudget,
    pub(super) connections: Arc<ConnectionRegistry>,
    pub(super) meters: Meters,
    /// Threads that read small requests, and those for large ones.
    pub(super) small_work: WorkPool,
    pub(super) large_work: WorkPool,
    /// Turns for whoever reads a whole project.
    pub(super) downloads: Arc<Semaphore>,
    /// Turns for reading whole traces, which may be large.
    pub(super) openings: Arc<Semaphore>,
    /// Turns for reading through many spans.
    pub(super) scans: Arc<Semaphore>,
    /// Pages that took long to make.
    pub(super) kept_pages: page::Kept,
    /// What finished runs come to.
    pub(super) summaries: Summaries,
    /// What alert rules found last.
    pub(super) readings: Readings,
    /// Rules whose model is not asked at the moment.
    pub(super) standstills: Standstills,
    /// Trials of rubrics that somebody looks at.
    pub(super) trials: page::Trials,
    /// The server is going down: it takes nothing new.
    pub(super) is_stopping: AtomicBool,
    pub(super) started: Instant,
    store_fails: Occasionally,
    refusals: Occasionally,
    pub(super) judge_fails: Occasionally,
}

/// What happens often, told now and then, and then how often it was.
#[derive(Debug, Default)]
pub(super) struct Occasionally {
    /// When it may be told again.
    next_ns: AtomicI64,
    untold: AtomicU64,
}

impl Occasionally {
    const EVERY_NS: i64 = 10_000_000_000;

    /// How often it happened since it was told, if it is to be told now.
    pub(super) fn count(&self) -> Option<u64> {
        let now = now_ns();
        let untold = self.untold.fetch_add(1, Ordering::Relaxed) + 1;
        let next = self.next_ns.load(Ordering::Relaxed);
        if now < next {
            return None;
        }
        let is_ours = self.next_ns.compare_exchange(
            next,
            now.saturating_add(Self::EVERY_NS),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        is_ours.is_ok().then(|| {
            self.untold.fetch_sub(untold, Ordering::Relaxed);
            untold
        })
    }
}

impl Server {
    pub(super) fn new(store: Store, settings: Settings, reloadable: Reloadable) -> std::io::Result<Server> {
        Ok(Server {
            memory: MemoryBudget::new(settings.memory_bytes, settings.client_memory_bytes),
            spilled: MemoryBudget::new(MAX_SPILLED_BYTES, MAX_SPILLED_BYTES / 4),
            connections: Arc::new(ConnectionRegistry::new(settings.connections.clone())),
            store: Arc::new(store),
            settings,
            reloadable: RwLock::new(Arc::new(reloadable)),
            meters: Meters::default(),
            small_work: WorkPool::start("small requests", WORK_THREADS)?,
            large_work: WorkPool::start("large requests", WORK_THREADS)?,
            downloads: Arc::new(Semaphore::new(8)),
            openings: Arc::new(Semaphore::new(4)),
            scans: Arc::new(Semaphore::new(4)),
            kept_pages: page::Kept::default(),
            summaries: Summaries::default(),
            readings: Readings::default(),
            standstills: Standstills::default(),
            trials: page::Trials::default(),
            is_stopping: AtomicBool::new(false),
            started: Instant::now(),
            store_fails: Occasionally::default(),
            refusals: Occasionally::default(),
            judge_fails: Occasionally::default(),
        })
    }

    /// Says that the store takes nothing, now and then: every sender meets it.
    pub(super) fn tell_of_store(&self, error: &StoreError) {
        if let Some(times) = self.store_fails.count() {
            tracing::error!(%error, times, "spans cannot be stored; senders are told to try again");
        }
    }

    /// Says that somebody was refused: who sends in vain may not look at the answers.
    pub(super) fn tell_of_refusal(&self, what: &str, status: u16, reason: &str) {
        if let Some(times) = self.refusals.count() {
            tracing::warn!(what, status, reason, times, "a request was refused");
        }
    }

    /// Stores what is said of spans and trajectories, without what must not be stored, and with whose key it was.
    pub(super) fn annotate(
        &self,
        mut new: Vec<NewAnnotation>,
        caller: &Caller,
    ) -> Result<Written<Vec<i64>>, StoreError> {
        let redaction = &self.reloadable().redaction;
        for one in &mut new {
            let optional = [&mut one.label, &mut one.explanation].into_iter().flatten();
            // The name of a key is known here anyway, and tells people apart.
            let given = Some(&mut one.identifier).filter(|identifier| **identifier != caller.name);
            for text in optional.chain([&mut one.author, &mut one.metadata]).chain(given) {
                if let Some(changed) = redaction.apply(text) {
                    *text = changed;
                }
            }
            if let Some(signed) = signature::sign(&one.metadata, &caller.name) {
                one.metadata = signed;
            }
        }
        self.store.annotate(new, now_ns())
    }

    /// The settings that can change while the server runs.
    pub(super) fn reloadable(&self) -> Arc<Reloadable> {
        Arc::clone(&self.reloadable.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn reload(&self, reloadable: Reloadable) {
        *self.reloadable.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(reloadable);
    }
}

/// When the day began that budgets are for.
pub(super) fn today_ns() -> i64 {
    const DAY_NS: i64 = 86_400_000_000_000;
    now_ns().div_euclid(DAY_NS) * DAY_NS
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
