//! A store as a whole: moved, copied, compacted, let go of.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gradus_store::*;
use lab::*;

/// A bit of everything.
fn furnished() -> Lab {
    let lab = Lab::new();
    for id in 1..=30u128 {
        let now_ns = 1_000 + id as i64;
        let project = if id % 3 == 0 { "library" } else { "shop" };
        let session = (LinkKind::Session, (id / 4) as u64);
        let spans = [span(id as u64), span(id as u64 + 100).error().text("line\u{2028}s “ü”")];
        lab.ingest(vec![linked(chunk(id, project, 10 * id as u64, &spans[..1]), &[session])], now_ns);
        lab.ingest(vec![rooted(chunk(id, project, 10 * id as u64, &spans[1..]), "root", id % 2 == 0)], now_ns);
        if id % 5 == 0 {
            lab.ingest(vec![chunk(id, project, 10, &[span(id as u64).text("corrected")])], now_ns);
        }
    }
    for trace_group in lab.ready(5_000, 10, 10, 6) {
        let traces = lab.store.trace_group(trace_group).unwrap().traces;
        let records = traces.iter().enumerate().map(|(n, id)| {
            let mut record = trajectory(&format!("t{}", id.0), id.0, 10 * id.0 as i64);
            record.json = format!(r#"{{"id":{},"quoted":"a \"word\" \\ ü"}}"#, id.0).into_bytes();
            record.words = format!("word{}", id.0);
            record.cost_usd = (n % 2 == 0).then_some(0.1 + 0.2);
            record.outcomes = vec![
                scored("fit", None, "good", 1.0 / 3.0, ""),
                scored("fit", Some(1), "bad", 2.2250738585072014e-308, "search"),
            ];
            record.ungraded_by = (n % 2 == 0).then(|| "nightly".to_owned());
            record
        });
        lab.assemble(trace_group, records.collect(), 6_000);
    }
    let who = lab.store.ungraded_trajectories("nightly", i64::MAX, 0, 1).unwrap().remove(0);
    let spend = JudgeSpend { rule: "nightly".to_owned(), calls: 2, unpriced: 1, cost_usd: 0.1 };
    lab.store.record_verdicts(&who, vec![], spend, RemainingGrading::More, 6_500).unwrap().wait().unwrap();
    let note = NewAnnotation {
        target: "trace:1".to_owned(),
        trace_id: Some(1),
        name: "right".to_owned(),
        score: Some(0.7),
        metadata: "{}".to_owned(),
        ..NewAnnotation::default()
    };
    lab.store.annotate(vec![note], 7_000).unwrap().wait().unwrap();
    let event = Some(("fired".to_owned(), "{}".to_owned()));
    lab.store.put_alert_state("slow".into(), "{}".into(), event, 8_000).unwrap().wait().unwrap();
    lab
}

fn exported(store: &Store) -> String {
    let mut out = Vec::new();
    store.export(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn words(json: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(json).unwrap();
    format!("word{}", json["id"])
}

fn import(lab: &Lab, lines: &str) -> Result<TransferCounts, StoreError> {
    lab.store.import(std::io::Cursor::new(lines.to_owned()), words)
}

#[test]
fn an_export_comes_back_whole() {
    let (from, to) = (furnished(), Lab::new());
    let lines = exported(&from.store);
    let done = import(&to, &lines).unwrap();
    assert_eq!(done.traces, 30);
    assert_eq!(done.rows as usize + 2, lines.lines().count());
    assert_eq!(exported(&to.store), lines);
    assert_eq!(to.assert_clean(), from.assert_clean());
    for trajectory in ["t1", "t2", "t3"] {
        let json = from.store.trajectory_json(trajectory).unwrap();
        assert_eq!(to.store.trajectory_json(trajectory).unwrap(), json);
        assert!(json.is_some());
    }
    let found = TraceFilter { text: Some("word2".into()), ..Default::default() };
    assert_eq!(to.list(&found, 5), from.list(&found, 5));
    assert!(!to.list(&found, 5).is_empty());
    let all = AnnotationFilter { limit: 9, ..Default::default() };
    assert_eq!(to.store.annotations(&all).unwrap(), from.store.annotations(&all).unwrap());
    for group in [MetricGroup::All, MetricGroup::Tool] {
        let metrics = |lab: &Lab| lab.store.metrics(&MetricFilter::default(), group).unwrap();
        assert_eq!(metrics(&to), metrics(&from));
    }
    // Life goes on in it: trace groups, projects, numbers.
    to.ingest(vec![linked(chunk(99, "shop", 5, &[span(999)]), &[(LinkKind::Session, 7)])], 9_000);
    assert_eq!(to.trace(99).trace_group, to.trace(28).trace_group);
    assert_eq!(to.ingest(vec![chunk(100, "new", 5, &[span(1)])], 9_000).new, 1);
    let due = |lab: &Lab| lab.ready(20_000, 10, 10, 1_000).len();
    assert_eq!(due(&to), due(&from) + 2);
    to.assert_clean();
}

#[test]
fn an_import_that_is_cut_or_changed_leaves_an_empty_store() {
    let lines = exported(&furnished().store);
    let cut: String = lines.lines().take(40).map(|line| format!("{line}\n")).collect();
    let missing: String =
        lines.lines().enumerate().filter(|(n, _)| *n != 50).map(|(_, line)| format!("{line}\n")).collect();
    let broken = lines.replacen("\"table\":\"block\"", "\"table\":\"sqlite_schema\"", 1);
    let newer = lines.replacen("\"schema\":", "\"schema\":9", 1);
    let lab = Lab::new();
    let half = lines[..lines.len() / 2].to_owned();
    for lines in [cut, missing, broken, newer, half, format!("{lines}{lines}"), String::new(), "{}\n".to_owned()] {
        let error = import(&lab, &lines).unwrap_err().to_string();
        assert!(error.contains("line ") && !error.contains('\n'), "{error}");
        assert!(lab.store.projects().unwrap().is_empty());
    }
    import(&lab, &lines).unwrap();
    let error = import(&lab, &lines).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
    lab.assert_clean();
}

#[test]
fn an_import_whose_reader_panics_does_not_end_the_writer() {
    let lab = Lab::new();
    let lines = exported(&furnished().store);
    let result = lab.store.import(std::io::Cursor::new(lines.clone()), |_| panic!("no words"));
    assert!(result.unwrap_err().to_string().contains("panicked"));
    assert!(lab.store.projects().unwrap().is_empty());
    import(&lab, &lines).unwrap();
    lab.assert_clean();
}

#[test]
fn a_backup_is_a_store_also_while_it_is_written_to() {
    let lab = furnished();
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join(DATABASE_FILE_NAME);
    let store = Arc::new(lab.store);
    let is_done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, is_done) = (Arc::clone(&store), Arc::clone(&is_done));
        std::thread::spawn(move || {
            let mut id = 1_000;
            while !is_done.load(Ordering::Relaxed) {
                id += 1;
                let chunk = chunk(id, "shop", 10, &[span(1), span(2)]);
                store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
            }
        })
    };
    store.backup(&to).unwrap();
    is_done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(matches!(store.backup(&to), Err(StoreError::Exists { .. })));
    assert!(matches!(store.backup(&copy.path().join("no/such")), Err(StoreError::NotWritable { .. })));
    {
        let read = Store::open_to_read(&to).unwrap();
        let report = read.check(&mut |block| span_ids(&block.export)).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert!(report.traces >= 30);
    }
    let store = Store::open(copy.path(), StoreOptions::default()).unwrap();
    store.ingest(vec![chunk(9_999, "shop", 10, &[span(1)])], 1).unwrap().wait().unwrap();
}

#[test]
fn compacting_changes_nothing_but_the_room() {
    let lab = furnished();
    let found = TraceFilter { text: Some("word2".into()), ..Default::default() };
    let before = (lab.assert_clean(), lab.list(&TraceFilter::default(), 7), lab.list(&found, 7));
    let merged = lab.store.compact().unwrap();
    assert_eq!(merged, 24, "six traces have spans in versions");
    let after = lab.assert_clean();
    assert_eq!(after.blocks, before.0.blocks - merged);
    assert_eq!((after.spans, after.trajectories), (before.0.spans, before.0.trajectories));
    assert_eq!(lab.list(&TraceFilter::default(), 7), before.1);
    assert_eq!(lab.list(&found, 7), before.2);
    // What came before is still known.
    let again = chunk(1, "shop", 10, &[span(1)]);
    assert_eq!(lab.ingest(vec![again], 9).repeated, 1);
    assert_eq!(lab.store.compact().unwrap(), 0);
    let lab = lab.reopened();
    lab.assert_clean();
}

#[test]
fn retention_goes_step_by_step_oldest_first() {
    let lab = Lab::new();
    // Every table and index has a page, also without rows: the texts are long, so that half of all is more than that.
    let text: String = (0..12_000).map(|_| fastrand::alphanumeric()).collect();
    for n in 1..=300u64 {
        let chunk = chunk(u128::from(n), "shop", n * 1_000, &[span(n).text(&text)]);
        lab.ingest(vec![chunk], n as i64 * 1_000);
    }
    for id in 1..=300u128 {
        lab.assemble(lab.trace(id).trace_group, vec![trajectory(&format!("t{id}"), id, 1)], 1);
    }
    let step = |retention, now_ns| lab.store.run_retention_step(retention, now_ns).unwrap().wait().unwrap();
    let age = RetentionPolicy { max_age_ns: Some(100_000), max_bytes: None };
    let mut removed = Vec::new();
    loop {
        let one = step(age, 221_000);
        removed.push(one.traces);
        assert_eq!(one.traces, one.spans);
        if !one.has_more {
            break;
        }
    }
    assert_eq!(removed, [50, 50, 20]);
    assert_eq!(lab.list(&TraceFilter::default(), 1_000).last(), Some(&121));
    let (used, _) = lab.store.used_and_free_bytes().unwrap();
    let size = RetentionPolicy { max_age_ns: None, max_bytes: Some(used / 2) };
    for _ in 0..100 {
        if step(size, 0).traces == 0 {
            break;
        }
    }
    assert!(lab.store.used_and_free_bytes().unwrap().0 <= used / 2);
    let left = lab.list(&TraceFilter::default(), 1_000);
    assert!(!left.is_empty() && left[0] == 300, "{left:?}");
    assert_eq!(step(RetentionPolicy::default(), i64::MAX), RemovalCounts::default());
    assert_eq!(lab.store.projects().unwrap()[0].trajectories, left.len() as i64);
    lab.assert_clean();
}
