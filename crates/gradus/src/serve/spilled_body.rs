//! A large response in a file without a name: whoever reads slowly holds disk, and no memory.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;

use super::memory::MemoryLease;

/// Read and sent at once.
const PART_BYTES: usize = 64 << 10;

/// Writes a body to a file below `folder`; what is returned reads from there. The lease counts the file's bytes.
pub(super) async fn spill(body: Body, folder: &Path, lease: MemoryLease) -> std::io::Result<Body> {
    let mut body = body;
    let mut file = {
        let folder = folder.to_owned();
        run_blocking(move || tempfile::tempfile_in(folder)).await?
    };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(std::io::Error::other)?.into_data() else { continue };
        file = run_blocking(move || file.write_all(&data).map(|()| file)).await?;
    }
    let length = file.seek(SeekFrom::End(0))?;
    Ok(Body::new(SpilledBody { file: Arc::new(file), at: 0, length, reading: None, _lease: lease }))
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}

struct SpilledBody {
    file: Arc<File>,
    at: u64,
    length: u64,
    reading: Option<JoinHandle<std::io::Result<Vec<u8>>>>,
    _lease: MemoryLease,
}

impl http_body::Body for SpilledBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
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
        SizeHint::with_exact(self.length - self.at)
    }
}
