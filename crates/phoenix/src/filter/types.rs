//! What kind of value each expression is, and which of them go together: Phoenix refuses a filter that compares a
//! number with a text, and so does this one, before any span is looked at.

use super::ast::{Comparison, Expr, Node, Operator};
use super::error::{FilterError, excerpt};
use super::loops::{self, Reduction};
use super::names;
use crate::filter::value_kind::{Kind, invalid};

/// Checks a whole filter, from the outside in.
pub(super) fn check(filter: &Node) -> Result<(), FilterError> {
    match &filter.expr {
        Expr::And(_) | Expr::Or(_) | Expr::Not(_) | Expr::Compare(..) => {}
        Expr::Subscript(..) if names::annotation(filter).is_some() => {}
        Expr::Call(..) if loops::reduction(filter).is_some_and(|(reduction, _)| reduction.is_condition()) => {
        }
        Expr::Bool(_) | Expr::None => {
            let what = format!("`{filter}` is not a condition on its own; use it with `and`, `or` or `not`");
            return Err(FilterError::meaning(filter.at, what));
        }
        Expr::Call(..)
        | Expr::List(_)
        | Expr::Tuple(_)
        | Expr::Negative(_)
        | Expr::Positive(_)
        | Expr::Arithmetic(..) => {
            check_node(filter)?;
            return Err(no_condition(filter));
        }
        _ => return Err(no_condition(filter)),
    }
    check_node(filter)
}

/// The kind of an expression; `None` when only a span can tell.
pub(super) fn kind_of(node: &Node) -> Result<Option<Kind>, FilterError> {
    let kind = match &node.expr {
        Expr::Text(_) => Kind::Text,
        Expr::Number(..) => Kind::Number,
        Expr::None => Kind::Null,
        Expr::Bool(_) | Expr::Not(_) | Expr::Compare(..) | Expr::And(_) | Expr::Or(_) => Kind::Bool,
        Expr::Name(_) => return Ok(names::kind_of_name(node)),
        Expr::Attribute(value, field) => {
            return Ok(match names::annotation(value) {
                Some(_) if field == "score" => Some(Kind::Number),
                Some(_) => Some(Kind::Text),
                None => names::kind_of_name(node),
            });
        }
        Expr::Subscript(..) => return Ok(names::annotation(node).map(|_| Kind::Bool)),
        Expr::Call(function, _) => match &function.expr {
            Expr::Name(name) if name == "str" => Kind::Text,
            Expr::Name(name) if name == "float" || name == "int" => Kind::Number,
            Expr::Name(name) => match Reduction::of(name) {
                Some(reduction) if reduction.is_condition() => Kind::Bool,
                Some(_) => Kind::Number,
                None => return Ok(None),
            },
            _ => return Ok(None),
        },
        Expr::Arithmetic(operator, left, right) => {
            return kind_of_arithmetic(node, *operator, left, right).map(Some);
        }
        Expr::Negative(operand) | Expr::Positive(operand) => match kind_of(operand)? {
            None | Some(Kind::Number) => Kind::Number,
            Some(_) => return Err(FilterError::meaning(node.at, "invalid arithmetic operand")),
        },
        Expr::List(_) | Expr::Tuple(_) | Expr::Loop(_) => return Ok(None),
    };
    Ok(Some(kind))
}

fn kind_of_arithmetic(
    node: &Node,
    operator: Operator,
    left: &Node,
    right: &Node,
) -> Result<Kind, FilterError> {
    let kinds = (kind_of(left)?, kind_of(right)?);
    match (operator, kinds) {
        // Two attributes are put one behind the other, whatever they are.
        (Operator::Add, (None, None)) => Ok(Kind::Text),
        (Operator::Add, (Some(Kind::Text), None | Some(Kind::Text)) | (None, Some(Kind::Text))) => {
            Ok(Kind::Text)
        }
        (Operator::Add, (Some(Kind::Number), None | Some(Kind::Number)) | (None, Some(Kind::Number))) => {
            Ok(Kind::Number)
        }
        (Operator::Add, _) => Err(FilterError::meaning(node.at, "invalid arithmetic operands")),
        (_, (None | Some(Kind::Number), None | Some(Kind::Number))) => Ok(Kind::Number),
        _ => Err(FilterError::meaning(node.at, "invalid arithmetic operands")),
    }
}

fn check_node(node: &Node) -> Result<(), FilterError> {
    match &node.expr {
        Expr::Text(_) | Expr::Number(..) | Expr::Bool(_) | Expr::None => Ok(()),
        Expr::Name(_) | Expr::Attribute(..) | Expr::Subscript(..) => names::check(node),
        Expr::List(items) | Expr::Tuple(items) => items.iter().try_for_each(check_node),
        Expr::Not(operand) => check_node(operand).and_then(|()| require_condition(operand)),
        Expr::And(operands) | Expr::Or(operands) => operands
            .iter()
            .try_for_each(|operand| check_node(operand).and_then(|()| require_condition(operand))),
        Expr::Negative(operand) | Expr::Positive(operand) => {
            check_node(operand)?;
            kind_of(node).map(|_| ())
        }
        Expr::Arithmetic(_, left, right) => {
            check_node(left)?;
            check_node(right)?;
            kind_of(node).map(|_| ())
        }
        Expr::Call(function, arguments) => check_call(node, function, arguments),
        Expr::Loop(_) => {
            Err(FilterError::meaning(node.at, "a loop can only stand in any, all, len, max, min or sum"))
        }
        Expr::Compare(first, rest) => {
            check_node(first)?;
            let mut left: &Node = first;
            for (comparison, right) in rest {
                check_node(right)?;
                check_comparison(left, *comparison, right)?;
                left = right;
            }
            Ok(())
        }
    }
}

fn check_call(node: &Node, function: &Node, arguments: &[Node]) -> Result<(), FilterError> {
    let name = match &function.expr {
        Expr::Name(name) => name.as_str(),
        _ => "",
    };
    if let Some((reduction, inside)) = loops::reduction(node) {
        return loops::check(node, reduction, inside);
    }
    let [argument] = arguments else { return Err(invalid(node)) };
    match name {
        "str" | "float" | "int" => {}
        _ if Reduction::of(name).is_some() => {
            let what = format!(
                "`{name}(...)` takes a loop over cost_details, such as `len([d for d in cost_details])`"
            );
            return Err(FilterError::meaning(node.at, what));
        }
        _ => return Err(invalid(node)),
    }
    check_node(argument)?;
    let refused = |kind: Kind, to: &str| {
        Err(FilterError::meaning(argument.at, format!("cannot cast {} to {to}", kind.as_str())))
    };
    match (name, kind_of(argument)?, &argument.expr) {
        ("str", Some(Kind::Text) | None, _) => Ok(()),
        ("str", Some(kind), _) => refused(kind, "text"),
        (_, _, Expr::Text(text)) if names::number_in(text).is_some() => Ok(()),
        (_, Some(kind @ (Kind::Text | Kind::Bool | Kind::Time)), _) => refused(kind, "number"),
        _ => Ok(()),
    }
}

fn check_comparison(left: &Node, comparison: Comparison, right: &Node) -> Result<(), FilterError> {
    let parent = [left, right].map(names::is_parent_span);
    if parent != [false, false] {
        let is_none = matches!(if parent[0] { &right.expr } else { &left.expr }, Expr::None);
        return match comparison {
            Comparison::Is | Comparison::IsNot | Comparison::Equal | Comparison::NotEqual if is_none => {
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
        if kinds.0 == Some(Kind::Bool) || kinds.1 == Some(Kind::Bool) {
            return Err(FilterError::meaning(left.at, "a boolean has no order; use `==`, `!=` or `is`"));
        }
        if kinds.0 == Some(Kind::Null) || kinds.1 == Some(Kind::Null) {
            return Err(FilterError::meaning(left.at, "None has no order; use `is None` or `is not None`"));
        }
    }
    let is_singleton = |node: &Node| matches!(node.expr, Expr::None | Expr::Bool(_));
    if matches!(comparison, Comparison::Is | Comparison::IsNot) && !is_singleton(left) && !is_singleton(right)
    {
        return Err(FilterError::meaning(left.at, "`is` goes with None, True or False only; use `==`"));
    }
    if left.items().is_some() || (right.items().is_some() && !comparison.is_membership()) {
        return Err(FilterError::meaning(left.at, "a list can only stand behind `in` or `not in`"));
    }
    match right.items() {
        Some(items) => check_list(left, items),
        None if comparison.is_membership() => match kinds {
            (None | Some(Kind::Text), None | Some(Kind::Text)) => Ok(()),
            (needle, haystack) => {
                let [needle, haystack] = [(needle, "value"), (haystack, "string")]
                    .map(|(kind, unknown)| kind.map_or(unknown, Kind::as_str));
                Err(FilterError::meaning(left.at, format!("cannot compare {needle} and {haystack}")))
            }
        },
        None => check_pair(left, right),
    }
}

fn check_list(left: &Node, items: &[Node]) -> Result<(), FilterError> {
    if left.is_literal() {
        return Err(FilterError::meaning(left.at, "this compares two values; a name must stand before `in`"));
    }
    let mut first = None;
    for item in items {
        if item.items().is_some() {
            return Err(FilterError::meaning(item.at, "a list cannot stand inside a list"));
        }
        match (kind_of(item)?, first) {
            (Some(Kind::Null), _) => {
                return Err(FilterError::meaning(item.at, "None in a list never matches; use `is None`"));
            }
            (Some(kind), Some(before)) if kind != before => return Err(mixed(item.at, before, kind)),
            (kind, before) => first = before.or(kind),
        }
    }
    items.iter().try_for_each(|item| check_pair(left, item))
}

fn check_pair(left: &Node, right: &Node) -> Result<(), FilterError> {
    match (kind_of(left)?, kind_of(right)?) {
        (Some(Kind::Time), Some(Kind::Text)) if matches!(right.expr, Expr::Text(_)) => Ok(()),
        (Some(Kind::Text), Some(Kind::Time)) if matches!(left.expr, Expr::Text(_)) => Ok(()),
        (Some(Kind::Time), None) | (None, Some(Kind::Time)) => Err(FilterError::meaning(
            left.at,
            "cannot compare a time with an attribute; write the time, such as '2026-01-01T00:00:00Z'",
        )),
        (Some(Kind::Null), _) | (_, Some(Kind::Null)) => Ok(()),
        (Some(left_kind), Some(right_kind)) if left_kind != right_kind => {
            Err(mixed(left.at, left_kind, right_kind))
        }
        _ => Ok(()),
    }
}

fn require_condition(node: &Node) -> Result<(), FilterError> {
    match kind_of(node)? {
        Some(Kind::Bool) => Ok(()),
        _ => Err(no_condition(node)),
    }
}

fn no_condition(node: &Node) -> FilterError {
    let written = excerpt(&node.to_string());
    FilterError::meaning(
        node.at,
        format!("`{written}` is not a condition; compare it, as in `{written} == ...`"),
    )
}

fn mixed(at: usize, left: Kind, right: Kind) -> FilterError {
    FilterError::meaning(at, format!("cannot compare {} and {}", left.as_str(), right.as_str()))
}
