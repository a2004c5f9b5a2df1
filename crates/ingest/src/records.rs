//! What is known of traces while sources are read.

use std::io;
use std::sync::Arc;

use gradus_core::assemble::LinkKey;
use gradus_core::coverage::SourceCoverage;
use gradus_core::span::{Span, TraceId};
use gradus_core::trajectory::{ExtractionDefect, Trajectory};
use gradus_otlp::{LogEvent, RecordScope, SpanHead, TelemetrySignal, encode_log, encode_span};

use crate::spool::SpoolRange;

/// What was read in all, source by source; filled up with trajectories by whoever takes them.
#[derive(Clone, Debug, Default)]
pub struct ReadSummary {
    pub sources: Vec<SourceCoverage>,
    /// Records that could not be read, and defects of spans that are in no trajectory.
    pub defects: Vec<ExtractionDefect>,
    /// What ties traces whose content travels as log records.
    pub links: Vec<(TraceId, LinkKey)>,
    /// Traces and documents that were read and are not among those that were asked for.
    pub passed_over: u64,
}

/// Takes trajectories, each with the number of the source it came from.
pub type TrajectorySink<'k> = dyn FnMut(usize, Trajectory) -> io::Result<()> + 'k;

/// One span or log record in the spool.
pub(crate) struct SpooledRecord {
    pub(crate) place: SpoolRange,
    pub(super) trace: u32,
    pub(crate) scope: u32,
    pub(crate) signal: TelemetrySignal,
}

pub(crate) struct SpooledTrace {
    pub(super) id: TraceId,
    pub(super) start_ns: u64,
    /// The source it was first seen in.
    pub(crate) source: usize,
    /// Whether it has a root of the name that is asked for.
    pub(super) has_root: bool,
}

/// A record that came in another form, as protobuf.
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

/// Defects outside of trajectories that are kept one by one; the rest is only counted.
pub(crate) const MAX_DEFECTS: usize = 1_000;

/// A record that a document holds.
pub(crate) enum FoundRecord<'d> {
    Span(&'d Span<'d>),
    Log(&'d LogEvent<'d>),
    Bad(String),
}
