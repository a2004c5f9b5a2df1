//! What Phoenix's clients need of a store: projects of their own, walks from either end, annotations before their spans.

#![allow(clippy::unwrap_used)]

mod lab;

use gradus_core::span::TraceId;
use gradus_store::*;
use lab::{Lab, chunk, span, trajectory};

const SECOND_NS: i64 = 1_000_000_000;

fn project(lab: &Lab, name: &str) -> i64 {
    lab.store.project_named(name).unwrap().unwrap().no
}

/// A trace of one span that takes a second.
fn send(lab: &Lab, trace: u128, start_s: i64) {
    let start_ns = start_s * SECOND_NS;
    let mut chunk = chunk(trace, "p", start_ns as u64, &[span(trace as u64)]);
    chunk.end_ns = (start_ns + SECOND_NS) as u64;
    lab.ingest(vec![chunk], start_ns);
}

fn walked(lab: &Lab, mut walk: TraceWalk) -> Vec<u128> {
    let number = project(lab, "p");
    let mut found = Vec::new();
    loop {
        let page = lab.store.read_walk_page(number, &walk).unwrap();
        let Some(last) = page.last() else { return found };
        walk = walk.resume_after(last.position);
        found.extend(page.iter().map(|trace| trace.trace_id.0));
        assert!(page.iter().all(|trace| trace.blocks.len() == 1 && trace.end_ns > trace.position.start_ns));
    }
}

#[test]
fn traces_are_walked_from_either_end() {
    let lab = Lab::new();
    for trace in 1..=150 {
        // Some begin together.
        send(&lab, trace, 100 + trace as i64 / 3);
    }
    let up = walked(&lab, TraceWalk { newest_first: false, ..TraceWalk::default() });
    let mut down = walked(&lab, TraceWalk::default());
    assert_eq!(up.len(), 150);
    assert_eq!(up, (1..=150).collect::<Vec<u128>>());
    down.reverse();
    assert_eq!(up, down);
    let narrow = TraceWalk { before_ns: 120 * SECOND_NS, ended_from_ns: 111 * SECOND_NS, ..TraceWalk::default() };
    let mut some = walked(&lab, narrow);
    some.sort_unstable();
    assert_eq!(some, (30..60).collect::<Vec<u128>>());
    assert_eq!(walked(&lab, TraceWalk { newest_first: false, ..narrow }), some);
    let number = project(&lab, "p");
    assert_eq!(lab.store.trace_records(number, TraceId(7)).unwrap().unwrap().blocks.len(), 1);
    assert!(lab.store.trace_records(number + 1, TraceId(7)).unwrap().is_none(), "another project's");
}

#[test]
fn a_trace_that_is_too_large_says_so() {
    let lab = Lab::new();
    let long = "x".repeat(60 << 20);
    for number in 1..=6 {
        lab.ingest(vec![chunk(1, "p", 100, &[span(number).text(&long)])], number as i64);
    }
    send(&lab, 2, 50);
    let number = project(&lab, "p");
    let page = lab.store.read_walk_page(number, &TraceWalk::default()).unwrap();
    assert_eq!((page.len(), page[0].is_cut), (1, false), "the large one gets a page of its own");
    let page = lab.store.read_walk_page(number, &TraceWalk::default().resume_after(page[0].position)).unwrap();
    let large = &page[0];
    assert_eq!((large.is_cut, large.blocks.len()), (true, 2));
    let all = [1, 2].map(|id| lab.store.trace_records(number, TraceId(id)).unwrap().unwrap());
    assert_eq!(all.map(|trace| trace.is_cut), [true, false]);
}

#[test]
fn projects_are_made_described_and_removed_with_all_they_hold() {
    let lab = Lab::new();
    let add = |name: &str| lab.store.add_project(name.to_owned(), Some("d".to_owned()), 1).unwrap().wait().unwrap();
    let made = add("p").unwrap();
    assert_eq!((made.name.as_str(), made.description.as_deref()), ("p", Some("d")));
    assert_eq!(add("p"), None);
    assert!(lab.store.describe_project(made.no, "e".to_owned()).unwrap().wait().unwrap());
    assert_eq!(lab.store.project_numbered(made.no).unwrap().unwrap().description.as_deref(), Some("e"));
    for trace in 1..=120 {
        send(&lab, trace, 100);
    }
    let trace_group = lab.trace(5).trace_group;
    lab.assemble(trace_group, vec![trajectory("t5", 5, 100 * SECOND_NS)], 1);
    annotate(&lab, "span:0000000000000005", Some(5));
    lab.ingest(vec![chunk(500, "other", 1, &[span(500)])], 1);
    let mut steps = 0;
    while lab.store.remove_project_step(made.no).unwrap().wait().unwrap().has_more {
        steps += 1;
    }
    assert!(steps > 1, "a little at a time");
    assert_eq!(lab.store.project_named("p").unwrap(), None);
    let names: Vec<String> =
        lab.store.project_list(i64::MAX, None, 10).unwrap().into_iter().map(|project| project.name).collect();
    assert_eq!(names, ["other"]);
    assert!(lab.store.annotations(&AnnotationFilter { limit: 10, ..AnnotationFilter::default() }).unwrap().is_empty());
    lab.assert_clean();
    // The name is free again, and what comes under it finds its place.
    send(&lab, 1, 100);
    assert_eq!(walked(&lab, TraceWalk::default()), [1]);
    assert!(lab.store.remove_trace(TraceId(1)).unwrap().wait().unwrap());
    assert!(!lab.store.remove_trace(TraceId(1)).unwrap().wait().unwrap());
    lab.assert_clean();
}

fn annotate(lab: &Lab, target: &str, trace: Option<u128>) {
    let new = NewAnnotation {
        target: target.to_owned(),
        trace_id: trace,
        name: "n".to_owned(),
        annotator: "CODE".to_owned(),
        metadata: "{}".to_owned(),
        ..NewAnnotation::default()
    };
    lab.store.annotate(vec![new], 50).unwrap().wait().unwrap();
}

#[test]
fn annotations_that_come_first_find_their_spans_or_are_let_go() {
    let lab = Lab::new();
    for id in 1..=700 {
        annotate(&lab, &format!("span:{id:016x}"), None);
    }
    annotate(&lab, &format!("trace:{:032x}", 3), None);
    assert_eq!(lab.store.count_waiting_annotations().unwrap(), 701);
    for trace in [3, 600] {
        send(&lab, trace, 100);
    }
    let about = |target: &str| {
        let kind = if target.starts_with("span") { "span:" } else { "trace:" };
        let query = AnnotationQuery {
            project: project(&lab, "p"),
            kind,
            targets: vec![target.to_owned()],
            limit: 10,
            ..AnnotationQuery::default()
        };
        lab.store.query_annotations(&query).unwrap().len()
    };
    assert_eq!((about("span:0000000000000003"), about("span:0000000000000004")), (1, 0), "before they are settled");
    let settle = |forget_before_ns| {
        let mut after = Some(0);
        while let Some(from) = after {
            after = lab.store.resolve_waiting_annotations(from, forget_before_ns).unwrap().wait().unwrap();
        }
        lab.store.count_waiting_annotations().unwrap()
    };
    assert_eq!(settle(None), 698);
    assert_eq!((about("span:0000000000000258"), about(&format!("trace:{:032x}", 3))), (1, 1));
    let all = AnnotationQuery { project: project(&lab, "p"), kind: "span:", limit: 10, ..AnnotationQuery::default() };
    assert_eq!(lab.store.query_annotations(&all).unwrap().len(), 2, "those of a project");
    assert_eq!((settle(Some(50)), settle(Some(51))), (698, 0));
    lab.assert_clean();
}

#[test]
fn sessions_have_the_traces_of_their_trace_groups() {
    let lab = Lab::new();
    for trace in [1, 2, 3] {
        send(&lab, trace, 100 + trace as i64);
        let mut record = trajectory(&format!("t{trace}"), trace, (100 + trace as i64) * SECOND_NS);
        record.session = if trace == 3 { "b".to_owned() } else { "a".to_owned() };
        lab.assemble(lab.trace(trace).trace_group, vec![record], 1);
    }
    let number = project(&lab, "p");
    let names = |from: &str, is_descending| -> Vec<(String, usize)> {
        let rows = lab.store.sessions(number, from, is_descending, 10).unwrap();
        rows.into_iter().map(|row| (row.session, row.traces.len())).collect()
    };
    assert_eq!(names("", false), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!(names("b", true), [("b".to_owned(), 1), ("a".to_owned(), 2)]);
    assert_eq!(names("b", false).len(), 1);
    let one = lab.store.sessions_named("a").unwrap();
    let traces: Vec<u128> = one[0].traces.iter().map(|trace| trace.trace_id.0).collect();
    assert_eq!((one.len(), traces), (1, vec![1, 2]));
    assert!(lab.store.sessions_named("nobody").unwrap().is_empty() && lab.store.sessions_named("").unwrap().is_empty());
}

#[test]
fn a_session_has_its_trajectories_in_order_and_their_sums() {
    let lab = Lab::new();
    for trace in [2, 1, 3] {
        send(&lab, trace, 100 + trace as i64);
        let mut record = trajectory(&format!("t{trace}"), trace, (100 + trace as i64) * SECOND_NS);
        record.session = if trace == 3 { "b".to_owned() } else { "a".to_owned() };
        record.tokens = 10;
        record.cost_usd = (trace == 1).then_some(0.5);
        lab.assemble(lab.trace(trace).trace_group, vec![record], 1);
    }
    let page = lab.store.session_turns("a", None, 0, 10).unwrap().unwrap();
    let ids: Vec<(&str, u128)> =
        page.turns.iter().map(|turn| (turn.trajectory.trajectory_id.as_str(), turn.trace_id.0)).collect();
    assert_eq!((page.project.as_str(), ids), ("p", vec![("t1", 1), ("t2", 2)]));
    let totals = &page.totals;
    assert_eq!((totals.trajectories, totals.tokens, totals.cost_usd, totals.unpriced), (2, 20, Some(0.5), 1));
    let second = lab.store.session_turns("a", Some("p"), 1, 10).unwrap().unwrap();
    assert_eq!((second.turns.len(), second.totals.trajectories), (1, 2));
    for (session, project) in [("a", Some("other")), ("nobody", None), ("", None), ("", Some("p"))] {
        assert!(lab.store.session_turns(session, project, 0, 10).unwrap().is_none(), "{session} {project:?}");
    }
}
