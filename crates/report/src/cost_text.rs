//! Costs in words, the same in every format. An unknown cost comes with its reason, and estimates are marked.

use gradus_core::visible::printable_line;
use gradus_eval::report::{AgentCost, CostSummary, UnknownCost};

use crate::number_text::{filter_finite, format_count, format_counted_noun, format_usd};

/// Maximum number of listed models without a price; the rest is counted.
const MAX_NAMED_MODELS: usize = 3;

/// Describes why the cost of judging is unknown. Runs of earlier versions do not record a reason.
pub fn describe_unknown_cost(cost: &CostSummary) -> &'static str {
    match cost.usd_unknown {
        Some(UnknownCost::UsageNotReported) => "not known: the endpoint does not report its usage",
        Some(UnknownCost::PriceNotKnown) | None => "price not known",
    }
}

/// `$0.4200 (estimated from tokens; 2 runs with unknown price: model x)`. `None` if neither a cost nor tokens are
/// recorded in any run.
pub fn format_agent_cost(cost: &AgentCost) -> Option<String> {
    if cost.recorded_runs + cost.estimated_runs + cost.unpriced_runs == 0 {
        return None;
    }
    let mut notes = Vec::new();
    match (cost.recorded_runs, cost.estimated_runs) {
        (0, 0) => {}
        (_, 0) => notes.push("recorded in the traces".to_owned()),
        (0, _) => notes.push("estimated from tokens".to_owned()),
        (recorded, estimated) => notes.push(format!(
            "recorded for {}, estimated from tokens for {}",
            format_counted_noun(recorded, "run", "runs"),
            format_count(estimated)
        )),
    }
    if cost.unpriced_runs > 0 {
        let runs = format_counted_noun(cost.unpriced_runs, "run", "runs");
        let models = format_unpriced_models(cost);
        notes.push(format!("{runs} with unknown price{}{models}", if models.is_empty() { "" } else { ": " }));
    }
    if cost.unmeasured_runs > 0 {
        notes.push(format!("{} without token counts", format_counted_noun(cost.unmeasured_runs, "run", "runs")));
    }
    let usd = filter_finite(cost.usd).map_or_else(|| "not known".to_owned(), format_usd);
    Some(format!("{usd} ({})", notes.join("; ")))
}

fn format_unpriced_models(cost: &AgentCost) -> String {
    let named = cost.unpriced_models.iter().take(MAX_NAMED_MODELS);
    let mut names: Vec<String> = named.map(|unpriced| printable_line(&unpriced.model)).collect();
    let more = cost.unpriced_models.len().saturating_sub(MAX_NAMED_MODELS);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use gradus_eval::report::UnpricedModel;

    use super::*;

    #[test]
    fn an_estimate_says_what_it_is_of() {
        let text = |cost: AgentCost| format_agent_cost(&cost).unwrap_or_default();
        let unpriced = |count: usize| -> Vec<UnpricedModel> {
            (0..count).map(|at| UnpricedModel { model: format!("model {at}\u{1b}[2J"), runs: 1 }).collect()
        };
        let estimated = AgentCost { usd: Some(0.42), estimated_runs: 8, ..AgentCost::default() };
        assert_eq!(text(estimated.clone()), "$0.4200 (estimated from tokens)");
        let partly = AgentCost { unpriced_runs: 2, unpriced_models: unpriced(1), ..estimated };
        let shown = text(partly.clone());
        assert!(shown.starts_with("$0.4200 (estimated from tokens; 2 runs with unknown price: model 0"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        let many = AgentCost { recorded_runs: 1, unpriced_models: unpriced(5), unmeasured_runs: 1, ..partly };
        let shown = text(many);
        assert!(shown.contains("recorded for 1 run, estimated from tokens for 8;"), "{shown}");
        assert!(shown.ends_with(", 2 more; 1 run without token counts)"), "{shown}");
        let unknown = AgentCost { unpriced_runs: 3, ..AgentCost::default() };
        assert_eq!(text(unknown), "not known (3 runs with unknown price)");
        assert_eq!(format_agent_cost(&AgentCost { unmeasured_runs: 9, ..AgentCost::default() }), None);
    }
}
