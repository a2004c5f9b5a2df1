//! The targets of Phoenix annotations and their names.

use gradus_core::span::{SpanId, TraceId};

/// What an annotation is about. A document is a position in the list of a span's retrieved documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhoenixAnnotationTarget {
    Span,
    Trace,
    Session,
    Document,
}

impl PhoenixAnnotationTarget {
    /// Returns the prefix of such targets in the store.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            PhoenixAnnotationTarget::Span => "span:",
            PhoenixAnnotationTarget::Trace => "trace:",
            PhoenixAnnotationTarget::Session => "session:",
            PhoenixAnnotationTarget::Document => "document:",
        }
    }

    /// Returns the type in Phoenix's global ids (GraphQL node ids).
    pub(super) fn node_type(self) -> &'static str {
        match self {
            PhoenixAnnotationTarget::Span => "SpanAnnotation",
            PhoenixAnnotationTarget::Trace => "TraceAnnotation",
            PhoenixAnnotationTarget::Session => "ProjectSessionAnnotation",
            PhoenixAnnotationTarget::Document => "DocumentAnnotation",
        }
    }

    /// Returns the plural for Phoenix's error messages. The target of a document annotation is found by its span.
    pub(super) fn plural_name(self) -> &'static str {
        match self {
            PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => "Spans",
            PhoenixAnnotationTarget::Trace => "Traces",
            PhoenixAnnotationTarget::Session => "Sessions",
        }
    }

    /// Formats the target of an id as the store has it. Ids are normalised, so that the same span is found whether a
    /// client writes hexadecimal digits in upper or lower case.
    pub(super) fn format_target(self, id: &str) -> String {
        match self {
            PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => {
                format!("{}{}", self.prefix(), SpanId::parse(id.trim()))
            }
            PhoenixAnnotationTarget::Trace => format!("{}{}", self.prefix(), TraceId::parse(id.trim())),
            PhoenixAnnotationTarget::Session => {
                format!("{}{}", self.prefix(), crate::phoenix::session_lookup::resolve_session_name(id))
            }
        }
    }
}
