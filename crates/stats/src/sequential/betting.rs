//! Betting for runs with shares from 0 to 1, without replacement (Waudby-Smith and Ramdas 2024).
//!
//! A gambler bets on each run against the hypothesis that the mean of the population is at the bar. Under the
//! hypothesis the bets are fair or worse, so the capital ever grows to 1/alpha with probability alpha at most. The
//! rest of the population must have the mean `(N m - S) / (N - t)` if the whole has the mean `m`, which accounts for
//! sampling without replacement. A run is one observation, however many steps it has and however alike they are.

use serde::{Deserialize, Serialize};

/// Bets as parts of the largest one that cannot lose everything. The capital is split evenly between gamblers with these
/// parts, so none has to be chosen beforehand.
const BET_PARTS: [f64; 8] = [0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.65, 0.85];

/// Returns the logarithm of the growth factor of the capital of the gambler with `part` that bets on `value` above
/// `mean`.
fn ln_growth(part: f64, value: f64, mean: f64) -> f64 {
    (part * (value - mean) / mean).ln_1p()
}

/// The logarithm of the mean of numbers that are given by their logarithms.
fn ln_mean(logarithms: &[f64]) -> f64 {
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    let sum: f64 = logarithms.iter().map(|logarithm| (logarithm - largest).exp()).sum();
    largest + (sum / logarithms.len() as f64).ln()
}

/// Logarithms of the capital of all gamblers, relative to the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BettingCapital {
    logarithms: [f64; BET_PARTS.len()],
}

impl BettingCapital {
    /// Bets that `value` exceeds `mean`, the mean of the runs that are left under the hypothesis.
    pub(super) fn bet_above(&mut self, value: f64, mean: f64) {
        if mean <= 0.0 {
            return;
        }
        for (logarithm, part) in self.logarithms.iter_mut().zip(BET_PARTS) {
            *logarithm += ln_growth(part, value, mean);
        }
    }

    /// Bets that `value` falls below `mean`.
    pub(super) fn bet_below(&mut self, value: f64, mean: f64) {
        self.bet_above(1.0 - value, 1.0 - mean);
    }

    /// Whether the capital is 1/alpha times what it was.
    pub(super) fn is_significant(&self, alpha: f64) -> bool {
        ln_mean(&self.logarithms) >= -alpha.ln()
    }
}

/// Gamblers that begin at every value of an endless stream, each with a part of the capital 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RestartingCapital {
    /// Values so far.
    count: u64,
    /// By size of the bets, the logarithm of the capital of all gamblers who began.
    logarithms: [f64; BET_PARTS.len()],
}

impl Default for RestartingCapital {
    fn default() -> RestartingCapital {
        // Not minus infinity, which JSON cannot hold.
        RestartingCapital { count: 0, logarithms: [f64::MIN; BET_PARTS.len()] }
    }
}

impl RestartingCapital {
    /// Returns the part of the capital left for gamblers who begin after `count` values.
    fn unspent(count: u64) -> f64 {
        1.0 / (1.0 + (count as f64).ln_1p())
    }

    /// A gambler begins, and all bet that `value` exceeds `mean`, which is between 0 and 1.
    pub(super) fn bet_above(&mut self, value: f64, mean: f64) {
        let ln_start = (RestartingCapital::unspent(self.count) - RestartingCapital::unspent(self.count + 1)).ln();
        self.count += 1;
        for (logarithm, part) in self.logarithms.iter_mut().zip(BET_PARTS) {
            let (high, low) = (logarithm.max(ln_start), logarithm.min(ln_start));
            *logarithm = high + (low - high).exp().ln_1p() + ln_growth(part, value, mean);
        }
    }

    /// Whether the capital, with what is unspent, reached 1/alpha.
    pub(super) fn is_significant(&self, alpha: f64) -> bool {
        // In logarithms, since the capital of a clear case exceeds every number.
        let (begun, unspent) = (ln_mean(&self.logarithms), RestartingCapital::unspent(self.count));
        let target = -alpha.ln();
        begun >= target || begun.exp() + unspent >= target.exp()
    }
}
