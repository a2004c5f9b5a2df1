//! The cost of the agent itself: as the traces state it, otherwise estimated from tokens and the price table.

use std::collections::BTreeMap;

use gradus_core::trajectory::{ModelUsage, TokenUsage, Trajectory};
use gradus_llm::CompletionUsage;
use gradus_llm::price::PriceTable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::TokenCount;

/// Maximum number of listed models without a price.
const MAX_UNPRICED_MODELS: usize = 50;
/// The name of calls that name no model.
const UNNAMED_MODEL: &str = "(no model named)";

/// The cost of the agent's own model calls. The four counts of runs add up to all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCost {
    /// The sum over runs whose cost is recorded or estimated; null when there are none.
    pub usd: Option<f64>,
    /// Runs whose trace states the cost.
    pub recorded_runs: u64,
    /// Runs whose cost is estimated from tokens and the price table.
    pub estimated_runs: u64,
    /// Runs with tokens of a model whose price is not known. They are not in `usd`.
    pub unpriced_runs: u64,
    /// Runs without a cost and without tokens. They are not in `usd`.
    pub unmeasured_runs: u64,
    /// Of all runs.
    pub tokens: TokenCount,
    /// Models whose price is not known, those with the most runs first; not more than 50.
    pub unpriced_models: Vec<UnpricedModel>,
}

/// A model whose price is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnpricedModel {
    pub model: String,
    pub runs: u64,
}

/// What a trace states about the agent's own model calls.
pub(super) struct StatedUsage<'t> {
    pub(super) cost_usd: Option<f64>,
    pub(super) model: Option<&'t str>,
    pub(super) tokens: TokenUsage,
    pub(super) model_usage: &'t [ModelUsage],
}

/// The cost of one run.
#[derive(Clone, Debug, PartialEq)]
enum RunCost<'t> {
    Recorded(f64),
    Estimated(f64),
    /// The models without a price.
    Unpriced(Vec<&'t str>),
    Unmeasured,
}

/// Adds up the cost of runs.
pub(super) struct AgentCostCounter {
    prices: PriceTable,
    cost: AgentCost,
    unpriced: BTreeMap<String, u64>,
}

impl AgentCostCounter {
    pub(super) fn new(prices: PriceTable) -> AgentCostCounter {
        AgentCostCounter { prices, cost: AgentCost::default(), unpriced: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, trajectory: &Trajectory) {
        let tokens = &mut self.cost.tokens;
        tokens.prompt = tokens.prompt.saturating_add(trajectory.tokens.prompt);
        tokens.completion = tokens.completion.saturating_add(trajectory.tokens.completion);
        tokens.cached_prompt = tokens.cached_prompt.saturating_add(trajectory.tokens.cached_prompt);
        match find_run_cost(&StatedUsage::from_trajectory(trajectory), &self.prices) {
            RunCost::Recorded(usd) => {
                self.cost.recorded_runs += 1;
                *self.cost.usd.get_or_insert(0.0) += usd;
            }
            RunCost::Estimated(usd) => {
                self.cost.estimated_runs += 1;
                *self.cost.usd.get_or_insert(0.0) += usd;
            }
            RunCost::Unpriced(models) => {
                self.cost.unpriced_runs += 1;
                for model in models {
                    // Bounded: a trace can name any number of models.
                    if self.unpriced.len() < 20 * MAX_UNPRICED_MODELS || self.unpriced.contains_key(model) {
                        *self.unpriced.entry(model.to_owned()).or_default() += 1;
                    }
                }
            }
            RunCost::Unmeasured => self.cost.unmeasured_runs += 1,
        }
    }

    pub(super) fn finish(self) -> AgentCost {
        let models = self.unpriced.into_iter().map(|(model, runs)| UnpricedModel { model, runs });
        let mut unpriced_models: Vec<UnpricedModel> = models.collect();
        unpriced_models.sort_by_key(|unpriced| std::cmp::Reverse(unpriced.runs));
        unpriced_models.truncate(MAX_UNPRICED_MODELS);
        AgentCost { unpriced_models, ..self.cost }
    }
}

impl<'t> StatedUsage<'t> {
    pub(super) fn from_trajectory(trajectory: &'t Trajectory) -> StatedUsage<'t> {
        StatedUsage {
            cost_usd: trajectory.cost_usd,
            model: trajectory.model.as_deref(),
            tokens: trajectory.tokens,
            model_usage: &trajectory.model_usage,
        }
    }

    /// Returns the recorded cost, otherwise the estimated one. `None` if a price or the tokens are unknown.
    pub(super) fn known_cost(&self, prices: &PriceTable) -> Option<f64> {
        match find_run_cost(self, prices) {
            RunCost::Recorded(usd) | RunCost::Estimated(usd) => Some(usd),
            RunCost::Unpriced(_) | RunCost::Unmeasured => None,
        }
    }
}

/// Returns the cost of the agent's own model calls: as the trace states it, otherwise estimated from tokens and
/// prices. `None` if a price or the tokens are unknown.
pub fn known_agent_cost(trajectory: &Trajectory, prices: &PriceTable) -> Option<f64> {
    StatedUsage::from_trajectory(trajectory).known_cost(prices)
}

/// Returns the cost of a run. A recorded cost is used unchanged. An estimate needs the price of every model of the
/// run: a partial cost would look complete.
fn find_run_cost<'t>(usage: &StatedUsage<'t>, prices: &PriceTable) -> RunCost<'t> {
    if let Some(usd) = usage.cost_usd.filter(|usd| usd.is_finite() && *usd >= 0.0) {
        return RunCost::Recorded(usd);
    }
    let whole = [(usage.model, usage.tokens)];
    let by_model: Vec<(Option<&str>, TokenUsage)> =
        usage.model_usage.iter().map(|used| (used.model.as_deref(), used.tokens)).collect();
    let parts = if by_model.is_empty() { &whole[..] } else { &by_model };
    let parts: Vec<_> = parts.iter().filter(|(_, tokens)| tokens.total() > 0).collect();
    if parts.is_empty() {
        return RunCost::Unmeasured;
    }
    let mut usd = 0.0;
    let mut unpriced = Vec::new();
    for (model, tokens) in parts {
        match model.and_then(|model| prices.find_price(model)) {
            Some(price) => {
                let TokenUsage { prompt, completion, cached_prompt } = *tokens;
                usd += price.cost_of_usage(CompletionUsage { prompt, completion, cached_prompt });
            }
            None => unpriced.push(model.unwrap_or(UNNAMED_MODEL)),
        }
    }
    if unpriced.is_empty() { RunCost::Estimated(usd) } else { RunCost::Unpriced(unpriced) }
}

#[cfg(test)]
mod tests {
    use gradus_llm::price::{ModelPrices, TokenPrice};

    use super::*;

    fn prices() -> PriceTable {
        let price = TokenPrice { input: 2.0, output: 10.0, cached_input: Some(1.0) };
        let mut table = PriceTable::default();
        table.add_prices(&ModelPrices::from([("mine".to_owned(), price)]));
        table
    }

    fn tokens(prompt: u64, completion: u64, cached_prompt: u64) -> TokenUsage {
        TokenUsage { prompt, completion, cached_prompt }
    }

    fn run(model: Option<&str>, tokens: TokenUsage) -> Trajectory {
        Trajectory { model: model.map(str::to_owned), tokens, ..Trajectory::default() }
    }

    #[test]
    fn recorded_costs_win_and_estimates_need_every_price() {
        let mut counter = AgentCostCounter::new(prices());
        let million = tokens(1_000_000, 100_000, 500_000);
        counter.add(&Trajectory { cost_usd: Some(0.25), ..run(Some("mine"), million) });
        // Half of the prompt was cached: 0.5 * 2 + 0.5 * 1 + 0.1 * 10.
        counter.add(&run(Some("mine-2026-01-01"), million));
        counter.add(&run(Some("model x"), million));
        counter.add(&run(None, million));
        counter.add(&run(Some("mine"), TokenUsage::default()));
        let usage = |model: &str| ModelUsage { model: Some(model.to_owned()), tokens: million };
        let several = vec![usage("mine"), usage("model x")];
        counter.add(&Trajectory { model_usage: several, ..run(Some("mine"), million) });
        let cost = counter.finish();
        assert_eq!(cost.usd, Some(2.75));
        assert_eq!((cost.recorded_runs, cost.estimated_runs), (1, 1));
        assert_eq!((cost.unpriced_runs, cost.unmeasured_runs), (3, 1));
        let unpriced: Vec<_> = cost.unpriced_models.iter().map(|found| (found.model.as_str(), found.runs)).collect();
        assert_eq!(unpriced, [("model x", 2), (UNNAMED_MODEL, 1)]);
    }

    #[test]
    fn nonsense_in_a_trace_is_no_cost() {
        for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
            let mut counter = AgentCostCounter::new(prices());
            counter
                .add(&Trajectory { cost_usd: Some(nonsense), ..run(Some("model x"), tokens(u64::MAX, u64::MAX, 0)) });
            let cost = counter.finish();
            assert_eq!((cost.usd, cost.unpriced_runs), (None, 1), "{nonsense}");
        }
    }
}
