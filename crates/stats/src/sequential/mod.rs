//! Gates that are decided before all runs are judged, and monitors of streams of scores.
//!
//! The runs of an evaluation are a finite population, judged in random order ([`sampling_order`]). After each run the
//! gate may be decided, with a probability of error of at most `alpha` over the whole sequence, however often it is
//! looked at. Once all runs are judged the decision is exact.

mod betting;
mod confidence_sequence;
mod prior_posterior;
mod sampling_order;
mod score_monitor;
mod sequential_error;
#[cfg(test)]
mod tests;

pub use sampling_order::sampling_order;
pub use score_monitor::{MonitorDirection, MonitorSettings, ScoreMonitor, WindowInterval};
pub use sequential_error::SequentialError;

use betting::BettingCapital;
use prior_posterior::{BarMixture, BinaryDraws};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tolerance of comparisons with the bar, since sums of shares are rounded.
const ROUNDING_TOLERANCE: f64 = 1e-9;

/// The part of `alpha` that decisions use. If the mean is at the bar, the error of a martingale reaches its level.
/// The rest of `alpha` is a reserve that keeps the error below `alpha` there, too; it costs few runs.
const DECISION_PART: f64 = 2.0 / 3.0;

/// On which side of the bar the mean of the population is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateDecision {
    Undecided,
    /// At the bar or above: the gate passes.
    Above,
    Below,
}

/// The settings of a sequential gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateSettings {
    /// Number of runs that can be judged.
    pub population: u64,
    /// The gate passes if the mean of the population is at least this.
    pub bar: f64,
    /// The probability of a wrong decision, at most.
    pub alpha: f64,
    /// Indifference zone: if the mean is closer to the bar than this, either decision is accepted. Decisions are
    /// sooner, and only means outside of the zone keep the bound on errors.
    pub margin: f64,
    pub values: GateValues,
}

/// The kind of values that runs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateValues {
    /// 0 or 1: the prior-posterior-ratio martingale.
    Binary,
    /// Any share from 0 to 1: betting.
    Share,
}

/// A gate that may be evaluated after every run.
#[derive(Clone, Debug, PartialEq)]
pub struct SequentialGate {
    settings: GateSettings,
    observed: u64,
    sum: f64,
    /// Shares of right runs above the zone, and of wrong runs where the share of right ones is below it.
    mixtures: [BarMixture; 2],
    /// Capital of bets that the mean is above, and below.
    bets: [BettingCapital; 2],
    decision: GateDecision,
}

impl SequentialGate {
    pub fn new(settings: GateSettings) -> Result<SequentialGate, SequentialError> {
        let GateSettings { population, bar, alpha, margin, .. } = settings;
        let invalid = |name, value, hint| Err(SequentialError::InvalidSetting { name, value, hint });
        if population == 0 {
            return invalid("population", 0.0, "it needs at least one run");
        }
        if !(bar > 0.0 && bar <= 1.0) {
            return invalid("bar", bar, "it must be above 0 and at most 1");
        }
        if !(alpha > 0.0 && alpha < 0.5) {
            return invalid("alpha", alpha, "it must be between 0 and 0.5");
        }
        // The zone must leave shares on both sides, or one of the decisions would never be wrong.
        if margin != 0.0 && !(margin > 0.0 && margin < bar.min(1.0 - bar)) {
            return invalid("margin", margin, "it must be smaller than the distances of the bar from 0 and from 1");
        }
        let mixtures = [BarMixture::above(bar - margin), BarMixture::above(1.0 - bar - margin)];
        let bets = [BettingCapital::default(); 2];
        Ok(SequentialGate { settings, observed: 0, sum: 0.0, mixtures, bets, decision: GateDecision::Undecided })
    }

    /// Takes the value of the next run in random order. A decision stands, whatever comes after it, until all runs are
    /// observed: then the decision is the exact one.
    pub fn observe(&mut self, value: f64) -> Result<GateDecision, SequentialError> {
        let GateSettings { population, bar, margin, values, .. } = self.settings;
        let is_valid = match values {
            GateValues::Binary => [0.0, 1.0].contains(&value),
            GateValues::Share => (0.0..=1.0).contains(&value),
        };
        if !is_valid {
            let expected = if values == GateValues::Binary { "0 or 1" } else { "share from 0 to 1" };
            return Err(SequentialError::InvalidValue { value, expected });
        }
        if self.observed >= population {
            return Err(SequentialError::PopulationExhausted { population });
        }
        if values == GateValues::Share {
            // The mean of the remaining runs if the mean of the population is at the edge of the zone.
            let left = (population - self.observed) as f64;
            let mean_left = |mean: f64| (population as f64 * mean - self.sum) / left;
            let (above, below) = (mean_left(bar - margin), mean_left(bar + margin));
            self.bets[0].bet_above(value, above);
            self.bets[1].bet_below(value, below);
        }
        self.observed += 1;
        self.sum += value;
        if self.observed == population || self.decision == GateDecision::Undecided {
            self.decision = self.decide();
        }
        Ok(self.decision)
    }

    /// Counts a run without a value, such as one that could not be judged: it leaves the population.
    pub fn skip_run(&mut self) -> Result<GateDecision, SequentialError> {
        let population = self.settings.population;
        if self.observed >= population {
            return Err(SequentialError::PopulationExhausted { population });
        }
        self.settings.population -= 1;
        if self.observed == self.settings.population && self.observed > 0 {
            self.decision = self.decide();
        }
        Ok(self.decision)
    }

    pub fn decision(&self) -> GateDecision {
        self.decision
    }

    /// Runs with a value so far.
    pub fn observed(&self) -> u64 {
        self.observed
    }

    /// Mean of the observed runs; `None` before the first.
    pub fn estimate(&self) -> Option<f64> {
        (self.observed > 0).then(|| self.sum / self.observed as f64)
    }

    fn decide(&self) -> GateDecision {
        let GateSettings { population, bar, .. } = self.settings;
        let needed = population as f64 * bar - ROUNDING_TOLERANCE * population as f64;
        let left = (population - self.observed) as f64;
        if self.sum >= needed {
            return GateDecision::Above;
        }
        if self.sum + left < needed {
            return GateDecision::Below;
        }
        // Inside an indifference zone both decisions can be possible; the estimate decides which one is nearer.
        let is_high = self.sum >= bar * self.observed as f64;
        match is_high {
            true if self.excludes_below() => GateDecision::Above,
            false if self.excludes_above() => GateDecision::Below,
            _ => GateDecision::Undecided,
        }
    }

    /// Whether all means below the bar, or below the zone, are excluded.
    fn excludes_below(&self) -> bool {
        let GateSettings { bar, alpha, margin, values, .. } = self.settings;
        match values {
            GateValues::Share => self.bets[0].is_significant(DECISION_PART * alpha),
            GateValues::Binary => match self.count_for_share(bar - margin).checked_sub(1) {
                Some(count) => self.draws().excludes_up_to(count, &self.mixtures[0], DECISION_PART * alpha),
                None => true,
            },
        }
    }

    /// Whether all means at the bar or above it, or above the zone, are excluded.
    fn excludes_above(&self) -> bool {
        let GateSettings { bar, alpha, margin, values, .. } = self.settings;
        match values {
            GateValues::Share => self.bets[1].is_significant(DECISION_PART * alpha),
            GateValues::Binary => {
                self.draws().excludes_from(self.count_for_share(bar + margin), &self.mixtures[1], DECISION_PART * alpha)
            }
        }
    }

    /// The smallest number of right runs that is a share of at least `share`.
    fn count_for_share(&self, share: f64) -> u64 {
        let population = self.settings.population as f64;
        (population * share - ROUNDING_TOLERANCE * population).ceil().max(0.0) as u64
    }

    fn draws(&self) -> BinaryDraws {
        BinaryDraws { population: self.settings.population, observed: self.observed, right: self.sum as u64 }
    }
}
