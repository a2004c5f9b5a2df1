//! Corrected shares against brute force, and what bad or odd input comes to.

use fastrand::Rng;

use super::*;
use crate::distributions::{ln_beta, normal_tail};
use crate::interval::wilson_interval;

const SCORES: [f64; 2] = [0.0, 1.0];

fn case(stratum: usize, truth: f64) -> LabelledCase {
    LabelledCase { stratum, truth, probability: 1.0 }
}

/// A population of single cases.
fn population(counts: &[u32]) -> Vec<JudgedRun> {
    let mut runs = Vec::new();
    for (stratum, count) in counts.iter().enumerate() {
        let mut stratum_counts = vec![0; counts.len()];
        stratum_counts[stratum] = 1;
        runs.extend(std::iter::repeat_n(JudgedRun { stratum_counts }, *count as usize));
    }
    runs
}

/// Single labelled cases: by stratum, how many are right and how many wrong.
fn single_cases(counts: &[(usize, usize)]) -> Vec<LabelledRun> {
    let mut runs = Vec::new();
    for (stratum, (right, wrong)) in counts.iter().enumerate() {
        let one = |truth| LabelledRun { cases: vec![case(stratum, truth)] };
        runs.extend(std::iter::repeat_n(one(1.0), *right));
        runs.extend(std::iter::repeat_n(one(0.0), *wrong));
    }
    runs
}

fn correct(
    population: &[JudgedRun],
    labelled: &[LabelledRun],
    origin: LabelOrigin,
) -> Result<CorrectedShare, CorrectionRefusal> {
    correct_share(population, labelled, &SCORES, origin, 0.95)
}

fn correct_same(population: &[JudgedRun], labelled: &[LabelledRun]) -> CorrectedShare {
    correct(population, labelled, LabelOrigin::SamePopulation).unwrap()
}

/// Runs of several steps, some of them labelled, with a judge that is right in four of five.
fn random_runs(random: &mut Rng, runs: usize, strata: usize) -> (Vec<JudgedRun>, Vec<LabelledRun>) {
    let (mut population, mut labelled) = (Vec::new(), Vec::new());
    for at in 0..runs {
        let mut judged = JudgedRun { stratum_counts: vec![0; strata] };
        let mut sample = LabelledRun::default();
        for _ in 0..random.usize(1..6) {
            let is_right = random.f64() < 0.8;
            let stratum = if (random.f64() < 0.8) == is_right { strata - 1 } else { random.usize(0..strata) };
            judged.stratum_counts[stratum] += 1;
            sample.cases.push(case(stratum, f64::from(u8::from(is_right))));
        }
        population.push(judged);
        if at % 4 == 0 {
            labelled.push(sample);
        }
    }
    (population, labelled)
}

#[test]
fn a_judge_and_its_labels_are_combined() {
    let found = correct_same(&population(&[200, 800]), &single_cases(&[(4, 16), (76, 4)]));
    assert_eq!((found.estimator, found.labelled_runs), (ShareEstimator::PostStratified, 100));
    let wanted = 0.2 * 5.0 / 22.0 + 0.8 * 77.0 / 82.0;
    assert!((found.estimate - wanted).abs() < 1e-12, "{found:?}");
    assert!(found.lower < wanted - 0.04 && found.upper > wanted + 0.03, "{found:?}");
    let alone = share_from_labels(&single_cases(&[(4, 16), (76, 4)]), 0.95).unwrap();
    assert!(found.upper - found.lower < alone.upper - alone.lower, "{found:?} {alone:?}");
}

/// Points and weights of an integral over a Beta variable; the substitution `s² (3 - 2 s)` smooths the ends.
fn beta_points(a: f64, b: f64) -> Vec<(f64, f64)> {
    let pieces = 600;
    let point = |at: i32| {
        let s = (f64::from(at) + 0.5) / f64::from(pieces);
        let share = s * s * (3.0 - 2.0 * s);
        let ln_density = (a - 1.0) * share.ln() + (b - 1.0) * (-share).ln_1p() - ln_beta(a, b);
        (share, 6.0 * s * (1.0 - s) * ln_density.exp() / f64::from(pieces))
    };
    (0..pieces).map(point).filter(|(_, weight)| *weight > 1e-14).collect()
}

#[test]
fn bounds_are_those_of_a_brute_force_posterior() {
    for (judged, labels) in [
        ([200_u32, 800_u32], [(4, 16), (76, 4)]),
        ([90, 210], [(3, 9), (25, 2)]),
        ([400, 600], [(3, 21), (34, 2)]),
        ([500, 4_500], [(2, 10), (105, 3)]),
    ] {
        let found = correct_same(&population(&judged), &single_cases(&labels));
        assert_eq!(found.estimator, ShareEstimator::PostStratified);
        let all = f64::from(judged[0] + judged[1]);
        let shares = judged.map(|count| f64::from(count) / all);
        let means = labels.map(|(right, wrong)| (right as f64 + 1.0) / ((right + wrong) as f64 + 2.0));
        let estimate = shares[0] * means[0] + shares[1] * means[1];
        // Of single cases: the multinomial variance of the judge's labels.
        let spread = shares[0] * (means[0] - estimate).powi(2) + shares[1] * (means[1] - estimate).powi(2);
        let deviation = (spread / (all - 1.0)).sqrt();
        for (bound, probability, prior) in [(found.lower, 0.025, (0.5, 1.0)), (found.upper, 0.975, (1.0, 0.5))] {
            let points = labels.map(|(right, wrong)| beta_points(right as f64 + prior.0, wrong as f64 + prior.1));
            let cdf = |x: f64| -> f64 {
                let inner = |(first, weight): &(f64, f64)| -> f64 {
                    let rest = x - shares[0] * first;
                    let outer = |(second, other): &(f64, f64)| {
                        let z = (rest - shares[1] * second) / deviation;
                        if z > 7.0 {
                            *other
                        } else if z < -7.0 {
                            0.0
                        } else {
                            other * normal_tail(-z)
                        }
                    };
                    weight * points[1].iter().map(outer).sum::<f64>()
                };
                points[0].iter().map(inner).sum()
            };
            let step = 1e-4;
            let [below, at, above] = [bound - step, bound, bound + step].map(cdf);
            let error = (at - probability) * 2.0 * step / (above - below);
            assert!(error.abs() < 1e-6, "{judged:?} {labels:?}: {bound} is off by {error:e}");
        }
    }
}

#[test]
fn rights_and_wrongs_are_treated_alike() {
    let found = correct_same(&population(&[200, 800]), &single_cases(&[(4, 16), (76, 4)]));
    let mirrored = correct_same(&population(&[800, 200]), &single_cases(&[(4, 76), (16, 4)]));
    assert!((found.estimate + mirrored.estimate - 1.0).abs() < 1e-12);
    assert!((found.lower + mirrored.upper - 1.0).abs() < 1e-7 && (found.upper + mirrored.lower - 1.0).abs() < 1e-7);
}

#[test]
fn labels_that_all_say_the_same_leave_room() {
    let all_right = correct_same(&population(&[100, 900]), &single_cases(&[(3, 0), (27, 0)]));
    assert_eq!((all_right.estimator, all_right.estimate, all_right.upper), (ShareEstimator::LabelsAlone, 1.0, 1.0));
    assert!((0.85..0.93).contains(&all_right.lower), "{all_right:?}");
    let all_wrong = correct_same(&population(&[100, 900]), &single_cases(&[(0, 3), (0, 27)]));
    assert_eq!((all_wrong.estimate, all_wrong.lower), (0.0, 0.0));
    assert!((all_wrong.upper + all_right.lower - 1.0).abs() < 1e-9, "{all_wrong:?}");
    // Ten steps in each run say little more than the runs.
    let long: Vec<LabelledRun> = (0..30).map(|_| LabelledRun { cases: vec![case(1, 1.0); 10] }).collect();
    let long = correct_same(&population(&[100, 900]), &long);
    assert!((0.8..0.93).contains(&long.lower) && long.labelled_cases == 300, "{long:?}");
}

#[test]
fn a_judge_with_one_label_leaves_the_labels_alone() {
    let labelled = single_cases(&[(0, 0), (40, 10)]);
    let found = correct_same(&population(&[0, 500]), &labelled);
    let alone = share_from_labels(&labelled, 0.95).unwrap();
    assert!(
        (found.lower - alone.lower).abs() < 0.02 && (found.upper - alone.upper).abs() < 0.02,
        "{found:?} {alone:?}"
    );
    let refused = correct(&population(&[0, 500]), &labelled, LabelOrigin::OtherPopulation).unwrap_err();
    assert!(matches!(refused, CorrectionRefusal::UninformativeJudge { true_positive_rate: 1.0, .. }), "{refused}");
}

#[test]
fn too_little_and_bad_input_is_refused() {
    use CorrectionRefusal as Refusal;
    let judged = population(&[100, 100]);
    let enough = single_cases(&[(2, 10), (12, 2)]);
    let refuse = |judged: &[JudgedRun], labelled: &[LabelledRun]| {
        let refused = correct(judged, labelled, LabelOrigin::SamePopulation).unwrap_err();
        assert!(refused.to_string().starts_with("cannot correct a share: ") && !refused.to_string().contains('.'));
        refused
    };
    assert_eq!(refuse(&judged, &[]), Refusal::NoLabels);
    assert_eq!(refuse(&judged, &vec![LabelledRun::default(); 30]), Refusal::NoLabels);
    assert_eq!(refuse(&judged, &enough[..19]), Refusal::TooFewRuns { found: 19, needed: 20 });
    assert_eq!(refuse(&[], &enough), Refusal::EmptyPopulation);
    assert_eq!(refuse(&population(&[0, 0]), &enough), Refusal::EmptyPopulation);
    assert_eq!(refuse(&population(&[1, 1, 1]), &enough), Refusal::UnknownStratum { stratum: 2, count: 2 });
    let mut unknown = enough.clone();
    unknown[3].cases[0].stratum = 7;
    assert_eq!(refuse(&judged, &unknown), Refusal::UnknownStratum { stratum: 7, count: 2 });
    for odd in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
        let mut wrong = enough.clone();
        wrong[0].cases[0].truth = odd;
        let refused = correct(&judged, &wrong, LabelOrigin::SamePopulation).unwrap_err();
        assert!(matches!(refused, Refusal::InvalidNumber { .. }));
        let refused = correct_share(&judged, &enough, &[0.0, odd], LabelOrigin::SamePopulation, 0.95).unwrap_err();
        assert!(matches!(refused, Refusal::InvalidNumber { .. }));
    }
    for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut wrong = enough.clone();
        wrong[0].cases[0].probability = odd;
        assert!(correct(&judged, &wrong, LabelOrigin::SamePopulation).is_err());
        assert!(correct_share(&judged, &enough, &SCORES, LabelOrigin::SamePopulation, odd).is_err());
    }
    let one_class = single_cases(&[(5, 0), (30, 0)]);
    let refused = correct(&judged, &one_class, LabelOrigin::OtherPopulation).unwrap_err();
    assert_eq!(refused, Refusal::OneClassOnly { is_right: true, labelled_cases: 35 });
    let worse_than_chance = single_cases(&[(12, 3), (3, 12)]);
    let refused = correct(&judged, &worse_than_chance, LabelOrigin::OtherPopulation).unwrap_err();
    assert!(matches!(refused, Refusal::UninformativeJudge { .. }));
}

#[test]
fn neither_order_nor_names_matter() {
    let mut random = Rng::with_seed(3);
    let (mut judged, mut labelled) = random_runs(&mut random, 200, 4);
    let scores = [0.0, 0.25, 0.75, 1.0];
    for origin in [LabelOrigin::SamePopulation, LabelOrigin::OtherPopulation] {
        let first = correct_share(&judged, &labelled, &scores, origin, 0.95).unwrap();
        random.shuffle(&mut judged);
        random.shuffle(&mut labelled);
        for run in &mut labelled {
            random.shuffle(&mut run.cases);
        }
        // The labels of the judge in another order.
        let order = [2, 0, 3, 1];
        let renamed = |run: &JudgedRun| {
            let mut stratum_counts = vec![0; 4];
            for (count, stratum) in run.stratum_counts.iter().zip(order) {
                stratum_counts[stratum] = *count;
            }
            JudgedRun { stratum_counts }
        };
        let renamed_judged: Vec<JudgedRun> = judged.iter().map(renamed).collect();
        let mut renamed_labelled = labelled.clone();
        for case in renamed_labelled.iter_mut().flat_map(|run| &mut run.cases) {
            case.stratum = order[case.stratum];
        }
        let mut renamed_scores = scores;
        for (score, stratum) in scores.into_iter().zip(order) {
            renamed_scores[stratum] = score;
        }
        let second = correct_share(&renamed_judged, &renamed_labelled, &renamed_scores, origin, 0.95).unwrap();
        assert!((first.estimate - second.estimate).abs() < 1e-9, "{first:?} {second:?}");
        assert!((first.lower - second.lower).abs() < 1e-7 && (first.upper - second.upper).abs() < 1e-7);
    }
}

#[test]
fn only_ratios_of_probabilities_matter() {
    let mut random = Rng::with_seed(4);
    let (judged, mut labelled) = random_runs(&mut random, 200, 2);
    let first = correct_same(&judged, &labelled);
    for case in labelled.iter_mut().flat_map(|run| &mut run.cases) {
        case.probability = 0.031;
    }
    let second = correct_same(&judged, &labelled);
    assert!((first.lower - second.lower).abs() < 1e-9 && (first.estimate - second.estimate).abs() < 1e-12);
    // A case that was three times as likely to be chosen counts a third.
    let mut cases = single_cases(&[(10, 30), (60, 0)]);
    for run in &mut cases[..30] {
        run.cases[0].probability = 3.0;
    }
    let weighted = share_from_labels(&cases, 0.95).unwrap();
    let wanted = (10.0 / 3.0 + 60.0) / (30.0 / 3.0 + 10.0 + 60.0);
    assert!((weighted.estimate - wanted).abs() < 1e-12, "{weighted:?}");
}

#[test]
fn steps_of_one_run_say_less_than_as_many_runs() {
    let single = single_cases(&[(4, 16), (76, 4)]);
    let together: Vec<LabelledRun> = single.iter().map(|run| LabelledRun { cases: vec![run.cases[0]; 4] }).collect();
    let judged = population(&[200, 800]);
    let (one, four) = (correct_same(&judged, &single), correct_same(&judged, &together));
    let ratio = (four.upper - four.lower) / (one.upper - one.lower);
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn rare_labels_of_a_judge_are_merged() {
    // Eleven scores and 30 labels: a prior for each would leave nothing to the labels.
    let scores: Vec<f64> = (0..=10).map(|score| f64::from(score) / 10.0).collect();
    let mut counts = vec![(0, 0); 11];
    (counts[0], counts[3], counts[9], counts[10]) = ((0, 3), (1, 1), (5, 0), (20, 0));
    let mut judged = vec![10; 11];
    judged[10] = 700;
    let found = correct_share(&population(&judged), &single_cases(&counts), &scores, LabelOrigin::SamePopulation, 0.95)
        .unwrap();
    assert!(found.estimate > 0.85 && found.upper > 0.95, "{found:?}");
    let unlabelled_label = correct_same(&population(&[300, 700]), &single_cases(&[(0, 0), (40, 0)]));
    assert!(unlabelled_label.lower < 0.95, "{unlabelled_label:?}");
}

#[test]
fn any_input_gives_bounds_around_the_estimate() {
    let mut random = Rng::with_seed(5);
    for _ in 0..1_000 {
        let strata = random.usize(1..6);
        let scores: Vec<f64> = (0..strata).map(|_| random.f64()).collect();
        let truth = [0.0, 1.0, 0.5][random.usize(0..3)];
        let mut draw_case = || LabelledCase {
            stratum: random.usize(0..strata),
            truth: if random.bool() { truth } else { f64::from(u8::from(random.bool())) },
            probability: if random.bool() { 1.0 } else { 0.001 + random.f64() },
        };
        let mut labelled: Vec<LabelledRun> = (0..25).map(|_| LabelledRun { cases: vec![draw_case()] }).collect();
        for at in 0..25 {
            labelled[at % 7].cases.push(draw_case());
        }
        let judged: Vec<JudgedRun> = (0..random.usize(1..40))
            .map(|_| JudgedRun { stratum_counts: (0..strata).map(|_| random.u32(0..4)).collect() })
            .collect();
        for origin in [LabelOrigin::SamePopulation, LabelOrigin::OtherPopulation] {
            let confidence = [0.5, 0.9, 0.95, 0.999][random.usize(0..4)];
            if let Ok(found) = correct_share(&judged, &labelled, &scores, origin, confidence) {
                let CorrectedShare { estimate, lower, upper, .. } = found;
                assert!(0.0 <= lower && lower <= estimate && estimate <= upper && upper <= 1.0, "{found:?}");
            }
        }
        assert!(measure_judge(&labelled, &scores, UnjudgedCases::default(), 0.95).is_ok());
    }
}

#[test]
fn rogan_and_gladen_undo_the_errors_of_the_judge() {
    // 68 % accepted with rates of 80 % and 90 %: (0.68 + 0.9 - 1) / 0.7.
    let labelled = single_cases(&[(20, 90), (80, 10)]);
    let found = correct(&population(&[320, 680]), &labelled, LabelOrigin::OtherPopulation).unwrap();
    assert!((found.estimate - 0.58 / 0.7).abs() < 1e-12 && found.estimator == ShareEstimator::RoganGladen, "{found:?}");
    let counts = RoganGladenCounts {
        accepted_share: 0.68,
        population: 1_000.0,
        true_positive_rate: 0.8,
        right_cases: 100.0,
        true_negative_rate: 0.9,
        wrong_cases: 100.0,
    };
    let published = rogan_gladen_interval(&counts, 0.05).unwrap();
    assert!(found.lower <= published.low && found.upper >= published.high, "{found:?} {published:?}");
    assert!(found.lower > published.low - 0.02 && found.upper < published.high + 0.02, "{found:?} {published:?}");
    assert_eq!(rogan_gladen_estimate(&RoganGladenCounts { true_positive_rate: 0.1, ..counts }), None);
    assert_eq!(rogan_gladen_interval(&RoganGladenCounts { true_positive_rate: 0.05, ..counts }, 0.05), None);
}

#[test]
fn measures_are_those_of_the_confusion_matrix() {
    let labelled = single_cases(&[(6, 18), (70, 6)]);
    let found = measure_judge(&labelled, &SCORES, UnjudgedCases { right: 2, wrong: 1 }, 0.95).unwrap();
    let ConfusionCounts { accepted_right, accepted_wrong, rejected_right, rejected_wrong, .. } = found.confusion;
    assert_eq!([accepted_right, accepted_wrong, rejected_right, rejected_wrong], [70, 6, 6, 18]);
    assert_eq!((found.confusion.could_not_judge_right, found.confusion.could_not_judge_wrong), (2, 1));
    let z = crate::distributions::normal_quantile(0.05);
    for (measure, good, all) in [
        (found.true_positive_rate, 70.0, 76.0),
        (found.true_negative_rate, 18.0, 24.0),
        (found.precision, 70.0, 76.0),
        (found.accuracy, 88.0, 100.0),
        (found.base_rate, 76.0, 100.0),
    ] {
        let measure = measure.unwrap();
        let wilson = wilson_interval(good / all, all, z);
        assert!((measure.value - good / all).abs() < 1e-12 && measure.cases == all as usize, "{measure:?}");
        assert!((measure.lower - wilson.low).abs() < 1e-12 && (measure.upper - wilson.high).abs() < 1e-12);
    }
    let (chance, gwet) = (0.76 * 0.76 + 0.24 * 0.24, 2.0 * 0.76 * 0.24);
    assert!((found.kappa.unwrap().value - (0.88 - chance) / (1.0 - chance)).abs() < 1e-12);
    assert!((found.ac1.unwrap().value - (0.88 - gwet) / (1.0 - gwet)).abs() < 1e-12);
    let one_sided = measure_judge(&single_cases(&[(0, 0), (30, 5)]), &SCORES, UnjudgedCases::default(), 0.95).unwrap();
    assert!(one_sided.kappa.is_none() && one_sided.ac1.is_some() && one_sided.true_positive_rate.is_some());
    let nothing = measure_judge(&[], &SCORES, UnjudgedCases::default(), 0.95).unwrap();
    assert!(nothing.accuracy.is_none() && nothing.kappa.is_none() && nothing.ac1.is_none());
}

#[test]
fn repeats_split_the_variance() {
    // The judge flips a coin for half of the steps, and agrees with itself on the others.
    let mut random = Rng::with_seed(6);
    let runs: Vec<RepeatedRun> = (0..2_000)
        .map(|at| RepeatedRun {
            cases: (0..2)
                .map(|step| match step {
                    0 => (0..4).map(|_| random.usize(0..2)).collect(),
                    _ => vec![at % 2; 4],
                })
                .collect(),
        })
        .collect();
    let found = measure_repeats(&runs, &SCORES, 0.95).unwrap();
    assert!((found.flip_rate.value - 0.25).abs() < 0.01 && found.flip_rate.cases == 4_000, "{found:?}");
    assert!(found.flip_rate.lower < 0.25 && found.flip_rate.upper > 0.25);
    // Coins have the variance 1/4 in half of the steps.
    assert!((found.variance.judge - 0.125).abs() < 0.005, "{found:?}");
    assert!((found.variance.mean_judge - 0.125 / 4.0 / 4_000.0).abs() < 1e-6, "{found:?}");
    let steady: Vec<RepeatedRun> = (0..50).map(|at| RepeatedRun { cases: vec![vec![at % 2; 3]] }).collect();
    let steady = measure_repeats(&steady, &SCORES, 0.95).unwrap();
    assert_eq!((steady.flip_rate.value, steady.changed_cases, steady.variance.judge), (0.0, 0, 0.0));
    assert_eq!(steady.variance.reliability, Some(1.0));
    assert!(steady.flip_rate.upper > 0.01 && (steady.variance.run - 12.5 / 49.0).abs() < 1e-12, "{steady:?}");
    assert!(measure_repeats(&[RepeatedRun { cases: vec![vec![1]] }], &SCORES, 0.95).is_none());
    assert!(measure_repeats(&[RepeatedRun { cases: vec![vec![1, 2]] }], &SCORES, 0.95).is_none());
}

/// The parts are found again in data that was made from them: runs pass with probability 0.5 plus or minus 0.3, and each
/// answer is drawn anew.
#[test]
fn known_parts_of_the_variance_are_recovered() {
    let mut random = Rng::with_seed(11);
    let mut tally = VarianceTally::default();
    for _ in 0..20_000 {
        let probability = if random.bool() { 0.8 } else { 0.2 };
        for _ in 0..2 {
            let answers: Vec<f64> = (0..3).map(|_| f64::from(u8::from(random.f64() < probability))).collect();
            tally.add_case(answers.into_iter());
        }
        // One answer shows nothing about the judge.
        tally.add_case(std::iter::once(1.0));
        tally.end_run();
    }
    let found = tally.components().unwrap();
    assert!((found.run - 0.09).abs() < 0.003 && found.step < 0.003, "{found:?}");
    assert!((found.judge - 0.16).abs() < 0.003, "{found:?}");
    // The variance of the score of a run is 0.09 + 0.16 / 6.
    let share = found.judge_share().unwrap();
    assert!((share - (0.16 / 6.0) / (0.09 + 0.16 / 6.0)).abs() < 0.01, "{share}");
}

#[test]
fn one_side_of_the_variance_can_be_all_of_it() {
    let split = |runs: &[&[f64]]| {
        let mut tally = VarianceTally::default();
        for answers in runs {
            tally.add_case(answers.iter().copied());
            tally.end_run();
        }
        tally.components()
    };
    let steady = split(&[&[1.0, 1.0], &[0.0, 0.0]]).unwrap();
    assert_eq!((steady.run, steady.judge, steady.judge_share()), (0.5, 0.0, Some(0.0)));
    let noisy = split(&[&[1.0, 0.0], &[0.0, 1.0], &[1.0, 0.0]]).unwrap();
    assert_eq!((noisy.run, noisy.judge, noisy.judge_share()), (0.0, 0.5, Some(1.0)));
    let constant = split(&[&[1.0, 1.0], &[1.0, 1.0]]).unwrap();
    assert_eq!((constant.judge_share(), constant.reliability), (None, None));
    assert!(split(&[&[1.0], &[0.0]]).is_none() && split(&[]).is_none());
}

#[test]
fn sample_sizes_are_those_of_the_formulas() {
    for (half_width, rate, wanted) in [(0.1, 0.9, 35), (0.1, 0.95, 19), (0.05, 0.9, 139), (0.05, 0.8, 246)] {
        assert_eq!(class_labels_needed(half_width, 0.95, rate, 1.0).unwrap(), wanted);
    }
    assert_eq!(class_labels_needed(0.1, 0.95, 0.9, 2.0).unwrap(), 70);
    // One stratum is the plain formula; a stratum without doubt needs next to nothing.
    assert_eq!(labels_needed(0.05, 0.95, &[1.0], &[0.9], 1.0).unwrap().total, 139);
    let plan = labels_needed(0.05, 0.95, &[0.5, 0.5], &[1.0, 0.5], 1.0).unwrap();
    assert_eq!(plan.per_stratum[0], 2);
    assert_eq!(plan.per_stratum[1], 97);
    for (half_width, shares, right) in
        [(0.0, vec![1.0], vec![0.5]), (0.05, vec![0.5], vec![0.5]), (0.05, vec![1.0], vec![f64::NAN])]
    {
        assert!(matches!(
            labels_needed(half_width, 0.95, &shares, &right, 1.0),
            Err(SampleSizeError::InvalidNumber { .. })
        ));
    }
    assert!(labels_needed(0.05, 0.95, &[1.0], &[], 1.0).is_err());
    assert!(labels_needed(0.05, 0.95, &[1.0], &[0.5], 0.5).is_err());
}

/// The planned number of labels gives about the planned width.
#[test]
fn a_plan_from_a_pilot_keeps_its_promise() {
    let judged = population(&[300, 700]);
    let pilot = single_cases(&[(3, 9), (25, 3)]);
    let outlook = outlook_from_labels(&judged, &pilot, &SCORES).unwrap();
    assert_eq!((outlook.stratum_shares.clone(), outlook.design_effect), (vec![0.3, 0.7], 1.0));
    let plan =
        labels_needed(0.05, 0.95, &outlook.stratum_shares, &outlook.right_shares, outlook.design_effect).unwrap();
    let label = |at: usize| {
        let right = (outlook.right_shares[at] * plan.per_stratum[at] as f64).round() as usize;
        (right, plan.per_stratum[at] as usize - right)
    };
    let found = correct_same(&population(&[30_000, 70_000]), &single_cases(&[label(0), label(1)]));
    let half_width = 0.5 * (found.upper - found.lower);
    assert!((0.045..0.055).contains(&half_width), "{half_width} {plan:?}");
    assert!(outlook_from_labels(&[], &pilot, &SCORES).is_err());
}
