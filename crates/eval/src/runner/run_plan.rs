//! The plan of a run: its questions, its limits, and how it can end.

use std::time::Duration;

use super::panel::JudgePanel;
use crate::evaluator::Evaluator;
use crate::prompt::ToolTexts;

/// Everything that decides what a run asks.
#[derive(Debug)]
pub struct RunPlan {
    pub evaluators: Vec<Evaluator>,
    /// The models; `None` if rules answer all evaluators.
    pub judge: Option<JudgePanel>,
    pub tools: ToolTexts,
    pub limits: RunLimits,
    /// Asks again even if an answer is cached. New answers are still added to the cache.
    pub ignore_cache: bool,
}

/// Limits of a run. Reaching one stops the run with a partial report.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Maximum number of questions in flight.
    pub concurrency: usize,
    /// Maximum number of requests, retries included.
    pub max_calls: Option<u64>,
    /// Maximum cost in dollars. Questions in flight count with their upper bound, so the limit holds even if all are
    /// expensive.
    pub max_cost_usd: Option<f64>,
    /// Maximum duration. Questions in flight then have a few more seconds to finish.
    pub max_time: Option<Duration>,
}

/// How a run ended. In every case, all outcomes up to then are in the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum RunTermination {
    Finished,
    /// A limit of the run was reached.
    Limit(String),
    /// Ctrl-C.
    Interrupted,
    /// The endpoint answers no question at all, and trying again would not help: wrong key, unknown model, no quota.
    Endpoint {
        /// Index into [`JudgePanel::judges`].
        judge: usize,
        failure: gradus_llm::ModelCallFailure,
    },
    /// The endpoint worked and then stopped answering.
    EndpointDied(String),
}
