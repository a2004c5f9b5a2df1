//! Results, baselines and comparisons that tests invent.

use std::collections::BTreeMap;

use gradus_stats::comparison::{ComparisonSettings, ComparisonVerdict};

use super::*;
use crate::example::show_styles;

fn dimension(name: &str, rubric_hash: &str) -> ScoredDimension {
    ScoredDimension {
        name: name.to_owned(),
        title: name.to_uppercase(),
        worst: 0.0,
        best: 1.0,
        rubric_hash: rubric_hash.to_owned(),
        judge: "offline".to_owned(),
    }
}

/// `tasks` tasks with `trials` runs each; `right` gives how many of three steps are right.
/// Results as `version` makes them, of an agent that sends no spans any more.
fn version_without_steps(name: &str) -> VersionResults {
    let mut results = version(name, 4, 1, |_, _| 3);
    results.tasks.values_mut().flat_map(|task| &mut task.runs).for_each(|run| run.steps = Some(0));
    results
}

#[test]
fn a_version_that_lost_its_steps_is_named() {
    let settings = ComparisonSettings::default();
    let with_steps = version("one", 4, 1, |_, _| 3);
    let compare = |versions: &[VersionResults]| VersionComparison::from_versions(versions, &settings).expect("tasks");
    let lost = compare(&[with_steps.clone(), version_without_steps("two")]);
    assert_eq!(lost.without_steps, ["B"]);
    assert!(lost.notes().any(|note| note.starts_with("B recorded no step, and A did")));
    assert!(compare(&[version_without_steps("one"), version_without_steps("two")]).without_steps.is_empty());
    // Trials that were not graded have no number of steps.
    let mut ungraded = with_steps.clone();
    ungraded.tasks.values_mut().flat_map(|task| &mut task.runs).for_each(|run| run.steps = None);
    assert!(compare(&[with_steps, ungraded]).without_steps.is_empty());
}

fn version(name: &str, tasks: usize, trials: usize, right: impl Fn(usize, usize) -> u32) -> VersionResults {
    let header = VersionHeader {
        name: name.to_owned(),
        run_id: format!("run-{name}"),
        is_complete: true,
        judge: "offline".to_owned(),
        dimensions: vec![dimension("fit", "h1"), dimension("other", "h2")],
        ..VersionHeader::default()
    };
    let mut results = VersionResults { header, tasks: BTreeMap::new(), metrics: BTreeMap::new() };
    for task in 0..tasks {
        let run = |trial: usize| RunValues {
            trajectory_id: format!("{name}-{task}-{trial}"),
            scores: vec![
                Some(ScoreTally { sum: f64::from(right(task, trial)), count: 3 }),
                (task > 0).then_some(ScoreTally { sum: 1.0, count: 1 }),
            ],
            steps: Some(3),
            tokens: Some(100),
            cost_usd: None,
            seconds: Some(1.25),
        };
        let runs = (0..trials).map(run).collect();
        let request = Some(format!("Task {task} <script> | \u{1b}[31m"));
        results.tasks.insert(TaskKey::Item(format!("item-{task:03}")), TaskRuns { request, runs });
    }
    results
}

fn compare(versions: &[VersionResults]) -> VersionComparison {
    VersionComparison::from_versions(versions, &ComparisonSettings::default()).unwrap()
}

fn verdicts(comparison: &VersionComparison) -> Vec<(&str, ComparisonVerdict)> {
    let found = &comparison.report.pairs[0].dimensions;
    found.iter().map(|found| (found.dimension.as_str(), found.verdict)).collect()
}

fn print_to_text(comparison: &VersionComparison) -> String {
    let mut printed = Vec::new();
    print_comparison(comparison, &mut printed).unwrap();
    show_styles(&printed)
}

#[test]
fn a_baseline_gives_back_what_was_written() {
    let results = version("v1", 5, 3, |task, trial| ((task + trial) % 4) as u32);
    let write = |results: &VersionResults, with_content| {
        let mut written = Vec::new();
        write_baseline(results, with_content, &mut written).unwrap();
        String::from_utf8(written).unwrap()
    };
    let text = write(&results, true);
    let read = read_baseline(text.as_bytes()).unwrap();
    assert_eq!(write(&read, true), text);
    assert_eq!(read.header, results.header);
    // Runs arrive in any order; the file is the same.
    let mut turned = results.clone();
    turned.tasks.values_mut().for_each(|task| task.runs.reverse());
    assert_eq!(write(&turned, true), text);
    let plain = write(&results, false);
    assert!(!plain.contains("script") && !plain.contains("v1-0-0"), "{plain}");
    assert!(is_baseline(plain.as_bytes()) && !is_baseline(b"{}"));
    assert_eq!(read_baseline(plain.as_bytes()).unwrap().metric_values(), results.metric_values());
}

#[test]
fn runs_without_a_price_are_counted() {
    let priced = |first: usize| {
        let mut results = version("v1", 4, 1, |_, _| 2);
        for (at, task) in results.tasks.values_mut().enumerate() {
            task.runs[0].cost_usd = (at >= first).then_some(0.01);
        }
        results
    };
    let notes = |before, after| compare(&[priced(before), priced(after)]).notes().collect::<Vec<String>>();
    let found = notes(1, 0);
    assert!(found.iter().any(|note| note.starts_with("The cost of 1 of 4 runs of A is not known")), "{found:?}");
    // Without a single price there is no cost to compare, and that is said once.
    assert_eq!(notes(1, 4), ["B has no value of Agent cost ($): not compared."]);
}

#[test]
fn equal_shares_of_unequal_trials_are_equal() {
    // Thirds are no floating-point numbers, and means of means of them even less.
    let right = |task: usize, trial: usize| ((task + trial) % 2 + 1) as u32;
    let few = version("few", 40, 4, right);
    let many = version("many", 40, 20, right);
    let comparison = compare(&[few, many]);
    for found in &comparison.report.pairs[0].dimensions {
        assert_eq!(found.effect, 0.0, "{found:?}");
        assert!(matches!(found.verdict, ComparisonVerdict::Same | ComparisonVerdict::Inconclusive), "{found:?}");
    }
    assert_eq!((comparison.flips[0].worse_count, comparison.flips[0].better_count), (0, 0));
    let text = print_to_text(&comparison);
    assert!(!text.contains("-0.0 points") && text.contains("The number of trials differs"), "{text}");
}

#[test]
fn a_drop_is_worse_and_the_rest_is_not() {
    let before = version("v1", 40, 2, |_, _| 3);
    let after = version("v2", 40, 2, |task, _| if task % 2 == 0 { 1 } else { 3 });
    let comparison = compare(&[before.clone(), after.clone()]);
    assert_eq!(comparison.pairing, RunPairing::Task);
    assert!(verdicts(&comparison).contains(&("fit", ComparisonVerdict::Worse)), "{:?}", verdicts(&comparison));
    assert!(!verdicts(&comparison).contains(&("other", ComparisonVerdict::Worse)));
    assert!(!verdicts(&comparison).contains(&("steps", ComparisonVerdict::Worse)));
    assert!(comparison.has_regression());
    assert_eq!(comparison.flips[0].worse_count, 20);
    let back = compare(&[after, before]);
    assert!(verdicts(&back).contains(&("fit", ComparisonVerdict::Better)) && !back.has_regression());
}

#[test]
fn what_people_read() {
    let before = version("v1", 40, 2, |_, _| 3);
    let mut after = version("v2", 39, 2, |task, _| if task % 2 == 0 { 1 } else { 3 });
    after.header.is_complete = false;
    after.header.agent_versions = vec!["2.0\u{1b}".to_owned()];
    let comparison = compare(&[before, after]);
    insta::assert_snapshot!("console", print_to_text(&comparison));
    let mut markdown = Vec::new();
    write_comparison_markdown(&comparison, &mut markdown).unwrap();
    insta::assert_snapshot!("markdown", String::from_utf8(markdown).unwrap());
    let mut page = Vec::new();
    write_comparison_html(&comparison, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("WORSE") && !page.contains("<script"), "{page}");
}

#[test]
fn other_rubrics_and_judges_are_noticed() {
    let first = version("v1", 2, 1, |_, _| 3);
    let mut second = first.clone();
    second.header.dimensions[0].rubric_hash = "h9".to_owned();
    second.header.dimensions[1].judge = "openai:gpt-4o".to_owned();
    assert_eq!(
        find_mismatches(&first.header.dimensions, &second.header.dimensions),
        ["fit: the rubric or the rules changed", "other: judged by offline and by openai:gpt-4o"]
    );
    assert!(find_mismatches(&first.header.dimensions, &first.header.dimensions).is_empty());
}

#[test]
fn several_versions_are_compared_in_pairs() {
    let versions: Vec<VersionResults> =
        (0..5).map(|number| version(&format!("v{number}"), 20, 1, |_, _| if number == 4 { 1 } else { 3 })).collect();
    let comparison = compare(&versions);
    assert_eq!(comparison.report.pairs.len(), 10);
    let text = print_to_text(&comparison);
    assert!(text.contains("A → E") && text.contains("D → E") && text.contains("WORSE"), "{text}");
    // Pairs in which no task differs are one row for each dimension.
    let table = &build_comparison_tables(&comparison)[0];
    let rows = |title: &str| table.rows.iter().filter(|row| row[0] == title).map(|row| row[1].as_str()).collect();
    let (fit, other): (Vec<&str>, Vec<&str>) = (rows("FIT"), rows("OTHER"));
    assert_eq!(fit, ["A → E", "B → E", "C → E", "D → E", "6 other pairs"]);
    assert_eq!(other, ["all 10 pairs"]);
}

#[test]
fn the_same_runs_under_two_judges_are_paired_with_themselves() {
    let first = version("v1", 6, 3, |_, _| 3);
    let comparison = compare(&[first.clone(), first]);
    assert_eq!(comparison.pairing, RunPairing::Run);
    assert_eq!(comparison.report.pairs[0].dimensions[0].tasks.shared, 18);
}

#[test]
fn a_judge_that_stopped_early_is_paired_by_run() {
    let first = version("v1", 6, 3, |_, _| 3);
    let mut second = first.clone();
    second.tasks.pop_last();
    let comparison = compare(&[first, second]);
    assert_eq!(comparison.pairing, RunPairing::Run);
    assert_eq!(comparison.report.pairs[0].dimensions[0].tasks.shared, 15);
}

/// Recordings without ids get them from their content, so runs in which the agent did the same have the same id.
#[test]
fn runs_that_did_not_change_do_not_hide_those_that_did() {
    let is_broken = |task: usize, trial: usize| (task + trial).is_multiple_of(3);
    let before = version("v", 40, 3, |_, _| 3);
    let mut after = version("v", 40, 3, |task, trial| if is_broken(task, trial) { 1 } else { 3 });
    for (at, task) in after.tasks.values_mut().enumerate() {
        for (trial, run) in task.runs.iter_mut().enumerate().filter(|(trial, _)| is_broken(at, *trial)) {
            run.trajectory_id = format!("changed-{at}-{trial}");
        }
    }
    let comparison = compare(&[before, after]);
    assert_eq!(comparison.pairing, RunPairing::Task);
    assert_eq!(verdicts(&comparison)[0], ("fit", ComparisonVerdict::Worse), "{comparison:?}");
    assert_eq!(comparison.report.pairs[0].dimensions[0].tasks.shared, 40);
}

/// The files of an experiment say which item a trial is about; its traces, judged again, have only the request.
#[test]
fn items_are_paired_with_runs_that_have_only_requests() {
    let digest = |id: &str| format!("digest of {id}");
    let mut before = version("v1", 20, 2, |_, _| 3);
    let mut again = version("again", 20, 2, |task, _| if task == 0 { 1 } else { 3 });
    let items = std::mem::take(&mut again.tasks).into_iter().filter_map(|(key, mut runs)| {
        let TaskKey::Item(id) = key else { return None };
        before.header.item_requests.insert(id.clone(), digest(&id));
        runs.runs.iter_mut().for_each(|run| run.trajectory_id.push_str(" again"));
        Some((TaskKey::Request(digest(&id)), runs))
    });
    again.tasks = items.collect();
    let comparison = compare(&[before.clone(), again.clone()]);
    assert_eq!(comparison.pairing, RunPairing::Task);
    assert_eq!(comparison.report.pairs[0].dimensions[0].tasks.shared, 20);
    assert_eq!(comparison.flips[0].worse_count, 1);
    // A request that two items share says nothing about which of them a run is about.
    before.header.item_requests.insert("item-000".to_owned(), digest("item-001"));
    assert_eq!(compare(&[before, again]).pairing, RunPairing::None);
}

#[test]
fn a_run_that_is_compared_with_itself_is_named() {
    let mut run = version("v1", 6, 3, |_, _| 3);
    run.header.run_id = "20261115-0731".to_owned();
    let comparison = compare(&[run.clone(), run]);
    assert_eq!(comparison.notes().collect::<Vec<_>>(), ["A and B are the same run, so nothing can differ."]);
}
