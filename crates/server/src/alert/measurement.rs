//! Measurements that conditions are compared with, and examples for notices.

/// What was measured in the window of a condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertMeasurement {
    /// A share, a score, dollars an hour, seconds, or the number of unseen tools, depending on the metric.
    pub value: f64,
    /// Sample size in the unit of the metric: steps, trajectories or questions.
    pub count: u64,
    /// Tools that were called now and not in the window before. Empty for other metrics than `unseen_tool`.
    pub unseen: Vec<String>,
    /// Whether the scores prove that their mean is on the bad side of the threshold (see [`super::ScoreWatch`]).
    /// `None` for metrics other than scores, which are decided by the value alone.
    pub is_proven: Option<bool>,
}

/// A step or a trajectory that shows the problem.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertExample {
    pub trace_id: String,
    pub trajectory_id: String,
    /// Counted from 1; none for the whole trajectory.
    pub step_index: Option<u32>,
    /// A few words. May be recorded text of any content: every output escapes and truncates it.
    pub summary: String,
    pub score: Option<f64>,
}
