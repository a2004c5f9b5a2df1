//! A span that was acknowledged is there, whatever happens: kill -9, a second server, a damaged file, an orderly end.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::lab::{Lab, Request, Server, TRACE_SERVICE, eventually, frame, try_grpc};
use crate::spans::{Visit, attributes, export, span, trace_id};

const SENDERS: u64 = 6;

#[test]
fn survives_being_killed_at_ten_random_moments() {
    survive_kills(10);
}

#[test]
#[ignore = "takes minutes; CONTRIBUTING.md has the command"]
fn survives_being_killed_at_a_hundred_random_moments() {
    survive_kills(100);
}

/// What senders know: the spans that were acknowledged, and how many batches were sent at all.
#[derive(Default)]
struct Known {
    acknowledged: Mutex<HashSet<String>>,
    next: AtomicU64,
}

fn survive_kills(kills: usize) {
    let lab = Lab::new();
    let known = Known::default();
    let mut random = fastrand::Rng::with_seed(11);
    for kill in 0..kills {
        let server = lab.serve();
        // All spans are read each time: with many kills, not after each of them.
        let is_looked_at = kill % (kills / 10) == 0;
        if is_looked_at {
            check(&server, &known, kill);
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for sender in 0..SENDERS {
                let (is_over, known, server) = (&is_over, &known, &server);
                scope.spawn(move || send_until(is_over, known, server, sender));
            }
            let before = known.acknowledged.lock().unwrap().len();
            eventually("something is acknowledged", || {
                (known.acknowledged.lock().unwrap().len() > before).then_some(())
            });
            std::thread::sleep(Duration::from_millis(random.u64(0..400)));
            server.signal(rustix::process::Signal::KILL);
            is_over.store(true, Ordering::Relaxed);
        });
        server.kill();
        // Before anything has been repaired by a start, and after it.
        if is_looked_at {
            let checked = lab.run(&["store", "check"]).exits_with(0);
            assert!(checked.out.contains("all is well"), "{}", checked.out);
        }
    }
    let server = lab.serve();
    check(&server, &known, kills);
    assert_eq!(server.stop().0, Some(0));
    let checked = lab.run(&["store", "check"]).exits_with(0);
    assert!(checked.out.contains("all is well"), "{}", checked.out);
    let acknowledged = known.acknowledged.lock().unwrap().len();
    println!("{kills} kills, {acknowledged} spans acknowledged, all there: {}", checked.out.trim());
    assert!(acknowledged > 10 * kills);
}

/// Sends small batches, of whole traces and of single spans of a trace that grows.
fn send_until(is_over: &AtomicBool, known: &Known, server: &Server, sender: u64) {
    while !is_over.load(Ordering::Relaxed) {
        let number = known.next.fetch_add(1, Ordering::Relaxed) + 1;
        let spans = if number.is_multiple_of(3) {
            Visit::new(u128::from(number)).spans()
        } else {
            let trace = (1 << 70) + u128::from(number / 50);
            (0..4).map(|id| span(trace, number << 8 | id | 0x80, "s")).collect()
        };
        let ids = spans.iter().map(|span| hex(&span.span_id)).collect::<Vec<_>>();
        let body = export("p", spans);
        let is_taken = if sender == 0 {
            // One of them by gRPC.
            try_grpc(server.grpc, TRACE_SERVICE, &[], frame(false, &body))
                .is_ok_and(|reply| reply.trailers.is_some() && reply.status() == 0)
        } else {
            let request = Request::new(server.http, "POST", "/v1/traces")
                .header("content-type", "application/x-protobuf")
                .body(&body);
            request.try_send().is_some_and(|reply| reply.status == 200)
        };
        if is_taken {
            known.acknowledged.lock().unwrap().extend(ids);
        }
    }
}

fn check(server: &Server, known: &Known, kill: usize) {
    let there: HashSet<String> =
        server.spans("p").iter().map(|span| span["span_id"].as_str().unwrap().to_owned()).collect();
    let acknowledged = known.acknowledged.lock().unwrap();
    let lost: Vec<&String> = acknowledged.difference(&there).collect();
    assert!(lost.is_empty(), "{} of {} lost by kill {kill}: {lost:?}", lost.len(), acknowledged.len());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_orderly_end_drains() {
    let lab = Lab::new();
    let server = lab.serve();
    let body = export("p", vec![span(1, 1, "s")]);
    let mut acknowledged = 0;
    // Requests that are under way when the signal comes are finished.
    let slow =
        Request::new(server.http, "POST", "/v1/traces").header("content-type", "application/x-protobuf").body(&body);
    let mut under_way: Vec<_> = (0..5).map(|_| slow.begin(10)).collect();
    server.export(&export("p", vec![span(2, 2, "s")]));
    let address = server.http;
    server.signal(rustix::process::Signal::TERM);
    eventually("nobody new is let in", || std::net::TcpStream::connect(address).is_err().then_some(()));
    for mut stream in under_way.drain(..) {
        std::io::Write::write_all(&mut stream, &body[10..]).unwrap();
        acknowledged += usize::from(crate::lab::Reply::read(stream).is_some_and(|reply| reply.status == 200));
    }
    assert_eq!(acknowledged, 5);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("all acknowledged data is stored"), "{log}");
    assert!(!lab.path(".gradus/gradus.db-wal").exists(), "the log is moved into the file");
    let server = lab.serve();
    assert_eq!(server.spans("p").len(), 2);
}

#[test]
fn two_servers_on_one_folder_is_one_too_many() {
    let lab = Lab::new();
    let server = lab.serve();
    let second = lab.serve_in_vain(&[]);
    assert_ne!(second.code, Some(0));
    assert!(second.err.contains("another gradus is using this store"), "{}", second.err);
    assert!(second.err.contains("--data"), "{}", second.err);
    // What needs the store for itself is refused, too; what only reads is not.
    for arguments in [["store", "compact"], ["store", "check"]] {
        let ran = lab.run(&arguments);
        assert_eq!(ran.code == Some(0), arguments[1] == "check", "{}", ran.err);
    }
    server.export(&export("p", vec![span(1, 1, "s")]));
    assert_eq!(server.spans("p").len(), 1);
    // The lock ends with the process, however it ends.
    server.kill();
    assert_eq!(lab.serve().spans("p").len(), 1);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_told() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new();
    lab.write("data/x", "");
    let mut rights = std::fs::metadata(lab.path("data")).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(lab.path("data"), rights).unwrap();
    let ran = lab.serve_in_vain(&["--data", "data"]);
    assert_ne!(ran.code, Some(0));
    assert!(ran.err.contains("must exist and be writable") && ran.err.lines().count() == 1, "{}", ran.err);
}

#[test]
fn what_is_no_store_is_left_alone() {
    let lab = Lab::new();
    // A folder where the file's name is something else already.
    for (name, bytes) in
        [("text", b"this is no database, and somebody may still want it".repeat(1000)), ("short", b"x".to_vec())]
    {
        lab.write(&format!("{name}/x"), "");
        let path = lab.path(&format!("{name}/gradus.db"));
        std::fs::write(&path, &bytes).unwrap();
        let ran = lab.serve_in_vain(&["--data", name]);
        assert_ne!(ran.code, Some(0), "{name}");
        assert!(ran.err.contains("no Gradus store") && ran.err.lines().count() == 1, "{name}: {}", ran.err);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}");
        assert_ne!(lab.run(&["store", "check", "--data", name]).code, Some(0), "{name}");
    }
    lab.write("file", "");
    let ran = lab.serve_in_vain(&["--data", "file"]);
    assert_ne!(ran.code, Some(0));
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

/// A file that was cut off, or overwritten in its middle, is found out by a check; and a server either does not come up
/// on it, or answers with an error where it meets the damage.
#[test]
fn a_damaged_file_is_found() {
    let lab = Lab::new();
    let server = lab.serve();
    for number in 0..200 {
        let mut one = span(number, number as u64 + 1, "s");
        let noise: String = (0..2_000).map(|_| fastrand::alphanumeric()).collect();
        one.attributes = attributes(&[("text", &noise)]);
        one.trace_id = (number + 1).to_be_bytes().to_vec();
        server.export(&export("p", vec![one]));
    }
    server.stop();
    let whole = std::fs::read(lab.path(".gradus/gradus.db")).unwrap();
    // On a busy machine a part of the store may still be in the log when the server ends.
    let beside = ["-wal", "-shm"].map(|end| lab.path(&format!(".gradus/gradus.db{end}")));
    let log = std::fs::read(&beside[0]).ok();
    let remove_log = || beside.iter().for_each(|path| drop(std::fs::remove_file(path)));
    let mut overwritten = whole.clone();
    // Half of all pages, so that some of them hold the spans that are read below, wherever verdicts and indexes lie.
    overwritten[whole.len() / 4..whole.len() * 3 / 4].fill(0xa5);
    for (name, bytes) in [("cut", whole[..whole.len() / 2].to_vec()), ("overwritten", overwritten)] {
        remove_log();
        std::fs::write(lab.path(".gradus/gradus.db"), bytes).unwrap();
        let checked = lab.run(&["store", "check"]);
        assert!(matches!(checked.code, Some(1 | 2)), "{name}: {} {}", checked.out, checked.err);
        assert!(!checked.err.is_empty() && !checked.err.contains("panicked"), "{name}: {}", checked.err);
        match lab.try_serve(&[]) {
            Err(log) => assert!(log.contains("damaged"), "{name}: {log}"),
            Ok(server) => {
                let reply = server.request("GET", "/api/v1/projects/p/spans").try_send();
                assert!(reply.is_none_or(|reply| reply.status >= 500), "{name}");
                eventually("it is told", || server.log().contains("malformed").then_some(()));
            }
        }
    }
    remove_log();
    std::fs::write(lab.path(".gradus/gradus.db"), &whole).unwrap();
    log.into_iter().for_each(|log| std::fs::write(&beside[0], log).unwrap());
    lab.run(&["store", "check"]).exits_with(0);
    let server = lab.serve();
    assert_eq!(server.spans("p").len(), 200);
    assert_eq!(server.json(&format!("/api/v1/traces/{}", trace_id(7)))["trace"]["spans"], 1);
}
