//! Adaptive limit of concurrent calls to an endpoint. It behaves like the congestion window of TCP Reno: it starts
//! low and doubles while calls are answered (slow start), is halved once for each episode of rate limiting, and from
//! then on grows by one per round trip (additive increase, multiplicative decrease). It does not grow while it is not
//! used. Limits that the endpoint states in its headers are respected.
//!
//! [`ConcurrencyWindow`] is the rule, without a clock or a runtime of its own; [`ConcurrencyLimiter`] lets tasks wait
//! on it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::headers::RemainingQuota;

/// Initial limit of concurrent calls. Slow start doubles it within one round trip.
const INITIAL_LIMIT: f64 = 16.0;
/// Multiplicative decrease of the limit after an overload.
const DECREASE_FACTOR: f64 = 0.5;

/// What the result of a call says about the load of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSignal {
    Answered,
    /// Rate limited, or timed out: too many calls were in flight.
    Overloaded {
        retry_after: Option<Duration>,
    },
    /// Failed for a reason that is independent of load. Also the signal of a call that was dropped before it ended.
    Neutral,
}

/// The queue that a call waits in. Retries are admitted before new calls, so that new calls do not overtake them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPriority {
    New,
    Retry,
}

/// The state of the adaptive limit. The caller passes the time, so that tests need no clock.
#[derive(Debug)]
pub struct ConcurrencyWindow {
    /// Fractional, because the increase per answer is less than one after slow start. At least 1.
    limit: f64,
    max: f64,
    slow_start: bool,
    in_flight: usize,
    /// Serial number of the next call.
    next: u64,
    /// Calls before this one belong to an overload episode for which the limit was already halved.
    episode: u64,
    /// Calls before this one were in flight when the limit was reached, so their answers may raise it. (Checking
    /// whether it is reached now would fail: answers come in bursts, and after the first of a burst the limit is no
    /// longer reached.)
    full_at: u64,
    /// No call starts before this time: an endpoint asked for a pause.
    paused_until: Option<Instant>,
    /// Requests left in the endpoint's rate-limit window, and the end of that window.
    allowance: Option<(u64, Instant)>,
    /// Number of waiting retries. New calls are not admitted while it is above 0.
    waiting_retry_count: usize,
}

/// Whether a call may start.
#[derive(Debug, PartialEq, Eq)]
pub enum CallAdmission {
    /// Go, under this serial number.
    Go(u64),
    /// Wait for another call to end.
    Full,
    /// Wait until this time; nothing else can let the call in earlier, except a change of the quota.
    Until(Instant),
}

impl ConcurrencyWindow {
    pub fn new(max: usize) -> Self {
        let max = max.max(1) as f64;
        ConcurrencyWindow {
            limit: INITIAL_LIMIT.min(max),
            max,
            slow_start: true,
            in_flight: 0,
            next: 0,
            episode: 0,
            full_at: 0,
            paused_until: None,
            allowance: None,
            waiting_retry_count: 0,
        }
    }

    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Decides whether a call may start now, and counts it if so. Every admitted call must end in `finish_call`.
    pub fn admit(&mut self, turn: CallPriority, now: Instant) -> CallAdmission {
        if let Some(until) = self.paused_until {
            if now < until {
                return CallAdmission::Until(until);
            }
            self.paused_until = None;
        }
        if let Some((left, reset)) = self.allowance {
            if now >= reset {
                self.allowance = None;
            } else if left == 0 {
                return CallAdmission::Until(reset);
            }
        }
        if self.in_flight >= self.limit() {
            self.full_at = self.next;
            return CallAdmission::Full;
        }
        if turn == CallPriority::New && self.waiting_retry_count > 0 {
            return CallAdmission::Full;
        }
        if let Some((left, _)) = &mut self.allowance {
            *left -= 1;
        }
        self.in_flight += 1;
        self.next += 1;
        if self.in_flight >= self.limit() {
            self.full_at = self.next;
        }
        CallAdmission::Go(self.next - 1)
    }

    /// Ends an admitted call and adapts the limit.
    pub fn finish_call(&mut self, serial: u64, signal: LoadSignal, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match signal {
            // Only answers to calls that filled the window raise it: otherwise an idle client would grow without
            // evidence.
            LoadSignal::Answered if serial < self.full_at => {
                let growth = if self.slow_start { 1.0 } else { 1.0 / self.limit };
                self.limit = (self.limit + growth).min(self.max);
            }
            LoadSignal::Answered | LoadSignal::Neutral => {}
            LoadSignal::Overloaded { retry_after } => {
                if let Some(pause) = retry_after {
                    let until = now + pause;
                    self.paused_until = Some(self.paused_until.map_or(until, |known| known.max(until)));
                }
                // Calls that started before the last cut belong to the same episode: a burst of refusals is one signal,
                // not many.
                if serial >= self.episode {
                    self.limit = (self.limit * DECREASE_FACTOR).max(1.0);
                    self.slow_start = false;
                    self.episode = self.next;
                }
            }
        }
    }

    /// Sets the remaining quota that the endpoint reported. It replaces the local count, because other clients of the
    /// account use the quota, too.
    pub(crate) fn set_quota(&mut self, allowance: RemainingQuota, now: Instant) {
        self.allowance = Some((allowance.requests_left, now + allowance.reset_in));
    }
}

/// Lets tasks wait for their turn. The lock is held for a few instructions and never across an await.
#[derive(Debug)]
pub struct ConcurrencyLimiter {
    window: Mutex<ConcurrencyWindow>,
    new_turn: Notify,
    retry_turn: Notify,
}

impl ConcurrencyLimiter {
    pub fn new(max: usize) -> Self {
        ConcurrencyLimiter {
            window: Mutex::new(ConcurrencyWindow::new(max)),
            new_turn: Notify::new(),
            retry_turn: Notify::new(),
        }
    }

    /// Returns the current limit of concurrent calls.
    pub fn limit(&self) -> usize {
        self.lock().limit()
    }

    pub fn in_flight(&self) -> usize {
        self.lock().in_flight
    }

    /// Waits until a call may start. Dropping the future while it waits is safe.
    pub async fn acquire(&self, turn: CallPriority) -> CallPermit<'_> {
        let queue = self.queue_for_priority(turn);
        let _waiting = (turn == CallPriority::Retry).then(|| RetryWaitGuard::new(self));
        loop {
            let notified = queue.notified();
            let admission = self.lock().admit(turn, Instant::now());
            match admission {
                CallAdmission::Go(serial) => {
                    // One wake-up per admitted call: each wakes the next one while the window has space.
                    self.wake_next();
                    return CallPermit { limiter: self, serial, signal: LoadSignal::Neutral };
                }
                CallAdmission::Full => notified.await,
                // The pause can end early, when another response reports a refilled quota.
                CallAdmission::Until(instant) => tokio::select! {
                    () = tokio::time::sleep_until(instant) => {}
                    () = notified => {}
                },
            }
        }
    }

    pub(crate) fn set_quota(&self, allowance: RemainingQuota) {
        self.lock().set_quota(allowance, Instant::now());
        self.wake_next();
    }

    fn queue_for_priority(&self, turn: CallPriority) -> &Notify {
        match turn {
            CallPriority::New => &self.new_turn,
            CallPriority::Retry => &self.retry_turn,
        }
    }

    /// Wakes the next waiting call if the window has space.
    fn wake_next(&self) {
        let window = self.lock();
        if window.in_flight < window.limit() {
            let turn = if window.waiting_retry_count > 0 { CallPriority::Retry } else { CallPriority::New };
            drop(window);
            self.queue_for_priority(turn).notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ConcurrencyWindow> {
        self.window.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A call in flight. Dropping it frees its slot in the window, with the signal that was set last.
#[derive(Debug)]
pub struct CallPermit<'l> {
    limiter: &'l ConcurrencyLimiter,
    serial: u64,
    signal: LoadSignal,
}

impl CallPermit<'_> {
    pub fn set_signal(&mut self, signal: LoadSignal) {
        self.signal = signal;
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.limiter.lock().finish_call(self.serial, self.signal, Instant::now());
        self.limiter.wake_next();
    }
}

/// Counts a waiting retry. A guard, so that the count stays right if the task is dropped while it waits.
struct RetryWaitGuard<'l>(&'l ConcurrencyLimiter);

impl<'l> RetryWaitGuard<'l> {
    fn new(limiter: &'l ConcurrencyLimiter) -> Self {
        limiter.lock().waiting_retry_count += 1;
        RetryWaitGuard(limiter)
    }
}

impl Drop for RetryWaitGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting_retry_count -= 1;
        self.0.wake_next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(window: &mut ConcurrencyWindow, now: Instant) -> Vec<u64> {
        std::iter::from_fn(|| match window.admit(CallPriority::New, now) {
            CallAdmission::Go(serial) => Some(serial),
            _ => None,
        })
        .collect()
    }

    /// Starts as many calls as allowed and ends them all the same way.
    fn round(window: &mut ConcurrencyWindow, signal: LoadSignal, now: Instant) -> usize {
        let serials = fill(window, now);
        serials.iter().for_each(|serial| window.finish_call(*serial, signal, now));
        serials.len()
    }

    /// One round trip: every call in flight is answered, oldest first, and its place taken at once.
    fn round_trip(window: &mut ConcurrencyWindow, calls: &mut Vec<u64>, now: Instant) {
        for serial in std::mem::take(calls) {
            window.finish_call(serial, LoadSignal::Answered, now);
            calls.extend(fill(window, now));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn doubles_until_the_ceiling() {
        let now = Instant::now();
        let mut window = ConcurrencyWindow::new(100);
        let mut calls = fill(&mut window, now);
        let mut limits = vec![window.limit()];
        for _ in 0..4 {
            round_trip(&mut window, &mut calls, now);
            limits.push(window.limit());
        }
        assert_eq!(limits, [16, 32, 64, 100, 100]);
    }

    /// Calls that started together are answered together.
    #[tokio::test(start_paused = true)]
    async fn doubles_when_answers_come_in_bursts() {
        let now = Instant::now();
        let mut window = ConcurrencyWindow::new(100);
        let sizes: Vec<usize> = (0..5).map(|_| round(&mut window, LoadSignal::Answered, now)).collect();
        assert_eq!(sizes, [16, 32, 64, 100, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_cut_for_each_episode_and_then_one_more_a_round() {
        let now = Instant::now();
        let mut window = ConcurrencyWindow::new(64);
        let mut calls = fill(&mut window, now);
        while window.limit() < 64 {
            round_trip(&mut window, &mut calls, now);
        }
        calls.iter().for_each(|serial| window.finish_call(*serial, LoadSignal::Overloaded { retry_after: None }, now));
        assert_eq!((calls.len(), window.limit()), (64, 32), "64 refusals are one episode");
        calls = fill(&mut window, now);
        round_trip(&mut window, &mut calls, now);
        round_trip(&mut window, &mut calls, now);
        assert!((33..=34).contains(&window.limit()), "one more a round trip after the first cut");
        calls.iter().for_each(|serial| window.finish_call(*serial, LoadSignal::Neutral, now));
        round(&mut window, LoadSignal::Overloaded { retry_after: None }, now);
        assert!(window.limit() <= 17, "a new episode cuts again");
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_grow_unused_and_never_reaches_zero() {
        let now = Instant::now();
        let mut window = ConcurrencyWindow::new(64);
        for _ in 0..100 {
            let CallAdmission::Go(serial) = window.admit(CallPriority::New, now) else { panic!("refused") };
            window.finish_call(serial, LoadSignal::Answered, now);
        }
        assert_eq!(window.limit(), 16);
        for _ in 0..20 {
            round(&mut window, LoadSignal::Overloaded { retry_after: None }, now);
        }
        assert_eq!(window.limit(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn obeys_retry_after_and_allowances() {
        let now = Instant::now();
        let mut window = ConcurrencyWindow::new(8);
        let CallAdmission::Go(serial) = window.admit(CallPriority::New, now) else { panic!("refused") };
        window.finish_call(serial, LoadSignal::Overloaded { retry_after: Some(Duration::from_secs(3)) }, now);
        assert_eq!(window.admit(CallPriority::New, now), CallAdmission::Until(now + Duration::from_secs(3)));
        let later = now + Duration::from_secs(3);
        window.set_quota(RemainingQuota { requests_left: 1, reset_in: Duration::from_secs(9) }, later);
        assert!(matches!(window.admit(CallPriority::New, later), CallAdmission::Go(_)));
        assert_eq!(window.admit(CallPriority::New, later), CallAdmission::Until(later + Duration::from_secs(9)));
        assert!(matches!(window.admit(CallPriority::New, later + Duration::from_secs(9)), CallAdmission::Go(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_goes_before_a_new_call_and_none_is_forgotten() {
        let limiter = ConcurrencyLimiter::new(1);
        let first = limiter.acquire(CallPriority::New).await;
        let order = Mutex::new(Vec::new());
        let enter = async |name, turn| {
            let _permit = limiter.acquire(turn).await;
            order.lock().expect("one thread").push(name);
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let release = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            drop(first);
        };
        tokio::join!(
            enter("new", CallPriority::New),
            enter("again", CallPriority::Retry),
            enter("new", CallPriority::New),
            release
        );
        assert_eq!(*order.lock().expect("one thread"), ["again", "new", "new"]);
    }

    /// An endpoint that took back its pause is asked at once.
    #[tokio::test(start_paused = true)]
    async fn a_pause_that_is_over_early_is_not_slept_through() {
        let limiter = ConcurrencyLimiter::new(8);
        let first = limiter.acquire(CallPriority::New).await;
        limiter.set_quota(RemainingQuota { requests_left: 0, reset_in: Duration::from_secs(360) });
        let started = Instant::now();
        let waits = async { drop(limiter.acquire(CallPriority::Retry).await) };
        let relents = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            limiter.set_quota(RemainingQuota { requests_left: 50, reset_in: Duration::from_secs(360) });
            drop(first);
        };
        tokio::join!(waits, relents);
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn never_lets_in_more_than_the_limit() {
        let limiter = ConcurrencyLimiter::new(40);
        let most = std::cell::Cell::new(0);
        let call = async |number: u64| {
            let mut permit = limiter.acquire(CallPriority::New).await;
            let at_once = limiter.in_flight();
            // It never shrinks here, so what is in flight is within what the limit is now.
            assert!(at_once <= limiter.limit(), "{at_once} of {}", limiter.limit());
            most.set(at_once.max(most.get()));
            tokio::time::sleep(Duration::from_millis(number % 7)).await;
            permit.set_signal(LoadSignal::Answered);
        };
        let mut calls: Vec<_> = (0..2_000).map(|number| Box::pin(call(number))).collect();
        std::future::poll_fn(|context| {
            calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
            if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        assert_eq!(most.get(), 40);
    }
}
