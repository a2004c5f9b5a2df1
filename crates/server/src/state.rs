//! What all parts of the server share.

use crate::clock::now_ns;
use crate::throttled_log::ThrottledLog;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use gradus_core::visible::is_hidden;
use gradus_store::{NewAnnotation, Store, StoreError, WriteLane};
use tokio::sync::Semaphore;

use super::alert_readings::AlertMeasurementCache;
use super::client_address::ClientAddress;
use super::connections::ConnectionRegistry;
use super::identity_key::IdentityKey;
use super::judge_standstill::JudgePauseRegistry;
use super::kept_pages::PageCache;
use super::memory::{MemoryBudget, MemoryUse};
use super::meters::PrometheusMetrics;
use super::queries::QueryPool;
use super::rubric_trials::RubricTrialCache;
use super::settings::{ReloadableSettings, ServerSettings};
use super::signature;
use super::spilled_body::SpillWriter;
use super::summaries::RunReportCache;
use super::work_pool::WorkPool;
use crate::caller::RequestCaller;
use crate::thread_priority::ThreadPriority;

/// Large responses that wait on disk, all together.
const MAX_SPILLED_BYTES: usize = 1 << 30;
/// Few: each thread holds tools for compression, and there are only so many cores.
const WORK_THREADS: usize = 2;

pub(super) struct ServerState {
    /// Made when a name is redacted for the first time.
    identity_key: OnceLock<Option<IdentityKey>>,
    pub(super) store: Arc<Store>,
    pub(super) settings: ServerSettings,
    reloadable: RwLock<Arc<ReloadableSettings>>,
    /// What clients may make the server hold.
    pub(super) memory: MemoryBudget,
    /// The same for large responses, which wait on disk.
    pub(super) spilled: MemoryBudget,
    pub(super) connections: Arc<ConnectionRegistry>,
    pub(super) meters: PrometheusMetrics,
    /// Threads that read small requests, and those for large ones.
    pub(super) small_work: WorkPool,
    pub(super) large_work: WorkPool,
    /// Runs what callers ask of the store.
    pub(super) queries: Arc<QueryPool>,
    /// A turn for putting `/metrics` together, which counts rows.
    pub(super) metrics_turn: Semaphore,
    /// Pages that took long to make.
    pub(super) kept_pages: PageCache,
    /// What finished runs come to.
    pub(super) summaries: RunReportCache,
    /// What alert rules found last.
    pub(super) readings: AlertMeasurementCache,
    /// Rules whose model is not asked at the moment.
    pub(super) standstills: JudgePauseRegistry,
    /// Trials of rubrics that somebody looks at.
    pub(super) trials: RubricTrialCache,
    /// The server is going down: it takes nothing new.
    pub(super) is_stopping: AtomicBool,
    pub(super) started: Instant,
    store_fails: ThrottledLog,
    refusals: ThrottledLog,
    pub(super) judge_fails: ThrottledLog,
}

/// Annotations that are stored together, which holds up everybody else who writes.
const MAX_ANNOTATIONS_AT_ONCE: usize = 500;

/// The lane for what the client of this task writes.
pub(super) fn write_lane() -> WriteLane {
    let mut hasher = DefaultHasher::new();
    ClientAddress::current().hash(&mut hasher);
    WriteLane::of_client(hasher.finish())
}

impl ServerState {
    pub(super) fn new(
        store: Store,
        settings: ServerSettings,
        reloadable: ReloadableSettings,
    ) -> std::io::Result<ServerState> {
        Ok(ServerState {
            memory: MemoryBudget::new(settings.memory_bytes, settings.client_memory_bytes),
            spilled: MemoryBudget::new(MAX_SPILLED_BYTES, MAX_SPILLED_BYTES / 4),
            connections: Arc::new(ConnectionRegistry::new(settings.connections.clone())),
            store: Arc::new(store),
            reloadable: RwLock::new(Arc::new(reloadable)),
            meters: PrometheusMetrics::default(),
            small_work: WorkPool::start("small requests", WORK_THREADS, None)?,
            large_work: WorkPool::start("large requests", WORK_THREADS, Some(ThreadPriority::Low))?,
            queries: Arc::new(QueryPool::new(settings.queries.clone())),
            metrics_turn: Semaphore::new(1),
            kept_pages: PageCache::default(),
            summaries: RunReportCache::new(settings.supplements),
            readings: AlertMeasurementCache::default(),
            standstills: JudgePauseRegistry::default(),
            trials: RubricTrialCache::default(),
            identity_key: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            started: Instant::now(),
            store_fails: ThrottledLog::default(),
            refusals: ThrottledLog::default(),
            judge_fails: ThrottledLog::default(),
            settings,
        })
    }

    /// Says that the store takes nothing, now and then: every sender meets it.
    pub(super) fn tell_of_store(&self, error: &StoreError) {
        if let Some(times) = self.store_fails.record_occurrence() {
            tracing::error!(%error, times, "failed to store spans; senders are asked to retry");
        }
    }

    /// Says that somebody was refused: who sends in vain may not look at the answers.
    pub(super) fn tell_of_refusal(&self, what: &str, status: u16, reason: &str) {
        if let Some(times) = self.refusals.record_occurrence() {
            tracing::warn!(what, status, reason, times, "request refused");
        }
    }

    /// Why annotations must not be stored: what somebody says under the name of another's key would take the place of what
    /// that person says. Names that look the same count as the same.
    pub(super) fn find_borrowed_name<'n>(
        &self,
        caller: &RequestCaller,
        new: impl IntoIterator<Item = &'n NewAnnotation>,
    ) -> Result<Option<String>, StoreError> {
        if caller.name.is_empty() {
            return Ok(None);
        }
        let own = visible_name(&caller.name);
        let mut foreign = new.into_iter().filter(|one| {
            !one.identifier.is_empty() && one.identifier != caller.name && visible_name(&one.identifier) != own
        });
        let Some(first) = foreign.next() else { return Ok(None) };
        let keys: HashSet<String> = self.store.keys()?.iter().map(|key| visible_name(&key.name)).collect();
        let borrowed = std::iter::once(first).chain(foreign).find(|one| keys.contains(&visible_name(&one.identifier)));
        Ok(borrowed.map(|one| format!("identifier {:?}: this is the name of another key", one.identifier)))
    }

    /// Takes out of annotations what must not be stored, and adds whose key it was.
    pub(super) fn sign_annotations(&self, mut new: Vec<NewAnnotation>, caller: &RequestCaller) -> Vec<NewAnnotation> {
        let redaction = &self.reloadable().redaction;
        for one in &mut new {
            let optional = [&mut one.label, &mut one.explanation].into_iter().flatten();
            optional.chain([&mut one.name, &mut one.metadata]).for_each(|text| redaction.apply_to(text));
            // The name of a key is known here anyway, and tells people apart.
            let given = Some(&mut one.identifier).filter(|identifier| **identifier != caller.name);
            // Other targets are ids that are made here, or that the trace has.
            let session = Some(&mut one.target).filter(|target| target.starts_with("session:"));
            for name in given.into_iter().chain(session).chain([&mut one.author]) {
                if let Some(redacted) = redaction.apply(name) {
                    *name = self.mark_identity(name, &redacted);
                }
            }
            if let Some(signed) = signature::sign_metadata(&one.metadata, &caller.name) {
                one.metadata = signed;
            }
        }
        new
    }

    /// A redacted name that is still another one than those of others; the same for all where no key can be kept.
    fn mark_identity(&self, name: &str, redacted: &str) -> String {
        let key = self.identity_key.get_or_init(|| {
            let loaded = IdentityKey::load(&self.settings.data);
            loaded.inspect_err(|error| tracing::error!(%error, "redacted names cannot be distinguished")).ok()
        });
        key.as_ref().map_or_else(|| redacted.to_owned(), |key| key.tag_redacted_name(name, redacted))
    }

    /// Stores signed annotations, some at a time: others who write have their turns between. Should one part fail, the
    /// client sends all of them again, and those that are there are replaced.
    pub(super) async fn annotate(&self, signed: Vec<NewAnnotation>) -> Result<Vec<i64>, StoreError> {
        let mut numbers = Vec::with_capacity(signed.len());
        let mut left = signed.into_iter();
        loop {
            let part: Vec<NewAnnotation> = left.by_ref().take(MAX_ANNOTATIONS_AT_ONCE).collect();
            if part.is_empty() {
                return Ok(numbers);
            }
            numbers.extend(self.store.annotate_in_lane(write_lane(), part, now_ns())?.wait_async().await?);
        }
    }

    /// Where a query of this client writes a response that may be large.
    pub(super) fn spill_writer(&self, client: ClientAddress) -> SpillWriter {
        SpillWriter::new(&self.settings.data, self.spilled.open_lease(client, MemoryUse::Request))
    }

    /// The settings that can change while the server runs.
    pub(super) fn reloadable(&self) -> Arc<ReloadableSettings> {
        Arc::clone(&self.reloadable.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_reloadable(&self, reloadable: ReloadableSettings) {
        *self.reloadable.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(reloadable);
    }
}

/// A name without what nobody sees in it.
fn visible_name(name: &str) -> String {
    let visible: String = name.chars().filter(|c| !is_hidden(None, *c, None)).collect();
    visible.trim().to_lowercase()
}
