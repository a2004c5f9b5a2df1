//! Differences of two runs: exactness, significance, coverage.

use super::*;
use crate::interval::clustered_interval_at;

fn pairs(scores: &[(f64, f64)]) -> Vec<ScorePair> {
    let pair =
        |(trajectory, (before, after)): (usize, &(f64, f64))| ScorePair { trajectory, before: *before, after: *after };
    scores.iter().enumerate().map(pair).collect()
}

#[test]
fn pairs_show_what_means_alone_do_not() {
    // Half of all is right, before and after, and ten got better.
    let mut scores = vec![(1.0, 1.0); 50];
    scores.extend(vec![(0.0, 0.0); 40]);
    scores.extend(vec![(0.0, 1.0); 10]);
    let known = paired_difference(&pairs(&scores)).unwrap();
    assert!((known.value - 0.1).abs() < 1e-12 && known.is_significant(), "{known:?}");
    assert!(known.p_value.unwrap() < 0.01);
    let cluster = |score: f64| ScoreCluster { count: 1.0, sum: score };
    let [before, after]: [Vec<ScoreCluster>; 2] = [
        scores.iter().map(|(before, _)| cluster(*before)).collect(),
        scores.iter().map(|(_, after)| cluster(*after)).collect(),
    ];
    let apart = unpaired_difference(&before, &after, 0.0, 1.0).unwrap();
    assert!((apart.value - 0.1).abs() < 1e-12 && !apart.is_significant(), "{apart:?}");
    assert_eq!(apart.p_value, None);
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
        assert_eq!((known.is_significant(), known.p_value.unwrap() < 0.05), (proves, proves), "{known:?}");
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
                let case = format!("{better} better, {worse} worse of {all}: {known:?}");
                assert_eq!(low > 0.0 || high < 0.0, known.p_value.unwrap() < ALPHA, "{case}");
                assert!(low <= known.value && known.value <= high && low < high, "{case}");
                assert!((known.after - known.before - known.value).abs() < 1e-12, "{case}");
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
fn means_of_different_numbers_of_trials_are_equal_if_behaviour_is() {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let trials = [1.0 / 3.0; 5];
    let (few, many) = (mean(&trials), mean(&trials.repeat(4)));
    assert_ne!(few, many, "the means differ by rounding");
    let known = paired_difference(&pairs(&[(few, many); 40])).unwrap();
    assert_eq!((known.value, known.p_value, known.is_significant()), (0.0, Some(1.0), false), "{known:?}");
}

/// The p-value of graded scores is the level at which their interval ends at 0.
#[test]
fn p_values_of_single_graded_scores_follow_their_intervals() {
    let graded = |scores: [f64; 8]| scores.map(|sum| ScoreCluster { count: 1.0, sum });
    let before = graded([0.0, 0.0, 0.1, 0.0, 0.2, 0.1, 0.3, 0.0]);
    let after = graded([1.0, 0.9, 0.9, 1.0, 1.0, 0.8, 0.6, 1.0]);
    let side = |clusters: &[ScoreCluster], alpha: f64| clustered_interval_at(clusters, 0.0, 1.0, alpha).unwrap();
    let known = unpaired_difference(&before, &after, 0.0, 1.0).unwrap();
    let includes_zero = |alpha: f64| {
        let (old, new) = (side(&before, alpha), side(&after, alpha));
        known.value <= (known.after - new.low).hypot(old.high - known.before)
    };
    let (mut low, mut high) = (1e-6, 0.5);
    for _ in 0..60 {
        let alpha = f64::midpoint(low, high);
        if includes_zero(alpha) { low = alpha } else { high = alpha }
    }
    let p_value = known.combined_p_value();
    // Never below it: that would claim more than the interval does.
    assert!((0.95..2.0).contains(&(p_value / low)), "{p_value}, and the interval ends at 0 at {low}");
}

/// One graded score per trajectory: the p-value is as rare as it claims, also far below 0.05, where a correction
/// for several dimensions looks.
#[test]
fn p_values_of_single_graded_scores_are_calibrated() {
    let mut random = fastrand::Rng::with_seed(6);
    const ROUNDS: u32 = 20_000;
    let mut draw = |count: usize| -> Vec<ScoreCluster> {
        let mut score = || [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0][random.usize(..7)];
        (0..count).map(|_| ScoreCluster { count: 1.0, sum: score() }).collect()
    };
    let mut small = [0; 2];
    for _ in 0..ROUNDS {
        let (before, after) = (draw(6), draw(6));
        let p_value = unpaired_difference(&before, &after, 0.0, 1.0).unwrap().combined_p_value();
        small[0] += u32::from(p_value < 0.05);
        small[1] += u32::from(p_value < 0.002);
    }
    let [usual, rare] = small.map(|count| f64::from(count) / f64::from(ROUNDS));
    assert!(usual <= 0.055 && rare <= 0.0025, "{usual} {rare}");
}

#[test]
fn several_differences_are_corrected_together() {
    let improve = |better: usize, all: usize| {
        let mut scores = vec![(0.0, 1.0); better];
        scores.resize(all, (1.0, 1.0));
        paired_difference(&pairs(&scores)).unwrap()
    };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    // Six coins of six: 1 in 32; eight of eight: 1 in 128.
    let all = [improve(6, 50), improve(8, 50), improve(0, 50)];
    assert!(all[0].is_significant());
    let found = correct_p_values(&all);
    assert!(near(found[0], 2.0 / 32.0) && near(found[1], 3.0 / 128.0) && near(found[2], 1.0), "{found:?}");
    assert!(near(correct_p_values(&all[..1])[0], 1.0 / 32.0), "one alone needs no correction");
    // A later one is never surer than one before it.
    let same = [improve(6, 50), improve(6, 50), improve(6, 50)];
    assert!(correct_p_values(&same).iter().all(|p_value| near(*p_value, 3.0 / 32.0)));
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
        assert_eq!(correct_p_values(&[other])[0] < ALPHA, other.is_significant(), "{other:?}");
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
    assert!(known.is_significant() && known.p_value.unwrap() < 1e-6, "{known:?}");
    assert!((0.01..0.03).contains(&correct_p_values(&[known])[0]));
    assert!(correct_p_values(&[known; 20])[0] > 0.2);
}

/// Ten dimensions without a difference: a significant one is rare.
#[test]
fn many_equal_dimensions_are_rarely_significant() {
    let mut random = fastrand::Rng::with_seed(5);
    const ROUNDS: u32 = 300;
    let mut significant = 0;
    for _ in 0..ROUNDS {
        let dimensions: Vec<ScoreDifference> = (0..10)
            .map(|_| {
                let scores: Vec<(f64, f64)> =
                    (0..200).map(|_| (0.5, 0.5 + 0.25 * (f64::from(random.u8(0..5)) - 2.0))).collect();
                paired_difference(&pairs(&scores)).unwrap()
            })
            .collect();
        significant += u32::from(correct_p_values(&dimensions).iter().any(|p_value| *p_value < ALPHA));
    }
    assert!(f64::from(significant) / f64::from(ROUNDS) < 0.06, "{significant}");
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
    let to_five = |clusters: Vec<ScoreCluster>| -> Vec<ScoreCluster> {
        clusters.into_iter().map(|one| ScoreCluster { sum: 1.0 + 4.0 * one.sum, ..one }).collect()
    };
    let graded = unpaired_difference(&to_five(shares(2, 0)), &to_five(shares(160, 40)), 1.0, 5.0).unwrap();
    assert!((graded.value + 0.8).abs() < 1e-9, "{graded:?}");
    assert!((graded.interval.high - 4.0 * known.interval.high).abs() < 1e-9, "{graded:?}");
}

#[test]
fn intervals_hold_the_truth_about_as_often_as_they_say() {
    let mut random = fastrand::Rng::with_seed(3);
    const ROUNDS: u32 = 1_500;
    // How often one gets better, and how often worse.
    for (better, worse, all) in [(0.05, 0.05, 100), (0.1, 0.02, 60), (0.3, 0.1, 40), (0.02, 0.0, 200)] {
        let mut covered = 0;
        for _ in 0..ROUNDS {
            let scores: Vec<(f64, f64)> = (0..all)
                .map(|_| match random.f64() {
                    drawn if drawn < better => (0.0, 1.0),
                    drawn if drawn < better + worse => (1.0, 0.0),
                    _ => (1.0, 1.0),
                })
                .collect();
            let ConfidenceInterval { low, high } = paired_difference(&pairs(&scores)).unwrap().interval;
            covered += u32::from((low..=high).contains(&(better - worse)));
        }
        let share = f64::from(covered) / f64::from(ROUNDS);
        assert!((0.94..=0.995).contains(&share), "{better} {worse} {all}: {share}");
    }
}
