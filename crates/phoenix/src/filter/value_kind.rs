//! The kinds of values that filters know.

use super::ast::Node;
use super::error::{FilterError, excerpt};

/// The kind of a value. An attribute's is not known before a span is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Time,
    Number,
    Text,
    Null,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Bool => "boolean",
            Kind::Time => "datetime",
            Kind::Number => "number",
            Kind::Text => "string",
            Kind::Null => "null",
        }
    }
}

pub(super) fn invalid(node: &Node) -> FilterError {
    FilterError::meaning(node.at, format!("invalid expression: {}", excerpt(&node.to_string())))
}
