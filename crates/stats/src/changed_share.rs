//! Intervals of the difference of two shares of the same units. Only units that changed carry information.

use crate::distributions::{binomial_pmf, normal_quantile, regularized_beta};
use crate::interval::{ConfidenceInterval, wilson_interval};

/// How many of `all` units got better and worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedCounts {
    pub(crate) better: u64,
    pub(crate) worse: u64,
    pub(crate) all: u64,
}

/// The interval of the difference of shares. It combines the binomial interval of how the changes split with Wilson's
/// interval of how many changed, and excludes 0 exactly where the test of the split is significant: the exact sign
/// test, or McNemar's test with the mid-p value if `is_mid_p`. At least one unit must have changed.
pub(crate) fn changed_share_interval(counts: ChangedCounts, alpha: f64, is_mid_p: bool) -> ConfidenceInterval {
    let ChangedCounts { better, worse, all } = counts;
    if better < worse {
        let mirrored = ChangedCounts { better: worse, worse: better, all };
        let ConfidenceInterval { low, high } = changed_share_interval(mirrored, alpha, is_mid_p);
        return ConfidenceInterval { low: -high, high: -low };
    }
    let changed = better + worse;
    let share = changed as f64 / all as f64;
    // Maps the share of improvements among the changes to a direction from -1 (all worse) to 1 (all better).
    let signed = |share: f64| 2.0 * share - 1.0;
    let split = signed(better as f64 / changed as f64);
    let ConfidenceInterval { low, high } = binomial_interval(better, changed, alpha, is_mid_p);
    // The share of units that change is an estimate, too. If few changed, the true share may be larger.
    let changed_interval = wilson_interval(share, all as f64, normal_quantile(alpha));
    let likely = f64::midpoint(changed_interval.low, changed_interval.high);
    let outwards = (likely * (signed(high) - split)).hypot(split * (changed_interval.high - share));
    let inwards = (likely * (split - signed(low))).hypot(split * (share - changed_interval.low));
    let value = share * split;
    if better == worse {
        // The same in both directions, to the last bit.
        let half = inwards.max(outwards).min(1.0);
        return ConfidenceInterval { low: -half, high: half };
    }
    ConfidenceInterval {
        // The split alone decides on which side of 0 the interval ends, so that interval and test agree.
        low: if low > 0.5 { changed_interval.low * signed(low) } else { (value - inwards).clamp(-1.0, 0.0) },
        high: (value + outwards).min(1.0),
    }
}

/// Clopper and Pearson's exact interval of a binomial share, or its mid-p form, by bisection.
fn binomial_interval(good: u64, all: u64, alpha: f64, is_mid_p: bool) -> ConfidenceInterval {
    // The largest share at which `good` or more successes have a probability of half the level. 60 halvings reach the
    // precision of `f64`.
    let lower = |good: u64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let share: f64 = f64::midpoint(low, high);
            let mut tail = regularized_beta(share, good as f64, (all - good + 1) as f64);
            if is_mid_p {
                tail -= 0.5 * binomial_pmf(good, all, share);
            }
            if tail < alpha / 2.0 { low = share } else { high = share }
        }
        low
    };
    ConfidenceInterval {
        low: if good == 0 { 0.0 } else { lower(good) },
        high: if good == all { 1.0 } else { 1.0 - lower(all - good) },
    }
}

/// The largest share of changed units that is compatible with seeing none in `count`: the rule of three in its exact
/// form.
pub(crate) fn max_unseen_share(count: f64, alpha: f64) -> f64 {
    1.0 - (alpha / 2.0).powf(1.0 / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::significance::{mcnemar_mid_p, sign_test};

    #[test]
    fn the_interval_excludes_zero_where_the_test_is_significant() {
        for all in [30, 300] {
            for (better, worse) in (0..14).flat_map(|better| (0..14).map(move |worse| (better, worse))).skip(1) {
                for alpha in [0.05, 0.01] {
                    for (is_mid_p, p_value) in [(false, sign_test(better, worse)), (true, mcnemar_mid_p(better, worse))]
                    {
                        let counts = ChangedCounts { better, worse, all };
                        let ConfidenceInterval { low, high } = changed_share_interval(counts, alpha, is_mid_p);
                        let value = (better as f64 - worse as f64) / all as f64;
                        assert!(low <= value + 1e-12 && value <= high + 1e-12, "{counts:?}: {low} {high}");
                        assert_eq!(low > 0.0 || high < 0.0, p_value < alpha, "{counts:?}: {low} {high} {p_value}");
                        let mirrored = ChangedCounts { better: worse, worse: better, all };
                        let swapped = changed_share_interval(mirrored, alpha, is_mid_p);
                        assert_eq!((swapped.low, swapped.high), (-high, -low), "{counts:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn binomial_intervals_are_those_of_the_tables() {
        let found = binomial_interval(8, 10, 0.05, false);
        assert!((found.low - 0.443_905).abs() < 1e-5 && (found.high - 0.974_789).abs() < 1e-5, "{found:?}");
        let all = binomial_interval(10, 10, 0.05, false);
        assert!((all.low - 0.025_f64.powf(0.1)).abs() < 1e-9 && all.high == 1.0);
        assert!((max_unseen_share(100.0, 0.05) - 0.0362).abs() < 1e-3);
    }
}
