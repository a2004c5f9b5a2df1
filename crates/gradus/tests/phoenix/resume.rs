//! A read that is broken off goes on where it stopped.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gradus_test_endpoint::Answer;

use crate::lab::{Lab, Phoenix, traces_of};

const LIST: [&str; 3] = ["traces", "--format", "jsonl"];

/// A Phoenix that fails after so many pages of spans, until it is mended.
fn failing_after(pages: usize, spans: usize) -> (Phoenix, Arc<AtomicBool>) {
    let is_mended = Arc::new(AtomicBool::new(false));
    let (shared, served) = (Arc::clone(&is_mended), AtomicUsize::new(0));
    let phoenix = Phoenix::with_fault(traces_of(spans / 4), move |incoming| {
        if shared.load(Ordering::Relaxed) || !incoming.what().contains("/spans?") {
            return None;
        }
        (served.fetch_add(1, Ordering::Relaxed) >= pages).then(|| Answer::status(503, "too busy"))
    });
    (phoenix, is_mended)
}

#[test]
fn goes_on_where_phoenix_went_away() {
    let lab = Lab::new();
    let (phoenix, is_mended) = failing_after(3, 6_000);
    let source = phoenix.source();
    let arguments = [LIST.as_slice(), &[&source]].concat();
    let ran = lab.run(&arguments).exits_with(2).says("Phoenix fails (503: too busy)");
    // A hundred, four hundred, a thousand.
    let ran = ran.says("1500 spans are kept, and the same command goes on from there");
    assert_eq!(ran.out, "", "nothing is made of half a project");
    is_mended.store(true, Ordering::Relaxed);
    let before = phoenix.asked("GET /v1/projects/P1/spans");
    let ran = lab.run(&arguments).exits_with(0).says("taking up the read that began at");
    let ran = ran.says("1500 spans are here already");
    assert_eq!(ran.lines().len(), 1_500);
    assert_eq!(phoenix.asked("GET /v1/projects/P1/spans") - before, 6);
    let again = lab.run(&arguments).exits_with(0);
    assert_eq!((again.err.as_str(), &again.out), ("", &ran.out), "what is complete is forgotten, and reads the same");
}

#[test]
fn a_choice_of_traces_goes_on_too_and_fresh_begins_anew() {
    let lab = Lab::new();
    let (phoenix, is_mended) = failing_after(2, 1_120);
    let source = phoenix.source();
    let arguments = ["eval", &source, "--from", "2026-03-01", "--judge", "offline", "--jsonl", "out.jsonl"];
    lab.run(&arguments).exits_with(2).says("200 spans are kept");
    is_mended.store(true, Ordering::Relaxed);
    let before = phoenix.asked("GET /v1/projects/P1/spans");
    lab.run(&[arguments.as_slice(), &["--fresh"]].concat()).exits_with(0);
    // 280 traces, 50 at a time; the first 200 spans come on two pages.
    assert_eq!(phoenix.asked("GET /v1/projects/P1/spans") - before, 7);
}

#[test]
fn a_read_of_all_projects_goes_on_in_the_project_where_it_stopped() {
    let lab = Lab::new();
    let (phoenix, is_mended) = failing_after(4, 4_800);
    let source = phoenix.source().replace("/shop", "");
    let arguments = [LIST.as_slice(), &[&source]].concat();
    let ran = lab.run(&arguments).exits_with(2).says("2500 spans are kept");
    assert_eq!(ran.out, "");
    is_mended.store(true, Ordering::Relaxed);
    let ran = lab.run(&arguments).exits_with(0).says("2500 spans are here already");
    assert_eq!(ran.lines().len(), 1_200);
    // Four pages, the one that failed, and the other 2,300 spans on four more.
    assert_eq!(phoenix.asked("GET /v1/projects/P1/spans"), 4 + 1 + 4);
    assert_eq!(phoenix.asked("GET /v1/projects/P0/spans"), 3);
}

#[test]
fn other_filters_and_other_servers_are_other_reads() {
    let lab = Lab::new();
    let (phoenix, is_mended) = failing_after(1, 2_400);
    lab.run(&[LIST.as_slice(), &[&phoenix.source()]].concat()).exits_with(2);
    is_mended.store(true, Ordering::Relaxed);
    let ran = lab.run(&[LIST.as_slice(), &[&phoenix.source(), "--from", "2026-03-01"]].concat()).exits_with(0);
    assert!(!ran.err.contains("taking up"), "{}", ran.err);
    lab.run(&[LIST.as_slice(), &[&phoenix.source()]].concat()).exits_with(0).says("taking up the read");
}

#[test]
fn survives_being_killed_while_it_reads() {
    let lab = Lab::new();
    let (phoenix, slow) = (Phoenix::start(traces_of(2_500)), Phoenix::start(traces_of(2_500)));
    let wanted = lab.run(&[LIST.as_slice(), &[&phoenix.source()]].concat()).exits_with(0);
    let source = slow.source();
    let arguments = [LIST.as_slice(), &[&source]].concat();
    let mut kills = 0;
    while kills < 6 {
        let pages = slow.asked("GET /v1/projects/P1/spans");
        let mut command = lab.command(&arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Two more pages, and then the end.
        let end = Instant::now() + Duration::from_secs(30);
        while slow.asked("GET /v1/projects/P1/spans") < pages + 3 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            break;
        }
        kills += 1;
    }
    assert!(kills > 1, "it was too quick to be killed");
    let ran = lab.run(&arguments).exits_with(0);
    assert_eq!(ran.out, wanted.out);
}
