//! A verdict from the store or from a run.

use gradus_eval::outcome::OutcomeLine;

/// A verdict with what was decided when it was recorded.
pub(super) struct RecordedVerdict {
    /// When it was given. Verdicts of a run have the time at which the run ended.
    pub(super) at_ns: i64,
    /// Whether the score was below the best of its evaluator at that time. Later changes of the rubric do not alter it.
    pub(super) is_wrong: bool,
    pub(super) line: OutcomeLine,
}
