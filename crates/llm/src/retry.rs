//! Decides which failures are retried, and after which pause.

use std::time::Duration;

use crate::error::CallError;

/// Limits of the attempts of one call: exponential backoff with jitter.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts for everything but rate limits, the first one included.
    pub attempts: u32,
    /// Attempts for a call that is rate limited. Rate limits pass, so they deserve more patience.
    pub rate_limited_attempts: u32,
    /// Pause after the first failure. Doubles with each failure, up to `max_backoff`.
    pub first_pause: Duration,
    pub max_backoff: Duration,
    /// How long a call waits for a server that loads its model.
    pub max_load_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            attempts: 5,
            rate_limited_attempts: 30,
            first_pause: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
            max_load_wait: Duration::from_secs(600),
        }
    }
}

impl RetryPolicy {
    /// Returns the pause after a failure; `None` to give up. `rate_limited` counts the failures
    /// by a rate limit so far and `others` all others, this failure included.
    pub(crate) fn next_retry_delay(&self, error: &CallError, others: u32, rate_limited: u32) -> Option<Duration> {
        if !error.is_transient() || others >= self.attempts || rate_limited >= self.rate_limited_attempts {
            return None;
        }
        let failures = (others + rate_limited).clamp(1, 16);
        let ceiling = self.first_pause.saturating_mul(1 << (failures - 1)).min(self.max_backoff);
        // Half fixed, half random, so that calls that failed together do not retry together.
        let jittered = ceiling.mul_f64(0.5 + 0.5 * fastrand::f64());
        Some(match error.retry_after() {
            // `Retry-After` takes precedence, plus jitter, since all clients got the same number.
            Some(asked) => asked + self.first_pause.min(asked).mul_f64(0.2 * fastrand::f64()),
            None => jittered,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_and_gives_up() {
        let policy = RetryPolicy::default();
        let error = CallError::Server { status: 503, message: String::new(), retry_after: None };
        for failures in 1..policy.attempts {
            let pause = policy.next_retry_delay(&error, failures, 0).expect("tried again");
            let ceiling = policy.first_pause * (1 << (failures - 1));
            assert!(pause >= ceiling / 2 && pause <= ceiling, "{pause:?} after {failures} failures");
        }
        assert_eq!(policy.next_retry_delay(&error, policy.attempts, 0), None);
    }

    #[test]
    fn obeys_the_endpoint() {
        let error = CallError::RateLimited { retry_after: Some(Duration::from_secs(20)) };
        let pause = RetryPolicy::default().next_retry_delay(&error, 0, 1).expect("tried again");
        assert!(pause >= Duration::from_secs(20) && pause < Duration::from_secs(21));
    }

    #[test]
    fn does_not_repeat_what_cannot_succeed() {
        let refused = CallError::Refused { status: 400, message: String::new() };
        assert_eq!(RetryPolicy::default().next_retry_delay(&refused, 1, 0), None);
        let key = CallError::Unauthorized { status: 401, message: String::new() };
        assert_eq!(RetryPolicy::default().next_retry_delay(&key, 1, 0), None);
    }
}
