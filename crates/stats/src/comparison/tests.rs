//! Properties of comparisons: exactness, symmetry, degenerate samples.

use super::*;
use crate::interval::ConfidenceInterval;

/// Values by task for each of two versions.
type TaskValues = [(Vec<f64>, Vec<f64>)];

fn compare_dimension(dimension: ComparedDimension, tasks: &TaskValues) -> DimensionComparison {
    let mut report = compare_tasks(vec![dimension], tasks);
    report.pairs.remove(0).dimensions.remove(0)
}

fn compare_tasks(dimensions: Vec<ComparedDimension>, tasks: &TaskValues) -> ComparisonReport {
    let count = dimensions.len();
    let mut samples = ComparisonSamples::new(dimensions, vec!["a".to_owned(), "b".to_owned()]);
    for (task, (first, second)) in tasks.iter().enumerate() {
        for (version, values) in [first, second].into_iter().enumerate() {
            for (dimension, value) in
                (0..count).flat_map(|dimension| values.iter().map(move |value| (dimension, value)))
            {
                samples.add_value(version, dimension, &format!("task {task}"), *value).unwrap();
            }
        }
    }
    compare_versions(&samples, &ComparisonSettings::default()).unwrap()
}

fn swap(tasks: &TaskValues) -> Vec<(Vec<f64>, Vec<f64>)> {
    tasks.iter().map(|(first, second)| (second.clone(), first.clone())).collect()
}

/// Tasks of random sizes and values: binary, shares of steps, amounts.
fn random_tasks(random: &mut fastrand::Rng, kind: usize) -> Vec<(Vec<f64>, Vec<f64>)> {
    let trials = if random.bool() { 1 } else { random.usize(1..6) };
    let change = if random.bool() { 0.0 } else { random.f64() };
    let mut draw = |is_second: bool| -> Vec<f64> {
        let mut value = || match kind {
            0 => f64::from(u8::from(random.f64() < if is_second { 0.3 + 0.6 * change } else { 0.7 })),
            1 => {
                let steps = random.u32(1..12);
                f64::from(random.u32(0..=steps)) / f64::from(steps)
            }
            _ => (random.f64() * 3.0 + if is_second { change } else { 0.0 }).exp() * 0.001,
        };
        (0..trials).map(|_| value()).collect()
    };
    let count = [1, 2, 5, 15, 40][draw(false).len() % 5];
    (0..count).map(|_| (draw(false), draw(true))).collect()
}

fn dimension_for(kind: usize) -> ComparedDimension {
    if kind < 2 { ComparedDimension::score("x") } else { ComparedDimension::amount("x") }
}

#[test]
fn swapping_the_versions_mirrors_the_result() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..600 {
        let kind = round % 3;
        let mut tasks = random_tasks(&mut random, kind);
        // Also without common tasks, and with some.
        if round % 5 == 0 {
            let cut = random.usize(0..=tasks.len());
            for (at, (first, second)) in tasks.iter_mut().enumerate() {
                if at % 2 == 0 && at < cut { first.clear() } else { second.clear() }
            }
        }
        let (one, other) = (compare_tasks(vec![dimension_for(kind)], &tasks), {
            compare_tasks(vec![dimension_for(kind)], &swap(&tasks))
        });
        assert_eq!(one.pairs[0].missing, other.pairs[0].missing);
        for (one, other) in one.pairs[0].dimensions.iter().zip(&other.pairs[0].dimensions) {
            let mirror = |interval: ConfidenceInterval| (-interval.high, -interval.low);
            assert_eq!(one.effect, -other.effect, "{one:#?}");
            assert_eq!((one.interval.low, one.interval.high), mirror(other.interval), "{one:#?} {other:#?}");
            assert_eq!((one.adjusted_interval.low, one.adjusted_interval.high), mirror(other.adjusted_interval));
            assert_eq!((one.p_value, one.adjusted_p_value), (other.p_value, other.adjusted_p_value), "{one:#?}");
            assert_eq!((one.first_mean, one.second_mean), (other.second_mean, other.first_mean));
            assert_eq!((one.verdict, &one.plan), (other.verdict.mirror(), &other.plan), "{one:#?} {other:#?}");
        }
    }
}

#[test]
fn identical_inputs_never_differ() {
    let mut random = fastrand::Rng::with_seed(12);
    for round in 0..300 {
        let kind = round % 3;
        let tasks = random_tasks(&mut random, kind);
        // The same trials, four times as many, in another order.
        let repeat = |values: &[f64]| {
            let mut all = values.repeat(4);
            random.shuffle(&mut all);
            all
        };
        let mut repeat = repeat;
        let same: Vec<_> = tasks.iter().map(|(first, _)| (first.clone(), repeat(first))).collect();
        let found = compare_dimension(dimension_for(kind), &same);
        assert_eq!(
            (found.effect.to_bits(), found.p_value, found.first_mean),
            (0, 1.0, found.second_mean),
            "{found:#?}"
        );
        assert!(matches!(found.verdict, ComparisonVerdict::Same | ComparisonVerdict::Inconclusive), "{found:#?}");
        assert!(found.interval.low < 0.0 && found.interval.high > 0.0, "never certain: {found:#?}");
        assert_eq!(found.tasks.rose + found.tasks.fell, 0);
    }
}

#[test]
fn nothing_changed_is_the_same_only_over_enough_tasks() {
    let unchanged = |tasks: usize| vec![(vec![1.0; 5], vec![1.0; 5]); tasks];
    let few = compare_dimension(ComparedDimension::score("x"), &unchanged(40));
    assert_eq!((few.verdict, few.test), (ComparisonVerdict::Inconclusive, ComparisonTest::SignFlipExact));
    let plan = few.plan.unwrap();
    // The rule of three: 1 - 0.025^(1/n) reaches 0.05 at 72 tasks. More trials show nothing about other tasks.
    assert_eq!((plan.needed_tasks, plan.trials), (Some(72), TrialAdvice::CannotDecide), "{plan:?}");
    let enough = compare_dimension(ComparedDimension::score("x"), &unchanged(72));
    assert_eq!((enough.verdict, enough.plan), (ComparisonVerdict::Same, None));
    let binary = compare_dimension(ComparedDimension::score("x"), &vec![(vec![1.0], vec![1.0]); 40]);
    assert_eq!((binary.verdict, binary.test), (ComparisonVerdict::Inconclusive, ComparisonTest::McnemarMidP));
    assert!((binary.interval.high - few.interval.high).abs() < 1e-12);
    let free = compare_dimension(ComparedDimension::amount("x"), &vec![(vec![0.0], vec![0.0]); 40]);
    assert!(free.verdict == ComparisonVerdict::Inconclusive && free.interval.high > 0.05, "{free:#?}");
}

#[test]
fn one_task_and_equal_changes_prove_nothing_for_sure() {
    let one = compare_dimension(ComparedDimension::score("x"), &[(vec![0.0; 9], vec![1.0; 9])]);
    assert_eq!((one.interval.low, one.interval.high, one.verdict), (-1.0, 1.0, ComparisonVerdict::Inconclusive));
    assert_eq!(one.plan.unwrap().needed_tasks, None);
    let equal = compare_dimension(ComparedDimension::score("x"), &vec![(vec![0.8; 5], vec![0.6; 5]); 30]);
    assert!(equal.verdict == ComparisonVerdict::Worse && (equal.effect + 0.2).abs() < 1e-12, "{equal:#?}");
    assert!(equal.interval.high - equal.interval.low > 0.1, "{equal:#?}");
    let few = compare_dimension(ComparedDimension::score("x"), &vec![(vec![0.8; 5], vec![0.6; 5]); 5]);
    assert_eq!((few.verdict, few.p_value), (ComparisonVerdict::Inconclusive, 2.0 / 32.0));
    // Twice as expensive everywhere, whatever the task costs.
    let costs: Vec<_> = (1..=30).map(|task| (vec![f64::from(task) * 0.1], vec![f64::from(task) * 0.2])).collect();
    let double = compare_dimension(ComparedDimension::amount("cost"), &costs);
    assert!(double.verdict == ComparisonVerdict::Worse && double.interval.low < double.effect, "{double:#?}");
    assert!((relative_change(double.effect) - 1.0).abs() < 1e-12, "{double:#?}");
    // From nothing to something.
    let paid: Vec<_> = (1..=30).map(|task| (vec![0.0], vec![f64::from(task)])).collect();
    let paid = compare_dimension(ComparedDimension::amount("cost"), &paid);
    assert!(paid.verdict == ComparisonVerdict::Worse && paid.effect == 2.0, "{paid:#?}");
}

#[test]
fn mcnemar_is_for_single_binary_results_only() {
    let mut tasks = vec![(vec![0.0], vec![1.0]); 9];
    tasks.push((vec![1.0], vec![0.0]));
    tasks.extend(vec![(vec![1.0], vec![1.0]); 40]);
    let found = compare_dimension(ComparedDimension::score("x"), &tasks);
    assert_eq!((found.test, found.verdict), (ComparisonTest::McnemarMidP, ComparisonVerdict::Better));
    assert!((found.p_value - 12.0 / 1024.0).abs() < 1e-12);
    tasks[0] = (vec![0.0, 0.0], vec![1.0]);
    assert_eq!(compare_dimension(ComparedDimension::score("x"), &tasks).test, ComparisonTest::SignFlipExact);
    tasks[0] = (vec![0.5], vec![1.0]);
    assert_eq!(compare_dimension(ComparedDimension::score("x"), &tasks).test, ComparisonTest::SignFlipExact);
}

#[test]
fn more_dimensions_and_versions_need_more_evidence() {
    let mut tasks = vec![(vec![0.0], vec![1.0]); 7];
    tasks.extend(vec![(vec![1.0], vec![1.0]); 40]);
    let alone = compare_tasks(vec![ComparedDimension::score("x")], &tasks);
    assert_eq!(alone.pairs[0].dimensions[0].verdict, ComparisonVerdict::Better);
    let many = compare_tasks((0..10).map(|at| ComparedDimension::score(at.to_string())).collect(), &tasks);
    assert_eq!((many.test_count, many.adjusted_alpha), (10, 0.005));
    let first = &many.pairs[0].dimensions[0];
    assert_eq!((first.verdict, first.adjusted_p_value), (ComparisonVerdict::Inconclusive, 10.0 * first.p_value));
    assert_eq!(first.interval, alone.pairs[0].dimensions[0].interval);

    let mut samples = ComparisonSamples::new(
        vec![ComparedDimension::score("x"), ComparedDimension::amount("cost")],
        (0..5).map(|version| format!("v{version}")).collect(),
    );
    for (version, task) in (0..5).flat_map(|version| (0..30).map(move |task| (version, task))) {
        samples.add_value(version, 0, &task.to_string(), f64::from(u8::from(version != 3))).unwrap();
        if version != 4 {
            samples.add_value(version, 1, &task.to_string(), 1.0).unwrap();
        }
    }
    let report = compare_versions(&samples, &ComparisonSettings::default()).unwrap();
    assert_eq!((report.pairs.len(), report.test_count), (10, 10 + 6));
    for pair in &report.pairs {
        let expected = match (pair.first.as_str(), pair.second.as_str()) {
            (_, "v3") => ComparisonVerdict::Worse,
            ("v3", _) => ComparisonVerdict::Better,
            _ => ComparisonVerdict::Inconclusive,
        };
        assert_eq!(pair.dimensions[0].verdict, expected, "{pair:#?}");
        assert_eq!(pair.missing.is_empty(), pair.second != "v4", "{pair:#?}");
    }
}

#[test]
fn unpaired_versions_are_marked_and_extra_tasks_are_counted() {
    let tasks: Vec<_> = (0..80).map(|task| if task < 40 { (vec![1.0], vec![]) } else { (vec![], vec![0.0]) }).collect();
    let found = compare_dimension(ComparedDimension::score("x"), &tasks);
    assert_eq!((found.is_paired, found.test), (false, ComparisonTest::UnpairedStudent));
    assert_eq!((found.verdict, found.effect), (ComparisonVerdict::Worse, -1.0));
    let costs: Vec<_> = (0..80)
        .map(|task| {
            let cost = 1.0 + f64::from(task % 7) / 10.0;
            if task < 40 { (vec![cost], vec![]) } else { (vec![], vec![1.5 * cost]) }
        })
        .collect();
    let found = compare_dimension(ComparedDimension::amount("x"), &costs);
    assert!(!found.is_paired && found.verdict == ComparisonVerdict::Worse, "{found:#?}");
    let mut some = vec![(vec![1.0], vec![0.5]); 3];
    some.push((vec![1.0, 1.0], vec![]));
    some.push((vec![], vec![0.5]));
    let found = compare_dimension(ComparedDimension::score("x"), &some);
    assert!(found.is_paired);
    let counts =
        TaskCounts { shared: 3, only_first: 1, only_second: 1, rose: 0, fell: 3, first_runs: 5, second_runs: 4 };
    assert_eq!(found.tasks, counts);
}

#[test]
fn trials_help_where_trials_vary_and_tasks_do_not() {
    let mut random = fastrand::Rng::with_seed(13);
    // All tasks alike: the variance is that of the trials.
    let mut flip = |share: f64| -> Vec<f64> { (0..5).map(|_| f64::from(u8::from(random.f64() < share))).collect() };
    let noisy: Vec<_> = (0..200).map(|_| (flip(0.5), flip(0.5))).collect();
    let plan = compare_dimension(ComparedDimension::score("x"), &noisy).plan.unwrap();
    let TrialAdvice::Decide { trials_per_task } = plan.trials else { panic!("{plan:?}") };
    assert!((6..60).contains(&trials_per_task) && plan.needed_tasks.unwrap() > 250, "{plan:?}");
    // The same with few tasks: they seem alike, but nobody knows whether they are.
    let plan = compare_dimension(ComparedDimension::score("x"), &noisy[..15]).plan.unwrap();
    assert_eq!(plan.trials, TrialAdvice::Uncertain, "{plan:?}");
    // Every task is settled, and they differ: repeating them shows nothing new.
    let settled = (0..60).map(|task| [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)][task % 3]);
    let settled: Vec<_> = settled.map(|(first, second)| (vec![first; 5], vec![second; 5])).collect();
    let plan = compare_dimension(ComparedDimension::score("x"), &settled).plan.unwrap();
    assert_eq!(plan.trials, TrialAdvice::CannotDecide);
    let single = compare_dimension(ComparedDimension::score("x"), &vec![(vec![0.5], vec![0.5]); 60]).plan.unwrap();
    assert_eq!(single.trials, TrialAdvice::Unknown);
}

#[test]
fn the_order_of_values_does_not_matter() {
    let mut random = fastrand::Rng::with_seed(14);
    let mut values: Vec<(usize, String, f64)> =
        (0..600).map(|at| (at % 2, format!("task {}", random.u8(0..30)), random.f64())).collect();
    let compare = |values: &[(usize, String, f64)]| {
        let mut samples = ComparisonSamples::new(
            vec![ComparedDimension::score("x"), ComparedDimension::amount("y")],
            vec!["a".to_owned(), "b".to_owned()],
        );
        for (version, task, value) in values {
            samples.add_value(*version, 0, task, *value).unwrap();
            samples.add_value(*version, 1, task, 1e-3 * value.exp()).unwrap();
        }
        compare_versions(&samples, &ComparisonSettings::default()).unwrap()
    };
    let sorted = compare(&values);
    for _ in 0..20 {
        random.shuffle(&mut values);
        assert_eq!(compare(&values), sorted);
    }
    assert_eq!(serde_json::from_str::<ComparisonReport>(&serde_json::to_string(&sorted).unwrap()).unwrap(), sorted);
}

#[test]
fn settings_are_checked() {
    let samples = ComparisonSamples::new(vec![ComparedDimension::score("x").with_min_effect(0.0)], Vec::new());
    assert!(compare_versions(&samples, &ComparisonSettings::default()).is_err());
    let samples = ComparisonSamples::new(vec![ComparedDimension::score("x")], Vec::new());
    for (alpha, min_effect) in [(0.0, 0.05), (0.5, 0.05), (f64::NAN, 0.05), (0.05, 1.0), (0.05, -0.1)] {
        assert!(
            compare_versions(&samples, &ComparisonSettings { alpha, min_effect, ..ComparisonSettings::default() })
                .is_err(),
            "{alpha} {min_effect}"
        );
    }
    assert!(compare_versions(&samples, &ComparisonSettings::default()).unwrap().pairs.is_empty());
}

#[test]
fn a_large_change_in_few_tasks_asks_for_a_few_more() {
    // All of three tasks got worse: five would be significant at 5 % (mid-p 0.03).
    let all: Vec<_> = (0..3).map(|_| (vec![1.0], vec![0.0])).collect();
    let plan = compare_dimension(ComparedDimension::score("success"), &all).plan.unwrap();
    assert_eq!((plan.more_tasks, plan.more_tasks_if_as_seen), (Some(2), None), "{plan:?}");
    assert!(plan.detectable_effect.unwrap() > 0.4, "{plan:?}");
    // Three of four: to find 5 points takes hundreds of tasks, to find what was seen a few.
    let most: Vec<_> = (0..4).map(|task| (vec![1.0], vec![f64::from(u8::from(task == 0))])).collect();
    let plan = compare_dimension(ComparedDimension::score("success"), &most).plan.unwrap();
    assert!(plan.more_tasks.is_none_or(|more| more > 200), "{plan:?}");
    assert!(plan.more_tasks_if_as_seen.is_some_and(|more| (2..20).contains(&more)), "{plan:?}");
}

#[test]
fn absurd_numbers_of_tasks_are_no_advice() {
    // Two of forty tasks take fifty times as long or a fiftieth: the rest is equal, and the mean difference is none.
    let time = |task: usize| match task {
        0 => 50.0,
        1 => 0.02,
        _ => 1.0,
    };
    let tasks: Vec<_> = (0..40).map(|task| (vec![1.0], vec![time(task)])).collect();
    let found = compare_dimension(ComparedDimension::amount("latency"), &tasks);
    assert_eq!(found.verdict, ComparisonVerdict::Inconclusive, "{found:?}");
    let plan = found.plan.unwrap();
    assert_eq!((plan.needed_tasks, plan.more_tasks, plan.beyond_tasks), (None, None, Some(2_000)), "{plan:?}");
    assert!(plan.detectable_effect.is_some());
    // Where the number is within reach, it is given.
    let near: Vec<_> = (0..40).map(|task| (vec![1.0], vec![f64::from(u8::from(task > 2))])).collect();
    let plan = compare_dimension(ComparedDimension::score("success"), &near).plan.unwrap();
    assert!(plan.beyond_tasks.is_none() && plan.needed_tasks.is_some_and(|needed| needed < 2_000), "{plan:?}");
}
