//! Uploads files: small ones with one request, others in chunks, a few of which are in memory.

use std::fs::File;
use std::io::{self, Read as _};

use object_store::aws::AmazonS3;
use object_store::path::Path as ObjectPath;
use object_store::{Attributes, ObjectStore, PutMultipartOptions, PutOptions, WriteMultipart};

/// Size of a chunk; S3 requires at least 5 MiB.
const CHUNK_BYTES: u64 = 8 << 20;
/// Maximum number of chunks; S3 allows 10,000.
const MAX_UPLOAD_CHUNKS: u64 = 9_000;
/// Maximum number of chunks that are sent at the same time; one more is read in the meantime.
const MAX_CHUNKS_IN_FLIGHT: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(super) enum UploadFailure {
    #[error(transparent)]
    Storage(#[from] object_store::Error),
    #[error(transparent)]
    File(#[from] io::Error),
}

/// Uploads a file. The object appears when all of it has arrived.
pub(super) async fn upload_file(
    store: &AmazonS3,
    target: &ObjectPath,
    mut file: File,
    bytes: u64,
    attributes: Attributes,
) -> Result<(), UploadFailure> {
    if bytes <= CHUNK_BYTES {
        let content = read_chunk(&mut file, CHUNK_BYTES)?;
        let options = PutOptions { attributes, ..PutOptions::default() };
        store.put_opts(target, content.into(), options).await?;
        return Ok(());
    }
    let chunk_bytes = chunk_size(bytes);
    let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
    let upload = store.put_multipart_opts(target, options).await?;
    let mut upload =
        WriteMultipart::new_with_chunk_size(upload, usize::try_from(chunk_bytes).map_err(io::Error::other)?);
    match send_chunks(&mut upload, &mut file, chunk_bytes).await {
        Ok(()) => upload.finish().await.map(drop).map_err(UploadFailure::from),
        Err(error) => {
            // The first error is the reason; the lifecycle rules of the bucket remove the remaining chunks.
            let _ = upload.abort().await;
            Err(error)
        }
    }
}

fn chunk_size(bytes: u64) -> u64 {
    CHUNK_BYTES.max(bytes.div_ceil(MAX_UPLOAD_CHUNKS))
}

async fn send_chunks(upload: &mut WriteMultipart, file: &mut File, chunk_bytes: u64) -> Result<(), UploadFailure> {
    loop {
        upload.wait_for_capacity(MAX_CHUNKS_IN_FLIGHT).await?;
        let chunk = read_chunk(file, chunk_bytes)?;
        if chunk.is_empty() {
            return Ok(());
        }
        upload.put(chunk.into());
    }
}

fn read_chunk(file: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut chunk = Vec::new();
    file.take(bytes).read_to_end(&mut chunk)?;
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_with_the_file() {
        assert_eq!(chunk_size(100 << 20), CHUNK_BYTES);
        let large = 1 << 40;
        assert!(large / chunk_size(large) < 10_000);
    }
}
