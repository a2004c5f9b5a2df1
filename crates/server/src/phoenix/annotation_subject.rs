//! What is annotated.

use gradus_core::span::{SpanId, TraceId};

/// What is annotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Span,
    Trace,
    Session,
    Document,
}

impl Subject {
    /// How targets of this kind begin in the store.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Subject::Span => "span:",
            Subject::Trace => "trace:",
            Subject::Session => "session:",
            Subject::Document => "document:",
        }
    }

    /// What Phoenix calls an annotation of it.
    pub(super) fn node(self) -> &'static str {
        match self {
            Subject::Span => "SpanAnnotation",
            Subject::Trace => "TraceAnnotation",
            Subject::Session => "ProjectSessionAnnotation",
            Subject::Document => "DocumentAnnotation",
        }
    }

    pub(super) fn plural(self) -> &'static str {
        match self {
            Subject::Span | Subject::Document => "Spans",
            Subject::Trace => "Traces",
            Subject::Session => "Sessions",
        }
    }

    /// The target of this id. Ids of other lengths and alphabets are kept under what they are read as.
    pub(super) fn target(self, id: &str) -> String {
        match self {
            Subject::Span | Subject::Document => format!("{}{}", self.prefix(), SpanId::parse(id.trim())),
            Subject::Trace => format!("{}{}", self.prefix(), TraceId::parse(id.trim())),
            Subject::Session => format!("{}{}", self.prefix(), crate::phoenix::session_lookup::plain(id)),
        }
    }
}
