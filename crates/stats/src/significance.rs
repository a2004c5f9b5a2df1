//! p-values of exact tests, and the correction for several tests at once.

use crate::distributions::{binomial_cdf, binomial_pmf};

/// The two-sided exact sign test, which other tests are checked against.
#[cfg(test)]
pub(crate) fn sign_test(better: u64, worse: u64) -> f64 {
    (2.0 * binomial_cdf(better.min(worse), better + worse, 0.5)).min(1.0)
}

/// McNemar's test with the mid-p value: the observed split counts half. Unlike the exact test it does not lose power to
/// the discreteness of few changes.
pub(crate) fn mcnemar_mid_p(better: u64, worse: u64) -> f64 {
    let changed = better + worse;
    if better == worse {
        return 1.0;
    }
    let fewer = better.min(worse);
    (2.0 * binomial_cdf(fewer, changed, 0.5) - binomial_pmf(fewer, changed, 0.5)).clamp(0.0, 1.0)
}

/// Holm's step-down correction. The family-wise error rate of the corrected values is at most that of a single test,
/// whatever the dependence between the tests. The result keeps the order of the input.
pub(crate) fn holm_correction(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut floor = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        // Corrected values must not decrease along the order of the raw ones.
        floor = floor.max(p_values[at] * (p_values.len() - rank) as f64).min(1.0);
        corrected[at] = floor;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_test_counts_coins() {
        assert_eq!(sign_test(0, 0), 1.0);
        assert!((sign_test(9, 1) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((sign_test(1, 9) - sign_test(9, 1)).abs() < 1e-15);
        assert_eq!(sign_test(5, 5), 1.0);
        assert!(sign_test(5_000, 0) < 1e-300 || sign_test(5_000, 0) == 0.0);
    }

    #[test]
    fn mid_p_counts_the_observed_split_half() {
        assert!((mcnemar_mid_p(9, 1) - 12.0 / 1024.0).abs() < 1e-12);
        assert_eq!((mcnemar_mid_p(0, 0), mcnemar_mid_p(7, 7)), (1.0, 1.0));
        for (better, worse) in [(3, 8), (0, 5), (12, 30)] {
            assert_eq!(mcnemar_mid_p(better, worse), mcnemar_mid_p(worse, better));
            assert!(mcnemar_mid_p(better, worse) < sign_test(better, worse));
        }
    }

    #[test]
    fn corrected_values_keep_the_order_of_the_raw_ones() {
        assert_eq!(holm_correction(&[0.01]), [0.01]);
        assert_eq!(holm_correction(&[0.02, 0.02, 0.9]), [0.06, 0.06, 0.9]);
        assert_eq!(holm_correction(&[0.03, 0.01, 0.02]), [0.04, 0.03, 0.04]);
        assert_eq!(holm_correction(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm_correction(&[]).is_empty());
    }
}
