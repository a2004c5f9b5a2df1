//! The one thread that writes (group commit). All waiting tasks are written in one transaction, and their callers are
//! notified after its commit. So one wait for the disk serves many requests, and nothing is acknowledged before it is
//! durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sql::SqlConnection;
use tokio::sync::oneshot;

use crate::engine::StoreEngine;
use crate::error::StoreError;
use crate::file_guard::FileGuard;
use crate::files::StoreFiles;
use crate::project_numbers::ProjectNumberCache;
use crate::readers::ReaderPool;
use crate::write_queue::{QueueRefusal, WriteLane, WriteQueue};
use crate::writer_connection::{WriterConnection, begin_transaction, commit_transaction};
use crate::writer_health::{WriterHealth, WriterStatus};

/// What a task works with. The transaction is open.
pub(crate) struct WriteContext<'w> {
    pub(crate) sql: &'w SqlConnection,
    pub(crate) projects: &'w mut ProjectNumberCache,
    /// The name of this server among those that share the database.
    pub(crate) node: &'w str,
}

/// A task of the queue, without the type of its result.
trait WriteTask: Send {
    /// Does the work inside the open transaction. Called again if the transaction was rolled back, so it must be
    /// repeatable.
    fn run(&mut self, writing: &mut WriteContext<'_>) -> Result<(), StoreError>;

    /// Notifies the caller of the commit, or of the reason why there was none.
    fn finish(self: Box<Self>, failure: Option<&StoreError>);
}

/// A task with its result, which is kept until the commit.
struct WriteJob<T, F> {
    work: F,
    result: Option<Result<T, StoreError>>,
    result_sender: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> WriteTask for WriteJob<T, F>
where
    T: Send,
    F: FnMut(&mut WriteContext<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, writing: &mut WriteContext<'_>) -> Result<(), StoreError> {
        // Others depend on this thread, so it must survive a task that panics.
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(writing)))
            .unwrap_or_else(|_| Err(StoreError::Sql("a write panicked; it was taken back".to_owned())));
        let outcome = result.as_ref().map(|_| ()).map_err(StoreError::clone);
        self.result = Some(result);
        outcome
    }

    fn finish(self: Box<Self>, failure: Option<&StoreError>) {
        let result = match failure {
            None => self.result.unwrap_or(Err(StoreError::Closed)),
            Some(error) => Err(error.clone()),
        };
        let _ = self.result_sender.send(result);
    }
}

/// The queue of boxed tasks.
type TaskQueue = WriteQueue<Box<dyn WriteTask>>;

/// A write under way. Resolves after the commit. Dropping it does not cancel the write.
#[derive(Debug)]
pub struct WriteHandle<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> WriteHandle<T> {
    /// Blocks the thread until the commit. Must not be called on an async thread.
    pub fn wait(self) -> Result<T, StoreError> {
        self.0.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Waits for the commit.
    pub async fn wait_async(self) -> Result<T, StoreError> {
        self.0.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Handle of the writing thread.
pub(crate) struct StoreWriter {
    tasks: Arc<TaskQueue>,
    thread: Option<JoinHandle<()>>,
    pub(crate) status: Arc<WriterStatus>,
    /// `None` for a database server.
    files: Option<Arc<StoreFiles>>,
}

/// Limits of one transaction, so that nobody waits long for the tasks before it.
const MAX_TRANSACTION_BYTES: usize = 8 << 20;
const MAX_TRANSACTION_TASKS: usize = 1024;
/// The same in time: a long task ends its transaction.
const MAX_TRANSACTION_TIME: Duration = Duration::from_millis(50);

/// Maximum time for which waiting tasks are still written when the store is closed.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(2);

impl StoreWriter {
    /// Opens a connection and starts the thread. `readers` are held back while the log is too large.
    pub(crate) fn start(
        engine: StoreEngine,
        node: String,
        readers: Arc<ReaderPool>,
        max_queued_bytes: usize,
    ) -> Result<StoreWriter, StoreError> {
        let writer = WriterConnection::open(engine, node)?;
        // Taken before anything can be acknowledged.
        let files = writer.connection.sqlite().map(|connection| Arc::new(StoreFiles::new(connection)));
        let tasks = Arc::new(TaskQueue::new(max_queued_bytes));
        let received = Arc::clone(&tasks);
        let status = Arc::new(WriterStatus::default());
        let shared = Arc::clone(&status);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn({
                let guard = FileGuard::new(files.clone(), readers);
                move || write_until_closed(writer, &received, &shared, guard)
            })
            .map_err(|error| StoreError::Sql(error.to_string()))?;
        Ok(StoreWriter { tasks, thread: Some(thread), status, files })
    }

    /// Whether the files are still those that were opened. Returns the size of the write-ahead log.
    pub(crate) fn check_files(&self) -> Result<u64, StoreError> {
        self.files.as_ref().map_or(Ok(0), |files| files.check())
    }

    /// Queues a task of the program itself. `bytes` is its memory while it waits.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnMut(&mut WriteContext<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<WriteHandle<T>, StoreError> {
        self.submit_in_lane(WriteLane::INTERNAL, bytes, work)
    }

    /// Queues a task in the lane of a client. Fails with [`StoreError::Busy`] if lane or queue is full.
    pub(crate) fn submit_in_lane<T: Send + 'static>(
        &self,
        lane: WriteLane,
        bytes: usize,
        work: impl FnMut(&mut WriteContext<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<WriteHandle<T>, StoreError> {
        let (result_sender, receiver) = oneshot::channel();
        let work = Box::new(WriteJob { work, result: None, result_sender });
        // Counted first, because the writer may be done with it before `push` returns.
        self.status.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.status.queued_tasks.fetch_add(1, Ordering::Relaxed);
        self.tasks.push(lane, bytes, work).map_err(|refusal| {
            self.status.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.status.queued_tasks.fetch_sub(1, Ordering::Relaxed);
            match refusal {
                QueueRefusal::Full => StoreError::Busy,
                QueueRefusal::Closed => StoreError::Closed,
            }
        })?;
        Ok(WriteHandle(receiver))
    }
}

impl Drop for StoreWriter {
    /// Writes the waiting tasks, within a time limit, and moves the write-ahead log into the database file. A task that
    /// is not written was not acknowledged, and its caller gets an error.
    fn drop(&mut self) {
        self.tasks.close(MAX_CLOSE_WAIT);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Interval at which the files are checked while nothing is written.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Body of the writing thread.
fn write_until_closed(
    mut writer: WriterConnection,
    tasks: &TaskQueue,
    status: &Arc<WriterStatus>,
    mut guard: FileGuard,
) {
    let mut health = WriterHealth::new(Arc::clone(status));
    loop {
        health.check(&mut writer, &mut guard);
        let first = match tasks.pop(IDLE_CHECK_INTERVAL) {
            Ok(Some(task)) => task,
            Ok(None) => {
                match guard.check(&writer.connection) {
                    Ok(log_bytes) => guard.limit_log(&writer.connection, log_bytes),
                    Err(_) => health.set_failing(),
                }
                health.check_idle(&mut writer);
                continue;
            }
            Err(_) => break,
        };
        let started = Instant::now();
        let (mut bytes, mut batch) = (0, Vec::new());
        let mut next = Some(first);
        let begun = guard
            .check(&writer.connection)
            .and_then(|_| writer.reconnect_if_lost())
            .and_then(|()| begin_transaction(&writer.connection));
        let changes = writer.connection.total_changes();
        let mut failed: Option<StoreError> = None;
        while let Some((task_bytes, mut work)) = next {
            bytes += task_bytes;
            if begun.is_ok() {
                let mut writing =
                    WriteContext { sql: &writer.connection, projects: &mut writer.projects, node: &writer.node };
                failed = work.run(&mut writing).err();
            }
            batch.push(work);
            // After an error the transaction may be gone. Another task would then run outside of it.
            let has_room = bytes < MAX_TRANSACTION_BYTES
                && batch.len() < MAX_TRANSACTION_TASKS
                && failed.is_none()
                && started.elapsed() < MAX_TRANSACTION_TIME;
            next = if has_room { tasks.try_pop() } else { None };
        }
        let was_refused = failed.as_ref().is_some_and(StoreError::is_write_refusal);
        let committed = begun.and_then(|()| match failed {
            Some(error) => retry_in_savepoints(&mut writer, &mut batch, error),
            None => commit_transaction(&writer.connection),
        });
        // Checked between commit and acknowledgement: data in a file without a name is lost.
        let checked = committed.and_then(|()| guard.check_after_commit(&writer.connection));
        let log_bytes = *checked.as_ref().unwrap_or(&0);
        let committed = checked.map(drop);
        if committed.is_err() {
            // Projects that were created in the transaction are gone with it.
            writer.projects = ProjectNumberCache::read(&writer.connection).unwrap_or_default();
        }
        let counter = if committed.is_ok() { &status.commits } else { &status.failed_commits };
        counter.fetch_add(1, Ordering::Relaxed);
        // A transaction that wrote nothing says nothing about the disk.
        if committed.is_err() || was_refused {
            health.set_failing();
        } else if writer.connection.total_changes() != changes {
            health.recheck_after_success(&mut writer, &mut guard);
        }
        status.commit_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        status.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        status.queued_tasks.fetch_sub(batch.len(), Ordering::Relaxed);
        let is_full = matches!(committed, Err(StoreError::DiskFull));
        let failed = committed.is_err();
        for work in batch {
            work.finish(committed.as_ref().err());
        }
        guard.limit_log(&writer.connection, log_bytes);
        if is_full {
            guard.checkpoint_log(&writer.connection);
        }
        if failed {
            // Retrying at once does not help against a full disk.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    guard.prepare_close(&writer.connection);
}

/// Repeats the tasks of a batch after one of them failed, each in a savepoint of its own, so that each can be rolled
/// back alone. SQLite copies every page for a savepoint, so they are not used before a failure.
fn retry_in_savepoints(
    WriterConnection { connection, projects, node, .. }: &mut WriterConnection,
    batch: &mut [Box<dyn WriteTask>],
    error: StoreError,
) -> Result<(), StoreError> {
    let connection = &*connection;
    // Another server was in the way: all tasks are tried again, in the same order.
    let is_conflict = matches!(error, StoreError::Conflict { .. });
    // Errors such as a full disk have ended the transaction already.
    let has_ended = connection.is_autocommit();
    if !has_ended {
        connection.execute_batch("ROLLBACK").map_err(|error| StoreError::from_sql(&error))?;
    }
    *projects = ProjectNumberCache::read(connection)?;
    if let ([_], false) = (&*batch, is_conflict) {
        // A single task: no other work was lost, and it has its error.
        return if has_ended { Err(error) } else { Ok(()) };
    }
    begin_transaction(connection)?;
    for work in batch {
        run_in_savepoint(&mut WriteContext { sql: connection, projects, node }, work.as_mut())?;
    }
    commit_transaction(connection)
}

/// Runs a task in a savepoint. If it fails, only its own work is rolled back. An error here means that the whole
/// transaction is rolled back.
fn run_in_savepoint(writing: &mut WriteContext<'_>, work: &mut dyn WriteTask) -> Result<(), StoreError> {
    writing.sql.prepare_cached("SAVEPOINT task")?.execute(())?;
    let result = work.run(writing);
    let closed = match &result {
        Ok(()) => writing.sql.prepare_cached("RELEASE task").and_then(|mut release| release.execute(()).map(drop)),
        // Errors such as a full disk end the whole transaction, and the work of others is lost with it.
        Err(error) if writing.sql.is_autocommit() => return Err(error.clone()),
        Err(_) => writing.sql.execute_batch("ROLLBACK TO task; RELEASE task"),
    };
    if let Err(error) = closed {
        // If the savepoint cannot be rolled back, everything is.
        let _ = writing.sql.execute_batch("ROLLBACK");
        return Err(StoreError::from_sql(&error));
    }
    if result.is_err() {
        *writing.projects = ProjectNumberCache::read(writing.sql).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn writer(folder: &tempfile::TempDir) -> StoreWriter {
        let path = folder.path().join("store.db");
        let engine = StoreEngine::File(path);
        let readers = Arc::new(ReaderPool::new(engine.clone()));
        StoreWriter::start(engine, String::new(), readers, 1 << 20).unwrap()
    }

    /// Lets the file grow by so many pages and no further; a full disk, as far as the database can tell.
    fn limit(writer: &StoreWriter, more: Option<i64>) {
        let set = move |writing: &mut WriteContext<'_>| {
            let pages: i64 = writing.sql.query_row("PRAGMA page_count", (), |row| row.get(0))?;
            let most = more.map_or(i64::from(u32::MAX - 1), |more| pages + more);
            writing.sql.query_row(&format!("PRAGMA max_page_count = {most}"), (), |_| Ok(()))?;
            Ok(())
        };
        writer.submit(0, set).unwrap().wait().unwrap();
    }

    fn put(writer: &StoreWriter, project: &str, bytes: usize) -> WriteHandle<i64> {
        let project: Arc<str> = project.into();
        let put = move |writing: &mut WriteContext<'_>| {
            let number = writing.projects.get_or_create(&project, writing.sql, 1)?;
            writing.sql.execute(
                "INSERT INTO alert_state (rule, state) VALUES (?, ?)",
                crate::sql::params![&*project, "x".repeat(bytes)],
            )?;
            Ok(number)
        };
        writer.submit(bytes, put).unwrap()
    }

    /// Holds the writer up, so that what is submitted meanwhile shares a transaction.
    fn hold(writer: &StoreWriter) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel();
        let mut is_free = false;
        let wait = move |_: &mut WriteContext<'_>| {
            if !std::mem::replace(&mut is_free, true) {
                held.recv().map_err(|_| StoreError::Closed)?;
            }
            Ok(())
        };
        drop(writer.submit(0, wait).unwrap());
        release
    }

    fn names(writer: &StoreWriter) -> Vec<String> {
        let read = |writing: &mut WriteContext<'_>| {
            let mut statement = writing.sql.prepare("SELECT name FROM project ORDER BY no")?;
            let names = statement.query_map((), |row| row.get(0))?;
            Ok(names.collect::<Result<_, _>>()?)
        };
        writer.submit(0, read).unwrap().wait().unwrap()
    }

    #[test]
    fn who_shares_a_transaction_with_a_full_disk_is_told_and_can_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        limit(&writer, Some(4));
        let release = hold(&writer);
        let writes = [put(&writer, "a", 10), put(&writer, "b", 200_000), put(&writer, "c", 10)];
        release.send(()).unwrap();
        let told: Vec<bool> = writes.into_iter().map(|write| write.wait().is_ok()).collect();
        assert!(!told[0] && !told[1], "{told:?}");
        // Who was told that he failed has left nothing, and who was not is there.
        let expected: Vec<&str> = if told[2] { vec!["c"] } else { vec![] };
        assert_eq!(names(&writer), expected);
        limit(&writer, None);
        for name in ["b", "a"] {
            put(&writer, name, 200_000).wait().unwrap();
        }
        assert_eq!(put(&writer, "d", 10).wait().unwrap(), names(&writer).len() as i64);
        assert_eq!(writer.status.queued_bytes.load(Ordering::Relaxed), 0);
        assert!(!writer.status.is_failing.load(Ordering::Relaxed));
    }

    #[test]
    fn only_what_is_written_shows_that_a_disk_has_room_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::Store::open(folder.path(), crate::StoreOptions::default()).unwrap();
        let writer = store.writer().unwrap();
        let is_failing = || writer.status.is_failing.load(Ordering::Relaxed);
        limit(writer, Some(1));
        assert!(put(writer, "a", 200_000).wait().is_err());
        assert!(is_failing());
        assert!(names(writer).is_empty());
        assert!(is_failing(), "reading says nothing of it");
        // A small row may fit where a request does not.
        limit(writer, Some(4));
        put(writer, "b", 10).wait().unwrap();
        assert!(is_failing() && !store.is_writable());
        // Nobody writes: the writer tries itself.
        limit(writer, None);
        while is_failing() {
            std::thread::yield_now();
        }
        assert!(store.is_writable());
    }

    #[test]
    fn a_task_that_fails_or_panics_takes_back_its_own_work_only() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let release = hold(&writer);
        let first = put(&writer, "a", 10);
        let fails = writer
            .submit(10, |writing| -> Result<(), StoreError> {
                writing.projects.get_or_create(&"failed".into(), writing.sql, 1)?;
                Err(StoreError::Busy)
            })
            .unwrap();
        let panics = writer
            .submit(10, |writing| -> Result<(), StoreError> {
                writing.projects.get_or_create(&"panicked".into(), writing.sql, 1)?;
                panic!("on purpose")
            })
            .unwrap();
        let last = put(&writer, "b", 10);
        release.send(()).unwrap();
        assert!(matches!(fails.wait(), Err(StoreError::Busy)));
        assert!(panics.wait().unwrap_err().to_string().contains("panicked"));
        assert_eq!((first.wait().unwrap(), last.wait().unwrap()), (1, 2));
        assert_eq!(names(&writer), ["a", "b"]);
        assert_eq!(writer.status.queued_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_project_that_the_cache_forgot_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        put(&writer, "a", 1).wait().unwrap();
        let forget = |writing: &mut WriteContext<'_>| {
            *writing.projects = ProjectNumberCache::default();
            writing.projects.get_or_create(&"a".into(), writing.sql, 2)
        };
        assert_eq!(writer.submit(0, forget).unwrap().wait().unwrap(), 1);
    }

    #[test]
    fn what_is_queued_is_written_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let first = writer(&folder);
        let writes: Vec<_> = (0..20).map(|n| put(&first, &format!("p{n}"), 10)).collect();
        drop(first);
        assert!(writes.into_iter().all(|write| write.wait().is_ok()));
        assert_eq!(names(&writer(&folder)).len(), 20);
        assert!(!folder.path().join("store.db-wal").exists(), "its log was moved into the file");
    }
}
