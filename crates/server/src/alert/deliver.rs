//! Delivery of notices. Every target has a bounded queue and a task of its own (a lane), so a dead or slow target
//! delays neither other targets nor the server.
//!
//! Delivery is at least once: a target whose response is lost gets the notice again. Notices are held in memory only;
//! those still queued when the server stops are lost and counted as dropped.

mod attempt;
mod command;
mod counters;
mod delivery_lane;
mod failure;
mod target_guard;
mod target_health;
mod test_delivery;
mod webhook;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

pub use counters::{DeliveryCounts, KindCounts};
use delivery_lane::DeliveryLane;
pub(crate) use target_guard::TargetGuard;
pub use target_guard::TargetRefusal;
pub use target_health::{TargetFailure, TargetHealth};
pub use test_delivery::{TestDelivery, deliver_test_notice};

use self::counters::DeliveryCounters;
use self::target_health::TargetHealthRegistry;
use super::notice::{AlertNotice, NoticeKind};
use super::target::{AlertTarget, TargetKind};

/// Limits of queues, retries and time. The defaults make ten attempts within nine minutes; only a target that asks for
/// longer delays (`Retry-After`) gets up to an hour.
#[derive(Clone, Debug)]
pub struct DeliverySettings {
    /// Address under which people open this server. Without it notices contain no links.
    pub base_url: Option<String>,
    /// Maximum number of notices that wait for one target. A full queue drops its oldest notice, which is the most
    /// outdated one.
    pub queue: usize,
    /// Maximum number of attempts for one notice, the first included.
    pub attempts: u32,
    /// Time after the first attempt at which no further one starts.
    pub give_up_after: Duration,
    /// Delay before the second attempt. It doubles with each failure up to `longest_pause`.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// For one HTTP request, and for one run of a command with all processes that it starts.
    pub request_timeout: Duration,
    pub command_timeout: Duration,
    /// Networks that webhooks of the page may reach although they are private.
    pub(crate) guard: TargetGuard,
}

impl Default for DeliverySettings {
    fn default() -> Self {
        DeliverySettings {
            base_url: None,
            queue: 100,
            attempts: 10,
            give_up_after: Duration::from_secs(3600),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
            request_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
            guard: TargetGuard::default(),
        }
    }
}

/// The HTTP client for webhooks could not be built, so nothing can be delivered at all.
///
/// The message shows the root cause only, with secrets masked: the outer layers of `reqwest` repeat that building
/// failed.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS here: {}; check the system's certificates", gradus_http::root_cause(.0))]
pub struct DispatcherStartError(#[source] reqwest::Error);

/// Accepts notices from any thread and delivers them on the runtime that it was started in. Dropping it aborts
/// deliveries in progress; `drain` completes them first.
#[derive(Debug)]
pub struct NoticeDispatcher {
    shared: Arc<DeliveryContext>,
    runtime: Handle,
    /// A lane starts with the first notice to its target and stays: the settings name few targets. The lock is held
    /// only for queue operations, never while something is sent.
    lanes: Mutex<HashMap<AlertTarget, DeliveryLane>>,
}

/// What all lanes share.
#[derive(Debug)]
struct DeliveryContext {
    settings: DeliverySettings,
    http: reqwest::Client,
    /// For addresses that were entered on the page.
    guarded_http: reqwest::Client,
    counters: DeliveryCounters,
    health: TargetHealthRegistry,
}

impl DeliveryContext {
    fn new(settings: DeliverySettings) -> Result<DeliveryContext, DispatcherStartError> {
        let timeout = settings.request_timeout;
        Ok(DeliveryContext {
            http: webhook::build_webhook_client(timeout).map_err(DispatcherStartError)?,
            guarded_http: webhook::build_guarded_client(timeout, settings.guard.clone())
                .map_err(DispatcherStartError)?,
            counters: DeliveryCounters::default(),
            health: TargetHealthRegistry::default(),
            settings,
        })
    }
}

impl NoticeDispatcher {
    /// Has to be called inside a tokio runtime, which then runs the deliveries.
    pub fn start(settings: DeliverySettings) -> Result<NoticeDispatcher, DispatcherStartError> {
        let shared = Arc::new(DeliveryContext::new(settings)?);
        Ok(NoticeDispatcher { shared, runtime: Handle::current(), lanes: Mutex::default() })
    }

    /// Puts a notice into the queue of every target. Never blocks; may be called from any thread. The log is written at
    /// once and has no queue.
    pub fn send(&self, notice: AlertNotice, targets: &[AlertTarget]) {
        let notice = Arc::new(notice);
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        for target in targets {
            if *target == AlertTarget::Log {
                log_notice(&notice);
                self.shared.counters.count_sent(TargetKind::Log);
                continue;
            }
            if !lanes.contains_key(target) {
                lanes.insert(target.clone(), DeliveryLane::start(target.clone(), &self.shared, &self.runtime));
            }
            if let Some(lane) = lanes.get(target)
                && lane.push(Arc::clone(&notice), self.shared.settings.queue)
            {
                self.shared.counters.count_dropped(target.kind(), 1);
                tracing::warn!(%target, "alert queue is full; dropped its oldest notice");
            }
        }
    }

    /// A snapshot for `/metrics`.
    pub fn counts(&self) -> DeliveryCounts {
        self.shared.counters.snapshot()
    }

    /// Returns the latest delivery result of each target, for pages.
    pub fn health(&self) -> HashMap<AlertTarget, TargetHealth> {
        self.shared.health.snapshot()
    }

    /// Number of notices that are queued or being delivered, over all targets.
    pub fn waiting_count(&self) -> usize {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.values().map(DeliveryLane::waiting_count).sum()
    }

    /// Delivers queued notices, for at most `at_most`, and returns the number of notices that were lost.
    pub async fn drain(self, at_most: Duration) -> u64 {
        let deadline = Instant::now() + at_most;
        let lanes = std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
        // All lanes are closed before the first one is awaited, so they share the deadline instead of getting it in
        // turn.
        lanes.values().for_each(DeliveryLane::close);
        let mut left = 0;
        for (target, lane) in lanes {
            let undelivered = lane.finish(deadline).await;
            if undelivered > 0 {
                self.shared.counters.count_dropped(target.kind(), undelivered);
                tracing::warn!(%target, undelivered, "dropped undelivered alert notices: the server is stopping");
            }
            left += undelivered;
        }
        left
    }
}

/// Logs a notice without its examples: recorded text of users does not belong into the server's log.
fn log_notice(notice: &AlertNotice) {
    let AlertNotice { kind, rule, project, condition, value_text, count, since, .. } = notice;
    let (kind_name, project) = (kind.name(), project.as_deref().unwrap_or("(all)"));
    match kind {
        NoticeKind::Fired | NoticeKind::Reminder => {
            tracing::warn!(kind = kind_name, rule, project, condition, value = value_text, count, %since, "alert");
        }
        NoticeKind::Resolved | NoticeKind::Test => {
            tracing::info!(kind = kind_name, rule, project, condition, value = value_text, count, %since, "alert");
        }
    }
}

#[cfg(test)]
mod tests;
