//! The filter of trace lists.

/// Conditions on a trace, its trajectories and their outcomes. All given ones must hold.
#[derive(Clone, Debug, Default)]
pub struct TraceFilter {
    pub project: Option<String>,
    /// Begins at this time or later.
    pub from_ns: Option<i64>,
    /// Begins before this time.
    pub to_ns: Option<i64>,
    pub agent: Option<String>,
    pub version: Option<String>,
    pub model: Option<String>,
    /// A tool that some step calls. Together with `wrong`, the wrong outcome must be about a step that calls it, or
    /// about a whole trajectory that does.
    pub tool: Option<String>,
    /// An evaluator that gave a score below its best.
    pub wrong: Option<String>,
    /// The key of a failure group.
    pub failure_group: Option<String>,
    /// A label such as `incorrect`, or with its evaluator, `thought_to_tool=incorrect`.
    pub label: Option<String>,
    pub score: Option<ScoreBound>,
    pub error: Option<bool>,
    /// Words that a trajectory contains, all of them.
    pub text: Option<String>,
    /// Leaves out traces that only continue a run which begins in another trace, as the model calls of a plain client do.
    /// Without effect together with `error`, which such a trace can have.
    pub is_folded: bool,
}

/// A bound on the mean score of a trajectory by one evaluator.
#[derive(Clone, Debug)]
pub struct ScoreBound {
    pub evaluator: String,
    pub at_least: Option<f64>,
    pub below: Option<f64>,
}
