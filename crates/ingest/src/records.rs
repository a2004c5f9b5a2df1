//! Bookkeeping of records and traces between the two passes.

use std::io;
use std::sync::Arc;

use gradus_core::assemble::LinkKey;
use gradus_core::coverage::SourceCoverage;
use gradus_core::span::{Span, TraceId};
use gradus_core::trajectory::{ExtractionDefect, Trajectory};
use gradus_otlp::{LogEvent, RecordScope, SpanHead, TelemetrySignal, encode_log, encode_span};

use crate::spool::SpoolRange;

/// Summary of all sources. The consumer of the trajectories adds their numbers to the coverage.
#[derive(Clone, Debug, Default)]
pub struct ReadSummary {
    pub sources: Vec<SourceCoverage>,
    /// Records that could not be read, and defects of spans that are in no trajectory. At most `MAX_DEFECTS`; the
    /// coverage counts all.
    pub defects: Vec<ExtractionDefect>,
    /// Links that were found only in the second pass: of traces whose messages are in log records, and of large root
    /// spans. A server stores them, so that it assembles such traces together next time.
    pub links: Vec<(TraceId, LinkKey)>,
    /// Number of traces and documents that were read and are not part of the selection.
    pub excluded_count: u64,
}

/// Receives each trajectory with the index of its source in [`ReadSummary::sources`]. An error stops the reading.
pub type TrajectorySink<'k> = dyn FnMut(usize, Trajectory) -> io::Result<()> + 'k;

/// One span or log record in the spool. There is one per record, so it is kept small.
pub(crate) struct SpooledRecord {
    pub(crate) place: SpoolRange,
    pub(super) trace: u32,
    pub(crate) scope: u32,
    pub(crate) signal: TelemetrySignal,
}

/// One trace in the spool.
pub(crate) struct SpooledTrace {
    pub(super) id: TraceId,
    pub(super) start_ns: u64,
    /// The source in which it was seen first. Its records may come from several.
    pub(crate) source: usize,
    /// Whether it has a root span with one of the selected names.
    pub(super) has_root: bool,
}

/// A record that came in another form, encoded as protobuf. Made on worker threads.
pub(crate) enum EncodedRecord {
    Span { head: SpanHead, body: Vec<u8>, scope: RecordScope },
    Log { trace_id: TraceId, body: Vec<u8> },
    Bad(String),
}

impl EncodedRecord {
    pub(crate) fn new(found: FoundRecord<'_>) -> EncodedRecord {
        let mut body = Vec::new();
        match found {
            FoundRecord::Span(span) => {
                encode_span(span, &mut body);
                let scope = RecordScope { resource: Arc::clone(&span.resource), name: Arc::from(span.scope.as_ref()) };
                let head = SpanHead {
                    trace_id: span.trace_id,
                    span_id: span.span_id,
                    parent_id: span.parent_id,
                    start_ns: span.start_ns,
                };
                EncodedRecord::Span { head, body, scope }
            }
            FoundRecord::Log(log) => {
                encode_log(log, &mut body);
                EncodedRecord::Log { trace_id: log.trace_id, body }
            }
            FoundRecord::Bad(reason) => EncodedRecord::Bad(reason),
        }
    }
}

/// Maximum number of defects outside of trajectories that are stored with their text. Further ones are only counted,
/// because a broken file can have millions.
pub(crate) const MAX_DEFECTS: usize = 1_000;

/// A record of a document, before it is encoded.
pub(crate) enum FoundRecord<'d> {
    Span(&'d Span<'d>),
    Log(&'d LogEvent<'d>),
    Bad(String),
}
