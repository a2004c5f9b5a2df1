//! From what is written to what is done: names become columns and paths, and every place where Phoenix casts one kind
//! of value to another is settled here, once for a filter instead of once for a span.

use std::collections::HashSet;

use jiff::Timestamp;

use super::ast::{Comparison, Expr, Loop, Node, Operator};
use super::error::{FilterError, excerpt};
use super::loops::{self, DetailField, Reduction};
use super::names::{self, AnnotationScope, Column, Field, Path};
use super::sql::fold;
use crate::filter::value_kind::{Kind, invalid};

/// Something that is true, false or unknown of a span.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Constant(bool),
    Compare(Value, Comparison, Value),
    IsNull(Value),
    /// The text to look for is folded already where it is a constant.
    Contains {
        text: Value,
        wanted: Value,
    },
    OneOf(Value, ValueList),
    HasParent,
    /// Whether the annotation in this place is there.
    Annotated(usize),
    /// A field that is true or false by itself.
    Holds(Value),
    /// Any or all details of the cost.
    Details(Reduction, Box<Details>),
}

/// What a value may be one of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValueList {
    pub(super) values: Vec<Value>,
    /// The same, if all of them are texts: lists of ids are long.
    pub(super) texts: Option<HashSet<String>>,
}

impl ValueList {
    fn new(values: Vec<Value>) -> ValueList {
        let text = |value: &Value| match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        ValueList { texts: values.iter().map(text).collect(), values }
    }
}

/// What is asked of each detail of a cost for which the condition holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Details {
    pub(super) element: Value,
    pub(super) condition: Condition,
}

/// Something that is a text, a number or nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Text(String),
    Number(f64),
    /// Microseconds since 1970; a number, but never written as one.
    Time(i64),
    Column(Column),
    /// An attribute of which is not yet known what it is compared with. None is left in a finished condition.
    Attribute(Path),
    AttributeText(Path),
    AttributeNumber(Path),
    AttributeFlag(Path),
    Annotation(usize, Field),
    Joined(Box<Value>, Box<Value>),
    /// The number at the beginning of a text.
    NumberOf(Box<Value>),
    Arithmetic(Operator, Box<Value>, Box<Value>),
    Negative(Box<Value>),
    Truth(Box<Condition>),
    /// Of the detail that is looked at.
    Detail(DetailField),
    /// Details of the cost, counted or added up.
    Reduced(Reduction, Box<Details>),
}

/// A filter made ready, and the annotations that it speaks of, each once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lowered {
    pub(super) condition: Condition,
    pub(super) annotations: Vec<(AnnotationScope, String)>,
}

/// More annotations than anyone asks about in one filter: each of them multiplies the rows to look at.
const MAX_ANNOTATIONS: usize = 16;

pub(super) fn lower(filter: &Node) -> Result<Lowered, FilterError> {
    let mut lowering = Lowering { annotations: Vec::new(), variable: None };
    let condition = lowering.condition(filter)?;
    Ok(Lowered { condition, annotations: lowering.annotations })
}

struct Lowering {
    annotations: Vec<(AnnotationScope, String)>,
    /// The name for the detail that a loop looks at, inside of one.
    variable: Option<String>,
}

impl Lowering {
    fn condition(&mut self, node: &Node) -> Result<Condition, FilterError> {
        Ok(match &node.expr {
            Expr::And(operands) => Condition::All(self.conditions(operands)?),
            Expr::Or(operands) => Condition::Any(self.conditions(operands)?),
            Expr::Not(operand) => Condition::Not(Box::new(self.condition(operand)?)),
            Expr::Bool(value) => Condition::Constant(*value),
            Expr::Compare(first, rest) => {
                let mut links = Vec::with_capacity(rest.len());
                let mut left: &Node = first;
                for (comparison, right) in rest {
                    links.push(self.comparison(left, *comparison, right)?);
                    left = right;
                }
                if links.len() == 1 { links.remove(0) } else { Condition::All(links) }
            }
            Expr::Subscript(..) => match names::annotation(node) {
                Some((scope, name)) => Condition::Annotated(self.annotation(node.at, scope, name)?),
                None => return Err(invalid(node)),
            },
            Expr::Call(..) => match loops::reduction(node) {
                Some((reduction, inside)) if reduction.is_condition() => {
                    Condition::Details(reduction, Box::new(self.details(reduction, inside)?))
                }
                _ => return Err(invalid(node)),
            },
            Expr::Attribute(..) => Condition::Holds(self.value(node)?),
            _ => return Err(invalid(node)),
        })
    }

    fn details(&mut self, reduction: Reduction, inside: &Loop) -> Result<Details, FilterError> {
        self.variable = Some(inside.variable.clone());
        let condition = Condition::All(self.conditions(&inside.conditions)?);
        let element = match reduction {
            Reduction::Any | Reduction::All => Value::Truth(Box::new(self.condition(&inside.element)?)),
            Reduction::Len => Value::Null,
            Reduction::Sum | Reduction::Max | Reduction::Min => self.value(&inside.element)?,
        };
        self.variable = None;
        Ok(Details { element, condition })
    }

    fn conditions(&mut self, nodes: &[Node]) -> Result<Vec<Condition>, FilterError> {
        nodes.iter().map(|node| self.condition(node)).collect()
    }

    fn comparison(
        &mut self,
        left: &Node,
        comparison: Comparison,
        right: &Node,
    ) -> Result<Condition, FilterError> {
        let is_negated = matches!(comparison, Comparison::NotEqual | Comparison::IsNot | Comparison::NotIn);
        if names::is_parent_span(left) || names::is_parent_span(right) {
            let has_parent = Condition::HasParent;
            return Ok(if is_negated { has_parent } else { Condition::Not(Box::new(has_parent)) });
        }
        if let Some(items) = right.items() {
            let one_of = self.one_of(left, items)?;
            return Ok(if is_negated { Condition::Not(Box::new(one_of)) } else { one_of });
        }
        let (left_kind, right_kind) = (time_kind(left), time_kind(right));
        let (mut a, mut b) = (self.value_for(left, right_kind)?, self.value_for(right, left_kind)?);
        uppercase(&a, &mut b);
        uppercase(&b, &mut a);
        if let (Value::Attribute(left), true, Value::Attribute(right)) = (&a, comparison.is_order(), &b) {
            (a, b) = (Value::AttributeNumber(left.clone()), Value::AttributeNumber(right.clone()));
        }
        let flags = (is_flag(left), is_flag(right));
        a = a.settled(flags.1);
        b = b.settled(flags.0);
        let is_null = (a == Value::Null, b == Value::Null);
        match (a.is_number(), b.is_number()) {
            (true, false) if !is_null.1 => b = b.into_number(),
            (false, true) if !is_null.0 => a = a.into_number(),
            _ => {}
        }
        if comparison.is_membership() {
            let contains = contains(right, b, a)?;
            return Ok(if is_negated { Condition::Not(Box::new(contains)) } else { contains });
        }
        Ok(match is_null {
            (true, true) => Condition::Constant(!is_negated),
            (false, false) => Condition::Compare(a, comparison, b),
            (a_is_null, _) => {
                let is_null = Condition::IsNull(if a_is_null { b } else { a });
                if is_negated { Condition::Not(Box::new(is_null)) } else { is_null }
            }
        })
    }

    fn one_of(&mut self, left: &Node, items: &[Node]) -> Result<Condition, FilterError> {
        let mut value = self.value(left)?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let mut item = self.value_for(item, time_kind(left))?;
            uppercase(&value, &mut item);
            values.push(item);
        }
        value = value.settled(!items.is_empty() && items.iter().all(is_flag));
        let are_numbers = values.first().is_some_and(Value::is_number);
        if value.is_number() && !are_numbers {
            values = values
                .into_iter()
                .map(|item| if item.is_number() { item } else { item.into_number() })
                .collect();
        } else if are_numbers && !value.is_number() {
            value = value.into_number();
        }
        match items.iter().zip(&values).find(|(_, item)| matches!(item, Value::Attribute(_))) {
            Some((item, _)) => Err(FilterError::meaning(
                item.at,
                "an attribute in a list is not supported; compare with `==`",
            )),
            None => Ok(Condition::OneOf(value, ValueList::new(values))),
        }
    }

    /// A value that is compared with something of this kind: next to a time, a text is one too.
    fn value_for(&mut self, node: &Node, other: Option<Kind>) -> Result<Value, FilterError> {
        match (&node.expr, other) {
            (Expr::Text(text), Some(Kind::Time)) => time(node, text),
            _ => self.value(node),
        }
    }

    fn value(&mut self, node: &Node) -> Result<Value, FilterError> {
        Ok(match &node.expr {
            Expr::Text(text) => Value::Text(text.clone()),
            Expr::Number(number, _) => Value::Number(*number),
            Expr::None => Value::Null,
            Expr::Bool(_) | Expr::And(_) | Expr::Or(_) | Expr::Not(_) | Expr::Compare(..) => {
                Value::Truth(Box::new(self.condition(node)?))
            }
            Expr::Name(_) if names::is_parent_span(node) => {
                return Err(FilterError::meaning(
                    node.at,
                    "`parent_span` can only be compared with None, as in `parent_span is None`",
                ));
            }
            Expr::Name(_) | Expr::Attribute(..) | Expr::Subscript(..) => self.named(node)?,
            Expr::Negative(operand) => Value::Negative(Box::new(self.value(operand)?.into_operand())),
            Expr::Positive(operand) => self.value(operand)?.into_operand(),
            Expr::Arithmetic(operator, left, right) => {
                let (left, right) = (self.value(left)?.settled(false), self.value(right)?.settled(false));
                if *operator == Operator::Add && !left.is_number() && !right.is_number() {
                    Value::Joined(Box::new(left), Box::new(right))
                } else {
                    Value::Arithmetic(
                        *operator,
                        Box::new(left.into_operand()),
                        Box::new(right.into_operand()),
                    )
                }
            }
            Expr::Call(..)
                if loops::reduction(node).is_some_and(|(reduction, _)| reduction.is_condition()) =>
            {
                Value::Truth(Box::new(self.condition(node)?))
            }
            Expr::Call(function, arguments) => match (&function.expr, &arguments[..]) {
                _ if let Some((reduction, inside)) = loops::reduction(node) => {
                    Value::Reduced(reduction, Box::new(self.details(reduction, inside)?))
                }
                (Expr::Name(name), [argument]) if name == "str" => self.value(argument)?.settled(false),
                (Expr::Name(_), [argument]) => self.value(argument)?.into_operand(),
                _ => return Err(invalid(node)),
            },
            Expr::List(_) | Expr::Tuple(_) | Expr::Loop(_) => return Err(invalid(node)),
        })
    }

    fn named(&mut self, node: &Node) -> Result<Value, FilterError> {
        if let Some(variable) = &self.variable {
            return loops::field(node, variable).map(Value::Detail).ok_or_else(|| invalid(node));
        }
        if let Some((scope, name, field)) = names::annotation_field(node) {
            return Ok(Value::Annotation(self.annotation(node.at, scope, name)?, field));
        }
        if names::annotation(node).is_some() {
            return Ok(Value::Truth(Box::new(self.condition(node)?)));
        }
        if let Some(column) = names::column(node) {
            return Ok(Value::Column(column));
        }
        names::path(node).map(Value::Attribute).ok_or_else(|| invalid(node))
    }

    fn annotation(&mut self, at: usize, scope: AnnotationScope, name: &str) -> Result<usize, FilterError> {
        let known = self.annotations.iter().position(|(known, of)| *known == scope && of == name);
        match known {
            Some(place) => Ok(place),
            None if self.annotations.len() == MAX_ANNOTATIONS => Err(FilterError::meaning(
                at,
                format!("a filter can speak of {MAX_ANNOTATIONS} annotations at most"),
            )),
            None => {
                self.annotations.push((scope, name.to_owned()));
                Ok(self.annotations.len() - 1)
            }
        }
    }
}

impl Value {
    /// An attribute that is compared with nothing but itself is a text, or a flag next to one.
    fn settled(self, is_flag: bool) -> Value {
        match self {
            Value::Attribute(path) if is_flag => Value::AttributeFlag(path),
            Value::Attribute(path) => Value::AttributeText(path),
            other => other,
        }
    }

    fn is_number(&self) -> bool {
        match self {
            Value::Number(_)
            | Value::AttributeNumber(_)
            | Value::NumberOf(_)
            | Value::Arithmetic(..)
            | Value::Negative(_)
            | Value::Reduced(..) => true,
            Value::Detail(field) => !matches!(field, DetailField::TokenType | DetailField::IsPrompt),
            Value::Column(column) => column.kind() == Kind::Number,
            _ => false,
        }
    }

    fn into_number(self) -> Value {
        match self {
            Value::Attribute(path) | Value::AttributeText(path) | Value::AttributeFlag(path) => {
                Value::AttributeNumber(path)
            }
            Value::Text(text) => names::number_in(&text).map_or(Value::Null, Value::Number),
            other => Value::NumberOf(Box::new(other)),
        }
    }

    fn into_operand(self) -> Value {
        if self.is_number() || self == Value::Null { self } else { self.into_number() }
    }
}

/// What `in` can search: columns of texts, attributes, and the texts of annotations.
fn contains(node: &Node, text: Value, wanted: Value) -> Result<Condition, FilterError> {
    match text {
        Value::Column(_) | Value::AttributeText(_) | Value::Annotation(..) | Value::Detail(_) => {}
        _ => {
            let what =
                format!("`in` needs a list or a text field behind it, not `{}`", excerpt(&node.to_string()));
            return Err(FilterError::meaning(node.at, what));
        }
    }
    let wanted = match wanted {
        Value::Text(wanted) => Value::Text(fold(&wanted)),
        other => other,
    };
    Ok(Condition::Contains { text, wanted })
}

/// Kinds and states are kept in capitals; what they are compared with may be written in any case.
fn uppercase(column: &Value, other: &mut Value) {
    if let (Value::Column(Column::SpanKind | Column::StatusCode), Value::Text(text)) = (column, other) {
        *text = text.to_uppercase();
    }
}

fn is_flag(node: &Node) -> bool {
    matches!(node.expr, Expr::Bool(_))
}

fn time_kind(node: &Node) -> Option<Kind> {
    names::column(node).map(Column::kind).filter(|kind| *kind == Kind::Time)
}

fn time(node: &Node, text: &str) -> Result<Value, FilterError> {
    let written = excerpt(text);
    let Ok(time) = text.parse::<Timestamp>() else {
        let what = match text.parse::<jiff::civil::DateTime>() {
            Ok(_) => format!("the time '{written}' has no time zone; add one, such as Z for UTC"),
            Err(_) => format!("'{written}' is no time; write one like '2026-01-01T00:00:00Z'"),
        };
        return Err(FilterError::meaning(node.at, what));
    };
    Ok(Value::Time(time.as_microsecond()))
}
