//! Failure groups follow the verdicts: they are counted by trajectory, move with it, and go with it.

#![allow(clippy::unwrap_used)]

mod lab;

use gradus_core::text_signature::TextSignature;
use gradus_store::{
    FailureGroupKey, FailureGroupNote, FailureGroupOptions, FailureGroupRow, MetricFilter, OutcomeRecord, Store,
    TraceFilter, TrajectoryRecord,
};

use lab::*;

const LIST: FailureGroupOptions<'_> = FailureGroupOptions { before_ns: None, with_muted: false, key: None, limit: 10 };

fn wrong(step: u32, reason: &str, rule: &str) -> OutcomeRecord {
    let signature = if rule.is_empty() { TextSignature::from_text(reason) } else { TextSignature::default() };
    let group = FailureGroupKey {
        key: format!("{rule}/{reason}"),
        evaluator: "fit".to_owned(),
        tool: "look".to_owned(),
        rule: rule.to_owned(),
        label: "incorrect".to_owned(),
        reason: reason.to_owned(),
        signature,
    };
    OutcomeRecord { failure_group: Some(group), is_wrong: true, ..scored("fit", Some(step), "incorrect", 0.0, "look") }
}

fn groups(store: &Store, filter: &MetricFilter) -> Vec<(String, u64, u64)> {
    let list = store.failure_groups(filter, LIST).unwrap();
    list.groups.iter().map(|one| (one.reason.clone(), one.trajectories, one.verdicts)).collect()
}

fn only_group(store: &Store) -> FailureGroupRow {
    store.failure_groups(&MetricFilter::default(), LIST).unwrap().groups.remove(0)
}

/// A store with a trajectory in each of some traces, all with these outcomes.
fn lab_with(all: &[(u128, &str, i64, Vec<OutcomeRecord>)]) -> Lab {
    let lab = Lab::new();
    for (trace, version, start_ns, outcomes) in all {
        put(&lab, *trace, version, *start_ns, outcomes.clone());
    }
    lab
}

fn put(lab: &Lab, trace: u128, version: &str, start_ns: i64, outcomes: Vec<OutcomeRecord>) {
    lab.ingest(vec![chunk(trace, "shop", start_ns as u64, &[span(trace as u64)])], 1);
    let record =
        TrajectoryRecord { version: version.to_owned(), outcomes, ..trajectory(&format!("t{trace}"), trace, start_ns) };
    lab.assemble(lab.trace(trace).trace_group, vec![record], 2);
}

#[test]
fn groups_are_counted_by_trajectory_and_period() {
    let (missing, repeated) = (wrong(1, "a field is missing", "call.schema"), wrong(2, "repeated", "sequence.repeat"));
    let lab = lab_with(&[
        (1, "1", 100, vec![missing.clone()]),
        (2, "2", 200, vec![missing.clone(), wrong(2, "a field is missing", "call.schema")]),
        (3, "2", 300, vec![repeated]),
    ]);
    let all = MetricFilter::default();
    assert_eq!(groups(&lab.store, &all), [("a field is missing".into(), 2, 3), ("repeated".into(), 1, 1)]);
    let group = only_group(&lab.store);
    assert_eq!((group.first_seen_ns, group.versions), (100, vec![("2".into(), 1), ("1".into(), 1)]));
    // The run with the most such verdicts is the example, at its first step.
    let example = group.example.unwrap();
    assert_eq!((example.trajectory_id.as_str(), example.step), ("t2", Some(1)));
    let late = MetricFilter { from_ns: Some(200), ..MetricFilter::default() };
    let list = lab.store.failure_groups(&late, FailureGroupOptions { before_ns: Some(0), ..LIST }).unwrap();
    assert_eq!((list.groups[0].trajectories, list.groups[0].trajectories_before), (1, 1));
    let of = |filter: MetricFilter| groups(&lab.store, &filter).len();
    assert_eq!(of(MetricFilter { version: Some("1".into()), ..MetricFilter::default() }), 1);
    assert_eq!(of(MetricFilter { project: Some("other".into()), ..MetricFilter::default() }), 0);
    assert_eq!(of(MetricFilter { to_ns: Some(100), ..MetricFilter::default() }), 0);
    let latest = |filter: MetricFilter, key: &str| -> Vec<String> {
        let rows = lab.store.failure_trajectories(&filter, key, 10).unwrap();
        rows.into_iter().map(|row| row.trajectory_id).collect()
    };
    let key = "call.schema/a field is missing";
    assert_eq!(latest(MetricFilter::default(), key), ["t2", "t1"]);
    assert_eq!(latest(MetricFilter { to_ns: Some(200), ..MetricFilter::default() }, key), ["t1"]);
    assert_eq!(latest(MetricFilter { project: Some("other".into()), ..MetricFilter::default() }, key), [""; 0]);
    assert_eq!(latest(MetricFilter::default(), "none"), [""; 0]);
    let traces = |key: &str| lab.list(&TraceFilter { failure_group: Some(key.into()), ..TraceFilter::default() }, 10);
    assert_eq!((traces("call.schema/a field is missing"), traces("none")), (vec![2, 1], vec![]));
    lab.assert_clean();
}

#[test]
fn a_reason_in_other_words_is_counted_to_the_group_that_was_first() {
    let first = "the agent closed the issue although the user only asked to list open issues";
    let again = "the agent closed the issue, although the user had only asked to list the open issues.";
    let other = "the agent searched the wrong repository for the file that the user named";
    let lab = lab_with(&[
        (1, "1", 100, vec![wrong(1, first, "")]),
        (2, "1", 200, vec![wrong(1, again, "")]),
        (3, "1", 300, vec![wrong(1, other, "")]),
    ]);
    let found = groups(&lab.store, &MetricFilter::default());
    assert_eq!(found, [(first.to_owned(), 2, 2), (other.to_owned(), 1, 1)]);
    // The list of traces knows the group, too, not the wording.
    let filter = TraceFilter { failure_group: Some(format!("/{first}")), ..TraceFilter::default() };
    assert_eq!(lab.list(&filter, 10), [2, 1]);
}

#[test]
fn groups_follow_what_trajectories_become() {
    let lab = lab_with(&[(1, "1", 100, vec![wrong(1, "missing", "call.schema")])]);
    // More spans came, and nothing is wrong any more.
    let json = br#"{"id":"t1","more":1}"#.to_vec();
    let right = TrajectoryRecord {
        json,
        outcomes: vec![scored("fit", Some(1), "correct", 1.0, "look")],
        ..trajectory("t1", 1, 100)
    };
    lab.assemble(lab.trace(1).trace_group, vec![right], 3);
    assert_eq!(groups(&lab.store, &MetricFilter::default()), []);
    put(&lab, 2, "1", 200, vec![wrong(1, "missing", "call.schema")]);
    assert_eq!(groups(&lab.store, &MetricFilter::default()).len(), 1);
    let project = lab.store.project_named("shop").unwrap().unwrap().no;
    while lab.store.remove_project_step(project).unwrap().wait().unwrap().has_more {}
    assert_eq!(groups(&lab.store, &MetricFilter::default()), []);
    lab.assert_clean();
}

#[test]
fn people_name_mute_and_note() {
    let lab = lab_with(&[(1, "1", 100, vec![wrong(1, "missing", "call.schema")])]);
    let key = only_group(&lab.store).key;
    let say = |said: FailureGroupNote| lab.store.annotate_failure_group(&key, said, 9).unwrap().wait().unwrap();
    let text = |text: &str| Some(text.to_owned());
    assert!(say(FailureGroupNote { name: text("Old client"), note: text("ann looks"), is_muted: None }));
    let group = only_group(&lab.store);
    assert_eq!((group.name, group.note, group.is_muted), (text("Old client"), text("ann looks"), false));
    // What is not said stays, and an empty text removes.
    assert!(say(FailureGroupNote { note: text(""), is_muted: Some(true), ..FailureGroupNote::default() }));
    let list = lab.store.failure_groups(&MetricFilter::default(), LIST).unwrap();
    assert_eq!((list.groups.len(), list.group_count, list.muted_count), (0, 1, 1));
    let all = FailureGroupOptions { with_muted: true, ..LIST };
    let group = lab.store.failure_groups(&MetricFilter::default(), all).unwrap().groups.remove(0);
    assert_eq!((group.name, group.note, group.is_muted), (text("Old client"), None, true));
    let unknown = lab.store.annotate_failure_group("nothing", FailureGroupNote::default(), 9).unwrap();
    assert!(!unknown.wait().unwrap());
}

#[test]
fn verdicts_from_before_groups_are_grouped_later() {
    let plain = scored("fit", Some(1), "incorrect", 0.0, "look");
    let lab = lab_with(&[(1, "1", 100, vec![plain.clone()]), (2, "1", 200, vec![plain])]);
    let found = lab.store.ungrouped_verdicts(10).unwrap();
    assert_eq!((found.len(), groups(&lab.store, &MetricFilter::default())), (2, vec![]));
    let group = wrong(1, "missing", "call.schema").failure_group.unwrap();
    let keyed = found.into_iter().map(|verdict| (verdict, group.clone())).collect();
    lab.store.group_verdicts(keyed).unwrap().wait().unwrap();
    assert_eq!(groups(&lab.store, &MetricFilter::default()), [("missing".into(), 2, 2)]);
    assert_eq!(lab.store.ungrouped_verdicts(10).unwrap(), []);
    let filter = TraceFilter { failure_group: Some(group.key), ..TraceFilter::default() };
    assert_eq!(lab.list(&filter, 10), [2, 1]);
    lab.assert_clean();
}
