//! Reads a request's body, and takes its compression off, within the room that there is.

use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;

use super::Refusal;
use crate::serve::admission::{Admission, Room};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    pub(super) fn named(name: Option<&str>) -> Result<Compression, Refusal> {
        let name = name.unwrap_or_default().trim().to_ascii_lowercase();
        match name.as_str() {
            "" | "identity" => Ok(Compression::None),
            "gzip" | "x-gzip" => Ok(Compression::Gzip),
            "zstd" => Ok(Compression::Zstd),
            other => Err(Refusal::Unsupported(format!(
                "the encoding {other:?} is not known here; send identity, gzip or zstd"
            ))),
        }
    }
}

/// A sender that takes longer than this to send a request holds room for nothing.
const LONGEST: Duration = Duration::from_secs(30);

/// Reads a body to its end.
pub(super) async fn read(
    body: Body,
    length: Option<usize>,
    limit: usize,
    admission: &Admission,
) -> Result<(Vec<u8>, Room), Refusal> {
    let reading = async {
        let mut body = body;
        let read = match admission.take(length.unwrap_or(0)) {
            _ if length.is_some_and(|length| length > limit) => Err(Refusal::TooLarge { limit }),
            Ok(room) => read_frames(&mut body, length, limit, room).await,
            Err(_) => Err(Refusal::Busy),
        };
        if matches!(read, Err(Refusal::Busy | Refusal::TooLarge { .. })) {
            pass_over(&mut body, limit).await;
        }
        read
    };
    tokio::time::timeout(LONGEST, reading).await.unwrap_or(Err(Refusal::TooSlow))
}

/// Reads the rest of a request that is refused, and keeps nothing of it: a sender that is still sending when the
/// connection ends sees a broken pipe instead of the answer. What is far too long is cut off all the same.
async fn pass_over(body: &mut Body, limit: usize) {
    // Who sends nothing waits for the answer.
    const PAUSE: Duration = Duration::from_millis(300);
    let mut left = limit.saturating_mul(2);
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, body.frame()).await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        left = rest;
    }
}

async fn read_frames(
    body: &mut Body,
    length: Option<usize>,
    limit: usize,
    mut room: Room,
) -> Result<(Vec<u8>, Room), Refusal> {
    let mut bytes = Vec::with_capacity(length.unwrap_or(0));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::Bad(format!("the request broke off: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(Refusal::TooLarge { limit });
        }
        if length.is_none() {
            room.grow(data.len()).map_err(|_| Refusal::Busy)?;
        }
        bytes.extend_from_slice(data);
    }
    Ok((bytes, room))
}

/// Memory that a sender may ask for to look back in: 8 MB, which is more than all but extreme settings use.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Takes the compression off. What it unpacks to counts against the same limit, and takes room, too.
pub(super) fn unpack<'b>(
    bytes: &'b [u8],
    compression: Compression,
    limit: usize,
    room: &mut Room,
) -> Result<Cow<'b, [u8]>, Refusal> {
    let unpacked = match compression {
        Compression::None => return Ok(Cow::Borrowed(bytes)),
        Compression::Gzip => read_limited(flate2::read::MultiGzDecoder::new(bytes), limit, room),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(bytes).map_err(|error| broken(&error))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(|error| broken(&error))?;
            read_limited(decoder, limit, room)
        }
    };
    unpacked.map(Cow::Owned)
}

fn read_limited(mut reader: impl Read, limit: usize, room: &mut Room) -> Result<Vec<u8>, Refusal> {
    const STEP: usize = 64 << 10;
    let mut out = Vec::new();
    loop {
        let before = out.len();
        room.grow(STEP).map_err(|_| Refusal::Busy)?;
        let read = reader.by_ref().take(STEP as u64).read_to_end(&mut out).map_err(|error| broken(&error))?;
        if out.len() > limit {
            return Err(Refusal::TooLarge { limit });
        }
        if read < STEP {
            debug_assert_eq!(out.len(), before + read);
            return Ok(out);
        }
    }
}

fn broken(error: &std::io::Error) -> Refusal {
    Refusal::Bad(format!("the body cannot be unpacked: {error}"))
}
