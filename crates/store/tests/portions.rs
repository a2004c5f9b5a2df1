//! Results that have more rows than one portion of PostgreSQL.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use gradus_core::span::SpanId;
use gradus_store::*;
use lab::*;

#[test]
fn a_trace_of_many_blocks_is_read_completely() {
    let lab = Lab::new();
    // Random text is compressed by a quarter only, so all blocks together exceed the bytes of a portion.
    let text: String = (0..60_000).map(|_| fastrand::alphanumeric()).collect();
    for block in 0..150_u64 {
        let mut spans: Vec<Sent> = (1..=10).map(|index| span(block * 10 + index)).collect();
        spans[0] = spans[0].clone().text(&text[block as usize..]);
        if block == 7 {
            // In the database these are the smallest and the largest negative number.
            spans.extend([span(1 << 63), span(u64::MAX)]);
        }
        if block == 149 {
            spans.push(span(5).text("again"));
        }
        lab.ingest(vec![chunk(1, "shop", 10, &spans)], 100 + block as i64);
    }
    let report = lab.assert_clean();
    assert_eq!((report.traces, report.blocks, report.spans), (1, 150, 1502));
    let group = lab.store.trace_group(lab.trace(1).trace_group).unwrap();
    let numbers: Vec<i64> = group.blocks.iter().map(|block| block.no).collect();
    assert!(!group.is_cut && numbers.len() == 150 && numbers.is_sorted());
    assert_eq!(group.versions.len(), 1502);
    let holders = |id: u64| {
        let blocks = group.blocks.iter().filter(|block| span_ids(&block.export).unwrap().contains(&SpanId(id)));
        blocks.map(|block| group.is_current_version(block, SpanId(id))).collect::<Vec<bool>>()
    };
    assert_eq!((holders(5), holders(1 << 63)), (vec![false, true], vec![true]));
    let (mut read, mut after, mut page_count) = (Vec::new(), None, 0);
    while let Some((page, position)) = lab.store.read_project_page("shop", after).unwrap() {
        read.extend(page.blocks.iter().map(|block| block.no));
        after = Some(position);
        page_count += 1;
    }
    assert!(read == numbers && page_count > 2, "{page_count}");
}

#[test]
fn lists_go_on_behind_their_first_portion() {
    let lab = Lab::new();
    for number in 1..=400_u64 {
        let trace = u128::from(number);
        let start_ns = number * 1_000;
        lab.ingest(vec![chunk(trace, "shop", start_ns, &[span(number)])], start_ns as i64);
        let mut record = trajectory(&format!("t{number}"), trace, start_ns as i64);
        record.outcomes = ["end", "fit", "order"].map(|name| scored(name, None, "good", 1.0, "")).to_vec();
        if number <= 100 {
            let key =
                FailureGroupKey { key: format!("group-{number}"), evaluator: "fit".to_owned(), ..Default::default() };
            record.outcomes[1] = OutcomeRecord { failure_group: Some(key), ..scored("fit", None, "bad", 0.0, "") };
        }
        if number == 1 {
            record.outcomes.push(scored("rare", Some(1), "bad", 0.0, "search"));
        }
        lab.assemble(lab.trace(trace).trace_group, vec![record], start_ns as i64);
        let new = NewAnnotation {
            target: format!("span:{number:016x}"),
            trace_id: Some(trace),
            name: if number == 1 { "old" } else { "new" }.to_owned(),
            annotator: "CODE".to_owned(),
            metadata: "{}".to_owned(),
            ..NewAnnotation::default()
        };
        lab.store.annotate(vec![new], 50).unwrap().wait().unwrap();
    }
    let report = lab.assert_clean();
    assert_eq!((report.traces, report.trajectories, report.outcomes), (400, 400, 1_201));

    let project = lab.store.project_named("shop").unwrap().unwrap().no;
    let annotations = |names: &[&str], limit| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let query = AnnotationQuery { project, kind: "span:", names, limit, ..AnnotationQuery::default() };
        let rows = lab.store.query_annotations(&query).unwrap();
        rows.into_iter().map(|row| row.no).collect::<Vec<i64>>()
    };
    let all = annotations(&[], 1_000);
    assert!(all.len() == 400 && all.is_sorted_by(|one, other| one > other));
    assert_eq!((annotations(&[], 70), annotations(&["old"], 1)), (all[..70].to_vec(), all[399..].to_vec()));

    let filter = ReviewFilter { evaluator: Some("rare".to_owned()), only_wrong: true, ..ReviewFilter::default() };
    let (item, _) = lab.store.next_verdict(&filter, None).unwrap();
    let place = item.unwrap().place;
    let progress = lab.store.review_progress(&filter, Some(&place)).unwrap();
    assert_eq!(progress, ReviewProgress { verdicts: 1, labelled: 0, is_more: false, position: Some(1) });
    assert_eq!(lab.store.next_verdict(&filter, Some(&place)).unwrap(), (None, None));

    let options = FailureGroupOptions { before_ns: None, with_muted: false, key: None, limit: 10 };
    let groups = lab.store.failure_groups(&MetricFilter::default(), options).unwrap();
    assert_eq!((groups.group_count, groups.groups.len()), (100, 10));
    assert_eq!(groups.groups[0].key, "group-100", "of groups of the same size, the newest first");
    let one = FailureGroupOptions { key: Some("group-90"), ..options };
    assert_eq!(lab.store.failure_groups(&MetricFilter::default(), one).unwrap().groups[0].trajectories, 1);
}
