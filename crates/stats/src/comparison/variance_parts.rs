//! The variance of a task's difference, split by the law of total variance: how much tasks differ from each other, and
//! how much trials of one task do. Only the second part shrinks with more trials.

use crate::distributions::chi_square_quantile;

/// Confidence level of [`TrialVariance::upper_variance`]. It is high because pilots that underestimate the variance
/// between tasks would recommend trials that cannot decide.
const CONFIDENCE: f64 = 0.99;

/// The part of the variance that comes from trials.
#[derive(Clone, Debug)]
pub(super) struct TrialVariance {
    /// The variance of the difference of one trial of each version.
    pub(super) of_single_trial: f64,
    /// The mean over tasks of the variance of a task's difference, at the present numbers of trials.
    pub(super) present: f64,
    pub(super) freedom: f64,
}

impl TrialVariance {
    /// Adds the variance of the other version. Satterthwaite's approximation of the degrees of freedom.
    pub(super) fn add(&self, other: &TrialVariance) -> TrialVariance {
        let present = self.present + other.present;
        let spread = self.present.powi(2) / self.freedom + other.present.powi(2) / other.freedom;
        let freedom = if spread > 0.0 { present * present / spread } else { self.freedom + other.freedom };
        TrialVariance { of_single_trial: self.of_single_trial + other.of_single_trial, present, freedom }
    }

    /// An upper confidence bound for the variance of a task's difference with another number of trials of each version:
    /// the present variance less the trials' part at present, plus that part at `trials`. The bound for such a
    /// difference of variances is the modified large-sample one (Ting, Burdick, Graybill, Jeyaratnam and Lu 1990).
    /// `variance` and `freedom` are those of the present estimate.
    pub(super) fn upper_variance(&self, variance: f64, freedom: f64, trials: f64) -> f64 {
        let shrunk = self.present - self.of_single_trial / trials;
        let total_factor = freedom / chi_square_quantile(1.0 - CONFIDENCE, freedom) - 1.0;
        let trial_factor = 1.0 - self.freedom / chi_square_quantile(CONFIDENCE, self.freedom);
        let point = variance - shrunk;
        (point + (total_factor * variance).hypot(trial_factor * shrunk)).max(self.of_single_trial / trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(random: &mut fastrand::Rng) -> f64 {
        (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
    }

    /// Draws tasks and trials with known variances. The bound must hold in nearly all rounds, and not be absurdly far.
    #[test]
    fn the_bound_covers_the_true_variance() {
        let mut random = fastrand::Rng::with_seed(31);
        for (tasks, trials, between, of_trial) in
            [(20, 5, 0.0, 0.4), (40, 5, 0.03, 0.4), (40, 2, 0.1, 0.2), (100, 3, 0.01, 0.4)]
        {
            let rounds = 1_500;
            let (mut covered, mut total) = (0, 0.0);
            let other_trials = 4.0 * f64::from(trials);
            let truth = between + of_trial / other_trials;
            for _ in 0..rounds {
                let mut differences = Vec::new();
                let mut squares = 0.0;
                for _ in 0..tasks {
                    let center = between.sqrt() * normal(&mut random);
                    let values: Vec<f64> =
                        (0..trials).map(|_| center + of_trial.sqrt() * normal(&mut random)).collect();
                    let mean = values.iter().sum::<f64>() / f64::from(trials);
                    squares += values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
                    differences.push(mean);
                }
                let mean = differences.iter().sum::<f64>() / f64::from(tasks);
                let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / f64::from(tasks - 1);
                let freedom = f64::from(tasks * (trials - 1));
                let of_single_trial = squares / freedom;
                let parts = TrialVariance { of_single_trial, present: of_single_trial / f64::from(trials), freedom };
                let upper = parts.upper_variance(variance, f64::from(tasks) - 1.0, other_trials);
                covered += u32::from(upper >= truth);
                total += upper;
            }
            let share = f64::from(covered) / f64::from(rounds);
            let mean = total / f64::from(rounds);
            assert!(share >= CONFIDENCE - 0.01, "{tasks} {trials} {between}: {share}");
            assert!(mean < 3.0 * (between + of_trial / f64::from(trials)), "{tasks} {trials} {between}: {mean}");
        }
    }

    #[test]
    fn versions_add_up() {
        let part = |of_single_trial, present, freedom| TrialVariance { of_single_trial, present, freedom };
        let sum = part(0.2, 0.04, 80.0).add(&part(0.2, 0.04, 80.0));
        assert!((sum.of_single_trial - 0.4).abs() < 1e-12 && (sum.present - 0.08).abs() < 1e-12);
        assert!((sum.freedom - 160.0).abs() < 1e-9, "{sum:?}");
        // A version that never varies says nothing about the other.
        assert!((part(0.0, 0.0, 80.0).add(&part(0.2, 0.04, 20.0)).freedom - 20.0).abs() < 1e-9);
        assert_eq!(part(0.0, 0.0, 80.0).add(&part(0.0, 0.0, 20.0)).freedom, 100.0);
    }
}
