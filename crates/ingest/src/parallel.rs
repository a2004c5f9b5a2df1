//! Runs jobs on several threads and returns their results in the order in which the jobs were submitted.
//!
//! One thread submits jobs and takes results; workers only compute. Jobs that are submitted and whose results are not
//! taken yet are bounded in bytes, so memory does not grow with the input, and the output is the same with any number
//! of threads.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

/// Maximum bytes of jobs that are under way. A larger job runs alone.
const MAX_BYTES_AHEAD: usize = 16 << 20;

/// Number of cores that this process may use.
pub(crate) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Number of a job, and its result or the panic that it ended in.
type WorkerResult<R> = (usize, Result<R, Box<dyn Any + Send>>);

/// Receives results in order.
pub(crate) type ResultSink<'t, R> = dyn FnMut(R) -> io::Result<()> + 't;

/// The jobs under way.
pub(crate) struct OrderedJobs<J, R> {
    jobs: Sender<(usize, J)>,
    results: Receiver<WorkerResult<R>>,
    /// Results that arrived before those of earlier jobs.
    early: BTreeMap<usize, R>,
    /// Bytes of each job under way, oldest first.
    pending: std::collections::VecDeque<usize>,
    pending_bytes: usize,
    taken: usize,
}

/// Runs `body` with worker threads. `new_worker` is called on each thread and makes its function, so that workers need
/// no locks for their buffers.
pub(crate) fn with_workers<J, R, W, T>(
    threads: usize,
    new_worker: impl Fn() -> W + Sync,
    body: impl FnOnce(&mut OrderedJobs<J, R>) -> io::Result<T>,
) -> io::Result<T>
where
    J: Send,
    R: Send,
    W: FnMut(J) -> R,
{
    let (jobs, queue) = mpsc::channel();
    let (results_in, results) = mpsc::channel();
    let queue = Mutex::new(queue);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (queue, new_worker, results) = (&queue, &new_worker, results_in.clone());
            std::thread::Builder::new()
                .name("reader".to_owned())
                .spawn_scoped(scope, move || run_worker(queue, new_worker, &results))?;
        }
        drop(results_in);
        let mut ordered = OrderedJobs {
            jobs,
            results,
            early: BTreeMap::new(),
            pending: std::collections::VecDeque::new(),
            pending_bytes: 0,
            taken: 0,
        };
        // The queue is closed when `ordered` is dropped, whatever `body` returns. Then the workers end and the scope
        // can be left.
        body(&mut ordered)
    })
}

/// Body of a worker thread: takes jobs until the queue is closed.
fn run_worker<J, R, W: FnMut(J) -> R>(
    queue: &Mutex<Receiver<(usize, J)>>,
    new_worker: &impl Fn() -> W,
    results: &Sender<WorkerResult<R>>,
) {
    let mut worker = new_worker();
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, job)) = next else { return };
        // A panic is passed to the thread that waits for this result. Without catching it, that thread would wait
        // forever.
        let result = catch_unwind(AssertUnwindSafe(|| worker(job)));
        let is_over = result.is_err();
        if results.send((number, result)).is_err() || is_over {
            return;
        }
    }
}

impl<J, R> OrderedJobs<J, R> {
    /// Submits a job with this many bytes. Earlier results that must be taken first go to `take`.
    pub(crate) fn submit(&mut self, bytes: usize, job: J, take: &mut ResultSink<'_, R>) -> io::Result<()> {
        while !self.pending.is_empty() && self.pending_bytes + bytes > MAX_BYTES_AHEAD {
            self.take_next(take)?;
        }
        let number = self.taken + self.pending.len();
        self.jobs.send((number, job)).map_err(|_| io::Error::other("the reading threads ended early"))?;
        self.pending.push_back(bytes);
        self.pending_bytes += bytes;
        Ok(())
    }

    /// Waits for all submitted jobs.
    pub(crate) fn finish(&mut self, take: &mut ResultSink<'_, R>) -> io::Result<()> {
        while !self.pending.is_empty() {
            self.take_next(take)?;
        }
        Ok(())
    }

    /// Waits for the oldest job, collects what arrives meanwhile, and continues its panic here if it panicked.
    fn take_next(&mut self, take: &mut ResultSink<'_, R>) -> io::Result<()> {
        let result = loop {
            if let Some(result) = self.early.remove(&self.taken) {
                break result;
            }
            match self.results.recv() {
                Ok((number, Ok(result))) => drop(self.early.insert(number, result)),
                Ok((_, Err(panic))) => resume_unwind(panic),
                Err(_) => return Err(io::Error::other("the reading threads ended early")),
            }
        };
        self.taken += 1;
        self.pending_bytes -= self.pending.pop_front().unwrap_or_default();
        take(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_stay_within_the_budget() {
        let ahead = std::sync::atomic::AtomicUsize::new(0);
        let work = |number: usize| {
            // Early jobs take longer than late ones.
            if number.is_multiple_of(7) {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            number * 2
        };
        let (mut taken, mut most) = (Vec::new(), 0);
        let job_bytes = MAX_BYTES_AHEAD / 4;
        with_workers(
            3,
            || work,
            |jobs| {
                let mut take = |result| {
                    ahead.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                    taken.push(result);
                    Ok(())
                };
                for number in 0..100 {
                    jobs.submit(job_bytes, number, &mut take)?;
                    most = most.max(ahead.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1);
                }
                jobs.finish(&mut take)
            },
        )
        .unwrap();
        assert_eq!(taken, (0..100).map(|number| number * 2).collect::<Vec<_>>());
        assert!(most <= 4, "{most} jobs were ahead");
    }

    #[test]
    fn an_error_of_the_taker_ends_the_work() {
        let mut take = |_: usize| Err(io::Error::other("no more"));
        let error = with_workers(
            2,
            || |number: usize| number,
            |jobs| {
                for number in 0..10 {
                    jobs.submit(MAX_BYTES_AHEAD, number, &mut take)?;
                }
                jobs.finish(&mut take)
            },
        );
        assert_eq!(error.unwrap_err().to_string(), "no more");
    }

    #[test]
    #[should_panic(expected = "broken worker")]
    fn a_panic_of_a_worker_reaches_the_caller() {
        let mut take = |()| Ok(());
        let _ = with_workers(
            2,
            || |_: usize| panic!("broken worker"),
            |jobs| {
                for number in 0..10 {
                    jobs.submit(1, number, &mut take)?;
                }
                jobs.finish(&mut take)
            },
        );
    }
}
