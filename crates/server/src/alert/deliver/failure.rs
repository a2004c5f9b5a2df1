//! Why a notice did not arrive.

use std::time::Duration;

/// Why a try failed.
#[derive(Debug)]
pub(super) enum DeliveryFailure {
    /// It may pass. The target may have said when to come back.
    ForNow { reason: String, retry_after: Option<Duration> },
    /// Trying again would end the same way.
    ForGood { reason: String },
}

impl DeliveryFailure {
    pub(super) fn for_now(reason: impl Into<String>) -> DeliveryFailure {
        DeliveryFailure::ForNow { reason: reason.into(), retry_after: None }
    }
}
