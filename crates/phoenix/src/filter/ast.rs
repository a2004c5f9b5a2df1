//! The syntax tree of a filter, before names are resolved.

use std::fmt;

use super::lexer::NumberForm;

/// An expression and the position where it begins, in characters from 1.
#[derive(Clone, Debug)]
pub(super) struct ExpressionNode {
    pub(super) at: usize,
    pub(super) expr: ExpressionKind,
}

/// Positions are ignored, so that trees can be compared after printing and parsing.
impl PartialEq for ExpressionNode {
    fn eq(&self, other: &ExpressionNode) -> bool {
        self.expr == other.expr
    }
}

/// The part of Python's expression grammar that filters use.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpressionKind {
    /// A string literal with its escapes resolved.
    Text(String),
    Number(f64, NumberForm),
    Bool(bool),
    None,
    /// An identifier that is no keyword.
    Name(String),
    /// `value.name`.
    Attribute(Box<ExpressionNode>, String),
    /// `value[key]`. Slices are not part of the language.
    Subscript(Box<ExpressionNode>, Box<ExpressionNode>),
    List(Vec<ExpressionNode>),
    Tuple(Vec<ExpressionNode>),
    Not(Box<ExpressionNode>),
    Negative(Box<ExpressionNode>),
    Positive(Box<ExpressionNode>),
    Arithmetic(ArithmeticOperator, Box<ExpressionNode>, Box<ExpressionNode>),
    /// `a < b < c`: the first operand, then each operator with its right operand.
    Compare(Box<ExpressionNode>, Vec<(FilterComparison, ExpressionNode)>),
    /// Two or more operands, flat: `a and b and c` is one node, which keeps the tree shallow.
    And(Vec<ExpressionNode>),
    Or(Vec<ExpressionNode>),
    /// Positional arguments only.
    Call(Box<ExpressionNode>, Vec<ExpressionNode>),
    /// A generator expression as the argument of a call, or a list comprehension.
    Loop(Box<ComprehensionExpression>),
}

/// `element for variable in iterable if conditions`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ComprehensionExpression {
    /// What is computed for each element.
    pub(super) element: ExpressionNode,
    pub(super) variable: String,
    /// Only `cost_details` is accepted later.
    pub(super) iterable: ExpressionNode,
    /// All of them must hold; Python allows several `if`.
    pub(super) conditions: Vec<ExpressionNode>,
    /// Whether it is in square brackets.
    pub(super) is_list: bool,
}

/// `//`, `**` and bit operators have no counterpart in Phoenix's SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Comparison operators of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterComparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    Is,
    IsNot,
}

impl FilterComparison {
    /// `<`, `<=`, `>`, `>=`.
    pub(super) fn is_order(self) -> bool {
        use FilterComparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
        matches!(self, Less | LessOrEqual | Greater | GreaterOrEqual)
    }

    /// `in` and `not in`.
    pub(super) fn is_membership(self) -> bool {
        matches!(self, FilterComparison::In | FilterComparison::NotIn)
    }
}

impl ExpressionNode {
    /// The names of `a.b.c`; none for anything else.
    pub(super) fn dotted_names(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        let mut node = self;
        loop {
            match &node.expr {
                ExpressionKind::Attribute(value, name) => {
                    names.push(name.as_str());
                    node = value;
                }
                ExpressionKind::Name(name) => {
                    names.push(name);
                    names.reverse();
                    return Some(names);
                }
                _ => return None,
            }
        }
    }

    /// The first name of a chain of dots and subscripts.
    pub(super) fn root_name(&self) -> Option<&str> {
        let mut node = self;
        loop {
            match &node.expr {
                ExpressionKind::Attribute(value, _) | ExpressionKind::Subscript(value, _) => node = value,
                ExpressionKind::Name(name) => return Some(name),
                _ => return None,
            }
        }
    }

    /// A constant as written, not a constant expression.
    pub(super) fn is_literal(&self) -> bool {
        matches!(
            self.expr,
            ExpressionKind::Text(_) | ExpressionKind::Number(..) | ExpressionKind::Bool(_) | ExpressionKind::None
        )
    }

    /// The elements of a list or tuple.
    pub(super) fn items(&self) -> Option<&[ExpressionNode]> {
        match &self.expr {
            ExpressionKind::List(items) | ExpressionKind::Tuple(items) => Some(items),
            _ => None,
        }
    }
}

/// Prints an expression that parses to the same tree. Compound operands are parenthesised.
impl fmt::Display for ExpressionNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expr {
            ExpressionKind::Text(text) => write_text(text, f),
            ExpressionKind::Number(number, NumberForm::Whole) => write!(f, "{number:.0}"),
            ExpressionKind::Number(number, NumberForm::Fraction) => write!(f, "{number:e}"),
            ExpressionKind::Bool(true) => f.write_str("True"),
            ExpressionKind::Bool(false) => f.write_str("False"),
            ExpressionKind::None => f.write_str("None"),
            ExpressionKind::Name(name) => f.write_str(name),
            ExpressionKind::Attribute(value, name) => write!(f, "{}.{name}", ParenthesizedOperand(value)),
            ExpressionKind::Subscript(value, key) => write!(f, "{}[{key}]", ParenthesizedOperand(value)),
            ExpressionKind::List(items) => write!(f, "[{}]", JoinedExpressions(items, ", ")),
            ExpressionKind::Tuple(items) if items.len() == 1 => write!(f, "({},)", items[0]),
            ExpressionKind::Tuple(items) => write!(f, "({})", JoinedExpressions(items, ", ")),
            ExpressionKind::Not(operand) => write!(f, "not {}", ParenthesizedOperand(operand)),
            ExpressionKind::Negative(operand) => write!(f, "-{}", ParenthesizedOperand(operand)),
            ExpressionKind::Positive(operand) => write!(f, "+{}", ParenthesizedOperand(operand)),
            ExpressionKind::Arithmetic(operator, left, right) => {
                write!(f, "{} {} {}", ParenthesizedOperand(left), operator.as_str(), ParenthesizedOperand(right))
            }
            ExpressionKind::Compare(first, rest) => {
                write!(f, "{}", ParenthesizedOperand(first))?;
                rest.iter()
                    .try_for_each(|(op, operand)| write!(f, " {} {}", op.as_str(), ParenthesizedOperand(operand)))
            }
            ExpressionKind::And(operands) => write_operands(operands, " and ", f),
            ExpressionKind::Or(operands) => write_operands(operands, " or ", f),
            ExpressionKind::Loop(inside) if inside.is_list => write!(f, "[{inside}]"),
            ExpressionKind::Loop(inside) => write!(f, "{inside}"),
            ExpressionKind::Call(function, arguments) => {
                write!(f, "{}({})", ParenthesizedOperand(function), JoinedExpressions(arguments, ", "))
            }
        }
    }
}

impl fmt::Display for ComprehensionExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} in {}", self.element, self.variable, ParenthesizedOperand(&self.iterable))?;
        self.conditions.iter().try_for_each(|condition| write!(f, " if {}", ParenthesizedOperand(condition)))
    }
}

impl ArithmeticOperator {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ArithmeticOperator::Add => "+",
            ArithmeticOperator::Subtract => "-",
            ArithmeticOperator::Multiply => "*",
            ArithmeticOperator::Divide => "/",
            ArithmeticOperator::Remainder => "%",
        }
    }
}

impl FilterComparison {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            FilterComparison::Equal => "==",
            FilterComparison::NotEqual => "!=",
            FilterComparison::Less => "<",
            FilterComparison::LessOrEqual => "<=",
            FilterComparison::Greater => ">",
            FilterComparison::GreaterOrEqual => ">=",
            FilterComparison::In => "in",
            FilterComparison::NotIn => "not in",
            FilterComparison::Is => "is",
            FilterComparison::IsNot => "is not",
        }
    }
}

/// An operand, in parentheses if it is compound.
struct ParenthesizedOperand<'n>(&'n ExpressionNode);

impl fmt::Display for ParenthesizedOperand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.expr {
            ExpressionKind::Not(_)
            | ExpressionKind::Negative(_)
            | ExpressionKind::Positive(_)
            | ExpressionKind::Arithmetic(..)
            | ExpressionKind::Compare(..)
            | ExpressionKind::And(_)
            | ExpressionKind::Or(_)
            // `1.real` is no number with a name behind it.
            | ExpressionKind::Number(..) => write!(f, "({})", self.0),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// Expressions with a separator between them.
struct JoinedExpressions<'n>(&'n [ExpressionNode], &'static str);

impl fmt::Display for JoinedExpressions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { self.1 })?;
            write!(f, "{node}")?;
        }
        Ok(())
    }
}

/// Operands of `and` and `or`; compound ones in parentheses.
fn write_operands(operands: &[ExpressionNode], between: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, operand) in operands.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { between })?;
        write!(f, "{}", ParenthesizedOperand(operand))?;
    }
    Ok(())
}

/// A Python string literal in single quotes, with control characters escaped.
fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("'")?;
    for c in text.chars() {
        match c {
            '\'' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\U{:08x}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("'")
}
