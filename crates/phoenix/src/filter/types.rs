//! The type checker. Phoenix refuses a filter that compares a number with a text, and so does this pass, before any
//! span is seen. Messages follow Phoenix where it has one.

use super::ast::{ArithmeticOperator, ExpressionKind, ExpressionNode, FilterComparison};
use super::error::{FilterError, format_excerpt};
use super::loops::{self, LoopReduction};
use super::names;
use crate::filter::value_kind::{FilterValueKind, invalid_expression_error};

/// Checks a whole filter. The outermost expression must be a condition, and unlike operands a bare literal is none.
pub(super) fn check_filter_types(filter: &ExpressionNode) -> Result<(), FilterError> {
    match &filter.expr {
        ExpressionKind::And(_) | ExpressionKind::Or(_) | ExpressionKind::Not(_) | ExpressionKind::Compare(..) => {}
        ExpressionKind::Subscript(..) if names::resolve_annotation(filter).is_some() => {}
        ExpressionKind::Call(..)
            if loops::parse_reduction_call(filter).is_some_and(|(reduction, _)| reduction.is_condition()) => {}
        // `True` alone would match everything; Phoenix refuses it too.
        ExpressionKind::Bool(_) | ExpressionKind::None => {
            let what = format!("`{filter}` is not a condition on its own; use it with `and`, `or` or `not`");
            return Err(FilterError::meaning(filter.at, what));
        }
        ExpressionKind::Call(..)
        | ExpressionKind::List(_)
        | ExpressionKind::Tuple(_)
        | ExpressionKind::Negative(_)
        | ExpressionKind::Positive(_)
        | ExpressionKind::Arithmetic(..) => {
            check_node(filter)?;
            return Err(not_a_condition_error(filter));
        }
        _ => return Err(not_a_condition_error(filter)),
    }
    check_node(filter)
}

/// The kind of an expression; none if it depends on the span.
pub(super) fn kind_of(node: &ExpressionNode) -> Result<Option<FilterValueKind>, FilterError> {
    let kind = match &node.expr {
        ExpressionKind::Text(_) => FilterValueKind::Text,
        ExpressionKind::Number(..) => FilterValueKind::Number,
        ExpressionKind::None => FilterValueKind::Null,
        ExpressionKind::Bool(_)
        | ExpressionKind::Not(_)
        | ExpressionKind::Compare(..)
        | ExpressionKind::And(_)
        | ExpressionKind::Or(_) => FilterValueKind::Bool,
        ExpressionKind::Name(_) => return Ok(names::kind_of_name(node)),
        ExpressionKind::Attribute(value, field) => {
            return Ok(match names::resolve_annotation(value) {
                Some(_) if field == "score" => Some(FilterValueKind::Number),
                Some(_) => Some(FilterValueKind::Text),
                None => names::kind_of_name(node),
            });
        }
        ExpressionKind::Subscript(..) => {
            return Ok(names::resolve_annotation(node).map(|_| FilterValueKind::Bool));
        }
        ExpressionKind::Call(function, _) => match &function.expr {
            ExpressionKind::Name(name) if name == "str" => FilterValueKind::Text,
            ExpressionKind::Name(name) if name == "float" || name == "int" => FilterValueKind::Number,
            ExpressionKind::Name(name) => match LoopReduction::from_name(name) {
                Some(reduction) if reduction.is_condition() => FilterValueKind::Bool,
                Some(_) => FilterValueKind::Number,
                None => return Ok(None),
            },
            _ => return Ok(None),
        },
        ExpressionKind::Arithmetic(operator, left, right) => {
            return kind_of_arithmetic(node, *operator, left, right).map(Some);
        }
        ExpressionKind::Negative(operand) | ExpressionKind::Positive(operand) => match kind_of(operand)? {
            None | Some(FilterValueKind::Number) => FilterValueKind::Number,
            Some(_) => return Err(FilterError::meaning(node.at, "invalid arithmetic operand")),
        },
        ExpressionKind::List(_) | ExpressionKind::Tuple(_) | ExpressionKind::Loop(_) => return Ok(None),
    };
    Ok(Some(kind))
}

/// `+` joins texts and adds numbers. Two attributes of unknown kind are joined, as in Phoenix.
fn kind_of_arithmetic(
    node: &ExpressionNode,
    operator: ArithmeticOperator,
    left: &ExpressionNode,
    right: &ExpressionNode,
) -> Result<FilterValueKind, FilterError> {
    let kinds = (kind_of(left)?, kind_of(right)?);
    match (operator, kinds) {
        // Two attributes are concatenated, whatever they are.
        (ArithmeticOperator::Add, (None, None)) => Ok(FilterValueKind::Text),
        (
            ArithmeticOperator::Add,
            (Some(FilterValueKind::Text), None | Some(FilterValueKind::Text)) | (None, Some(FilterValueKind::Text)),
        ) => Ok(FilterValueKind::Text),
        (
            ArithmeticOperator::Add,
            (Some(FilterValueKind::Number), None | Some(FilterValueKind::Number))
            | (None, Some(FilterValueKind::Number)),
        ) => Ok(FilterValueKind::Number),
        (ArithmeticOperator::Add, _) => Err(FilterError::meaning(node.at, "invalid arithmetic operands")),
        (_, (None | Some(FilterValueKind::Number), None | Some(FilterValueKind::Number))) => {
            Ok(FilterValueKind::Number)
        }
        _ => Err(FilterError::meaning(node.at, "invalid arithmetic operands")),
    }
}

/// Checks an expression and everything below it.
fn check_node(node: &ExpressionNode) -> Result<(), FilterError> {
    match &node.expr {
        ExpressionKind::Text(_) | ExpressionKind::Number(..) | ExpressionKind::Bool(_) | ExpressionKind::None => Ok(()),
        ExpressionKind::Name(_) | ExpressionKind::Attribute(..) | ExpressionKind::Subscript(..) => {
            names::check_name_chain(node)
        }
        ExpressionKind::List(items) | ExpressionKind::Tuple(items) => items.iter().try_for_each(check_node),
        ExpressionKind::Not(operand) => check_node(operand).and_then(|()| require_condition(operand)),
        ExpressionKind::And(operands) | ExpressionKind::Or(operands) => {
            operands.iter().try_for_each(|operand| check_node(operand).and_then(|()| require_condition(operand)))
        }
        ExpressionKind::Negative(operand) | ExpressionKind::Positive(operand) => {
            check_node(operand)?;
            kind_of(node).map(|_| ())
        }
        ExpressionKind::Arithmetic(_, left, right) => {
            check_node(left)?;
            check_node(right)?;
            kind_of(node).map(|_| ())
        }
        ExpressionKind::Call(function, arguments) => check_call(node, function, arguments),
        ExpressionKind::Loop(_) => {
            Err(FilterError::meaning(node.at, "a loop can only stand in any, all, len, max, min or sum"))
        }
        ExpressionKind::Compare(first, rest) => {
            check_node(first)?;
            let mut left: &ExpressionNode = first;
            for (comparison, right) in rest {
                check_node(right)?;
                check_comparison(left, *comparison, right)?;
                left = right;
            }
            Ok(())
        }
    }
}

/// `str`, `float` and `int` with one argument, or a reduction over a loop. There are no other functions.
fn check_call(
    node: &ExpressionNode,
    function: &ExpressionNode,
    arguments: &[ExpressionNode],
) -> Result<(), FilterError> {
    let name = match &function.expr {
        ExpressionKind::Name(name) => name.as_str(),
        _ => "",
    };
    if let Some((reduction, inside)) = loops::parse_reduction_call(node) {
        return loops::check_loop(node, reduction, inside);
    }
    let [argument] = arguments else { return Err(invalid_expression_error(node)) };
    match name {
        "str" | "float" | "int" => {}
        _ if LoopReduction::from_name(name).is_some() => {
            let what =
                format!("`{name}(...)` takes a loop over cost_details, such as `len([d for d in cost_details])`");
            return Err(FilterError::meaning(node.at, what));
        }
        _ => return Err(invalid_expression_error(node)),
    }
    check_node(argument)?;
    // Explicit casts that Phoenix refuses, in its words.
    let refused = |kind: FilterValueKind, to: &str| {
        Err(FilterError::meaning(argument.at, format!("cannot cast {} to {to}", kind.as_str())))
    };
    match (name, kind_of(argument)?, &argument.expr) {
        // `str` of a number would print differently in each database of Phoenix.
        ("str", Some(FilterValueKind::Text) | None, _) => Ok(()),
        ("str", Some(kind), _) => refused(kind, "text"),
        (_, _, ExpressionKind::Text(text)) if names::parse_portable_number(text).is_some() => Ok(()),
        (_, Some(kind @ (FilterValueKind::Text | FilterValueKind::Bool | FilterValueKind::Time)), _) => {
            refused(kind, "number")
        }
        _ => Ok(()),
    }
}

/// Checks operands against the operator: no order for booleans and None, `is` for singletons, lists behind `in` only.
fn check_comparison(
    left: &ExpressionNode,
    comparison: FilterComparison,
    right: &ExpressionNode,
) -> Result<(), FilterError> {
    // `parent_span` is no value: only its presence can be tested.
    let parent = [left, right].map(names::is_parent_span);
    if parent != [false, false] {
        let is_none = matches!(if parent[0] { &right.expr } else { &left.expr }, ExpressionKind::None);
        return match comparison {
            FilterComparison::Is | FilterComparison::IsNot | FilterComparison::Equal | FilterComparison::NotEqual
                if is_none =>
            {
                Ok(())
            }
            _ => Err(FilterError::meaning(
                left.at,
                "`parent_span` can only be compared with None, as in `parent_span is None`",
            )),
        };
    }
    let kinds = (kind_of(left)?, kind_of(right)?);
    if comparison.is_order() {
        if kinds.0 == Some(FilterValueKind::Bool) || kinds.1 == Some(FilterValueKind::Bool) {
            return Err(FilterError::meaning(left.at, "a boolean has no order; use `==`, `!=` or `is`"));
        }
        if kinds.0 == Some(FilterValueKind::Null) || kinds.1 == Some(FilterValueKind::Null) {
            return Err(FilterError::meaning(left.at, "None has no order; use `is None` or `is not None`"));
        }
    }
    // `is` compares identity in Python, which makes sense for singletons only.
    let is_singleton = |node: &ExpressionNode| matches!(node.expr, ExpressionKind::None | ExpressionKind::Bool(_));
    if matches!(comparison, FilterComparison::Is | FilterComparison::IsNot)
        && !is_singleton(left)
        && !is_singleton(right)
    {
        return Err(FilterError::meaning(left.at, "`is` goes with None, True or False only; use `==`"));
    }
    if left.items().is_some() || (right.items().is_some() && !comparison.is_membership()) {
        return Err(FilterError::meaning(left.at, "a list can only stand behind `in` or `not in`"));
    }
    match right.items() {
        Some(items) => check_list(left, items),
        // Without a list, `in` is a substring search.
        None if comparison.is_membership() => match kinds {
            (None | Some(FilterValueKind::Text), None | Some(FilterValueKind::Text)) => Ok(()),
            (needle, haystack) => {
                let [needle, haystack] = [(needle, "value"), (haystack, "string")]
                    .map(|(kind, unknown)| kind.map_or(unknown, FilterValueKind::as_str));
                Err(FilterError::meaning(left.at, format!("cannot compare {needle} and {haystack}")))
            }
        },
        None => check_pair(left, right),
    }
}

/// Elements of a list must have one kind, which must match the left side. None in a list never matches in SQL.
fn check_list(left: &ExpressionNode, items: &[ExpressionNode]) -> Result<(), FilterError> {
    if left.is_literal() {
        return Err(FilterError::meaning(left.at, "this compares two values; a name must stand before `in`"));
    }
    let mut first = None;
    for item in items {
        if item.items().is_some() {
            return Err(FilterError::meaning(item.at, "a list cannot stand inside a list"));
        }
        match (kind_of(item)?, first) {
            (Some(FilterValueKind::Null), _) => {
                return Err(FilterError::meaning(item.at, "None in a list never matches; use `is None`"));
            }
            // Elements of a list must have one kind, since a database compares a column with one type.
            (Some(kind), Some(before)) if kind != before => {
                return Err(mismatched_kinds_error(item.at, before, kind));
            }
            (kind, before) => first = before.or(kind),
        }
    }
    items.iter().try_for_each(|item| check_pair(left, item))
}

/// Two kinds that can be compared. A time can be compared with a literal text, not with an attribute.
fn check_pair(left: &ExpressionNode, right: &ExpressionNode) -> Result<(), FilterError> {
    match (kind_of(left)?, kind_of(right)?) {
        (Some(FilterValueKind::Time), Some(FilterValueKind::Text)) if matches!(right.expr, ExpressionKind::Text(_)) => {
            Ok(())
        }
        (Some(FilterValueKind::Text), Some(FilterValueKind::Time)) if matches!(left.expr, ExpressionKind::Text(_)) => {
            Ok(())
        }
        (Some(FilterValueKind::Time), None) | (None, Some(FilterValueKind::Time)) => Err(FilterError::meaning(
            left.at,
            "cannot compare a time with an attribute; write the time, such as '2026-01-01T00:00:00Z'",
        )),
        (Some(FilterValueKind::Null), _) | (_, Some(FilterValueKind::Null)) => Ok(()),
        (Some(left_kind), Some(right_kind)) if left_kind != right_kind => {
            Err(mismatched_kinds_error(left.at, left_kind, right_kind))
        }
        _ => Ok(()),
    }
}

/// Operands of `and`, `or` and `not` must be boolean.
fn require_condition(node: &ExpressionNode) -> Result<(), FilterError> {
    match kind_of(node)? {
        Some(FilterValueKind::Bool) => Ok(()),
        _ => Err(not_a_condition_error(node)),
    }
}

/// The error for an expression that is not a condition. It shows how the expression would have to be written.
fn not_a_condition_error(node: &ExpressionNode) -> FilterError {
    let written = format_excerpt(&node.to_string());
    FilterError::meaning(node.at, format!("`{written}` is not a condition; compare it, as in `{written} == ...`"))
}

/// In Phoenix's words.
fn mismatched_kinds_error(at: usize, left: FilterValueKind, right: FilterValueKind) -> FilterError {
    FilterError::meaning(at, format!("cannot compare {} and {}", left.as_str(), right.as_str()))
}
