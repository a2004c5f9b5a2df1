//! Computes the cost of judging. An unknown cost has a reason and is never shown as 0.

use super::summary::{CostSummary, EvaluatorCost, UnknownCost};
use crate::outcome::OutcomeLine;

impl EvaluatorCost {
    /// Adds the cost of an outcome, also of a superseded one.
    pub(super) fn add_outcome(&mut self, line: &OutcomeLine) {
        self.calls += u64::from(line.calls);
        self.from_cache += u64::from(line.cached);
        if let Some(tokens) = line.tokens {
            self.tokens.prompt += tokens.prompt;
            self.tokens.completion += tokens.completion;
            self.tokens.cached_prompt += tokens.cached_prompt;
        }
        if line.calls > 0 {
            // If an endpoint does not report its usage, the sum is unknown, not lower.
            self.usd = self.usd.zip(line.cost_usd).map(|(sum, more)| sum + more);
        }
    }
}

impl CostSummary {
    /// The total is unknown if the cost of one evaluator is. Without calls it is 0, whatever the price.
    pub(super) fn from_evaluator_costs(mut by_evaluator: Vec<EvaluatorCost>, is_priced: bool) -> CostSummary {
        let mut total = CostSummary { usd: Some(0.0), ..CostSummary::default() };
        for cost in &mut by_evaluator {
            if cost.calls == 0 {
                cost.usd = Some(0.0);
            }
            total.calls += cost.calls;
            total.from_cache += cost.from_cache;
            total.tokens.prompt += cost.tokens.prompt;
            total.tokens.completion += cost.tokens.completion;
            total.tokens.cached_prompt += cost.tokens.cached_prompt;
            total.usd = total.usd.zip(cost.usd).map(|(sum, more)| sum + more);
        }
        let why = if is_priced { UnknownCost::UsageNotReported } else { UnknownCost::PriceNotKnown };
        total.usd_unknown = total.usd.is_none().then_some(why);
        CostSummary { by_evaluator, ..total }
    }
}
