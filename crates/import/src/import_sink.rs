//! The sink that readers hand turns, spans and annotations to.

use std::fmt;

use gradus_core::span::{Span, SpanId, TraceId};
use gradus_core::trajectory::{RecordedAnnotation, Trajectory};

/// Receives what a reader finds.
pub trait ImportSink {
    /// Receives a span, for formats that are spans in another spelling. It is assembled with the other spans of its
    /// trace.
    fn add_span(&mut self, span: &Span<'_>);

    /// Receives a score or a label of a span, or of a whole trace. It may come before the span.
    fn add_annotation(&mut self, _trace_id: TraceId, _span_id: Option<SpanId>, _annotation: RecordedAnnotation) {}

    /// Receives a finished turn of a conversation. The turns of a conversation arrive in order.
    fn add_turn(&mut self, turn: ImportedTurn);

    /// Counts a run that is left out, because the tool started it for itself: it answers no request.
    fn count_unrequested_run(&mut self) {}

    /// Reports one record that could not be read. Reading continues.
    fn report_bad_record(&mut self, reason: &str);
}

/// One request with what the agent did about it, and how it is tied to the sessions of subagents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedTurn {
    /// Has its id, and that of the turn before it.
    pub trajectory: Trajectory,
    /// Subagents that steps of this turn started.
    pub subagents: Vec<SubagentStart>,
    /// The key by which the step that started this session names it; `None` for a session that a person started.
    pub started_as: Option<String>,
    /// Taken from the record of the session that started this one. A record of its own is complete and replaces all
    /// copies with the same key in `started_as`.
    pub is_copy: bool,
}

/// A step that started a subagent, whose session is recorded elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubagentStart {
    pub step_index: u32,
    /// Equal to [`ImportedTurn::started_as`] of the subagent's turns. Unique over all files: contains the session's id.
    pub key: String,
}

/// Why a document of a known format could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    pub reason: String,
}

impl ImportError {
    pub fn new(reason: impl Into<String>) -> Self {
        ImportError { reason: reason.into() }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ImportError {}
