//! Gets notices out without holding anyone up: a bounded queue and a task for every target, so that one that is dead or
//! slow delays no other, and none delays the server.
//!
//! Delivery is at least once: a target whose answer got lost is told again.

mod attempt;
mod command;
mod counters;
mod failure;
mod lane;
mod webhook;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

pub use counters::{DeliveryCounts, KindCounts};
use lane::DeliveryLane;

use self::counters::DeliveryCounters;
use super::notice::{AlertNotice, NoticeKind};
use super::target::{AlertTarget, TargetKind};

/// How patient deliveries are.
#[derive(Clone, Debug)]
pub struct DeliverySettings {
    /// Where people open this server; without it, notices have no links.
    pub base_url: Option<String>,
    /// Notices that wait for one target. When there are more, the oldest is dropped: it says least about now.
    pub queue: usize,
    /// Tries for one notice, and the time after which there are no more.
    pub attempts: u32,
    pub give_up_after: Duration,
    pub first_pause: Duration,
    pub longest_pause: Duration,
    pub request_timeout: Duration,
    pub command_timeout: Duration,
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
        }
    }
}

/// The HTTP client for webhooks could not be built, so nothing can be delivered at all.
///
/// The message shows the root cause only, with secrets masked: the outer layers of `reqwest` repeat that building failed.
#[derive(Debug, thiserror::Error)]
#[error("no HTTPS here: {}; check the system's certificates", gradus_http::root_cause(.0))]
pub struct StartError(#[source] reqwest::Error);

/// Takes notices and delivers them.
#[derive(Debug)]
pub struct NoticeDispatcher {
    shared: Arc<DeliveryContext>,
    runtime: Handle,
    lanes: Mutex<HashMap<AlertTarget, DeliveryLane>>,
}

/// What all lanes use.
#[derive(Debug)]
struct DeliveryContext {
    settings: DeliverySettings,
    http: reqwest::Client,
    counters: DeliveryCounters,
}

impl NoticeDispatcher {
    /// Has to be called inside a tokio runtime, which then runs the deliveries.
    pub fn start(settings: DeliverySettings) -> Result<NoticeDispatcher, StartError> {
        let http = webhook::build_webhook_client(settings.request_timeout).map_err(StartError)?;
        let shared = Arc::new(DeliveryContext { settings, http, counters: DeliveryCounters::default() });
        Ok(NoticeDispatcher { shared, runtime: Handle::current(), lanes: Mutex::default() })
    }

    /// Puts a notice into the queue of every target. Never waits; may be called from any thread.
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
                tracing::warn!(%target, "an alert's queue is full: its oldest notice is dropped");
            }
        }
    }

    /// What has happened so far, for metrics.
    pub fn counts(&self) -> DeliveryCounts {
        self.shared.counters.snapshot()
    }

    /// Notices that wait, all targets together.
    pub fn waiting_count(&self) -> usize {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.values().map(DeliveryLane::waiting_count).sum()
    }

    /// Delivers what waits, for at most this long, and says how many notices could not be delivered.
    pub async fn drain(self, at_most: Duration) -> u64 {
        let deadline = Instant::now() + at_most;
        let lanes = std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
        // All at once: they share the time.
        lanes.values().for_each(DeliveryLane::close);
        let mut left = 0;
        for (target, lane) in lanes {
            let undelivered = lane.finish(deadline).await;
            if undelivered > 0 {
                self.shared.counters.count_dropped(target.kind(), undelivered);
                tracing::warn!(%target, undelivered, "alert notices are lost: the server stops");
            }
            left += undelivered;
        }
        left
    }
}

/// Without its examples: what was recorded has no place in the server's log.
fn log_notice(notice: &AlertNotice) {
    let AlertNotice { kind, rule, project, condition, value_text, count, since, .. } = notice;
    let (kind_name, project) = (kind.name(), project.as_deref().unwrap_or("(all)"));
    match kind {
        NoticeKind::Fired | NoticeKind::Reminder => {
            tracing::warn!(kind = kind_name, rule, project, condition, value = value_text, count, %since, "alert");
        }
        NoticeKind::Resolved => {
            tracing::info!(kind = kind_name, rule, project, condition, value = value_text, count, %since, "alert");
        }
    }
}

#[cfg(test)]
mod tests;
