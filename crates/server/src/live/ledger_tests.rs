//! A store that does not take what it is given, for a while.

use super::*;
use crate::live::fixtures::Lab;

/// A trajectory that is at work and waits for two answers.
struct Bench {
    lab: Lab,
    at_work: ActiveTrajectories,
}

impl Bench {
    async fn new(max_queued_bytes: usize) -> Bench {
        let lab = tokio::task::spawn_blocking(move || Lab::new(max_queued_bytes)).await.unwrap();
        let at_work = ActiveTrajectories::default();
        let trajectory = Trajectory { trajectory_id: "t".to_owned(), ..Trajectory::default() };
        at_work.begin(lab.ungraded(i64::MAX).unwrap(), &trajectory);
        at_work.lock().get_mut("t").unwrap().left = Some(2);
        Bench { lab, at_work }
    }

    fn answer(&self, step: u32) {
        let mut at_work = self.at_work.lock();
        let judging = at_work.get_mut("t").unwrap();
        judging.unstored.outcomes.push(OutcomeRecord {
            evaluator: "e".to_owned(),
            step: Some(step),
            kind: gradus_store::RecordedKind::Scored,
            label: Some("good".to_owned()),
            score: Some(1.0),
            is_wrong: false,
            tool: String::new(),
            run: "live-r".to_owned(),
            line: "{}".to_owned(),
            failure_group: None,
        });
        judging.unstored.spend.calls += 1;
        judging.unstored.spend.cost_usd += 0.25;
        judging.left = judging.left.map(|left| left - 1);
    }

    async fn is_settled(&self) {
        let waiting = self.at_work.wait_until_written(&self.lab.store, || false);
        tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
        assert_eq!(self.at_work.len(), 0);
        assert_eq!(self.lab.store.verdict_lines("t").unwrap().len(), 2);
        assert_eq!(self.lab.store.load_spend_since(0, Some("r"), None).unwrap().cost_usd, 0.5);
        assert_eq!(self.lab.store.ungraded_count().unwrap(), 0);
    }
}

#[tokio::test]
async fn what_a_commit_lost_is_handed_over_again() {
    let bench = Bench::new(1 << 20).await;
    let other = bench.lab.hold();
    bench.answer(1);
    bench.at_work.write(&bench.lab.store).unwrap();
    // The store waits for the other one, and gives up after some seconds.
    while bench.lab.store.writer_status().unwrap().failed_commits.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(WRITE_POLL_INTERVAL).await;
    }
    bench.answer(2);
    other.execute_batch("ROLLBACK").unwrap();
    bench.is_settled().await;
}

#[tokio::test]
async fn a_busy_store_is_asked_again() {
    let bench = Bench::new(1).await;
    let other = bench.lab.hold();
    let put = |rule: &str| bench.lab.store.put_alert_state(rule.to_owned(), "quiet".to_owned(), None, 1);
    let first = put("a").unwrap();
    // When the writer has taken the first one, there is room for one more.
    let second = loop {
        match put("b") {
            Ok(second) => break second,
            Err(_) => tokio::time::sleep(WRITE_POLL_INTERVAL).await,
        }
    };
    bench.answer(1);
    bench.at_work.write(&bench.lab.store).unwrap();
    assert!(!bench.at_work.lock()["t"].is_being_written, "there was no room");
    bench.answer(2);
    bench.at_work.write(&bench.lab.store).unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    first.wait_async().await.unwrap();
    second.wait_async().await.unwrap();
    bench.is_settled().await;
}

#[tokio::test]
async fn an_endpoint_that_is_down_uses_up_no_attempts() {
    let bench = Bench::new(1 << 20).await;
    let mut at_work = bench.at_work.lock();
    let judging = at_work.get_mut("t").unwrap();
    (judging.left, judging.has_failed) = (Some(0), true);
    let mut pause_s = |attempts, delays, lacks_endpoint| {
        (judging.ungraded.attempts, judging.ungraded.delays) = (attempts, delays);
        judging.lacks_endpoint = lacks_endpoint;
        let before = now_ns();
        match judging.remaining_grading() {
            RemainingGrading::PostponedUntil { ns } => ("put off", (ns - before) / 1_000_000_000),
            RemainingGrading::RetryAt { ns } => ("again", (ns - before) / 1_000_000_000),
            _ => ("over", 0),
        }
    };
    assert_eq!(
        [0, 1, 2, 3].map(|n| pause_s(n, 0, false)),
        [("again", 60), ("again", 600), ("again", 3600), ("over", 0)]
    );
    let delayed = [0, 1, 5, 6, 7, 1000, u32::MAX].map(|n| pause_s(3, n, true));
    assert_eq!(delayed.map(|(what, _)| what), ["put off"; 7]);
    assert_eq!(delayed.map(|(_, seconds)| seconds), [60, 120, 1920, 3600, 3600, 3600, 3600]);
}
