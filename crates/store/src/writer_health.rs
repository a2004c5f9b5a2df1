//! Whether the store can be written to, as far as the writer knows. Health checks read it and cause no work, so they
//! cannot keep the store busy.
//!
//! While writes fail, clients send nothing, so no write of theirs would notice that they succeed again. The writer then
//! tries itself, with a row that needs room: a small one may fit into a page that a full disk still has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::file_guard::FileGuard;
use crate::random_digits::random_digits;
use crate::sql::SqlConnection;
use crate::writer_connection::{WriterConnection, begin_transaction, commit_transaction};

/// Pause between two trial writes.
const TRIAL_INTERVAL: Duration = Duration::from_secs(1);
/// How often an idle connection to a database server is tested.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Number of random texts of 64 digits in the row of a trial: about as much as a small request writes.
const TRIAL_ROW_TEXTS: usize = 1024;

/// Counters of the writer, for metrics.
#[derive(Debug, Default)]
pub struct WriterStatus {
    pub commits: AtomicU64,
    pub failed_commits: AtomicU64,
    /// Time of all transactions in nanoseconds, from the first task to the commit.
    pub commit_ns: AtomicU64,
    pub queued_bytes: AtomicUsize,
    pub queued_tasks: AtomicUsize,
    /// Whether the store accepts nothing at the moment, as far as the writer knows.
    pub is_failing: AtomicBool,
}

/// Keeps [`WriterStatus::is_failing`] up to date.
pub(crate) struct WriterHealth {
    status: Arc<WriterStatus>,
    next_trial_at: Instant,
    next_ping_at: Instant,
}

impl WriterHealth {
    pub(crate) fn new(status: Arc<WriterStatus>) -> WriterHealth {
        let now = Instant::now();
        WriterHealth { status, next_trial_at: now, next_ping_at: now + PING_INTERVAL }
    }

    fn is_failing(&self) -> bool {
        self.status.is_failing.load(Ordering::Relaxed)
    }

    pub(crate) fn set_failing(&self) {
        self.status.is_failing.store(true, Ordering::Relaxed);
    }

    /// Makes a trial write if writes fail and one is due. Called between two transactions.
    pub(crate) fn check(&mut self, writer: &mut WriterConnection, guard: &mut FileGuard) {
        if self.is_failing() && Instant::now() >= self.next_trial_at {
            self.run_write_trial(writer, guard);
        }
    }

    /// Pings the server while nothing is written, so that an unreachable server is noticed before a client sends
    /// something.
    pub(crate) fn check_idle(&mut self, writer: &mut WriterConnection) {
        if Instant::now() >= self.next_ping_at {
            if !writer.check_alive() {
                self.set_failing();
            }
            self.next_ping_at = Instant::now() + PING_INTERVAL;
        }
    }

    /// Called after a successful write. If writes failed before, only a trial shows whether larger ones succeed.
    pub(crate) fn recheck_after_success(&mut self, writer: &mut WriterConnection, guard: &mut FileGuard) {
        self.next_ping_at = Instant::now() + PING_INTERVAL;
        if self.is_failing() {
            self.run_write_trial(writer, guard);
        }
    }

    fn run_write_trial(&mut self, writer: &mut WriterConnection, guard: &mut FileGuard) {
        let started = Instant::now();
        let tried = write_trial(writer, guard);
        if matches!(tried, Err(StoreError::DiskFull)) {
            guard.checkpoint_log(&writer.connection);
        }
        self.status.is_failing.store(tried.is_err(), Ordering::Relaxed);
        // A host that does not answer takes seconds, in which nothing else is written.
        self.next_trial_at = Instant::now() + TRIAL_INTERVAL.max(started.elapsed() * 4);
    }
}

/// Makes one transaction like those of clients.
fn write_trial(writer: &mut WriterConnection, guard: &mut FileGuard) -> Result<(), StoreError> {
    guard.check(&writer.connection)?;
    writer.reconnect_if_lost()?;
    begin_transaction(&writer.connection)?;
    if let Err(error) = put_trial_row(&writer.connection) {
        // An error such as a full disk may have ended the transaction.
        let _ = writer.connection.execute_batch("ROLLBACK");
        return Err(error);
    }
    commit_transaction(&writer.connection)?;
    guard.check_after_commit(&writer.connection).map(drop)
}

/// Writes a row under the empty name, which no rule can have. It stays and differs each time: a row that is removed in the
/// same transaction, or does not change, would not be written.
fn put_trial_row(sql: &SqlConnection) -> Result<(), StoreError> {
    let put = "INSERT INTO alert_state (rule, state) VALUES ('', ?) \
               ON CONFLICT (rule) DO UPDATE SET state = excluded.state";
    let noise: String = (0..TRIAL_ROW_TEXTS).map(|_| random_digits()).collect::<Result<_, _>>()?;
    sql.execute(put, [noise]).map(drop).map_err(StoreError::from)
}
