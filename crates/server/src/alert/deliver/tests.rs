//! Deliveries to a real HTTP server on the loopback interface, and to real commands.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::*;
use crate::alert::notice::tests::{example, notice};
use crate::alert::{AlertMeasurement, WebhookUrl};

/// Long enough for a busy machine; nothing waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(20);

struct Posted {
    at: Instant,
    head: String,
    body: Json,
}

/// Answers with one line of the script after the other, and with the last one from then on.
struct Server {
    address: String,
    posted: UnboundedReceiver<Posted>,
}

impl Server {
    async fn start(script: &'static [&'static str]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}/services/secret?token=secret", listener.local_addr().expect("an address"));
        let (sender, posted) = unbounded_channel();
        tokio::spawn(async move {
            for turn in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let answer = script[script.len().min(turn + 1) - 1];
                let Some(request) = exchange(stream, answer).await else { continue };
                if sender.send(request).is_err() {
                    return;
                }
            }
        });
        Server { address, posted }
    }

    fn webhook(&self) -> AlertTarget {
        AlertTarget::Webhook(WebhookUrl::parse(&self.address).expect("an address"))
    }

    async fn next(&mut self) -> Posted {
        timeout(LONG, self.posted.recv()).await.expect("in time").expect("a request")
    }
}

async fn exchange(mut stream: TcpStream, answer: &str) -> Option<Posted> {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if let Ok(body) = serde_json::from_str(body) {
            break (head.to_owned(), body);
        }
    };
    let answer = format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.ok()?;
    Some(Posted { at: Instant::now(), head, body })
}

fn hasty() -> DeliverySettings {
    DeliverySettings {
        base_url: Some("https://gradus.example".to_owned()),
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(100),
        ..DeliverySettings::default()
    }
}

fn any_notice() -> AlertNotice {
    notice(AlertMeasurement { value: 0.5, count: 40, ..AlertMeasurement::default() }, vec![example("a & b")])
}

/// A notice that can be told from others.
fn numbered(count: u64) -> AlertNotice {
    notice(AlertMeasurement { value: 0.5, count, ..AlertMeasurement::default() }, Vec::new())
}

#[tokio::test]
async fn both_forms_are_posted() {
    let mut server = Server::start(&["204 No Content"]).await;
    let dispatcher = NoticeDispatcher::start(hasty()).expect("a dispatcher");
    dispatcher.send(any_notice(), &[AlertTarget::Log, server.webhook()]);
    let posted = server.next().await;
    assert!(posted.head.starts_with("POST /services/secret?token=secret HTTP/1.1"), "{}", posted.head);
    assert!(posted.head.to_ascii_lowercase().contains("content-type: application/json"), "{}", posted.head);
    assert_eq!(posted.body, any_notice().to_json(Some("https://gradus.example")));

    let slack = AlertTarget::Slack(WebhookUrl::parse(&server.address).expect("an address"));
    dispatcher.send(any_notice(), &[slack]);
    assert_eq!(server.next().await.body, any_notice().to_slack_message(Some("https://gradus.example")));
    let counters = Arc::clone(&dispatcher.shared);
    assert_eq!(dispatcher.drain(LONG).await, 0);
    let counts = counters.counters.snapshot();
    for kind in [TargetKind::Log, TargetKind::Webhook, TargetKind::Slack] {
        assert_eq!(counts.for_kind(kind), KindCounts { sent: 1, ..KindCounts::default() }, "{kind:?}");
    }
    assert_eq!(counts.iter().map(|(_, counts)| counts.sent).sum::<u64>(), 3);
}

#[tokio::test]
async fn an_error_of_the_server_is_tried_again() {
    let mut server = Server::start(&["500 Oh", "502 No", "200 OK"]).await;
    let dispatcher = NoticeDispatcher::start(hasty()).expect("a dispatcher");
    dispatcher.send(numbered(1), &[server.webhook()]);
    for _ in 0..3 {
        assert_eq!(server.next().await.body["count"], 1);
    }
    let shared = Arc::clone(&dispatcher.shared);
    assert_eq!(dispatcher.drain(LONG).await, 0);
    let counts = shared.counters.snapshot().for_kind(TargetKind::Webhook);
    assert_eq!(counts, KindCounts { sent: 1, retried: 2, ..KindCounts::default() });
}

#[tokio::test]
async fn a_webhook_that_answers_404_is_retried_and_reported_as_failing() {
    let mut server = Server::start(&["404 Not Found", "404 Not Found", "200 OK"]).await;
    let dispatcher = NoticeDispatcher::start(hasty()).expect("a dispatcher");
    let target = server.webhook();
    dispatcher.send(numbered(1), std::slice::from_ref(&target));
    server.next().await;
    let failure = loop {
        if let Some(failure) = dispatcher.health().get(&target).and_then(|health| health.failure.clone()) {
            break failure;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!((failure.reason.as_str(), failure.is_given_up), ("HTTP 404", false));
    server.next().await;
    server.next().await;
    let shared = Arc::clone(&dispatcher.shared);
    assert_eq!(dispatcher.drain(LONG).await, 0);
    let health = shared.health.snapshot().remove(&target).expect("known");
    assert!(health.failure.is_none() && health.sent_at.is_some(), "{health:?}");
    let counts = shared.counters.snapshot().for_kind(TargetKind::Webhook);
    assert_eq!(counts, KindCounts { sent: 1, retried: 2, ..KindCounts::default() });
}

#[tokio::test]
async fn a_target_of_the_page_is_kept_away_from_private_addresses() {
    let mut server = Server::start(&["200 OK"]).await;
    let url = WebhookUrl::parse(&server.address).expect("an address").guarded();
    let target = AlertTarget::Webhook(url);
    let refused = deliver_test_notice(&any_notice(), std::slice::from_ref(&target), hasty()).await.expect("a client");
    let reason = refused[0].failure.clone().expect("refused");
    assert!(reason.contains("private address") && !reason.contains("secret"), "{reason}");
    assert!(server.posted.try_recv().is_err());
    let network = crate::client_address::IpNetwork::parse("127.0.0.0/8").expect("a network");
    let settings = DeliverySettings { guard: TargetGuard::new(vec![network]), ..hasty() };
    let sent = deliver_test_notice(&any_notice(), std::slice::from_ref(&target), settings).await.expect("a client");
    assert_eq!(sent[0].failure, None);
    assert_eq!(server.next().await.body["rule"], "tool <choice>");
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let mut server = Server::start(&["429 Slow\r\nretry-after: 1", "200 OK"]).await;
    let dispatcher = NoticeDispatcher::start(hasty()).expect("a dispatcher");
    dispatcher.send(any_notice(), &[server.webhook()]);
    let (first, second) = (server.next().await.at, server.next().await.at);
    assert!(second - first >= Duration::from_millis(990), "{:?}", second - first);
}

#[tokio::test]
async fn a_pause_that_is_too_long_and_a_refusal_are_given_up() {
    for (script, patience) in [
        (["429 Slow\r\nretry-after: 86400"].as_slice(), Duration::from_secs(60)),
        (&["301 Moved\r\nlocation: http://127.0.0.1:1/"], Duration::from_secs(60)),
        (&["500 Oh"], Duration::from_millis(1)),
    ] {
        let script: &'static [&'static str] = script;
        let mut server = Server::start(script).await;
        let settings = DeliverySettings { give_up_after: patience, ..hasty() };
        let dispatcher = NoticeDispatcher::start(settings).expect("a dispatcher");
        let shared = Arc::clone(&dispatcher.shared);
        dispatcher.send(any_notice(), &[server.webhook()]);
        server.next().await;
        assert_eq!(dispatcher.drain(LONG).await, 0);
        let counts = shared.counters.snapshot().for_kind(TargetKind::Webhook);
        assert_eq!(counts, KindCounts { failed: 1, ..KindCounts::default() }, "{script:?}");
    }
}

#[tokio::test]
async fn a_dead_webhook_delays_no_other_and_not_the_sender() {
    // It takes the connection and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let dead = format!("http://{}/", listener.local_addr().expect("an address"));
    let dead = AlertTarget::Webhook(WebhookUrl::parse(&dead).expect("an address"));
    let mut server = Server::start(&["200 OK"]).await;
    let dispatcher = NoticeDispatcher::start(DeliverySettings { queue: 5, ..hasty() }).expect("a dispatcher");

    let started = Instant::now();
    for count in 0..4 {
        dispatcher.send(numbered(count), &[dead.clone(), server.webhook()]);
    }
    for count in 0..4 {
        assert_eq!(server.next().await.body["count"], count);
    }
    assert!(started.elapsed() < dispatcher.shared.settings.request_timeout, "{:?}", started.elapsed());

    while dispatcher.counts().for_kind(TargetKind::Webhook).sent < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // One is on its way, five wait; the oldest had to go.
    for count in 4..20 {
        dispatcher.send(numbered(count), std::slice::from_ref(&dead));
    }
    assert_eq!(dispatcher.waiting_count(), 6);
    assert_eq!(dispatcher.counts().for_kind(TargetKind::Webhook).dropped, 14);
    let shared = Arc::clone(&dispatcher.shared);
    let started = Instant::now();
    assert_eq!(dispatcher.drain(Duration::from_millis(100)).await, 6);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(shared.counters.snapshot().for_kind(TargetKind::Webhook).dropped, 20);
}

fn shell(script: &str) -> AlertTarget {
    // The shell is the program here; Gradus itself uses none.
    AlertTarget::Command { words: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()], env: Vec::new() }
}

#[tokio::test]
async fn a_command_gets_the_notice() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notice");
    let script = format!(
        "cat > '{0}.part' && echo \"$GRADUS_ALERT_NAME $GRADUS_ALERT_KIND $GRADUS_ALERT_VALUE\" >> '{0}.part' && mv '{0}.part' '{0}'",
        path.display()
    );
    let dispatcher = NoticeDispatcher::start(hasty()).expect("a dispatcher");
    dispatcher.send(any_notice(), &[shell(&script)]);
    assert_eq!(dispatcher.drain(LONG).await, 0);
    let written = std::fs::read_to_string(path).expect("written");
    let json = any_notice().to_json(Some("https://gradus.example"));
    assert_eq!(written, format!("{json}tool <choice> fired 0.5\n"));
}

#[tokio::test]
async fn commands_that_fail_hang_or_are_missing_end() {
    let settings = DeliverySettings { attempts: 2, command_timeout: Duration::from_millis(200), ..hasty() };
    for (target, retried) in [
        (shell("exit 3"), 1),
        // The child of the shell is ended, too: it would hold this test's output open for a minute.
        (shell("sleep 60; true"), 1),
        (AlertTarget::Command { words: vec!["/nonexistent/notify".to_owned()], env: Vec::new() }, 0),
    ] {
        let dispatcher = NoticeDispatcher::start(settings.clone()).expect("a dispatcher");
        let shared = Arc::clone(&dispatcher.shared);
        let started = Instant::now();
        dispatcher.send(any_notice(), std::slice::from_ref(&target));
        assert_eq!(dispatcher.drain(LONG).await, 0);
        assert!(started.elapsed() < LONG);
        let counts = shared.counters.snapshot().for_kind(TargetKind::Command);
        assert_eq!(counts, KindCounts { failed: 1, retried, ..KindCounts::default() }, "{target:?}");
    }
}

#[tokio::test]
async fn a_command_that_reads_nothing_succeeds() {
    let dispatcher = NoticeDispatcher::start(hasty()).expect("a dispatcher");
    let shared = Arc::clone(&dispatcher.shared);
    dispatcher.send(any_notice(), &[shell("exit 0")]);
    assert_eq!(dispatcher.drain(LONG).await, 0);
    assert_eq!(shared.counters.snapshot().for_kind(TargetKind::Command).sent, 1);
}

#[tokio::test]
async fn what_a_hanging_command_started_is_ended_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let late = folder.path().join("late");
    let settings = DeliverySettings { attempts: 1, command_timeout: Duration::from_millis(200), ..hasty() };
    let dispatcher = NoticeDispatcher::start(settings).expect("a dispatcher");
    dispatcher.send(any_notice(), &[shell(&format!("(sleep 1; touch '{}') & wait", late.display()))]);
    assert_eq!(dispatcher.drain(LONG).await, 0);
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    assert!(!late.exists());
}

#[tokio::test]
async fn no_reason_names_the_address() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let http = webhook::build_webhook_client(Duration::from_millis(200)).expect("a client");
    for host in [silent.local_addr().expect("an address").to_string(), closed.to_string(), "nowhere.invalid".to_owned()]
    {
        let url = WebhookUrl::parse(&format!("http://me:secret@{host}/secret?token=secret")).expect("an address");
        let failed = webhook::post_webhook(&http, &url, &Json::Null).await.expect_err("nobody there");
        assert!(!format!("{failed:?}").contains("secret"), "{failed:?}");
        assert!(matches!(failed, crate::alert::deliver::failure::DeliveryFailure::Transient { .. }), "{failed:?}");
    }
}
