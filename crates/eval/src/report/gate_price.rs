//! Gates on the agent's cost where the cost of some runs is not known.

use super::gate::{GateContext, GateResult, GateVerdict};
use super::gate_metric::UsageMetric;

/// Adds the runs of unknown cost to the explanation of a gate on the cost. The mean of the others can differ much
/// from that of all, so the gate does not pass on them alone unless partial runs are allowed. A gate that fails on
/// the others still fails.
pub fn explain_unpriced_runs(result: &mut GateResult, context: &GateContext<'_>) {
    let name = result.metric.split('{').next().unwrap_or_default();
    if UsageMetric::from_name(name) != Some(UsageMetric::AgentCost) || result.value.is_none() {
        return;
    }
    let Some(metric) = context.more_metrics.iter().find(|metric| metric.name == result.metric) else { return };
    if metric.failed == 0 {
        return;
    }
    let unpriced = format!("{} of {} runs have no known price", metric.failed, metric.failed + metric.denominator);
    if result.verdict == GateVerdict::Pass && !context.allow_partial {
        result.verdict = GateVerdict::Incomplete;
        result.explanation = format!("not decided: {unpriced}; without them it is {}", result.explanation);
    } else {
        result.explanation.push_str(&format!("; {unpriced}"));
    }
}
