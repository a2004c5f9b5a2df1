//! A verdict as it was recorded.

use gradus_eval::outcome::OutcomeLine;

/// A verdict as it was given.
pub(super) struct RecordedVerdict {
    pub(super) at_ns: i64,
    /// Below the best that its evaluator gave then: what rubrics say today does not change it.
    pub(super) is_wrong: bool,
    pub(super) line: OutcomeLine,
}
