//! Prices of tokens. A table is built in, and a table of the user adds entries or replaces them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::request::CompletionUsage;

/// List prices of the providers, with the date they were looked up.
const BUILT_IN: &str = include_str!("prices.toml");

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrice {
    pub input: f64,
    pub output: f64,
    /// Price of prompt tokens that the provider had cached. Without it they cost as much as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
}

/// Prices by model name, as a user's table gives them.
pub type ModelPrices = BTreeMap<String, TokenPrice>;

impl TokenPrice {
    /// Cost in US dollars.
    pub fn cost_of_usage(&self, usage: CompletionUsage) -> f64 {
        let cached = usage.cached_prompt.min(usage.prompt);
        let fresh = usage.prompt - cached;
        let dollars = fresh as f64 * self.input
            + cached as f64 * self.cached_input.unwrap_or(self.input)
            + usage.completion as f64 * self.output;
        dollars / 1e6
    }

    fn is_valid_price(&self) -> bool {
        let all = [Some(self.input), Some(self.output), self.cached_input];
        all.into_iter().flatten().all(|value| value.is_finite() && value >= 0.0)
    }
}

/// Prices by model name. Providers append dates and versions to names, so an entry also covers those.
#[derive(Clone, Debug)]
pub struct PriceTable {
    prices: ModelPrices,
}

/// A price table that cannot be read. The message of the TOML parser has several lines.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PriceError(String);

#[derive(Deserialize)]
struct PriceFile {
    #[serde(default)]
    #[allow(dead_code, reason = "says of when the table is; for readers")]
    as_of: Option<String>,
    #[serde(flatten)]
    prices: ModelPrices,
}

impl Default for PriceTable {
    fn default() -> Self {
        let mut table = PriceTable { prices: BTreeMap::new() };
        if let Err(error) = table.add_toml(BUILT_IN) {
            unreachable!("the built-in table is tested: {error}");
        }
        table
    }
}

impl PriceTable {
    /// Reads a table in TOML without adding it to anything.
    pub fn parse_toml(toml: &str) -> Result<ModelPrices, PriceError> {
        let file: PriceFile = toml::from_str(toml).map_err(|error| PriceError(error.to_string()))?;
        match file.prices.iter().find(|(_, price)| !price.is_valid_price()) {
            Some((model, _)) => Err(PriceError(format!("the price of {model:?} is no amount of dollars"))),
            None => Ok(file.prices),
        }
    }

    /// Adds a table in TOML. Its entries replace those of the same name. After an error nothing was added.
    pub fn add_toml(&mut self, toml: &str) -> Result<(), PriceError> {
        self.add_prices(&PriceTable::parse_toml(toml)?);
        Ok(())
    }

    /// Adds entries, which replace those of the same name. Invalid amounts are left out: the entries may come from an
    /// edited file.
    pub fn add_prices(&mut self, prices: &ModelPrices) {
        let usable = prices.iter().filter(|(_, price)| price.is_valid_price());
        self.prices.extend(usable.map(|(model, price)| (model.clone(), *price)));
    }

    /// Returns the price of a model: that of the longest entry that covers its name. `None` if no entry does: an
    /// unknown price is reported as unknown, never as 0.
    pub fn find_price(&self, model: &str) -> Option<TokenPrice> {
        // Routers such as OpenRouter write `maker/model`.
        let short = model.rsplit('/').next().unwrap_or(model);
        [model, short].iter().find_map(|name| {
            let entries = self.prices.iter().filter(|(entry, _)| is_version_of(name, entry));
            entries.max_by_key(|(entry, _)| entry.len()).map(|(_, price)| *price)
        })
    }
}

/// `gpt-4o-2024-08-06` is a version of `gpt-4o`; `gpt-4o-mini` is a model of its own.
fn is_version_of(name: &str, entry: &str) -> bool {
    let Some(rest) = name.strip_prefix(entry) else { return false };
    let Some(rest) = rest.strip_prefix(['-', '@', ':']) else { return rest.is_empty() };
    // A date or a build number; one or two digits are another model.
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    rest == "latest" || digits >= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_versions_and_leaves_other_models_alone() {
        let table = PriceTable::default();
        let price = table.find_price("gpt-4o").expect("a price");
        assert_eq!(table.find_price("gpt-4o-2024-08-06"), Some(price));
        assert_eq!(table.find_price("openai/gpt-4o"), Some(price));
        assert_ne!(table.find_price("gpt-4o-mini"), Some(price));
        assert_eq!(table.find_price("gpt-4o-audio-preview"), None);
        assert_eq!(table.find_price("my-own-model"), None);
        assert!(table.find_price("claude-sonnet-4-5-20250929").is_some());
        // Another number is another model, with a price of its own that may not be known.
        assert_eq!(table.find_price("gpt-5.99"), None);
        assert_eq!(table.find_price("claude-opus-5-99"), None);
        assert_ne!(table.find_price("gpt-5.4"), table.find_price("gpt-5"));
    }

    #[test]
    fn cached_input_costs_less() {
        let price = TokenPrice { input: 2.0, output: 10.0, cached_input: Some(1.0) };
        let usage = CompletionUsage { prompt: 1_000_000, completion: 100_000, cached_prompt: 500_000 };
        assert!((price.cost_of_usage(usage) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_users_table_wins_and_nonsense_is_refused() {
        let mut table = PriceTable::default();
        table.add_toml("[\"my-own-model\"]\ninput = 1\noutput = 2").expect("a table");
        assert_eq!(table.find_price("my-own-model").map(|price| price.output), Some(2.0));
        assert!(table.add_toml("[m]\ninput = -1\noutput = 2").is_err());
        assert!(table.add_toml("[m]\ninput = 1").is_err());
        assert!(table.add_toml("[m]\ninput = 1\noutput = 2\nimput = 3").is_err());
    }
}
