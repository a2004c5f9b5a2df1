//! Reads export messages from a byte stream: one message, or many with their length in front. A message larger than the
//! record limit is walked level by level, so memory is bounded by the largest record and not by the size of the
//! message.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use gradus_core::span::SpanResource;

use crate::decode::decode_resource;
use crate::limits::RecordLimits;
use crate::record::{ExportRecord, RecordScope, detect_signal, read_resource_records, read_scope_records, scope_name};
use crate::wire::{WireError, read_varint, split_tag};

/// Why a stream of export messages ended early. `offset` counts bytes of the decompressed input.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("at byte {offset}: {reason}")]
    Malformed { offset: u64, reason: WireError },
    #[error("at byte {offset}: a record of {size} bytes is over the limit of {limit} bytes")]
    RecordTooLarge { offset: u64, size: u64, limit: usize },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Receives records, and the offsets of parts that could not be read although the stream continues behind them. An
/// error of the sink ends the reading.
type RecordSink<'s> = dyn FnMut(Result<ExportRecord<'_>, (u64, WireError)>) -> io::Result<()> + 's;

/// Whether the first bytes of a file can be an export message, and how its messages are framed. `whole` says that
/// `head` is the entire file: then a message must not be cut off.
pub fn looks_like_export(head: &[u8], whole: bool) -> Option<MessageFraming> {
    if looks_like_message(head, whole) {
        return Some(MessageFraming::Single);
    }
    let mut rest = head;
    // Varint framing is tried before the four-byte one. Both must agree with the structure of the message behind them,
    // so a file hardly ever fits two.
    if let Some(length) = read_varint(&mut rest).ok().and_then(|length| usize::try_from(length).ok())
        && looks_like_framed(length, rest, whole)
    {
        return Some(MessageFraming::Delimited);
    }
    let (length, rest) = head.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    looks_like_framed(length, rest, whole).then_some(MessageFraming::Prefixed)
}

/// Whether a message of this length follows. An empty message proves nothing, so a stream that begins with one is not
/// taken for OTLP.
fn looks_like_framed(length: usize, rest: &[u8], whole: bool) -> bool {
    let complete = length <= rest.len();
    length > 0 && (complete || !whole) && looks_like_message(&rest[..length.min(rest.len())], complete)
}

/// Framing of the messages in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFraming {
    Single,
    /// Each message follows its length as a varint: protobuf's delimited format.
    Delimited,
    /// Each message follows its length as four big-endian bytes: the format of the collector's file exporter.
    Prefixed,
}

/// Reads every record of a stream. Memory is bounded by `limits.record_bytes`, whatever the lengths in the input say.
pub fn stream_export(
    input: &mut dyn BufRead,
    framing: MessageFraming,
    limits: &RecordLimits,
    sink: &mut RecordSink<'_>,
) -> Result<(), StreamError> {
    let mut walk = ExportStreamReader { input, offset: 0, limits, buffer: Vec::new(), sink };
    match framing {
        MessageFraming::Single => walk.read_message(u64::MAX),
        MessageFraming::Delimited => {
            while let Some(length) = walk.read_varint_or_end()? {
                walk.read_frame(length)?;
            }
            Ok(())
        }
        MessageFraming::Prefixed => {
            while let Some(length) = walk.read_prefix_or_end()? {
                walk.read_frame(length)?;
            }
            Ok(())
        }
    }
}

/// Field number of `ScopeSpans` in `ResourceSpans`, and of records in `ScopeSpans`.
const RECORDS_FIELD: u32 = 2;

/// Walks the stream. `offset` is the position of the next byte that `input` returns.
struct ExportStreamReader<'r, 's> {
    input: &'r mut dyn BufRead,
    offset: u64,
    limits: &'r RecordLimits,
    buffer: Vec<u8>,
    sink: &'r mut RecordSink<'s>,
}

impl ExportStreamReader<'_, '_> {
    /// Reads one message of known length. If it is malformed, reading continues with the next message.
    fn read_frame(&mut self, length: u64) -> Result<(), StreamError> {
        let end = self.offset.saturating_add(length);
        match self.read_message(end) {
            // The end of the message is known, so what is left of it can be skipped.
            Err(StreamError::Malformed { offset, reason }) if self.offset <= end && reason != WireError::Truncated => {
                (self.sink)(Err((offset, reason)))?;
            }
            other => other?,
        }
        match end.checked_sub(self.offset) {
            Some(rest) => self.skip(rest),
            None => Err(StreamError::Malformed { offset: self.offset, reason: WireError::Truncated }),
        }
    }

    /// Reads an export message that ends at `end`, or with the input.
    fn read_message(&mut self, end: u64) -> Result<(), StreamError> {
        while self.offset < end {
            let Some((number, length)) = self.next_field(end)? else { break };
            if number != 1 {
                self.skip(length)?;
            } else if self.fits_record_limit(length) {
                self.read_whole_resource(length)?;
            } else {
                self.walk_large_resource(self.offset + length)?;
            }
        }
        Ok(())
    }

    /// Reads one `ResourceSpans` that fits into memory.
    fn read_whole_resource(&mut self, length: u64) -> Result<(), StreamError> {
        let start = self.offset;
        self.fill_buffer(length)?;
        // The buffer is taken out, because the closure borrows `self`; it goes back to be reused.
        let (buffer, limits) = (std::mem::take(&mut self.buffer), self.limits);
        let mut failed = None;
        let read = read_resource_records(&buffer, limits, &mut |record| {
            (self.sink)(Ok(record)).map_err(|error| {
                failed = Some(error);
                WireError::Truncated
            })
        });
        self.buffer = buffer;
        self.report_failure(start, read, failed)
    }

    /// Walks one `ResourceSpans` that is over the limit, scope by scope. The resource must precede its scopes: a
    /// stream cannot look ahead. Exporters write it first.
    fn walk_large_resource(&mut self, end: u64) -> Result<(), StreamError> {
        let mut resource = Arc::new(SpanResource::default());
        while self.offset < end {
            let Some((number, length)) = self.next_field(end)? else { break };
            let start = self.offset;
            match number {
                1 => {
                    self.fill_buffer(length)?;
                    match decode_resource(&self.buffer, self.limits) {
                        Ok(decoded) => resource = Arc::new(decoded),
                        Err(reason) => (self.sink)(Err((start, reason)))?,
                    }
                }
                RECORDS_FIELD if self.fits_record_limit(length) => {
                    self.fill_buffer(length)?;
                    let buffer = std::mem::take(&mut self.buffer);
                    let mut failed = None;
                    let read = read_scope_records(&buffer, &resource, &mut |record| {
                        (self.sink)(Ok(record)).map_err(|error| {
                            failed = Some(error);
                            WireError::Truncated
                        })
                    });
                    self.buffer = buffer;
                    self.report_failure(start, read, failed)?;
                }
                RECORDS_FIELD => self.walk_large_scope(start + length, &resource)?,
                _ => self.skip(length)?,
            }
        }
        Ok(())
    }

    /// Walks one `ScopeSpans` that is over the limit, record by record.
    fn walk_large_scope(&mut self, end: u64, resource: &Arc<SpanResource>) -> Result<(), StreamError> {
        let mut scope = RecordScope { resource: Arc::clone(resource), name: Arc::from("") };
        while self.offset < end {
            let Some((number, length)) = self.next_field(end)? else { break };
            let start = self.offset;
            match number {
                1 => {
                    self.fill_buffer(length)?;
                    match scope_name(&self.buffer) {
                        Ok(name) => scope.name = Arc::from(name.as_ref()),
                        Err(reason) => (self.sink)(Err((start, reason)))?,
                    }
                }
                // A record over the limit is skipped and reported; the records behind it are still read.
                RECORDS_FIELD if !self.fits_record_limit(length) => {
                    let limit = self.limits.record_bytes;
                    (self.sink)(Err((start, WireError::RecordTooLarge { size: length, limit })))?;
                    self.skip(length)?;
                }
                RECORDS_FIELD => {
                    self.fill_buffer(length)?;
                    let signal = detect_signal(&self.buffer);
                    (self.sink)(Ok(ExportRecord { signal, scope: &scope, body: &self.buffer }))?;
                }
                _ => self.skip(length)?,
            }
        }
        Ok(())
    }

    /// An error of the sink ends the reading, a malformed part is reported to the sink.
    fn report_failure(
        &mut self,
        start: u64,
        read: Result<(), WireError>,
        failed: Option<io::Error>,
    ) -> Result<(), StreamError> {
        match (read, failed) {
            (_, Some(error)) => Err(error.into()),
            (Err(reason), None) => Ok((self.sink)(Err((start, reason)))?),
            (Ok(()), None) => Ok(()),
        }
    }

    /// Whether a part of this length may be read into memory.
    fn fits_record_limit(&self, length: u64) -> bool {
        length <= self.limits.record_bytes as u64
    }

    /// Number and length of the next length-delimited field. Its end lies within the message that ends at `end`. Fields
    /// of other wire types are skipped.
    fn next_field(&mut self, end: u64) -> Result<Option<(u32, u64)>, StreamError> {
        loop {
            let start = self.offset;
            let Some(tag) = self.read_varint_or_end()? else { return Ok(None) };
            match split_tag(tag) {
                (number, 2) => {
                    let length = self.read_varint()?;
                    if self.offset.checked_add(length).is_none_or(|behind| behind > end) {
                        return Err(StreamError::Malformed { offset: start, reason: WireError::LongerThanParent });
                    }
                    return Ok(Some((number, length)));
                }
                (_, 0) => drop(self.read_varint()?),
                (_, 1) => self.skip(8)?,
                (_, 5) => self.skip(4)?,
                (field, wire_type) => {
                    let reason = WireError::WireType { field, wire_type };
                    return Err(StreamError::Malformed { offset: start, reason });
                }
            }
        }
    }

    /// A varint where the message must not end.
    fn read_varint(&mut self) -> Result<u64, StreamError> {
        let offset = self.offset;
        self.read_varint_or_end()?.ok_or(StreamError::Malformed { offset, reason: WireError::Truncated })
    }

    /// A varint, or `None` at the end of the input.
    fn read_varint_or_end(&mut self) -> Result<Option<u64>, StreamError> {
        let start = self.offset;
        let mut value = 0u64;
        for index in 0..10 {
            let Some(&byte) = self.input.fill_buf()?.first() else {
                return match index {
                    0 => Ok(None),
                    _ => Err(StreamError::Malformed { offset: start, reason: WireError::Truncated }),
                };
            };
            self.input.consume(1);
            self.offset += 1;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(Some(value));
            }
        }
        Err(StreamError::Malformed { offset: start, reason: WireError::LongVarint })
    }

    /// A length of four big-endian bytes, or `None` at the end of the input.
    fn read_prefix_or_end(&mut self) -> Result<Option<u64>, StreamError> {
        let mut length = [0; 4];
        let mut got = 0;
        while got < length.len() {
            match self.input.read(&mut length[got..])? {
                0 if got == 0 => return Ok(None),
                0 => {
                    return Err(StreamError::Malformed { offset: self.offset, reason: WireError::Truncated });
                }
                read => got += read,
            }
        }
        self.offset += 4;
        Ok(Some(u64::from(u32::from_be_bytes(length))))
    }

    /// Reads this many bytes into `buffer`.
    fn fill_buffer(&mut self, length: u64) -> Result<(), StreamError> {
        if !self.fits_record_limit(length) {
            let limit = self.limits.record_bytes;
            return Err(StreamError::RecordTooLarge { offset: self.offset, size: length, limit });
        }
        self.buffer.clear();
        // `take` and not `resize`: a false length must not allocate memory for data that does not exist.
        let read = self.input.take(length).read_to_end(&mut self.buffer)? as u64;
        self.advance(length, read)
    }

    /// Skips bytes without keeping them.
    fn skip(&mut self, length: u64) -> Result<(), StreamError> {
        let skipped = io::copy(&mut self.input.take(length), &mut io::sink())?;
        self.advance(length, skipped)
    }

    /// Moves the offset, and reports an input that ended early.
    fn advance(&mut self, wanted: u64, got: u64) -> Result<(), StreamError> {
        self.offset += got;
        match got == wanted {
            true => Ok(()),
            false => Err(StreamError::Malformed { offset: self.offset, reason: WireError::Truncated }),
        }
    }
}

/// Checks the tags of the first levels, which distinguish OTLP from text and from other protobuf messages.
fn looks_like_message(head: &[u8], whole: bool) -> bool {
    let mut rest = head;
    let mut seen = 0;
    while !rest.is_empty() {
        let Some((tag, body, complete)) = next_submessage(&mut rest) else { return seen > 0 && !whole };
        // 0x0a is the tag of field 1 with a length: `resource_spans` or `resource_logs`.
        if tag != 0x0a || (whole && !complete) || !looks_like_resource_records(body) {
            return false;
        }
        seen += 1;
    }
    seen > 0
}

/// Tags of a resource, a scope and a schema URL, and the first tags inside of them.
fn looks_like_resource_records(body: &[u8]) -> bool {
    let mut rest = body;
    while let Some((tag, inner, complete)) = next_submessage(&mut rest) {
        let fits = match tag {
            0x0a => matches!(inner.first(), None | Some(0x0a | 0x10 | 0x1a)),
            0x12 => matches!(inner.first(), None | Some(0x0a | 0x12 | 0x1a)),
            0x1a => std::str::from_utf8(inner).is_ok(),
            _ => false,
        };
        if !fits {
            return false;
        }
        if !complete {
            break;
        }
    }
    true
}

/// The next length-delimited field: its tag, the part of its body that `rest` holds, and whether the body is complete.
fn next_submessage<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8], bool)> {
    let (&tag, mut after) = rest.split_first()?;
    if tag & 7 != 2 || tag >= 0x80 {
        *rest = &[];
        return Some((0, &[], true));
    }
    let length = usize::try_from(read_varint(&mut after).ok()?).ok()?;
    let complete = length <= after.len();
    let (body, behind) = after.split_at(length.min(after.len()));
    *rest = behind;
    Some((tag, body, complete))
}
