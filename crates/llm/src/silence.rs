//! Detects endpoints that accept calls but have stopped answering.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Rounds of timeouts after which an endpoint counts as silent. The concurrency limit is halved in each round, so a server
/// that is only overloaded answers before.
const MAX_SILENT_ROUNDS: u32 = 5;

/// Counts rounds of timeouts since the last response. Calls that were in flight together time out together: they are one
/// round.
#[derive(Debug, Default)]
pub(crate) struct SilenceDetector {
    /// Held only to read or replace the value, never across an await.
    rounds: Mutex<SilentRounds>,
}

#[derive(Debug, Default)]
struct SilentRounds {
    count: u32,
    /// When the first call of the first round started, and when the last round ended.
    span: Option<(Instant, Instant)>,
}

impl SilenceDetector {
    /// Records a response with any status, which resets the count.
    pub(crate) fn record_response(&self) {
        *self.lock() = SilentRounds::default();
    }

    /// Records the timeout of a call that started at `started`. Returns for how long nothing was answered once that
    /// is too long.
    pub(crate) fn record_timeout(&self, started: Instant, now: Instant) -> Option<Duration> {
        let mut rounds = self.lock();
        let (since, ended) = *rounds.span.get_or_insert((started, started));
        if started >= ended {
            rounds.count += 1;
            rounds.span = Some((since, now));
        }
        (rounds.count >= MAX_SILENT_ROUNDS).then(|| now - since)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SilentRounds> {
        self.rounds.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounds_without_any_response_count() {
        let (detector, start) = (SilenceDetector::default(), Instant::now());
        let round = |number: u64| start + Duration::from_secs(120 * number);
        for number in 0..MAX_SILENT_ROUNDS as u64 - 1 {
            // Calls in flight together are one round.
            for _ in 0..100 {
                assert_eq!(detector.record_timeout(round(number), round(number + 1)), None);
            }
        }
        detector.record_response();
        for number in 10..14 {
            assert_eq!(detector.record_timeout(round(number), round(number + 1)), None);
        }
        assert_eq!(detector.record_timeout(round(14), round(15)), Some(Duration::from_secs(600)));
    }
}
