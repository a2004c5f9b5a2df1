//! The log of the server on standard error: lines for people, or JSON for programs. Recorded text is never logged.

use std::sync::LazyLock;

use gradus_store::StoreError;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::throttled_log::ThrottledLog;

/// How the log on standard error is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Installs the global subscriber. Calling it twice has no effect.
pub(super) fn init_logging(format: LogFormat) {
    // A log line that cannot be written, because the disk is full or the pipe is closed, must not stop the server.
    let builder =
        fmt().with_writer(std::io::stderr).with_max_level(Level::INFO).with_target(false).log_internal_errors(false);
    // The MCP library logs several lines for each request, with content of the client.
    let own_targets = Targets::new().with_default(LevelFilter::INFO).with_target("rmcp", LevelFilter::OFF);
    // A subscriber that is installed already, as in tests, stays.
    let _ = match format {
        LogFormat::Text => {
            let is_seen = std::io::IsTerminal::is_terminal(&std::io::stderr());
            builder.with_ansi(is_seen).finish().with(own_targets).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).finish().with(own_targets).try_init(),
    };
}

/// Logs that a request failed because the store did. Throttled, because every request fails then.
pub(super) fn report_store_failure(error: &StoreError) {
    static FAILURES: LazyLock<ThrottledLog> = LazyLock::new(ThrottledLog::default);
    if let Some(times) = FAILURES.record_occurrence() {
        tracing::error!(%error, times, "store operation failed");
    }
}

/// Logs that a large response could not be written to a temporary file. Throttled.
pub(super) fn report_spill_failure(error: &std::io::Error) {
    static FAILURES: LazyLock<ThrottledLog> = LazyLock::new(ThrottledLog::default);
    if let Some(times) = FAILURES.record_occurrence() {
        tracing::error!(%error, times, "failed to write a large response to a file");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::http_error::ApiError;

    #[derive(Clone, Default)]
    struct LineCounter(Arc<AtomicUsize>);

    impl std::io::Write for LineCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.fetch_add(bytes.iter().filter(|byte| **byte == b'\n').count(), Ordering::Relaxed);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// How many lines this thread logs meanwhile.
    pub(crate) fn count_lines(run: impl FnOnce()) -> usize {
        let lines = LineCounter::default();
        let counting = lines.clone();
        let subscriber = fmt().with_writer(move || counting.clone()).finish();
        tracing::subscriber::with_default(subscriber, run);
        lines.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_store_that_fails_is_not_logged_for_each_request() {
        let lines = count_lines(|| (0..100).for_each(|_| drop(ApiError::from(StoreError::DiskFull))));
        assert!(lines <= 1, "{lines}");
    }
}
