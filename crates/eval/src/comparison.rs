//! Differences between two runs: a difference of means with its 95 % interval, paired where both runs judged the same
//! question.
//!
//! Steps of one trajectory are correlated, so trajectories are the units.
//!
//! - Paired, each trajectory right or wrong as a whole: only trajectories that changed carry information. The interval
//!   combines Clopper and Pearson's exact interval of how the changes split with Wilson's interval of how many changed.
//!   It excludes 0 exactly if the sign test is significant.
//! - Paired, other scores: Student's interval over trajectories. It is too short if few trajectories changed, so the
//!   sign test must be significant as well, and the larger of both p-values counts.
//! - Unpaired: Newcombe's method, which combines the two intervals of the means. A side with all scores equal is not
//!   treated as certain.

use crate::interval::{
    ConfidenceInterval, NORMAL_QUANTILE, ScoreCluster, clustered_interval, degrees_of_freedom, student_quantile,
    wilson_of,
};
use crate::significance;

/// Significance level of all tests and intervals.
const CHANCE: f64 = 0.05;

/// The scores of one question in both runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScorePair {
    /// The cluster, as a small index: it also sizes a vector.
    pub trajectory: usize,
    pub before: f64,
    pub after: f64,
}

/// A difference of means between two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreDifference {
    /// The mean after minus the mean before.
    pub value: f64,
    /// Means of the compared scores only; they can differ from the means of the runs.
    pub before: f64,
    pub after: f64,
    pub interval: ConfidenceInterval,
    /// The p-value of the sign test over trajectories; only for paired scores.
    pub chance: Option<f64>,
    /// Degrees of freedom of the t quantile in `interval`; `None` where the interval follows from the sign test alone.
    freedom: Option<f64>,
    /// Compared questions. Of two unpaired runs, the smaller number.
    pub count: u64,
    /// Compared trajectories. Of two unpaired runs, the smaller number.
    pub trajectories: u64,
}

impl ScoreDifference {
    /// Whether the interval excludes 0 and, for paired scores, the sign test agrees. Not corrected for multiple
    /// comparisons; see [`correct_p_values`].
    pub fn is_significant(&self) -> bool {
        let excludes_zero = self.interval.low > 0.0 || self.interval.high < 0.0;
        excludes_zero && self.chance.is_none_or(|chance| chance < CHANCE)
    }

    /// The p-value by all tests that apply: the largest one counts. It never contradicts `is_significant`.
    fn chance_alone(&self) -> f64 {
        let said = self.chance.unwrap_or(0.0).max(self.freedom.map_or(0.0, |freedom| self.chance_by(freedom)));
        if self.is_significant() { said } else { said.max(CHANCE) }
    }

    /// Inverts the interval: its half width towards 0 is one quantile, which gives the t statistic of the value.
    fn chance_by(&self, freedom: f64) -> f64 {
        let towards_zero =
            if self.value > 0.0 { self.value - self.interval.low } else { self.interval.high - self.value };
        if self.value == 0.0 || towards_zero <= 0.0 {
            return 1.0;
        }
        significance::two_sided(student_quantile(freedom) * self.value.abs() / towards_zero, freedom)
    }
}

/// p-values of several differences, corrected by Holm's method, in the order of the input.
pub fn correct_p_values(differences: &[ScoreDifference]) -> Vec<f64> {
    let chances: Vec<f64> = differences.iter().map(ScoreDifference::chance_alone).collect();
    significance::holm_correction(&chances)
}

/// The difference over questions that both runs answered; `None` without pairs.
pub fn paired_difference(pairs: &[ScorePair]) -> Option<ScoreDifference> {
    let trajectories = pairs.iter().map(|pair| pair.trajectory + 1).max()?;
    let mut clusters = vec![ScoreCluster::default(); trajectories];
    for pair in pairs {
        let cluster = &mut clusters[pair.trajectory];
        cluster.count += 1.0;
        cluster.sum += pair.after - pair.before;
    }
    clusters.retain(|cluster| cluster.count > 0.0);
    let (mean, variance) = mean_and_variance(&clusters);
    let groups = clusters.len() as f64;
    let better = clusters.iter().filter(|cluster| cluster.sum > 0.0).count() as u64;
    let worse = clusters.iter().filter(|cluster| cluster.sum < 0.0).count() as u64;
    let chance = sign_test(better, worse);
    // All trajectories have the same number of questions, and each one moved as a whole or not at all, so each is one
    // observation.
    let is_as_one = clusters
        .iter()
        .all(|cluster| cluster.count == clusters[0].count && [0.0, cluster.count].contains(&cluster.sum.abs()));
    let is_right_or_wrong = |score: f64| [0.0, 1.0].contains(&score);
    let is_share = pairs.iter().all(|pair| is_share(pair.before) && is_share(pair.after));
    let (interval, freedom) = if is_as_one
        && better + worse > 0
        && pairs.iter().all(|pair| is_right_or_wrong(pair.before) && is_right_or_wrong(pair.after))
    {
        (of_changed(better, worse, clusters.len() as u64), None)
    } else if variance > 0.0 {
        let freedom = groups - 1.0;
        (interval_around(mean, student_quantile(freedom) * variance.sqrt(), is_share), Some(freedom))
    } else if mean == 0.0 {
        // Nothing changed. What may still be unseen is bounded by the rule of three in its exact form.
        (interval_around(mean, max_unseen_share(groups), is_share), None)
    } else {
        // All changes are equal, so the variance cannot be estimated. Adding one unchanged trajectory bounds it.
        let mut more = clusters.clone();
        more.push(ScoreCluster { count: clusters[0].count, sum: 0.0 });
        let (_, variance) = mean_and_variance(&more);
        (interval_around(mean, student_quantile(groups) * variance.sqrt(), is_share), Some(groups))
    };
    let mean_of = |score: fn(&ScorePair) -> f64| pairs.iter().map(score).sum::<f64>() / pairs.len() as f64;
    Some(ScoreDifference {
        value: mean,
        before: mean_of(|pair| pair.before),
        after: mean_of(|pair| pair.after),
        interval,
        chance: Some(chance),
        freedom,
        count: pairs.len() as u64,
        trajectories: clusters.len() as u64,
    })
}

/// The difference of two runs over different questions, on a scale from `worst` to `best`, by Newcombe's hybrid score
/// method. `None` if one of them judged nothing.
pub fn unpaired_difference(
    before: &[ScoreCluster],
    after: &[ScoreCluster],
    worst: f64,
    best: f64,
) -> Option<ScoreDifference> {
    let count = |clusters: &[ScoreCluster]| clusters.iter().map(|cluster| cluster.count).sum::<f64>();
    let known = |clusters: &[ScoreCluster]| {
        let interval = clustered_interval(clusters, worst, best)?;
        Some((clusters.iter().map(|cluster| cluster.sum).sum::<f64>() / count(clusters), interval))
    };
    let ((old, around_old), (new, around_new)) = (known(before)?, known(after)?);
    let value = new - old;
    let range = best - worst;
    Some(ScoreDifference {
        value,
        before: old,
        after: new,
        interval: ConfidenceInterval {
            low: (value - (new - around_new.low).hypot(around_old.high - old)).max(-range),
            high: (value + (around_new.high - new).hypot(old - around_old.low)).min(range),
        },
        chance: None,
        freedom: Some(degrees_of_freedom(before).min(degrees_of_freedom(after))),
        count: count(before).min(count(after)) as u64,
        trajectories: before.len().min(after.len()) as u64,
    })
}

/// Interval of a difference of two shares of the same `all` trajectories, of which `better` and `worse` changed.
fn of_changed(better: u64, worse: u64, all: u64) -> ConfidenceInterval {
    if better < worse {
        let ConfidenceInterval { low, high } = of_changed(worse, better, all);
        return ConfidenceInterval { low: -high, high: -low };
    }
    let changed = better + worse;
    let share = changed as f64 / all as f64;
    // Maps the share of improvements among the changes to a direction from -1 (all worse) to 1 (all better).
    let signed = |share: f64| 2.0 * share - 1.0;
    let split = signed(better as f64 / changed as f64);
    let ConfidenceInterval { low, high } = clopper_pearson(better, changed);
    // The share of trajectories that change is an estimate, too. If few changed, the true share may be larger.
    let of_all = wilson_of(share, all as f64, NORMAL_QUANTILE);
    let likely = f64::midpoint(of_all.low, of_all.high);
    let outwards = (likely * (signed(high) - split)).hypot(split * (of_all.high - share));
    let inwards = (likely * (split - signed(low))).hypot(split * (share - of_all.low));
    ConfidenceInterval {
        // The split alone decides on which side of 0 the interval ends, so that interval and sign test agree.
        low: if low > 0.5 { of_all.low * signed(low) } else { share * split - inwards },
        high: (share * split + outwards).min(1.0),
    }
}

/// Clopper and Pearson's exact interval of a binomial share, by bisection of the binomial tail.
fn clopper_pearson(good: u64, all: u64) -> ConfidenceInterval {
    // The largest share for which `good` or more successes have a probability of half the level. 60 halvings reach the
    // precision of `f64`.
    let below = |good: u64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let share: f64 = f64::midpoint(low, high);
            if at_most(good - 1, all, share) > 1.0 - CHANCE / 2.0 { low = share } else { high = share }
        }
        low
    };
    ConfidenceInterval {
        low: if good == 0 { 0.0 } else { below(good) },
        high: if good == all { 1.0 } else { 1.0 - below(all - good) },
    }
}

/// The cumulative binomial probability of at most `good` successes.
fn at_most(good: u64, all: u64, share: f64) -> f64 {
    // Terms are computed as logarithms, because `(1 - share)^all` underflows for large counts.
    let odds = share.ln() - (1.0 - share).ln();
    let mut term = all as f64 * (1.0 - share).ln();
    let mut sum = 0.0;
    for at in 0..=good {
        sum += term.exp();
        term += ((all - at) as f64).ln() - ((at + 1) as f64).ln() + odds;
    }
    sum.min(1.0)
}

/// The largest share of changed trajectories that is compatible, at 97.5 %, with seeing none in `groups`.
fn max_unseen_share(groups: f64) -> f64 {
    1.0 - 0.025_f64.powf(1.0 / groups)
}

fn is_share(score: f64) -> bool {
    (0.0..=1.0).contains(&score)
}

/// A symmetric interval, clipped to the possible differences if scores are shares.
fn interval_around(value: f64, half: f64, of_shares: bool) -> ConfidenceInterval {
    let most = if of_shares { 1.0 } else { f64::INFINITY };
    ConfidenceInterval { low: (value - half).max(-most), high: (value + half).min(most) }
}

/// The mean over all scores and its cluster-robust variance (linearized ratio estimator). The variance is 0 for fewer
/// than two clusters.
fn mean_and_variance(clusters: &[ScoreCluster]) -> (f64, f64) {
    let count: f64 = clusters.iter().map(|cluster| cluster.count).sum();
    let mean = clusters.iter().map(|cluster| cluster.sum).sum::<f64>() / count;
    let groups = clusters.len() as f64;
    if groups < 2.0 {
        return (mean, 0.0);
    }
    let squares: f64 = clusters.iter().map(|cluster| (cluster.sum - mean * cluster.count).powi(2)).sum();
    (mean, groups / (groups - 1.0) * squares / (count * count))
}

/// The two-sided exact sign test: the p-value of this split of changes if both directions are equally likely.
fn sign_test(better: u64, worse: u64) -> f64 {
    (2.0 * at_most(better.min(worse), better + worse, 0.5)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(scores: &[(f64, f64)]) -> Vec<ScorePair> {
        let pair = |(trajectory, (before, after)): (usize, &(f64, f64))| ScorePair {
            trajectory,
            before: *before,
            after: *after,
        };
        scores.iter().enumerate().map(pair).collect()
    }

    #[test]
    fn the_sign_test_counts_coins() {
        assert_eq!(sign_test(0, 0), 1.0);
        assert!((sign_test(9, 1) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((sign_test(1, 9) - sign_test(9, 1)).abs() < 1e-15);
        assert_eq!(sign_test(5, 5), 1.0);
        assert!(sign_test(5_000, 0) < 1e-300 || sign_test(5_000, 0) == 0.0);
    }

    #[test]
    fn pairs_show_what_means_alone_do_not() {
        // Half of all is right, before and after, and ten got better.
        let mut scores = vec![(1.0, 1.0); 50];
        scores.extend(vec![(0.0, 0.0); 40]);
        scores.extend(vec![(0.0, 1.0); 10]);
        let known = paired_difference(&pairs(&scores)).unwrap();
        assert!((known.value - 0.1).abs() < 1e-12 && known.is_significant(), "{known:?}");
        assert!(known.chance.unwrap() < 0.01);
        let cluster = |score: f64| ScoreCluster { count: 1.0, sum: score };
        let [before, after]: [Vec<ScoreCluster>; 2] = [
            scores.iter().map(|(before, _)| cluster(*before)).collect(),
            scores.iter().map(|(_, after)| cluster(*after)).collect(),
        ];
        let apart = unpaired_difference(&before, &after, 0.0, 1.0).unwrap();
        assert!((apart.value - 0.1).abs() < 1e-12 && !apart.is_significant(), "{apart:?}");
        assert_eq!(apart.chance, None);
    }

    #[test]
    fn steps_of_one_trajectory_count_once() {
        let mut all = pairs(&[(0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, 1.0)]);
        let one = paired_difference(&all).unwrap();
        all.extend(all.clone());
        let twice = paired_difference(&all).unwrap();
        assert!((one.interval.low - twice.interval.low).abs() < 1e-12, "{one:?} {twice:?}");
        assert_eq!((one.trajectories, twice.trajectories, twice.count), (4, 4, 8));
    }

    #[test]
    fn no_difference_in_few_is_no_proof_that_there_is_none() {
        let few = paired_difference(&pairs(&[(1.0, 1.0); 5])).unwrap();
        assert!(few.value == 0.0 && few.interval.high > 0.4 && few.interval.low < -0.4, "{few:?}");
        let many = paired_difference(&pairs(&[(1.0, 1.0); 500])).unwrap();
        assert!(many.interval.high < 0.01, "{many:?}");
        // All the same way: five coins prove nothing yet, six do.
        for (count, proves) in [(1, false), (5, false), (6, true)] {
            let known = paired_difference(&pairs(&vec![(0.0, 1.0); count])).unwrap();
            assert_eq!((known.is_significant(), known.chance.unwrap() < 0.05), (proves, proves), "{known:?}");
            assert!(known.interval.high <= 1.0, "{known:?}");
        }
        assert_eq!(paired_difference(&[]), None);
        assert_eq!(unpaired_difference(&[], &[ScoreCluster { count: 1.0, sum: 1.0 }; 3], 0.0, 1.0), None);
    }

    #[test]
    fn the_interval_and_the_exact_test_say_the_same_of_rare_changes() {
        for all in [10, 100, 1_000] {
            for better in 0..=8 {
                for worse in 0..=(8.min(all - better)) {
                    let mut scores = vec![(0.0, 1.0); better];
                    scores.extend(vec![(1.0, 0.0); worse]);
                    scores.resize(all, (1.0, 1.0));
                    let known = paired_difference(&pairs(&scores)).unwrap();
                    let ConfidenceInterval { low, high } = known.interval;
                    let said = format!("{better} better, {worse} worse of {all}: {known:?}");
                    assert_eq!(low > 0.0 || high < 0.0, known.chance.unwrap() < CHANCE, "{said}");
                    assert!(low <= known.value && known.value <= high && low < high, "{said}");
                    assert!((known.after - known.before - known.value).abs() < 1e-12, "{said}");
                }
            }
        }
        // Several steps each: Student's interval alone would claim a difference out of four trajectories that changed.
        let mut scores = Vec::new();
        for trajectory in 0..100 {
            let before = f64::from(u8::from(trajectory >= 4));
            scores.extend([before, 1.0].map(|before| ScorePair { trajectory, before, after: 1.0 }));
        }
        let known = paired_difference(&scores).unwrap();
        assert!(known.interval.low > 0.0 && !known.is_significant(), "{known:?}");
    }

    #[test]
    fn several_differences_are_corrected_together() {
        let of = |better: usize, all: usize| {
            let mut scores = vec![(0.0, 1.0); better];
            scores.resize(all, (1.0, 1.0));
            paired_difference(&pairs(&scores)).unwrap()
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // Six coins of six: 1 in 32; eight of eight: 1 in 128.
        let all = [of(6, 50), of(8, 50), of(0, 50)];
        assert!(all[0].is_significant());
        let found = correct_p_values(&all);
        assert!(near(found[0], 2.0 / 32.0) && near(found[1], 3.0 / 128.0) && near(found[2], 1.0), "{found:?}");
        assert!(near(correct_p_values(&all[..1])[0], 1.0 / 32.0), "one alone needs no correction");
        // A later one is never surer than one before it.
        let same = [of(6, 50), of(6, 50), of(6, 50)];
        assert!(correct_p_values(&same).iter().all(|chance| near(*chance, 3.0 / 32.0)));
        assert!(correct_p_values(&[]).is_empty());
        // Without an exact test the interval says how sure it is.
        let shares = |right: usize| {
            let mut all = vec![ScoreCluster { count: 1.0, sum: 1.0 }; right];
            all.resize(200, ScoreCluster { count: 1.0, sum: 0.0 });
            all
        };
        let sure = unpaired_difference(&shares(120), &shares(160), 0.0, 1.0).unwrap();
        let unsure = unpaired_difference(&shares(120), &shares(125), 0.0, 1.0).unwrap();
        let found = correct_p_values(&[sure, unsure]);
        assert!(found[0] < 0.001 && found[1] > 0.5, "{found:?}");
        for other in [sure, unsure, unpaired_difference(&shares(120), &shares(141), 0.0, 1.0).unwrap()] {
            assert_eq!(correct_p_values(&[other])[0] < CHANCE, other.is_significant(), "{other:?}");
        }
        // Where trajectories are few, the interval is wide, and so is what chance can do.
        let few = |right: [f64; 3]| right.map(|sum| ScoreCluster { count: 20.0, sum });
        let few = unpaired_difference(&few([4.0, 5.0, 4.0]), &few([16.0, 15.0, 16.0]), 0.0, 1.0).unwrap();
        let found = correct_p_values(&[few])[0];
        assert!(few.is_significant() && (0.01..0.04).contains(&found), "{few:?}: {found}");
    }

    #[test]
    fn many_small_steps_up_do_not_hide_few_long_ones_down() {
        let mut scores = vec![(0.5, 0.75); 36];
        scores.extend(vec![(1.0, 0.1); 4]);
        let known = paired_difference(&pairs(&scores)).unwrap();
        assert!(known.is_significant() && known.chance.unwrap() < 1e-6, "{known:?}");
        assert!((0.01..0.03).contains(&correct_p_values(&[known])[0]));
        assert!(correct_p_values(&[known; 20])[0] > 0.2);
    }

    /// Ten dimensions without a difference: that one of them is told is rare.
    #[test]
    fn nothing_is_told_of_many_dimensions_that_do_not_differ() {
        let mut random = fastrand::Rng::with_seed(5);
        const ROUNDS: u32 = 300;
        let mut told = 0;
        for _ in 0..ROUNDS {
            let dimensions: Vec<ScoreDifference> = (0..10)
                .map(|_| {
                    let scores: Vec<(f64, f64)> =
                        (0..200).map(|_| (0.5, 0.5 + 0.25 * (f64::from(random.u8(0..5)) - 2.0))).collect();
                    paired_difference(&pairs(&scores)).unwrap()
                })
                .collect();
            told += u32::from(correct_p_values(&dimensions).iter().any(|chance| *chance < CHANCE));
        }
        assert!(f64::from(told) / f64::from(ROUNDS) < 0.06, "{told}");
    }

    #[test]
    fn a_side_that_is_all_right_is_not_certain() {
        let shares = |right: usize, wrong: usize| {
            let mut all = vec![ScoreCluster { count: 1.0, sum: 1.0 }; right];
            all.resize(right + wrong, ScoreCluster { count: 1.0, sum: 0.0 });
            all
        };
        let known = unpaired_difference(&shares(2, 0), &shares(160, 40), 0.0, 1.0).unwrap();
        assert!((known.value + 0.2).abs() < 1e-12 && !known.is_significant(), "{known:?}");
        assert!(known.interval.high > 0.3, "{known:?}");
        let many = unpaired_difference(&shares(200, 0), &shares(160, 40), 0.0, 1.0).unwrap();
        assert!(many.is_significant() && many.interval.high < -0.14, "{many:?}");
        let same = unpaired_difference(&shares(3, 0), &shares(3, 0), 0.0, 1.0).unwrap();
        assert!(same.interval.low < -0.3 && same.interval.high > 0.3, "{same:?}");
        // On another scale it is the same, as wide as the scale is.
        let of_five = |clusters: Vec<ScoreCluster>| -> Vec<ScoreCluster> {
            clusters.into_iter().map(|one| ScoreCluster { sum: 1.0 + 4.0 * one.sum, ..one }).collect()
        };
        let graded = unpaired_difference(&of_five(shares(2, 0)), &of_five(shares(160, 40)), 1.0, 5.0).unwrap();
        assert!((graded.value + 0.8).abs() < 1e-9, "{graded:?}");
        assert!((graded.interval.high - 4.0 * known.interval.high).abs() < 1e-9, "{graded:?}");
    }

    #[test]
    fn intervals_hold_the_truth_about_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(3);
        const ROUNDS: u32 = 1_500;
        // How often one gets better, and how often worse.
        for (better, worse, all) in [(0.05, 0.05, 100), (0.1, 0.02, 60), (0.3, 0.1, 40), (0.02, 0.0, 200)] {
            let mut held = 0;
            for _ in 0..ROUNDS {
                let scores: Vec<(f64, f64)> = (0..all)
                    .map(|_| match random.f64() {
                        drawn if drawn < better => (0.0, 1.0),
                        drawn if drawn < better + worse => (1.0, 0.0),
                        _ => (1.0, 1.0),
                    })
                    .collect();
                let ConfidenceInterval { low, high } = paired_difference(&pairs(&scores)).unwrap().interval;
                held += u32::from((low..=high).contains(&(better - worse)));
            }
            let share = f64::from(held) / f64::from(ROUNDS);
            assert!((0.94..=0.995).contains(&share), "{better} {worse} {all}: {share}");
        }
    }
}
