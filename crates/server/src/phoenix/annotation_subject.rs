//! What is annotated.

use gradus_core::span::{SpanId, TraceId};

/// What is annotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhoenixAnnotationTarget {
    Span,
    Trace,
    Session,
    Document,
}

impl PhoenixAnnotationTarget {
    /// How targets of this kind begin in the store.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            PhoenixAnnotationTarget::Span => "span:",
            PhoenixAnnotationTarget::Trace => "trace:",
            PhoenixAnnotationTarget::Session => "session:",
            PhoenixAnnotationTarget::Document => "document:",
        }
    }

    /// What Phoenix calls an annotation of it.
    pub(super) fn node_type(self) -> &'static str {
        match self {
            PhoenixAnnotationTarget::Span => "SpanAnnotation",
            PhoenixAnnotationTarget::Trace => "TraceAnnotation",
            PhoenixAnnotationTarget::Session => "ProjectSessionAnnotation",
            PhoenixAnnotationTarget::Document => "DocumentAnnotation",
        }
    }

    pub(super) fn plural_name(self) -> &'static str {
        match self {
            PhoenixAnnotationTarget::Span | PhoenixAnnotationTarget::Document => "Spans",
            PhoenixAnnotationTarget::Trace => "Traces",
            PhoenixAnnotationTarget::Session => "Sessions",
        }
    }

    /// The target of this id. Ids of other lengths and alphabets are kept under what they are read as.
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
