//! A confidence sequence for the mean of values from 0 to 1: an interval that may be looked at after every value.
//!
//! The empirical-Bernstein sequence of Waudby-Smith and Ramdas (2024): each value gets a weight from the variance of the
//! values before it, and the interval holds for all times at once with the probability 1 - alpha.

use serde::{Deserialize, Serialize};

use crate::interval::ConfidenceInterval;

/// Weights above this would make the margin explode.
const MAX_WEIGHT: f64 = 0.5;

/// Sums over all values, of constant size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ConfidenceSequence {
    alpha: f64,
    count: u64,
    sum: f64,
    /// Sum of the squared distances from the mean before each value.
    squares: f64,
    /// Sums of the weights, of the weighted values, and of the weighted errors.
    weights: f64,
    weighted: f64,
    errors: f64,
}

impl ConfidenceSequence {
    pub(super) fn new(alpha: f64) -> ConfidenceSequence {
        ConfidenceSequence { alpha, count: 0, sum: 0.0, squares: 0.0, weights: 0.0, weighted: 0.0, errors: 0.0 }
    }

    pub(super) fn add(&mut self, value: f64) {
        // Everything that the weight depends on comes from earlier values.
        let next = self.count as f64 + 1.0;
        let mean_before = (0.5 + self.sum) / next;
        let variance_before = (0.25 + self.squares) / next;
        let weight = (2.0 * (2.0 / self.alpha).ln() / (variance_before * next * (1.0 + next).ln())).sqrt();
        let weight = weight.min(MAX_WEIGHT);
        self.weights += weight;
        self.weighted += weight * value;
        self.errors += (value - mean_before).powi(2) * (-(-weight).ln_1p() - weight);
        self.count += 1;
        self.sum += value;
        let mean_after = (0.5 + self.sum) / (next + 1.0);
        self.squares += (value - mean_after).powi(2);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The interval for the mean of all values so far; from 0 to 1 before the first.
    pub(super) fn interval(&self) -> ConfidenceInterval {
        if self.count == 0 {
            return ConfidenceInterval { low: 0.0, high: 1.0 };
        }
        let centre = self.weighted / self.weights;
        let margin = ((2.0 / self.alpha).ln() + self.errors) / self.weights;
        ConfidenceInterval { low: (centre - margin).clamp(0.0, 1.0), high: (centre + margin).clamp(0.0, 1.0) }
    }
}
