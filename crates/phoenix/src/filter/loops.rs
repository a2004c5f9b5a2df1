//! Loops over the components of a cost: `any(d.cost > 0.1 for d in cost_details)`, `sum(d.tokens for d in cost_details
//! if d.is_prompt)`. Inside of them Phoenix is strict: only fields of the component and literals, and no implicit
//! casts.

use super::ast::{ComprehensionExpression, ExpressionKind, ExpressionNode, FilterComparison};
use super::error::{FilterError, format_excerpt};

/// The function around a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopReduction {
    /// True if the condition holds for one component; false without components.
    Any,
    /// True if the condition holds for every component; true without components.
    All,
    /// Number of components that satisfy the conditions of the loop.
    Len,
    /// 0 without components.
    Sum,
    /// Null without components, as is `Min`.
    Max,
    Min,
}

/// Fields of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetailField {
    /// Such as `input`, `output` or `cache_read`.
    TokenType,
    /// Whether the component belongs to the prompt or to the completion.
    IsPrompt,
    /// Dollars; null if unknown.
    Cost,
    Tokens,
    CostPerToken,
}

/// Kinds of values inside a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopValueKind {
    Truth,
    Number,
    Text,
    None,
}

impl LoopReduction {
    pub(super) fn from_name(name: &str) -> Option<LoopReduction> {
        Some(match name {
            "any" => LoopReduction::Any,
            "all" => LoopReduction::All,
            "len" => LoopReduction::Len,
            "sum" => LoopReduction::Sum,
            "max" => LoopReduction::Max,
            "min" => LoopReduction::Min,
            _ => return None,
        })
    }

    /// Whether the result is a boolean.
    pub(super) fn is_condition(self) -> bool {
        matches!(self, LoopReduction::Any | LoopReduction::All)
    }
}

impl DetailField {
    pub(super) fn from_name(name: &str) -> Option<DetailField> {
        Some(match name {
            "token_type" => DetailField::TokenType,
            "is_prompt" => DetailField::IsPrompt,
            "cost" => DetailField::Cost,
            "tokens" => DetailField::Tokens,
            "cost_per_token" => DetailField::CostPerToken,
            _ => return None,
        })
    }

    /// Kinds are fixed here, unlike those of attributes.
    fn kind(self) -> LoopValueKind {
        match self {
            DetailField::TokenType => LoopValueKind::Text,
            DetailField::IsPrompt => LoopValueKind::Truth,
            DetailField::Cost | DetailField::Tokens | DetailField::CostPerToken => LoopValueKind::Number,
        }
    }
}

/// The reduction and its loop, if the node is such a call.
pub(super) fn parse_reduction_call(node: &ExpressionNode) -> Option<(LoopReduction, &ComprehensionExpression)> {
    let ExpressionKind::Call(function, arguments) = &node.expr else { return None };
    match (&function.expr, &arguments[..]) {
        (ExpressionKind::Name(name), [ExpressionNode { expr: ExpressionKind::Loop(inside), .. }]) => {
            Some((LoopReduction::from_name(name)?, inside))
        }
        _ => None,
    }
}

/// The field of `d.cost` in a loop over `d`.
pub(super) fn parse_detail_field(node: &ExpressionNode, variable: &str) -> Option<DetailField> {
    match node.dotted_names()?[..] {
        [of, field] if of == variable => DetailField::from_name(field),
        _ => None,
    }
}

/// Checks iterable, conditions and element of a loop. `len` requires the form `len([d for d in cost_details])`.
pub(super) fn check_loop(
    node: &ExpressionNode,
    reduction: LoopReduction,
    inside: &ComprehensionExpression,
) -> Result<(), FilterError> {
    match &inside.iterable.expr {
        ExpressionKind::Name(name) if name == "cost_details" => {}
        _ => {
            let what =
                format!("cannot loop over `{}`, only over cost_details", format_excerpt(&inside.iterable.to_string()));
            return Err(FilterError::meaning(inside.iterable.at, what));
        }
    }
    let scope = LoopScope { variable: &inside.variable };
    for condition in &inside.conditions {
        scope.expect_kind(condition, LoopValueKind::Truth)?;
    }
    let element = &inside.element;
    // `len` does not evaluate its element, so Phoenix insists on the loop variable itself.
    if reduction == LoopReduction::Len {
        return match &element.expr {
            ExpressionKind::Name(name) if inside.is_list && *name == inside.variable => Ok(()),
            _ => Err(FilterError::meaning(node.at, "`len` counts details, as in `len([d for d in cost_details])`")),
        };
    }
    // `any(True for d in cost_details)` is refused by Phoenix.
    if reduction.is_condition() && matches!(element.expr, ExpressionKind::Bool(_)) {
        return Err(FilterError::meaning(element.at, "this needs a condition on a detail"));
    }
    scope.expect_kind(element, if reduction.is_condition() { LoopValueKind::Truth } else { LoopValueKind::Number })
}

/// The type checker inside a loop.
struct LoopScope<'s> {
    variable: &'s str,
}

impl LoopScope<'_> {
    /// Fails with the position of the operand, not of the whole loop.
    fn expect_kind(&self, node: &ExpressionNode, wanted: LoopValueKind) -> Result<(), FilterError> {
        if self.kind(node)? == wanted {
            return Ok(());
        }
        let wanted = match wanted {
            LoopValueKind::Truth => "a condition",
            LoopValueKind::Number => "a number",
            LoopValueKind::Text => "a text",
            LoopValueKind::None => "None",
        };
        Err(FilterError::meaning(node.at, format!("`{}` is not {wanted}", format_excerpt(&node.to_string()))))
    }

    /// The kind of an expression inside a loop. Anything that is no literal and no field of the loop variable is
    /// refused.
    fn kind(&self, node: &ExpressionNode) -> Result<LoopValueKind, FilterError> {
        match &node.expr {
            ExpressionKind::Text(_) => Ok(LoopValueKind::Text),
            ExpressionKind::Number(..) => Ok(LoopValueKind::Number),
            ExpressionKind::Bool(_) => Ok(LoopValueKind::Truth),
            ExpressionKind::None => Ok(LoopValueKind::None),
            ExpressionKind::Attribute(..) if node.root_name() == Some(self.variable) => {
                parse_detail_field(node, self.variable)
                    .map(DetailField::kind)
                    .ok_or_else(|| self.unknown_field_error(node))
            }
            ExpressionKind::And(operands) | ExpressionKind::Or(operands) => {
                operands.iter().try_for_each(|operand| self.expect_kind(operand, LoopValueKind::Truth))?;
                Ok(LoopValueKind::Truth)
            }
            ExpressionKind::Not(operand) => {
                self.expect_kind(operand, LoopValueKind::Truth).map(|()| LoopValueKind::Truth)
            }
            ExpressionKind::Negative(operand) | ExpressionKind::Positive(operand) => {
                self.expect_kind(operand, LoopValueKind::Number).map(|()| LoopValueKind::Number)
            }
            ExpressionKind::Arithmetic(_, left, right) => {
                self.expect_kind(left, LoopValueKind::Number)?;
                self.expect_kind(right, LoopValueKind::Number).map(|()| LoopValueKind::Number)
            }
            ExpressionKind::Compare(first, rest) => {
                let mut left: &ExpressionNode = first;
                for (comparison, right) in rest {
                    self.check_comparison(left, *comparison, right)?;
                    left = right;
                }
                Ok(LoopValueKind::Truth)
            }
            _ => Err(self.unknown_field_error(node)),
        }
    }

    /// Both sides must have the same kind; only numbers have an order; `is` is for None.
    fn check_comparison(
        &self,
        left: &ExpressionNode,
        comparison: FilterComparison,
        right: &ExpressionNode,
    ) -> Result<(), FilterError> {
        if let Some(items) = right.items().filter(|_| comparison.is_membership()) {
            return self.check_list(left, items);
        }
        if let Some(list) = [left, right].into_iter().find(|node| node.items().is_some()) {
            return Err(FilterError::meaning(list.at, "a list can only stand behind `in` or `not in`"));
        }
        let kinds = (self.kind(left)?, self.kind(right)?);
        match comparison {
            FilterComparison::In | FilterComparison::NotIn => match (&left.expr, kinds.1) {
                (ExpressionKind::Text(_), LoopValueKind::Text) if !right.is_literal() => Ok(()),
                _ => Err(FilterError::meaning(
                    left.at,
                    "inside a loop `in` looks for a written text in a field, or for a field in a list",
                )),
            },
            FilterComparison::Is | FilterComparison::IsNot
                if kinds.0 != LoopValueKind::None && kinds.1 != LoopValueKind::None =>
            {
                Err(FilterError::meaning(left.at, "inside a loop `is` goes with None only; use `==`"))
            }
            _ if kinds.0 == LoopValueKind::None || kinds.1 == LoopValueKind::None => match comparison.is_order() {
                true => Err(FilterError::meaning(left.at, "None has no order; use `is None` or `is not None`")),
                false => Ok(()),
            },
            _ if kinds.0 != kinds.1 => Err(FilterError::meaning(left.at, "these two cannot be compared")),
            _ if comparison.is_order() && kinds.0 != LoopValueKind::Number => {
                Err(FilterError::meaning(left.at, "inside a loop only numbers have an order"))
            }
            _ => Ok(()),
        }
    }

    /// The right side of `in`: literals of the kind of the field.
    fn check_list(&self, left: &ExpressionNode, items: &[ExpressionNode]) -> Result<(), FilterError> {
        let kind = self.kind(left)?;
        if left.is_literal() || !matches!(kind, LoopValueKind::Text | LoopValueKind::Number) {
            return Err(FilterError::meaning(left.at, "a text or a number of a detail must stand before `in`"));
        }
        match items.iter().find(|item| !item.is_literal() || self.kind(item) != Ok(kind)) {
            Some(item) => Err(FilterError::meaning(item.at, "inside a loop a list holds written values of one kind")),
            None => Ok(()),
        }
    }

    /// Lists the fields that exist.
    fn unknown_field_error(&self, node: &ExpressionNode) -> FilterError {
        let what = format!(
            "`{}` cannot be used inside this loop; `{}` has .token_type, .is_prompt, .cost, .tokens and .cost_per_token",
            format_excerpt(&node.to_string()),
            format_excerpt(self.variable)
        );
        FilterError::meaning(node.at, what)
    }
}
