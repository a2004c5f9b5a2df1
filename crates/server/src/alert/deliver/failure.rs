//! Failures of one delivery attempt.

use std::time::Duration;

/// Reasons end up in the log, so they contain neither the address of a webhook nor the arguments of a command.
#[derive(Debug)]
pub(super) enum DeliveryFailure {
    /// Worth another attempt. `retry_after` is the `Retry-After` of the response, if it had one.
    Transient { reason: String, retry_after: Option<Duration> },
    /// Another attempt would fail in the same way, so the notice is given up at once.
    Permanent { reason: String },
}

impl DeliveryFailure {
    pub(super) fn transient(reason: impl Into<String>) -> DeliveryFailure {
        DeliveryFailure::Transient { reason: reason.into(), retry_after: None }
    }
}
