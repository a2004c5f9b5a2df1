//! The state that all parts of the server share.

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

use super::alert_catalog::AlertRegistry;
use super::alert_measurements::AlertMeasurementCache;
use super::bulk_trial_registry::BulkTrialRegistry;
use super::client_address::ClientAddress;
use super::comparison_cache::RunComparisonCache;
use super::connections::ConnectionRegistry;
use super::demo_load::DemoLoad;
use super::identity_key::IdentityKey;
use super::judge_pause::JudgePauseRegistry;
use super::memory::{MemoryBudget, MemoryUse};
use super::page_cache::PageCache;
use super::queries::QueryPool;
use super::rubric_trials::RubricTrialCache;
use super::run_reports::RunReportCache;
use super::server_metrics::PrometheusMetrics;
use super::session_memory::SessionMemory;
use super::settings::{ReloadableSettings, ServerSettings};
use super::settling::SettleRequests;
use super::signature;
use super::spilled_body::SpillWriter;
use super::work_pool::WorkPool;
use crate::caller::RequestCaller;
use crate::thread_priority::ThreadPriority;

/// Maximum disk space of all spilled responses together.
const MAX_SPILLED_BYTES: usize = 1 << 30;
/// Number of threads of each worker pool. Few, because each one has buffers for compression and the number of cores
/// is small.
const WORK_THREADS: usize = 2;

/// Created once and shared behind an `Arc`. Parts that change have locks of their own; no lock guards the whole.
pub(super) struct ServerState {
    /// Loaded when a name is redacted for the first time; `None` inside if that failed.
    identity_key: OnceLock<Option<IdentityKey>>,
    pub(super) store: Arc<Store>,
    pub(super) settings: ServerSettings,
    reloadable: RwLock<Arc<ReloadableSettings>>,
    /// Memory that clients may make the server hold.
    pub(super) memory: MemoryBudget,
    /// The same for disk space of spilled responses.
    pub(super) spilled: MemoryBudget,
    pub(super) connections: Arc<ConnectionRegistry>,
    pub(super) meters: PrometheusMetrics,
    /// Threads that decode small requests, and those for large ones.
    pub(super) small_work: WorkPool,
    pub(super) large_work: WorkPool,
    /// Runs callers' queries.
    pub(super) queries: Arc<QueryPool>,
    /// Lets one request at a time build `/metrics`, which counts rows.
    pub(super) metrics_turn: Semaphore,
    /// Cache of rendered pages that are expensive to build.
    pub(super) cached_pages: PageCache,
    pub(super) comparisons: RunComparisonCache,
    /// Cached reports of finished runs.
    pub(super) run_reports: RunReportCache,
    /// Latest measurements of the alert rules.
    pub(super) alert_measurements: AlertMeasurementCache,
    /// Alert rules of the file and of the page, and which of them fire.
    pub(super) alerts: AlertRegistry,
    /// Rules whose model calls are paused.
    pub(super) judge_pauses: JudgePauseRegistry,
    /// Clients that wait until everything received is judged.
    pub(super) settling: SettleRequests,
    /// The content of the latest turns of sessions.
    pub(super) sessions: SessionMemory,
    /// Results of single rubric trials, cached for the page that shows them.
    pub(super) rubric_trials: RubricTrialCache,
    /// Whether the demo is being loaded.
    pub(super) demo: DemoLoad,
    /// The running bulk trial.
    pub(super) bulk_trials: BulkTrialRegistry,
    /// Whether the server is stopping: workers finish and take nothing new.
    pub(super) is_stopping: AtomicBool,
    pub(super) started: Instant,
    store_failure_log: ThrottledLog,
    refusals: ThrottledLog,
    pub(super) judge_failure_log: ThrottledLog,
}

/// Maximum number of annotations in one transaction, because other writers wait for it.
const MAX_ANNOTATIONS_AT_ONCE: usize = 500;

/// Returns the write lane of the current client. The store serves lanes in turn, so that one sender cannot delay the
/// others.
pub(super) fn client_write_lane() -> WriteLane {
    let mut hasher = DefaultHasher::new();
    ClientAddress::current().hash(&mut hasher);
    WriteLane::for_client(hasher.finish())
}

impl ServerState {
    /// Fails if the worker threads cannot be started.
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
            cached_pages: PageCache::default(),
            comparisons: RunComparisonCache::default(),
            run_reports: RunReportCache::new(settings.supplements),
            alert_measurements: AlertMeasurementCache::default(),
            alerts: AlertRegistry::default(),
            judge_pauses: JudgePauseRegistry::default(),
            settling: SettleRequests::default(),
            sessions: SessionMemory::default(),
            rubric_trials: RubricTrialCache::default(),
            demo: DemoLoad::default(),
            bulk_trials: BulkTrialRegistry::default(),
            identity_key: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            started: Instant::now(),
            store_failure_log: ThrottledLog::default(),
            refusals: ThrottledLog::default(),
            judge_failure_log: ThrottledLog::default(),
            settings,
        })
    }

    /// Logs that the store could not be written. Throttled, because every sender is affected.
    pub(super) fn log_storing_failure(&self, error: &StoreError) {
        if let Some(times) = self.store_failure_log.record_occurrence() {
            tracing::error!(%error, times, "failed to store spans; senders are asked to retry");
        }
    }

    /// Logs a refused request. Throttled. Exporters often do not show the responses that they get.
    pub(super) fn log_refusal(&self, what: &str, status: u16, reason: &str) {
        if let Some(times) = self.refusals.record_occurrence() {
            tracing::warn!(what, status, reason, times, "request refused");
        }
    }

    /// Returns the reason to refuse annotations whose identifier is the name of another person's key, since they
    /// would replace the annotations of that person. Names that look the same count as the same.
    pub(super) fn explain_borrowed_name<'n>(
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

    /// Redacts annotations and adds the name of the caller's key.
    pub(super) fn redact_and_sign(&self, mut new: Vec<NewAnnotation>, caller: &RequestCaller) -> Vec<NewAnnotation> {
        let redaction = &self.reloadable().redaction;
        for one in &mut new {
            let optional = [&mut one.label, &mut one.explanation].into_iter().flatten();
            optional.chain([&mut one.name, &mut one.metadata]).for_each(|text| redaction.apply_to(text));
            // The name of the caller's own key is not redacted: the server knows it anyway, and it identifies the
            // person.
            let given = Some(&mut one.identifier).filter(|identifier| **identifier != caller.name);
            // Other targets are ids without personal data.
            let session = Some(&mut one.target).filter(|target| target.starts_with("session:"));
            for name in given.into_iter().chain(session).chain([&mut one.author]) {
                if let Some(redacted) = redaction.apply(name) {
                    *name = self.tag_redacted_identity(name, &redacted);
                }
            }
            if let Some(signed) = signature::sign_metadata(&one.metadata, &caller.name) {
                one.metadata = signed;
            }
        }
        new
    }

    /// Adds a digest to a redacted name, so that it differs from those of others. Without an identity key all
    /// redacted names are the same.
    fn tag_redacted_identity(&self, name: &str, redacted: &str) -> String {
        let key = self.identity_key.get_or_init(|| {
            let loaded = IdentityKey::load(&self.settings.data);
            loaded.inspect_err(|error| tracing::error!(%error, "redacted names cannot be distinguished")).ok()
        });
        key.as_ref().map_or_else(|| redacted.to_owned(), |key| key.tag_redacted_name(name, redacted))
    }

    /// Stores signed annotations in several transactions, so that other writers get their turn. If one fails, the
    /// client repeats the request, and annotations that are stored already are replaced by the same ones.
    pub(super) async fn store_annotations_in_batches(
        &self,
        signed: Vec<NewAnnotation>,
    ) -> Result<Vec<i64>, StoreError> {
        let mut numbers = Vec::with_capacity(signed.len());
        let mut left = signed.into_iter();
        loop {
            let part: Vec<NewAnnotation> = left.by_ref().take(MAX_ANNOTATIONS_AT_ONCE).collect();
            if part.is_empty() {
                return Ok(numbers);
            }
            numbers.extend(self.store.annotate_in_lane(client_write_lane(), part, now_ns())?.wait_async().await?);
        }
    }

    /// Returns a writer for a response that may be large, charged to this client.
    pub(super) fn spill_writer(&self, client: ClientAddress) -> SpillWriter {
        SpillWriter::new(&self.settings.data, self.spilled.open_lease(client, MemoryUse::Request))
    }

    /// Returns the current version of the reloadable settings. Take it once for an operation, so that a reload does
    /// not change it midway.
    pub(super) fn reloadable(&self) -> Arc<ReloadableSettings> {
        Arc::clone(&self.reloadable.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the reloadable settings. Running operations keep the version that they have taken.
    pub(super) fn set_reloadable(&self, reloadable: ReloadableSettings) {
        *self.reloadable.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(reloadable);
        self.reload_alert_rules();
    }

    /// Reads the alert rules of the page again, after the settings or one of them changed.
    pub(super) fn reload_alert_rules(&self) {
        if let Err(error) = self.alerts.refresh(&self.store, &self.reloadable()) {
            tracing::error!(%error, "failed to read the stored alert rules; keeping the previous ones");
        }
    }
}

/// Returns a name without invisible characters, in lower case, to compare how names look.
fn visible_name(name: &str) -> String {
    let visible: String = name.chars().filter(|c| !is_hidden(None, *c, None)).collect();
    visible.trim().to_lowercase()
}
