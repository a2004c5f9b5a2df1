//! One notice to one target, tried until it is there or there is no hope.

use crate::alert::deliver::failure::DeliveryFailure;
use std::time::Duration;

use tokio::time::Instant;

use super::{DeliveryContext, DeliverySettings, command, webhook};
use crate::alert::notice::AlertNotice;
use crate::alert::target::AlertTarget;

/// Delivers or gives up; both are counted, and giving up is logged.
pub(super) async fn deliver_with_retries(target: &AlertTarget, notice: &AlertNotice, shared: &DeliveryContext) {
    let DeliveryContext { settings, counters, .. } = shared;
    let give_up_at = Instant::now() + settings.give_up_after;
    let mut attempts = 0;
    let reason = loop {
        attempts += 1;
        let (reason, retry_after) = match attempt_delivery(target, notice, shared).await {
            Ok(()) => {
                counters.count_sent(target.kind());
                return;
            }
            Err(DeliveryFailure::ForGood { reason }) => break reason,
            Err(DeliveryFailure::ForNow { reason, retry_after }) => (reason, retry_after),
        };
        let pause = compute_retry_delay(settings, attempts, retry_after);
        if attempts >= settings.attempts || Instant::now() + pause > give_up_at {
            break reason;
        }
        // Told once aloud: a target that stays dead would fill the log, one that nobody hears of is not mended.
        if attempts == 1 {
            tracing::warn!(%target, rule = notice.rule, reason, "failed to deliver an alert; retrying");
        } else {
            tracing::debug!(%target, attempts, reason, ?pause, "failed to deliver an alert; retrying");
        }
        tokio::time::sleep(pause).await;
        counters.count_retried(target.kind());
    };
    counters.count_failed(target.kind());
    tracing::warn!(%target, rule = notice.rule, attempts, reason, "failed to deliver an alert; giving up");
}

async fn attempt_delivery(
    target: &AlertTarget,
    notice: &AlertNotice,
    shared: &DeliveryContext,
) -> Result<(), DeliveryFailure> {
    let base_url = shared.settings.base_url.as_deref();
    match target {
        AlertTarget::Log => Ok(()),
        AlertTarget::Webhook(url) => webhook::post_webhook(&shared.http, url, &notice.to_json(base_url)).await,
        AlertTarget::Slack(url) => webhook::post_webhook(&shared.http, url, &notice.to_slack_message(base_url)).await,
        AlertTarget::Command { words, env } => {
            command::run_alert_command(words, env, notice, base_url, shared.settings.command_timeout).await
        }
    }
}

fn compute_retry_delay(settings: &DeliverySettings, failures: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = settings.first_pause.saturating_mul(1 << (failures.clamp(1, 20) - 1));
    let ceiling = doubled.min(settings.longest_pause);
    match retry_after {
        // The target knows better; some spread on top, as it tells everyone the same.
        Some(asked) => asked.saturating_add(settings.first_pause.min(asked).mul_f64(0.2 * fastrand::f64())),
        // Half fixed, half random: servers that lost a target together do not come back together.
        None => ceiling.mul_f64(0.5 + 0.5 * fastrand::f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_up_to_a_limit() {
        let settings = DeliverySettings::default();
        for failures in 1..40 {
            let ceiling = Duration::from_secs(1 << (failures - 1).min(20)).min(settings.longest_pause);
            let found = compute_retry_delay(&settings, failures, None);
            assert!(found >= ceiling / 2 && found <= ceiling, "{found:?} after {failures}");
        }
        let asked = compute_retry_delay(&settings, 1, Some(Duration::from_secs(60)));
        assert!(asked >= Duration::from_secs(60) && asked < Duration::from_secs(61));
        assert_eq!(compute_retry_delay(&settings, 1, Some(Duration::MAX)), Duration::MAX);
    }
}
