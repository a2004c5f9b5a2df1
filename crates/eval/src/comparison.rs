//! How two runs differ: a difference of means with its 95 % interval, paired where both judged the same.
//!
//! Steps of one trajectory hang together, so trajectories are what is counted: the variance is that of their sums, and
//! Student's quantile makes up for few of them. Where all trajectories agree, in a difference or in none, the interval is
//! as wide as so many of them allow: that fits the sign test. The chance of a paired difference is that of the sign test over
//! trajectories, which supposes nothing about scores.

use crate::interval::{Cluster, Interval, student_quantile};

/// The same question in both runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScorePair {
    /// The trajectory, by any number that is its own.
    pub trajectory: usize,
    pub before: f64,
    pub after: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The mean after, less the mean before.
    pub value: f64,
    pub interval: Interval,
    /// How probable a difference like this is if there is none; only where scores are paired.
    pub chance: Option<f64>,
    /// Questions, and trajectories that they are of; the smaller of both runs where they are not paired.
    pub count: u64,
    pub trajectories: u64,
}

impl Difference {
    /// Whether it is more than chance would give.
    pub fn is_significant(&self) -> bool {
        self.interval.low > 0.0 || self.interval.high < 0.0
    }
}

/// The difference of the same questions; `None` when there are none.
pub fn paired(pairs: &[ScorePair]) -> Option<Difference> {
    let trajectories = pairs.iter().map(|pair| pair.trajectory + 1).max()?;
    let mut clusters = vec![Cluster::default(); trajectories];
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
    let half = if variance > 0.0 {
        student_quantile(groups - 1.0) * variance.sqrt()
    } else {
        unseen(groups) * (1.0 + mean.abs())
    };
    let is_share = pairs.iter().all(|pair| is_share(pair.before) && is_share(pair.after));
    Some(Difference {
        value: mean,
        interval: around(mean, half, is_share),
        chance: Some(sign_test(better, worse)),
        count: pairs.len() as u64,
        trajectories: clusters.len() as u64,
    })
}

/// The difference of two runs that judged different things; `None` when one of them judged nothing, or too little.
pub fn unpaired(before: &[Cluster], after: &[Cluster]) -> Option<Difference> {
    if before.len() < 2 || after.len() < 2 {
        return None;
    }
    let ((mean_before, variance_before), (mean_after, variance_after)) =
        (mean_and_variance(before), mean_and_variance(after));
    let variance = variance_before + variance_after;
    let groups = before.len().min(after.len()) as f64;
    let value = mean_after - mean_before;
    let half = if variance > 0.0 {
        // Welch's degrees of freedom.
        let part = |variance: f64, count: usize| variance * variance / (count as f64 - 1.0);
        let freedom =
            variance * variance / (part(variance_before, before.len()) + part(variance_after, after.len()));
        student_quantile(freedom) * variance.sqrt()
    } else {
        unseen(groups) * (1.0 + value.abs())
    };
    let is_share = before.iter().chain(after).all(|cluster| is_share(cluster.sum / cluster.count));
    let count = |clusters: &[Cluster]| clusters.iter().map(|cluster| cluster.count).sum::<f64>();
    Some(Difference {
        value,
        interval: around(value, half, is_share),
        chance: None,
        count: count(before).min(count(after)) as u64,
        trajectories: groups as u64,
    })
}

/// The greatest share of trajectories that are otherwise than all that were seen, as it could be by chance.
fn unseen(groups: f64) -> f64 {
    1.0 - 0.025_f64.powf(1.0 / groups)
}

fn is_share(score: f64) -> bool {
    (0.0..=1.0).contains(&score)
}

fn around(value: f64, half: f64, of_shares: bool) -> Interval {
    let most = if of_shares { 1.0 } else { f64::INFINITY };
    Interval { low: (value - half).max(-most), high: (value + half).min(most) }
}

fn mean_and_variance(clusters: &[Cluster]) -> (f64, f64) {
    let count: f64 = clusters.iter().map(|cluster| cluster.count).sum();
    let mean = clusters.iter().map(|cluster| cluster.sum).sum::<f64>() / count;
    let groups = clusters.len() as f64;
    if groups < 2.0 {
        return (mean, 0.0);
    }
    let squares: f64 = clusters.iter().map(|cluster| (cluster.sum - mean * cluster.count).powi(2)).sum();
    (mean, groups / (groups - 1.0) * squares / (count * count))
}

/// How probable it is that of so many fair coins so few, or fewer, fall on one side.
fn sign_test(better: u64, worse: u64) -> f64 {
    let tosses = better + worse;
    // Terms of the binomial distribution, in logarithms: they may be very small.
    let mut term = -(tosses as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for at in 0..=better.min(worse) {
        sum += term.exp();
        term += ((tosses - at) as f64).ln() - ((at + 1) as f64).ln();
    }
    (2.0 * sum).min(1.0)
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
        let known = paired(&pairs(&scores)).unwrap();
        assert!((known.value - 0.1).abs() < 1e-12 && known.is_significant(), "{known:?}");
        assert!(known.chance.unwrap() < 0.01);
        let cluster = |score: f64| Cluster { count: 1.0, sum: score };
        let [before, after]: [Vec<Cluster>; 2] = [
            scores.iter().map(|(before, _)| cluster(*before)).collect(),
            scores.iter().map(|(_, after)| cluster(*after)).collect(),
        ];
        let apart = unpaired(&before, &after).unwrap();
        assert!((apart.value - 0.1).abs() < 1e-12 && !apart.is_significant(), "{apart:?}");
        assert_eq!(apart.chance, None);
    }

    #[test]
    fn steps_of_one_trajectory_count_once() {
        let mut all = pairs(&[(0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, 1.0)]);
        let one = paired(&all).unwrap();
        all.extend(all.clone());
        let twice = paired(&all).unwrap();
        assert!((one.interval.low - twice.interval.low).abs() < 1e-12, "{one:?} {twice:?}");
        assert_eq!((one.trajectories, twice.trajectories, twice.count), (4, 4, 8));
    }

    #[test]
    fn no_difference_in_few_is_no_proof_that_there_is_none() {
        let few = paired(&pairs(&[(1.0, 1.0); 5])).unwrap();
        assert!(few.value == 0.0 && few.interval.high > 0.4 && few.interval.low < -0.4, "{few:?}");
        let many = paired(&pairs(&[(1.0, 1.0); 500])).unwrap();
        assert!(many.interval.high < 0.01, "{many:?}");
        // All the same way: five coins prove nothing yet, six do.
        for (count, proves) in [(1, false), (5, false), (6, true)] {
            let known = paired(&pairs(&vec![(0.0, 1.0); count])).unwrap();
            assert_eq!((known.is_significant(), known.chance.unwrap() < 0.05), (proves, proves), "{known:?}");
            assert!(known.interval.high <= 1.0, "{known:?}");
        }
        assert_eq!(paired(&[]), None);
        assert_eq!(unpaired(&[], &[Cluster { count: 1.0, sum: 1.0 }; 3]), None);
    }
}
