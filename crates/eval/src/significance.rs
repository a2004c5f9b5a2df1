//! p-values: of one test, and corrected for several tests at once.

use std::f64::consts::{FRAC_2_PI, SQRT_2};

/// From this many degrees of freedom on, Student's t distribution is replaced by the normal one. It also bounds the
/// loop below.
const MANY: f64 = 10_000.0;

/// The two-sided p-value of a t statistic. `freedom` may be infinite, which means the normal distribution. Fractional
/// degrees of freedom are rounded down, which makes the p-value larger.
pub(crate) fn two_sided(deviations: f64, freedom: f64) -> f64 {
    let deviations = deviations.abs();
    if freedom >= MANY { of_normal(deviations) } else { of_student(deviations, freedom.max(1.0) as u32) }
}

/// The complementary error function, `erfc(x / sqrt(2))`.
fn of_normal(deviations: f64) -> f64 {
    // Abramowitz and Stegun's 7.1.26; its error is below 2e-7, which is less than a correction cares for.
    let x = deviations / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = factors.into_iter().fold(0.0, |sum, factor| (sum + factor) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
}

/// The finite sums of Student's t distribution for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn of_student(deviations: f64, freedom: u32) -> f64 {
    let angle = (deviations / f64::from(freedom).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    let mut at = if is_odd { 3 } else { 2 };
    while at <= freedom {
        sum += term;
        term *= cosine * cosine * f64::from(at - 1) / f64::from(at);
        at += 2;
    }
    let inside = if is_odd { FRAC_2_PI * (angle + sine * sum) } else { sine * sum };
    (1.0 - inside).clamp(0.0, 1.0)
}

/// Holm's step-down correction. The family-wise error rate of the corrected values is at most that of a single test,
/// whatever the dependence between the tests. The result keeps the order of the input.
pub(crate) fn holm_correction(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut corrected = vec![1.0; chances.len()];
    let mut least = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        // Corrected values must not decrease along the order of the raw ones.
        least = least.max(chances[at] * (chances.len() - rank) as f64).min(1.0);
        corrected[at] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::{NORMAL_QUANTILE, student_quantile};

    #[test]
    fn the_tails_are_those_of_the_tables() {
        for freedom in 1..=30 {
            let freedom = f64::from(freedom);
            let found = two_sided(student_quantile(freedom), freedom);
            assert!((found - 0.05).abs() < 1e-4, "{freedom}: {found}");
        }
        // 99 % of both sides.
        for (deviations, freedom) in [(63.657, 1.0), (4.032, 5.0), (3.169, 10.0), (2.787, 25.0), (2.626, 100.0)] {
            assert!((two_sided(-deviations, freedom) - 0.01).abs() < 1e-4, "{freedom}");
        }
        for freedom in [1.0, 2.0, 7.0, 9_999.0, f64::INFINITY] {
            assert!((two_sided(0.0, freedom) - 1.0).abs() < 1e-6 && two_sided(1e9, freedom) < 1e-6);
        }
        assert!((two_sided(NORMAL_QUANTILE, f64::INFINITY) - 0.05).abs() < 1e-6);
        assert!((two_sided(2.5, MANY - 1.0) - two_sided(2.5, MANY)).abs() < 1e-4);
    }

    #[test]
    fn a_later_one_is_never_surer_than_one_before_it() {
        assert_eq!(holm_correction(&[0.01]), [0.01]);
        assert_eq!(holm_correction(&[0.02, 0.02, 0.9]), [0.06, 0.06, 0.9]);
        assert_eq!(holm_correction(&[0.03, 0.01, 0.02]), [0.04, 0.03, 0.04]);
        assert_eq!(holm_correction(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm_correction(&[]).is_empty());
    }
}
