//! Live grading: traces are assembled when they are complete, graded by the rule of their project, and watched by
//! alerts.
//!
//! Assembly runs on threads, judging and alerts on tasks. They communicate through the store only: what one has
//! finished is on disk before another one sees it, so that a restart loses nothing.

mod assemble;
mod assembly_failure;
mod assembly_queue;
mod drift;
#[cfg(test)]
mod fixtures;
mod grade;
mod group_backfill;
mod ledger;
mod measure;
mod node_announcement;
mod record;
mod regrade;
mod reroute;
mod watch;

pub(super) use measure::NEW_TOOL_PERIOD_NS;
pub use record::rebuild_search_text;

use std::sync::Arc;
use std::time::Duration;

use gradus_store::StoreError;
use tokio::sync::oneshot;

use super::state::ServerState;

/// How long a stop waits for models and for notices that are being sent.
const MAX_STOP_WAIT: Duration = Duration::from_secs(4);

/// The background workers of a server: assembly threads, one grader for each rule with a model, the alert loop, and the
/// loop that asks judges their anchors again.
pub(super) struct LiveWorkers {
    assemblers: assemble::AssemblyPool,
    graders: grade::GraderTasks,
    watch: tokio::task::JoinHandle<()>,
    stop_watch: oneshot::Sender<()>,
    drift: tokio::task::JoinHandle<()>,
    stop_drift: oneshot::Sender<()>,
}

impl LiveWorkers {
    /// Fails only if the store cannot be read or a thread cannot be started.
    pub(super) async fn start(server: &Arc<ServerState>) -> Result<LiveWorkers, StoreError> {
        node_announcement::announce_settings(server).await;
        let assemblers = assemble::AssemblyPool::start(server).await?;
        let (stop_watch, stopped) = oneshot::channel();
        let (stop_drift, drift_stopped) = oneshot::channel();
        start_group_backfill(server);
        Ok(LiveWorkers {
            assemblers,
            graders: grade::GraderTasks::start(server),
            watch: tokio::spawn(watch::watch_alerts(Arc::clone(server), stopped)),
            stop_watch,
            drift: tokio::spawn(drift::watch_drift(Arc::clone(server), drift_stopped)),
            stop_drift,
        })
    }

    /// Restarts the graders with the current rules. Assembly and alerts read the settings anew in each round.
    pub(super) fn reload(&mut self, server: &Arc<ServerState>) {
        self.graders.restart(server);
        let server = Arc::clone(server);
        tokio::spawn(async move { node_announcement::announce_settings(&server).await });
    }

    /// Waits for work in progress, but not for long: what is not judged now is judged after the next start. The flag
    /// `is_stopping` of the server must be set before.
    pub(super) async fn stop(self, server: &Arc<ServerState>) {
        let LiveWorkers { assemblers, graders, watch, stop_watch, drift, stop_drift } = self;
        let server = Arc::clone(server);
        let assembling = tokio::task::spawn_blocking(move || assemblers.stop(&server));
        let judging = async move {
            graders.stop().await;
            let _ = stop_watch.send(());
            let _ = stop_drift.send(());
            let _ = watch.await;
            let _ = drift.await;
        };
        if tokio::time::timeout(MAX_STOP_WAIT, judging).await.is_err() {
            tracing::info!("a model or alert target did not answer in time; pending work is left for the next start");
        }
        // The assemblers wait for the store, which may have much to write.
        let _ = tokio::time::timeout(MAX_STOP_WAIT, assembling).await;
    }
}

/// Groups verdicts of an older store in the background. It ends by itself.
fn start_group_backfill(server: &Arc<ServerState>) {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || {
        let is_stopping = || server.is_stopping.load(std::sync::atomic::Ordering::Relaxed);
        match group_backfill::group_stored_verdicts(&server.store, is_stopping) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "grouped the wrong verdicts of an older version by their reason"),
            Err(error) => tracing::warn!(%error, "cannot group the wrong verdicts of an older version"),
        }
    });
}
