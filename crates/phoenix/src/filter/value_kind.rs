//! Kinds of values in filters.

use super::ast::ExpressionNode;
use super::error::{FilterError, format_excerpt};

/// The static kind of an expression. That of an attribute is unknown until a span is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterValueKind {
    Bool,
    Time,
    Number,
    Text,
    Null,
}

impl FilterValueKind {
    /// The name in Phoenix's error messages.
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

/// The message that Phoenix itself gives for expressions that it cannot translate.
pub(super) fn invalid_expression_error(node: &ExpressionNode) -> FilterError {
    FilterError::meaning(node.at, format!("invalid expression: {}", format_excerpt(&node.to_string())))
}
