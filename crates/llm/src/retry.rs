//! When to ask again, and how long to wait before.

use std::time::Duration;

use crate::error::CallError;

#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Tries in all, for everything but rate limits.
    pub attempts: u32,
    /// Tries in all for a call that is rate limited: that passes, so it is worth more patience.
    pub rate_limited_attempts: u32,
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// How long a server that loads its model is waited for.
    pub max_load_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            attempts: 5,
            rate_limited_attempts: 30,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            max_load_wait: Duration::from_secs(600),
        }
    }
}

impl RetryPolicy {
    /// How long to wait after a failure; `None` to give up. `others` and `rate_limited` count this failure, too.
    pub(crate) fn backoff_delay(&self, error: &CallError, others: u32, rate_limited: u32) -> Option<Duration> {
        if !error.is_transient() || others >= self.attempts || rate_limited >= self.rate_limited_attempts {
            return None;
        }
        let failures = (others + rate_limited).clamp(1, 16);
        let ceiling = self.first_pause.saturating_mul(1 << (failures - 1)).min(self.longest_pause);
        // Half fixed, half random: calls that failed together do not come back together.
        let jittered = ceiling.mul_f64(0.5 + 0.5 * fastrand::f64());
        Some(match error.retry_after() {
            // The endpoint knows better; some spread on top, as it tells everyone the same.
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
            let pause = policy.backoff_delay(&error, failures, 0).expect("tried again");
            let ceiling = policy.first_pause * (1 << (failures - 1));
            assert!(pause >= ceiling / 2 && pause <= ceiling, "{pause:?} after {failures} failures");
        }
        assert_eq!(policy.backoff_delay(&error, policy.attempts, 0), None);
    }

    #[test]
    fn obeys_the_endpoint() {
        let error = CallError::RateLimited { retry_after: Some(Duration::from_secs(20)) };
        let pause = RetryPolicy::default().backoff_delay(&error, 0, 1).expect("tried again");
        assert!(pause >= Duration::from_secs(20) && pause < Duration::from_secs(21));
    }

    #[test]
    fn does_not_repeat_what_cannot_succeed() {
        let refused = CallError::Refused { status: 400, message: String::new() };
        assert_eq!(RetryPolicy::default().backoff_delay(&refused, 1, 0), None);
        let key = CallError::Unauthorized { status: 401, message: String::new() };
        assert_eq!(RetryPolicy::default().backoff_delay(&key, 1, 0), None);
    }
}
