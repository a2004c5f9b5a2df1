//! The prior-posterior-ratio martingale for runs that are right or wrong (Waudby-Smith and Ramdas 2020).
//!
//! For each possible number `k` of right runs in the population, the ratio of how probable the observed runs are under
//! a fixed mixture and under `k` is a martingale if `k` is the truth. By Ville's inequality it ever reaches 1/alpha with
//! probability alpha at most, so numbers whose ratio reached it are excluded, at any moment. The probability under `k`
//! is that of draws without replacement; it has a single peak in `k`. So all numbers on one side of the bar are excluded
//! if the one next to the bar is, and the peak is on the other side.
//!
//! The mixture is a Beta distribution around the bar, cut off at the bar: evidence against "below" is gathered with
//! shares above only, and the other way round.

use crate::distributions::{ln_beta, ln_gamma, regularized_beta};

/// Weight of the mixture as a number of observations. A larger weight concentrates it at the bar, which finds small
/// distances sooner and large ones later.
const MIXTURE_WEIGHT: f64 = 12.0;

/// Shares above a bar, weighted by a Beta distribution around the bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BarMixture {
    bar: f64,
    /// Parameters of the Beta distribution.
    a: f64,
    b: f64,
    /// Logarithm of the probability of the Beta distribution above the bar.
    ln_above: f64,
}

impl BarMixture {
    pub(super) fn above(bar: f64) -> BarMixture {
        let (a, b) = (MIXTURE_WEIGHT * bar, MIXTURE_WEIGHT * (1.0 - bar));
        BarMixture { bar, a, b, ln_above: ln_probability_above(bar, a, b) }
    }

    /// Returns the logarithm of the probability of a sequence under the mixture; `None` if it is below `floor`.
    fn ln_probability(&self, draws: BinaryDraws, floor: f64) -> Option<f64> {
        let BarMixture { bar, a, b, ln_above } = *self;
        let (right, wrong) = (draws.right as f64, (draws.observed - draws.right) as f64);
        // Computed without the last factor, which is at most 1 and the most expensive.
        let bound = ln_beta(a + right, b + wrong) - ln_beta(a, b) - ln_above;
        if bound < floor {
            return None;
        }
        Some(bound + ln_probability_above(bar, a + right, b + wrong)).filter(|found| *found >= floor)
    }
}

/// Logarithm of the probability that a Beta variable exceeds `bar`.
fn ln_probability_above(bar: f64, a: f64, b: f64) -> f64 {
    regularized_beta(1.0 - bar, b, a).max(f64::MIN_POSITIVE).ln()
}

/// Observed runs, and the population that they are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BinaryDraws {
    pub(super) population: u64,
    pub(super) observed: u64,
    pub(super) right: u64,
}

impl BinaryDraws {
    /// Whether all numbers of right runs up to `count` are excluded.
    pub(super) fn excludes_up_to(self, count: u64, mixture: &BarMixture, alpha: f64) -> bool {
        if count < self.right {
            return true;
        }
        let is_beyond_peak = (count as f64) * (self.observed as f64) < self.right as f64 * self.population as f64;
        is_beyond_peak && mixture.ln_probability(self, self.ln_likelihood(count) - alpha.ln()).is_some()
    }

    /// Whether all numbers of right runs from `count` on are excluded. The mixture is one of shares of wrong runs.
    pub(super) fn excludes_from(self, count: u64, mixture: &BarMixture, alpha: f64) -> bool {
        if count > self.population {
            return true;
        }
        let mirrored = BinaryDraws { right: self.observed - self.right, ..self };
        mirrored.excludes_up_to(self.population - count, mixture, alpha)
    }

    /// Logarithm of the probability of the observed sequence, if `count` of the population are right.
    fn ln_likelihood(self, count: u64) -> f64 {
        let wrong = self.observed - self.right;
        let others = self.population - count;
        if others < wrong {
            return f64::NEG_INFINITY;
        }
        ln_falling(count, self.right) + ln_falling(others, wrong) - ln_falling(self.population, self.observed)
    }
}

/// Logarithm of `from (from - 1) ... (from - count + 1)`.
fn ln_falling(from: u64, count: u64) -> f64 {
    ln_gamma(from as f64 + 1.0) - ln_gamma((from - count) as f64 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logarithm of the probability of each sequence, summed over all sequences of some length.
    fn total(length: u32, mut ln_probability: impl FnMut(BinaryDraws) -> f64) -> f64 {
        let draws = |bits: u32| BinaryDraws {
            population: 12,
            observed: u64::from(length),
            right: u64::from(bits.count_ones()),
        };
        (0..1_u32 << length).map(|bits| ln_probability(draws(bits)).exp()).sum()
    }

    #[test]
    fn probabilities_of_all_sequences_add_up_to_one() {
        for length in [1, 4, 8] {
            for bar in [0.2, 0.5, 0.9] {
                let mixture = BarMixture::above(bar);
                let mixture = total(length, |draws| mixture.ln_probability(draws, f64::MIN).expect("above any floor"));
                assert!((mixture - 1.0).abs() < 1e-9, "{length} {bar}: {mixture}");
            }
            for count in [0, 3, 12] {
                let likelihood =
                    total(
                        length,
                        |draws| {
                            if draws.right > count { f64::NEG_INFINITY } else { draws.ln_likelihood(count) }
                        },
                    );
                assert!((likelihood - 1.0).abs() < 1e-9, "{length} {count}: {likelihood}");
            }
        }
    }

    #[test]
    fn impossible_numbers_are_excluded() {
        let draws = BinaryDraws { population: 100, observed: 10, right: 9 };
        let mixture = BarMixture::above;
        assert!(draws.excludes_up_to(8, &mixture(0.09), 0.05) && draws.excludes_from(100, &mixture(0.005), 0.05));
        assert!(!draws.excludes_up_to(95, &mixture(0.95), 0.05) && !draws.excludes_from(85, &mixture(0.15), 0.05));
    }
}
