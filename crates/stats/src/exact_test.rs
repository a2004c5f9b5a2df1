//! Fisher's exact test of two shares.

/// The one-sided p-value of `changed` of `asked` against `first_changed` of `first_asked`: the probability of a split that
/// is at least as uneven if both have the same share. 1 without cases.
pub fn fisher_exact_greater(changed: u64, asked: u64, first_changed: u64, first_asked: u64) -> f64 {
    let (changed, first_changed) = (changed.min(asked), first_changed.min(first_asked));
    let all_changed = changed + first_changed;
    let ln_all = ln_choose(asked + first_asked, all_changed);
    let split = |count: u64| (ln_choose(asked, count) + ln_choose(first_asked, all_changed - count) - ln_all).exp();
    let most = asked.min(all_changed);
    (changed..=most).map(split).sum::<f64>().min(1.0)
}

/// The logarithm of the number of ways to choose `some` of `all`; minus infinity if there are fewer.
fn ln_choose(all: u64, some: u64) -> f64 {
    if some > all {
        return f64::NEG_INFINITY;
    }
    let some = some.min(all - some);
    (0..some).map(|at| ((all - at) as f64 / (at + 1) as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_the_hypergeometric_distribution() {
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        // The lady tasting tea: 3 of 4 against 1 of 4 is 17/70.
        near(fisher_exact_greater(3, 4, 1, 4), 17.0 / 70.0);
        near(fisher_exact_greater(4, 4, 0, 4), 1.0 / 70.0);
        near(fisher_exact_greater(0, 20, 3, 20), 1.0);
        near(fisher_exact_greater(0, 0, 0, 0), 1.0);
        // 7 of 20 against none: C(20, 7) / C(40, 7).
        near(fisher_exact_greater(7, 20, 0, 20), 77_520.0 / 18_643_560.0);
    }

    #[test]
    fn equal_shares_are_rarely_told_apart() {
        let mut random = fastrand::Rng::with_seed(1);
        let count = |random: &mut fastrand::Rng| (0..20).filter(|_| random.f64() < 0.1).count() as u64;
        let mut alarms = 0;
        for _ in 0..5_000 {
            let (first, later) = (count(&mut random), count(&mut random));
            alarms += u32::from(fisher_exact_greater(later, 20, first, 20) < 0.01);
        }
        assert!(alarms <= 50, "{alarms} of 5,000");
    }
}
