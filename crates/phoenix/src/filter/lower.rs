//! Lowering: names become columns and attribute paths, and every implicit cast of Phoenix's SQL is decided here, once
//! per filter instead of once per span.

use std::collections::HashSet;

use jiff::Timestamp;

use super::ast::{ArithmeticOperator, ComprehensionExpression, ExpressionKind, ExpressionNode, FilterComparison};
use super::error::{FilterError, format_excerpt};
use super::loops::{self, DetailField, LoopReduction};
use super::names::{self, AnnotationField, AnnotationScope, AttributePath, SpanColumn};
use super::sql::fold_unicode_case;
use crate::filter::value_kind::{FilterValueKind, invalid_expression_error};

/// An expression that is true, false or unknown for a span.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LoweredCondition {
    /// SQL's AND.
    All(Vec<LoweredCondition>),
    Any(Vec<LoweredCondition>),
    Not(Box<LoweredCondition>),
    Constant(bool),
    /// Both sides are cast already.
    Compare(LoweredValue, FilterComparison, LoweredValue),
    IsNull(LoweredValue),
    /// Substring search without case. A constant `wanted` is already case-folded.
    Contains {
        text: LoweredValue,
        wanted: LoweredValue,
    },
    /// SQL's `IN`.
    OneOf(LoweredValue, ValueList),
    /// `parent_span is not None`.
    HasParent,
    /// Whether the annotation with this index exists.
    Annotated(usize),
    /// A boolean field by itself.
    Holds(LoweredValue),
    /// `any` or `all` over components of the cost.
    Details(LoopReduction, Box<CostDetailQuery>),
}

/// The right side of `in`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValueList {
    pub(super) values: Vec<LoweredValue>,
    /// The same values as a set, if all of them are texts: lists of ids are long.
    pub(super) texts: Option<HashSet<String>>,
}

impl ValueList {
    fn new(values: Vec<LoweredValue>) -> ValueList {
        let text = |value: &LoweredValue| match value {
            LoweredValue::Text(text) => Some(text.clone()),
            _ => None,
        };
        ValueList { texts: values.iter().map(text).collect(), values }
    }
}

/// What a loop computes for each component of the cost that satisfies its condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CostDetailQuery {
    /// Evaluated per component; null for `len`.
    pub(super) element: LoweredValue,
    pub(super) condition: LoweredCondition,
}

/// An expression that is a text, a number or null.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LoweredValue {
    Null,
    Text(String),
    Number(f64),
    /// Microseconds since 1970.
    Time(i64),
    /// A column keeps its own kind; only the other side of a comparison is cast.
    Column(SpanColumn),
    /// An attribute whose cast is not decided yet. None is left in a finished condition.
    Attribute(AttributePath),
    /// The attribute as a text, whatever its JSON type.
    AttributeText(AttributePath),
    /// The attribute as a number; null if it is none.
    AttributeNumber(AttributePath),
    /// The attribute as a boolean; null if it is none.
    AttributeFlag(AttributePath),
    /// A field of the annotation with this index.
    Annotation(usize, AnnotationField),
    /// Concatenation; null if one side is.
    Joined(Box<LoweredValue>, Box<LoweredValue>),
    /// `CAST(x AS REAL)`: the number at the beginning of a text.
    NumberOf(Box<LoweredValue>),
    Arithmetic(ArithmeticOperator, Box<LoweredValue>, Box<LoweredValue>),
    Negative(Box<LoweredValue>),
    /// A condition as a value: 1, 0 or null.
    Truth(Box<LoweredCondition>),
    /// A field of the current component, inside a loop.
    Detail(DetailField),
    /// `len`, `sum`, `max` or `min` over components of the cost.
    Reduced(LoopReduction, Box<CostDetailQuery>),
}

/// The condition, and the annotations that it refers to by index, without duplicates.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoweredFilter {
    pub(super) condition: LoweredCondition,
    pub(super) annotations: Vec<(AnnotationScope, String)>,
}

/// Maximum number of annotations in a filter: each one multiplies the combinations to try.
const MAX_ANNOTATIONS: usize = 16;

/// Lowers a filter that passed the type check.
pub(super) fn lower_filter(filter: &ExpressionNode) -> Result<LoweredFilter, FilterError> {
    let mut lowering = FilterLowering { annotations: Vec::new(), variable: None };
    let condition = lowering.lower_condition(filter)?;
    Ok(LoweredFilter { condition, annotations: lowering.annotations })
}

/// State of the pass.
struct FilterLowering {
    annotations: Vec<(AnnotationScope, String)>,
    /// The loop variable, inside a loop.
    variable: Option<String>,
}

impl FilterLowering {
    /// Lowers an expression in the position of a condition.
    fn lower_condition(&mut self, node: &ExpressionNode) -> Result<LoweredCondition, FilterError> {
        Ok(match &node.expr {
            ExpressionKind::And(operands) => LoweredCondition::All(self.lower_conditions(operands)?),
            ExpressionKind::Or(operands) => LoweredCondition::Any(self.lower_conditions(operands)?),
            ExpressionKind::Not(operand) => LoweredCondition::Not(Box::new(self.lower_condition(operand)?)),
            ExpressionKind::Bool(value) => LoweredCondition::Constant(*value),
            // `a < b < c` is `a < b and b < c`, as in Python.
            ExpressionKind::Compare(first, rest) => {
                let mut links = Vec::with_capacity(rest.len());
                let mut left: &ExpressionNode = first;
                for (comparison, right) in rest {
                    links.push(self.lower_comparison(left, *comparison, right)?);
                    left = right;
                }
                if links.len() == 1 { links.remove(0) } else { LoweredCondition::All(links) }
            }
            ExpressionKind::Subscript(..) => match names::resolve_annotation(node) {
                Some((scope, name)) => LoweredCondition::Annotated(self.register_annotation(node.at, scope, name)?),
                None => return Err(invalid_expression_error(node)),
            },
            ExpressionKind::Call(..) => match loops::parse_reduction_call(node) {
                Some((reduction, inside)) if reduction.is_condition() => {
                    LoweredCondition::Details(reduction, Box::new(self.lower_cost_details(reduction, inside)?))
                }
                _ => return Err(invalid_expression_error(node)),
            },
            ExpressionKind::Attribute(..) => LoweredCondition::Holds(self.lower_value(node)?),
            _ => return Err(invalid_expression_error(node)),
        })
    }

    /// Lowers a loop. The loop variable is visible in its conditions and its element only; loops do not nest.
    fn lower_cost_details(
        &mut self,
        reduction: LoopReduction,
        inside: &ComprehensionExpression,
    ) -> Result<CostDetailQuery, FilterError> {
        self.variable = Some(inside.variable.clone());
        let condition = LoweredCondition::All(self.lower_conditions(&inside.conditions)?);
        let element = match reduction {
            LoopReduction::Any | LoopReduction::All => {
                LoweredValue::Truth(Box::new(self.lower_condition(&inside.element)?))
            }
            LoopReduction::Len => LoweredValue::Null,
            LoopReduction::Sum | LoopReduction::Max | LoopReduction::Min => self.lower_value(&inside.element)?,
        };
        self.variable = None;
        Ok(CostDetailQuery { element, condition })
    }

    fn lower_conditions(&mut self, nodes: &[ExpressionNode]) -> Result<Vec<LoweredCondition>, FilterError> {
        nodes.iter().map(|node| self.lower_condition(node)).collect()
    }

    /// Decides the casts of both sides. The order of the steps is Phoenix's: times, kinds and status codes, two
    /// attributes in an order comparison, flags, numbers, and last null.
    fn lower_comparison(
        &mut self,
        left: &ExpressionNode,
        comparison: FilterComparison,
        right: &ExpressionNode,
    ) -> Result<LoweredCondition, FilterError> {
        let is_negated =
            matches!(comparison, FilterComparison::NotEqual | FilterComparison::IsNot | FilterComparison::NotIn);
        // The type check ensures that the other side is None.
        if names::is_parent_span(left) || names::is_parent_span(right) {
            let has_parent = LoweredCondition::HasParent;
            return Ok(if is_negated { has_parent } else { LoweredCondition::Not(Box::new(has_parent)) });
        }
        if let Some(items) = right.items() {
            let one_of = self.one_of(left, items)?;
            return Ok(if is_negated { LoweredCondition::Not(Box::new(one_of)) } else { one_of });
        }
        let (left_kind, right_kind) = (time_kind(left), time_kind(right));
        let (mut a, mut b) =
            (self.lower_operand_beside(left, right_kind)?, self.lower_operand_beside(right, left_kind)?);
        uppercase_kind_or_status(&a, &mut b);
        uppercase_kind_or_status(&b, &mut a);
        if let (LoweredValue::Attribute(left), true, LoweredValue::Attribute(right)) = (&a, comparison.is_order(), &b) {
            (a, b) = (LoweredValue::AttributeNumber(left.clone()), LoweredValue::AttributeNumber(right.clone()));
        }
        let flags = (is_flag(left), is_flag(right));
        a = a.into_text_or_flag(flags.1);
        b = b.into_text_or_flag(flags.0);
        // `x == None` means IS NULL in Phoenix, not a comparison that is always unknown.
        let is_null = (a == LoweredValue::Null, b == LoweredValue::Null);
        match (a.is_number(), b.is_number()) {
            // A number on one side casts the other to a number.
            (true, false) if !is_null.1 => b = b.into_number(),
            (false, true) if !is_null.0 => a = a.into_number(),
            _ => {}
        }
        if comparison.is_membership() {
            let contains = lower_contains(right, b, a)?;
            return Ok(if is_negated { LoweredCondition::Not(Box::new(contains)) } else { contains });
        }
        Ok(match is_null {
            (true, true) => LoweredCondition::Constant(!is_negated),
            (false, false) => LoweredCondition::Compare(a, comparison, b),
            (a_is_null, _) => {
                let is_null = LoweredCondition::IsNull(if a_is_null { b } else { a });
                if is_negated { LoweredCondition::Not(Box::new(is_null)) } else { is_null }
            }
        })
    }

    /// The element decides the cast of an attribute on the left, and the left side that of texts in the list.
    fn one_of(&mut self, left: &ExpressionNode, items: &[ExpressionNode]) -> Result<LoweredCondition, FilterError> {
        let mut value = self.lower_value(left)?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let mut item = self.lower_operand_beside(item, time_kind(left))?;
            uppercase_kind_or_status(&value, &mut item);
            values.push(item);
        }
        value = value.into_text_or_flag(!items.is_empty() && items.iter().all(is_flag));
        // Phoenix looks at the first element only, and so does this.
        let are_numbers = values.first().is_some_and(LoweredValue::is_number);
        if value.is_number() && !are_numbers {
            values = values.into_iter().map(|item| if item.is_number() { item } else { item.into_number() }).collect();
        } else if are_numbers && !value.is_number() {
            value = value.into_number();
        }
        match items.iter().zip(&values).find(|(_, item)| matches!(item, LoweredValue::Attribute(_))) {
            Some((item, _)) => {
                Err(FilterError::meaning(item.at, "an attribute in a list is not supported; compare with `==`"))
            }
            None => Ok(LoweredCondition::OneOf(value, ValueList::new(values))),
        }
    }

    /// A text next to a time is parsed as a time.
    fn lower_operand_beside(
        &mut self,
        node: &ExpressionNode,
        other: Option<FilterValueKind>,
    ) -> Result<LoweredValue, FilterError> {
        match (&node.expr, other) {
            (ExpressionKind::Text(text), Some(FilterValueKind::Time)) => parse_filter_time(node, text),
            _ => self.lower_value(node),
        }
    }

    /// Lowers an expression in the position of a value.
    fn lower_value(&mut self, node: &ExpressionNode) -> Result<LoweredValue, FilterError> {
        Ok(match &node.expr {
            ExpressionKind::Text(text) => LoweredValue::Text(text.clone()),
            ExpressionKind::Number(number, _) => LoweredValue::Number(*number),
            ExpressionKind::None => LoweredValue::Null,
            ExpressionKind::Bool(_)
            | ExpressionKind::And(_)
            | ExpressionKind::Or(_)
            | ExpressionKind::Not(_)
            | ExpressionKind::Compare(..) => LoweredValue::Truth(Box::new(self.lower_condition(node)?)),
            ExpressionKind::Name(_) if names::is_parent_span(node) => {
                return Err(FilterError::meaning(
                    node.at,
                    "`parent_span` can only be compared with None, as in `parent_span is None`",
                ));
            }
            ExpressionKind::Name(_) | ExpressionKind::Attribute(..) | ExpressionKind::Subscript(..) => {
                self.lower_name(node)?
            }
            ExpressionKind::Negative(operand) => {
                LoweredValue::Negative(Box::new(self.lower_value(operand)?.into_operand()))
            }
            ExpressionKind::Positive(operand) => self.lower_value(operand)?.into_operand(),
            ExpressionKind::Arithmetic(operator, left, right) => {
                let (left, right) = (
                    self.lower_value(left)?.into_text_or_flag(false),
                    self.lower_value(right)?.into_text_or_flag(false),
                );
                // Without a number on either side `+` concatenates.
                if *operator == ArithmeticOperator::Add && !left.is_number() && !right.is_number() {
                    LoweredValue::Joined(Box::new(left), Box::new(right))
                } else {
                    LoweredValue::Arithmetic(*operator, Box::new(left.into_operand()), Box::new(right.into_operand()))
                }
            }
            ExpressionKind::Call(..)
                if loops::parse_reduction_call(node).is_some_and(|(reduction, _)| reduction.is_condition()) =>
            {
                LoweredValue::Truth(Box::new(self.lower_condition(node)?))
            }
            ExpressionKind::Call(function, arguments) => match (&function.expr, &arguments[..]) {
                _ if let Some((reduction, inside)) = loops::parse_reduction_call(node) => {
                    LoweredValue::Reduced(reduction, Box::new(self.lower_cost_details(reduction, inside)?))
                }
                (ExpressionKind::Name(name), [argument]) if name == "str" => {
                    self.lower_value(argument)?.into_text_or_flag(false)
                }
                (ExpressionKind::Name(_), [argument]) => self.lower_value(argument)?.into_operand(),
                _ => return Err(invalid_expression_error(node)),
            },
            ExpressionKind::List(_) | ExpressionKind::Tuple(_) | ExpressionKind::Loop(_) => {
                return Err(invalid_expression_error(node));
            }
        })
    }

    /// Resolves a name: field of a loop variable, annotation, column, or attribute path, in this order.
    fn lower_name(&mut self, node: &ExpressionNode) -> Result<LoweredValue, FilterError> {
        if let Some(variable) = &self.variable {
            return loops::parse_detail_field(node, variable)
                .map(LoweredValue::Detail)
                .ok_or_else(|| invalid_expression_error(node));
        }
        if let Some((scope, name, field)) = names::annotation_field(node) {
            return Ok(LoweredValue::Annotation(self.register_annotation(node.at, scope, name)?, field));
        }
        if names::resolve_annotation(node).is_some() {
            return Ok(LoweredValue::Truth(Box::new(self.lower_condition(node)?)));
        }
        if let Some(column) = names::resolve_column(node) {
            return Ok(LoweredValue::Column(column));
        }
        names::resolve_attribute_path(node).map(LoweredValue::Attribute).ok_or_else(|| invalid_expression_error(node))
    }

    /// The index of an annotation, which is added if it is new.
    fn register_annotation(&mut self, at: usize, scope: AnnotationScope, name: &str) -> Result<usize, FilterError> {
        let known = self.annotations.iter().position(|(known, of)| *known == scope && of == name);
        match known {
            Some(place) => Ok(place),
            None if self.annotations.len() == MAX_ANNOTATIONS => {
                Err(FilterError::meaning(at, format!("a filter can speak of {MAX_ANNOTATIONS} annotations at most")))
            }
            None => {
                self.annotations.push((scope, name.to_owned()));
                Ok(self.annotations.len() - 1)
            }
        }
    }
}

impl LoweredValue {
    /// Decides an attribute that no number forced to be one: a boolean next to a boolean literal, otherwise a text.
    fn into_text_or_flag(self, is_flag: bool) -> LoweredValue {
        match self {
            LoweredValue::Attribute(path) if is_flag => LoweredValue::AttributeFlag(path),
            LoweredValue::Attribute(path) => LoweredValue::AttributeText(path),
            other => other,
        }
    }

    /// Whether Phoenix treats the expression as a number, which casts the other side to a number.
    fn is_number(&self) -> bool {
        match self {
            LoweredValue::Number(_)
            | LoweredValue::AttributeNumber(_)
            | LoweredValue::NumberOf(_)
            | LoweredValue::Arithmetic(..)
            | LoweredValue::Negative(_)
            | LoweredValue::Reduced(..) => true,
            LoweredValue::Detail(field) => !matches!(field, DetailField::TokenType | DetailField::IsPrompt),
            LoweredValue::Column(column) => column.kind() == FilterValueKind::Number,
            _ => false,
        }
    }

    /// Casts to a number. A constant text is converted now; one that is no number becomes null.
    fn into_number(self) -> LoweredValue {
        match self {
            LoweredValue::Attribute(path) | LoweredValue::AttributeText(path) | LoweredValue::AttributeFlag(path) => {
                LoweredValue::AttributeNumber(path)
            }
            LoweredValue::Text(text) => {
                names::parse_portable_number(&text).map_or(LoweredValue::Null, LoweredValue::Number)
            }
            other => LoweredValue::NumberOf(Box::new(other)),
        }
    }

    /// An operand of arithmetic: a number, or cast to one.
    fn into_operand(self) -> LoweredValue {
        if self.is_number() || self == LoweredValue::Null { self } else { self.into_number() }
    }
}

/// Substring search. `in` can search text columns, attributes, and texts of annotations.
fn lower_contains(
    node: &ExpressionNode,
    text: LoweredValue,
    wanted: LoweredValue,
) -> Result<LoweredCondition, FilterError> {
    match text {
        LoweredValue::Column(_)
        | LoweredValue::AttributeText(_)
        | LoweredValue::Annotation(..)
        | LoweredValue::Detail(_) => {}
        _ => {
            let what =
                format!("`in` needs a list or a text field behind it, not `{}`", format_excerpt(&node.to_string()));
            return Err(FilterError::meaning(node.at, what));
        }
    }
    let wanted = match wanted {
        LoweredValue::Text(wanted) => LoweredValue::Text(fold_unicode_case(&wanted)),
        other => other,
    };
    Ok(LoweredCondition::Contains { text, wanted })
}

/// Phoenix stores kinds and status codes in capitals; filters may use any case.
fn uppercase_kind_or_status(column: &LoweredValue, other: &mut LoweredValue) {
    if let (LoweredValue::Column(SpanColumn::SpanKind | SpanColumn::StatusCode), LoweredValue::Text(text)) =
        (column, other)
    {
        *text = text.to_uppercase();
    }
}

/// A boolean literal, next to which an attribute is read as a boolean.
fn is_flag(node: &ExpressionNode) -> bool {
    matches!(node.expr, ExpressionKind::Bool(_))
}

/// Whether the node is a time column.
fn time_kind(node: &ExpressionNode) -> Option<FilterValueKind> {
    names::resolve_column(node).map(SpanColumn::kind).filter(|kind| *kind == FilterValueKind::Time)
}

/// A time literal needs a time zone: without one it would depend on the machine.
fn parse_filter_time(node: &ExpressionNode, text: &str) -> Result<LoweredValue, FilterError> {
    let written = format_excerpt(text);
    let Ok(time) = text.parse::<Timestamp>() else {
        let what = match text.parse::<jiff::civil::DateTime>() {
            Ok(_) => format!("the time '{written}' has no time zone; add one, such as Z for UTC"),
            Err(_) => format!("'{written}' is no time; write one like '2026-01-01T00:00:00Z'"),
        };
        return Err(FilterError::meaning(node.at, what));
    };
    Ok(LoweredValue::Time(time.as_microsecond()))
}
