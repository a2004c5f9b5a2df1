//! 95 % confidence intervals of shares and means.
//!
//! Steps of one trajectory are alike: an agent that misreads a request misreads it in every step, so ten steps of one
//! trajectory carry less information than one step of each of ten. The number of observations is therefore divided by
//! the design effect (Kish), which is estimated from the variance between trajectories. The interval is Wilson's score
//! interval, with Student's quantile, or the normal one for a single yes-or-no answer per trajectory. Unlike a bootstrap it
//! needs no random numbers, has a positive width even if all scores are equal, and keeps its coverage in small samples.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::distributions::{normal_quantile, student_quantile};

/// Significance level of the 95 % intervals.
const ALPHA: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Interval")]
pub struct ConfidenceInterval {
    pub low: f64,
    pub high: f64,
}

/// The scores of one trajectory: how many, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreCluster {
    pub count: f64,
    pub sum: f64,
}

/// Sums over clusters, which are all that an interval needs. A rollup stores these five numbers instead of every
/// trajectory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterSums {
    /// Sum of the clusters' counts: the number of scores.
    pub count: f64,
    /// Sum of the clusters' sums: the sum of all scores.
    pub sum: f64,
    /// Sum of the squares of the clusters' sums.
    pub sum_sum: f64,
    /// Sum of the products of each cluster's sum and count.
    pub sum_count: f64,
    /// Sum of the squares of the clusters' counts.
    pub count_count: f64,
}

/// The cluster-robust interval of a mean of scores between `worst` and `best`. `None` without scores, or if the range
/// is empty.
pub fn clustered_interval(clusters: &[ScoreCluster], worst: f64, best: f64) -> Option<ConfidenceInterval> {
    clustered_interval_at(clusters, worst, best, ALPHA)
}

/// Like [`clustered_interval`], at the two-sided level `alpha`.
pub(crate) fn clustered_interval_at(
    clusters: &[ScoreCluster],
    worst: f64,
    best: f64,
    alpha: f64,
) -> Option<ConfidenceInterval> {
    let range = best - worst;
    if range <= 0.0 {
        return None;
    }
    let mut sums = ClusterSums::default();
    for cluster in clusters {
        let sum = (cluster.sum - worst * cluster.count) / range;
        sums.count += cluster.count;
        sums.sum += sum;
        sums.sum_sum += sum * sum;
        sums.sum_count += sum * cluster.count;
        sums.count_count += cluster.count * cluster.count;
    }
    share_interval(&sums, alpha).map(|unit| unit.rescale(worst, range))
}

/// Student's interval of a mean of any numbers. `None` for fewer than two, and if all are equal: then nothing shows how
/// much they vary.
pub fn mean_interval(values: &[f64]) -> Option<ConfidenceInterval> {
    let count = values.len() as f64;
    if count < 2.0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half = student_quantile(ALPHA, count - 1.0) * (squares / (count - 1.0) / count).sqrt();
    (half > 0.0).then_some(ConfidenceInterval { low: mean - half, high: mean + half })
}

/// Like [`clustered_interval`], from sums. The sums are of raw scores; they are rescaled to shares here.
pub fn clustered_interval_from_sums(sums: &ClusterSums, worst: f64, best: f64) -> Option<ConfidenceInterval> {
    let range = best - worst;
    if range <= 0.0 {
        return None;
    }
    let ClusterSums { count, sum, sum_sum, sum_count, count_count } = *sums;
    let shares = ClusterSums {
        sum: (sum - worst * count) / range,
        sum_sum: (sum_sum - 2.0 * worst * sum_count + worst * worst * count_count) / (range * range),
        sum_count: (sum_count - worst * count_count) / range,
        ..*sums
    };
    share_interval(&shares, ALPHA).map(|unit| unit.rescale(worst, range))
}

/// The interval of scores from 0 to 1.
fn share_interval(sums: &ClusterSums, alpha: f64) -> Option<ConfidenceInterval> {
    let ClusterSums { count, sum, sum_sum, sum_count, count_count } = *sums;
    if count <= 0.0 || count_count <= 0.0 {
        return None;
    }
    // Rounding can put a sum of scores slightly outside of its range.
    let share = (sum / count).clamp(0.0, 1.0);
    let slack = 1e-9 * count.max(1_000.0);
    if (count_count - count).abs() < slack && (sum_sum - sum).abs() < slack {
        // With one yes-or-no answer per trajectory, answers are independent and Wilson's interval is accurate.
        return Some(wilson_interval(share, count, normal_quantile(alpha)));
    }
    // The effective number of clusters (Kish): clusters of unequal size count for fewer.
    let groups = count * count / count_count;
    // The tolerance grows with the rounding error of long sums, but stays below the effect of a single differing score.
    let rounding = (1e-15 * count).max(1e-12).min(0.1 / count);
    if share.min(1.0 - share) < rounding {
        return Some(uniform_scores_interval(share.round(), count, groups, alpha));
    }
    let independent = share * (1.0 - share) / count;
    // A single cluster shows nothing about the variance between clusters.
    if groups < 1.5 {
        return Some(wilson_interval(share, 1.0, student_quantile(alpha, 1.0)));
    }
    let squares = (sum_sum - 2.0 * share * sum_count + share * share * count_count).max(0.0);
    let variance = groups / (groups - 1.0) * squares / (count * count);
    // A design effect below 1 is sampling noise.
    let design_effect = (variance / independent).max(1.0);
    Some(wilson_interval(share, (count / design_effect).max(1.0), student_quantile(alpha, groups - 1.0)))
}

/// Degrees of freedom of the quantile in [`clustered_interval`]: infinite only where each trajectory has one answer
/// that is either `worst` or `best`, since the variance of such answers follows from their mean. A single graded score
/// per trajectory is not enough: its variance is estimated from the trajectories, which Student's quantile accounts for.
pub(crate) fn degrees_of_freedom(clusters: &[ScoreCluster], worst: f64, best: f64) -> f64 {
    let slack = 1e-9 * (best - worst).abs();
    let is_extreme = |sum: f64| (sum - worst).abs() <= slack || (sum - best).abs() <= slack;
    if clusters.iter().all(|cluster| cluster.count == 1.0 && is_extreme(cluster.sum)) {
        return f64::INFINITY;
    }
    let count: f64 = clusters.iter().map(|cluster| cluster.count).sum();
    let squares: f64 = clusters.iter().map(|cluster| cluster.count * cluster.count).sum();
    (count * count / squares - 1.0).max(1.0)
}

/// All scores are best or all are worst, so the design effect cannot be estimated and each cluster counts once. The
/// interval is bounded by that of a sample with one deviating score and a design effect of 1, which must not be
/// narrower.
fn uniform_scores_interval(share: f64, count: f64, groups: f64, alpha: f64) -> ConfidenceInterval {
    let uniform = wilson_interval(share, groups, normal_quantile(alpha));
    if count <= 1.0 || groups < 1.5 {
        return uniform;
    }
    let but_one = if share > 0.5 { 1.0 - 1.0 / count } else { 1.0 / count };
    let almost = wilson_interval(but_one, count, student_quantile(alpha, groups - 1.0));
    if share > 0.5 {
        ConfidenceInterval { low: uniform.low.max(almost.low), ..uniform }
    } else {
        ConfidenceInterval { high: uniform.high.min(almost.high), ..uniform }
    }
}

impl ConfidenceInterval {
    pub(crate) fn width(&self) -> f64 {
        self.high - self.low
    }

    /// Maps an interval of a share to a scale that begins at `worst`.
    fn rescale(self, worst: f64, range: f64) -> ConfidenceInterval {
        ConfidenceInterval { low: worst + self.low * range, high: worst + self.high * range }
    }
}

/// The interval of a share of independent observations: `hits` of `count`. `None` without observations.
pub fn hit_share_interval(hits: u64, count: u64) -> Option<ConfidenceInterval> {
    let share = hits as f64 / count as f64;
    (count > 0).then(|| wilson_interval(share, count as f64, normal_quantile(ALPHA)))
}

/// Wilson's score interval of a share of `count` observations. `count` may be fractional (an effective sample size).
pub(crate) fn wilson_interval(share: f64, count: f64, quantile: f64) -> ConfidenceInterval {
    let squared = quantile * quantile;
    let scale = 1.0 + squared / count;
    let centre = (share + squared / (2.0 * count)) / scale;
    let half = quantile / scale * (share * (1.0 - share) / count + squared / (4.0 * count * count)).sqrt();
    ConfidenceInterval { low: (centre - half).clamp(0.0, share), high: (centre + half).clamp(share, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_hits_has_the_interval_of_wilson() {
        assert_eq!(hit_share_interval(0, 0), None);
        // 8 of 10, by hand: 49.0 % to 94.3 %.
        let ConfidenceInterval { low, high } = hit_share_interval(8, 10).unwrap();
        assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4, "{low} to {high}");
    }

    #[test]
    fn sums_give_the_interval_of_single_trajectories() {
        // With all right and all wrong, of equal and unequal length, and on other scales.
        let samples: [&[(f64, f64)]; 8] = [
            &[(3.0, 2.0), (5.0, 5.0), (1.0, 0.0), (4.0, 3.0)],
            &[(1.0, 1.0), (1.0, 0.0), (1.0, 1.0)],
            &[(2.0, 1.0)],
            &[(6.0, 1.5), (2.0, 0.5), (9.0, 8.0)],
            &[(3.0, 3.0), (5.0, 5.0), (1.0, 1.0), (4.0, 4.0), (2.0, 2.0), (3.0, 3.0), (2.0, 2.0), (6.0, 6.0)],
            &[(3.0, 0.0), (5.0, 0.0), (1.0, 0.0), (4.0, 0.0)],
            &[(4.0, 4.0); 40],
            &[(1.0, 1.0); 5],
        ];
        for sample in samples {
            for (worst, best) in [(0.0, 1.0), (1.0, 5.0), (-1.0, 1.0), (0.2, 0.3)] {
                let range = best - worst;
                let clusters: Vec<ScoreCluster> = sample
                    .iter()
                    .map(|&(count, sum)| ScoreCluster { count, sum: worst * count + range * sum })
                    .collect();
                let total = |term: &dyn Fn(&ScoreCluster) -> f64| clusters.iter().map(term).sum::<f64>();
                let sums = ClusterSums {
                    count: total(&|cluster| cluster.count),
                    sum: total(&|cluster| cluster.sum),
                    sum_sum: total(&|cluster| cluster.sum * cluster.sum),
                    sum_count: total(&|cluster| cluster.sum * cluster.count),
                    count_count: total(&|cluster| cluster.count * cluster.count),
                };
                let one = clustered_interval(&clusters, worst, best).expect("some");
                let other = clustered_interval_from_sums(&sums, worst, best).expect("some");
                let is_near = |a: f64, b: f64| (a - b).abs() < 1e-7;
                assert!(is_near(one.low, other.low) && is_near(one.high, other.high), "{sample:?}: {one:?} {other:?}");
                // On another scale it is as sure as on that of shares.
                let plain: Vec<ScoreCluster> = sample.iter().map(|&(count, sum)| ScoreCluster { count, sum }).collect();
                let plain = clustered_interval(&plain, 0.0, 1.0).expect("some");
                assert!(is_near((one.low - worst) / range, plain.low), "{sample:?}: {one:?} {plain:?}");
            }
        }
        assert_eq!(clustered_interval_from_sums(&ClusterSums::default(), 0.0, 1.0), None);
        assert_eq!(
            clustered_interval_from_sums(
                &ClusterSums { count: 1.0, count_count: 1.0, ..ClusterSums::default() },
                1.0,
                1.0
            ),
            None
        );
    }

    fn clusters(counts: &[(u32, u32)]) -> Vec<ScoreCluster> {
        counts.iter().map(|(good, count)| ScoreCluster { sum: f64::from(*good), count: f64::from(*count) }).collect()
    }

    #[test]
    fn agrees_with_wilson_where_steps_are_independent() {
        let singles: Vec<ScoreCluster> =
            clusters(&(0..1_000).map(|at| (u32::from(at % 10 != 0), 1)).collect::<Vec<_>>());
        let found = clustered_interval(&singles, 0.0, 1.0).expect("an interval");
        let expected = wilson_interval(0.9, 1_000.0, normal_quantile(ALPHA));
        assert!((found.low - expected.low).abs() < 0.001 && (found.high - expected.high).abs() < 0.001);
    }

    #[test]
    fn is_wider_where_trajectories_are_alike_inside() {
        let alike: Vec<ScoreCluster> = clusters(&[(10, 10), (0, 10)].repeat(20));
        let wide = clustered_interval(&alike, 0.0, 1.0).expect("an interval");
        let naive = wilson_interval(0.5, 400.0, normal_quantile(ALPHA));
        assert!(wide.high - wide.low > 2.5 * (naive.high - naive.low));
    }

    #[test]
    fn never_claims_certainty() {
        let all_right = clustered_interval(&clusters(&[(5, 5); 3]), 0.0, 1.0).expect("an interval");
        assert!((all_right.low - 0.4385).abs() < 0.001 && all_right.high == 1.0, "{all_right:?}");
        let one = clustered_interval(&clusters(&[(3, 4)]), 0.0, 1.0).expect("an interval");
        assert!(one.low < 0.1 && one.high > 0.95, "one trajectory says next to nothing: {one:?}");
        assert_eq!(clustered_interval(&[], 0.0, 1.0), None);
    }

    #[test]
    fn one_more_right_is_never_worse() {
        for sizes in [vec![3, 3, 4, 2, 1, 1, 2, 3], vec![2; 9], vec![40], vec![1, 9]] {
            let mut sample: Vec<ScoreCluster> =
                sizes.iter().map(|count| ScoreCluster { count: f64::from(*count), sum: f64::from(*count) }).collect();
            let all = clustered_interval(&sample, 0.0, 1.0).expect("an interval");
            let longest = sample.iter_mut().max_by(|a, b| a.count.total_cmp(&b.count)).expect("one");
            longest.sum -= 1.0;
            let almost = clustered_interval(&sample, 0.0, 1.0).expect("an interval");
            assert!(all.low >= almost.low && all.high >= almost.high, "{sizes:?}: {all:?} {almost:?}");
        }
    }

    #[test]
    fn knows_other_scales() {
        let graded = [ScoreCluster { count: 2.0, sum: 8.0 }, ScoreCluster { count: 2.0, sum: 4.0 }];
        let found = clustered_interval(&graded, 1.0, 5.0).expect("an interval");
        assert!(found.low >= 1.0 && found.high <= 5.0 && found.low < 3.0 && found.high > 3.0);
    }

    #[test]
    fn any_scale_and_any_scores_give_an_interval_within_the_scale() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let (worst, range) = (random.f64() * 10.0 - 5.0, random.f64() * 5.0 + 0.01);
            let best = worst + range;
            let sample: Vec<ScoreCluster> = (0..random.usize(1..6))
                .map(|_| {
                    let count = random.u32(1..9);
                    let sum = if random.bool() {
                        (0..count).map(|_| [worst, best, worst + range / 3.0][random.usize(..3)]).sum()
                    } else {
                        f64::from(count) * [worst, best][random.usize(..2)]
                    };
                    ScoreCluster { count: f64::from(count), sum }
                })
                .collect();
            let found = clustered_interval(&sample, worst, best).expect("an interval");
            let slack = 1e-9;
            assert!(found.low >= worst - slack && found.high <= best + slack && found.low <= found.high, "{found:?}");
        }
    }

    /// Coverage is nominal however alike steps are: trajectories whose own share of right steps varies around the true
    /// one.
    #[test]
    fn covers_the_truth() {
        let mut random = fastrand::Rng::with_seed(7);
        for (truth, trajectories, alike) in
            [(0.8, 15, 0.0), (0.8, 15, 0.5), (0.8, 60, 0.5), (0.95, 60, 0.3), (0.5, 30, 1.0), (0.9, 200, 0.5)]
        {
            const TRIALS: u32 = 2_000;
            let mut covered = 0;
            for _ in 0..TRIALS {
                let sample: Vec<ScoreCluster> = (0..trajectories)
                    .map(|_| {
                        let count = random.u32(1..=8);
                        // With this chance the whole trajectory goes one way, else each step its own.
                        let together = random.f64() < alike;
                        let whole = random.f64() < truth;
                        let good = (0..count).filter(|_| if together { whole } else { random.f64() < truth }).count();
                        ScoreCluster { count: f64::from(count), sum: good as f64 }
                    })
                    .collect();
                let found = clustered_interval(&sample, 0.0, 1.0).expect("an interval");
                covered += u32::from(found.low <= truth && truth <= found.high);
            }
            let share = f64::from(covered) / f64::from(TRIALS);
            assert!((0.925..=0.995).contains(&share), "{truth} {trajectories} {alike}: {share}");
        }
    }
}
