//! Reads and decompresses request bodies within the memory budget. Memory is leased as bytes arrive: an announced
//! length leases nothing, because anyone can announce one.

use std::io::Read;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;

use super::ReceiveRefusal;
use crate::client_address::ClientAddress;
use crate::memory::{MemoryLease, MemoryUse};
use crate::request_body::BodyError;
use crate::state::ServerState;

/// The encodings that OTLP exporters use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyCompression {
    None,
    Gzip,
    Zstd,
}

impl BodyCompression {
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<BodyCompression, ReceiveRefusal> {
        BodyCompression::parse(headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok()))
    }

    /// Parses the name of an encoding; `grpc-encoding` has the same names. Several encodings on top of each other are
    /// not supported.
    pub(super) fn parse(name: Option<&str>) -> Result<BodyCompression, ReceiveRefusal> {
        let name = name.unwrap_or_default().trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "identity" => Ok(BodyCompression::None),
            "gzip" | "x-gzip" => Ok(BodyCompression::Gzip),
            "zstd" => Ok(BodyCompression::Zstd),
            other => Err(ReceiveRefusal::Unsupported(format!(
                "the encoding {other:?} is not known here; send identity, gzip or zstd"
            ))),
        }
    }
}

/// A body as it was received, with its lease.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) bytes: Vec<u8>,
    pub(super) compression: BodyCompression,
    pub(super) client: ClientAddress,
    pub(super) lease: MemoryLease,
}

/// Reads a body to its end, within the body timeout. `limit` counts bytes before decompression. A refused body is
/// drained for a moment, so that its sender sees the response.
pub(super) async fn read_request_body(
    server: &ServerState,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    compression: BodyCompression,
) -> Result<ReceivedBody, ReceiveRefusal> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value: &HeaderValue| value.to_str().ok());
    let length: Option<usize> = length.and_then(|length| length.parse().ok());
    let client = ClientAddress::current();
    let lease = server.memory.open_lease(client, MemoryUse::Request);
    let reading = async {
        let mut body = body;
        let read = match length {
            Some(length) if length > limit => Err(ReceiveRefusal::TooLarge { limit }),
            _ => read_frames(&mut body, length, limit, lease).await,
        };
        if read.as_ref().is_err_and(ReceiveRefusal::is_early) {
            drain_body(&mut body, limit).await;
        }
        read
    };
    let read = tokio::time::timeout(server.settings.timeouts.body, reading).await;
    let (bytes, lease) = read.unwrap_or(Err(ReceiveRefusal::TooSlow))?;
    Ok(ReceivedBody { bytes, compression, client, lease })
}

/// Reads and discards the rest of a refused request. A sender that still writes when the connection closes gets a
/// broken pipe instead of the response. Bodies far over the limit are cut off anyway.
async fn drain_body(body: &mut Body, limit: usize) {
    // A sender that pauses is waiting for the response, so reading ends.
    const PAUSE: Duration = Duration::from_millis(300);
    let mut left = limit.saturating_mul(2);
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, body.frame()).await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        left = rest;
    }
}

/// Collects the frames of a body. The lease grows with the capacity of the buffer, not with its length.
async fn read_frames(
    body: &mut Body,
    length: Option<usize>,
    limit: usize,
    mut lease: MemoryLease,
) -> Result<(Vec<u8>, MemoryLease), ReceiveRefusal> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match BodyError::is_slowness(&error) {
            true => ReceiveRefusal::TooSlow,
            false => ReceiveRefusal::Bad(format!("the request broke off: {error}")),
        })?;
        let Some(data) = frame.data_ref() else { continue };
        let needed = bytes.len() + data.len();
        if needed > limit {
            return Err(ReceiveRefusal::TooLarge { limit });
        }
        if needed > bytes.capacity() {
            // Amortised growth, but never beyond the announced length or the limit.
            let doubled = (2 * bytes.capacity()).max(MIN_CAPACITY).min(length.unwrap_or(limit));
            let capacity = needed.max(doubled);
            lease.grow_patiently(capacity - bytes.capacity()).await?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(data);
    }
    Ok((bytes, lease))
}

/// Size of the first allocation of a body, unless a shorter length is announced.
const MIN_CAPACITY: usize = 4 << 10;
/// Binary logarithm of the maximum zstd window: 8 MB, as RFC 8878 recommends for decoders.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Memory of a zstd decoder in addition to its output.
const ZSTD_WINDOW_BYTES: usize = 1 << ZSTD_WINDOW_LOG;

/// The body exceeded the limit of small bodies; it is returned unchanged.
pub(super) struct ExceedsSmallLimit(pub(super) ReceivedBody);

impl ReceivedBody {
    /// Decompresses a body whose result must fit in `limit`. A larger one is returned as [`ExceedsSmallLimit`], and the
    /// attempt costs at most `limit` bytes of work.
    pub(super) fn decompress_small(mut self, limit: usize) -> Result<DecompressionResult, ExceedsSmallLimit> {
        let before = self.lease.bytes();
        match decompress_body(&self.bytes, self.compression, limit, &mut self.lease) {
            Ok(Some(bytes)) => Ok(Ok((bytes, self.lease))),
            Ok(None) => Ok(Ok((self.bytes, self.lease))),
            Err(ReceiveRefusal::TooLarge { .. }) => {
                self.lease.shrink_to(before);
                Err(ExceedsSmallLimit(self))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Decompresses a body. On return the lease covers the result only.
    pub(super) fn decompress(mut self, limit: usize) -> DecompressionResult {
        let held = self.lease.bytes();
        match decompress_body(&self.bytes, self.compression, limit, &mut self.lease)? {
            Some(bytes) => {
                drop(self.bytes);
                self.lease.shrink_to((self.lease.bytes() - held).max(bytes.capacity()));
                Ok((bytes, self.lease))
            }
            None => Ok((self.bytes, self.lease)),
        }
    }
}

/// The decompressed bytes, and the lease of their memory.
pub(super) type DecompressionResult = Result<(Vec<u8>, MemoryLease), ReceiveRefusal>;

/// Decompresses a body; `None` if it is not compressed. `limit` applies to the result, which stops decompression
/// bombs.
fn decompress_body(
    bytes: &[u8],
    compression: BodyCompression,
    limit: usize,
    lease: &mut MemoryLease,
) -> Result<Option<Vec<u8>>, ReceiveRefusal> {
    match compression {
        BodyCompression::None if bytes.len() > limit => Err(ReceiveRefusal::TooLarge { limit }),
        BodyCompression::None => Ok(None),
        BodyCompression::Gzip => read_limited(flate2::read::MultiGzDecoder::new(bytes), limit, lease).map(Some),
        BodyCompression::Zstd => {
            // The decoder allocates the window that the frame header asks for, up to the maximum.
            let window = ZSTD_WINDOW_BYTES.min(limit);
            lease.grow(window)?;
            let mut decoder = zstd::Decoder::with_buffer(bytes).map_err(|error| to_decompression_refusal(&error))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(|error| to_decompression_refusal(&error))?;
            let read = read_limited(decoder, limit, lease);
            lease.shrink_to(lease.bytes() - window);
            read.map(Some)
        }
    }
}

/// Reads in steps and leases memory before each one, so that a bomb is stopped after `limit` bytes.
fn read_limited(mut reader: impl Read, limit: usize, lease: &mut MemoryLease) -> Result<Vec<u8>, ReceiveRefusal> {
    const STEP: usize = 64 << 10;
    let mut out: Vec<u8> = Vec::new();
    loop {
        if out.capacity() - out.len() < STEP {
            // Reads one step beyond the limit, to detect a larger result.
            let capacity = (2 * out.capacity()).clamp(STEP, limit.saturating_add(STEP));
            let capacity = capacity.max(out.len() + STEP);
            lease.grow(capacity - out.capacity())?;
            out.reserve_exact(capacity - out.len());
        }
        let read = reader
            .by_ref()
            .take(STEP as u64)
            .read_to_end(&mut out)
            .map_err(|error| to_decompression_refusal(&error))?;
        if out.len() > limit {
            return Err(ReceiveRefusal::TooLarge { limit });
        }
        if read < STEP {
            return Ok(out);
        }
    }
}

fn to_decompression_refusal(error: &std::io::Error) -> ReceiveRefusal {
    ReceiveRefusal::Bad(format!("the body cannot be unpacked: {error}"))
}
