//! Loops over what a span's cost is made of: `any(d.cost > 0.1 for d in cost_details)`, `sum(d.tokens for d in
//! cost_details if d.is_prompt)`. Inside of them Phoenix is strict: only the fields of a detail and written values, and
//! no casts.

use super::ast::{Comparison, Expr, Loop, Node};
use super::error::{FilterError, excerpt};

/// What a loop comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    Any,
    All,
    Len,
    Sum,
    Max,
    Min,
}

/// What can be asked of a detail of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetailField {
    TokenType,
    IsPrompt,
    Cost,
    Tokens,
    CostPerToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Truth,
    Number,
    Text,
    None,
}

impl Reduction {
    pub(super) fn of(name: &str) -> Option<Reduction> {
        Some(match name {
            "any" => Reduction::Any,
            "all" => Reduction::All,
            "len" => Reduction::Len,
            "sum" => Reduction::Sum,
            "max" => Reduction::Max,
            "min" => Reduction::Min,
            _ => return None,
        })
    }

    pub(super) fn is_condition(self) -> bool {
        matches!(self, Reduction::Any | Reduction::All)
    }
}

impl DetailField {
    pub(super) fn of(name: &str) -> Option<DetailField> {
        Some(match name {
            "token_type" => DetailField::TokenType,
            "is_prompt" => DetailField::IsPrompt,
            "cost" => DetailField::Cost,
            "tokens" => DetailField::Tokens,
            "cost_per_token" => DetailField::CostPerToken,
            _ => return None,
        })
    }

    fn kind(self) -> Kind {
        match self {
            DetailField::TokenType => Kind::Text,
            DetailField::IsPrompt => Kind::Truth,
            DetailField::Cost | DetailField::Tokens | DetailField::CostPerToken => Kind::Number,
        }
    }
}

/// The call of a reduction, if this is one: which, and what it goes over.
pub(super) fn reduction(node: &Node) -> Option<(Reduction, &Loop)> {
    let Expr::Call(function, arguments) = &node.expr else { return None };
    match (&function.expr, &arguments[..]) {
        (Expr::Name(name), [Node { expr: Expr::Loop(inside), .. }]) => Some((Reduction::of(name)?, inside)),
        _ => None,
    }
}

/// `d.cost` inside of a loop over `d`.
pub(super) fn field(node: &Node, variable: &str) -> Option<DetailField> {
    match node.dotted()?[..] {
        [of, field] if of == variable => DetailField::of(field),
        _ => None,
    }
}

pub(super) fn check(node: &Node, reduction: Reduction, inside: &Loop) -> Result<(), FilterError> {
    match &inside.iterable.expr {
        Expr::Name(name) if name == "cost_details" => {}
        _ => {
            let what = format!(
                "cannot loop over `{}`, only over cost_details",
                excerpt(&inside.iterable.to_string())
            );
            return Err(FilterError::meaning(inside.iterable.at, what));
        }
    }
    let scope = Scope { variable: &inside.variable };
    for condition in &inside.conditions {
        scope.expect(condition, Kind::Truth)?;
    }
    let element = &inside.element;
    if reduction == Reduction::Len {
        return match &element.expr {
            Expr::Name(name) if inside.is_list && *name == inside.variable => Ok(()),
            _ => Err(FilterError::meaning(
                node.at,
                "`len` counts details, as in `len([d for d in cost_details])`",
            )),
        };
    }
    if reduction.is_condition() && matches!(element.expr, Expr::Bool(_)) {
        return Err(FilterError::meaning(element.at, "this needs a condition on a detail"));
    }
    scope.expect(element, if reduction.is_condition() { Kind::Truth } else { Kind::Number })
}

struct Scope<'s> {
    variable: &'s str,
}

impl Scope<'_> {
    fn expect(&self, node: &Node, wanted: Kind) -> Result<(), FilterError> {
        if self.kind(node)? == wanted {
            return Ok(());
        }
        let wanted = match wanted {
            Kind::Truth => "a condition",
            Kind::Number => "a number",
            Kind::Text => "a text",
            Kind::None => "None",
        };
        Err(FilterError::meaning(node.at, format!("`{}` is not {wanted}", excerpt(&node.to_string()))))
    }

    fn kind(&self, node: &Node) -> Result<Kind, FilterError> {
        match &node.expr {
            Expr::Text(_) => Ok(Kind::Text),
            Expr::Number(..) => Ok(Kind::Number),
            Expr::Bool(_) => Ok(Kind::Truth),
            Expr::None => Ok(Kind::None),
            Expr::Attribute(..) if node.root() == Some(self.variable) => {
                field(node, self.variable).map(DetailField::kind).ok_or_else(|| self.no_field(node))
            }
            Expr::And(operands) | Expr::Or(operands) => {
                operands.iter().try_for_each(|operand| self.expect(operand, Kind::Truth))?;
                Ok(Kind::Truth)
            }
            Expr::Not(operand) => self.expect(operand, Kind::Truth).map(|()| Kind::Truth),
            Expr::Negative(operand) | Expr::Positive(operand) => {
                self.expect(operand, Kind::Number).map(|()| Kind::Number)
            }
            Expr::Arithmetic(_, left, right) => {
                self.expect(left, Kind::Number)?;
                self.expect(right, Kind::Number).map(|()| Kind::Number)
            }
            Expr::Compare(first, rest) => {
                let mut left: &Node = first;
                for (comparison, right) in rest {
                    self.check_comparison(left, *comparison, right)?;
                    left = right;
                }
                Ok(Kind::Truth)
            }
            _ => Err(self.no_field(node)),
        }
    }

    fn check_comparison(&self, left: &Node, comparison: Comparison, right: &Node) -> Result<(), FilterError> {
        if let Some(items) = right.items().filter(|_| comparison.is_membership()) {
            return self.check_list(left, items);
        }
        if let Some(list) = [left, right].into_iter().find(|node| node.items().is_some()) {
            return Err(FilterError::meaning(list.at, "a list can only stand behind `in` or `not in`"));
        }
        let kinds = (self.kind(left)?, self.kind(right)?);
        match comparison {
            Comparison::In | Comparison::NotIn => match (&left.expr, kinds.1) {
                (Expr::Text(_), Kind::Text) if !right.is_literal() => Ok(()),
                _ => Err(FilterError::meaning(
                    left.at,
                    "inside a loop `in` looks for a written text in a field, or for a field in a list",
                )),
            },
            Comparison::Is | Comparison::IsNot if kinds.0 != Kind::None && kinds.1 != Kind::None => {
                Err(FilterError::meaning(left.at, "inside a loop `is` goes with None only; use `==`"))
            }
            _ if kinds.0 == Kind::None || kinds.1 == Kind::None => match comparison.is_order() {
                true => {
                    Err(FilterError::meaning(left.at, "None has no order; use `is None` or `is not None`"))
                }
                false => Ok(()),
            },
            _ if kinds.0 != kinds.1 => Err(FilterError::meaning(left.at, "these two cannot be compared")),
            _ if comparison.is_order() && kinds.0 != Kind::Number => {
                Err(FilterError::meaning(left.at, "inside a loop only numbers have an order"))
            }
            _ => Ok(()),
        }
    }

    fn check_list(&self, left: &Node, items: &[Node]) -> Result<(), FilterError> {
        let kind = self.kind(left)?;
        if left.is_literal() || !matches!(kind, Kind::Text | Kind::Number) {
            return Err(FilterError::meaning(
                left.at,
                "a text or a number of a detail must stand before `in`",
            ));
        }
        match items.iter().find(|item| !item.is_literal() || self.kind(item) != Ok(kind)) {
            Some(item) => {
                Err(FilterError::meaning(item.at, "inside a loop a list holds written values of one kind"))
            }
            None => Ok(()),
        }
    }

    fn no_field(&self, node: &Node) -> FilterError {
        let what = format!(
            "`{}` cannot be used inside this loop; `{}` has .token_type, .is_prompt, .cost, .tokens and .cost_per_token",
            excerpt(&node.to_string()),
            excerpt(self.variable)
        );
        FilterError::meaning(node.at, what)
    }
}
