//! Delivery of one notice to one target, with exponential backoff until it succeeds or is given up.

use crate::alert::deliver::failure::DeliveryFailure;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::Instant;

use super::{DeliveryContext, DeliverySettings, command, webhook};
use crate::alert::notice::AlertNotice;
use crate::alert::target::{AlertTarget, WebhookUrl};

/// Attempts delivery until the notice is accepted or given up. Both are counted, and giving up is logged.
pub(super) async fn deliver_with_retries(target: &AlertTarget, notice: &AlertNotice, shared: &DeliveryContext) {
    let DeliveryContext { settings, counters, health, .. } = shared;
    let give_up_at = Instant::now() + settings.give_up_after;
    let mut attempts = 0;
    let reason = loop {
        attempts += 1;
        let (reason, retry_after) = match attempt_delivery(target, notice, shared).await {
            Ok(()) => {
                counters.count_sent(target.kind());
                health.record_success(target);
                return;
            }
            Err(DeliveryFailure::Permanent { reason }) => break reason,
            Err(DeliveryFailure::Transient { reason, retry_after }) => (reason, retry_after),
        };
        health.record_failure(target, &reason, false);
        let pause = compute_retry_delay(settings, attempts, retry_after);
        // Checked before the pause: waiting for an attempt that would not be made helps nobody.
        if attempts >= settings.attempts || Instant::now() + pause > give_up_at {
            break reason;
        }
        // The first failure is logged as a warning, so that somebody can repair the target. Repetitions are only for
        // debugging: a target that stays dead would fill the log.
        if attempts == 1 {
            tracing::warn!(%target, rule = notice.rule, reason, "failed to deliver an alert; retrying");
        } else {
            tracing::debug!(%target, attempts, reason, ?pause, "failed to deliver an alert; retrying");
        }
        tokio::time::sleep(pause).await;
        counters.count_retried(target.kind());
    };
    counters.count_failed(target.kind());
    health.record_failure(target, &reason, true);
    tracing::warn!(%target, rule = notice.rule, attempts, reason, "failed to deliver an alert; giving up");
}

/// Makes one attempt. `Log` never gets here: the dispatcher writes it at once.
pub(super) async fn attempt_delivery(
    target: &AlertTarget,
    notice: &AlertNotice,
    shared: &DeliveryContext,
) -> Result<(), DeliveryFailure> {
    let base_url = shared.settings.base_url.as_deref();
    match target {
        AlertTarget::Log => Ok(()),
        AlertTarget::Webhook(url) => post_to(shared, url, &notice.to_json(base_url)).await,
        AlertTarget::Slack(url) => post_to(shared, url, &notice.to_slack_message(base_url)).await,
        AlertTarget::Command { words, env } => {
            command::run_alert_command(words, env, notice, base_url, shared.settings.command_timeout).await
        }
    }
}

/// Posts to a webhook. Addresses that were entered on the page are checked before each request, because a name may
/// resolve to another address by now.
async fn post_to(shared: &DeliveryContext, url: &WebhookUrl, body: &Json) -> Result<(), DeliveryFailure> {
    if !url.is_guarded() {
        return webhook::post_webhook(&shared.http, url, body).await;
    }
    let checked = shared.settings.guard.check_target(url).await;
    checked.map_err(|refusal| DeliveryFailure::transient(refusal.to_string()))?;
    webhook::post_webhook(&shared.guarded_http, url, body).await
}

/// Exponential backoff with jitter. `failures` is at least 1; the exponent is capped so that the shift cannot overflow.
fn compute_retry_delay(settings: &DeliverySettings, failures: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = settings.first_pause.saturating_mul(1 << (failures.clamp(1, 20) - 1));
    let ceiling = doubled.min(settings.longest_pause);
    match retry_after {
        // `Retry-After` takes precedence over the own schedule. Up to 20 % of the first pause is added, since the
        // target may have sent the same value to everyone.
        Some(asked) => asked.saturating_add(settings.first_pause.min(asked).mul_f64(0.2 * fastrand::f64())),
        // Half fixed, half random: servers that lost a target at the same time do not all return at the same time.
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
