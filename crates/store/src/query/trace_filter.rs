//! Which traces are asked for.

#[derive(Clone, Debug, Default)]
pub struct TraceFilter {
    pub project: Option<String>,
    /// Begun at or after.
    pub from_ns: Option<i64>,
    /// Begun before.
    pub to_ns: Option<i64>,
    pub agent: Option<String>,
    pub version: Option<String>,
    pub model: Option<String>,
    /// With `wrong`, what was found wrong is a step that calls it, or the whole of a trajectory that does.
    pub tool: Option<String>,
    /// An evaluator that found something below its best.
    pub wrong: Option<String>,
    /// `incorrect`, or `thought_to_tool=incorrect`.
    pub label: Option<String>,
    pub score: Option<ScoreBound>,
    pub error: Option<bool>,
    /// Words that the trajectory holds, all of them.
    pub text: Option<String>,
}

/// A bound on the mean score of a trajectory.
#[derive(Clone, Debug)]
pub struct ScoreBound {
    pub evaluator: String,
    pub at_least: Option<f64>,
    pub below: Option<f64>,
}
