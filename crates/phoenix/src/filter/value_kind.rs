//! The kinds of values that filters know.

use super::ast::ExpressionNode;
use super::error::{FilterError, format_excerpt};

/// The kind of a value. An attribute's is not known before a span is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterValueKind {
    Bool,
    Time,
    Number,
    Text,
    Null,
}

impl FilterValueKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            FilterValueKind::Bool => "boolean",
            FilterValueKind::Time => "datetime",
            FilterValueKind::Number => "number",
            FilterValueKind::Text => "string",
            FilterValueKind::Null => "null",
        }
    }
}

pub(super) fn invalid_expression_error(node: &ExpressionNode) -> FilterError {
    FilterError::meaning(node.at, format!("invalid expression: {}", format_excerpt(&node.to_string())))
}
