//! The sign-flip permutation test: if two versions do not differ, each task's difference is as likely the other way
//! round.
//!
//! Differences are integers, so equal sums are equal and swapping the versions gives the same p-value.

use crate::distributions::normal_tail;

use super::comparison_test::ComparisonTest;

/// Maximum number of changed tasks for which all assignments of signs are enumerated.
const MAX_ENUMERATED_TASKS: usize = 16;
/// Maximum number of changed tasks for which signs are sampled. Beyond it the normal approximation is more precise
/// than a sample.
const MAX_SAMPLED_TASKS: usize = 16_000;
/// Maximum and minimum number of drawn assignments of signs. The smallest p-value of a few hundred tasks is 1 in
/// 200,000, which survives the correction over 10,000 tests.
pub(super) const MAX_DRAWS: u32 = 199_999;
pub(super) const MIN_DRAWS: u32 = 19_999;
/// Bounds the time of a test: each lookup adds up the signed differences of eight tasks.
const MAX_LOOKUPS: u32 = 40_000_000;
/// Sampling ends early once this many draws were as extreme (Besag and Clifford 1991): the p-value is then known to a
/// few percent.
const MAX_EXTREME_DRAWS: u32 = 500;
const SEED: u64 = 0x6772_6164_7573_0001;

/// The two-sided p-value of the sum of `differences`, and how it was computed. At most `max_draws` assignments of signs are
/// drawn, but never fewer than [`MIN_DRAWS`].
pub(super) fn sign_flip_test(differences: &[i128], max_draws: u32) -> (f64, ComparisonTest) {
    // 2^20 units fewer keep the sums of millions of tasks within 64 bits. Tasks without a difference do not matter.
    let changed: Vec<i64> =
        differences.iter().filter(|d| **d != 0).map(|d| (*d as f64 / 1_048_576.0).round() as i64).collect();
    let observed = changed.iter().sum::<i64>().abs();
    // Each difference is rounded by half a unit at most.
    let threshold = observed - changed.len() as i64;
    if threshold <= 0 {
        return (1.0, ComparisonTest::SignFlipExact);
    }
    if changed.len() <= MAX_ENUMERATED_TASKS {
        return (enumerate_signs(&changed, threshold), ComparisonTest::SignFlipExact);
    }
    if changed.len() > MAX_SAMPLED_TASKS {
        let deviation = changed.iter().map(|d| (*d as f64).powi(2)).sum::<f64>().sqrt();
        return ((2.0 * normal_tail(observed as f64 / deviation)).min(1.0), ComparisonTest::SignFlipNormal);
    }
    (sample_signs(&changed, threshold, max_draws), ComparisonTest::SignFlipSampled)
}

/// All signs, in the order of a Gray code: from one assignment to the next a single sign changes. The sign of the last
/// difference is fixed, since flipping all signs gives the same absolute sum.
fn enumerate_signs(differences: &[i64], threshold: i64) -> f64 {
    let count = 1_u32 << (differences.len() - 1);
    let mut signs = vec![1; differences.len()];
    let mut sum: i64 = differences.iter().sum();
    let mut extreme = u32::from(sum.abs() >= threshold);
    for at in 1..count {
        let flipped = at.trailing_zeros() as usize;
        sum -= 2 * signs[flipped] * differences[flipped];
        signs[flipped] = -signs[flipped];
        extreme += u32::from(sum.abs() >= threshold);
    }
    f64::from(extreme) / f64::from(count)
}

/// Random signs from a fixed seed. Eight differences at a time: the sums of all their signs are looked up.
fn sample_signs(differences: &[i64], threshold: i64, max_draws: u32) -> f64 {
    let tables: Vec<[i64; 256]> = differences.chunks(8).map(tabulate_signs).collect();
    let draws = (MAX_LOOKUPS / tables.len() as u32).clamp(MIN_DRAWS, max_draws.clamp(MIN_DRAWS, MAX_DRAWS));
    let mut state = SEED;
    let mut extreme = 0;
    for draw in 1..=draws {
        let mut sum = 0;
        for eight in tables.chunks(8) {
            let mut bits = next_random(&mut state);
            for table in eight {
                sum += table[(bits & 0xff) as usize];
                bits >>= 8;
            }
        }
        extreme += u32::from(sum.abs() >= threshold);
        if extreme == MAX_EXTREME_DRAWS {
            return f64::from(extreme) / f64::from(draw);
        }
    }
    // The observed assignment counts as drawn, so the p-value is never 0 and the test is valid.
    f64::from(extreme + 1) / f64::from(draws + 1)
}

fn tabulate_signs(differences: &[i64]) -> [i64; 256] {
    let mut table = [0; 256];
    for (signs, sum) in table.iter_mut().enumerate() {
        let signed = |(at, difference): (usize, &i64)| if signs >> at & 1 == 1 { -difference } else { *difference };
        *sum = differences.iter().enumerate().map(signed).sum();
    }
    table
}

/// SplitMix64 (Steele, Lea and Flood 2014). Written out so that a p-value never changes with a library.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::significance::sign_test;

    const ONE: i128 = 1 << 60;

    #[test]
    fn equal_differences_are_a_sign_test() {
        for (better, worse) in [(6, 0), (7, 2), (1, 9), (5, 5), (0, 0), (16, 0)] {
            let mut differences = vec![ONE; better];
            differences.extend(vec![-ONE; worse]);
            differences.extend([0; 5]);
            let (p_value, method) = sign_flip_test(&differences, MAX_DRAWS);
            assert_eq!(method, ComparisonTest::SignFlipExact);
            assert!((p_value - sign_test(better as u64, worse as u64)).abs() < 1e-12, "{better} {worse}: {p_value}");
        }
    }

    #[test]
    fn sampling_agrees_with_enumeration_and_with_the_sign_test() {
        for (better, worse) in [(20, 10), (30, 8), (100, 70)] {
            let mut differences = vec![ONE; better];
            differences.extend(vec![-ONE; worse]);
            let (p_value, method) = sign_flip_test(&differences, MAX_DRAWS);
            let exact = sign_test(better as u64, worse as u64);
            assert_eq!(method, ComparisonTest::SignFlipSampled);
            assert!((p_value / exact - 1.0).abs() < 0.25, "{better} {worse}: {p_value} {exact}");
        }
        let uneven: Vec<i64> = (1..=14).map(|at| (at * at - 30) << 30).collect();
        let threshold = uneven.iter().sum::<i64>().abs() - 14;
        assert!((enumerate_signs(&uneven, threshold) - sample_signs(&uneven, threshold, MAX_DRAWS)).abs() < 0.01);
    }

    #[test]
    fn swapping_gives_the_same_p_value_and_certainty_is_never_claimed() {
        let differences: Vec<i128> = (0..200).map(|at| (at % 17 - 6) * (ONE / 20)).collect();
        let swapped: Vec<i128> = differences.iter().map(|d| -d).collect();
        assert_eq!(sign_flip_test(&differences, MAX_DRAWS), sign_flip_test(&swapped, MAX_DRAWS));
        assert_eq!(sign_flip_test(&[ONE; 100], MAX_DRAWS).0, 1.0 / 200_000.0);
        assert_eq!(sign_flip_test(&[ONE; 100], 0).0, 1.0 / 20_000.0);
        let (many, method) = sign_flip_test(&[[ONE; 10_500], [-ONE; 10_500]].concat()[..20_800], MAX_DRAWS);
        assert!(method == ComparisonTest::SignFlipNormal && (0.1..0.2).contains(&many), "{many}");
    }
}
