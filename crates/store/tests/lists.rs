//! Lists that are folded, counted and sorted, and versions that are put beside each other.

#![allow(clippy::unwrap_used)]

mod lab;

use gradus_store::LinkKind::Session;
use gradus_store::{
    FailureGroupKey, GroupTotals, MetricFilter, NameKind, OutcomeRecord, RecordedKind, ReviewFilter, SessionFilter,
    TraceFilter, TraceOrder, TrajectoryRecord, TrajectoryWindow,
};

use lab::*;

/// A plain client: three model calls in traces of their own are one run; a fourth trace belongs to nothing.
fn plain_client() -> Lab {
    let lab = Lab::new();
    for trace in 1..=3_u128 {
        lab.ingest(vec![linked(chunk(trace, "shop", trace as u64 * 10, &[span(trace as u64)]), &[(Session, 7)])], 1);
    }
    lab.ingest(vec![chunk(4, "shop", 40, &[span(4)])], 1);
    lab.assemble(lab.trace(1).trace_group, vec![trajectory("t1", 1, 10)], 2);
    lab.assemble(lab.trace(4).trace_group, Vec::new(), 2);
    lab
}

#[test]
fn traces_that_only_continue_a_run_have_no_row_of_their_own() {
    let lab = plain_client();
    let folded = TraceFilter { is_folded: true, ..TraceFilter::default() };
    assert_eq!(lab.list(&TraceFilter::default(), 10), [4, 3, 2, 1]);
    assert_eq!(lab.list(&folded, 10), [4, 1]);
    assert_eq!(lab.list(&TraceFilter { project: Some("shop".to_owned()), ..folded.clone() }, 1), [4, 1]);
    let count = lab.store.count_traces(&folded).unwrap();
    assert_eq!((count.count, count.is_cut), (2, false));
    let totals = |trace: u128| lab.store.list_group_totals(&[lab.trace(trace)]).unwrap().remove(0);
    assert_eq!(totals(1), Some(GroupTotals { traces: 3, spans: 3, errors: 0 }));
    assert_eq!((totals(2), totals(4)), (None, None));
}

#[test]
fn lists_are_sorted_by_what_is_asked_for() {
    let lab = Lab::new();
    let wrong = scored("fit", Some(1), "incorrect", 0.0, "search");
    let all = [(1, 5, 0.3, vec![]), (2, 1, 0.1, vec![wrong]), (3, 9, 0.2, vec![])];
    for (trace, steps, cost, outcomes) in all {
        lab.ingest(vec![chunk(trace, "shop", trace as u64 * 100, &[span(trace as u64)])], 1);
        let record = TrajectoryRecord {
            steps,
            cost_usd: Some(cost),
            outcomes,
            end_ns: trace as i64 * 100 + 10_000 - i64::from(steps),
            ..trajectory(&format!("t{trace}"), trace, trace as i64 * 100)
        };
        lab.assemble(lab.trace(trace).trace_group, vec![record], 2);
    }
    let sorted = |order, skip| -> Vec<u128> {
        let page = lab.store.sorted_traces(&TraceFilter::default(), order, skip, 2).unwrap();
        assert_eq!((page.sorted_count, page.is_cut), (3, false));
        page.traces.iter().map(|trace| trace.trace_id.0).collect()
    };
    assert_eq!((sorted(TraceOrder::Steps, 0), sorted(TraceOrder::Steps, 2)), (vec![3, 1], vec![2]));
    assert_eq!(sorted(TraceOrder::Cost, 0), [1, 3]);
    assert_eq!(sorted(TraceOrder::Duration, 0), [2, 1]);
    // Equal ones stay newest first.
    assert_eq!(sorted(TraceOrder::Wrong, 0), [2, 3]);
    assert_eq!(lab.store.list_tools(None, 10).unwrap(), ["search"]);
    assert_eq!(lab.store.list_tools(Some("none"), 10).unwrap(), Vec::<String>::new());
    assert_eq!(lab.store.list_evaluators(Some("shop")).unwrap(), ["fit"]);
}

fn failed(step: u32, reason: &str) -> OutcomeRecord {
    let group = FailureGroupKey {
        key: reason.to_owned(),
        evaluator: "fit".to_owned(),
        tool: "search".to_owned(),
        rule: "call.schema".to_owned(),
        label: "incorrect".to_owned(),
        reason: reason.to_owned(),
        ..FailureGroupKey::default()
    };
    OutcomeRecord { failure_group: Some(group), ..scored("fit", Some(step), "incorrect", 0.0, "search") }
}

/// Two versions with two runs each; the second version has a failure more.
fn two_versions() -> Lab {
    let lab = Lab::new();
    let right = || scored("fit", Some(1), "correct", 1.0, "search");
    let all = [
        (1, "1.9", vec![right()]),
        (2, "1.9", vec![failed(1, "missing")]),
        (3, "1.10", vec![failed(1, "missing"), failed(2, "repeated")]),
        (4, "1.10", vec![unscored("fit", Some(1), RecordedKind::Abstained, "search")]),
    ];
    for (trace, version, outcomes) in all {
        lab.ingest(vec![chunk(trace, "shop", trace as u64 * 100, &[span(trace as u64)])], 1);
        let record = TrajectoryRecord {
            version: version.to_owned(),
            outcomes,
            ..trajectory(&format!("t{trace}"), trace, trace as i64 * 100)
        };
        lab.assemble(lab.trace(trace).trace_group, vec![record], 2);
    }
    lab
}

#[test]
fn versions_have_scores_of_their_own_and_the_newest_comes_first() {
    let lab = two_versions();
    let table = lab.store.name_scores(&MetricFilter::default(), NameKind::Version, 10).unwrap();
    let shown: Vec<_> = table
        .rows
        .iter()
        .map(|row| (row.name.as_str(), row.usage.trajectories, row.scores[0].1.sum, row.scores[0].1.scored))
        .collect();
    assert_eq!(shown, [("1.10", 2, 0.0, 2), ("1.9", 2, 1.0, 2)]);
    assert!(!table.is_cut && lab.store.name_scores(&MetricFilter::default(), NameKind::Version, 1).unwrap().is_cut);
    let elsewhere = MetricFilter { project: Some("none".to_owned()), ..MetricFilter::default() };
    assert!(lab.store.name_scores(&elsewhere, NameKind::Agent, 10).unwrap().rows.is_empty());
}

#[test]
fn compared_runs_are_the_latest_with_their_outcomes_and_groups() {
    let lab = two_versions();
    let read = |version: &str, limit| {
        let filter = MetricFilter { version: Some(version.to_owned()), ..MetricFilter::default() };
        lab.store.compared_runs(&filter, limit).unwrap()
    };
    let versions = [read("1.9", 10), read("1.10", 10)];
    let ids = versions.iter().map(|runs| runs.runs.iter().map(|run| run.trajectory_id.as_str()).collect::<Vec<_>>());
    assert_eq!(ids.collect::<Vec<_>>(), [["t2", "t1"], ["t4", "t3"]]);
    assert_eq!((versions[1].evaluators.as_slice(), versions[1].latest_lines.len()), (&["fit".to_owned()][..], 1));
    assert_eq!(versions[1].runs[0].outcomes[0].kind, RecordedKind::Abstained);
    let scores: Vec<_> = versions[1].runs[1].outcomes.iter().map(|outcome| (outcome.step, outcome.score)).collect();
    assert_eq!(scores, [(Some(1), Some(0.0)), (Some(2), Some(0.0))]);
    let groups = lab.store.compared_groups(&versions).unwrap();
    let counts: Vec<_> = groups.iter().map(|group| (group.title.as_str(), group.runs.as_slice())).collect();
    assert_eq!(counts, [("missing", &[1, 1][..]), ("repeated", &[0, 1][..])]);
    assert!(read("1.9", 1).is_cut && read("none", 10).runs.is_empty());
}

#[test]
fn the_review_of_a_group_shows_its_verdicts_only() {
    let lab = two_versions();
    let walk = |key: &str, project: Option<&str>| {
        let filter = ReviewFilter {
            failure_group: Some(key.to_owned()),
            project: project.map(str::to_owned),
            author: "ann".to_owned(),
            ..ReviewFilter::default()
        };
        let (mut found, mut after) = (Vec::new(), None);
        while let Some(item) = lab.store.next_verdict(&filter, after.as_ref()).unwrap().0 {
            found.push((item.trajectory_id.clone(), item.place.step));
            after = Some(item.place);
        }
        found
    };
    let own = |all: &[(&str, u32)]| all.iter().map(|(id, step)| ((*id).to_owned(), *step)).collect::<Vec<_>>();
    assert_eq!(walk("missing", None), own(&[("t3", 1), ("t2", 1)]));
    assert_eq!(walk("repeated", Some("shop")), own(&[("t3", 2)]));
    assert_eq!((walk("repeated", Some("none")), walk("none", None)), (own(&[]), own(&[])));
}

#[test]
fn a_review_can_be_of_a_period_and_of_names() {
    let lab = two_versions();
    let walk = |filter: ReviewFilter| {
        let filter = ReviewFilter { only_wrong: true, ..filter };
        let (mut found, mut after) = (Vec::new(), None);
        while let Some(item) = lab.store.next_verdict(&filter, after.as_ref()).unwrap().0 {
            found.push(format!("{} {}", item.trajectory_id, item.place.step));
            after = Some(item.place);
        }
        let progress = lab.store.review_progress(&filter, None).unwrap();
        assert_eq!(progress.verdicts, found.len() as u64);
        found
    };
    for group in [None, Some("missing".to_owned())] {
        let filter =
            || ReviewFilter { failure_group: group.clone(), evaluator: Some("fit".into()), ..Default::default() };
        let late = walk(ReviewFilter { from_ns: Some(300), ..filter() });
        assert!(!late.is_empty() && late.iter().all(|found| found.starts_with("t3 ")), "{late:?}");
        assert_eq!(walk(ReviewFilter { to_ns: Some(300), ..filter() }), ["t2 1"]);
        assert_eq!(walk(ReviewFilter { from_ns: Some(201), to_ns: Some(300), ..filter() }), Vec::<String>::new());
        assert_eq!(walk(ReviewFilter { version: Some("1.9".into()), ..filter() }), ["t2 1"]);
        let of_all = walk(filter());
        assert_eq!(walk(ReviewFilter { agent: Some("planner".into()), ..filter() }), of_all);
        assert_eq!(walk(ReviewFilter { model: Some("gpt".into()), ..filter() }), of_all);
        assert_eq!(walk(ReviewFilter { agent: Some("nobody".into()), ..filter() }), Vec::<String>::new());
        assert_eq!(walk(ReviewFilter { model: Some("none".into()), ..filter() }), Vec::<String>::new());
    }
}

#[test]
fn what_was_not_decided_counts_as_an_alert_wants() {
    let lab = two_versions();
    let all = [TrajectoryWindow { project: Some("shop".to_owned()), from_ns: 0, to_ns: i64::MAX }];
    let scores = |undecided| lab.store.scores_after("fit", undecided, &all, 0, i64::MAX).unwrap().0;
    assert_eq!(scores(None), [1.0, 0.0, 0.0]);
    assert_eq!(scores(Some(1.0)), [1.0, 0.0, 0.0, 1.0]);
}

/// Three sessions in two projects, and a run without a session. The times of `talk` and `late` overlap.
fn conversations() -> Lab {
    let lab = Lab::new();
    let ended = |label: &str, score: f64| scored("outcome", None, label, score, "");
    let wrong = || scored("fit", Some(1), "incorrect", 0.0, "search");
    let all = [
        (1, "shop", 100, "talk", vec![ended("answered", 1.0), wrong()]),
        (2, "shop", 150, "late", vec![ended("answered", 1.0)]),
        (3, "shop", 200, "talk", vec![ended("limit_reached", 0.0)]),
        (4, "bank", 170, "talk", vec![]),
        (5, "shop", 300, "", vec![]),
        // Began at the same time as another run of its session.
        (6, "shop", 200, "talk", vec![ended("answered", 1.0)]),
    ];
    for (trace, project, start_ns, session, outcomes) in all {
        lab.ingest(vec![chunk(trace, project, start_ns as u64, &[span(trace as u64)])], 1);
        let record = TrajectoryRecord {
            session: session.to_owned(),
            query: format!("request {trace}"),
            outcomes,
            cost_usd: (trace == 1).then_some(0.5),
            ..trajectory(&format!("t{trace}"), trace, start_ns)
        };
        lab.assemble(lab.trace(trace).trace_group, vec![record], 2);
    }
    lab
}

#[test]
fn sessions_are_listed_once_and_latest_first() {
    let lab = conversations();
    let list = |filter: &SessionFilter, limit| -> Vec<(String, String)> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let page = lab.store.session_summaries(filter, "outcome", cursor, limit).unwrap();
            assert!(page.sessions.len() <= limit);
            all.extend(page.sessions.into_iter().map(|one| (one.project, one.session)));
            cursor = match page.next {
                None => return all,
                Some(next) => Some(next.to_string().parse().unwrap()),
            };
        }
    };
    let names = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(project, session)| ((*project).to_owned(), (*session).to_owned())).collect()
    };
    let everything = SessionFilter::default();
    for limit in [1, 2, 10] {
        assert_eq!(list(&everything, limit), names(&[("shop", "talk"), ("bank", "talk"), ("shop", "late")]));
    }
    let shop = SessionFilter { project: Some("shop".to_owned()), ..everything.clone() };
    assert_eq!(list(&shop, 1), names(&[("shop", "talk"), ("shop", "late")]));
    let earlier = SessionFilter { to_ns: Some(200), ..shop.clone() };
    assert_eq!(list(&earlier, 1), names(&[("shop", "late"), ("shop", "talk")]), "by the last run in this time");
    assert_eq!(list(&SessionFilter { from_ns: Some(160), ..shop.clone() }, 5), names(&[("shop", "talk")]));
    assert_eq!(list(&SessionFilter { project: Some("nobody".to_owned()), ..shop }, 5), []);
}

#[test]
fn a_session_of_the_list_has_its_sums_and_endings() {
    let lab = conversations();
    let page = lab.store.session_summaries(&SessionFilter::default(), "outcome", None, 1).unwrap();
    let talk = &page.sessions[0];
    assert_eq!((talk.query.as_str(), talk.flagged, talk.is_cut), ("request 1", 2, false));
    let totals = &talk.totals;
    assert_eq!((totals.trajectories, totals.cost_usd, totals.unpriced, totals.start_ns), (3, Some(0.5), 2, 100));
    let endings: Vec<(&str, bool, u64)> =
        talk.endings.iter().map(|one| (one.label.as_str(), one.is_wrong, one.trajectories)).collect();
    assert_eq!(endings, [("answered", false, 2), ("limit_reached", true, 1)]);
}
