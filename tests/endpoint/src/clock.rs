//! Delays that are as long as they say. The runtime's own timers are only exact to a millisecond or two, which is a lot
//! when an endpoint's latency is 50.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub(crate) struct Clock {
    waiting: Mutex<Waiting>,
    earlier: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    order: BinaryHeap<Reverse<(Instant, u64)>>,
    wakers: std::collections::HashMap<u64, oneshot::Sender<()>>,
}

impl Clock {
    pub(crate) fn start() -> Arc<Clock> {
        let clock = Arc::new(Clock::default());
        let shared = Arc::downgrade(&clock);
        std::thread::spawn(move || {
            while let Some(clock) = shared.upgrade() {
                clock.wake_due();
            }
        });
        clock
    }

    pub(crate) async fn sleep(&self, delay: Duration) {
        let (waker, woken) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let number = waiting.next;
            waiting.next += 1;
            waiting.order.push(Reverse((Instant::now() + delay, number)));
            waiting.wakers.insert(number, waker);
        }
        self.earlier.notify_one();
        let _ = woken.await;
    }

    /// Wakes who is due, and waits for the next one; not for ever, so that the thread ends with its clock.
    fn wake_due(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some(Reverse((due, number))) = waiting.order.peek().copied()
            && due <= now
        {
            waiting.order.pop();
            if let Some(waker) = waiting.wakers.remove(&number) {
                let _ = waker.send(());
            }
        }
        let pause = waiting.order.peek().map_or(Duration::from_millis(20), |Reverse((due, _))| *due - now);
        let _ = self.earlier.wait_timeout(waiting, pause.min(Duration::from_millis(20)));
    }
}
