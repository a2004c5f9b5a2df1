//! Trajectories and the verdicts on them, as they come, change and go.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use gradus_store::*;
use lab::*;

fn one_trace() -> (Lab, i64) {
    let lab = Lab::new();
    lab.ingest(vec![rooted(chunk(1, "shop", 10, &[span(1)]), "root", true)], 1);
    let trace_group = lab.trace(1).trace_group;
    (lab, trace_group)
}

fn waiting(id: &str, version: u32) -> TrajectoryRecord {
    let mut record = trajectory(id, 1, 10);
    record.json = format!(r#"{{"id":"{id}","version":{version}}}"#).into_bytes();
    record.ungraded_by = Some("nightly".to_owned());
    record
}

fn judge(lab: &Lab, who: &UngradedTrajectory, label: &str, is_done: bool) {
    let spend = JudgeSpend { rule: "nightly".to_owned(), calls: 1, unpriced: 0, cost_usd: 0.25 };
    let outcomes = vec![scored("fit", None, label, 1.0, "")];
    lab.store
        .record_verdicts(
            who,
            outcomes,
            spend,
            if is_done { RemainingGrading::Nothing } else { RemainingGrading::More },
            50,
        )
        .unwrap()
        .wait()
        .unwrap();
}

#[test]
fn what_waits_for_a_model_is_resumed_after_a_restart() {
    let (lab, trace_group) = one_trace();
    lab.assemble(trace_group, vec![waiting("a", 1), waiting("b", 1), waiting("c", 1)], 2);
    let first = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 2).unwrap();
    assert_eq!(first.iter().map(|one| one.trajectory_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    judge(&lab, &first[0], "good", true);
    judge(&lab, &first[1], "good", false);
    let lab = lab.reopened();
    let left = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 10).unwrap();
    assert_eq!(left.iter().map(|one| one.trajectory_id.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(lab.store.ungraded_trajectories("nightly", i64::MAX, left[0].no, 10).unwrap(), left[1..]);
    assert_eq!(lab.store.ungraded_trajectories("hourly", i64::MAX, 0, 10).unwrap(), []);
    assert_eq!(lab.store.ungraded_count().unwrap(), 2);
    assert_eq!(lab.store.load_spend_since(0, Some("nightly"), Some("shop")).unwrap().cost_usd, 0.5);
    assert_eq!(lab.store.load_spend_since(0, Some("hourly"), None).unwrap().cost_usd, 0.0);
}

#[test]
fn spending_is_known_to_five_minutes() {
    const MINUTE_NS: i64 = 60_000_000_000;
    let (lab, trace_group) = one_trace();
    lab.assemble(trace_group, vec![waiting("a", 1)], 2);
    let who = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 1).unwrap().remove(0);
    for minute in [2, 17, 58] {
        let spend = JudgeSpend { rule: "nightly".to_owned(), calls: 1, unpriced: 1, cost_usd: 1.0 };
        lab.store
            .record_verdicts(&who, vec![], spend, RemainingGrading::More, minute * MINUTE_NS)
            .unwrap()
            .wait()
            .unwrap();
    }
    let since = |minute: i64| lab.store.load_spend_since(minute * MINUTE_NS, None, None).unwrap().cost_usd;
    assert_eq!([0, 4, 5, 19, 20, 59, 60].map(since), [3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 0.0]);
}

#[test]
fn a_verdict_on_a_version_that_is_gone_is_dropped_but_paid() {
    let (lab, trace_group) = one_trace();
    lab.assemble(trace_group, vec![waiting("a", 1)], 2);
    let old = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 10).unwrap().remove(0);
    assert_eq!(lab.assemble(trace_group, vec![waiting("a", 2)], 3), 1);
    judge(&lab, &old, "good", true);
    assert!(lab.store.verdict_lines("a").unwrap().is_empty());
    let new = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 10).unwrap().remove(0);
    assert_ne!(new.digest, old.digest);
    assert_eq!(new.no, old.no, "it keeps its number");
    assert_eq!(lab.store.load_spend_since(0, None, None).unwrap().cost_usd, 0.25);
    judge(&lab, &new, "bad", true);
    assert_eq!(lab.store.verdict_lines("a").unwrap().len(), 1);
    assert_eq!(lab.store.ungraded_count().unwrap(), 0);
    // A trajectory that is not there at all.
    lab.assemble(trace_group, vec![], 4);
    judge(&lab, &new, "bad", true);
    assert_eq!(lab.store.load_spend_since(0, None, None).unwrap().cost_usd, 0.75);
    assert_eq!(lab.store.metrics(&MetricFilter::default(), MetricGroup::All).unwrap(), []);
    lab.assert_clean();
}

#[test]
fn a_trajectory_that_stays_the_same_keeps_its_verdicts() {
    let (lab, trace_group) = one_trace();
    lab.assemble(trace_group, vec![waiting("a", 1)], 2);
    let who = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 10).unwrap().remove(0);
    judge(&lab, &who, "good", true);
    assert_eq!(lab.assemble(trace_group, vec![waiting("a", 1)], 3), 0);
    assert_eq!(lab.store.verdict_lines("a").unwrap().len(), 1);
    assert_eq!(lab.store.ungraded_count().unwrap(), 0);
    assert_eq!(lab.list(&TraceFilter { label: Some("fit=good".into()), ..Default::default() }, 5), [1]);
}

#[test]
fn words_are_found_as_they_are_now() {
    let (lab, trace_group) = one_trace();
    let find = |text: &str| lab.list(&TraceFilter { text: Some(text.into()), ..Default::default() }, 5).len();
    for (version, words) in [(1, "apple"), (2, "banana"), (3, "apple again"), (4, "cherry")] {
        let mut record = waiting("a", version);
        record.words = words.to_owned();
        lab.assemble(trace_group, vec![record], 2);
        for word in ["apple", "banana", "cherry", "again"] {
            assert_eq!(find(word), usize::from(words.contains(word)), "{word} in version {version}");
        }
    }
    lab.assemble(trace_group, vec![], 2);
    assert_eq!(find("cherry"), 0);
    let mut record = waiting("b", 1);
    record.words = "new".to_owned();
    lab.assemble(trace_group, vec![record], 2);
    assert_eq!((find("cherry"), find("new")), (0, 1));
    let lab = lab.reopened();
    assert_eq!(lab.list(&TraceFilter { text: Some("new".into()), ..Default::default() }, 5), [1]);
    lab.assert_clean();
}

#[test]
fn trace_groups_that_are_stored_together_may_hold_the_same_trajectory() {
    let (lab, trace_group) = one_trace();
    lab.ingest(vec![rooted(chunk(2, "shop", 20, &[span(1)]), "root", true)], 1);
    let version = |trace: u128, words: &str| {
        let mut record = trajectory("a", trace, 10);
        record.json = format!("{{\"words\":\"{words}\"}}").into_bytes();
        record.words = format!("{words} {words}, Twice");
        record.outcomes = vec![scored("fit", Some(1), "good", 1.0, "look"), scored("fit", Some(2), "bad", 0.0, "")];
        record
    };
    let of = |trace_group: i64, records| AssembledTraceGroup { trace_group, due_ns: None, records };
    let trace_groups =
        vec![of(trace_group, vec![version(1, "lost")]), of(lab.trace(2).trace_group, vec![version(2, "found")])];
    assert_eq!(lab.store.store_assembled_groups(trace_groups, 2).unwrap().wait().unwrap(), 2);
    let rows = lab.store.metrics(&MetricFilter::default(), MetricGroup::All).unwrap();
    let moments = &rows[0].moments;
    assert_eq!((rows.len(), moments.trajectories, moments.scored, moments.sum), (1, 1, 2, 1.0));
    let by = |words: &str| lab.list(&TraceFilter { text: Some(words.to_owned()), ..TraceFilter::default() }, 10);
    assert_eq!((by("lost"), by("FOUND"), by("twice")), (vec![], vec![2], vec![2]));
    lab.assert_clean();
}

#[test]
fn a_verdict_takes_the_place_of_the_one_before() {
    let (lab, trace_group) = one_trace();
    lab.assemble(trace_group, vec![waiting("a", 1)], 2);
    let who = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 10).unwrap().remove(0);
    judge(&lab, &who, "good", false);
    judge(&lab, &who, "bad", true);
    let labelled = |label: &str| lab.list(&TraceFilter { label: Some(label.into()), ..Default::default() }, 5).len();
    assert_eq!((labelled("good"), labelled("bad"), labelled("fit=bad")), (0, 1, 1));
    let metrics = lab.store.metrics(&MetricFilter::default(), MetricGroup::All).unwrap();
    assert_eq!((metrics[0].moments.trajectories, metrics[0].moments.scored), (1, 1));
}

#[test]
fn annotations_are_replaced_filtered_and_go_with_their_trace() {
    let (lab, _) = one_trace();
    let note = |target: &str, name: &str, label: &str, trace_id| NewAnnotation {
        target: target.to_owned(),
        trace_id,
        name: name.to_owned(),
        annotator: "HUMAN".to_owned(),
        label: Some(label.to_owned()),
        metadata: "{}".to_owned(),
        ..NewAnnotation::default()
    };
    let put = |notes, now_ns| lab.store.annotate(notes, now_ns).unwrap().wait().unwrap();
    let first = put(vec![note("trace:1", "right", "yes", Some(1)), note("span:9", "right", "no", None)], 5);
    assert_eq!(put(vec![note("trace:1", "right", "no", Some(1))], 6), first[..1]);
    // Its trace comes later.
    put(vec![note("trace:2", "right", "yes", Some(2))], 7);
    lab.ingest(vec![chunk(2, "shop", 10, &[span(2)])], 8);
    put(vec![note("trace:2", "right", "yes", Some(2))], 9);
    let all = AnnotationFilter { limit: 10, ..Default::default() };
    let found = lab.store.annotations(&all).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!((found[0].label.as_deref(), found[0].created_ns, found[0].updated_ns), (Some("no"), 5, 6));
    let of_shop = AnnotationFilter { project: Some("shop".into()), ..all.clone() };
    assert_eq!(lab.store.annotations(&of_shop).unwrap().len(), 2);
    let of_one = AnnotationFilter { trace_id: Some(1), ..all.clone() };
    assert_eq!(lab.store.annotations(&of_one).unwrap().len(), 1);
    let after = AnnotationFilter { after: found[0].no, limit: 1, ..all.clone() };
    assert_eq!(lab.store.annotations(&after).unwrap(), found[1..2]);
    let retention = RetentionPolicy { max_age_ns: Some(1), max_bytes: None };
    lab.store.run_retention_step(retention, 1_000).unwrap().wait().unwrap();
    assert_eq!(lab.store.annotations(&all).unwrap(), found[1..2]);
    assert!(lab.store.remove_annotation(found[1].no).unwrap().wait().unwrap());
    assert!(!lab.store.remove_annotation(found[1].no).unwrap().wait().unwrap());
}

#[test]
fn what_got_no_answer_waits_and_is_taken_up_again() {
    let (lab, trace_group) = one_trace();
    lab.assemble(trace_group, vec![waiting("a", 1)], 2);
    let who = lab.store.ungraded_trajectories("nightly", 100, 0, 10).unwrap().remove(0);
    assert_eq!(who.attempts, 0);
    let later = RemainingGrading::RetryAt { ns: 500 };
    lab.store.record_verdicts(&who, vec![], JudgeSpend::default(), later, 50).unwrap().wait().unwrap();
    let waits = |now_ns| {
        lab.store
            .ungraded_trajectories("nightly", now_ns, 0, 10)
            .unwrap()
            .contains(&UngradedTrajectory { attempts: 1, ..who.clone() })
    };
    assert!(!waits(499) && waits(500));
    // Who is put off loses none of his attempts.
    lab.store
        .record_verdicts(&who, vec![], JudgeSpend::default(), RemainingGrading::PostponedUntil { ns: 900 }, 60)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(lab.store.ungraded_trajectories("nightly", 899, 0, 10).unwrap(), []);
    let again = lab.store.ungraded_trajectories("nightly", 900, 0, 10).unwrap().remove(0);
    assert_eq!((again.attempts, again.delays), (1, 1));
}

#[test]
fn what_waits_for_a_rule_that_is_gone_goes_to_another_or_nowhere() {
    let (lab, trace_group) = one_trace();
    let by = |id: &str, rule: &str| TrajectoryRecord { ungraded_by: Some(rule.to_owned()), ..waiting(id, 1) };
    lab.assemble(trace_group, vec![by("a", "old"), by("b", "old"), by("c", "nightly"), by("d", "older")], 2);
    let others = lab.store.waiting_rules_except(&["nightly"]).unwrap();
    let pair = |rule: &str| (rule.to_owned(), "shop".to_owned());
    assert_eq!(others, [pair("old"), pair("older")]);
    let reroute = |rule: &str, project: &str, to: Option<&str>| {
        let written = lab.store.reroute_ungraded(rule.to_owned(), project.to_owned(), to.map(str::to_owned));
        written.unwrap().wait().unwrap()
    };
    assert_eq!(reroute("old", "elsewhere", None), 0);
    assert_eq!((reroute("old", "shop", Some("nightly")), reroute("old", "shop", Some("nightly"))), (2, 0));
    assert_eq!(reroute("older", "shop", None), 1);
    assert_eq!(lab.store.waiting_rules_except(&["nightly"]).unwrap(), []);
    assert_eq!(lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 10).unwrap().len(), 3);
    assert_eq!(lab.store.ungraded_count().unwrap(), 3);
    let known = |waiting: GradingBacklog| (waiting.count, waiting.is_cut);
    let waiting = |project: Option<&str>, most| known(lab.store.grading_backlog(project, most).unwrap());
    assert_eq!(
        (waiting(None, 9), waiting(Some("shop"), 9), waiting(Some("shop"), 2), waiting(Some("none"), 9)),
        ((3, false), (3, false), (2, true), (0, false))
    );
    assert_eq!(known(lab.store.rule_backlog("nightly", 9).unwrap()), (3, false));
    assert_eq!(known(lab.store.rule_backlog("nightly", 2).unwrap()), (2, true));
    assert_eq!(known(lab.store.rule_backlog("old", 9).unwrap()), (0, false));
    let waits = |id: &str| lab.store.is_awaiting_grading(id).unwrap();
    assert_eq!((waits("a"), waits("d"), waits("nobody")), (true, false, false));
    lab.assert_clean();
}

#[test]
fn keys_open_what_they_say_until_they_are_revoked() {
    let lab = Lab::new();
    let folder = &location(lab.folder.path());
    let key = new_key().unwrap();
    let scopes = KeyScopes::parse("ingest, read").unwrap();
    assert!(Store::add_key_at(folder, "laptop", &key, scopes, 1).unwrap());
    assert!(!Store::add_key_at(folder, "laptop", &new_key().unwrap(), scopes, 2).unwrap());
    assert_eq!(lab.store.find_key_scopes(&key).unwrap(), Some(("laptop".to_owned(), scopes)));
    assert_eq!(lab.store.find_key_scopes("gradus_").unwrap(), None);
    assert!(Store::revoke_key_at(folder, "laptop", 3).unwrap());
    assert!(!Store::revoke_key_at(folder, "laptop", 4).unwrap());
    assert_eq!(lab.store.find_key_scopes(&key).unwrap(), None);
    assert_eq!(lab.store.keys().unwrap()[0].revoked_ns, Some(3));
}

#[test]
fn what_was_told_and_paid_goes_with_time() {
    const DAY_NS: i64 = 86_400_000_000_000;
    let (lab, trace_group) = one_trace();
    lab.assemble(trace_group, vec![waiting("a", 1)], 2);
    judge(&lab, &lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 10).unwrap()[0], "good", true);
    for day in [1, 9] {
        let event = Some(("fired".to_owned(), format!("{{\"day\":{day}}}")));
        let put = lab.store.put_alert_state("r".to_owned(), "s".to_owned(), event, day * DAY_NS);
        put.unwrap().wait().unwrap();
    }
    let step = |now_ns| {
        let retention = RetentionPolicy { max_age_ns: Some(7 * DAY_NS), max_bytes: None };
        lab.store.run_retention_step(retention, now_ns).unwrap().wait().unwrap();
    };
    let days = || lab.store.alert_events(i64::MAX, 10).unwrap().iter().map(|e| e.at_ns / DAY_NS).collect::<Vec<_>>();
    assert_eq!(days(), [9, 1]);
    step(10 * DAY_NS);
    assert_eq!(days(), [9]);
    assert_eq!(lab.store.alert_state("r").unwrap().as_deref(), Some("s"), "how it stands is no history");
    assert!(
        lab.store.load_spend_since(0, None, None).unwrap().cost_usd > 0.0,
        "a month's spending may still be asked for"
    );
    step(60 * DAY_NS);
    assert_eq!(lab.store.load_spend_since(0, None, None).unwrap().cost_usd, 0.0);
}
