//! `gradus serve`: receives OTLP, stores it, grades trajectories while they arrive, and answers queries about them.
//!
//! This crate owns everything that is live: receiving, grading rules, alerts, the API, the web pages, keys and
//! redaction. It reads no environment variable and no command line. The caller passes a [`ServerConfig`], or a function
//! that reads one where settings can be reloaded.

pub mod alert;
mod alert_catalog;
mod alert_changes;
mod alert_measurements;
mod annotation_limits;
mod api;
mod auth;
mod bulk_trial;
mod bulk_trial_registry;
mod call_reservation;
mod caller;
mod client_address;
mod clock;
mod comparison_cache;
mod connection;
mod connections;
mod demo_load;
mod demo_traces;
mod derived_checks;
mod ephemeral;
mod evaluators;
mod failure_group_notes;
mod grading_rule;
mod http_error;
mod identity_key;
mod json_size;
mod judge_anchors;
mod judge_pause;
mod large_arrival;
mod listen;
mod live;
mod live_calibration;
mod live_comparison;
mod logging;
mod mcp;
mod memory;
mod metered_stream;
mod node_settings;
mod own_address;
mod page;
mod page_cache;
mod phoenix;
mod project_pattern;
mod quarantine;
mod queries;
mod receive;
mod record_keys;
mod recorded_verdict;
pub mod redaction;
mod request_body;
mod response_body;
mod router;
mod rubric_trials;
mod run_comparison;
mod run_lookup;
mod run_reports;
mod score_bound;
mod serve_defaults;
mod serve_section;
mod server_config;
mod server_metrics;
mod server_source;
mod session_memory;
mod session_view;
mod settings;
mod settling;
mod signature;
mod span_export;
mod spilled_body;
mod start_status;
mod state;
mod step_comparison;
mod store_coordinator;
mod store_source;
pub mod stored_records;
mod stream;
mod thread_priority;
mod throttled_log;
mod time_text;
mod trace_group;
mod trace_search;
mod work_pool;

pub use crate::server_config::{DemoLoadError, DemoPlayer, DemoSink, ServerConfig};
pub use clock::now_ns;
pub use ephemeral::{EphemeralAddresses, run_ephemeral_server};
pub use grading_rule::GradingRuleError;
pub use listen::ListenerBindError;
pub use live::rebuild_search_text;
pub use logging::LogFormat;
pub use serve_defaults::HTTP_ADDRESS;
pub use serve_section::{RetentionSection, RuleSection, ServeSection};
pub use server_source::ServerSource;
pub use settings::{ServerSettingsError, ServerSummary};
pub use store_source::StoreSource;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gradus_store::{Store, StoreError, StoreOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use live::LiveWorkers;
use settings::{ReloadableSettings, ServerSettings};
use state::ServerState;

/// Reads a server's settings: once at its start, and again after each SIGHUP. The error is a line for the user or the
/// log; the caller owns the command line and the file, and so the types of their errors.
pub type ConfigReader<'r> = &'r dyn Fn() -> Result<ServerConfig, String>;

/// Why a server cannot start. Each message is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ServerStartError {
    /// The caller could not read the settings; its message is shown unchanged.
    #[error("{0}")]
    Config(String),
    #[error(transparent)]
    Settings(#[from] ServerSettingsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server listens on more than loopback, and the store holds no key that is not revoked.
    #[error(
        "a server that others can reach needs keys, and there is none: make one with `gradus keys add NAME --{option} {place}`"
    )]
    NoKeys { option: &'static str, place: String },
    #[error(transparent)]
    Listen(#[from] ListenerBindError),
    /// The operating system refused a thread, a signal handler or a file of the data folder.
    #[error("the server cannot start: {0}")]
    System(#[source] std::io::Error),
    /// The store opened, and the background workers could not read or write it.
    #[error("the server cannot start: {0}")]
    Workers(#[source] StoreError),
}

/// Runs until SIGTERM or SIGINT arrives, and then finishes open requests. SIGHUP reads the settings again.
pub fn run_server(read_config: ConfigReader<'_>, format: LogFormat) -> Result<(), ServerStartError> {
    let (settings, reloadable) = read_config().map_err(ServerStartError::Config)?.to_settings()?;
    logging::init_logging(format);
    let store = open_store(&settings)?;
    if settings.needs_key && store.keys().is_ok_and(|keys| keys.iter().all(|key| key.revoked_ns.is_some())) {
        return Err(match store.is_shared() {
            true => ServerStartError::NoKeys { option: "store", place: store.location() },
            false => ServerStartError::NoKeys { option: "data", place: settings.data.display().to_string() },
        });
    }
    // A low limit does not prevent the start: fewer connections are served.
    if let Err(error) = gradus_host::raise_open_file_limit(settings.connections.total) {
        tracing::warn!(%error, "the open file limit is too low for the configured number of connections");
    }
    let runtime = build_runtime()?;
    let served = runtime.block_on(serve_until_signal(read_config, settings, reloadable, store));
    // The listeners are closed, so a query that still runs has no client. It gets one second and is then abandoned.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Opens the store. Its write queue may hold half of the memory budget of requests.
fn open_store(settings: &ServerSettings) -> Result<Store, StoreError> {
    Store::open_at(&settings.store, StoreOptions { max_queued_bytes: settings.memory_bytes / 2 })
}

fn build_runtime() -> Result<tokio::runtime::Runtime, ServerStartError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8))
        .max_blocking_threads(32)
        .build()
        .map_err(ServerStartError::System)
}

/// Handles the three signals of a server process. Signal handlers are installed before the ports open, so that a signal
/// during the start is not lost.
async fn serve_until_signal(
    read_config: ConfigReader<'_>,
    settings: ServerSettings,
    reloadable: ReloadableSettings,
    store: Store,
) -> Result<(), ServerStartError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerStartError::System)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerStartError::System)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(ServerStartError::System)?;
    let mut running = RunningServer::start(settings, reloadable, store).await?;
    own_address::announce_address(&running.server.settings, running.http);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hang_up.recv() => reload_settings(read_config, &running.server, &mut running.live),
        }
    }
    running.stop().await;
    Ok(())
}

/// How long queries may go on when the server stops.
const QUERY_GRACE: Duration = Duration::from_secs(3);

/// A server with open ports and running workers. End it with [`RunningServer::stop`]: dropping it does not wait for
/// work in progress.
#[allow(missing_debug_implementations, reason = "it holds threads and sockets")]
pub struct RunningServer {
    /// The bound address. It differs from the configured one if that has port 0.
    pub http: SocketAddr,
    /// The same for gRPC; equal to `http` where one port serves both.
    pub grpc: SocketAddr,
    server: Arc<ServerState>,
    live: LiveWorkers,
    stop: watch::Sender<bool>,
    listening: Vec<JoinHandle<()>>,
    closing: JoinHandle<()>,
    retaining: JoinHandle<()>,
}

impl RunningServer {
    /// Opens the ports before the store's workers start, so that a taken port has no effect on stored data.
    async fn start(
        mut settings: ServerSettings,
        reloadable: ReloadableSettings,
        store: Store,
    ) -> Result<RunningServer, ServerStartError> {
        let http = listen::bind_listener(settings.http, "--http")?;
        let http_address = http.local_addr().map_err(ServerStartError::System)?;
        if settings.public_url == format!("http://{}", settings.http) {
            // With port 0 the configured URL is useless: links in notices must lead to the port that was assigned.
            settings.public_url = format!("http://{http_address}");
        }
        // One port serves HTTP and gRPC if both addresses are equal. Two addresses with port 0 are two different free
        // ports.
        let grpc = if settings.http == settings.grpc && settings.http.port() != 0 {
            None
        } else {
            Some(listen::bind_listener(settings.grpc, "--grpc")?)
        };
        let grpc_address = match &grpc {
            Some(listener) => listener.local_addr().map_err(ServerStartError::System)?,
            None => http_address,
        };
        let phoenix = match settings.phoenix {
            Some(address) => Some(listen::bind_listener(address, "--phoenix-port")?),
            None => None,
        };
        let server = ServerState::new(store, settings, reloadable);
        let server = Arc::new(server.map_err(ServerStartError::System)?);
        server.reload_alert_rules();
        let guard = Arc::new(auth::AuthGuard::new(Arc::clone(&server)));
        let router = router::build_router(Arc::clone(&server))
            .layer(axum::middleware::from_fn_with_state(guard, auth::authorize_request));
        let live = LiveWorkers::start(&server).await.map_err(ServerStartError::Workers)?;
        let (stop, stopped) = watch::channel(false);
        let mut listening = Vec::new();
        let address = |listener: &tokio::net::TcpListener| {
            listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
        };
        tracing::info!(
            http = address(&http),
            grpc = grpc_address.to_string(),
            phoenix = phoenix.as_ref().map(address),
            data = %server.settings.data.display(),
            keys = server.settings.needs_key,
            "listening"
        );
        for listener in [Some(http), grpc, phoenix].into_iter().flatten() {
            let (router, server, stopped) = (router.clone(), Arc::clone(&server), stopped.clone());
            listening.push(tokio::spawn(listen::serve_connections(listener, router, server, stopped)));
        }
        let closing = tokio::spawn(listen::close_overdue(Arc::clone(&server)));
        let retaining = tokio::spawn(enforce_retention(Arc::clone(&server)));
        Ok(RunningServer { http: http_address, grpc: grpc_address, server, live, stop, listening, closing, retaining })
    }

    /// Starts a server for another command of this process: it listens on free loopback ports, needs no key and stores
    /// everything in this folder. It ignores the user's settings of `[serve]`.
    pub async fn start_private(data: &Path) -> Result<RunningServer, ServerStartError> {
        RunningServer::start_private_at(data, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// As [`RunningServer::start_private`], at this address. With a port other than 0, it also serves gRPC
    /// there.
    pub async fn start_private_at(data: &Path, http: SocketAddr) -> Result<RunningServer, ServerStartError> {
        let mut config = ServerConfig::new(data.to_owned());
        let address = || Some(http.to_string());
        config.serve = ServeSection { http: address(), grpc: address(), ..ServeSection::default() };
        let (settings, reloadable) = config.to_settings()?;
        let store = open_store(&settings)?;
        RunningServer::start(settings, reloadable, store).await
    }

    /// OTLP requests that were answered with an error since the start. A benchmark uses it to detect lost spans.
    pub fn refused_request_count(&self) -> u64 {
        self.server.meters.refused_request_count()
    }

    /// Spans that were stored since the start, without repeated ones.
    pub fn stored_span_count(&self) -> u64 {
        self.server.meters.stored_span_count()
    }

    /// Finishes open requests and background work within their time limits, and releases the store. Queries are stopped
    /// first, since they may hold a read transaction for long.
    pub async fn stop(self) {
        tracing::info!("shutting down; finishing work in progress");
        self.server.is_stopping.store(true, Ordering::Relaxed);
        self.server.queries.shut_down(QUERY_GRACE);
        let _ = self.stop.send(true);
        self.retaining.abort();
        for task in self.listening {
            let _ = task.await;
        }
        self.closing.abort();
        self.live.stop(&self.server).await;
        match self.server.store.check_files() {
            Ok(()) => tracing::info!("stopped; all acknowledged data is stored"),
            Err(error) => tracing::error!(%error, "stopped; acknowledged data may not be stored"),
        }
    }
}

/// Applies changed settings after SIGHUP. All of them are checked first, and a single wrong one leaves every old
/// setting in place.
fn reload_settings(read_config: ConfigReader<'_>, server: &Arc<ServerState>, live: &mut LiveWorkers) {
    match read_config().map_err(ServerStartError::Config).and_then(|config| Ok(config.to_settings()?)) {
        Ok((settings, reloadable)) => {
            let fixed = &server.settings;
            // A file that has disappeared would silently switch off redaction and retention. That is never what an
            // operator wants.
            if let (Some(path), None) = (&fixed.config_file, &settings.config_file) {
                let path = path.display();
                tracing::error!(%path, "the settings file is missing; keeping the previous settings");
                return;
            }
            // `ServerSettings` holds types without `PartialEq`, and this runs only on SIGHUP.
            if format!("{settings:?}") != format!("{fixed:?}") {
                tracing::warn!(
                    "changes to [serve] (except redact and retention) and to command-line options need a restart"
                );
            }
            server.set_reloadable(reloadable);
            live.reload(server);
            tracing::info!("settings reloaded");
        }
        Err(reason) => tracing::error!(%reason, "invalid settings; keeping the previous settings"),
    }
}

/// Deletes traces by age and size in short steps, so that ingest never waits long for the write lock. Runs for as long
/// as the server does.
async fn enforce_retention(server: Arc<ServerState>) {
    // The period when nothing is left to delete, and the pause between two steps, in which ingest runs.
    const EVERY: Duration = Duration::from_secs(30);
    const BETWEEN_STEPS: Duration = Duration::from_millis(50);
    let mut removed_in_all = (0, 0);
    loop {
        let retention = server.reloadable().retention;
        let mut has_more = false;
        let has_limit = retention.max_age_ns.is_some() || retention.max_bytes.is_some();
        // Of several servers on one database, only one deletes old traces.
        if has_limit && server.store.is_leader() {
            let store = Arc::clone(&server.store);
            let step = tokio::task::spawn_blocking(move || store.run_retention_step(retention, now_ns())?.wait()).await;
            match step {
                Ok(Ok(removed)) => {
                    has_more = removed.has_more && removed.traces > 0;
                    removed_in_all.0 += removed.traces;
                    removed_in_all.1 += removed.spans;
                }
                Ok(Err(error)) => tracing::error!(%error, "failed to delete old traces"),
                Err(error) => tracing::error!(%error, "failed to delete old traces"),
            }
        }
        if !has_more && removed_in_all.0 > 0 {
            let (traces, spans) = std::mem::take(&mut removed_in_all);
            tracing::info!(traces, spans, "deleted the oldest traces (serve.retention)");
            let store = Arc::clone(&server.store);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || store.free_disk_space(now_ns())).await {
                tracing::warn!(%error, "failed to shrink the store; retrying later");
            }
        }
        attach_waiting_annotations(&server).await;
        tokio::time::sleep(if has_more { BETWEEN_STEPS } else { EVERY }).await;
    }
}

/// Attaches annotations that arrived before their spans. `after` is the cursor of the store: each call examines a
/// bounded number of rows, and `None` ends the pass.
async fn attach_waiting_annotations(server: &Arc<ServerState>) {
    let forget_before_ns = server.reloadable().retention.max_age_ns.map(|age| now_ns().saturating_sub(age));
    let mut after = Some(0);
    while let Some(from) = after {
        let settled = match server.store.resolve_waiting_annotations(from, forget_before_ns) {
            Ok(written) => written.wait_async().await,
            Err(error) => Err(error),
        };
        after = settled.unwrap_or_else(|error| {
            tracing::error!(%error, "failed to attach annotations to their spans");
            None
        });
    }
}
