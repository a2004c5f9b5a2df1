//! Protects the files of an embedded store: they must stay those that were opened, and the write-ahead log must not grow
//! without a limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::BUSY_TIMEOUT;
use crate::error::StoreError;
use crate::files::StoreFiles;
use crate::readers::ReaderPool;
use crate::sql::SqlConnection;

/// Protects the files of an embedded store. Does nothing for a database server.
pub(crate) struct FileGuard {
    files: Option<Arc<StoreFiles>>,
    log_limit: LogLimit,
    is_rescued: bool,
}

impl FileGuard {
    pub(crate) fn new(files: Option<Arc<StoreFiles>>, readers: Arc<ReaderPool>) -> FileGuard {
        FileGuard { files, log_limit: LogLimit::new(readers), is_rescued: false }
    }

    /// Checks the files, and saves the log once if one of them was removed or replaced. Returns the size of the log.
    pub(crate) fn check(&mut self, connection: &SqlConnection) -> Result<u64, StoreError> {
        let Some((files, connection)) = self.files.as_ref().zip(connection.sqlite()) else { return Ok(0) };
        let checked = files.check();
        if checked.is_err() && !std::mem::replace(&mut self.is_rescued, true) {
            files.rescue_log(connection);
        }
        checked
    }

    /// As [`FileGuard::check`], but only a file that is gone is a reason to save the log.
    pub(crate) fn check_after_commit(&mut self, connection: &SqlConnection) -> Result<u64, StoreError> {
        let checked = self.files.as_ref().map_or(Ok(0), |files| files.check());
        match checked {
            Err(StoreError::Gone { .. }) => self.check(connection),
            checked => checked,
        }
    }

    pub(crate) fn limit_log(&mut self, connection: &SqlConnection, log_bytes: u64) {
        if let Some(connection) = connection.sqlite() {
            self.log_limit.enforce(connection, log_bytes, MAX_LOG_BYTES);
        }
    }

    /// Checkpoints and truncates the log, which frees its space on a full disk.
    pub(crate) fn checkpoint_log(&self, connection: &SqlConnection) {
        if let Some(connection) = connection.sqlite() {
            let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        }
    }

    pub(crate) fn prepare_close(&self, connection: &SqlConnection) {
        if let Some((files, connection)) = self.files.as_ref().zip(connection.sqlite()) {
            files.prepare_close(connection);
        }
    }
}

/// Limits the write-ahead log. It can be reset only while nobody reads from it, which may never happen if queries
/// overlap. So new queries wait for a moment once it has grown too large.
struct LogLimit {
    readers: Arc<ReaderPool>,
    is_over: bool,
    next_try: Instant,
}

/// Size at which the log is reset even if queries have to wait for it.
const MAX_LOG_BYTES: u64 = 128 << 20;

impl LogLimit {
    /// Pause between two attempts, each of which moves what it can.
    const PAUSE: Duration = Duration::from_millis(200);

    fn new(readers: Arc<ReaderPool>) -> LogLimit {
        LogLimit { readers, is_over: false, next_try: Instant::now() }
    }

    /// Holds queries back while the log is too large, and tries to reset it.
    fn enforce(&mut self, connection: &rusqlite::Connection, log_bytes: u64, max_bytes: u64) {
        let is_over = log_bytes > max_bytes;
        if is_over != self.is_over {
            self.is_over = is_over;
            self.readers.hold_queries(is_over);
        }
        if !is_over || Instant::now() < self.next_try {
            return;
        }
        // Does not wait for readers: the next commit tries again.
        let reset = connection
            .busy_timeout(Duration::ZERO)
            .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)));
        let _ = connection.busy_timeout(BUSY_TIMEOUT);
        self.next_try = Instant::now() + Self::PAUSE;
        if matches!(reset, Ok(0)) {
            self.is_over = false;
            self.readers.hold_queries(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::open_writer;
    use crate::engine::StoreEngine;

    #[test]
    fn a_log_that_grew_too_large_is_reset_as_soon_as_nobody_reads_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let connection = open_writer(&path).unwrap();
        let readers = Arc::new(ReaderPool::new(StoreEngine::File(path)));
        let mut limit = LogLimit::new(Arc::clone(&readers));
        let put = |rule: &str| {
            let put = "INSERT INTO alert_state (rule, state) VALUES (?, ?)";
            connection.execute(put, [rule, &"x".repeat(100_000)]).unwrap();
        };
        put("a");
        let files = StoreFiles::new(&connection);
        let reader = readers.take_reader().unwrap();
        let view = reader.snapshot().unwrap();
        let count: i64 = view.query_row("SELECT count(*) FROM alert_state", (), |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
        put("b");
        let bytes = files.check().unwrap();
        assert!(bytes > 200_000, "{bytes}");
        limit.enforce(&connection, bytes, 1_000_000);
        assert!(!limit.is_over && !readers.are_queries_held());
        limit.enforce(&connection, bytes, 100_000);
        assert!(limit.is_over && readers.are_queries_held(), "somebody reads");
        assert!(files.check().unwrap() >= bytes);
        drop(view);
        drop(reader);
        limit.next_try = Instant::now();
        limit.enforce(&connection, bytes, 100_000);
        assert!(!limit.is_over && !readers.are_queries_held());
        assert_eq!(files.check().unwrap(), 0);
        put("c");
    }
}
