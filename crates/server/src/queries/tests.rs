//! Queries that are in each other's way, as real ones are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gradus_store::{QueryStop, StoreError, check_query};

use super::pool::{QueryPool, QueryRefusal};
use super::{with_caller, without_turn};
use crate::queries::pool_state::QueryKind;
use crate::queries::pool_state::QueryLimits;

fn pool(query_time: Duration) -> Arc<QueryPool> {
    Arc::new(QueryPool::new(QueryLimits {
        query_time,
        download_time: Duration::from_secs(600),
        max_wait: Duration::from_secs(600),
        slots: 1,
    }))
}

const LONG: Duration = Duration::from_secs(600);

/// Works until it is stopped, or told that it is enough; counts how often it went round.
fn work(enough: &AtomicBool, rounds: &AtomicU64) -> Result<(), StoreError> {
    while !enough.load(Ordering::Relaxed) {
        check_query()?;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn count(pool: &QueryPool, result: &str) -> u64 {
    pool.counts().by_result().iter().find(|(name, _)| *name == result).unwrap().1
}

async fn run_as<T: Send + 'static>(
    pool: &QueryPool,
    caller: &str,
    query: impl FnOnce() -> T + Send + 'static,
) -> Result<T, QueryRefusal> {
    with_caller(caller.into(), pool.run(QueryKind::Rows, query)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_callers_queries_do_not_keep_anothers_waiting() {
    let pool = pool(LONG);
    let (enough, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let greedy: Vec<_> = (0..48)
        .map(|_| {
            let (pool, enough, rounds) = (Arc::clone(&pool), Arc::clone(&enough), Arc::clone(&rounds));
            tokio::spawn(async move { run_as(&pool, "greedy", move || work(&enough, &rounds)).await })
        })
        .collect();
    eventually("they are in each other's way", || pool.under_way() == (4, 44)).await;
    // Not one of them has ended, and there is one slot: others have their turns all the same.
    for _ in 0..20 {
        assert_eq!(run_as(&pool, "modest", || check_query().is_ok()).await, Ok(true));
    }
    // Another one who takes as much as he can get gets half of it.
    let mine = Arc::new(AtomicU64::new(0));
    let (before, counted) = (rounds.load(Ordering::Relaxed), Arc::clone(&mine));
    let until = Arc::clone(&rounds);
    run_as(&pool, "modest", move || {
        // As long as the others' turns come, too.
        let mut turns = 0;
        let mut seen = until.load(Ordering::Relaxed);
        while turns < 4 {
            check_query().unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let now = until.load(Ordering::Relaxed);
            turns += u64::from(now != seen);
            seen = now;
        }
    })
    .await
    .unwrap();
    assert!(mine.load(Ordering::Relaxed) > 0 && rounds.load(Ordering::Relaxed) > before);
    eventually("none of them was let in for it", || pool.under_way() == (4, 44)).await;
    enough.store(true, Ordering::Relaxed);
    for query in greedy {
        assert!(matches!(query.await.unwrap(), Ok(Ok(()))));
    }
    eventually("all are counted", || count(&pool, "done") == 48 + 21).await;
    assert_eq!(pool.under_way(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_stops_when_nobody_waits_for_it() {
    let pool = pool(LONG);
    let (enough, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let (pool, enough, rounds) = (Arc::clone(&pool), Arc::clone(&enough), Arc::clone(&rounds));
            tokio::spawn(async move { run_as(&pool, "gone", move || work(&enough, &rounds)).await })
        })
        .collect();
    eventually("one runs", || rounds.load(Ordering::Relaxed) > 1_000).await;
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("all have ended", || pool.under_way() == (0, 0)).await;
    let after = rounds.load(Ordering::Relaxed);
    assert_eq!(run_as(&pool, "gone", || 1).await, Ok(1));
    assert_eq!(rounds.load(Ordering::Relaxed), after, "nothing goes on");
    // Those that were not let in yet never began.
    assert!((4..=8).contains(&count(&pool, "cancelled")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_runs_too_long_is_stopped_and_says_what_to_do() {
    let patient = pool(Duration::from_secs(3));
    let pool = pool(Duration::from_millis(120));
    let (enough, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let stopped = run_as(&pool, "a", move || work(&enough, &rounds)).await.unwrap().unwrap_err();
    let StoreError::Stopped(stop @ QueryStop::TimedOut { .. }) = stopped else { panic!("{stopped}") };
    let refusal = QueryRefusal::Stopped(stop);
    assert_eq!(refusal.status(), 422);
    let line = refusal.to_string();
    assert!(line.contains("serve.query_timeout_s") && !line.contains('\n'), "{line}");
    eventually("it is counted", || count(&pool, "timed_out") == 1).await;
    // The time in which others run is not its own: two that need more than half each are both done.
    let worked = |_: usize| {
        let pool = Arc::clone(&patient);
        tokio::spawn(async move {
            run_as(&pool, "b", || {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(1_700) {
                    check_query()?;
                }
                Ok::<(), StoreError>(())
            })
            .await
        })
    };
    let both: Vec<_> = (0..2).map(worked).collect();
    for one in both {
        assert!(matches!(one.await.unwrap(), Ok(Ok(()))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_never_asks_does_not_hold_up_the_others() {
    let pool = pool(LONG);
    let (release, held) = mpsc::channel::<()>();
    let stuck = {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { run_as(&pool, "stuck", move || held.recv().is_err()).await })
    };
    eventually("it runs", || pool.under_way().0 == 1).await;
    assert_eq!(run_as(&pool, "other", || 7).await, Ok(7));
    drop(release);
    assert_eq!(stuck.await.unwrap(), Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_client_has_no_turn_meanwhile() {
    let pool = pool(LONG);
    let (release, held) = mpsc::channel::<()>();
    let waiting = Arc::new(AtomicUsize::new(0));
    let slow = {
        let (pool, waiting) = (Arc::clone(&pool), Arc::clone(&waiting));
        tokio::spawn(async move {
            let query = move || {
                without_turn(|| {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    let _ = held.recv();
                });
                check_query().is_ok()
            };
            with_caller("slow".into(), pool.run(QueryKind::Download, query)).await
        })
    };
    eventually("it waits", || waiting.load(Ordering::Relaxed) == 1).await;
    for _ in 0..50 {
        assert_eq!(run_as(&pool, "other", || check_query().is_ok()).await, Ok(true));
    }
    drop(release);
    assert_eq!(slow.await.unwrap(), Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_queue_is_bounded_and_another_still_gets_in() {
    let pool = pool(LONG);
    let (enough, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let asked: Vec<_> = (0..100)
        .map(|_| {
            let (pool, enough, rounds) = (Arc::clone(&pool), Arc::clone(&enough), Arc::clone(&rounds));
            tokio::spawn(async move { run_as(&pool, "greedy", move || work(&enough, &rounds)).await })
        })
        .collect();
    eventually("the queue is full", || pool.under_way() == (4, 64) && count(&pool, "refused") == 32).await;
    assert_eq!(run_as(&pool, "greedy", || ()).await, Err(QueryRefusal::Busy));
    assert_eq!(QueryRefusal::Busy.status(), 503);
    assert_eq!(run_as(&pool, "modest", || 1).await, Ok(1));
    enough.store(true, Ordering::Relaxed);
    let mut refused = 0;
    for query in asked {
        refused += u64::from(matches!(query.await.unwrap(), Err(QueryRefusal::Busy)));
    }
    assert_eq!(refused, 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_place_is_for_somebody_who_has_none() {
    let pool = pool(LONG);
    let download = |caller: &str| with_caller(caller.into(), pool.admit(QueryKind::Download));
    let held = [download("a").await, download("a").await, download("b").await];
    assert!(held.iter().all(Result::is_ok));
    // Both might have another one by their own limits; the fourth place stays free for a third caller.
    assert!(tokio::time::timeout(Duration::from_millis(50), download("b")).await.is_err());
    assert!(download("c").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_panics_is_an_error_and_the_next_one_works() {
    let pool = pool(LONG);
    for _ in 0..20 {
        let failed = run_as::<()>(&pool, "a", || panic!("on purpose")).await;
        assert_eq!(failed, Err(QueryRefusal::Failed));
    }
    assert_eq!(run_as(&pool, "a", || 1).await, Ok(1));
    eventually("nothing is left", || pool.under_way() == (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_ends_its_queries() {
    let pool = pool(LONG);
    let (enough, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let running = {
        let (pool, enough, rounds) = (Arc::clone(&pool), Arc::clone(&enough), Arc::clone(&rounds));
        tokio::spawn(async move { run_as(&pool, "a", move || work(&enough, &rounds)).await })
    };
    eventually("it runs", || rounds.load(Ordering::Relaxed) > 0).await;
    pool.shut_down(Duration::ZERO);
    let ended = running.await.unwrap();
    assert!(matches!(ended, Ok(Err(StoreError::Stopped(QueryStop::ShuttingDown)))), "{ended:?}");
    let refused = run_as(&pool, "a", || ()).await;
    assert_eq!(refused, Err(QueryRefusal::Stopped(QueryStop::ShuttingDown)));
}
