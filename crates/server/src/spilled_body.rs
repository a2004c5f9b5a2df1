//! Large responses in unlinked temporary files: a client that reads slowly holds disk space instead of memory.

use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use gradus_store::{QueryStop, StoreError, check_query};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;

use super::memory::MemoryLease;

/// Number of bytes that are read from the file and sent at once.
const PART_BYTES: usize = 64 << 10;

/// Maximum size of a response in memory; a longer one continues in a file.
const MAX_MEMORY_BYTES: usize = 1 << 20;
/// Disk space is leased in steps of this size.
const DISK_STEP: u64 = 1 << 20;

/// A writer for a response of unknown size. The lease counts the bytes of the file.
pub(super) struct SpillWriter {
    memory: Vec<u8>,
    file: Option<BufWriter<File>>,
    folder: PathBuf,
    lease: MemoryLease,
    length: u64,
    /// Bytes of disk that are leased.
    taken: u64,
}

impl SpillWriter {
    pub(super) fn new(folder: &Path, lease: MemoryLease) -> SpillWriter {
        SpillWriter { memory: Vec::new(), file: None, folder: folder.to_owned(), lease, length: 0, taken: 0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Leases disk space for the written bytes, in steps. Also checks the query's budget, because serialization may
    /// take long.
    fn lease_disk(&mut self) -> std::io::Result<()> {
        while self.length > self.taken {
            self.taken += DISK_STEP;
            let unread = |_| std::io::Error::other(StoreError::Stopped(QueryStop::TooMuchUnread));
            self.lease.grow(DISK_STEP as usize).map_err(unread)?;
            // The client may have disconnected in the meantime.
            check_query().map_err(|stop| std::io::Error::other(StoreError::Stopped(stop)))?;
        }
        Ok(())
    }

    /// Returns a body from memory, or from the file if the response was spilled.
    pub(super) fn into_body(self) -> std::io::Result<Body> {
        let Some(file) = self.file else { return Ok(Body::from(self.memory)) };
        let file = Arc::new(file.into_inner().map_err(std::io::IntoInnerError::into_error)?);
        Ok(Body::new(SpilledBody {
            file,
            at: 0,
            length: self.length,
            is_exact: false,
            reading: None,
            _lease: self.lease,
        }))
    }
}

/// Maps a write error to an error of the store: a stopped query, too many unread responses, or a full disk. The reason
/// travels inside of the `io::Error`.
pub(super) fn spill_store_error(error: &std::io::Error) -> StoreError {
    let stop = error.get_ref().and_then(|inner| match inner.downcast_ref::<StoreError>() {
        Some(StoreError::Stopped(stop)) => Some(*stop),
        _ => None,
    });
    match stop {
        Some(stop) => StoreError::Stopped(stop),
        None => StoreError::Sql(format!("a response could not be kept in a file: {error}")),
    }
}

impl Write for SpillWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.length += bytes.len() as u64;
        if self.file.is_none() && self.memory.len() + bytes.len() > MAX_MEMORY_BYTES {
            let mut file = BufWriter::with_capacity(PART_BYTES, tempfile::tempfile_in(&self.folder)?);
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        if self.file.is_some() {
            self.lease_disk()?;
        }
        match &mut self.file {
            None => self.memory.extend_from_slice(bytes),
            Some(file) => {
                file.write_all(bytes)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes an existing body to a file below `folder`, and returns a body that reads from it. File operations run on
/// blocking threads.
pub(super) async fn spill_body_to_file(body: Body, folder: &Path, lease: MemoryLease) -> std::io::Result<Body> {
    let mut body = body;
    let mut file = {
        let folder = folder.to_owned();
        run_file_operation(move || tempfile::tempfile_in(folder)).await?
    };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(std::io::Error::other)?.into_data() else { continue };
        file = run_file_operation(move || file.write_all(&data).map(|()| file)).await?;
    }
    let length = file.seek(SeekFrom::End(0))?;
    Ok(Body::new(SpilledBody { file: Arc::new(file), at: 0, length, is_exact: true, reading: None, _lease: lease }))
}

/// Runs a file operation, which blocks, outside of the async threads.
async fn run_file_operation<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}

/// Reads the file part by part, only when the client is ready for more.
struct SpilledBody {
    file: Arc<File>,
    at: u64,
    length: u64,
    /// Whether the length is announced. A body that is in a file already must not announce it, because large bodies of
    /// known length are spilled again.
    is_exact: bool,
    reading: Option<JoinHandle<std::io::Result<Vec<u8>>>>,
    _lease: MemoryLease,
}

impl http_body::Body for SpilledBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        if left == 0 {
            return Poll::Ready(None);
        }
        let (file, at) = (Arc::clone(&self.file), self.at);
        let reading = self.reading.get_or_insert_with(|| {
            tokio::task::spawn_blocking(move || {
                let mut part = vec![0; left.min(PART_BYTES)];
                file.read_exact_at(&mut part, at)?;
                Ok(part)
            })
        });
        let read = ready!(Pin::new(reading).poll(context));
        self.reading = None;
        let part = read.map_err(std::io::Error::other).and_then(|part| part)?;
        self.at += part.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(part.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.length
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_exact { SizeHint::with_exact(self.length - self.at) } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use gradus_store::{QueryInterrupt, QueryMonitor, run_monitored};

    use super::*;
    use crate::client_address::ClientAddress;
    use crate::memory::{MemoryBudget, MemoryUse};

    /// Time is over from the beginning.
    struct TimeIsOver;

    impl QueryMonitor for TimeIsOver {
        fn check(&self) -> Result<(), QueryStop> {
            Err(QueryStop::TimedOut { limit_s: 10, setting: "serve.query_timeout_s" })
        }

        fn attach(&self, _: &Arc<QueryInterrupt>) {}

        fn detach(&self, _: &Arc<QueryInterrupt>) {}
    }

    /// Otherwise clients get 500, as if the store were broken, and not 422.
    #[test]
    fn a_query_that_is_stopped_while_its_response_is_written_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let budget = MemoryBudget::new(64 << 20, 64 << 20);
        let client = ClientAddress::from_ip([127, 0, 0, 1].into());
        let mut writer = SpillWriter::new(folder.path(), budget.open_lease(client, MemoryUse::Request));
        let written = run_monitored(Arc::new(TimeIsOver), || writer.write_all(&vec![0; 2 * MAX_MEMORY_BYTES]));
        let failure = spill_store_error(&written.expect_err("the query has no time"));
        assert!(matches!(failure, StoreError::Stopped(QueryStop::TimedOut { .. })), "{failure}");
    }
}
