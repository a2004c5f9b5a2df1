//! A filter as it was written: what its words form, before anything is known about their meaning.

use std::fmt;

use super::lexer::NumberForm;

/// An expression, and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) expr: Expr,
}

/// What is written counts, not where.
impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.expr == other.expr
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Text(String),
    Number(f64, NumberForm),
    Bool(bool),
    None,
    Name(String),
    Attribute(Box<Node>, String),
    Subscript(Box<Node>, Box<Node>),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    Not(Box<Node>),
    Negative(Box<Node>),
    Positive(Box<Node>),
    Arithmetic(Operator, Box<Node>, Box<Node>),
    /// `a < b < c`: the first operand, then each operator with the operand behind it.
    Compare(Box<Node>, Vec<(Comparison, Node)>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Call(Box<Node>, Vec<Node>),
    /// `x for x in y if z`, the argument of a call, or the same in square brackets.
    Loop(Box<Loop>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loop {
    pub(super) element: Node,
    pub(super) variable: String,
    pub(super) iterable: Node,
    pub(super) conditions: Vec<Node>,
    pub(super) is_list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
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

impl Comparison {
    pub(super) fn is_order(self) -> bool {
        use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
        matches!(self, Less | LessOrEqual | Greater | GreaterOrEqual)
    }

    pub(super) fn is_membership(self) -> bool {
        matches!(self, Comparison::In | Comparison::NotIn)
    }
}

impl Node {
    /// `a.b.c` as its names; `None` for anything that is not names and dots only.
    pub(super) fn dotted(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        let mut node = self;
        loop {
            match &node.expr {
                Expr::Attribute(value, name) => {
                    names.push(name.as_str());
                    node = value;
                }
                Expr::Name(name) => {
                    names.push(name);
                    names.reverse();
                    return Some(names);
                }
                _ => return None,
            }
        }
    }

    /// The name that a chain of dots and brackets begins with.
    pub(super) fn root(&self) -> Option<&str> {
        let mut node = self;
        loop {
            match &node.expr {
                Expr::Attribute(value, _) | Expr::Subscript(value, _) => node = value,
                Expr::Name(name) => return Some(name),
                _ => return None,
            }
        }
    }

    pub(super) fn is_literal(&self) -> bool {
        matches!(self.expr, Expr::Text(_) | Expr::Number(..) | Expr::Bool(_) | Expr::None)
    }

    pub(super) fn items(&self) -> Option<&[Node]> {
        match &self.expr {
            Expr::List(items) | Expr::Tuple(items) => Some(items),
            _ => None,
        }
    }
}

/// Written so that reading it gives the same again; operands that are made of parts stand in brackets.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expr {
            Expr::Text(text) => write_text(text, f),
            Expr::Number(number, NumberForm::Whole) => write!(f, "{number:.0}"),
            Expr::Number(number, NumberForm::Fraction) => write!(f, "{number:e}"),
            Expr::Bool(true) => f.write_str("True"),
            Expr::Bool(false) => f.write_str("False"),
            Expr::None => f.write_str("None"),
            Expr::Name(name) => f.write_str(name),
            Expr::Attribute(value, name) => write!(f, "{}.{name}", Operand(value)),
            Expr::Subscript(value, key) => write!(f, "{}[{key}]", Operand(value)),
            Expr::List(items) => write!(f, "[{}]", Joined(items, ", ")),
            Expr::Tuple(items) if items.len() == 1 => write!(f, "({},)", items[0]),
            Expr::Tuple(items) => write!(f, "({})", Joined(items, ", ")),
            Expr::Not(operand) => write!(f, "not {}", Operand(operand)),
            Expr::Negative(operand) => write!(f, "-{}", Operand(operand)),
            Expr::Positive(operand) => write!(f, "+{}", Operand(operand)),
            Expr::Arithmetic(operator, left, right) => {
                write!(f, "{} {} {}", Operand(left), operator.as_str(), Operand(right))
            }
            Expr::Compare(first, rest) => {
                write!(f, "{}", Operand(first))?;
                rest.iter().try_for_each(|(op, operand)| write!(f, " {} {}", op.as_str(), Operand(operand)))
            }
            Expr::And(operands) => write_operands(operands, " and ", f),
            Expr::Or(operands) => write_operands(operands, " or ", f),
            Expr::Loop(inside) if inside.is_list => write!(f, "[{inside}]"),
            Expr::Loop(inside) => write!(f, "{inside}"),
            Expr::Call(function, arguments) => {
                write!(f, "{}({})", Operand(function), Joined(arguments, ", "))
            }
        }
    }
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} in {}", self.element, self.variable, Operand(&self.iterable))?;
        self.conditions.iter().try_for_each(|condition| write!(f, " if {}", Operand(condition)))
    }
}

impl Operator {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Remainder => "%",
        }
    }
}

impl Comparison {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
            Comparison::In => "in",
            Comparison::NotIn => "not in",
            Comparison::Is => "is",
            Comparison::IsNot => "is not",
        }
    }
}

struct Operand<'n>(&'n Node);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.expr {
            Expr::Not(_)
            | Expr::Negative(_)
            | Expr::Positive(_)
            | Expr::Arithmetic(..)
            | Expr::Compare(..)
            | Expr::And(_)
            | Expr::Or(_)
            // `1.real` is no number with a name behind it.
            | Expr::Number(..) => write!(f, "({})", self.0),
            _ => write!(f, "{}", self.0),
        }
    }
}

struct Joined<'n>(&'n [Node], &'static str);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { self.1 })?;
            write!(f, "{node}")?;
        }
        Ok(())
    }
}

fn write_operands(operands: &[Node], between: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, operand) in operands.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { between })?;
        write!(f, "{}", Operand(operand))?;
    }
    Ok(())
}

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
